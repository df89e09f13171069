"""Conversations of an archive becoming the state of a repository, apart from all others."""

from __future__ import annotations

from mnemo.episode.archive import ArchivedMessage, ArchivedMessageVector, Record
from mnemo.errors import InvalidArchive
from mnemo.store.memory.state import RepoState
from mnemo.store.memory.threads import MessageState, ThreadState, key_of
from mnemo.transcript.derived import (
    Compaction,
    Derived,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
    Thread,
)
from mnemo.transcript.message import embedded_text, searchable_text

__all__ = ["ArrivingTalk"]

_DOUBLE = "it is there twice"


class ArrivingTalk:
    """What has arrived of an archive's conversations."""

    def __init__(self, repo: RepoState) -> None:
        self._repo = repo
        self._entries: dict[str, dict[int, MessageState]] = {}
        self._ids: set[tuple[str, str]] = set()
        self._pointing: list[tuple[int, str, type[Derived], str]] = []
        self._line = 0
        self.messages = 0

    def add(self, record: Record, line: int) -> None:
        """Take a record. *Raises* ``InvalidArchive`` if it does not fit those before."""
        self._line = line
        match record:
            case Thread():
                self._add_thread(record)
            case ArchivedMessage():
                self._add_message(record)
            case ArchivedMessageVector():
                self._add_vector(record)
            case Pin():
                entry = self._entries.get(record.thread_id, {}).get(record.seq)
                held = entry is not None and entry.message.id == record.message_id
                self._add_derived(record, record.seq)
                self._insist(held, "the message that it pins is not in the archive")
            case Goal():
                self._add_derived(record, None)
                past = record.id < self._state(record.thread_id).row.next_goal
                self._insist(past, "its id is past its thread's next one")
            case Compaction():
                self._add_derived(record, record.end_seq)
                self._point(record, Compaction, record.superseded_by)
            case Snapshot():
                self._add_derived(record, record.to_seq)
                self._point(record, Snapshot, record.covered_by)
            case EvictionOutcome():
                self._add_derived(record, record.to_seq)
                self._point(record, Snapshot, record.snapshot_id)

    def settle(self) -> None:
        """When all are there: put the messages in their places. *Raises* ``InvalidArchive``."""
        for line, thread_id, kind, id in self._pointing:
            self._line = line
            there = id in self._state(thread_id).shelf(kind).values
            self._insist(there, "the summary that it names is not in the archive")
        for thread_id, entries in self._entries.items():
            self._repo.threads[thread_id].insert(entries[seq] for seq in sorted(entries))

    def _point(self, value: Derived, kind: type[Derived], id: str | None) -> None:
        if id is not None:
            self._pointing.append((self._line, value.thread_id, kind, id))

    def _insist(self, fits: bool, reason: str) -> None:
        if not fits:
            raise InvalidArchive(self._line, reason)

    def _state(self, thread_id: str) -> ThreadState:
        state = self._repo.threads.get(thread_id)
        if state is None:
            raise InvalidArchive(self._line, "its thread is not in the archive")
        return state

    def _add_thread(self, thread: Thread) -> None:
        self._insist(thread.id not in self._repo.threads, _DOUBLE)
        self._repo.threads[thread.id] = ThreadState(thread)

    def _add_message(self, record: ArchivedMessage) -> None:
        message = record.message
        row = self._state(message.thread_id).row
        entries = self._entries.setdefault(message.thread_id, {})
        name = (message.thread_id, message.stored_id)
        self._insist(message.seq not in entries and name not in self._ids, _DOUBLE)
        self._check_place(row, message.seq, message.epoch)
        self._ids.add(name)
        self.messages += 1
        text = searchable_text(message, tools=True) if record.searched else ""
        entries[message.seq] = MessageState(self.messages, message, text)
        if record.owed:
            self._repo.owed.owe(self.messages, message.thread_id, message.seq)

    def _add_vector(self, record: ArchivedMessageVector) -> None:
        state = self._state(record.thread_id)
        self._insist(record.seq not in state.vectors, _DOUBLE)
        entry = self._entries.get(record.thread_id, {}).get(record.seq)
        owner = entry is not None and bool(embedded_text(entry.message))
        waits = entry is not None and entry.no in self._repo.owed.all
        self._insist(owner and not waits, "what the vector is of has none, or waits for one")
        state.vectors[record.seq] = record.vector

    def _add_derived(self, value: Derived, last: int | None) -> None:
        state = self._state(value.thread_id)
        shelf = state.shelf(type(value))
        self._insist(key_of(value) not in shelf.values, _DOUBLE)
        self._check_place(state.row, last, value.epoch)
        shelf.put(value)

    def _check_place(self, row: Thread, seq: int | None, epoch: int) -> None:
        fits = epoch <= row.epoch and (seq is None or seq < row.next_seq)
        self._insist(fits, "it is past the end of its thread")

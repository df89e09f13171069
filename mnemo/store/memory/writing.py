"""Writing the conversations of one repository in memory, with how to take it all back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from functools import partial

import numpy as np

from mnemo.errors import Conflict
from mnemo.graph.nodes import Vector
from mnemo.messages import EmbeddingSpace
from mnemo.store.memory.reading import Reading, copied, own
from mnemo.store.memory.state import Kept, RepoState
from mnemo.store.memory.threads import MessageState, ThreadState
from mnemo.transcript.derived import (
    Compaction,
    Derived,
    ErasedRows,
    EvictionOutcome,
    Pin,
    Snapshot,
    Surfaced,
    Thread,
)
from mnemo.transcript.message import StoredMessage, embedded_text, searchable_text

__all__ = ["Writing"]


class Writing(Reading):
    """``TranscriptWriter``: every change leaves behind how to take it back."""

    def __init__(self, kept: Kept, repo: RepoState, now: datetime) -> None:
        super().__init__(repo, now)
        self._kept = kept
        self._undo: list[Callable[[], object]] = []

    def undo(self) -> None:
        """Take everything back, the last first."""
        while self._undo:
            self._undo.pop()()

    def _begun(self, thread_id: str) -> ThreadState:
        threads = self.repo.threads
        if thread_id not in threads:
            threads[thread_id] = ThreadState(Thread(id=thread_id))
            self._undo.append(partial(threads.pop, thread_id))
        return threads[thread_id]

    def keep(self, thread: Thread) -> None:
        """Write the thread's row."""
        state = self._begun(thread.id)
        self._undo.append(partial(setattr, state, "row", state.row))
        state.row = thread

    def add(self, messages: Sequence[StoredMessage], *, search_tools: bool = False) -> None:
        """Insert messages. *Raises* ``Conflict`` for a seq or id that the thread has."""
        for message in messages:
            state = self._begun(message.thread_id)
            if message.seq in state.messages or message.stored_id in state.seq_of:
                raise Conflict(f"message {message.stored_id!r} or its seq is in the thread already")
            self._kept.message_no += 1
            text = searchable_text(message, tools=search_tools)
            self._insert(MessageState(self._kept.message_no, copied(message), text))
            if embedded_text(message):
                self._owe(self._kept.message_no, message.thread_id, message.seq)

    def _insert(self, entry: MessageState) -> None:
        state = self._begun(entry.message.thread_id)
        state.insert([entry])
        self._undo.append(partial(state.remove, [entry.message.seq]))

    def _owe(self, no: int, thread_id: str, seq: int) -> None:
        self.repo.owed.owe(no, thread_id, seq)
        self._undo.append(partial(self.repo.owed.settle, no))

    def _settle(self, entry: MessageState) -> bool:
        place = (entry.no, entry.message.thread_id, entry.message.seq)
        owed = self.repo.owed.settle(entry.no)
        if owed:
            self._undo.append(partial(self.repo.owed.owe, *place))
        return owed

    def put(self, *values: Derived) -> None:
        """Insert or replace by id, or place."""
        for value in values:
            shelf = self._begun(value.thread_id).shelf(type(value))
            before = shelf.put(own(value))
            back = partial(shelf.drop, value) if before is None else partial(shelf.put, before)
            self._undo.append(back)

    def drop(self, *values: Derived) -> None:
        """Delete; what is not there is skipped."""
        for value in values:
            shelf = self.state_of(value.thread_id).shelf(type(value))
            before = shelf.drop(value)
            if before is not None:
                self._undo.append(partial(shelf.put, before))

    # ── Erasing ──────────────────────────────────────────────────────────────────────

    def erase(self, thread_id: str, seqs: Sequence[int]) -> ErasedRows:
        """Delete messages and what was derived from ranges that held one of them."""
        state = self.state_of(thread_id)
        there = sorted({seq for seq in seqs if seq in state.messages})
        if not there:
            return ErasedRows()
        entries = [state.messages[seq] for seq in there]
        vectors = sum(self._drop_vector(state, seq) for seq in there)
        for entry in entries:
            self._settle(entry)
        self._remember_erased(state, [entry.message.stored_id for entry in entries])
        state.remove(there)
        self._undo.append(partial(state.insert, entries))
        compactions, snapshots = self._erase_ranges(thread_id, there)
        gone = set(there)
        pins = [pin for pin in self.all(Pin, thread_id) if pin.seq in gone]
        self.drop(*pins)
        texts = [entry.text for entry in entries] + [one.text for one in snapshots]
        ids = [entry.message.stored_id for entry in entries] + [one.id for one in snapshots]
        self.unshow({(thread_id, id) for id in ids})
        return ErasedRows(
            messages=len(there),
            compactions=len(compactions),
            snapshots=len(snapshots),
            pins=len(pins),
            fulltext_rows=sum(map(bool, texts)),
            vectors=vectors,
        )

    def _remember_erased(self, state: ThreadState, ids: Sequence[str]) -> None:
        new = {self.digest(id) for id in ids} - state.erased
        state.erased |= new
        self._undo.append(partial(state.erased.difference_update, new))

    def _erase_ranges(
        self, thread_id: str, seqs: Sequence[int]
    ) -> tuple[list[Compaction], list[Snapshot]]:
        compactions, snapshots = self.all(Compaction, thread_id), self.all(Snapshot, thread_id)
        unsaid = [c for c in compactions if _holds_one(seqs, c.start_seq, c.end_seq)]
        unseen = [s for s in snapshots if _holds_one(seqs, s.from_seq, s.to_seq)]
        self.drop(*unsaid, *unseen)
        gone = {c.id for c in unsaid} | {s.id for s in unseen}
        for compaction in compactions:
            if compaction.superseded_by in gone and compaction.id not in gone:
                self.put(replace(compaction, superseded_by=None))
        for snapshot in snapshots:
            if snapshot.covered_by in gone and snapshot.id not in gone:
                self.put(replace(snapshot, covered_by=None))
        for outcome in self.all(EvictionOutcome, thread_id):
            if outcome.snapshot_id in gone:
                self.put(replace(outcome, snapshot_id=None))
        return unsaid, unseen

    def unshow(self, records: Set[tuple[str, str]]) -> None:
        """Delete what surfaced, in any thread, together with one of these records."""
        for state in self.repo.threads.values():
            shown = state.shelf(Surfaced).values.values()
            self.drop(*[v for v in shown if not records.isdisjoint(getattr(v, "shown", ()))])

    # ── Vectors ──────────────────────────────────────────────────────────────────────

    def save_vectors(
        self, space: EmbeddingSpace, vectors: Mapping[tuple[str, int], Vector]
    ) -> None:
        """Keep the vectors of messages that are still there and owed one."""
        owed = self.repo.owed.all
        due = []
        for (thread_id, seq), vector in vectors.items():
            entry = self.state_of(thread_id).messages.get(seq)
            if entry is not None and entry.no in owed:
                due.append((entry, vector))
        self.repo.check_space(space, [vector for _, vector in due])
        if due:
            self._undo.append(partial(setattr, self.repo, "space", self.repo.space))
            self.repo.stamp(space)
        for entry, vector in due:
            vectors_of = self.state_of(entry.message.thread_id).vectors
            self._settle(entry)
            vectors_of[entry.message.seq] = np.array(vector, dtype=np.float32)
            self._undo.append(partial(vectors_of.pop, entry.message.seq))

    def drop_vectors(self, thread_id: str, *, keep_newest: int) -> int:
        """Delete all but the newest vectors of the thread; how many."""
        state = self.state_of(thread_id)
        seqs = sorted(state.vectors)
        return sum(self._drop_vector(state, seq) for seq in seqs[: max(len(seqs) - keep_newest, 0)])

    def _drop_vector(self, state: ThreadState, seq: int) -> bool:
        vector = state.vectors.pop(seq, None)
        if vector is not None:
            self._undo.append(partial(state.vectors.__setitem__, seq, vector))
        return vector is not None


def _holds_one(seqs: Sequence[int], first: int, last: int) -> bool:
    place = bisect_left(seqs, first)
    return place < len(seqs) and seqs[place] <= last

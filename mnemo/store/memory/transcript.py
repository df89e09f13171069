"""The conversations of one repository, in memory; a work that fails is undone step by step."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from anyio.lowlevel import cancel_shielded_checkpoint
from numpy.typing import NDArray

from mnemo._text import is_blank
from mnemo.errors import Conflict
from mnemo.graph.nodes import Vector
from mnemo.messages import EmbeddingSpace
from mnemo.protocols import Clock
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
from mnemo.transcript.message import (
    Role,
    StoredMessage,
    ToolCall,
    embedded_text,
    searchable_text,
)
from mnemo.transcript.transaction import TranscriptReader, TranscriptWriter

__all__ = ["MemoryTranscript", "Writing"]

T = TypeVar("T")
D = TypeVar("D", bound=Derived)

_FIELDS = tuple(f.name for f in fields(StoredMessage))


class MemoryTranscript:
    """``TranscriptStore`` in memory; made by ``MemoryStore``."""

    def __init__(self, repo_id: str, kept: Callable[[], Kept], clock: Clock) -> None:
        self._repo_id = repo_id
        self._kept = kept
        self._clock = clock

    async def reading(self, work: Callable[[TranscriptReader], T]) -> T:
        """Run *work* at once, in this turn of the loop."""
        kept = self._kept()
        result = work(Reading(kept.repo(self._repo_id), self._clock.now()))
        await cancel_shielded_checkpoint()
        return result

    async def writing(self, work: Callable[[TranscriptWriter], T]) -> T:
        """Run *work* at once; if it raises, all that it did is undone."""
        kept = self._kept()
        writing = Writing(kept, kept.repo(self._repo_id), self._clock.now())
        try:
            result = work(writing)
        except BaseException:
            writing.undo()
            raise
        await cancel_shielded_checkpoint()
        return result


class Reading:
    """``TranscriptReader`` over the state of one repository."""

    def __init__(self, repo: RepoState, now: datetime) -> None:
        self._repo = repo
        self._now = now

    @property
    def now(self) -> datetime:
        """The store's time of this transaction."""
        return self._now

    def _state(self, thread_id: str) -> ThreadState:
        return self._repo.threads.get(thread_id) or ThreadState()

    # ── Messages ─────────────────────────────────────────────────────────────────────

    def messages(
        self,
        thread_id: str,
        *,
        from_seq: int = 0,
        to_seq: int | None = None,
        newest: int | None = None,
        role: Role | None = None,
        since: datetime | None = None,
    ) -> list[StoredMessage]:
        """Messages of the range, ascending; fresh copies."""
        state = self._state(thread_id)
        first = max(from_seq, state.line.alive_from(since))
        seqs = state.line.range(first, to_seq, role)
        found: list[StoredMessage] = []
        for seq in reversed(seqs):
            if newest is not None and len(found) >= newest:
                break
            message = state.messages[seq].message
            if since is None or message.recorded_at >= since:
                found.append(_copy(message))
        found.reverse()
        return found

    def by_id(self, thread_id: str, ids: Sequence[str]) -> dict[str, StoredMessage]:
        """Those of *ids* that the thread holds."""
        state = self._state(thread_id)
        known = {id: state.seq_of[id] for id in ids if id in state.seq_of}
        return {id: _copy(state.messages[seq].message) for id, seq in known.items()}

    def of_calls(self, thread_id: str, call_ids: Sequence[str]) -> list[StoredMessage]:
        """The messages that make these calls, and those that answer them, ascending."""
        state = self._state(thread_id)
        seqs = {seq for id in call_ids for seq in state.of_call.get(id, ())}
        return [_copy(state.messages[seq].message) for seq in sorted(seqs)]

    def span(
        self, thread_id: str, *, from_seq: int, since: datetime | None = None
    ) -> tuple[int, int]:
        """How many messages there are from *from_seq* on, and their tokens together."""
        state = self._state(thread_id)
        line = state.line
        seqs = line.range(max(from_seq, line.alive_from(since)), None, None)
        if since is not None and not line.in_time:
            left = [state.messages[seq].message for seq in seqs]
            tokens = [m.tokens for m in left if m.recorded_at >= since]
            return len(tokens), sum(tokens)
        return len(seqs), line.end - line.starts[-len(seqs)] if seqs else 0

    def erased_ids(self, thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        """Those of *ids* that were erased from the thread."""
        erased = self._state(thread_id).erased
        return frozenset(id for id in ids if self._digest(id) in erased)

    def _digest(self, id: str) -> bytes:
        key = self._repo.salt.encode()
        return hashlib.blake2b(
            id.encode("utf-8", "surrogatepass"), key=key, digest_size=16
        ).digest()

    def owed(self, *, limit: int, thread_id: str | None = None) -> list[StoredMessage]:
        """Messages that wait for their vector, oldest first."""
        places = islice(self._repo.owed.oldest(thread_id), limit)
        threads = self._repo.threads
        return [_copy(threads[thread].messages[seq].message) for thread, seq in places]

    def vectors(
        self, thread_id: str, *, from_seq: int = 0, since: datetime | None = None
    ) -> tuple[list[int], NDArray[np.float32]]:
        """Seqs of messages that have a vector, ascending, and the vectors."""
        state = self._state(thread_id)
        first = max(from_seq, state.line.alive_from(since))
        seqs = [
            seq
            for seq in sorted(state.vectors)
            if seq >= first and (since is None or state.messages[seq].message.recorded_at >= since)
        ]
        if seqs:
            return seqs, np.stack([state.vectors[seq] for seq in seqs])
        space = self._repo.space
        return [], np.empty((0, space.dimensions if space else 0), dtype=np.float32)

    # ── What was derived ─────────────────────────────────────────────────────────────

    def thread(self, thread_id: str) -> Thread:
        """Its row; of a thread that nobody wrote to, the one it would begin with."""
        return self._state(thread_id).row or Thread(id=thread_id)

    def threads(self, *, watched: bool = False) -> list[Thread]:
        """All threads by id, or those that have a viewport's budget."""
        rows = [state.row for state in self._repo.threads.values() if state.row is not None]
        chosen = [row for row in rows if not watched or row.budget_tokens is not None]
        return sorted(chosen, key=lambda row: row.id)

    def all(
        self,
        kind: type[D],
        thread_id: str,
        *,
        epoch: int | None = None,
        live: bool = False,
        newest: int | None = None,
    ) -> list[D]:
        """What of *kind* was derived from the thread, ascending."""
        shelf = self._state(thread_id).shelves.get(kind)
        if shelf is None:
            return []
        found = shelf.chosen(epoch=epoch, live=live, newest=newest)
        return [_own(value) for value in found if isinstance(value, kind)]


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
        threads = self._repo.threads
        if thread_id not in threads:
            threads[thread_id] = ThreadState()
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
            self._insert(MessageState(self._kept.message_no, _copy(message), text))
            if embedded_text(message):
                self._owe(self._kept.message_no, message.thread_id, message.seq)

    def _insert(self, entry: MessageState) -> None:
        state = self._begun(entry.message.thread_id)
        state.insert([entry])
        self._undo.append(partial(state.remove, [entry.message.seq]))

    def _owe(self, no: int, thread_id: str, seq: int) -> None:
        self._repo.owed.owe(no, thread_id, seq)
        self._undo.append(partial(self._repo.owed.settle, no))

    def _settle(self, entry: MessageState) -> bool:
        place = (entry.no, entry.message.thread_id, entry.message.seq)
        owed = self._repo.owed.settle(entry.no)
        if owed:
            self._undo.append(partial(self._repo.owed.owe, *place))
        return owed

    def put(self, *values: Derived) -> None:
        """Insert or replace by id, or place."""
        for value in values:
            shelf = self._begun(value.thread_id).shelf(type(value))
            before = shelf.put(_own(value))
            back = partial(shelf.drop, value) if before is None else partial(shelf.put, before)
            self._undo.append(back)

    def drop(self, *values: Derived) -> None:
        """Delete; what is not there is skipped."""
        for value in values:
            shelf = self._begun(value.thread_id).shelf(type(value))
            before = shelf.drop(value)
            if before is not None:
                self._undo.append(partial(shelf.put, before))

    # ── Erasing ──────────────────────────────────────────────────────────────────────

    def erase(self, thread_id: str, seqs: Sequence[int]) -> ErasedRows:
        """Delete messages and what was derived from ranges that held one of them."""
        state = self._state(thread_id)
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
        return ErasedRows(
            messages=len(there),
            compactions=len(compactions),
            snapshots=len(snapshots),
            pins=len(pins),
            fulltext_rows=sum(not is_blank(text) for text in texts),
            vectors=vectors,
        )

    def _remember_erased(self, state: ThreadState, ids: Sequence[str]) -> None:
        new = {self._digest(id) for id in ids} - state.erased
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

    # ── Vectors ──────────────────────────────────────────────────────────────────────

    def save_vectors(
        self, space: EmbeddingSpace, vectors: Mapping[tuple[str, int], Vector]
    ) -> None:
        """Keep the vectors of messages that are still there and owed one."""
        owed = self._repo.owed.all
        due = []
        for (thread_id, seq), vector in vectors.items():
            entry = self._state(thread_id).messages.get(seq)
            if entry is not None and entry.no in owed:
                due.append((entry, vector))
        self._repo.check_space(space, [vector for _, vector in due])
        if due:
            self._undo.append(partial(setattr, self._repo, "space", self._repo.space))
            self._repo.stamp(space)
        for entry, vector in due:
            own = self._state(entry.message.thread_id).vectors
            self._settle(entry)
            own[entry.message.seq] = np.array(vector, dtype=np.float32)
            self._undo.append(partial(own.pop, entry.message.seq))

    def drop_vectors(self, thread_id: str, *, keep_newest: int) -> int:
        """Delete all but the newest vectors of the thread; how many."""
        state = self._state(thread_id)
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


# ── Copies that share nothing ────────────────────────────────────────────────────────


def _copy(message: StoredMessage) -> StoredMessage:
    values = {name: getattr(message, name) for name in _FIELDS}
    values["metadata"] = _json(message.metadata)
    if not isinstance(message.content, str):
        values["content"] = _json(message.content)
    if message.tool_calls:
        calls = [ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls]
        values["tool_calls"] = tuple(calls)
    return StoredMessage.restored(**values)


def _own(value: D) -> D:
    if isinstance(value, Surfaced):
        return replace(value, hits=tuple(_json(hit) for hit in value.hits))
    return value


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _json(item) for key, item in value.items()}
    return [_json(item) for item in value] if isinstance(value, list) else value

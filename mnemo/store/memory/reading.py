"""Reading the conversations of one repository in memory; what is given is the caller's own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.store.memory.state import RepoState
from mnemo.store.memory.threads import ThreadState
from mnemo.transcript.derived import Derived, Surfaced, Thread
from mnemo.transcript.message import Role, StoredMessage, ToolCall

__all__ = ["Reading", "copied", "own"]

D = TypeVar("D", bound=Derived)

_FIELDS = tuple(f.name for f in fields(StoredMessage))


class Reading:
    """``TranscriptReader`` over the state of one repository."""

    def __init__(self, repo: RepoState, now: datetime) -> None:
        self.repo = repo
        self._now = now

    @property
    def now(self) -> datetime:
        """The store's time of this transaction."""
        return self._now

    def state_of(self, thread_id: str) -> ThreadState:
        """All that is kept of the thread; of one that was never written to, nothing."""
        return self.repo.threads.get(thread_id) or ThreadState(Thread(id=thread_id))

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
        state = self.state_of(thread_id)
        line, first = state.line, max(from_seq, state.line.alive_from(since))
        counted = newest if since is None or line.in_time else None
        seqs = line.range(first, to_seq, role, counted)
        found: list[StoredMessage] = []
        for seq in reversed(seqs):
            if newest is not None and len(found) >= newest:
                break
            message = state.messages[seq].message
            if since is None or message.recorded_at >= since:
                found.append(copied(message))
        found.reverse()
        return found

    def by_id(self, thread_id: str, ids: Sequence[str]) -> dict[str, StoredMessage]:
        """Those of *ids* that the thread holds."""
        state = self.state_of(thread_id)
        known = {id: state.seq_of[id] for id in ids if id in state.seq_of}
        return {id: copied(state.messages[seq].message) for id, seq in known.items()}

    def of_calls(self, thread_id: str, call_ids: Sequence[str]) -> list[StoredMessage]:
        """The messages that make these calls, and those that answer them, ascending."""
        state = self.state_of(thread_id)
        seqs = {seq for id in call_ids for seq in state.of_call.get(id, ())}
        return [copied(state.messages[seq].message) for seq in sorted(seqs)]

    def span(
        self, thread_id: str, *, from_seq: int, since: datetime | None = None
    ) -> tuple[int, int]:
        """How many messages there are from *from_seq* on, and their tokens together."""
        state = self.state_of(thread_id)
        line, first = state.line, max(from_seq, state.line.alive_from(since))
        if since is None or line.in_time:
            return line.span(first)
        messages = [state.messages[seq].message for seq in line.range(first)]
        tokens = [message.tokens for message in messages if message.recorded_at >= since]
        return len(tokens), sum(tokens)

    def erased_ids(self, thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        """Those of *ids* that were erased from the thread."""
        erased = self.state_of(thread_id).erased
        return frozenset(id for id in ids if self.digest(id) in erased)

    def digest(self, id: str) -> bytes:
        """What is remembered of an erased id: nothing that it could be read from."""
        key = self.repo.salt.encode()
        return hashlib.blake2b(
            id.encode("utf-8", "surrogatepass"), key=key, digest_size=16
        ).digest()

    def owed(self, *, limit: int, thread_id: str | None = None) -> list[StoredMessage]:
        """Messages that wait for their vector, oldest first."""
        places = islice(self.repo.owed.oldest(thread_id), limit)
        threads = self.repo.threads
        return [copied(threads[thread].messages[seq].message) for thread, seq in places]

    def vectors(
        self, thread_id: str, *, from_seq: int = 0, since: datetime | None = None
    ) -> tuple[list[int], NDArray[np.float32]]:
        """Seqs of messages that have a vector, ascending, and the vectors."""
        state = self.state_of(thread_id)
        first = max(from_seq, state.line.alive_from(since))
        seqs = [
            seq
            for seq in sorted(state.vectors)
            if seq >= first and (since is None or state.messages[seq].message.recorded_at >= since)
        ]
        if seqs:
            return seqs, np.stack([state.vectors[seq] for seq in seqs])
        space = self.repo.space
        return [], np.empty((0, space.dimensions if space else 0), dtype=np.float32)

    # ── What was derived ─────────────────────────────────────────────────────────────

    def thread(self, thread_id: str) -> Thread:
        """Its row; of a thread that nobody wrote to, the one it would begin with."""
        return self.state_of(thread_id).row

    def threads(self, *, watched: bool = False) -> list[Thread]:
        """All threads by id, or those that have a viewport's budget."""
        rows = [state.row for state in self.repo.threads.values()]
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
        shelf = self.state_of(thread_id).shelves.get(kind)
        if shelf is None:
            return []
        found = shelf.chosen(epoch=epoch, live=live, newest=newest)
        return [own(value) for value in found if isinstance(value, kind)]


# ── Copies that share nothing ────────────────────────────────────────────────────────


def copied(message: StoredMessage) -> StoredMessage:
    """The same message, but with values of its own, nested ones too."""
    values = {name: getattr(message, name) for name in _FIELDS}
    values["metadata"] = _json(message.metadata)
    if not isinstance(message.content, str):
        values["content"] = _json(message.content)
    if message.tool_calls:
        calls = [ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls]
        values["tool_calls"] = tuple(calls)
    return StoredMessage.restored(**values)


def own(value: D) -> D:
    """*value*, but with values of its own."""
    if isinstance(value, Surfaced):
        return replace(value, hits=tuple(_json(hit) for hit in value.hits))
    return value


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _json(item) for key, item in value.items()}
    return [_json(item) for item in value] if isinstance(value, list) else value

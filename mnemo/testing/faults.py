"""A store that fails on purpose."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, cast

import anyio.lowlevel

from mnemo.errors import StoreError
from mnemo.protocols import (
    Applied,
    GraphStore,
    GraphWrite,
    NoteStore,
    Overhaul,
    SessionStore,
    Store,
    TranscriptStore,
)
from mnemo.values.erasure import Erased, Selection
from mnemo.values.journal import Act, Journal, Owner
from mnemo.values.steps import Step, StepDraft

__all__ = ["FailingStore", "FailingWrite"]

T = TypeVar("T")

FailingWrite = Literal[
    "apply",
    "append",
    "record",
    "create",
    "delete",
    "load",
    "release",
    "reading",
    "writing",
    "erase",
]
"""
The calls that can be made to fail; ``reading`` and ``writing`` are those of conversations
and of notes.
"""


@dataclass(slots=True)
class _Fault:
    """*before*: nothing happens; otherwise it happens and the answer is lost."""

    error: BaseException
    before: bool
    matches: Callable[..., bool]


class FailingStore:
    """
    A ``Store`` around another one, whose calls fail when told to.

    ``fail("apply")`` makes the next ``apply`` of any repository fail with nothing
    written; with ``before=False`` it is written and its answer is lost. All else goes
    to *store* unchanged.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._faults: dict[FailingWrite, deque[_Fault]] = {}
        self.calls: dict[FailingWrite, int] = {}

    def fail(
        self,
        call: FailingWrite,
        *,
        times: int = 1,
        error: BaseException | None = None,
        before: bool = True,
        only: Callable[..., bool] | None = None,
    ) -> None:
        """
        Let the next *times* calls of *call* fail.

        Args:
            error: What they raise; a ``StoreError`` if left out.
            before: Whether they fail instead of being done, or after it.
            only: Given the call's first argument (the write, act, draft, record or
                ids), says whether this call is meant; the others go through.
        """
        raised = error or StoreError(f"this {call} was made to fail")
        fault = _Fault(raised, before, only or (lambda _: True))
        self._faults.setdefault(call, deque()).extend([fault] * times)

    @property
    def sessions(self) -> SessionStore:
        """The journal; all but ``claim`` and ``records`` may fail."""
        return cast(SessionStore, _FailingSessions(self._store.sessions, self))

    def graph(self, repo_id: str) -> GraphStore:
        """The graph of a repository; its ``apply`` and ``delete`` may fail."""
        return cast(GraphStore, _FailingGraph(self._store.graph(repo_id), self))

    def transcript(self, repo_id: str) -> TranscriptStore:
        """The conversations of a repository; their ``reading`` and ``writing`` may fail."""
        return cast(TranscriptStore, _FailingRows(self._store.transcript(repo_id), self))

    def notes(self, repo_id: str) -> NoteStore:
        """The notes of a repository; their ``reading`` and ``writing`` may fail."""
        return cast(NoteStore, _FailingRows(self._store.notes(repo_id), self))

    def overhaul(self, repo_id: str) -> Overhaul:
        """What is done to a repository as a whole; its ``erase`` may fail."""
        return cast(Overhaul, _FailingOverhaul(self._store.overhaul(repo_id), self))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def take(self, call: FailingWrite, subject: object) -> _Fault | None:
        """The fault that this call meets, counted off; for the wrappers."""
        self.calls[call] = self.calls.get(call, 0) + 1
        waiting = self._faults.get(call)
        if waiting and waiting[0].matches(subject):
            return waiting.popleft()
        return None

    async def run(self, call: FailingWrite, subject: object, work: Callable[[], Awaitable[T]]) -> T:
        """Do *work*, or fail before or after it; for the wrappers."""
        fault = self.take(call, subject)
        if fault is not None and fault.before:
            await anyio.lowlevel.checkpoint()
            raise fault.error
        result = await work()
        if fault is not None:
            raise fault.error
        return result


class _FailingSessions:
    def __init__(self, sessions: SessionStore, faults: FailingStore) -> None:
        self._sessions = sessions
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions, name)

    async def create(self, record: Any, **rest: Any) -> None:
        await self._faults.run("create", record, lambda: self._sessions.create(record, **rest))

    async def record(self, act: Act, owner: Owner) -> None:
        await self._faults.run("record", act, lambda: self._sessions.record(act, owner))

    async def load(self, session_id: str) -> Journal | None:
        return await self._faults.run("load", session_id, lambda: self._sessions.load(session_id))

    async def release(self, owner: Owner, session_id: str | None = None) -> None:
        release = partial(self._sessions.release, owner, session_id)
        await self._faults.run("release", session_id, release)

    def append(
        self,
        session_id: str,
        episode_id: str,
        draft: StepDraft,
        owner: Owner,
        done: Callable[[Step | BaseException], None],
    ) -> None:
        fault = self._faults.take("append", draft)
        if fault is None:
            self._sessions.append(session_id, episode_id, draft, owner, done)
        elif fault.before:
            # Through the loop, as the writer would: nobody is told within their own call.
            asyncio.get_running_loop().call_soon(done, fault.error)
        else:
            error = fault.error
            self._sessions.append(session_id, episode_id, draft, owner, lambda _: done(error))


class _FailingGraph:
    def __init__(self, graph: GraphStore, faults: FailingStore) -> None:
        self._graph = graph
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    async def apply(self, write: GraphWrite, owner: Owner) -> Applied:
        return await self._faults.run("apply", write, lambda: self._graph.apply(write, owner))

    async def delete(self, ids: Any) -> tuple[str, ...]:
        return await self._faults.run("delete", ids, lambda: self._graph.delete(ids))


class _FailingRows:
    def __init__(self, rows: Any, faults: FailingStore) -> None:
        self._rows = rows
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    async def reading(self, work: Callable[[Any], T]) -> T:
        return await self._faults.run("reading", work, lambda: self._rows.reading(work))

    async def writing(self, work: Callable[[Any], T]) -> T:
        return await self._faults.run("writing", work, lambda: self._rows.writing(work))


class _FailingOverhaul:
    def __init__(self, overhaul: Overhaul, faults: FailingStore) -> None:
        self._overhaul = overhaul
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._overhaul, name)

    async def erase(self, selection: Selection) -> Erased:
        return await self._faults.run("erase", selection, lambda: self._overhaul.erase(selection))

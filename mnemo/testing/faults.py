"""A store that fails on purpose."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import anyio.lowlevel

from mnemo.config import Config
from mnemo.errors import StoreError
from mnemo.protocols import Clock, Store
from mnemo.runtime.clock import SystemClock
from mnemo.runtime.validation import one_of
from mnemo.service import store_maker
from mnemo.values.journal import Owner
from mnemo.values.steps import Step, StepDraft

T = TypeVar("T")

FailingWrite: TypeAlias = str
"""
The name of an asynchronous method of a store's part, such as ``apply``, ``changes`` or
``reading`` (which is that of conversations and of notes), or ``append``.
"""
_PARTS = (
    "sessions",
    "graph",
    "feed",
    "transcript",
    "records",
    "notes",
    "items",
    "checkpoints",
    "overhaul",
    "archive",
)


def _calls(part: Any) -> set[str]:
    """The names of the asynchronous methods of a store's part."""
    return {name for name, _ in inspect.getmembers(type(part), inspect.iscoroutinefunction)}


@dataclass(slots=True)
class _Fault:
    """*before*: nothing happens; otherwise it happens and the answer is lost."""

    error: BaseException
    before: bool
    matches: Callable[..., bool]


class FailingStore:
    """
    A ``Store`` around another one, the calls of whose parts fail when told to.

    ``fail("apply")`` makes the next ``apply`` of any repository fail with nothing
    written; with ``before=False`` it is written and its answer is lost. All else goes
    to *store* unchanged.

    Args:
        store: A ``Store`` that is not open yet, or a path, a URL or ``"memory:"`` as ``Mnemo``
            takes them.
        clock: Of a store that is made of its place; default: the machine's.

    Raises:
        ConfigError: *store* is no place that this version can keep things in.
    """

    def __init__(
        self, store: Store | str | Path = "memory:", *, clock: Clock | None = None
    ) -> None:
        self._store = store_maker(store, Config(), clock or SystemClock())()
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

        Raises:
            ValueError: No part of a store has such an asynchronous method.
        """
        parts = (getattr(self._store, name)("") for name in _PARTS)
        one_of("call", call, sorted({"append"}.union(*map(_calls, parts))))
        raised = error or StoreError(f"this {call} was made to fail")
        fault = _Fault(raised, before, only or (lambda _: True))
        self._faults.setdefault(call, deque()).extend([fault] * times)

    def sessions(self, repo_id: str) -> Any:
        """The journal of a repository."""
        return _FailingSessions(self._store.sessions(repo_id), self)

    def graph(self, repo_id: str) -> Any:
        """The graph of a repository."""
        return _FailingPart(self._store.graph(repo_id), self)

    def feed(self, repo_id: str) -> Any:
        """What the index of a repository follows."""
        return _FailingPart(self._store.feed(repo_id), self)

    def transcript(self, repo_id: str) -> Any:
        """The conversations of a repository."""
        return _FailingPart(self._store.transcript(repo_id), self)

    def records(self, repo_id: str) -> Any:
        """What keyword search reads of a repository."""
        return _FailingPart(self._store.records(repo_id), self)

    def notes(self, repo_id: str) -> Any:
        """The notes of a repository."""
        return _FailingPart(self._store.notes(repo_id), self)

    def items(self, repo_id: str) -> Any:
        """The keyed items of a repository."""
        return _FailingPart(self._store.items(repo_id), self)

    def checkpoints(self, repo_id: str) -> Any:
        """The checkpoints of a repository."""
        return _FailingPart(self._store.checkpoints(repo_id), self)

    def overhaul(self, repo_id: str) -> Any:
        """What is done to a repository as a whole."""
        return _FailingPart(self._store.overhaul(repo_id), self)

    def archive(self, repo_id: str) -> Any:
        """Export and import of a repository."""
        return _FailingPart(self._store.archive(repo_id), self)

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


class _FailingPart:
    """A part of a store; its asynchronous methods may fail."""

    def __init__(self, part: Any, faults: FailingStore) -> None:
        self._part = part
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not inspect.iscoroutinefunction(found):
            return found

        @wraps(found)
        async def failing(*arguments: Any, **named: Any) -> Any:
            subject = next(iter((*arguments, *named.values())), None)
            return await self._faults.run(name, subject, partial(found, *arguments, **named))

        return failing


class _FailingSessions(_FailingPart):
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
            self._part.append(session_id, episode_id, draft, owner, done)
        elif fault.before:
            # Through the loop, as the writer would: nobody is told within their own call.
            asyncio.get_running_loop().call_soon(done, fault.error)
        else:
            error = fault.error
            self._part.append(session_id, episode_id, draft, owner, lambda _: done(error))

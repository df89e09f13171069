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
from mnemo.protocols import Clock
from mnemo.runtime.clock import SystemClock
from mnemo.runtime.validation import one_of
from mnemo.service import store_maker
from mnemo.stores import EngineStore
from mnemo.values.journal import Owner
from mnemo.values.steps import Step, StepDraft

T = TypeVar("T")

FailingWrite: TypeAlias = str
"""
The name of an asynchronous method of a store's part, such as ``apply``, ``changes`` or
``reading`` (which is that of conversations and of notes), or ``append``.
"""
_PARTS = [
    name
    for name, method in vars(EngineStore).items()
    if getattr(method, "__annotations__", {}).get("return", "").startswith("Stored")
]
"""What a store gives of a repository."""


def _calls(part: Any) -> set[str]:
    """The names of the asynchronous methods of a store's part."""
    return {name for name, _ in inspect.getmembers(type(part), inspect.iscoroutinefunction)}


@dataclass(slots=True)
class _Fault:
    """*before*: nothing happens; otherwise it happens and the answer is lost."""

    error: BaseException
    before: bool
    matches: Callable[..., bool]


class FailingStore(EngineStore):
    """
    A store over the engine of another one, the calls of whose parts fail when told to.

    ``fail("apply")`` makes the next ``apply`` of any repository fail with nothing
    written; with ``before=False`` it is written and its answer is lost. All else is done as
    *store* does it.

    Args:
        store: A store that is not open yet, or a path, a URL or ``"memory:"`` as ``Mnemo``
            takes them.
        clock: Of a store that is made of its place; default: the machine's.

    Raises:
        ConfigError: *store* is no place that this version can keep things in.
    """

    def __init__(
        self, store: EngineStore | str | Path = "memory:", *, clock: Clock | None = None
    ) -> None:
        made = store_maker(store, Config(), clock or SystemClock())()
        super().__init__(
            made.engine, clock=made._clock, lease_s=made._lease_s, lease_time=made._lease_time
        )
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
        parts = (getattr(EngineStore, name)(self, "") for name in _PARTS)
        one_of("call", call, sorted({"append"}.union(*map(_calls, parts))))
        raised = error or StoreError(f"this {call} was made to fail")
        fault = _Fault(raised, before, only or (lambda _: True))
        self._faults.setdefault(call, deque()).extend([fault] * times)

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


def _failing(part: str) -> Callable[[FailingStore, str], Any]:
    """The method that gives *part* of a repository, whose calls may fail."""
    kind = _FailingSessions if part == "sessions" else _FailingPart
    return lambda store, repo_id: kind(getattr(EngineStore, part)(store, repo_id), store)


for _part in _PARTS:
    setattr(FailingStore, _part, _failing(_part))

"""Pending operations: whoever accepts one decides when it runs, and ends it exactly once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from mnemo.errors import UsageError
from mnemo.runtime.tasks import CancelHandle, running_loop
from mnemo.runtime.user_code import called

log: logging.Logger = logging.getLogger("mnemo")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of the *operation* of that name: *value* of a success, or *error*."""

    value: Any = None
    error: BaseException | None = None
    operation: str = ""


Callback = Callable[[Outcome], Any]


@dataclass(eq=False, slots=True)
class PendingOperation:
    """
    An accepted operation.

    Awaiting it gives the outcome's value or raises its error; ``UsageError`` on another
    event loop than the one it was begun on. *Cancellation*: only the wait ends, never the
    operation.

    Attributes:
        name: What is done, e.g. ``append``, ``commit`` or ``update_notes``.
        outcome: Its end; ``None`` until then.
    """

    name: str
    _work: Callable[[], Awaitable[object]] | None = field(default=None, repr=False)
    _callback: Callback | None = field(default=None, repr=False)
    _begun: bool = field(default=False, repr=False)
    _place: object = field(default=None, repr=False)  # of its caller, among spans
    outcome: Outcome | None = None
    _loop: asyncio.AbstractEventLoop | None = field(default_factory=running_loop, repr=False)
    _ended: anyio.Event | None = field(default=None, repr=False)
    _withdraw: Callable[[PendingOperation], bool] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self._callback is not None and not callable(self._callback):
            kind = type(self._callback).__name__
            raise ValueError(f"callback must be a function or None, not {kind}")

    @property
    def done(self) -> bool:
        """Whether it has ended, well or badly."""
        return self.outcome is not None

    def cancel(self) -> bool:
        """
        Withdraw it while it waits.

        Returns:
            True if it was still waiting: it ends with ``cancelled`` and all that were
            accepted after it with ``preceding_op_failed``. False if it runs or is done;
            nothing changes.

        Raises:
            UsageError: It waits, and belongs to another event loop.
        """
        self._check_loop()
        return self._withdraw is not None and self._withdraw(self)

    def _end(self, *, value: Any = None, error: BaseException | None = None) -> Outcome:
        """Make the outcome and wake who waits; called once, by who runs it."""
        self.outcome = Outcome(value=value, error=error, operation=self.name)
        if self._ended is not None:
            self._ended.set()
        return self.outcome

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._wait().__await__()

    def _check_loop(self) -> None:
        if not self.done and running_loop() is not self._loop:
            raise UsageError(f"{self.name} was begun on another event loop; wait for it there")

    async def _wait(self) -> Any:
        self._check_loop()
        if self.outcome is None:
            if self._ended is None:
                self._ended = anyio.Event()
            await self._ended.wait()
        else:
            await anyio.lowlevel.checkpoint()
        assert self.outcome is not None
        if self.outcome.error is not None:
            raise self.outcome.error
        return self.outcome.value


class CallbackRunner:
    """Runs callbacks one after the other, apart from the operations."""

    __slots__ = ("_due", "_idle", "_spawn", "_stopped", "task_id")

    def __init__(self, spawn: Callable[..., object]) -> None:
        self._spawn = spawn
        self._due: deque[tuple[Callback, Outcome]] = deque()
        self._idle: anyio.Event | None = None
        self._stopped = CancelHandle()
        self.task_id: int | None = None

    def add(self, callback: Callback, outcome: Outcome) -> None:
        """Run *callback* after all that were added before it."""
        self._due.append((callback, outcome))
        if self._idle is None:
            idle = anyio.Event()
            self._spawn(self._run, idle)  # where this is refused, nothing is under way
            self._idle = idle

    async def _run(self, idle: anyio.Event) -> None:
        self.task_id = anyio.get_current_task().id
        try:
            while self._due:
                await self._call(*self._due.popleft())
        finally:
            self._idle, self.task_id = None, None
            idle.set()

    async def _call(self, callback: Callback, outcome: Outcome) -> None:
        try:
            with self._stopped:
                await called(callback, outcome)
            if self._stopped.cancelled_caught:
                log.warning("a callback was cancelled")
        except Exception:
            log.exception("a callback failed")

    def stop(self) -> None:
        """Cancel the callback that does not end; those after it run, but may not wait."""
        self._stopped.cancel()

    async def drained(self) -> None:
        """Wait until none is due. A callback that calls this itself does not wait for itself."""
        if self._idle is not None and anyio.get_current_task().id != self.task_id:
            await self._idle.wait()

"""
Queued operations: accepted or refused at once, run one at a time, ended exactly once.

The queue decides; it awaits nothing. The session's task runs what the queue hands out.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from mnemo.episode.journal import SessionState
from mnemo.errors import (
    InvalidOperation,
    MnemoError,
    PendingQueueFull,
    PrecedingOperationFailed,
    SessionClosed,
)
from mnemo.session.machine import Operation, project

__all__ = ["CallbackRunner", "Outcome", "PendingOperation", "PendingQueue"]

log = logging.getLogger("mnemo")

VALUES: dict[str, str] = {
    "append": "appended",
    "start_episode": "started",
    "close": "closed",
    "commit": "committed",
    "discard": "discarded",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an operation ended: *value* says what was done, or *error* why it was not."""

    value: str | None = None
    error: BaseException | None = None


Callback = Callable[[Outcome], Any]


@dataclass(eq=False, slots=True)
class PendingOperation:
    """
    An accepted operation.

    Awaiting it gives the outcome's value or raises its error. *Cancellation*: only the
    wait ends, never the operation.

    Attributes:
        name: ``append``, ``start_episode``, ``close``, ``commit`` or ``discard``.
        place: Where its caller was among spans.
    """

    name: Operation
    arguments: tuple[Any, ...] = field(default=(), repr=False)
    callback: Callback | None = field(default=None, repr=False)
    begun: bool = field(default=False, repr=False)
    place: object = field(default=None, repr=False)
    outcome: Outcome | None = None
    _ended: anyio.Event | None = field(default=None, repr=False)
    _withdraw: Callable[[PendingOperation], bool] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.callback is not None and not callable(self.callback):
            kind = type(self.callback).__name__
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
        """
        return self._withdraw is not None and self._withdraw(self)

    def end(self, outcome: Outcome) -> None:
        """Set the outcome and wake who waits; called once, by the session."""
        self.outcome = outcome
        if self._ended is not None:
            self._ended.set()

    def __await__(self) -> Generator[Any, Any, str]:
        return self._wait().__await__()

    async def _wait(self) -> str:
        if self.outcome is None:
            if self._ended is None:
                self._ended = anyio.Event()
            await self._ended.wait()
        else:
            await anyio.lowlevel.checkpoint()
        assert self.outcome is not None
        if self.outcome.error is not None:
            raise self.outcome.error
        assert self.outcome.value is not None
        return self.outcome.value


class CallbackRunner:
    """
    Runs callbacks one after the other, apart from the operations.

    Args:
        spawn: Starts a task that outlives the call.
    """

    __slots__ = ("_due", "_idle", "_scope", "_spawn", "_stopped", "task_id")

    def __init__(self, spawn: Callable[..., None]) -> None:
        self._spawn = spawn
        self._due: deque[tuple[Callback, Outcome]] = deque()
        self._idle: anyio.Event | None = None
        self._scope = anyio.CancelScope()
        self._stopped = False
        self.task_id: int | None = None

    def add(self, callback: Callback, outcome: Outcome) -> None:
        """Run *callback* after all that were added before it."""
        self._due.append((callback, outcome))
        if self._idle is None:
            self._idle = anyio.Event()
            self._spawn(self._run, self._idle)

    async def _run(self, idle: anyio.Event) -> None:
        self.task_id = anyio.get_current_task().id
        try:
            while self._due:
                self._scope = anyio.CancelScope()
                if self._stopped:
                    self._scope.cancel()
                await _call(*self._due.popleft(), self._scope)
        finally:
            self._idle, self.task_id = None, None
            idle.set()

    def stop(self) -> None:
        """Cancel the callback that does not end; those after it run, but may not wait."""
        self._stopped = True
        self._scope.cancel()

    async def drained(self) -> None:
        """Wait until none is due. A callback that calls this itself does not wait for itself."""
        if self._idle is not None and anyio.get_current_task().id != self.task_id:
            await self._idle.wait()


async def _call(callback: Callback, outcome: Outcome, scope: anyio.CancelScope) -> None:
    try:
        result = callback(outcome)
        if inspect.isawaitable(result):
            with scope:
                await result
            if scope.cancelled_caught:
                log.warning("a callback was cancelled")
    except anyio.get_cancelled_exc_class():
        log.warning("a callback was cancelled")
        await anyio.lowlevel.checkpoint_if_cancelled()
    except Exception:
        log.exception("a callback failed")


class PendingQueue:
    """
    The operations that wait, and the one that runs.

    Args:
        max_pending: Most that wait at once; the one being run does not count.
        callbacks: Where ended operations' callbacks go.
        changed: Called after something was accepted, ended or withdrawn.
    """

    def __init__(
        self, *, max_pending: int, callbacks: CallbackRunner, changed: Callable[[], None]
    ) -> None:
        self._max = max_pending
        self._callbacks = callbacks
        self._changed = changed
        self._waiting: deque[PendingOperation] = deque()
        self.running: PendingOperation | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def nothing_ahead(self) -> bool:
        """Whether a new operation would be the next and only one."""
        return self.running is None and not self._waiting

    @property
    def nothing_waits(self) -> bool:
        """Whether every accepted operation has begun."""
        return not self._waiting and not self._due_at_once

    @property
    def nothing_runs(self) -> bool:
        """Whether no operation has begun without having ended."""
        return self.running is None or not self.running.begun

    @property
    def _due_at_once(self) -> bool:
        return self.running is not None and not self.running.begun

    def accept(
        self,
        operation: PendingOperation,
        state: SessionState,
        *,
        auto: bool,
        busy: bool,
        now: SessionState,
    ) -> PendingOperation:
        """
        Take *operation*, to be run at once if nothing is ahead and the session is not busy.

        Args:
            state: The projected state without the queue: all work in flight done, well.
            now: The present state, for the error.

        Raises:
            InvalidOperation: ``invalid_operation`` or, behind others, ``invalid_queued_operation``.
            PendingQueueFull: ``pending_queue_full``; checked after legality.
        """
        at_once = self.nothing_ahead and not busy
        projected = self._projected(state, auto=auto)
        if project(projected, operation.name, auto=auto) is None:
            reason = "invalid_operation" if at_once else "invalid_queued_operation"
            raise InvalidOperation(reason, state=now, operation=operation.name)
        if not at_once and len(self._waiting) >= self._max:
            raise PendingQueueFull("pending_queue_full", state=now, operation=operation.name)
        operation._withdraw = self._cancel
        if at_once:
            self.running = operation
        else:
            self._waiting.append(operation)
        self._changed()
        return operation

    def _projected(self, state: SessionState, *, auto: bool) -> SessionState:
        if self.running is not None and self.running.begun and self.running.name == "commit":
            # One operation, also where it retries an extraction first: the present state
            # tells how far it has come, not where it leads.
            state = SessionState.IDLE
        ahead = [op for op in (self.running, *self._waiting) if op is not None and not op.begun]
        for operation in ahead:
            state = project(state, operation.name, auto=auto) or state
        return state

    def next(self) -> PendingOperation | None:
        """The operation to run now, if one is due; the caller has seen that nothing is busy."""
        if self.running is None and self._waiting:
            self.running = self._waiting.popleft()
        return self.running if self.running is not None and not self.running.begun else None

    def succeed(self, operation: PendingOperation) -> None:
        """End *operation* well."""
        self._end(operation, Outcome(value=VALUES[operation.name]))

    def fail(self, operation: PendingOperation, error: BaseException) -> None:
        """End *operation* badly, and with it all that were accepted on its promise."""
        if operation.done:
            return
        self._end(operation, Outcome(error=error))
        self.fail_waiting(preceding_failed(error))

    def fail_waiting(self, error_of: Callable[[PendingOperation], MnemoError]) -> None:
        """End all that have not begun, each with its own error."""
        if self.running is not None and not self.running.begun:
            self._end(self.running, Outcome(error=error_of(self.running)))
        while self._waiting:
            operation = self._waiting.popleft()
            self._end(operation, Outcome(error=error_of(operation)))

    def fail_running_commit(self, error: BaseException) -> None:
        """End a commit that retries an extraction which failed again."""
        if self.running is not None and self.running.begun and self.running.name == "commit":
            self._end(self.running, Outcome(error=error))

    def close(self, state: SessionState) -> None:
        """End everything that has not ended: the session ends."""
        if self.running is not None:
            self._end(self.running, Outcome(error=_closed(self.running, state)))
        self.fail_waiting(lambda operation: _closed(operation, state))

    def end_directly(self, operation: PendingOperation, error: BaseException | None) -> None:
        """End an operation that never entered the queue (an append with nothing ahead)."""
        value = None if error else VALUES[operation.name]
        self._end(operation, Outcome(value=value, error=error))

    def _cancel(self, operation: PendingOperation) -> bool:
        if operation not in self._waiting:
            return False
        behind = list(self._waiting)[self._waiting.index(operation) + 1 :]
        error = InvalidOperation("cancelled", operation=operation.name)
        self._waiting.remove(operation)
        self._end(operation, Outcome(error=error))
        for later in behind:
            self._waiting.remove(later)
            self._end(later, Outcome(error=preceding_failed(error)(later)))
        return True

    def _end(self, operation: PendingOperation, outcome: Outcome) -> None:
        if operation.done:
            return
        if operation is self.running:
            self.running = None
        operation.end(outcome)
        if operation.callback is not None:
            self._callbacks.add(operation.callback, outcome)
        self._changed()


def preceding_failed(cause: BaseException) -> Callable[[PendingOperation], MnemoError]:
    """Makes the error of an operation that was accepted on the promise of a failed one."""

    def make(operation: PendingOperation) -> MnemoError:
        error = PrecedingOperationFailed("preceding_op_failed", operation=operation.name)
        error.__cause__ = cause
        return error

    return make


def _closed(operation: PendingOperation, state: SessionState) -> SessionClosed:
    return SessionClosed(state=state, operation=operation.name)

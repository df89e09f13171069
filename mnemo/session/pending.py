"""
The operation queue: accepts or refuses at once, and ends each operation exactly once.

The queue decides; it awaits nothing. The session's task runs what the queue hands out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

from mnemo.errors import (
    InvalidOperation,
    MnemoError,
    PendingQueueFull,
    PrecedingOperationFailed,
    SessionClosed,
)
from mnemo.runtime.operations import CallbackRunner, PendingOperation
from mnemo.session.machine import Lifecycle, Operation, project, queue_refusal
from mnemo.values.journal import SessionState

VALUES: dict[str, str] = {
    "append": "appended",
    "start_episode": "started",
    "close": "closed",
    "commit": "committed",
    "discard": "discarded",
}


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
    def names(self) -> tuple[str, ...]:
        """What waits and what runs, in the order in which it is run."""
        ahead = () if self.running is None else (self.running,)
        return tuple(operation.name for operation in (*ahead, *self._waiting))

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
        return self.running is None or not self.running._begun

    @property
    def _due_at_once(self) -> bool:
        return self.running is not None and not self.running._begun

    def accept(self, operation: PendingOperation, life: Lifecycle) -> PendingOperation:
        """
        Take *operation*, to be run at once if nothing is ahead and the session is not busy.

        Raises:
            InvalidOperation: ``invalid_operation`` or, behind others, ``invalid_queued_operation``.
            PendingQueueFull: ``pending_queue_full``; checked after legality.
        """
        at_once = self.nothing_ahead and not life.occupied
        projected = self._projected(life.projected, auto=life.auto)
        if project(projected, cast(Operation, operation.name), auto=life.auto) is None:
            raise queue_refusal(life, operation.name, projected, at_once=at_once)
        if not at_once and len(self._waiting) >= self._max:
            raise PendingQueueFull(
                "pending_queue_full",
                state=life.state,
                operation=operation.name,
                help=f"{len(self._waiting)} operations wait, as many as config.session.max_pending "
                "allows: await some of them first",
            )
        operation._withdraw = self._cancel
        if at_once:
            self.running = operation
        else:
            self._waiting.append(operation)
        self._changed()
        return operation

    def _projected(self, state: SessionState, *, auto: bool) -> SessionState:
        if self.running is not None and self.running._begun and self.running.name == "commit":
            # One operation, also where it retries an extraction first: the present state
            # tells how far it has come, not where it leads.
            state = SessionState.IDLE
        ahead = [op for op in (self.running, *self._waiting) if op is not None and not op._begun]
        for operation in ahead:
            state = project(state, cast(Operation, operation.name), auto=auto) or state
        return state

    def next(self) -> PendingOperation | None:
        """The operation to run now, if one is due; the caller has seen that nothing is busy."""
        if self.running is None and self._waiting:
            self.running = self._waiting.popleft()
        return self.running if self.running is not None and not self.running._begun else None

    def succeed(self, operation: PendingOperation) -> None:
        """End *operation* well."""
        self._end(operation, value=VALUES[operation.name])

    def fail(self, operation: PendingOperation, error: BaseException) -> None:
        """End *operation* badly, and with it all that were accepted on its promise."""
        if operation.done:
            return
        self._end(operation, error=error)
        self.fail_waiting(preceding_failed(error))

    def fail_waiting(self, error_of: Callable[[PendingOperation], MnemoError]) -> None:
        """End all that have not begun, each with its own error."""
        if self.running is not None and not self.running._begun:
            self._end(self.running, error=error_of(self.running))
        while self._waiting:
            operation = self._waiting.popleft()
            self._end(operation, error=error_of(operation))

    def fail_running_commit(self, error: BaseException) -> None:
        """End a commit that retries an extraction which failed again."""
        if self.running is not None and self.running._begun and self.running.name == "commit":
            self._end(self.running, error=error)

    def close(self, state: SessionState) -> None:
        """End everything that has not ended: the session ends."""
        if self.running is not None:
            self._end(self.running, error=_closed(self.running, state))
        self.fail_waiting(lambda operation: _closed(operation, state))

    def end_directly(self, operation: PendingOperation, error: BaseException | None) -> None:
        """End an operation that never entered the queue (an append with nothing ahead)."""
        value = None if error else VALUES[operation.name]
        self._end(operation, value=value, error=error)

    def _cancel(self, operation: PendingOperation) -> bool:
        if operation not in self._waiting:
            return False
        behind = list(self._waiting)[self._waiting.index(operation) + 1 :]
        error = InvalidOperation("cancelled", operation=operation.name)
        self._waiting.remove(operation)
        self._end(operation, error=error)
        for later in behind:
            self._waiting.remove(later)
            self._end(later, error=preceding_failed(error)(later))
        return True

    def _end(
        self,
        operation: PendingOperation,
        *,
        value: str | None = None,
        error: BaseException | None = None,
    ) -> None:
        if operation.done:
            return
        if operation is self.running:
            self.running = None
        outcome = operation._end(value=value, error=error)
        if operation._callback is not None:
            self._callbacks.add(operation._callback, outcome)
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

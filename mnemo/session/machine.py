"""
The session state machine: one transition table, and what is decided from it without awaiting.

Legality of awaited calls, acceptance of queued ones, their projection and the diagram in the guide
are derived from the table; ``require`` adds what depends on work in the background. Nothing outside
of this file decides what is legal.

An operation's trigger is fired after its effect is durable; the other triggers are what extraction
and commit report.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeAlias

from mnemo.errors import (
    InvalidOperation,
    MnemoError,
    PendingQueueFull,
    PrecedingOperationFailed,
    SessionBusy,
    SessionClosed,
    SessionError,
)
from mnemo.runtime.operations import CallbackRunner, PendingOperation
from mnemo.values.journal import SessionState

Operation: TypeAlias = Literal["start_episode", "append", "close", "commit", "discard"]

IDLE, COLLECTING, EXTRACTING, READY, FAILED = SessionState


@dataclass(frozen=True, slots=True)
class Row:
    """
    One transition.

    Attributes:
        auto: Whether it needs auto-commit on (True) or off (False); ``None`` is either.
        hoped: Whether it is how work in flight ends when all goes well.
    """

    source: SessionState
    trigger: str
    dest: SessionState
    auto: bool | None = None
    hoped: bool = False


TABLE = (
    Row(IDLE, "start_episode", COLLECTING),
    Row(COLLECTING, "append", COLLECTING),
    Row(COLLECTING, "close", EXTRACTING),
    Row(EXTRACTING, "extracted", READY, auto=False, hoped=True),
    Row(EXTRACTING, "auto_committed", IDLE, auto=True, hoped=True),
    Row(EXTRACTING, "auto_commit_failed", READY, auto=True),
    Row(EXTRACTING, "extraction_failed", FAILED),
    Row(READY, "commit", IDLE),
    Row(READY, "commit_failed", READY),
    Row(READY, "discard", IDLE),
    Row(FAILED, "discard", IDLE),
    Row(FAILED, "commit", EXTRACTING),
)

_NEXT = {(row.source, row.trigger): row.dest for row in TABLE}
_HOPED = {(row.source, row.auto): row.dest for row in TABLE if row.hoped}

# What an operation is told where the table has no row for it.
_REFUSALS: dict[str, str] = {
    "start_episode": "not_idle",
    "append": "not_collecting",
    "close": "not_collecting",
    "commit": "not_ready",
    "discard": "not_discardable",
}

# What to do first, where that does not follow from the reason alone.
_HELP = {
    READY: "commit the extracted episode, or discard it, first",
    FAILED: "commit to extract the episode again, or discard it",
}


def destination(state: SessionState, trigger: str) -> SessionState | None:
    """Where *trigger* leads from *state*; ``None`` if it is illegal there."""
    return _NEXT.get((state, trigger))


def hoped(state: SessionState, *, auto: bool) -> SessionState:
    """Where *state* ends up when the work in flight in it succeeds."""
    return _HOPED.get((state, auto), state)


def project(state: SessionState, operation: str, *, auto: bool) -> SessionState | None:
    """
    Where *operation* and the work that it starts lead, if all goes well; ``None``: it is illegal.

    A queued commit in ``failed`` is one operation: it retries and then commits.
    """
    after = destination(state, operation)
    if after is None:
        return None
    after = hoped(after, auto=auto)
    if operation == "commit" and after is READY:
        return destination(READY, "commit")
    return after


def refusal(
    state: SessionState, operation: str, *, now: SessionState | None = None
) -> SessionError:
    """The error of an awaited *operation* in a *state* without a row for it, told as of *now*."""
    now = now or state
    if state is EXTRACTING:
        return SessionBusy("extraction_in_progress", state=now, operation=operation)
    reason = _REFUSALS[operation]
    if state is FAILED and operation == "start_episode":
        reason = "session_failed"
    help = _HELP.get(state) if now is state else "wait until the call in flight has ended"
    return InvalidOperation(reason, state=now, operation=operation, help=help)


def queue_refusal(
    life: Lifecycle, operation: str, projected: SessionState, *, at_once: bool
) -> InvalidOperation:
    """The error of a queued *operation*, illegal as *projected*; *at_once*: nothing is ahead."""
    first = [f"{name}_async" for name in _leading_to(operation, projected, auto=life.auto)]
    help = f"queue {' and '.join(first)} first" if first else "nothing that can be queued allows it"
    if not at_once:
        help = f"once what is ahead of it has ended, the session will be {projected}: {help}"
    return InvalidOperation(
        "invalid_operation" if at_once else "invalid_queued_operation",
        state=life.state,
        projected=projected,
        operation=operation,
        help=help,
    )


def _leading_to(operation: str, state: SessionState, *, auto: bool) -> Sequence[str]:
    """The fewest operations after which *operation* is legal; none: there are no such."""
    paths: dict[SessionState, tuple[str, ...]] = {state: ()}
    for here in (queue := [state]):
        for name in _REFUSALS:
            after = project(here, name, auto=auto)
            if after is not None and name == operation:
                return paths[here]
            if after is not None and after not in paths:
                paths[after] = (*paths[here], name)
                queue.append(after)
    return ()


@cache
def _machine() -> Any:
    from transitions import Machine

    # It logs every transition at INFO; ours are events.
    logger = logging.getLogger("transitions")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    return Machine(
        model=None,
        states=SessionState,
        initial=IDLE,
        auto_transitions=False,
        transitions=[
            {"trigger": row.trigger, "source": row.source, "dest": row.dest} for row in TABLE
        ],
    )


@dataclass(slots=True, eq=False)
class Lifecycle:
    """
    One session as a model of the shared machine, with its work in flight.

    All of it is read and written without awaiting in between. The machine is asked through
    its events instead of ``add_model``, which would bind some thirty callables to every
    session and search a list of all sessions each time.

    Attributes:
        state: What the last durable act led to; read and written by the machine.
        aimed: Where the act in flight leads, a target that is reserved; ``None``: no act is.
        background: Trajectories of the open episode being extracted and committed.
        closing: Whether every operation is refused, because the session ends.
    """

    state: SessionState
    auto: bool = field(default=False, kw_only=True)
    aimed: SessionState | None = None
    committing: bool = False
    extracting: bool = False
    background: int = 0
    closing: bool = False

    @property
    def busy(self) -> bool:
        """Whether an extraction, background trajectory work or a commit is in flight."""
        return self.extracting or self.committing or self.background > 0

    @property
    def occupied(self) -> bool:
        """Whether a queued operation has to wait: the session is busy, or an act is in flight."""
        return self.busy or self.aimed is not None

    @property
    def projected(self) -> SessionState:
        """Where the work in flight leads, if all of it succeeds."""
        if self.committing:
            return IDLE
        return hoped(self.aimed or self.state, auto=self.auto)

    @property
    def accepts_appends(self) -> bool:
        """Whether an append is legal now, and no act in flight will change that."""
        allowed = destination(self.state, "append") is not None
        return allowed and self.aimed is None and not self.closing

    def require(self, operation: str) -> None:
        """
        Let *operation* pass, or raise the ``SessionError`` of the table. An act in flight counts
        with the state it leads to as well as the one it left.
        """
        now = self.state
        if self.closing:
            raise SessionClosed(state=now, operation=operation)
        for state in (self.aimed, now):
            if state is not None and (state, operation) not in _NEXT:
                raise refusal(state, operation, now=now)
        if operation == "close" and self.background:
            raise SessionBusy("extraction_in_progress", state=now, operation=operation)
        if self.committing:
            if operation == "commit":
                raise SessionBusy("commit_in_progress", state=now, operation=operation)
            raise refusal(IDLE, operation, now=now)

    def aim(self, trigger: str) -> None:
        """Reserve the target state: conflicting operations are refused until the write ends."""
        self.aimed = destination(self.state, trigger)

    def fire(self, trigger: str) -> tuple[SessionState, SessionState]:
        """Make the transition, which there is; give the states before and after."""
        before = self.state
        _machine().events[trigger].trigger(self)
        return before, self.state


def diagram(rows: Iterable[Row] = TABLE) -> str:
    """The table as a Mermaid state diagram, as the guide shows it."""
    lines = ["stateDiagram-v2", "    [*] --> idle"]
    for row in rows:
        note = {True: " (auto-commit)", False: " (manual)", None: ""}[row.auto]
        label = row.trigger.replace("_", " ") if row.trigger not in _REFUSALS else row.trigger
        lines.append(f"    {row.source} --> {row.dest}: {label}{note}")
    return "\n".join(lines)


# ── The queue ─────────────────────────────────────────────────────────────────────


VALUES: dict[str, str] = {
    "append": "appended",
    "start_episode": "started",
    "close": "closed",
    "commit": "committed",
    "discard": "discarded",
}


@dataclass(eq=False, kw_only=True)
class PendingQueue:
    """The waiting operations, at most *max_pending*, and the running one; *changed* is called."""

    max_pending: int
    callbacks: CallbackRunner
    changed: Callable[[], None]
    running: PendingOperation | None = None
    _waiting: deque[PendingOperation] = field(default_factory=deque)

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
        *Raises* ``InvalidOperation``, and where it is legal ``PendingQueueFull``.
        """
        at_once = self.nothing_ahead and not life.occupied
        projected = self._projected(life.projected, auto=life.auto)
        if project(projected, operation.name, auto=life.auto) is None:
            raise queue_refusal(life, operation.name, projected, at_once=at_once)
        if not at_once and len(self._waiting) >= self.max_pending:
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
        self.changed()
        return operation

    def _projected(self, state: SessionState, *, auto: bool) -> SessionState:
        if self.running is not None and self.running._begun and self.running.name == "commit":
            # One operation, also where it retries an extraction first: the present state
            # tells how far it has come, not where it leads.
            state = SessionState.IDLE
        ahead = [op for op in (self.running, *self._waiting) if op is not None and not op._begun]
        for operation in ahead:
            state = project(state, operation.name, auto=auto) or state
        return state

    def next(self) -> PendingOperation | None:
        """The operation to run now, if one is due; the caller has seen that nothing is busy."""
        if self.running is None and self._waiting:
            self.running = self._waiting.popleft()
        return self.running if self.running is not None and not self.running._begun else None

    def fail(self, operation: PendingOperation, error: BaseException) -> None:
        """End *operation* badly, and with it all that were accepted on its promise."""
        if operation.done:
            return
        self.end(operation, error)
        self.fail_waiting(preceding_failed(error))

    def fail_waiting(self, error_of: Callable[[PendingOperation], MnemoError]) -> None:
        """End all that have not begun, each with its own error."""
        if self.running is not None and not self.running._begun:
            self.end(self.running, error_of(self.running))
        while self._waiting:
            operation = self._waiting.popleft()
            self.end(operation, error_of(operation))

    def fail_running_commit(self, error: BaseException) -> None:
        """End a commit that retries an extraction which failed again."""
        if self.running is not None and self.running._begun and self.running.name == "commit":
            self.end(self.running, error)

    def close(self, state: SessionState) -> None:
        """End everything that has not ended: the session ends."""

        def closed(operation: PendingOperation) -> SessionClosed:
            return SessionClosed(state=state, operation=operation.name)

        if self.running is not None:
            self.end(self.running, closed(self.running))
        self.fail_waiting(closed)

    def _cancel(self, operation: PendingOperation) -> bool:
        if operation not in self._waiting:
            return False
        followers = list(self._waiting)[self._waiting.index(operation) + 1 :]
        error = InvalidOperation("cancelled", operation=operation.name)
        self._waiting.remove(operation)
        self.end(operation, error)
        for later in followers:
            self._waiting.remove(later)
            self.end(later, preceding_failed(error)(later))
        return True

    def end(self, operation: PendingOperation, error: BaseException | None = None) -> None:
        """End *operation*, well if there is no *error*; it may never have entered the queue."""
        if operation.done:
            return
        if operation is self.running:
            self.running = None
        value = VALUES[operation.name] if error is None else None
        outcome = operation._end(value=value, error=error)
        if operation._callback is not None:
            self.callbacks.add(operation._callback, outcome)
        self.changed()


def preceding_failed(cause: BaseException) -> Callable[[PendingOperation], MnemoError]:
    """Makes the error of an operation that was accepted on the promise of a failed one."""

    def make(operation: PendingOperation) -> MnemoError:
        error = PrecedingOperationFailed("preceding_op_failed", operation=operation.name)
        error.__cause__ = cause
        return error

    return make

"""
The session core: state, present episode, appends, timers, and the writing of acts.

A step that was handed to the store is not taken back: its caller may be cancelled, the step becomes
durable all the same, and everything that follows from it (events, timers, annotation) follows.

Every act follows one pattern: it is decided synchronously from the table, the store writes it in
one transaction, and only then does the state move and the event go out. A write that fails leaves
the state as it was. If the store does not say whether it made the write, the session is in doubt,
and its next operation reads the journal.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio

from mnemo.errors import PendingQueueFull, SessionClosed, StoreError
from mnemo.events import SessionTransitioned, StepAppended
from mnemo.protocols import Clock
from mnemo.runtime.operations import CallbackRunner
from mnemo.runtime.spans import Span
from mnemo.runtime.tasks import CancelHandle
from mnemo.runtime.transactions import confirmed, found_written
from mnemo.session.episode import AnnotationLane, EpisodeBook, is_of
from mnemo.session.machine import Lifecycle, PendingQueue
from mnemo.session.parts import CommitReceipt, SessionParts
from mnemo.values.journal import Act, Journal, SessionState
from mnemo.values.steps import Annotation, Step, StepDraft

log: logging.Logger = logging.getLogger("mnemo")


@dataclass(frozen=True, slots=True)
class _Doubt:
    """An act that may have been written: the state it leads to, and its effect in memory."""

    operation: str
    leads_to: SessionState | None
    then: Callable[[], None]


_LACKS_STEPS = _Doubt("", None, lambda: None)
"""The journal may hold steps that the episode in memory lacks."""


@dataclass(slots=True, eq=False)
class Appending:
    """
    One step on its way to the store, and its *result*, once that is final.

    *waiters* go on first; *listeners* are given the result last, when the session has taken it.
    """

    draft: StepDraft
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    listeners: list[Callable[[Step | BaseException], None]] = field(default_factory=list)
    result: Step | BaseException | None = None

    async def wait(self) -> Step:
        """Wait for the answer. *Cancellation*: only the wait ends."""
        if self.result is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            await waiter
        answer = self.result
        assert answer is not None
        if isinstance(answer, Step):
            return answer
        raise answer


class SessionCore(ABC):
    """
    State, episode and bounded parts of one session, as *journal* left it.

    Attributes:
        keys: What every key was given to, durable or on its way.
    """

    def __init__(
        self, parts: SessionParts, journal: Journal, expired: Callable[[], Awaitable[None]]
    ) -> None:
        config, record = parts.config.session, journal.record
        self.parts = parts
        self.id: str = parts.session_id
        self.goal: str = record.goal
        self.life: Lifecycle = Lifecycle(record.state, auto=config.auto_commit)
        self.error: Exception | None = None
        self.receipt: CommitReceipt | None = None
        self.waiters: StateWaiters = StateWaiters()
        self.callbacks: CallbackRunner = CallbackRunner(parts.spawn)
        self.queue: PendingQueue = PendingQueue(
            max_pending=config.max_pending, callbacks=self.callbacks, changed=self.pulse
        )
        self.keys: dict[str, Step | Appending] = dict(journal.keys)
        self.in_flight: int = 0
        self._most_backlog = config.max_append_backlog
        self._failed_appends: list[tuple[Appending, StoreError]] = []
        self._drained: anyio.Event | None = None
        self._pulsed: anyio.Event | None = None
        self._furthest = -1
        """Index of the furthest step that was answered; the book may lack some before it."""
        self._doubt: _Doubt | None = None
        self._reading_journal = anyio.Lock()
        self._for_room = anyio.Lock()
        self._handles: set[CancelHandle] = set()
        timer = partial(Timer, clock=parts.clock, spawn=parts.spawn)
        self.flush_timer: Timer = timer(config.flush_timeout_s, self.flush)
        self.expiry_timer: Timer = timer(config.session_timeout_s, expired)
        self._timers = (self.flush_timer, self.expiry_timer) if self.life.auto else ()
        self.book: EpisodeBook | None = None
        self.lane: AnnotationLane | None = None
        self.open_book(EpisodeBook.replayed(journal))

    # ── What the work on the episode does when something is due ──────────────────────

    @abstractmethod
    def annotated(self, annotations: Sequence[Annotation]) -> None:
        """Take annotations that became durable."""

    @abstractmethod
    async def flush(self) -> None:
        """Auto-commit's flush timer is due."""

    @abstractmethod
    async def repeat_commit(self) -> None:
        """The journal holds a commit whose answer was lost."""

    # ── Levels ──────────────────────────────────────────────────────────────────────

    @property
    def backlog(self) -> int:
        """Steps, durable or being written, that wait for annotation."""
        book = self.book
        return self.in_flight + (book.backlog if book else 0)

    # ── Waiting ──────────────────────────────────────────────────────────────────────

    def pulse(self) -> None:
        """Let every waiting task look at its condition again."""
        if self._pulsed is not None:
            self._pulsed.set()
            self._pulsed = None

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for *condition*, looked at after every pulse. *Cancellation*: safe."""
        while not condition():
            if self._pulsed is None:
                self._pulsed = anyio.Event()
            await self._pulsed.wait()

    # ── Transitions ──────────────────────────────────────────────────────────────────

    def transition(self, trigger: str, node_ids: tuple[str, ...] = ()) -> None:
        """Fire *trigger*, whose act is durable, and publish the new state."""
        meter = self.parts.meter
        before, after = self.life.fire(trigger)
        if after is not before:
            self.parts.tell(
                SessionTransitioned,
                from_state=before,
                to_state=after,
                node_ids=node_ids,
                trace={"stages": meter.stages, "model_calls": meter.total.calls}
                if before is SessionState.EXTRACTING
                else None,
            )
            self.set_timers()
            self.waiters.entered(after)
        self.pulse()

    def set_timers(self) -> None:
        """Run the timers in ``collecting``, afresh, and stop them elsewhere."""
        for timer in self._timers:
            if self.life.state is SessionState.COLLECTING and not self.life.closing:
                timer.restart()
            else:
                timer.stop()

    async def perform(self, operation: str, act: Act, then: Callable[[], None]) -> None:
        """
        Write the act that ``aim`` reserved the state for, and call *then* once it is durable.
        *Raises* ``StoreError``; if that leaves it in doubt, the next operation reads the journal.
        """
        aimed = self.life.aimed
        assert aimed is not None

        def doubt() -> None:
            self._doubt = _Doubt(operation, aimed, then)

        try:
            await confirmed(
                partial(self.parts.record, act), partial(self._has_entered, aimed), doubt
            )
        finally:
            self.life.aimed = None
            self.pulse()
        then()

    # ── Writes in doubt ──────────────────────────────────────────────────────────────

    @property
    def in_doubt(self) -> bool:
        """Whether the journal may hold what the session does not know."""
        return self._doubt is not None

    def commit_failed(self, error: Exception) -> None:
        """Note that a commit failed with *error*; if it is the store's, it may be made."""
        if isinstance(error, StoreError):
            self._doubt = _Doubt("commit", SessionState.IDLE, lambda: None)

    async def resolve_doubt(self, operation: str) -> bool:
        """
        Where in doubt, take over what the journal holds; whether that has done *operation*.
        *Raises* ``StoreError``: it cannot be read, the doubt remains. *Cancellation*: safe.
        """
        if not self.in_doubt:
            return False
        async with self._reading_journal:
            journal = await self._read_journal()
            if journal is None or self.life.closing:
                return False
            doubt, self._doubt = self._doubt, None
            if doubt is None or doubt.leads_to is not journal.record.state:
                return False
            if doubt.operation == "commit" and journal.record.state is SessionState.IDLE:
                # Its changeset's id gives the answer of the first time.
                if operation != "commit":
                    await self.repeat_commit()
                return False
            doubt.then()
            return operation == doubt.operation

    async def _has_entered(self, state: SessionState) -> bool:
        """Whether the journal says that the session is in *state*."""
        journal = await self.parts.store.load(self.id)
        return journal is not None and journal.record.state is state

    async def _read_journal(self) -> Journal | None:
        """Load the journal and take over the steps and keys that the session lacks."""
        while True:
            journal = await self.parts.store.load(self.id)
            if journal is None:
                break
            self.keys = {**journal.keys, **self.keys}
            if self.book is None or journal.record.episode_id != self.book.id:
                break
            for step in journal.steps[len(self.book.steps) :]:
                self._step_written(step)
            if self._furthest < len(self.book.steps):
                break  # else a step was answered that is younger than what was read
        if self._doubt is _LACKS_STEPS:
            self._doubt = None
        return journal

    async def _find_failed_appends(self) -> None:
        """Answer the appends that the store failed with what the journal holds of them."""
        with anyio.CancelScope(shield=True):
            while self._failed_appends:
                failed, self._failed_appends = self._failed_appends, []
                written: dict[str, Step] | None = None
                try:
                    written = await found_written(self._written_steps, self._miss_steps)
                finally:
                    for appending, error in failed:
                        self._answer(appending, (written or {}).get(appending.draft.node_id, error))

    async def _written_steps(self) -> dict[str, Step]:
        async with self._reading_journal:
            journal = await self._read_journal()
            return {step.node_id: step for step in journal.steps} if journal else {}

    def _miss_steps(self) -> None:
        """Note that the episode in memory may lack steps, unless more than that is in doubt."""
        self._doubt = self._doubt or _LACKS_STEPS

    # ── Episodes ─────────────────────────────────────────────────────────────────────

    def open_book(self, book: EpisodeBook | None) -> None:
        """Collect into *book* from now on; ``None``: there is no episode."""
        if self.lane is not None:
            self.lane.stop()
        self.book, self.lane, self._furthest = book, None, -1
        if book is not None:
            self.goal, book.preceding = book.goal, self.parts.preceding
            self.lane = AnnotationLane(self.parts, book, annotated=self.annotated, room=self.pulse)

    def the_book(self) -> EpisodeBook:
        """Return the present episode; only called where the state says that there is one."""
        assert self.book is not None
        return self.book

    # ── Appends ──────────────────────────────────────────────────────────────────────

    async def append(self, draft: StepDraft, span: Span, *, waits: bool = True) -> Step:
        """
        Write *draft* and return its step, or the step that its key has already.

        Args:
            waits: Whether to wait for room in a full backlog.

        Raises:
            SessionError: The table does not allow it, or there is no room.
            Conflict: Another service owns the session by now.
            StoreError: The step was not written, or the store does not say whether it was: the
                same *key* again is safe. *Cancellation*: only the wait ends.
        """
        taken = await self.take(draft, waits=waits)
        step = taken if isinstance(taken, Step) else await taken.wait()
        span.set("mnemo.step.index", step.index)
        return step

    async def append_queued(self, draft: StepDraft) -> None:
        """Append, but never wait for room; see ``append``."""
        with self.parts.spans.span("append", attributes=self.parts.named) as span:
            await self.append(draft, span, waits=False)

    async def take(self, draft: StepDraft, *, waits: bool = True) -> Step | Appending:
        """
        Hand *draft* to the store, or give what its key has already; see ``append``.

        Drafts that are taken in one turn of the loop, as where there is room, are written together.
        """
        if self._doubt is not None:
            await self.resolve_doubt("append")
        draft, known = self._found(draft)
        if known is not None:
            return known
        self.life.require("append")
        if not waits:
            self.refuse_full_backlog()
        if self.backlog < self._most_backlog and not self._for_room.locked():
            return self.submit(draft)
        async with self._for_room:
            await self.until(lambda: self.life.closing or self.backlog < self._most_backlog)
            draft, known = self._found(draft)
            if known is not None:
                return known
            self.life.require("append")
            return self.submit(draft)

    def _found(self, draft: StepDraft) -> tuple[StepDraft, Step | Appending | None]:
        """
        Give the draft, with the key to write it under, and what has that key already. A message of
        a thread gets a key of its own where its id is another step's: the same id in two threads is
        two messages, and the second one's key names its thread.
        """
        while draft.key is not None and (known := self.keys.get(draft.key)) is not None:
            same = known.draft if isinstance(known, Appending) else known
            if draft.thread_id is None or is_of(draft, same):
                return draft, known
            draft = replace(draft, key=f"{draft.key}@{draft.thread_id}")
        return draft, None

    def refuse_full_backlog(self) -> None:
        """Let an append that cannot wait pass, or raise ``append_backlog_full``."""
        if self.backlog >= self._most_backlog or self._for_room.locked():
            raise PendingQueueFull(
                "append_backlog_full",
                state=self.life.state,
                operation="append",
                help=f"{self.backlog} steps wait for annotation, and config.session."
                f"max_append_backlog allows {self._most_backlog}: await append, which waits for "
                "room",
            )

    def submit(self, draft: StepDraft) -> Appending:
        """Hand *draft* to the store in this turn of the loop."""
        appending = Appending(draft)
        book, done = self.the_book(), partial(self._answered, appending)
        self.parts.store.append(self.id, book.id, draft, self.parts.owner, done)  # or it raises
        self.in_flight += 1
        if draft.key is not None:
            self.keys[draft.key] = appending
        return appending

    def _answered(self, appending: Appending, result: Step | BaseException) -> None:
        """Take the store's answer; an error is held back until the journal has said its part."""
        if not isinstance(result, StoreError):
            self._answer(appending, result)
            return
        self._failed_appends.append((appending, result))
        if len(self._failed_appends) == 1:
            self.parts.spawn(self._find_failed_appends)

    def _answer(self, appending: Appending, result: Step | BaseException) -> None:
        """Note *result*, which is final, and give it to all callers."""
        self.in_flight -= 1
        appending.result = result
        # Callers go on in the next turn of the loop, when all is noted, and before what is woken.
        for waiter in appending.waiters:
            if not waiter.done():
                waiter.set_result(None)
        key = appending.draft.key
        if key is not None and isinstance(result, Step):
            self.keys[key] = result
        elif key is not None:
            del self.keys[key]
        if not self.in_flight and self._drained is not None:
            self._drained.set()
            self._drained = None
        try:
            if isinstance(result, Step):
                self._step_written(result)
            else:
                self.pulse()
        finally:
            for listener in appending.listeners:
                self._tell(listener, result)

    def _tell(
        self, listener: Callable[[Step | BaseException], None], result: Step | BaseException
    ) -> None:
        try:
            listener(result)
        except Exception:  # its callback cannot be started any more
            log.exception("an append of session %s was answered, and nobody told", self.id)

    async def drained(self) -> None:
        """Wait until no step is on its way to the store."""
        while self.in_flight:
            if self._drained is None:
                self._drained = anyio.Event()
            await self._drained.wait()

    def _step_written(self, step: Step) -> None:
        """Take a durable step into the episode, once; a gap before it is filled later."""
        steps = self.the_book().steps
        self._furthest = max(self._furthest, step.index)
        if step.index > len(steps):
            self._miss_steps()
        if step.index != len(steps):
            return
        steps.append(step)
        if self.parts.bus.listeners:
            self.parts.tell(StepAppended, step_index=step.index)
        self.set_timers()
        if self.lane is not None and not self.life.closing:
            self.lane.wake()
        self.parts.written()

    # ── Work in the background ───────────────────────────────────────────────────────

    def launch(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Start work that the end of the session cancels, in the caller's trace."""
        handle = CancelHandle()
        self._handles.add(handle)
        self.parts.spawn(self._cancellable, handle, self.parts.spans.here(), work, args)

    async def _cancellable(
        self,
        handle: CancelHandle,
        place: object,
        work: Callable[..., Awaitable[None]],
        args: tuple[Any, ...],
    ) -> None:
        with self.cancelled_at_end(handle), self.parts.spans.at(place):
            await work(*args)

    @contextmanager
    def cancelled_at_end(self, handle: CancelHandle | None = None) -> Iterator[None]:
        """Run the block in a scope that the end of the session cancels."""
        handle = handle or CancelHandle()
        self._handles.add(handle)
        try:
            with handle:
                yield
        finally:
            self._handles.discard(handle)

    # ── The end ──────────────────────────────────────────────────────────────────────

    def stop_starting(self) -> None:
        """Refuse new operations, stop the timers, start no further annotation. Idempotent."""
        if self.life.closing:
            return
        self.life.closing = True
        for timer in self._timers:
            timer.stop()
        if self.lane is not None and not self.life.busy:
            self.lane.stop()
        self.pulse()

    async def stop_working(self) -> None:
        """Cancel extraction and annotation, but let every running transaction end."""
        if self.lane is not None:
            self.lane.stop()
        for handle in tuple(self._handles):
            handle.cancel()
        await self.drained()
        await self.until(lambda: not self.life.occupied)


# ── Waiters and timers ───────────────────────────────────────────────────────────────


class StateWaiters:
    """The callers of ``wait_for``; resolved by the transition itself."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[tuple[Collection[SessionState], asyncio.Future[SessionState]]] = []

    async def wait(self, states: Collection[SessionState]) -> SessionState:
        """Wait for a transition into one of *states*. *Cancellation*: safe."""
        waiter: asyncio.Future[SessionState] = asyncio.get_running_loop().create_future()
        entry = (states, waiter)
        self._waiters.append(entry)
        try:
            return await waiter
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    def entered(self, state: SessionState) -> None:
        """Resolve the callers that wait for *state*, even if it is held for an instant only."""
        for states, waiter in self._waiters:
            if state in states and not waiter.done():
                waiter.set_result(state)

    def close(self, state: SessionState) -> None:
        """Fail every caller with ``SessionClosed``: the session has ended."""
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(SessionClosed(state=state, operation="wait_for"))


@dataclass(slots=True, eq=False)
class Timer:
    """Awaits *fire* *period_s* after its last restart, one assignment each; ``None``: never."""

    period_s: float | None
    fire: Callable[[], Awaitable[None]]
    clock: Clock
    spawn: Callable[..., None]
    _due: float | None = None
    _running: CancelHandle | None = None

    @property
    def armed(self) -> bool:
        """Whether it will fire unless it is stopped."""
        return self._due is not None

    def restart(self) -> None:
        """(Re)arm it for its full length from now."""
        if self.period_s is None:
            return
        self._due = self.clock.monotonic() + self.period_s
        if self._running is None:
            self._running = CancelHandle()
            self.spawn(self._run, self._running)

    def stop(self) -> None:
        """Disarm it; a firing that has begun goes on."""
        self._due = None
        if self._running is not None:
            self._running.cancel()
            self._running = None

    async def _run(self, handle: CancelHandle) -> None:
        with handle:
            while self._running is handle and self._due is not None:
                left = self._due - self.clock.monotonic()
                if left > 0:
                    await self.clock.sleep(left)
                    continue
                self._due, self._running = None, None
                await self.fire()

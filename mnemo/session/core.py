"""
The session core: state, present episode, appends, timers, and the writing of acts.

Every act follows one pattern: it is decided synchronously from the table, the store
writes it in one transaction, and only then does the state move and the event go out.
A write that fails leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from mnemo.errors import PendingQueueFull, StoreError
from mnemo.events import Event, SessionTransitioned, StepAppended
from mnemo.runtime.spans import Span
from mnemo.runtime.tasks import CancelHandle
from mnemo.session.annotation import AnnotationLane, traffic
from mnemo.session.appends import Appending, AppendLane
from mnemo.session.book import EpisodeBook
from mnemo.session.doubts import Doubts
from mnemo.session.extraction import TrajectoryWorker
from mnemo.session.machine import Lifecycle
from mnemo.session.parts import Extraction, SessionParts
from mnemo.session.pending import CallbackRunner, PendingQueue
from mnemo.session.views import CommitReceipt
from mnemo.session.waiting import Pulse, StateWaiters, Timer
from mnemo.values.journal import Act, Journal, SessionState
from mnemo.values.steps import Annotation, Step, StepDraft

__all__ = ["Hooks", "SessionCore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """
    What the core calls when something is due.

    Attributes:
        annotated: Gets annotations that became durable.
        flush: Auto-commit's flush timer is due; *expired*: its session timer is.
        repeat_commit: The journal holds a commit whose answer was lost.
    """

    annotated: Callable[[Sequence[Annotation]], None]
    flush: Callable[[], Awaitable[None]]
    expired: Callable[[], Awaitable[None]]
    repeat_commit: Callable[[], Awaitable[None]]


class SessionCore(Pulse):
    """
    State, episode and bounded parts of one session.

    Args:
        journal: What the session resumes from; its record alone for a fresh one.
    """

    def __init__(self, parts: SessionParts, journal: Journal, hooks: Hooks) -> None:
        super().__init__()
        config, record = parts.config.session, journal.record
        self.parts = parts
        self.id = record.id
        self.goal = record.goal
        self.life = Lifecycle(record.state, auto=config.auto_commit)
        self.error: Exception | None = None
        self.receipt: CommitReceipt | None = None
        self.waiters = StateWaiters()
        self.callbacks = CallbackRunner(parts.spawn)
        self.queue = PendingQueue(
            max_pending=config.max_pending, callbacks=self.callbacks, changed=self.pulse
        )
        self.appends = AppendLane(
            parts,
            self.id,
            durable=self._step_written,
            refused=self.pulse,
            doubted=lambda: self.doubts.append_failed(),
            keys=journal.keys,
        )
        self.doubts = Doubts(
            parts,
            self.id,
            self.life,
            self.appends,
            book=lambda: self.book,
            step_written=self._step_written,
            repeat_commit=hooks.repeat_commit,
        )
        self._hooks = hooks
        self._for_room = anyio.Lock()
        self._traffic = traffic()
        self._handles: set[CancelHandle] = set()
        self._extraction: Extraction | None = None
        self._worker: TrajectoryWorker | None = None
        self.flush_timer = self._timer(config.flush_timeout_s, hooks.flush)
        self._expiry_timer = self._timer(config.session_timeout_s, hooks.expired)
        self._timers = (self.flush_timer, self._expiry_timer)
        self.book: EpisodeBook | None = None
        self.lane: AnnotationLane | None = None
        self.open_book(EpisodeBook.replayed(journal))

    def _timer(self, period_s: float | None, fire: Callable[[], Awaitable[None]]) -> Timer:
        period_s = period_s if self.life.auto else None
        return Timer(period_s, fire, clock=self.parts.clock, spawn=self.parts.spawn)

    # ── Levels ──────────────────────────────────────────────────────────────────────

    @property
    def backlog(self) -> int:
        """Steps, durable or being written, that wait for annotation."""
        return self.appends.in_flight + (self.lane.backlog if self.lane else 0)

    @property
    def _no_room(self) -> bool:
        """Whether as many steps as may wait for annotation do."""
        return self.backlog >= self.parts.config.session.max_append_backlog

    @property
    def _backlog_full(self) -> bool:
        """Whether a new append has to wait: there is no room, or others wait for it already."""
        return self._no_room or self._for_room.locked()

    @property
    def running_workers(self) -> int:
        """Trajectories being extracted."""
        return self._worker.running if self._worker else 0

    @property
    def expiry_armed(self) -> bool:
        """Whether the session timer runs (again)."""
        return self._expiry_timer.armed

    def extraction(self) -> Extraction:
        """Return the session's stages, built at first use."""
        if self._extraction is None:
            self._extraction = self.parts.make_extraction()
        return self._extraction

    # ── Transitions ──────────────────────────────────────────────────────────────────

    def publish(self, kind: Callable[..., Event], **facts: Any) -> None:
        """Send an event of this session."""
        if self.parts.listening():
            now = self.parts.clock.now()
            self.parts.publish(
                kind(repo_id=self.parts.repo_id, at=now, session_id=self.id, **facts)
            )

    def transition(self, trigger: str, node_ids: tuple[str, ...] = ()) -> None:
        """Fire *trigger*, whose act is durable, and publish the new state."""
        before, after = self.life.fire(trigger)
        if after is not before:
            self.publish(
                SessionTransitioned,
                from_state=before,
                to_state=after,
                node_ids=node_ids,
                trace=self._extraction_trace() if before is SessionState.EXTRACTING else None,
            )
            self.set_timers()
            self.waiters.entered(after)
        self.pulse()

    def _extraction_trace(self) -> dict[str, Any]:
        """Return how the stages ran since the session was opened, and their calls of models."""
        meter = self.parts.meter
        return {"stages": meter.stages, "model_calls": meter.total.calls}

    def set_timers(self) -> None:
        """Run the timers in ``collecting``, afresh, and stop them elsewhere."""
        for timer in self._timers:
            if self.life.now is SessionState.COLLECTING and not self.life.closing:
                timer.restart()
            else:
                timer.stop()

    async def perform(self, operation: str, act: Act, then: Callable[[], None]) -> None:
        """
        Write the act that ``aim`` reserved the state for, and call *then* once it is durable.

        Raises:
            StoreError: The act was not written, or the store does not say: then the next
                operation reads the journal.
        """
        aimed = self.life.aimed
        assert aimed is not None
        try:
            await self.parts.store.record(act, self.parts.owner)
        except StoreError:
            if not await self.doubts.was_written(operation, aimed, then):
                raise
        finally:
            self.life.aimed = None
            self.pulse()
        then()

    # ── Episodes ─────────────────────────────────────────────────────────────────────

    def open_book(self, book: EpisodeBook | None) -> None:
        """Collect into *book* from now on; ``None``: there is no episode."""
        if self.lane is not None:
            self.lane.stop()
        self.book, self.lane = book, None
        if book is not None:
            self.goal, book.preceding = book.goal, self.parts.preceding
            self.lane = AnnotationLane(
                self.parts,
                self.id,
                book,
                extraction=self.extraction,
                annotated=self._hooks.annotated,
                room=self.pulse,
            )

    def the_book(self) -> EpisodeBook:
        """Return the present episode; only called where the state says that there is one."""
        assert self.book is not None
        return self.book

    # ── Appends ──────────────────────────────────────────────────────────────────────

    async def append(self, draft: StepDraft, span: Span, *, waits: bool = True) -> Step:
        """
        Write *draft* and return its step, or the step that its key has already.

        Args:
            span: Gets the step's index.
            waits: Whether to wait for room in a full backlog.

        Raises:
            SessionError: The table does not allow it, or there is no room.
            StoreError: The step was not written. *Cancellation*: only the wait ends.
        """
        if self.doubts.any:
            await self.doubts.settle("append")
        draft, taken = self.appends.find(draft)
        if taken is None:
            self.life.require("append")
            if not waits:
                self.refuse_full_backlog()
            needs_room = waits and self._backlog_full
            taken = await self._taken_with_room(draft) if needs_room else self.submit(draft)
        step = taken if isinstance(taken, Step) else await taken.wait()
        span.set("mnemo.step.index", step.index)
        return step

    async def _taken_with_room(self, draft: StepDraft) -> Step | Appending:
        """Hand *draft* to the store, in order of arrival, as soon as there is room."""
        async with self._for_room:
            await self.until(lambda: self.life.closing or not self._no_room)
            draft, taken = self.appends.find(draft)
            if taken is None:
                self.life.require("append")
                taken = self.submit(draft)
            return taken

    def refuse_full_backlog(self) -> None:
        """Let an append that cannot wait pass, or raise ``append_backlog_full``."""
        if self._backlog_full:
            raise PendingQueueFull("append_backlog_full", state=self.life.now, operation="append")

    def submit(
        self, draft: StepDraft, on_done: Callable[[Step | BaseException], None] | None = None
    ) -> Appending:
        """Hand *draft* to the store, for the present episode, in this turn of the loop."""
        return self.appends.submit(self.the_book().id, draft, on_done)

    def _step_written(self, step: Step) -> None:
        """Take a durable step into the episode, once; a gap before it is filled later."""
        steps = self.the_book().steps
        if step.index > len(steps):
            self.doubts.steps_missing()
        if step.index != len(steps):
            return
        steps.append(step)
        self._traffic.passed()
        if self.parts.listening():
            self.publish(StepAppended, step_index=step.index)
        if self.life.now is SessionState.COLLECTING:
            for timer in self._timers:
                timer.restart()
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
        try:
            with handle, self.parts.spans.at(place):
                await work(*args)
        finally:
            self._handles.discard(handle)

    @contextmanager
    def cancelled_at_end(self) -> Iterator[None]:
        """Run the block in a scope that the end of the session cancels."""
        handle = CancelHandle()
        self._handles.add(handle)
        try:
            with handle:
                yield
        finally:
            self._handles.discard(handle)

    def worker(self) -> TrajectoryWorker:
        """Return what extracts trajectories, made at first use."""
        if self._worker is None:
            self._worker = TrajectoryWorker(self.parts, self.id, extraction=self.extraction)
        return self._worker

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
        await self.appends.drained()
        await self.until(lambda: not self.life.occupied)

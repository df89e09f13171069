"""
The acts of a session: made durable, then shown.

Every act follows one pattern: it was decided synchronously from the table, the store
writes it in one transaction, and only then does the state move and the event go out.
A write that fails leaves the state as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from mnemo.episode.journal import (
    Act,
    ChangesetStaged,
    EpisodeClosed,
    EpisodeDiscarded,
    EpisodeStarted,
    ExtractionAbandoned,
    ExtractionRetried,
    Journal,
    SessionState,
    Settlement,
)
from mnemo.episode.step import Step, StepDraft
from mnemo.errors import (
    Conflict,
    ExtractionFailed,
    MnemoError,
    PendingQueueFull,
    SessionBusy,
    SessionClosed,
    StoreError,
)
from mnemo.events import (
    Event,
    SessionTransitioned,
    StepAppended,
)
from mnemo.graph.changeset import Changeset
from mnemo.runtime.tasks import CancelHandle
from mnemo.runtime.text import clean
from mnemo.session.annotating import AnnotationLane
from mnemo.session.appends import Appending, AppendLane
from mnemo.session.background import BackgroundCommits
from mnemo.session.book import EpisodeBook
from mnemo.session.doubts import Doubts
from mnemo.session.extracting import TrajectoryWorker, failure
from mnemo.session.machine import Lifecycle, destination, refusal, settled
from mnemo.session.parts import Extraction, SessionParts, record_again
from mnemo.session.pending import CallbackRunner, PendingQueue, preceding_failed
from mnemo.session.timers import Timer
from mnemo.session.traffic import traffic
from mnemo.session.views import CommitReceipt
from mnemo.session.waiting import Pulse, StateWaiters

__all__ = ["SessionCore"]

log = logging.getLogger("mnemo")


class SessionCore(Pulse):
    """
    State, episode and work in flight of one session.

    Args:
        journal: What the session resumes from; its record alone for a fresh one.
        expired: Called when auto-commit's session timer is due.
    """

    def __init__(
        self, parts: SessionParts, journal: Journal, *, expired: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__()
        record = journal.record
        self.parts = parts
        self.id = record.id
        self.goal = record.goal
        self.auto = parts.config.session.auto_commit
        self.life = Lifecycle(record.state)
        self.error: Exception | None = None
        self.aimed: SessionState | None = None
        self.committing = False
        self.extracting = False
        self.background = 0
        self.closing = False
        self.ended = False
        self.receipt: CommitReceipt | None = None
        self.waiters = StateWaiters()
        self.callbacks = CallbackRunner(parts.spawn)
        self.queue = PendingQueue(
            max_pending=parts.config.session.max_pending,
            callbacks=self.callbacks,
            changed=self.pulse,
        )
        self.doubts = Doubts(self)
        self.appends = AppendLane(
            parts,
            self.id,
            durable=self.step_written,
            refused=self.pulse,
            doubted=self.doubts.append_failed,
            keys=journal.keys,
        )
        self.for_room = anyio.Lock()
        self._traffic = traffic()
        self._handles: set[CancelHandle] = set()
        self._extraction: Extraction | None = None
        self._worker: TrajectoryWorker | None = None
        self.behind = BackgroundCommits(self)
        self.flush_timer = self._timer(parts.config.session.flush_timeout_s, self.behind.flush)
        self._expiry_timer = self._timer(parts.config.session.session_timeout_s, expired)
        self._timers = (self.flush_timer, self._expiry_timer)
        self.book: EpisodeBook | None = None
        self.lane: AnnotationLane | None = None
        self._open_book(EpisodeBook.replayed(journal))

    def _timer(self, period_s: float | None, fire: Callable[[], Awaitable[None]]) -> Timer:
        period_s = period_s if self.auto else None
        return Timer(period_s, fire, clock=self.parts.clock, spawn=self.parts.spawn)

    # ── Looking ──────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> SessionState:
        """The state that the last durable act led to."""
        return self.life.now

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
            return SessionState.IDLE
        return settled(self.aimed or self.state, auto=self.auto)

    @property
    def backlog(self) -> int:
        """Steps, durable or on their way, that wait for annotation."""
        return self.appends.in_flight + (self.lane.backlog if self.lane else 0)

    @property
    def no_room(self) -> bool:
        """Whether as many steps as may wait for annotation do."""
        return self.backlog >= self.parts.config.session.max_append_backlog

    @property
    def backlog_full(self) -> bool:
        """Whether a new append has to wait: there is no room, or others wait for it already."""
        return self.no_room or self.for_room.locked()

    def refuse_full_backlog(self) -> None:
        """Let an append that cannot wait pass, or raise ``append_backlog_full``."""
        if self.backlog_full:
            raise PendingQueueFull("append_backlog_full", state=self.state, operation="append")

    def submit(
        self, draft: StepDraft, on_done: Callable[[Step | BaseException], None] | None = None
    ) -> Appending:
        """Hand *draft* to the store, for the present episode, in this turn of the loop."""
        return self.appends.submit(self.the_book().id, draft, on_done)

    @property
    def accepts_appends(self) -> bool:
        """Whether an append is legal now, and no act in flight will change that."""
        allowed = destination(self.state, "append") is not None
        return allowed and self.aimed is None and not self.closing

    @property
    def running_workers(self) -> int:
        """Trajectories being extracted."""
        return self._worker.running if self._worker else 0

    @property
    def expiry_armed(self) -> bool:
        """Whether the session timer runs (again)."""
        return self._expiry_timer.armed

    def extraction(self) -> Extraction:
        """The session's stages, built at first use."""
        if self._extraction is None:
            self._extraction = self.parts.make_extraction()
        return self._extraction

    def require(self, operation: str) -> None:
        """
        Let *operation* pass, or raise as the table says.

        An act in flight counts with the state it leads to as well as the one it left.
        """
        if self.closing:
            raise SessionClosed(state=self.state, operation=operation)
        for state in (self.aimed, self.state):
            if state is not None and destination(state, operation) is None:
                raise refusal(state, operation, now=self.state)
        if operation == "close" and self.background:
            raise SessionBusy("extraction_in_progress", state=self.state, operation=operation)
        if self.committing:
            raise self._commit_in_the_way(operation)

    def _commit_in_the_way(self, operation: str) -> MnemoError:
        if operation == "commit":
            return SessionBusy("commit_in_progress", state=self.state, operation=operation)
        return refusal(SessionState.IDLE, operation, now=self.state)

    # ── Transitions ──────────────────────────────────────────────────────────────────

    def publish(self, kind: Callable[..., Event], **facts: Any) -> None:
        """Send an event of this session."""
        if self.parts.listening():
            now = self.parts.clock.now()
            self.parts.publish(
                kind(repo_id=self.parts.repo_id, at=now, session_id=self.id, **facts)
            )

    def transition(self, trigger: str, node_ids: tuple[str, ...] = ()) -> None:
        """Fire *trigger*, whose act is durable, and show what it led to."""
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
        """How the stages ran since the session was opened, and what they asked."""
        meter = self.parts.meter
        return {"stages": meter.stages, "model_calls": meter.total.calls}

    def set_timers(self) -> None:
        """Run the timers in ``collecting``, afresh, and stop them elsewhere."""
        for timer in self._timers:
            if self.state is SessionState.COLLECTING and not self.closing:
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
        assert self.aimed is not None
        try:
            await self.parts.store.record(act, self.parts.owner)
        except StoreError:
            if not await self.doubts.was_written(operation, self.aimed, then):
                raise
        finally:
            self.aimed = None
            self.pulse()
        then()

    def aim(self, trigger: str) -> None:
        """Reserve the target state: conflicting operations are refused until the write ends."""
        self.aimed = destination(self.state, trigger)

    # ── Episodes ─────────────────────────────────────────────────────────────────────

    def _open_book(self, book: EpisodeBook | None) -> None:
        if self.lane is not None:
            self.lane.stop()
        self.book, self.lane = book, None
        if book is not None:
            self.goal = book.goal
            self.lane = AnnotationLane(
                self.parts,
                self.id,
                book,
                extraction=self.extraction,
                annotated=self.behind.annotated,
                room=self.pulse,
            )

    def the_book(self) -> EpisodeBook:
        """The present episode; only called where the state says that there is one."""
        assert self.book is not None
        return self.book

    async def start_episode(self, goal: str) -> None:
        """Write a new episode and collect for it."""
        book = EpisodeBook.new(goal)
        act = EpisodeStarted(
            session_id=self.id, episode_id=book.id, goal=goal, at=self.parts.clock.now()
        )

        def started() -> None:
            self.error, self.receipt = None, None
            self._open_book(book)
            self.transition("start_episode")

        await self.perform("start_episode", act, started)

    async def discard(self) -> None:
        """End the episode without committing."""
        now = self.parts.clock.now()
        act = EpisodeDiscarded(session_id=self.id, episode_id=self.the_book().id, at=now)
        await self.perform("discard", act, self._discarded)

    def _discarded(self) -> None:
        self.error = None
        self._open_book(None)
        self.transition("discard")
        self.parts.written()

    def step_written(self, step: Step) -> None:
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
        if self.state is SessionState.COLLECTING:
            for timer in self._timers:
                timer.restart()
        if self.lane is not None and not self.closing:
            self.lane.wake()
        self.parts.written()

    # ── Extraction of the closed episode ─────────────────────────────────────────────

    async def close(self) -> None:
        """Write the close and hand the episode to a worker."""
        now = self.parts.clock.now()
        act = EpisodeClosed(session_id=self.id, episode_id=self.the_book().id, at=now)
        await self.perform("close", act, partial(self._extracting_after, "close"))

    def _extracting_after(self, trigger: str) -> None:
        self.begin_extraction()
        self.transition(trigger)

    async def retry(self) -> CommitReceipt:
        """Write that a failed extraction is tried again and hand it to a worker."""
        now = self.parts.clock.now()
        act = ExtractionRetried(session_id=self.id, episode_id=self.the_book().id, at=now)
        await self.perform("commit", act, partial(self._extracting_after, "commit"))
        return CommitReceipt(status="retrying")

    def begin_extraction(self) -> None:
        """Start the worker of the closed episode."""
        self.extracting = True
        self.launch(self._extract_episode)

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

    async def _extract_episode(self) -> None:
        book = self.the_book()
        try:
            await self._extract_rest(book)
            await self._conclude(book)
        except Exception as error:
            with anyio.CancelScope(shield=True):
                await self._abandon(book, error)
        finally:
            self.extracting = False
            self.pulse()

    async def _extract_rest(self, book: EpisodeBook) -> None:
        assert self.lane is not None
        await self.appends.drained()
        await self.doubts.settle("")
        await self.lane.finish(closing=True)
        await self.behind.repeat_failed(book)
        failures = await self.worker().extract(book, book.due(book.uncommitted()))
        if failures:
            raise failures[0]

    def worker(self) -> TrajectoryWorker:
        """What extracts trajectories, made at first use."""
        if self._worker is None:
            self._worker = TrajectoryWorker(self.parts, self.id, extraction=self.extraction)
        return self._worker

    async def _conclude(self, book: EpisodeBook) -> None:
        changeset, _ = await anyio.to_thread.run_sync(book.merged)
        book.changeset = changeset
        book.changeset_steps = tuple(step.index for step in book.uncommitted())
        if not self.auto:
            with anyio.CancelScope(shield=True):
                await self._stage(book)
            self.error = None
            self.transition("extracted")
            return
        try:
            await self._write_episode(book, "auto_committed")
        except Exception as error:
            with anyio.CancelScope(shield=True):
                await self._keep_uncommitted(book, error)

    async def _stage(self, book: EpisodeBook) -> None:
        assert book.changeset is not None
        await record_again(
            self.parts,
            ChangesetStaged(
                session_id=self.id,
                episode_id=book.id,
                changeset=book.changeset,
                steps=book.changeset_steps,
                at=self.parts.clock.now(),
            ),
        )

    async def _keep_uncommitted(self, book: EpisodeBook, error: Exception) -> None:
        try:
            await self._stage(book)
        except Conflict as conflict:
            log.info("session %s: the commit that failed was made: %s", self.id, conflict)
        except MnemoError:
            # Not lost: the staged trajectories are durable, and resuming merges them again.
            log.exception("the changeset of session %s could not be staged", self.id)
        self.doubts.commit_failed(error)
        self.note_commit_failure(error)
        self.queue.fail_waiting(preceding_failed(error))
        self.transition("auto_commit_failed")

    def note_commit_failure(self, error: Exception) -> None:
        """Keep *error*, of a commit that nobody awaits; logged if nobody foresaw it."""
        if not isinstance(error, MnemoError):
            log.error("a commit of session %s failed", self.id, exc_info=error)
        self.error = error

    async def _abandon(self, book: EpisodeBook, error: Exception) -> None:
        failed = self.as_failure(book, error)
        act = ExtractionAbandoned(
            session_id=self.id,
            episode_id=book.id,
            error=clean(str(failed)),
            trajectory_id=failed.trajectory_id,
            at=self.parts.clock.now(),
        )
        try:
            await record_again(self.parts, act)
        except Exception:
            # Not lost: the journal still says "extracting", and resuming extracts again.
            log.exception("the failure of session %s could not be recorded", self.id)
        self.error = failed
        # First: what an observer of the failure queues was not accepted on its success.
        self.fail_queue(failed)
        self.transition("extraction_failed")

    def as_failure(self, book: EpisodeBook, error: Exception) -> ExtractionFailed:
        """*error* as the ``ExtractionFailed`` of *book*, logged if nobody foresaw it."""
        if isinstance(error, ExtractionFailed):
            return error
        if not isinstance(error, MnemoError):
            log.error("extraction of session %s failed", self.id, exc_info=error)
        return failure(episode_id=book.id, trajectory_id=None, cause=error)

    def fail_queue(self, failed: ExtractionFailed) -> None:
        """End every operation that was accepted on the extraction's success."""
        self.queue.fail_running_commit(failed)
        self.queue.fail_waiting(
            lambda operation: failure(
                episode_id=str(failed.episode_id),
                trajectory_id=failed.trajectory_id,
                cause=failed.__cause__ or failed,
            )
        )

    # ── Commit ───────────────────────────────────────────────────────────────────────

    def begin_commit(self) -> asyncio.Future[CommitReceipt]:
        """Start the commit, or in ``failed`` the retry, that the table has allowed."""
        if self.state is SessionState.READY:
            self.committing = True
            return self.parts.own(self.commit_ready)
        self.aim("commit")
        return self.parts.own(self.retry)

    async def repeat_commit(self) -> None:
        """Have the answer of a commit that the journal holds, and show it."""
        self.committing = True
        await self.parts.own(self.commit_ready)

    async def commit_ready(self) -> CommitReceipt:
        """Apply the staged changeset; ``committing`` was set in the turn that decided it."""
        book = self.the_book()
        handle = CancelHandle()
        self._handles.add(handle)
        try:
            with handle:
                return await self._write_episode(book, "commit")
        except Exception as error:
            self.doubts.commit_failed(error)
            self.error = error
            if self.queue.nothing_runs:
                self.queue.fail_waiting(preceding_failed(error))
            self.transition("commit_failed")
            raise
        finally:
            self._handles.discard(handle)
            self.committing = False
            self.pulse()
        raise SessionClosed(state=self.state, operation="commit")

    async def _write_episode(self, book: EpisodeBook, trigger: str) -> CommitReceipt:
        assert book.changeset is not None
        applied = await self.write(book, book.changeset, book.changeset_steps, ends=True)
        self.receipt = CommitReceipt(
            status="committed",
            node_ids=tuple(book.node_ids),
            revision=applied,
            changeset_id=book.changeset.id,
        )
        self.error = None
        self._open_book(None)
        self.committing = False
        self.transition(trigger, self.receipt.node_ids)
        return self.receipt

    async def write(
        self, book: EpisodeBook, changeset: Changeset, steps: Sequence[int], *, ends: bool
    ) -> int:
        """Commit *changeset*, which covers *steps*; give the revision. *ends*: the episode too."""
        covered = set(steps)
        keys = [key for key, staged in book.staged.items() if ends or covered & set(staged.steps)]
        settlement = Settlement(
            session_id=self.id,
            episode_id=book.id,
            steps=tuple(steps),
            staged=tuple(keys),
            ends=ends,
            at=self.parts.clock.now(),
        )
        applied = await self.parts.commit(changeset, settlement)
        if applied.again:
            # The first time, the rewards known by now may not have been.
            changeset = replace(changeset, changes=())
        book.settle(changeset, steps, keys, applied.node_ids)
        self.parts.written()
        return applied.revision

    # ── The end ──────────────────────────────────────────────────────────────────────

    def stop_starting(self) -> None:
        """Refuse new operations, stop the timers, start no further annotation. Idempotent."""
        if self.closing:
            return
        self.closing = True
        for timer in self._timers:
            timer.stop()
        if self.lane is not None and not self.busy:
            self.lane.stop()
        self.pulse()

    async def stop_working(self) -> None:
        """Cancel extraction and annotation, but let every running transaction end."""
        if self.lane is not None:
            self.lane.stop()
        for handle in tuple(self._handles):
            handle.cancel()
        await self.appends.drained()
        await self.until(lambda: not self.occupied)

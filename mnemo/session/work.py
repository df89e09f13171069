"""
The work on an episode: its acts, extraction, commit, and auto-commit while it is open.

Auto-commit chooses work by step, never by trajectory, and marks what it has taken, so that
each step is committed once whatever fails in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from mnemo.errors import Conflict, ExtractionFailed, MnemoError, SessionClosed, StoreError
from mnemo.events import TrajectoryCommitted, TrajectoryExtractionFailed, TrajectoryFlushed
from mnemo.runtime.text import clean
from mnemo.session.core import SessionCore
from mnemo.session.episode import EpisodeBook
from mnemo.session.machine import Operation, preceding_failed
from mnemo.session.parts import CommitReceipt, Extraction, SessionParts, log_unexpected
from mnemo.values.changeset import Changeset
from mnemo.values.journal import (
    ChangesetStaged,
    EpisodeClosed,
    EpisodeDiscarded,
    EpisodeStarted,
    ExtractionAbandoned,
    ExtractionRetried,
    Journal,
    SessionState,
    Settlement,
    StagedTrajectory,
    TrajectoryStaged,
)
from mnemo.values.steps import Annotation, Step, Trajectory

log = logging.getLogger("mnemo")


class EpisodeWork:
    """
    Starts, closes, discards, extracts and commits the episodes of one session.

    Attributes:
        waits_for_others: Whether the closed episode is extracted by another process.
    """

    __slots__ = ("_core", "trajectories", "waits_for_others")

    def __init__(self, core: SessionCore) -> None:
        self._core = core
        self.waits_for_others = False
        self.trajectories = TrajectoryWorker(core.parts, core.id, extraction=core.extraction)

    # ── Acts ─────────────────────────────────────────────────────────────────────────

    async def run(self, operation: Operation, *arguments: str) -> None:
        """
        Carry out ``start_episode``, ``close`` or ``discard``; durable when it returns.

        Nothing is left to do where the journal holds an earlier call, whose answer was lost.

        Raises:
            SessionError: The table does not allow it now.
            StoreError: The act was not written. *Cancellation*: only the wait ends.
        """
        core = self._core
        if await core.settle(operation):
            return
        core.life.require(operation)
        core.life.aim(operation)
        await core.parts.own(partial(getattr(self, f"_{operation}"), *arguments))

    async def _start_episode(self, goal: str) -> None:
        """Write a new episode and collect for it."""
        book = EpisodeBook.new(goal)
        now = self._core.parts.clock.now()
        act = EpisodeStarted(session_id=self._core.id, episode_id=book.id, goal=goal, at=now)

        def started() -> None:
            self._core.error, self._core.receipt = None, None
            self._core.open_book(book)
            self._core.transition("start_episode")

        await self._core.perform("start_episode", act, started)

    async def _discard(self) -> None:
        """End the episode without committing."""
        act = EpisodeDiscarded(**self._named())
        await self._core.perform("discard", act, self._discarded)

    def _named(self) -> dict[str, Any]:
        """Return what every act on the present episode carries."""
        core = self._core
        return {
            "session_id": core.id,
            "episode_id": core.the_book().id,
            "at": core.parts.clock.now(),
        }

    def _discarded(self) -> None:
        self._core.error = None
        self._core.open_book(None)
        self._core.transition("discard")
        self._core.parts.written()

    # ── Extraction of the closed episode ─────────────────────────────────────────────

    async def _close(self) -> None:
        """Write the close and hand the episode to a worker."""
        act = EpisodeClosed(**self._named())
        await self._core.perform("close", act, partial(self._extracting_after, "close"))

    def _extracting_after(self, trigger: str) -> None:
        self.begin_extraction()
        self._core.transition(trigger)

    async def _retry(self) -> CommitReceipt:
        """Write that a failed extraction is tried again and hand it to a worker."""
        act = ExtractionRetried(**self._named())
        await self._core.perform("commit", act, partial(self._extracting_after, "commit"))
        return CommitReceipt(status="retrying")

    def begin_extraction(self) -> None:
        """Start the worker of the closed episode."""
        self._core.life.extracting = True
        self._core.launch(self._extract_episode)

    async def _extract_episode(self) -> None:
        book = self._core.the_book()
        elsewhere = self._core.parts.extracted_elsewhere
        try:
            if elsewhere is not None:
                await self._annotate_rest()
                self.waits_for_others = True
                self._core.pulse()
                self._take_over(book, await elsewhere(self._core.id))
                return
            await self._extract_rest(book)
            await self._conclude(book)
        except Exception as error:
            with anyio.CancelScope(shield=True):
                await self._abandon(book, error)
        finally:
            self._core.life.extracting = self.waits_for_others = False
            self._core.pulse()

    async def _annotate_rest(self) -> None:
        assert self._core.lane is not None
        await self._core.appends.drained()
        await self._core.settle("")
        await self._core.lane.finish(closing=True)

    def _take_over(self, book: EpisodeBook, journal: Journal) -> None:
        """Go on from *journal*, in which a worker wrote what came of the extraction."""
        if journal.record.state is SessionState.READY:
            book.changeset, book.changeset_steps = journal.changeset, journal.changeset_steps
            book.staged = {}
            self._core.error = None
            self._core.transition("extracted")
            return
        failed = ExtractionFailed(
            journal.error or "extraction failed",
            episode_id=book.id,
            trajectory_id=journal.error_trajectory,
        )
        self._failed(failed)

    async def _extract_rest(self, book: EpisodeBook) -> None:
        await self._annotate_rest()
        await self._repeat_failed(book)
        failures = await self.trajectories.extract(book, book.due(book.uncommitted()))
        if failures:
            raise failures[0]

    async def _conclude(self, book: EpisodeBook) -> None:
        changeset = await anyio.to_thread.run_sync(book.merged)
        book.changeset = changeset
        book.changeset_steps = tuple(step.index for step in book.uncommitted())
        if not self._core.life.auto:
            with anyio.CancelScope(shield=True):
                await self._stage(book)
            self._core.error = None
            self._core.transition("extracted")
            return
        try:
            await self._write_episode(book, "auto_committed")
        except Exception as error:
            with anyio.CancelScope(shield=True):
                await self._keep_uncommitted(book, error)

    async def _stage(self, book: EpisodeBook) -> None:
        assert book.changeset is not None
        await self._core.parts.record_again(
            ChangesetStaged(
                session_id=self._core.id,
                episode_id=book.id,
                changeset=book.changeset,
                steps=book.changeset_steps,
                at=self._core.parts.clock.now(),
            )
        )

    async def _keep_uncommitted(self, book: EpisodeBook, error: Exception) -> None:
        try:
            await self._stage(book)
        except Conflict as conflict:
            log.info("session %s: the commit that failed was made: %s", self._core.id, conflict)
        except MnemoError:
            # Not lost: the staged trajectories are durable, and resuming merges them again.
            log.exception("the changeset of session %s could not be staged", self._core.id)
        self._core.commit_failed(error)
        self._note_commit_failure(error)
        self._core.queue.fail_waiting(preceding_failed(error))
        self._core.transition("auto_commit_failed")

    def _note_commit_failure(self, error: Exception) -> None:
        """Keep *error* of a commit that no caller awaits; log it if it is unexpected."""
        log_unexpected(error, f"a commit of session {self._core.id}")
        self._core.error = error

    async def _abandon(self, book: EpisodeBook, error: Exception) -> None:
        failed = self._as_failure(book, error)
        act = ExtractionAbandoned(
            session_id=self._core.id,
            episode_id=book.id,
            error=clean(str(failed)),
            trajectory_id=failed.trajectory_id,
            at=self._core.parts.clock.now(),
        )
        try:
            await self._core.parts.record_again(act)
        except Conflict as conflict:
            # Another process has gone on with the session, and has its own outcome.
            log.info("the failure of session %s is left out: %s", self._core.id, conflict)
        except Exception:
            # Not lost: the journal still says "extracting", and resuming extracts again.
            log.exception("the failure of session %s could not be recorded", self._core.id)
        self._failed(failed)

    def _failed(self, failed: ExtractionFailed) -> None:
        self._core.error = failed
        # First: what an observer of the failure queues was not accepted on its success.
        self._fail_queue(failed)
        self._core.transition("extraction_failed")

    def _as_failure(self, book: EpisodeBook, error: Exception) -> ExtractionFailed:
        """Return *error* as the ``ExtractionFailed`` of *book*; log it if it is unexpected."""
        if isinstance(error, ExtractionFailed):
            return error
        log_unexpected(error, f"extraction of session {self._core.id}")
        return _failure(episode_id=book.id, trajectory_id=None, cause=error)

    def _fail_queue(self, failed: ExtractionFailed) -> None:
        """End every operation that was accepted on the extraction's success."""
        self._core.queue.fail_running_commit(failed)
        self._core.queue.fail_waiting(
            lambda operation: _failure(
                episode_id=str(failed.episode_id),
                trajectory_id=failed.trajectory_id,
                cause=failed.__cause__ or failed,
            )
        )

    # ── Commit ───────────────────────────────────────────────────────────────────────

    def begin_commit(self) -> asyncio.Future[CommitReceipt]:
        """Start the commit, or in ``failed`` the retry, that the table has allowed."""
        if self._core.life.state is SessionState.READY:
            self._core.life.committing = True
            return self._core.parts.own(self._commit_ready)
        self._core.life.aim("commit")
        return self._core.parts.own(self._retry)

    async def repeat_commit(self) -> None:
        """Repeat a commit that the journal holds, whose receipt was lost."""
        self._core.life.committing = True
        await self._core.parts.own(self._commit_ready)

    async def _commit_ready(self) -> CommitReceipt:
        """Apply the staged changeset; ``committing`` was set in the turn that decided it."""
        book = self._core.the_book()
        try:
            with self._core.cancelled_at_end():
                return await self._write_episode(book, "commit")
        except Exception as error:
            self._core.commit_failed(error)
            self._core.error = error
            if self._core.queue.nothing_runs:
                self._core.queue.fail_waiting(preceding_failed(error))
            self._core.transition("commit_failed")
            raise
        finally:
            self._core.life.committing = False
            self._core.pulse()
        raise SessionClosed(state=self._core.life.state, operation="commit")

    async def _write_episode(self, book: EpisodeBook, trigger: str) -> CommitReceipt:
        assert book.changeset is not None
        applied = await self._write(book, book.changeset, book.changeset_steps, ends=True)
        self._core.receipt = CommitReceipt(
            status="committed",
            node_ids=tuple(book.node_ids),
            revision=applied,
            changeset_id=book.changeset.id,
            left_out=book.left_out,
        )
        self._core.error = None
        self._core.open_book(None)
        self._core.life.committing = False
        self._core.transition(trigger, self._core.receipt.node_ids)
        return self._core.receipt

    async def _write(
        self, book: EpisodeBook, changeset: Changeset, steps: Sequence[int], *, ends: bool
    ) -> int:
        """Commit *changeset*, which covers *steps*; give the revision. *ends*: the episode too."""
        covered = set(steps)
        keys = [key for key, staged in book.staged.items() if ends or covered & set(staged.steps)]
        settlement = Settlement(
            session_id=self._core.id,
            episode_id=book.id,
            steps=tuple(steps),
            staged=tuple(keys),
            ends=ends,
            at=self._core.parts.clock.now(),
        )
        applied = await self._core.parts.commit(changeset, settlement)
        if applied.again:
            # The first time, the rewards known by now may not have been.
            changeset = replace(changeset, changes=())
        book.settle(changeset, steps, keys, applied.node_ids)
        self._core.parts.written()
        return applied.revision

    # ── Auto-commit while the episode is open ────────────────────────────────────────

    def annotated(self, annotations: Sequence[Annotation]) -> None:
        """Extract and commit all that lies before a boundary among durable *annotations*."""
        core = self._core
        collecting = core.life.state is SessionState.COLLECTING and core.life.aimed is None
        if not (core.life.auto and collecting and any(a.boundary for a in annotations)):
            return
        current = annotations[-1].trajectory_id
        uncommitted = core.the_book().uncommitted()
        finished = [s for s in uncommitted if s.trajectory_id not in (None, current)]
        if finished and not core.life.closing:
            self._begin_background(finished, flush=False)

    def _begin_background(self, steps: Sequence[Step], *, flush: bool) -> None:
        self._core.life.background += 1
        self._core.the_book().in_flight.update(step.index for step in steps)
        self._core.launch(self._run_background, steps, flush)

    async def flush(self) -> None:
        """Commit what is there, as the flush timer is due, or look again later."""
        core = self._core
        if core.life.state is not SessionState.COLLECTING or core.life.closing:
            return
        if core.life.background or core.life.aimed is not None:
            self._restart_flush()
        elif core.the_book().uncommitted():
            self._begin_background((), flush=True)

    def _restart_flush(self) -> None:
        if self._core.life.state is SessionState.COLLECTING:
            self._core.flush_timer.restart()

    async def _run_background(self, steps: Sequence[Step], flush: bool) -> None:
        core, book = self._core, self._core.the_book()
        taken = {step.index for step in steps}
        try:
            if flush:
                assert core.lane is not None
                await core.lane.finish(closing=False)
                # A step that arrived meanwhile is annotated later and taken by the next flush.
                taken = {s.index for s in book.uncommitted() if s.trajectory_id is not None}
                book.in_flight |= taken
            await self._commit_parts(book, taken, flush=flush)
        except Exception as error:
            self._background_failed(self._as_failure(book, error))
        finally:
            book.in_flight -= taken
            core.life.background -= 1
            core.pulse()

    async def _commit_parts(self, book: EpisodeBook, taken: set[int], *, flush: bool) -> None:
        due = book.due([book.steps[index] for index in sorted(taken)])
        failures = await self.trajectories.extract(book, due)
        ready = [s for s in book.staged.values() if taken & set(s.steps)]
        for staged in sorted(ready, key=lambda s: s.steps[0]):
            await self._commit_trajectory(book, staged, flush=flush)
        for failed in failures:
            self._background_failed(failed)

    async def _commit_trajectory(
        self, book: EpisodeBook, staged: StagedTrajectory, *, flush: bool
    ) -> None:
        core = self._core
        try:
            await self._write_part(book, staged, flush=flush)
        except Exception as error:
            if isinstance(error, StoreError):
                book.unsure.add(staged.key)
            self._note_commit_failure(error)
            core.queue.fail_waiting(preceding_failed(error))
            self._restart_flush()
            return
        core.error = None

    async def _repeat_failed(self, book: EpisodeBook) -> None:
        """
        Commit the parts whose first commit failed in the store and may be written.

        Raises:
            CommitFailed: One failed again; a later call repeats it.
        """
        for key in sorted(book.unsure):
            await self._write_part(book, book.staged[key], flush=False)

    async def _write_part(
        self, book: EpisodeBook, staged: StagedTrajectory, *, flush: bool
    ) -> None:
        core = self._core
        late = Changeset(changes=book.late_rewards())
        # The id is that of the part, so that a second try is no second commit.
        whole = replace(late.merge(staged.changeset), id=f"changeset-{book.id}-{staged.key}")
        known = set(book.node_ids)
        await self._write(book, whole, staged.steps, ends=False)
        node_ids = tuple(id for id in book.node_ids if id not in known)
        last = staged.trajectory_id == book.steps[-1].trajectory_id
        kind = TrajectoryFlushed if flush and last else TrajectoryCommitted
        core.publish(kind, trajectory_id=staged.trajectory_id, node_ids=node_ids)

    def _background_failed(self, failed: ExtractionFailed) -> None:
        core = self._core
        core.error = failed
        self._fail_queue(failed)
        core.publish(
            TrajectoryExtractionFailed,
            trajectory_id=failed.trajectory_id or "",
            error=str(failed),
        )
        self._restart_flush()


# ── Extraction of trajectories ───────────────────────────────────────────────────────


class TrajectoryWorker:
    """
    Extracts trajectories of one session, ``config.extraction.max_parallel`` at a time.

    Each result is staged as it arrives, and never extracted again; one that fails stops no other.

    Args:
        extraction: Gives the stages, built at first use.
    """

    def __init__(
        self, parts: SessionParts, session_id: str, *, extraction: Callable[[], Extraction]
    ) -> None:
        self._parts = parts
        self._session_id = session_id
        self._extraction = extraction
        self._most = parts.config.extraction.max_parallel
        self._limiter = anyio.Semaphore(self._most)
        self.running = 0

    async def extract(
        self, book: EpisodeBook, trajectories: Sequence[Trajectory]
    ) -> list[ExtractionFailed]:
        """
        Extract all of *trajectories* and stage what succeeds.

        Returns:
            The failures, in trajectory order, each with its cause.
        """
        failures: dict[int, ExtractionFailed] = {}

        async def one(order: int, trajectory: Trajectory) -> None:
            async with self._limiter:
                self.running += 1
                try:
                    await self._watched(book, trajectory)
                except Exception as error:
                    failures[order] = self._failed(trajectory, error)
                finally:
                    self.running -= 1

        waiting = iter(enumerate(trajectories))

        async def some() -> None:
            for order, trajectory in waiting:
                await one(order, trajectory)

        # Not a task for each: a long episode has hundreds, and starting them takes a while.
        async with anyio.create_task_group() as group:
            for _ in trajectories[: self._most]:
                group.start_soon(some)
        return [failures[order] for order in sorted(failures)]

    async def _watched(self, book: EpisodeBook, trajectory: Trajectory) -> None:
        named = self._parts.named(self._session_id)
        with self._parts.spans.span("extract", attributes=named) as span:
            span.set("mnemo.trajectory.id", trajectory.id)
            span.set("mnemo.step.count", len(trajectory.steps))
            staged = await self._stage(book, trajectory)
            span.set("gen_ai.memory.record.count", len(staged.changeset.nodes))

    async def _stage(self, book: EpisodeBook, trajectory: Trajectory) -> StagedTrajectory:
        changeset = await self._extraction().extract(trajectory)
        steps = tuple(step.index for step in trajectory.steps)
        staged = StagedTrajectory(
            key=f"{trajectory.id}@{steps[0]}",
            trajectory_id=trajectory.id,
            steps=steps,
            changeset=changeset,
        )
        await self._parts.record_again(
            TrajectoryStaged(
                session_id=self._session_id,
                episode_id=book.id,
                staged=staged,
                at=self._parts.clock.now(),
            )
        )
        book.staged[staged.key] = staged
        return staged

    def _failed(self, trajectory: Trajectory, error: Exception) -> ExtractionFailed:
        log_unexpected(error, f"extraction of {trajectory.id}")
        return _failure(episode_id=trajectory.episode_id, trajectory_id=trajectory.id, cause=error)


def _failure(
    *, episode_id: str, trajectory_id: str | None, cause: BaseException
) -> ExtractionFailed:
    """The ``ExtractionFailed`` of an episode or trajectory, with its cause."""
    what = f"trajectory {trajectory_id}" if trajectory_id else f"episode {episode_id}"
    error = ExtractionFailed(
        f"extraction of {what} failed: {cause}", episode_id=episode_id, trajectory_id=trajectory_id
    )
    error.__cause__ = cause
    return error

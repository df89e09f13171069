"""
The work on an episode: its acts, extraction, commit, and auto-commit while it is open.

Auto-commit chooses work by step, never by trajectory, and marks what it has taken, so that each
step is committed once whatever fails in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from mnemo.errors import Conflict, ExtractionFailed, MnemoError, SessionClosed, StoreError
from mnemo.events import TrajectoryCommitted, TrajectoryExtractionFailed, TrajectoryFlushed
from mnemo.runtime.clock import new_id
from mnemo.runtime.text import clean
from mnemo.session.core import SessionCore
from mnemo.session.episode import EpisodeBook
from mnemo.session.machine import Operation, preceding_failed
from mnemo.session.parts import CommitReceipt, SessionParts, log_unexpected
from mnemo.values import journal as acts
from mnemo.values.changeset import Changeset
from mnemo.values.journal import Journal, SessionState, Settlement, StagedTrajectory
from mnemo.values.steps import Annotation, Step, Trajectory

log: logging.Logger = logging.getLogger("mnemo")
A = TypeVar("A")

NOT_KEPT = "extraction failed: its job says why"
"""The error that is stored of a session whose episode has context of others."""


class EpisodeWork(SessionCore):
    """
    Starts, closes, discards, extracts and commits the episodes of one session. *waits_for_others*:
    another process extracts; *running_workers*: trajectories at work here.
    """

    def __init__(
        self, parts: SessionParts, journal: Journal, expired: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(parts, journal, expired)
        self.waits_for_others: bool = False
        self.running_workers = 0
        self._limiter = anyio.Semaphore(parts.config.extraction.max_parallel)

    # ── Acts ─────────────────────────────────────────────────────────────────────────

    async def start_episode(self, goal: str) -> None:
        """Write a new episode and collect for it; see ``_act``."""
        book = EpisodeBook(id=new_id("episode"), goal=goal)

        def started() -> None:
            self.error, self.receipt = None, None
            self.open_book(book)
            self.transition("start_episode")

        act = partial(self._of, acts.EpisodeStarted, book, goal=goal)
        await self._act("start_episode", act, started)

    async def close(self) -> None:
        """Write the close and hand the episode to a worker; see ``_act``."""
        then = partial(self._extracting_after, "close")
        await self._act("close", partial(self._of, acts.EpisodeClosed), then)

    async def discard(self) -> None:
        """End the episode without committing; see ``_act``."""
        await self._act("discard", partial(self._of, acts.EpisodeDiscarded), self._discarded)

    def _discarded(self) -> None:
        self.error = None
        self.open_book(None)
        self.transition("discard")
        self.parts.written()

    async def _act(
        self, operation: Operation, act: Callable[[], acts.Act], then: Callable[[], None]
    ) -> None:
        """
        Write an act, durable when this returns, unless the journal holds an earlier call's.

        *Raises* ``SessionError``, and ``StoreError``: it was not written. *Cancellation*: only
        the wait ends.
        """
        if await self.resolve_doubt(operation):
            return
        self.life.require(operation)
        writing = partial(self.perform, operation, act(), then)
        self.life.aim(operation)
        await self.parts.root.own(writing)

    def _of(self, kind: Callable[..., A], book: EpisodeBook | None = None, /, **facts: Any) -> A:
        """Make an act on the episode of *book*; default: the present one."""
        return kind(
            session_id=self.id,
            episode_id=(book or self.the_book()).id,
            at=self.parts.clock.now(),
            **facts,
        )

    # ── Extraction of the closed episode ─────────────────────────────────────────────

    def _extracting_after(self, trigger: str) -> None:
        self.begin_extraction()
        self.transition(trigger)

    async def _retry(self) -> CommitReceipt:
        """Write that a failed extraction is tried again and hand it to a worker."""
        then = partial(self._extracting_after, "commit")
        await self.perform("commit", self._of(acts.ExtractionRetried), then)
        return CommitReceipt(status="retrying")

    def begin_extraction(self) -> None:
        """Start the worker of the closed episode."""
        self.life.extracting = True
        self.launch(self._extract_episode)

    async def _extract_episode(self) -> None:
        book = self.the_book()
        try:
            await self.drained()
            await self.resolve_doubt("")
            assert self.lane is not None
            await self.lane.finish(closing=True)
            if self.parts.extracted_elsewhere is not None and book.use_model:
                self.waits_for_others = True
                self.pulse()
                self._take_over(book, await self.parts.extracted_elsewhere())
                return
            await self._repeat_failed(book)
            failures = await self._extract_all(book, book.due(book.uncommitted()))
            if failures:
                raise failures[0]
            await self._conclude(book)
        except Exception as error:
            with anyio.CancelScope(shield=True):
                await self._abandon(book, error)
        finally:
            self.life.extracting = self.waits_for_others = False
            self.pulse()

    def _take_over(self, book: EpisodeBook, journal: Journal) -> None:
        """Go on from *journal*, in which a worker wrote what came of the extraction."""
        if journal.record.state is SessionState.READY:
            book.changeset, book.changeset_steps = journal.changeset, journal.changeset_steps
            book.staged = {}
            self.error = None
            self.transition("extracted")
            return
        self._failed(failure_of(journal, book.id))

    async def _conclude(self, book: EpisodeBook) -> None:
        changeset = await anyio.to_thread.run_sync(book.merged)
        book.changeset = changeset
        book.changeset_steps = tuple(step.index for step in book.uncommitted())
        if not self.life.auto:
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
        whole = {"changeset": book.changeset, "steps": book.changeset_steps}
        await self.parts.record_again(self._of(acts.ChangesetStaged, book, **whole))

    async def _keep_uncommitted(self, book: EpisodeBook, error: Exception) -> None:
        try:
            await self._stage(book)
        except Conflict as conflict:
            log.info("session %s: the commit that failed was made: %s", self.id, conflict)
        except MnemoError:
            # Not lost: the staged trajectories are durable, and resuming merges them again.
            log.exception("the changeset of session %s could not be staged", self.id)
        self.commit_failed(error)
        self._note_commit_failure(error)
        self.queue.fail_waiting(preceding_failed(error))
        self.transition("auto_commit_failed")

    def _note_commit_failure(self, error: Exception) -> None:
        """Keep *error* of a commit that no caller awaits; log it if it is unexpected."""
        log_unexpected(error, f"a commit of session {self.id}")
        self.error = error

    async def _abandon(self, book: EpisodeBook, error: Exception) -> None:
        failed = self._as_failure(book, error)
        # It may quote what precedes the episode, which can be erased while this session stays.
        why = NOT_KEPT if self.parts.preceding else clean(str(failed))
        facts = {"error": why, "trajectory_id": failed.trajectory_id}
        act = self._of(acts.ExtractionAbandoned, book, **facts)
        try:
            await self.parts.record_again(act)
        except Conflict as conflict:
            # Another process has gone on with the session, and has its own outcome.
            log.info("the failure of session %s is left out: %s", self.id, conflict)
        except Exception:
            # Not lost: the journal still says "extracting", and resuming extracts again.
            log.exception("the failure of session %s could not be recorded", self.id)
        self._failed(failed)

    def _failed(self, failed: ExtractionFailed) -> None:
        self.error = failed
        # First: what an observer of the failure queues was not accepted on its success.
        self._fail_queue(failed)
        self.transition("extraction_failed")

    def _as_failure(self, book: EpisodeBook, error: Exception) -> ExtractionFailed:
        """Return *error* as the ``ExtractionFailed`` of *book*; log it if it is unexpected."""
        if isinstance(error, ExtractionFailed):
            return error
        log_unexpected(error, f"extraction of session {self.id}")
        return _failure(book.id, None, error)

    def _fail_queue(self, failed: ExtractionFailed) -> None:
        """End every operation that was accepted on the extraction's success."""
        self.queue.fail_running_commit(failed)
        of, cause = str(failed.episode_id), failed.__cause__ or failed
        self.queue.fail_waiting(lambda operation: _failure(of, failed.trajectory_id, cause))

    # ── Commit ───────────────────────────────────────────────────────────────────────

    def begin_commit(self, *, use_model: bool = True) -> asyncio.Future[CommitReceipt]:
        """Start the commit, or in ``failed`` the retry, that the table has allowed."""
        if self.life.state is SessionState.READY:
            self.life.committing = True
            return self.parts.root.own(self._commit_ready)
        self.life.aim("commit")
        self.the_book().use_model = use_model
        return self.parts.root.own(self._retry)

    async def commit_queued(self) -> None:
        """Commit; in ``failed``, retry first: one operation that ends when something was."""
        # What was made and is now known is a retry: a commit that was made is repeated below.
        if not await self.resolve_doubt("commit"):
            self.life.require("commit")
            if (await self.begin_commit()).status == "committed":
                return
        await self.until(lambda: not self.life.extracting)
        if self.life.state is SessionState.READY and not self.life.auto:
            self.life.require("commit")
            await self.begin_commit()
        elif self.life.state is SessionState.EXTRACTING:
            raise SessionClosed(state=self.life.state, operation="commit")
        elif self.life.state is not SessionState.IDLE:
            assert self.error is not None
            raise self.error

    async def repeat_commit(self) -> None:
        """Repeat a commit that the journal holds, whose receipt was lost."""
        self.life.committing = True
        await self.parts.root.own(self._commit_ready)

    async def _commit_ready(self) -> CommitReceipt:
        """Apply the staged changeset; ``committing`` was set in the turn that decided it."""
        book = self.the_book()
        try:
            with self.cancelled_at_end():
                return await self._write_episode(book, "commit")
        except Exception as error:
            self.commit_failed(error)
            self.error = error
            if self.queue.nothing_runs:
                self.queue.fail_waiting(preceding_failed(error))
            self.transition("commit_failed")
            raise
        finally:
            self.life.committing = False
            self.pulse()
        raise SessionClosed(state=self.life.state, operation="commit")

    async def _write_episode(self, book: EpisodeBook, trigger: str) -> CommitReceipt:
        assert book.changeset is not None
        applied = await self._write(book, book.changeset, book.changeset_steps, ends=True)
        self.receipt = CommitReceipt(
            status="committed",
            node_ids=tuple(book.node_ids),
            revision=applied,
            changeset_id=book.changeset.id,
            left_out=book.left_out,
        )
        self.error = None
        self.open_book(None)
        self.life.committing = False
        self.transition(trigger, self.receipt.node_ids)
        return self.receipt

    async def _write(
        self, book: EpisodeBook, changeset: Changeset, steps: Sequence[int], *, ends: bool
    ) -> int:
        """Commit *changeset*, which covers *steps*; give the revision. *ends*: the episode too."""
        covered = set(steps)
        keys = [key for key, staged in book.staged.items() if ends or covered & set(staged.steps)]
        covers = {"steps": tuple(steps), "staged": tuple(keys)}
        settlement = self._of(Settlement, book, **covers, ends=ends)
        applied = await self.parts.commit(changeset, settlement)
        if applied.again:
            # The first time, the rewards known by now may not have been.
            changeset = replace(changeset, changes=())
        book.note_commit(changeset, steps, keys, applied.node_ids)
        self.parts.written()
        return applied.revision

    # ── Auto-commit while the episode is open ────────────────────────────────────────

    def annotated(self, annotations: Sequence[Annotation]) -> None:
        """Extract and commit all that lies before a boundary among durable *annotations*."""
        is_open = self.life.accepts_appends and not self.in_doubt
        if not (self.life.auto and is_open and any(a.boundary for a in annotations)):
            return
        current = annotations[-1].trajectory_id
        uncommitted = self.the_book().uncommitted()
        finished = [s for s in uncommitted if s.trajectory_id not in (None, current)]
        if finished:
            self._begin_background(finished, flush=False)

    def _begin_background(self, steps: Sequence[Step], *, flush: bool) -> None:
        self.life.background += 1
        self.the_book().taken.update(step.index for step in steps)
        self.launch(self._run_background, steps, flush)

    async def flush(self) -> None:
        """Commit what is there, as the flush timer is due, or look again later."""
        if self.life.state is not SessionState.COLLECTING or self.life.closing:
            return
        if self.life.background or self.life.aimed is not None or self.in_doubt:
            self._restart_flush()
        elif self.the_book().uncommitted():
            self._begin_background((), flush=True)

    def _restart_flush(self) -> None:
        if self.life.state is SessionState.COLLECTING:
            self.flush_timer.restart()

    async def _run_background(self, steps: Sequence[Step], flush: bool) -> None:
        book = self.the_book()
        taken = {step.index for step in steps}
        try:
            if flush:
                assert self.lane is not None
                await self.lane.finish(closing=False)
                # A step that arrived meanwhile is annotated later and taken by the next flush.
                taken = {s.index for s in book.uncommitted() if s.trajectory_id is not None}
                book.taken |= taken
            await self._commit_parts(book, taken, flush=flush)
        except Exception as error:
            self._background_failed(self._as_failure(book, error))
        finally:
            book.taken -= taken
            self.life.background -= 1
            self.pulse()

    async def _commit_parts(self, book: EpisodeBook, taken: set[int], *, flush: bool) -> None:
        due = book.due([book.steps[index] for index in sorted(taken)])
        failures = await self._extract_all(book, due)
        ready = [s for s in book.staged.values() if taken & set(s.steps)]
        for staged in sorted(ready, key=lambda s: s.steps[0]):
            try:
                await self._write_part(book, staged, flush=flush)
                self.error = None
            except Exception as error:
                if isinstance(error, StoreError):
                    book.unsure.add(staged.key)
                self._note_commit_failure(error)
                self.queue.fail_waiting(preceding_failed(error))
                self._restart_flush()
        for failed in failures:
            self._background_failed(failed)

    async def _repeat_failed(self, book: EpisodeBook) -> None:
        """Commit the parts whose first commit may be written. *Raises* ``CommitFailed``: again."""
        for key in sorted(book.unsure):
            await self._write_part(book, book.staged[key], flush=False)

    async def _write_part(
        self, book: EpisodeBook, staged: StagedTrajectory, *, flush: bool
    ) -> None:
        late = Changeset(changes=book.late_rewards())
        # The id is that of the part, so that a second try is no second commit.
        whole = replace(late.merge(staged.changeset), id=f"changeset-{book.id}-{staged.key}")
        known = set(book.node_ids)
        await self._write(book, whole, staged.steps, ends=False)
        node_ids = tuple(id for id in book.node_ids if id not in known)
        last = staged.trajectory_id == book.steps[-1].trajectory_id
        kind = TrajectoryFlushed if flush and last else TrajectoryCommitted
        self.parts.tell(kind, trajectory_id=staged.trajectory_id, node_ids=node_ids)

    def _background_failed(self, failed: ExtractionFailed) -> None:
        self.error = failed
        self._fail_queue(failed)
        self.parts.tell(
            TrajectoryExtractionFailed, trajectory_id=failed.trajectory_id or "", error=str(failed)
        )
        self._restart_flush()

    # ── Extraction of trajectories ───────────────────────────────────────────────────

    async def _extract_all(
        self, book: EpisodeBook, trajectories: Sequence[Trajectory]
    ) -> list[ExtractionFailed]:
        """
        Extract *trajectories*, ``config.extraction.max_parallel`` at a time; give the failures.
        Each result is staged as it arrives, and never extracted again; one that fails stops no
        other.
        """
        failures: dict[int, ExtractionFailed] = {}
        waiting = iter(enumerate(trajectories))

        async def some() -> None:
            for order, trajectory in waiting:
                async with self._limiter:
                    self.running_workers += 1
                    try:
                        await self._extract(book, trajectory)
                    except Exception as error:
                        log_unexpected(error, f"extraction of {trajectory.id}")
                        failures[order] = _failure(trajectory.episode_id, trajectory.id, error)
                    finally:
                        self.running_workers -= 1

        # Not a task for each: a long episode has hundreds, and starting them takes a while.
        async with anyio.create_task_group() as group:
            for _ in trajectories[: self.parts.config.extraction.max_parallel]:
                group.start_soon(some)
        return [failures[order] for order in sorted(failures)]

    async def _extract(self, book: EpisodeBook, trajectory: Trajectory) -> None:
        """Extract *trajectory* and stage the result."""
        with self.parts.spans.span("extract", attributes=self.parts.named) as span:
            span.set("mnemo.trajectory.id", trajectory.id)
            span.set("mnemo.step.count", len(trajectory.steps))
            changeset = await self.parts.extraction(book.use_model).extract(trajectory)
            steps = tuple(step.index for step in trajectory.steps)
            staged = StagedTrajectory(
                key=f"{trajectory.id}@{steps[0]}",
                trajectory_id=trajectory.id,
                steps=steps,
                changeset=changeset,
            )
            await self.parts.record_again(self._of(acts.TrajectoryStaged, book, staged=staged))
            book.staged[staged.key] = staged
            span.set("gen_ai.memory.record.count", len(changeset.nodes))


def failure_of(journal: Journal, episode_id: str | None) -> ExtractionFailed:
    """The ``ExtractionFailed`` that *journal* tells of."""
    error, trajectory_id = journal.error or "extraction failed", journal.error_trajectory
    return ExtractionFailed(error, episode_id=episode_id, trajectory_id=trajectory_id)


def _failure(episode_id: str, trajectory_id: str | None, cause: BaseException) -> ExtractionFailed:
    """The ``ExtractionFailed`` of an episode or trajectory, with its cause."""
    what = f"trajectory {trajectory_id}" if trajectory_id else f"episode {episode_id}"
    error = ExtractionFailed(
        f"extraction of {what} failed: {cause}", episode_id=episode_id, trajectory_id=trajectory_id
    )
    error.__cause__ = cause
    return error

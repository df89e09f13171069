"""
Auto-commit while a session collects: finished trajectories, and the flush.

Work is chosen by step, never by trajectory, and what it has taken is marked, so that
each step is committed once whatever fails in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mnemo.episode.journal import SessionState, StagedTrajectory
from mnemo.episode.step import Annotation, Step
from mnemo.errors import ExtractionFailed, StoreError
from mnemo.events import (
    Event,
    TrajectoryCommitted,
    TrajectoryExtractionFailed,
    TrajectoryFlushed,
)
from mnemo.graph.changeset import Changeset
from mnemo.session.annotating import AnnotationLane
from mnemo.session.book import EpisodeBook
from mnemo.session.extracting import TrajectoryWorker
from mnemo.session.pending import PendingQueue, preceding_failed
from mnemo.session.timers import Timer

__all__ = ["BackgroundCommits"]


class Collecting(Protocol):
    """What background work needs of its session; ``SessionCore`` has it."""

    auto: bool
    closing: bool
    aimed: SessionState | None
    background: int
    error: Exception | None
    lane: AnnotationLane | None
    queue: PendingQueue
    flush_timer: Timer

    @property
    def state(self) -> SessionState: ...
    def the_book(self) -> EpisodeBook: ...
    def worker(self) -> TrajectoryWorker: ...
    def launch(self, work: Callable[..., Awaitable[None]], *args: Any) -> None: ...
    def pulse(self) -> None: ...
    def publish(self, kind: Callable[..., Event], **facts: Any) -> None: ...
    def as_failure(self, book: EpisodeBook, error: Exception) -> ExtractionFailed: ...
    def fail_queue(self, failed: ExtractionFailed) -> None: ...
    def note_commit_failure(self, error: Exception) -> None: ...
    async def write(
        self, book: EpisodeBook, changeset: Changeset, steps: Sequence[int], *, ends: bool
    ) -> int: ...


class BackgroundCommits:
    """Extracts and commits parts of an episode that is still open."""

    __slots__ = ("_session",)

    def __init__(self, session: Collecting) -> None:
        self._session = session

    def annotated(self, annotations: Sequence[Annotation]) -> None:
        """A boundary among durable *annotations* sends off all that lies before it."""
        session = self._session
        collecting = session.state is SessionState.COLLECTING and session.aimed is None
        if not (session.auto and collecting and any(a.boundary for a in annotations)):
            return
        current = annotations[-1].trajectory_id
        uncommitted = session.the_book().uncommitted()
        finished = [s for s in uncommitted if s.trajectory_id not in (None, current)]
        if finished and not session.closing:
            self._begin(finished, flush=False)

    def _begin(self, steps: Sequence[Step], *, flush: bool) -> None:
        self._session.background += 1
        self._session.the_book().in_flight.update(step.index for step in steps)
        self._session.launch(self._run, steps, flush)

    async def flush(self) -> None:
        """The flush timer is due: commit what is there, or look again later."""
        session = self._session
        if session.state is not SessionState.COLLECTING or session.closing:
            return
        if session.background or session.aimed is not None:
            self._restart_flush()
        elif session.the_book().uncommitted():
            self._begin((), flush=True)

    def _restart_flush(self) -> None:
        if self._session.state is SessionState.COLLECTING:
            self._session.flush_timer.restart()

    async def _run(self, steps: Sequence[Step], flush: bool) -> None:
        session, book = self._session, self._session.the_book()
        taken = {step.index for step in steps}
        try:
            if flush:
                assert session.lane is not None
                await session.lane.finish(closing=False)
                # A step that arrived meanwhile is annotated later and taken by the next flush.
                taken = {s.index for s in book.uncommitted() if s.trajectory_id is not None}
                book.in_flight |= taken
            await self._commit(book, taken, flush=flush)
        except Exception as error:
            self._failed(session.as_failure(book, error))
        finally:
            book.in_flight -= taken
            session.background -= 1
            session.pulse()

    async def _commit(self, book: EpisodeBook, taken: set[int], *, flush: bool) -> None:
        due = book.due([book.steps[index] for index in sorted(taken)])
        failures = await self._session.worker().extract(book, due)
        ready = [s for s in book.staged.values() if taken & set(s.steps)]
        for staged in sorted(ready, key=lambda s: s.steps[0]):
            await self._commit_trajectory(book, staged, flush=flush)
        for failed in failures:
            self._failed(failed)

    async def _commit_trajectory(
        self, book: EpisodeBook, staged: StagedTrajectory, *, flush: bool
    ) -> None:
        session = self._session
        try:
            await self._write_part(book, staged, flush=flush)
        except Exception as error:
            if isinstance(error, StoreError):
                book.unsure.add(staged.key)
            session.note_commit_failure(error)
            session.queue.fail_waiting(preceding_failed(error))
            self._restart_flush()
            return
        session.error = None

    async def repeat_failed(self, book: EpisodeBook) -> None:
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
        session = self._session
        late = Changeset(changes=book.late_rewards())
        # The id is that of the part, so that a second try is no second commit.
        whole = replace(late.merge(staged.changeset), id=f"changeset-{book.id}-{staged.key}")
        known = set(book.node_ids)
        await session.write(book, whole, staged.steps, ends=False)
        node_ids = tuple(id for id in book.node_ids if id not in known)
        last = staged.trajectory_id == book.steps[-1].trajectory_id
        kind = TrajectoryFlushed if flush and last else TrajectoryCommitted
        session.publish(kind, trajectory_id=staged.trajectory_id, node_ids=node_ids)

    def _failed(self, failed: ExtractionFailed) -> None:
        session = self._session
        session.error = failed
        session.fail_queue(failed)
        session.publish(
            TrajectoryExtractionFailed,
            trajectory_id=failed.trajectory_id or "",
            error=str(failed),
        )
        self._restart_flush()

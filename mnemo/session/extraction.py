"""
Trajectory extraction: side by side, each result staged as it arrives.

A trajectory that fails stops no other; what is staged is never extracted again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import anyio

from mnemo.errors import ExtractionFailed, MnemoError
from mnemo.session.book import EpisodeBook
from mnemo.session.parts import Extraction, SessionParts, record_again
from mnemo.values.journal import StagedTrajectory, TrajectoryStaged
from mnemo.values.steps import Trajectory

__all__ = ["TrajectoryWorker"]

log = logging.getLogger("mnemo")


class TrajectoryWorker:
    """
    Extracts trajectories of one session, ``config.extraction.max_parallel`` at a time.

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
                    failures[order] = self._failure(trajectory, error)
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
        await record_again(
            self._parts,
            TrajectoryStaged(
                session_id=self._session_id,
                episode_id=book.id,
                staged=staged,
                at=self._parts.clock.now(),
            ),
        )
        book.staged[staged.key] = staged
        return staged

    def _failure(self, trajectory: Trajectory, error: Exception) -> ExtractionFailed:
        if not isinstance(error, MnemoError):
            log.error("extraction of %s failed", trajectory.id, exc_info=error)
        return failure(episode_id=trajectory.episode_id, trajectory_id=trajectory.id, cause=error)


def failure(
    *, episode_id: str, trajectory_id: str | None, cause: BaseException
) -> ExtractionFailed:
    """The ``ExtractionFailed`` of an episode or trajectory, with its cause."""
    what = f"trajectory {trajectory_id}" if trajectory_id else f"episode {episode_id}"
    error = ExtractionFailed(
        f"extraction of {what} failed: {cause}", episode_id=episode_id, trajectory_id=trajectory_id
    )
    error.__cause__ = cause
    return error

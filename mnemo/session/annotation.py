"""
The annotation lane: annotates durable steps in index order, one call in flight.

Whatever has piled up goes into the next call. A batch that fails leaves the backlog,
so that a dead model cannot close the append lane for ever; ``finish`` asks again.
Annotation that computes in this process waits for a pause in the writes: all sessions of
an event loop share one interpreter, so the writes of all of them count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

import anyio

from mnemo.events import AnnotationFailed, StepAnnotated
from mnemo.runtime.tasks import CancelHandle, shared_threads
from mnemo.runtime.traffic import Pauses
from mnemo.session.book import EpisodeBook
from mnemo.session.parts import Extraction, SessionParts, log_unexpected
from mnemo.values.journal import StepsAnnotated
from mnemo.values.steps import Annotation, Step

KNOWN_STEPS = 64
"""Earlier steps that an annotator is shown at most: bounds the cost of a long episode (S)."""
PATIENCE_S = 2.0
"""Seconds after which waiting work goes on although appends do (S)."""


class AnnotationLane:
    """
    Annotates the steps of one episode.

    Args:
        extraction: Gives the stages, built at first use.
        annotated: Called with annotations that became durable.
        room: Called after the backlog shrank.
    """

    def __init__(
        self,
        parts: SessionParts,
        session_id: str,
        book: EpisodeBook,
        *,
        extraction: Callable[[], Extraction],
        annotated: Callable[[Sequence[Annotation]], None],
        room: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._session_id = session_id
        self._book = book
        self._named = parts.named(session_id)
        self._extraction = extraction
        self._annotated = annotated
        self._room = room
        self._next = self._resume_at()
        self._running: anyio.Event | None = None
        self._stopped = CancelHandle()
        self._turn = anyio.Lock()
        self._pauses = Pauses(PATIENCE_S)
        self._hurry = False
        self._closing = False

    def _resume_at(self) -> int:
        missing = self._book.unannotated()
        return missing[0].index if missing else len(self._book.steps)

    @property
    def backlog(self) -> int:
        """Durable steps that wait for annotation, those in the call in flight included."""
        return len(self._book.steps) - self._next

    def wake(self) -> None:
        """Annotate what is there; a plain call."""
        if self._running is None and self.backlog:
            self._running = anyio.Event()
            self._parts.spawn(self._run, self._running)
        elif self._hurry or self._has_enough:
            self._pauses.end()

    def stop(self) -> None:
        """Start no further call and cancel the one in flight; unannotated steps stay durable."""
        self._stopped.cancel()

    async def _run(self, ended: anyio.Event) -> None:
        try:
            with self._stopped:
                # Off the event loop: the first use of the stages imports a great deal.
                await shared_threads("mnemo.session.annotation").run(self._extraction)
                while self.backlog:
                    await self._annotate_next()
        finally:
            self._running = None
            ended.set()

    async def _annotate_next(self) -> None:
        await self._let_appends_go_first()
        batch = self._next_batch()
        if not batch:
            self._room()
            return
        last = batch[-1].index + 1 == len(self._book.steps)
        try:
            await self._annotate(batch, closing=self._closing and last)
        except Exception as error:
            log_unexpected(error, f"annotation of session {self._session_id}")
            self._failed(batch, error)
        self._next = batch[-1].index + 1
        self._room()

    def _next_batch(self) -> list[Step]:
        """The next steps that have no annotation; a resumed session may have some between."""
        steps = self._book.steps
        while self.backlog and steps[self._next].annotation is not None:
            self._next += 1
        batch = steps[self._next : self._next + self._extraction().batch_size]
        return list(takewhile(lambda step: step.annotation is None, batch))

    @property
    def _has_enough(self) -> bool:
        return self.backlog >= self._parts.config.session.max_append_backlog // 2

    async def _let_appends_go_first(self) -> None:
        """Wait for a pause in the appends before computing in this process."""
        asks_model = self._extraction().batch_size <= self._parts.config.annotation.batch_size
        if asks_model or self._hurry or self._has_enough:
            return
        await self._pauses.pause()

    async def _annotate(self, batch: Sequence[Step], *, closing: bool) -> None:
        async with self._turn:
            await self._annotate_alone(batch, closing=closing)

    async def _annotate_alone(self, batch: Sequence[Step], *, closing: bool) -> None:
        annotations = await self._annotations(batch, closing=closing)
        self._book.closing_reward_asked |= closing
        fresh = {step.index for step in batch}
        self._tell([annotation for annotation in annotations if annotation.index in fresh])

    async def _annotations(self, batch: Sequence[Step], *, closing: bool) -> list[Annotation]:
        """The annotations of *batch*, durable; no part of the trace of whoever made it due."""
        spans = self._parts.spans
        with spans.at(None), spans.span("annotate", attributes=self._named) as span:
            span.set("mnemo.step.count", len(batch))
            if batch:
                span.set("mnemo.step.index", batch[0].index)
            return await self._written(batch, closing=closing)

    async def _written(self, batch: Sequence[Step], *, closing: bool) -> list[Annotation]:
        first = batch[0].index if batch else len(self._book.steps)
        annotations = await self._extraction().annotate(
            goal=self._book.goal,
            known=self._book.before(first, KNOWN_STEPS),
            fresh=batch,
            closing=closing,
        )
        if annotations:
            await self._parts.record_again(
                StepsAnnotated(
                    session_id=self._session_id,
                    episode_id=self._book.id,
                    annotations=tuple(annotations),
                    at=self._parts.clock.now(),
                )
            )
            self._book.annotate(annotations)
        return annotations

    def _tell(self, annotations: Sequence[Annotation]) -> None:
        for annotation in annotations if self._parts.listening() else ():
            self._parts.publish(
                StepAnnotated(
                    repo_id=self._parts.repo_id,
                    at=self._parts.clock.now(),
                    session_id=self._session_id,
                    step_index=annotation.index,
                    trajectory_id=annotation.trajectory_id,
                    boundary_detected=annotation.boundary,
                )
            )
        self._annotated(annotations)

    def _failed(self, batch: Sequence[Step], error: Exception) -> None:
        self._parts.publish(
            AnnotationFailed(
                repo_id=self._parts.repo_id,
                at=self._parts.clock.now(),
                session_id=self._session_id,
                step_indexes=tuple(step.index for step in batch),
                error=str(error),
            )
        )

    async def finish(self, *, closing: bool) -> None:
        """
        Annotate every step, those whose batch had failed included.

        Args:
            closing: Score the last step too, if that was not asked already.

        Raises:
            MnemoError: A step could not be annotated now either.
        """
        self._hurry, self._closing = True, closing
        try:
            self.wake()
            if self._running is not None:
                await self._running.wait()
            size = self._extraction().batch_size
            # While collecting goes on, later steps are the lane's; after the close, none comes.
            missing = self._book.unannotated()
            behind = [step for step in missing if closing or step.index < self._next]
            for batch in _runs(behind, size):
                await self._annotate(batch, closing=False)
            if closing and self._book.steps and not self._book.closing_reward_asked:
                await self._annotate((), closing=True)
        finally:
            self._hurry = self._closing = False


def _runs(steps: Sequence[Step], size: int) -> list[list[Step]]:
    """Cut *steps* into runs of consecutive indexes, each at most *size* long."""
    runs: list[list[Step]] = []
    for step in steps:
        if runs and len(runs[-1]) < size and runs[-1][-1].index + 1 == step.index:
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs

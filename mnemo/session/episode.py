"""The episode in memory, written by the session's work alone, once things are durable."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import takewhile

import anyio

from mnemo.events import AnnotationFailed, StepAnnotated
from mnemo.runtime.clock import Breather, new_id
from mnemo.runtime.tasks import CancelHandle, shared_threads
from mnemo.runtime.text import is_blank
from mnemo.runtime.traffic import Pauses
from mnemo.session.parts import Extraction, SessionParts, log_unexpected
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.feed import sides_of, speaker_of
from mnemo.values.graph import Episodic
from mnemo.values.journal import Journal, StagedTrajectory, StepsAnnotated
from mnemo.values.messages import Message, StoredMessage, is_view_made
from mnemo.values.steps import Annotation, Step, StepDraft, Trajectory, split_trajectories
from mnemo.wire import Given, messages_of

log: logging.Logger = logging.getLogger("mnemo")

EXTRACTION_CONTEXT_STEPS = 3
"""Steps before a trajectory that its extractor may look at to resolve words (S)."""


@dataclass(slots=True)
class EpisodeBook:
    """
    One episode.

    Attributes:
        steps: Ascending by index, ``steps[i].index == i``.
        committed: Indexes of steps that a commit has written.
        taken: Indexes of steps that background work has taken.
        staged: Results that are durable and wait to be merged or committed, by key.
        unsure: Keys of staged results that may have been committed: the store did not say.
        unsettled: Committed steps whose reward may not have reached the graph yet.
        changeset: The whole staged changeset, in ``ready``; *changeset_steps* its steps.
        node_ids: What this episode's commits left, in order, each once.
        left_out: Facts that the bound kept out of what was committed.
        closing_reward_asked: Whether the last step was scored already.
        preceding: What was said before the episode, with negative indexes; never written.
        annotated: Steps before this index do not wait for annotation.
        use_model: Whether its extraction may ask the session's chat model.
    """

    id: str
    goal: str
    steps: list[Step] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    staged: dict[str, StagedTrajectory] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    unsettled: set[int] = field(default_factory=set)
    changeset: Changeset | None = None
    changeset_steps: tuple[int, ...] = ()
    node_ids: dict[str, None] = field(default_factory=dict)
    left_out: int = 0
    closing_reward_asked: bool = False
    preceding: tuple[Step, ...] = ()
    annotated: int = 0
    use_model: bool = True

    @property
    def backlog(self) -> int:
        """Durable steps that wait for annotation, those in the call in flight included."""
        return len(self.steps) - self.annotated

    @classmethod
    def replayed(cls, journal: Journal) -> EpisodeBook | None:
        """The episode as the journal holds it; ``None`` when idle."""
        record = journal.record
        if record.episode_id is None:
            return None
        return cls(
            id=record.episode_id,
            goal=record.goal,
            steps=list(journal.steps),
            committed=set(journal.committed),
            staged=dict(journal.staged),
            unsettled=set(journal.committed),
            changeset=journal.changeset,
            changeset_steps=journal.changeset_steps,
            node_ids=dict.fromkeys(journal.receipt_nodes),
        )

    def annotate(self, annotations: Iterable[Annotation]) -> None:
        """Put durable annotations on their steps."""
        for annotation in annotations:
            self.steps[annotation.index] = self.steps[annotation.index].annotated(annotation)

    def unannotated(self) -> list[Step]:
        """Steps that have no annotation."""
        return [step for step in self.steps if step.annotation is None]

    def uncommitted(self) -> list[Step]:
        """Steps that no commit has written and no background work has taken."""
        gone = self.committed | self.taken
        return [step for step in self.steps if step.index not in gone]

    def due(self, steps: Sequence[Step]) -> list[Trajectory]:
        """The trajectories (or parts) among annotated *steps* that no staged result covers."""
        covered = {index for staged in self.staged.values() for index in staged.steps}
        rest = [step for step in steps if step.index not in covered]
        return [
            replace(one, context=self.before(one.steps[0].index, EXTRACTION_CONTEXT_STEPS))
            for one in split_trajectories(rest, goal=self.goal)
        ]

    def before(self, index: int, count: int) -> tuple[Step, ...]:
        """The last *count* steps before *index*, those that precede the episode included."""
        own = self.steps[max(0, index - count) : index]
        return (*self.preceding[max(0, len(self.preceding) + len(own) - count) :], *own)

    def merged(self) -> Changeset:
        """All staged results in trajectory order, with late rewards; for a worker thread."""
        staged = tuple(sorted(self.staged.values(), key=lambda s: s.steps[0]))
        late = Changeset(changes=self.late_rewards())
        whole = _merged([late, *(result.changeset for result in staged)])
        return replace(whole, id=new_id("changeset"))

    def late_rewards(self) -> tuple[NodeChange, ...]:
        """Rewards of steps that were committed before they were known; the graph adds each once."""
        late = [self.steps[index] for index in sorted(self.unsettled)]
        return tuple(
            NodeChange(step.node_id, {"reward": step.reward})
            for step in late
            if step.reward is not None
        )

    def note_commit(
        self,
        changeset: Changeset,
        steps: Iterable[int],
        staged: Iterable[str],
        node_ids: Iterable[str],
    ) -> None:
        """Note that a commit wrote *changeset*: *steps*, from the results *staged*."""
        carried = {
            n.id for n in changeset.nodes if isinstance(n, Episodic) and n.reward is not None
        }
        carried |= {change.id for change in changeset.changes}
        written = set(steps)
        self.committed |= written
        self.taken -= written
        self.unsettled = {
            i for i in self.unsettled | written if self.steps[i].node_id not in carried
        }
        for key in staged:
            self.staged.pop(key, None)
            self.unsure.discard(key)
        self.node_ids.update(dict.fromkeys(node_ids))
        self.left_out += changeset.left_out


def _merged(parts: list[Changeset]) -> Changeset:
    """Merge in order, in pairs: each node is copied a logarithm of times only."""
    breather = Breather()
    while len(parts) > 1:
        halves = []
        for at in range(0, len(parts), 2):
            pair = parts[at : at + 2]
            halves.append(pair[0].merge(pair[1]) if len(pair) == 2 else pair[0])
            breather.breathe()
        parts = halves
    return parts[0]


# ── Annotation ────────────────────────────────────────────────────────────────────


KNOWN_STEPS = 64
"""Earlier steps that are handed to an annotation: bounds the cost of a long episode (S)."""
PATIENCE_S = 2.0
"""Seconds after which waiting work goes on although appends do (S)."""


class AnnotationLane:
    """Annotates the steps of one episode; calls *room* after the backlog shrank."""

    def __init__(
        self,
        parts: SessionParts,
        book: EpisodeBook,
        *,
        annotated: Callable[[Sequence[Annotation]], None],
        room: Callable[[], None],
    ) -> None:
        self._parts = parts
        self._book = book
        self._named = parts.named
        self._annotated = annotated
        self._room = room
        missing = book.unannotated()
        book.annotated = missing[0].index if missing else len(book.steps)
        self._woken = anyio.Event()
        self._stopped = CancelHandle()
        self._turn = anyio.Lock()
        self._pauses = Pauses(PATIENCE_S)
        self._enough = parts.config.session.max_append_backlog // 2
        self._hurry = False
        self._closing = False
        parts.spawn(self._run)

    def _extraction(self) -> Extraction:
        return self._parts.extraction(self._book.use_model)

    def wake(self) -> None:
        """Annotate what is there; a plain call."""
        self._woken.set()
        if self._hurry or self._book.backlog >= self._enough:
            self._pauses.end()

    def stop(self) -> None:
        """Start no further call and cancel the one in flight; unannotated steps stay durable."""
        self._stopped.cancel()

    async def _run(self) -> None:
        with self._stopped:
            while True:
                await self._woken.wait()
                self._woken = anyio.Event()
                try:
                    await self._annotate_backlog()
                except Exception:
                    log.exception("annotation of session %s failed", self._parts.session_id)

    async def _annotate_backlog(self) -> None:
        if self._book.backlog:
            # Off the event loop: the first use of the stages imports a great deal.
            await shared_threads("mnemo.session.episode").run(self._extraction)
        while self._book.backlog:
            await self._let_appends_go_first()
            async with self._turn:
                await self._annotate_next()

    async def _annotate_next(self) -> None:
        batch = self._next_batch()
        if batch:
            last = batch[-1].index + 1 == len(self._book.steps)
            try:
                await self._annotate(batch, closing=self._closing and last)
            except Exception as error:
                log_unexpected(error, f"annotation of session {self._parts.session_id}")
                indexes = tuple(step.index for step in batch)
                self._parts.tell(AnnotationFailed, step_indexes=indexes, error=str(error))
            self._book.annotated = batch[-1].index + 1
        self._room()

    def _next_batch(self) -> list[Step]:
        """The next steps that have no annotation; a resumed session may have some between."""
        book = self._book
        while book.backlog and book.steps[book.annotated].annotation is not None:
            book.annotated += 1
        batch = book.steps[book.annotated : book.annotated + self._extraction().batch_size]
        return list(takewhile(lambda step: step.annotation is None, batch))

    async def _let_appends_go_first(self) -> None:
        """Wait for a pause in the appends before computing in this process."""
        if not self._extraction().embedded or self._hurry or self._book.backlog >= self._enough:
            return
        await self._pauses.pause()

    async def _annotate(self, batch: Sequence[Step], *, closing: bool) -> None:
        """Annotate *batch*, durably, and say so; no part of the trace of whoever made it due."""
        book, parts = self._book, self._parts
        with parts.spans.at(None), parts.spans.span("annotate", attributes=self._named) as span:
            span.set("mnemo.step.count", len(batch))
            if batch:
                span.set("mnemo.step.index", batch[0].index)
            annotations = await self._extraction().annotate(
                goal=book.goal,
                known=book.before(batch[0].index if batch else len(book.steps), KNOWN_STEPS),
                fresh=batch,
                closing=closing,
            )
            if annotations:
                await parts.record_again(
                    StepsAnnotated(
                        session_id=parts.session_id,
                        episode_id=book.id,
                        annotations=tuple(annotations),
                        at=parts.clock.now(),
                    )
                )
                book.annotate(annotations)
        book.closing_reward_asked |= closing
        fresh = {step.index for step in batch}
        durable = [annotation for annotation in annotations if annotation.index in fresh]
        for annotation in durable:
            parts.tell(
                StepAnnotated,
                step_index=annotation.index,
                trajectory_id=annotation.trajectory_id,
                boundary_detected=annotation.boundary,
            )
        self._annotated(durable)

    async def finish(self, *, closing: bool) -> None:
        """
        Annotate every step, those whose batch had failed included; *closing*: score the last one.
        *Raises* ``MnemoError``: a step could not be annotated now either.
        """
        self._hurry, self._closing = True, closing
        self._pauses.end()
        try:
            await self._annotate_backlog()
            size = self._extraction().batch_size
            # While collecting goes on, later steps are the lane's; after the close, none comes.
            missing = self._book.unannotated()
            owed = [step for step in missing if closing or step.index < self._book.annotated]
            async with self._turn:
                for batch in _runs(owed, size):
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


# ── Steps of messages ────────────────────────────────────────────────────────────────


def step_drafts(
    given: Sequence[Given], *, now: datetime, default_actor: str, is_fed: bool = False
) -> list[StepDraft]:
    """Drafts of chat messages, in order, without empty ones. *Raises* ``ValueError``."""
    make = partial(_draft_of, now=now, default_actor=default_actor, is_fed=is_fed)
    return [draft for message in messages_of(given) if (draft := make(message)) is not None]


def _draft_of(
    message: Message, *, now: datetime, default_actor: str, is_fed: bool
) -> StepDraft | None:
    """Turn *message* into a draft; ``None``: it says and does nothing, or a view made it."""
    observation, action = sides_of(message)
    if is_view_made(message) or (is_blank(observation) and is_blank(action)):
        return None
    return StepDraft(
        observation=observation,
        action=action,
        at=message.at or now,
        actor=speaker_of(message, default_actor),
        node_id=new_id("episodic"),
        key=message.id,
        metadata=deepcopy(dict(message.metadata)),
        thread_id=message.thread_id if isinstance(message, StoredMessage) else None,
        message_id=message.id,
        role=message.role,
        is_fed=is_fed,
    )


def is_of(draft: StepDraft, known: Step | StepDraft) -> bool:
    """Whether *known*, of the same key, is of the same message; of no thread: says the same."""
    if known.thread_id is None:
        return (known.observation, known.action) == (draft.observation, draft.action)
    return (known.thread_id, known.message_id) == (draft.thread_id, draft.message_id)

"""Steps, what annotation adds to them, and the evidence text they are found by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from statistics import fmean
from typing import Any, Literal

import numpy as np

from mnemo.english.words import date_in_words
from mnemo.runtime.text import one_line
from mnemo.values.fast_init import fast_init
from mnemo.values.graph import Episodic, Vector
from mnemo.values.messages import Role
from mnemo.values.vectors import COSINE_ROUNDING

Part = Literal["observation", "action"]
PARTS: tuple[Part, ...] = ("observation", "action")


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class StepDraft:
    """A step without its index; *is_fed*: refused if its message was erased. See ``Step``."""

    observation: str
    action: str
    at: datetime
    actor: str
    node_id: str
    key: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    thread_id: str | None = None
    message_id: str | None = None
    role: Role | None = None
    is_fed: bool = False

    def step(self, *, session_id: str, episode_id: str, index: int, ordinal: int = 0) -> Step:
        """The step at this place."""
        return Step(
            session_id=session_id,
            episode_id=episode_id,
            index=index,
            ordinal=ordinal,
            **dict(zip(_DRAFTED, _drafted(self), strict=True)),
        )


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """
    What annotation found out about one step.

    Attributes:
        state: What was the case; at most 600 characters.
        subgoal: Why the action was taken; at most 200 characters.
        reward: In [0, 1], or ``None``: unknown, never replaced by a number.
        boundary: Whether a trajectory begins with this step (never for the first).
        vector: The subgoal's embedding, unit norm; ``None`` where it is that of the step before.
        embedded: Whether the embedded annotator stood in for a failing model.
    """

    index: int
    state: str | None
    subgoal: str
    reward: float | None
    trajectory_id: str
    boundary: bool = False
    vector: Vector | None = field(default=None, compare=False, repr=False)
    embedded: bool = False


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """
    One observation and the action taken on it, as the journal holds it.

    Attributes:
        index: 0-based within its episode; the order of arrival.
        at: When it happened, aware; may go backwards.
        actor: Whose words or signals the observation is.
        key: The caller's idempotency key.
        node_id: Id of the episodic node it is or will be.
        thread_id: The conversation that it was made from, whose erasure takes it along.
        message_id: The message of that thread which its observation is, if it is one.
        role: Of the message that it was made from; ``None``: it was made from none.
        ordinal: The store's own running number, ascending over all episodes.
        annotation: ``None`` until the annotator is through.
    """

    session_id: str
    episode_id: str
    index: int
    observation: str
    action: str
    at: datetime
    actor: str
    node_id: str
    key: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    thread_id: str | None = None
    message_id: str | None = None
    role: Role | None = None
    ordinal: int = 0
    annotation: Annotation | None = None

    @property
    def subgoal(self) -> str | None:
        """Why the action was taken; ``None`` until annotated."""
        return self.annotation.subgoal if self.annotation else None

    @property
    def state(self) -> str | None:
        """What was the case; ``None`` until annotated."""
        return self.annotation.state if self.annotation else None

    @property
    def reward(self) -> float | None:
        """How well the action served its subgoal, in [0, 1]; ``None`` is unknown."""
        return self.annotation.reward if self.annotation else None

    @property
    def trajectory_id(self) -> str | None:
        """The trajectory it belongs to; ``None`` until annotated."""
        return self.annotation.trajectory_id if self.annotation else None

    @property
    def text(self) -> str:
        """What was said: the observation, and the action if there is one."""
        return "\n".join(part for part in (self.observation, self.action) if part)

    def annotated(self, annotation: Annotation) -> Step:
        """This step with *annotation*."""
        # ``dataclasses.replace`` takes three times as long, on the event loop, for every step.
        return Step(annotation=annotation, **dict(zip(_APPENDED, _appended(self), strict=True)))


_DRAFTED = tuple(field.name for field in fields(StepDraft) if field.name != "is_fed")
_drafted = attrgetter(*_DRAFTED)
_APPENDED = tuple(field.name for field in fields(Step) if field.name != "annotation")
_appended = attrgetter(*_APPENDED)


def when_and_who(at: datetime, actor: str) -> str:
    """
    The head of an evidence text, e.g. ``[Friday 1 March 2024 14:30] Ana:``. Words beat an ISO date
    in recall; the zone is the step's own, no locale is asked.
    """
    return f"[{date_in_words(at)} {at.hour:02}:{at.minute:02}] {one_line(actor)}:"


def episodic_node(step: Step) -> Episodic:
    """The node that *step* is in the graph, or will be once it is committed."""
    known = step.annotation
    return Episodic(
        id=step.node_id,
        observation=step.observation,
        action=step.action,
        state=known.state if known else None,
        subgoal=known.subgoal if known else None,
        reward=known.reward if known else None,
        trajectory_id=known.trajectory_id if known else None,
        session_id=step.session_id or None,
        episode_id=step.episode_id or None,
        step_index=step.index if step.session_id else None,
        at=step.at,
        actor=step.actor,
        key=step.key,
    )


def evidence_text(step: Step, part: Part, *, agent_name: str) -> str | None:
    """The text that *part* of *step* is found by; ``None`` if that side is empty."""
    said = step.observation if part == "observation" else step.action
    if not said or said.isspace():
        return None
    return f"{when_and_who(step.at, step.actor if part == 'observation' else agent_name)} {said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRequest:
    """
    Steps to annotate.

    Attributes:
        before: Steps just before *fresh*, annotated as far as known, ascending.
        fresh: Steps to annotate, ascending, at most the annotator's batch size. May be
            empty when *closing*: then only the last reward is asked for.
        closing: Whether the episode ends after *fresh* (or *before*, if that is empty):
            then the last step's reward is asked for too.
    """

    goal: str
    before: tuple[Step, ...]
    fresh: tuple[Step, ...]
    closing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated:
    """
    What an annotator found for one step; rewards come a step late.

    Attributes:
        previous_reward: How well the step *before* this one did, judged by what this
            one observes; ``None`` is unknown.
        breaks: Whether something besides the subgoal (a pause, "next task") says that
            a new trajectory begins here.
    """

    index: int
    state: str
    subgoal: str
    previous_reward: float | None = None
    breaks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """
    Steps of one subgoal, or the uncommitted part of them.

    Attributes:
        steps: Annotated, ascending by index, never empty.
        context: Steps of the same episode just before the first one, for resolving words.
    """

    id: str
    session_id: str
    episode_id: str
    goal: str
    steps: tuple[Step, ...]
    context: tuple[Step, ...] = ()

    @property
    def subgoal(self) -> str:
        """The subgoal of its last step."""
        return self.steps[-1].subgoal or self.goal


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """
    What a semantic extractor says it learnt.

    Attributes:
        concepts: 1 to 6 short terms; may be empty, then taken from the proposition.
        confidence: In [0, 1].
        steps: Indexes (of the episode) of the steps that support it.
        replaces: Ids of stored facts it replaces or ends, among those the extractor was shown.
    """

    proposition: str
    concepts: tuple[str, ...] = ()
    confidence: float = 0.8
    steps: tuple[int, ...] = ()
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """
    What a procedural extractor says it learnt.

    Attributes:
        intent: The goal it serves, free of names and numbers.
        return_score: How far the intent was reached, in [0, 1]; ``None`` is unknown.
        steps: Indexes (of the episode) of the steps it rests on.
    """

    intent: str
    condition: str
    instruction: str
    expected_outcome: str
    return_score: float | None = None
    steps: tuple[int, ...] = field(default=())


def split_trajectories(steps: Iterable[Step], *, goal: str) -> list[Trajectory]:
    """Group steps by trajectory, by each one's first. *Raises* ``ValueError``: one has none yet."""
    groups: dict[str, list[Step]] = {}
    for step in steps:
        if step.trajectory_id is None:
            raise ValueError(f"step {step.index} is not annotated")
        groups.setdefault(step.trajectory_id, []).append(step)
    return [
        Trajectory(
            id=id,
            session_id=group[0].session_id,
            episode_id=group[0].episode_id,
            goal=goal,
            steps=tuple(group),
        )
        for id, group in groups.items()
    ]


def mean_reward(rewards: Iterable[float | None]) -> float | None:
    """The mean of those that are known; ``None``: none is."""
    known = [reward for reward in rewards if reward is not None]
    return fmean(known) if known else None


def is_boundary(previous: Vector | None, current: Vector, threshold: float) -> bool:
    """
    Decide whether *current* starts a new trajectory.

    A boundary is where the subgoal changes: the cosine between consecutive subgoal
    embeddings falls below the threshold; equal to it is no boundary.

    Args:
        previous: Unit-norm float32 vector, shape ``(d,)``; ``None`` for the first step.
        current: Same shape and norm.
        threshold: Cosine in ``[-1, 1]``.

    Raises:
        ValueError: If the shapes differ.

    Source:
        PlugMem (arXiv 2603.03296): 0.75.
    """
    if previous is None:
        return False
    if previous.shape != current.shape:
        raise ValueError(f"shapes differ: {previous.shape} and {current.shape}")
    return float(np.dot(previous, current)) < threshold - COSINE_ROUNDING

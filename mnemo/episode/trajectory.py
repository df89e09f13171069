"""Trajectories: the runs of steps between boundaries, and what extraction says of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mnemo.episode.step import Step

__all__ = ["Fact", "Instruction", "Trajectory", "split_trajectories"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """
    Steps of one subgoal, or the uncommitted part of them.

    Attributes:
        steps: Annotated, ascending by index, never empty.
        goal: The episode's goal.
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
        replaces: Ids of stored facts it replaces, among those the extractor was shown.
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
    """
    Group annotated steps by trajectory, in order of each one's first step.

    Raises:
        ValueError: If a step has no annotation yet.
    """
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

"""Support of facts and instructions: the times and episodes of their steps."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from statistics import fmean
from typing import TypeAlias

from mnemo.commit.stored import Known
from mnemo.runtime.clock import Breather, as_utc
from mnemo.values.changeset import Changeset
from mnemo.values.graph import EdgeKind, Episodic, MetadataDelta, Semantic

__all__ = ["Position", "Support"]

Position: TypeAlias = tuple[datetime, str]
"""Where a statement stands: its step's time (UTC) and, for equal times, its step's id."""

_EVER = datetime.min.replace(tzinfo=UTC)


class Support:
    """The steps behind the facts and instructions of a changeset and of what it meets."""

    def __init__(self, changeset: Changeset, known: Known) -> None:
        steps = {
            node.id: node
            for node in (*known.nodes.values(), *changeset.nodes)
            if isinstance(node, Episodic)
        }
        self._steps: dict[str, list[Episodic]] = {}
        breather = Breather()
        for edge in (*known.edges, *changeset.edges):
            breather.breathe()
            if edge.kind is EdgeKind.PROVENANCE and edge.target in steps:
                self._steps.setdefault(edge.source, []).append(steps[edge.target])

    def latest(self, fact: Semantic) -> datetime:
        """When *fact* was last said: its latest step, else the best that it knows."""
        return self.positions(fact)[-1][0]

    def positions(self, fact: Semantic) -> list[Position]:
        """
        Its statements, ascending; of a fact without steps, its start and its own id.

        A wording that the hand gave it is its one statement: its steps say something else.
        """
        if fact.worded_at is not None:
            return [(self.start(fact), fact.id)]
        steps = {step.id: step for step in self._steps.get(fact.id, ()) if step.at is not None}
        found = [(as_utc(step.at), id) for id, step in steps.items() if step.at is not None]
        return sorted(found) or [(self.start(fact), fact.id)]

    def start(self, fact: Semantic) -> datetime:
        """Since when *fact* holds: ``valid_from``, else when it was made, else ever."""
        at = fact.valid_from or fact.created_at
        return as_utc(at) if at is not None else _EVER

    def is_restated(self, id: str, *, by: str) -> bool:
        """Whether every episode behind *id*, of which there is one, is behind *by* too."""
        mine = self._episodes(id)
        return bool(mine) and mine <= self._episodes(by)

    def unite(self, id: str, survivor: str) -> None:
        """Let the steps of *id* be those of *survivor* too."""
        self._steps.setdefault(survivor, []).extend(self._steps.get(id, ()))

    def move(self, steps: Iterable[str], id: str, target: str) -> MetadataDelta:
        """
        Let *steps* of *id* be those of *target*, which has none.

        Returns:
            What the move adds to the counts of *target*: its episodes, and the mean of the
            known rewards of the steps.
        """
        moved = set(steps)
        before = self._steps.get(id, [])
        self._steps[target] = [step for step in before if step.id in moved]
        self._steps[id] = [step for step in before if step.id not in moved]
        rewards = [step.reward for step in self._steps[target] if step.reward is not None]
        return MetadataDelta(
            cumulative_reward=fmean(rewards) if rewards else 0.0,
            reward_count=1 if rewards else 0,
            support_count=len(self._episodes(target)) or 1,
        )

    def shared_episodes(self, id: str, other: str) -> int:
        """How many episodes are behind both."""
        return len(self._episodes(id) & self._episodes(other))

    def _episodes(self, id: str) -> set[tuple[str | None, str]]:
        steps = self._steps.get(id, ())
        return {(step.session_id, step.episode_id) for step in steps if step.episode_id}

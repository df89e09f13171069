"""
The episode in memory: steps, annotations, staged results, as the journal holds them.

Only the session's parts write it, each after the act is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from mnemo.runtime.clock import Breather, new_id
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.graph import Episodic
from mnemo.values.journal import Journal, StagedTrajectory
from mnemo.values.steps import Annotation, Step, Trajectory, split_trajectories

EXTRACTION_CONTEXT_STEPS = 3
"""Steps before a trajectory that its extractor may look at to resolve words (S)."""


@dataclass(slots=True)
class EpisodeBook:
    """
    One episode.

    Attributes:
        steps: Ascending by index, ``steps[i].index == i``.
        committed: Indexes of steps that a commit has written.
        in_flight: Indexes of steps that background work has taken.
        staged: Results that are durable and wait to be merged or committed, by key.
        unsure: Keys of staged results that may have been committed: the store did not say.
        unsettled: Committed steps whose reward may not have reached the graph yet.
        changeset: The whole staged changeset, in ``ready``; *changeset_steps* its steps.
        node_ids: What this episode's commits left, in order, each once.
        left_out: Facts that the bound kept out of what was committed.
        closing_reward_asked: Whether the last step was scored already.
        preceding: What was said before the episode, with negative indexes; never written.
    """

    id: str
    goal: str
    steps: list[Step] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    in_flight: set[int] = field(default_factory=set)
    staged: dict[str, StagedTrajectory] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    unsettled: set[int] = field(default_factory=set)
    changeset: Changeset | None = None
    changeset_steps: tuple[int, ...] = ()
    node_ids: dict[str, None] = field(default_factory=dict)
    left_out: int = 0
    closing_reward_asked: bool = False
    preceding: tuple[Step, ...] = ()

    @classmethod
    def new(cls, goal: str) -> EpisodeBook:
        """A fresh episode; nothing of an earlier one is carried over."""
        return cls(id=new_id("episode"), goal=goal)

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

    def unannotated(self, start: int = 0) -> list[Step]:
        """Steps from index *start* on that have no annotation."""
        return [step for step in self.steps[start:] if step.annotation is None]

    def uncommitted(self) -> list[Step]:
        """Steps that no commit has written and no background work has taken."""
        taken = self.committed | self.in_flight
        return [step for step in self.steps if step.index not in taken]

    def due(self, steps: Sequence[Step]) -> list[Trajectory]:
        """The trajectories (or parts) among annotated *steps* that no staged result covers."""
        covered = {index for staged in self.staged.values() for index in staged.steps}
        rest = [step for step in steps if step.index not in covered]
        return [self._with_context(t) for t in split_trajectories(rest, goal=self.goal)]

    def before(self, index: int, count: int) -> tuple[Step, ...]:
        """The last *count* steps before *index*, those that precede the episode included."""
        own = self.steps[max(0, index - count) : index]
        return (*self.preceding[max(0, len(self.preceding) + len(own) - count) :], *own)

    def _with_context(self, trajectory: Trajectory) -> Trajectory:
        context = self.before(trajectory.steps[0].index, EXTRACTION_CONTEXT_STEPS)
        return replace(trajectory, context=context)

    def merged(self) -> Changeset:
        """
        All staged results in trajectory order, with the late rewards, under a fresh id.

        For a worker thread: it pauses, and nothing writes the book while it runs.
        """
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

    def settle(
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
        self.in_flight -= written
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

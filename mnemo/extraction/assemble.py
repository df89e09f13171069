"""
Assemble a changeset from facts and instructions: nodes, edges and first rewards. Pure.

Ids of episodic, source and subgoal nodes follow from the steps, so that what is
extracted in parts, or twice, meets itself at commit. All other ids are fresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from mnemo.english.entities import plain
from mnemo.extraction.facts import KnownFact
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import clean, is_blank, one_line, terms
from mnemo.values.changeset import Changeset
from mnemo.values.graph import (
    Edge,
    EdgeKind,
    Intent,
    MetadataDelta,
    Node,
    Procedural,
    Semantic,
    Source,
    Subgoal,
    Tag,
)
from mnemo.values.lookup import label_key
from mnemo.values.steps import Instruction, Step, Trajectory, episodic_node

LAST_STEPS = 3
"""Steps that an instruction rests on if it names none and repeats no action."""


def clean_instructions(given: Iterable[Instruction], *, limit: int) -> list[Instruction]:
    """The first *limit* instructions that lack neither intent, condition, text nor outcome."""
    whole = [i for i in map(_cleaned, given) if not any(map(is_blank, _texts(i)))]
    return whole[:limit]


def assemble(
    trajectory: Trajectory,
    facts: Sequence[KnownFact],
    instructions: Sequence[Instruction],
    *,
    sibling_window: int,
) -> Changeset:
    """
    Build the changeset of one trajectory.

    Args:
        facts: Clean and distinct, in the order in which they were said.
        instructions: Clean.
        sibling_window: Following facts that each fact is linked to.
    """
    draft = _Draft(trajectory)
    draft.add_steps()
    for known in facts:
        draft.add_fact(known)
    for instruction in instructions:
        draft.add_instruction(instruction)
    draft.add_siblings(sibling_window)
    return draft.changeset()


@dataclass(slots=True)
class _Group:
    """A tag or intent with the first rewards of its new members."""

    node: Node
    rewards: list[float | None] = field(default_factory=list)


class _Draft:
    """A changeset in the making."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._steps = {step.index: step for step in trajectory.steps}
        self._breather = Breather()
        self._nodes: list[Node] = []
        self._edges: list[Edge] = []
        self._metadata: dict[str, MetadataDelta] = {}
        self._replaces: dict[str, tuple[str, ...]] = {}
        self._facts: list[str] = []
        self._tags: dict[str, _Group] = {}
        self._intents: dict[str, _Group] = {}

    def add_steps(self) -> None:
        trajectory = self._trajectory
        subgoal = Subgoal(
            id=f"subgoal-{trajectory.id}",  # of all its parts
            description=trajectory.subgoal,
            parent_goal=trajectory.goal,
            trajectory_id=trajectory.id,
        )
        self._nodes.append(subgoal)
        for step in trajectory.steps:
            self._breather.breathe()
            source = _source(step)
            self._nodes += (episodic_node(step), source)
            self._link(subgoal.id, step.node_id, EdgeKind.HIERARCHICAL)
            self._link(step.node_id, source.id, EdgeKind.PROVENANCE)

    def add_fact(self, known: KnownFact) -> None:
        self._breather.breathe()
        fact = known.fact
        support = [self._steps[i] for i in fact.steps]
        node = Semantic(
            proposition=fact.proposition,
            confidence=fact.confidence,
            valid_from=min(step.at for step in support),
            vector=known.vector,
        )
        reward = _mean(step.reward for step in support)
        self._add_supported(node, support, reward)
        self._facts.append(node.id)
        if fact.replaces:
            self._replaces[node.id] = fact.replaces
        for label in fact.concepts:
            tag = self._tags.setdefault(label_key(label), _Group(Tag(label=label)))
            tag.rewards.append(reward)
            self._link(tag.node.id, node.id, EdgeKind.MEMBERSHIP)

    def add_instruction(self, given: Instruction) -> None:
        self._breather.breathe()
        node = Procedural(
            instruction=given.instruction,
            condition=given.condition,
            expected_outcome=given.expected_outcome,
            return_score=given.return_score,
        )
        self._add_supported(node, self._steps_of(given), given.return_score)
        fresh = _Group(Intent(description=given.intent))
        intent = self._intents.setdefault(plain(given.intent), fresh)
        intent.rewards.append(given.return_score)
        self._link(intent.node.id, node.id, EdgeKind.HIERARCHICAL)

    def add_siblings(self, window: int) -> None:
        for i, fact in enumerate(self._facts):
            for later in self._facts[i + 1 : i + 1 + window]:
                self._link(fact, later, EdgeKind.SIBLING)

    def changeset(self) -> Changeset:
        groups = [*self._tags.values(), *self._intents.values()]
        means = {group.node.id: _delta(_mean(group.rewards)) for group in groups}
        return Changeset(
            nodes=(*self._nodes, *(group.node for group in groups)),
            edges=tuple(dict.fromkeys(self._edges)),
            metadata={**self._metadata, **means},
            replaces=self._replaces,
        )

    def _add_supported(self, node: Node, support: Iterable[Step], reward: float | None) -> None:
        self._nodes.append(node)
        self._metadata[node.id] = _delta(reward, support=1)
        for step in support:
            self._link(node.id, step.node_id, EdgeKind.PROVENANCE)

    def _steps_of(self, instruction: Instruction) -> list[Step]:
        named = [self._steps[i] for i in sorted(set(instruction.steps)) if i in self._steps]
        steps = self._trajectory.steps
        return named or _repeated(instruction, steps) or list(steps[-LAST_STEPS:])

    def _link(self, source: str, target: str, kind: EdgeKind) -> None:
        self._edges.append(Edge(source, target, kind))


def _mean(rewards: Iterable[float | None]) -> float | None:
    known = [reward for reward in rewards if reward is not None]
    return fmean(known) if known else None


def _delta(reward: float | None, *, support: int = 0) -> MetadataDelta:
    if reward is None:
        return MetadataDelta(support_count=support)
    return MetadataDelta(cumulative_reward=reward, reward_count=1, support_count=support)


def _texts(given: Instruction) -> tuple[str, str, str, str]:
    return given.intent, given.condition, given.instruction, given.expected_outcome


def _cleaned(given: Instruction) -> Instruction:
    intent, condition, text, outcome = (clean(part).strip() for part in _texts(given))
    score = given.return_score
    return Instruction(
        intent=one_line(intent),
        condition=condition,
        instruction=text,
        expected_outcome=outcome,
        return_score=None if score is None else min(1.0, max(0.0, score)),
        steps=given.steps,
    )


def _repeated(instruction: Instruction, steps: Iterable[Step]) -> list[Step]:
    """The steps whose every content word of the action is in the instruction."""
    said = frozenset(terms(instruction.instruction))
    return [step for step in steps if step.action and _is_said(step.action, said)]


def _is_said(action: str, said: frozenset[str]) -> bool:
    empty = True
    for term in terms(action):
        if term not in said:
            return False
        empty = False
    return not empty


def _source(step: Step) -> Source:
    return Source(
        id="source" + step.node_id.removeprefix("episodic"),
        plain_text=step.text,
        session_id=step.session_id,
        episode_id=step.episode_id,
        step_index=step.index,
        at=step.at,
        actor=step.actor,
        key=step.key,
    )

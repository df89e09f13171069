"""
What is left of knowledge when some of the steps behind it are erased. Pure.

Both stores ask here, so that they agree. A text stays only if it is worded from what
remains: no content word of it may be known from erased steps alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from mnemo.graph.metadata import NodeMetadata
from mnemo.graph.nodes import Episodic, Intent, Node, Procedural, Semantic, Subgoal, Wording
from mnemo.runtime.clock import as_utc
from mnemo.runtime.text import terms

__all__ = ["Claim", "Ground", "Said", "Verdict", "judge", "relinked", "reworded", "stripped"]

_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Ground:
    """A step behind a fact or instruction."""

    step: Episodic
    erased: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A fact or instruction that an erased step stands behind, with all that it rests on."""

    node: Node
    metadata: NodeMetadata
    grounds: tuple[Ground, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a claim: both ``None`` if it goes, else what it is from now on."""

    node: Node | None = None
    metadata: NodeMetadata | None = None


class Said:
    """
    The content words of the erased steps, per episode; counted when first asked for.

    Args:
        texts_of: Gives an episode's erased texts by its id: those of steps and, if it
            goes whole, its goal.
    """

    def __init__(self, texts_of: Callable[[str | None], Iterable[str | None]]) -> None:
        self._texts_of = texts_of
        self._words: dict[str | None, frozenset[str]] = {}

    def of(self, episodes: Iterable[str | None]) -> frozenset[str]:
        """All words that were said in the erased parts of *episodes*."""
        return frozenset().union(*(self._of(episode) for episode in set(episodes)))

    def _of(self, episode: str | None) -> frozenset[str]:
        if episode not in self._words:
            self._words[episode] = _words(self._texts_of(episode))
        return self._words[episode]


def _words(texts: Iterable[str | None]) -> frozenset[str]:
    return frozenset(term for text in texts if text for term in terms(text))


def _evidence(step: Episodic) -> tuple[str | None, ...]:
    return (step.observation, step.action, step.actor)


# ── Facts and instructions ───────────────────────────────────────────────────────────


def judge(claim: Claim, said: Said) -> Verdict:
    """
    Decide what becomes of *claim*, of which at least one ground is erased.

    It goes with its last ground, or if its text has words from erased steps (of the
    episodes that it was drawn from) that no remaining ground has. Otherwise it loses
    the provenance, the rewards and the support that came from the erased ones.
    """
    remaining = [ground.step for ground in claim.grounds if not ground.erased]
    erased = [ground.step for ground in claim.grounds if ground.erased]
    if not remaining or _leaks(_text(claim.node), remaining, said.of(s.episode_id for s in erased)):
        return Verdict()
    return Verdict(_narrowed(claim.node, remaining), _counted(claim, remaining))


def _text(node: Node) -> str:
    if isinstance(node, Procedural):
        return "\n".join((node.condition, node.instruction, node.expected_outcome))
    return node.text


def _leaks(text: str, remaining: Sequence[Episodic], erased: frozenset[str]) -> bool:
    suspect = _words([text]) & erased
    return bool(suspect and suspect - _words(t for step in remaining for t in _evidence(step)))


def _narrowed(node: Node, remaining: Sequence[Episodic]) -> Node:
    if not isinstance(node, Semantic) or node.valid_from is None:
        return node
    times = [as_utc(step.at) for step in remaining if step.at is not None]
    return replace(node, valid_from=min(times)) if times else node


def _counted(claim: Claim, remaining: Sequence[Episodic]) -> NodeMetadata:
    before, after = _rewards(g.step for g in claim.grounds), _rewards(remaining)
    count = max(claim.metadata.reward_count - before[1] + after[1], 0)
    total = claim.metadata.cumulative_reward - before[0] + after[0]
    total = min(max(total, 0.0), float(count))
    return replace(
        claim.metadata,
        cumulative_reward=total if total > _LEAST else 0.0,
        reward_count=count,
        support_count=len({(step.session_id, step.episode_id or step.id) for step in remaining}),
    )


def _rewards(steps: Iterable[Episodic]) -> tuple[float, int]:
    """Sum and number of the mean rewards that statements got, one per trajectory."""
    groups: dict[tuple[str | None, str | None], list[float]] = {}
    for step in steps:
        if step.reward is not None:
            groups.setdefault((step.episode_id, step.trajectory_id), []).append(step.reward)
    return sum(map(fmean, groups.values())), len(groups)


# ── Facts that had been replaced ─────────────────────────────────────────────────────


def relinked(fact: Semantic, gone: Mapping[str, Semantic]) -> Semantic:
    """
    *fact*, whose replacement is among the erased facts *gone*, as it is without them.

    It holds again, unless what replaced the replacement is still there.
    """
    by, until = fact.superseded_by, fact.valid_to
    seen: set[str] = set()
    while by is not None and by in gone and by not in seen:
        seen.add(by)
        replacement = gone[by]
        by, until = replacement.superseded_by, replacement.valid_to
    if by is None or by in seen:
        return replace(fact, superseded_by=None, valid_to=None)
    return replace(fact, superseded_by=by, valid_to=until)


# ── What members share ───────────────────────────────────────────────────────────────


def reworded(
    node: Node, members: Sequence[Node], erased: Callable[[], frozenset[str]]
) -> Node | None:
    """
    A tag, intent or subgoal that some of its members are gone from, as it may stay.

    Args:
        members: What remains of them, at least one.
        erased: Gives the words said in the erased steps behind the others.

    Returns:
        *node* itself where it is worded from what remains; an intent or subgoal in
        other words; ``None`` for a tag that nothing remaining names.
    """
    said = [text for member in members for text in _member_texts(member)]
    goal = node.parent_goal if isinstance(node, Subgoal) else None
    unsaid = _words([node.text]) - _words((*said, goal))
    if not unsaid or not unsaid & erased():
        return node
    if isinstance(node, Intent):
        return replace(node, description=_plainest(members), vector=None)
    if isinstance(node, Subgoal):
        return replace(node, description=goal or "", vector=None)
    return None


def without_sources(
    intent: Intent, members: Sequence[Node], erased: Container[str]
) -> tuple[Intent, tuple[Wording, ...]]:
    """
    An intent without the wordings that only erased steps gave it, and those wordings.

    Its description changes if it has words of theirs that nothing remaining says.

    Args:
        members: Its instructions that remain.
        erased: Ids of the episodic nodes of the erased steps.
    """
    kept, gone = [], []
    for one in intent.wordings:
        left = tuple(source for source in one.sources if source not in erased)
        if one.sources and not left:
            gone.append(one)
        else:
            kept.append(replace(one, sources=left))
    after = replace(intent, wordings=tuple(kept))
    said = [*members, *(Intent(one.text) for one in kept)]
    if gone and said:
        fitting = reworded(after, said, lambda: _words(one.text for one in gone))
        assert isinstance(fitting, Intent)
        after = fitting
    return after, tuple(gone)


def _member_texts(member: Node) -> tuple[str | None, ...]:
    return _evidence(member) if isinstance(member, Episodic) else (_text(member),)


def _plainest(members: Sequence[Node]) -> str:
    first = members[0]
    return first.instruction if isinstance(first, Procedural) else first.text


def stripped(
    state: str | None, subgoal: str | None, own: str, goal: str, erased: frozenset[str]
) -> tuple[str | None, str | None]:
    """
    State and subgoal of a step that remains, without what only erased steps said.

    Args:
        own: What the step itself says.
        goal: Of its episode; stands for a subgoal that cannot stay.
    """
    known = _words((own, goal))
    kept = state if not (_words([state]) & erased) - known else None
    if subgoal is not None and (_words([subgoal]) & erased) - known:
        subgoal = goal
    return kept, subgoal

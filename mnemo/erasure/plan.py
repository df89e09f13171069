"""
Erasure plan: which rows go with erased steps and messages, and what shared knowledge keeps.

Pure functions over rows; ``erase`` reads them and carries the plan out. A text stays only if no
content word of it is known from erased steps alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from mnemo.erasure.selecting import CLAIMS, GraphRows, NodeRow
from mnemo.errors import StoreCorrupt
from mnemo.graph.apply import credit, trajectories_of
from mnemo.runtime.clock import as_utc
from mnemo.runtime.text import terms
from mnemo.values.changeset import RAW, ROUTING
from mnemo.values.graph import (
    Claim,
    EdgeKind,
    Edit,
    Episodic,
    Intent,
    Node,
    NodeMetadata,
    Procedural,
    Semantic,
    Subgoal,
)

MEMBERS_READ = 200
"""Members that are read to tell whether a tag, intent or subgoal is worded from what remains."""
_MEMBERSHIP = (EdgeKind.MEMBERSHIP, EdgeKind.HIERARCHICAL)
_PROVENANCE = (EdgeKind.PROVENANCE,)

# ── What was said ────────────────────────────────────────────────────────────────────


class Said:
    """
    The content words of the erased steps, per episode; counted when first asked for. *texts_of*
    gives an episode's erased texts by its id: of steps and, if it goes whole, its goal.
    """

    def __init__(self, texts_of: Callable[[str | None], Iterable[str | None]]) -> None:
        self._texts_of = texts_of
        self._words: dict[str | None, frozenset[str]] = {}

    def of(self, episodes: Iterable[str | None]) -> frozenset[str]:
        """All words that were said in the erased parts of *episodes*."""
        return frozenset().union(*(self._of(episode) for episode in set(episodes)))

    def _of(self, episode: str | None) -> frozenset[str]:
        if episode not in self._words:
            self._words[episode] = words_of(self._texts_of(episode))
        return self._words[episode]


def words_of(texts: Iterable[str | None]) -> frozenset[str]:
    return frozenset(term for text in texts if text for term in terms(text))


# ── The graph ────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Deletions:
    """
    What an erasure does to the graph; nodes are named by number.

    *gone* are deleted; *changed* are nodes as they are from now on, *counts* the metadata of some
    of them. *words*: What the claims said that go themselves. *reworded*: Those of *changed* whose
    vectors do not fit their texts any more. *unreadable*: Damaged rows, which stay as they are.
    """

    gone: dict[int, NodeRow] = field(default_factory=dict)
    changed: dict[int, Node] = field(default_factory=dict)
    counts: dict[int, NodeMetadata] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    reworded: set[int] = field(default_factory=set)
    facts_restored: int = 0
    unreadable: list[StoreCorrupt] = field(default_factory=list)
    _said: dict[int, frozenset[str]] = field(default_factory=dict)

    def add(self, rows: Iterable[NodeRow]) -> None:
        for row in rows:
            self.gone[row.no] = row
            self.changed.pop(row.no, None)

    def node(self, rows: GraphRows, number: int) -> Node | None:
        """A node as it is with the changes so far; a damaged one is *unreadable*."""
        if number in self.changed:
            return self.changed[number]
        try:
            return rows.read(number)
        except StoreCorrupt as damage:
            self.unreadable.append(damage)
            return None

    def lost(self, rows: GraphRows, numbers: Collection[int], said: Said) -> frozenset[str]:
        """The words that those of these steps said that are erased, or their episodes lost."""
        steps = [row for row in rows.find("no", numbers) if row.type == "episodic"]
        gone = [row for row in steps if row.no in self.gone]
        for row in gone:
            if row.no not in self._said:
                self._said[row.no] = words_of(_wordings(rows, row))
        lost = said.of(row.episode_id for row in steps)
        return lost.union(*(self._said[row.no] for row in gone))


def plan_graph(
    rows: GraphRows, step_ids: Collection[str], said: Said, claims: Iterable[NodeRow] = ()
) -> Deletions:
    """
    Plan what goes from the graph with erased steps and *claims*, and how the rest changes.

    *step_ids*: Episodic nodes, committed or not. *claims*: Go whatever they rest on.
    """
    claims, plan = list(claims), Deletions()
    plan.words = words_of(text for row in claims for text in _wordings(rows, row))
    plan.add(claims)
    sources = [id.replace("episodic", "source", 1) for id in step_ids if id.startswith("episodic")]
    plan.add(row for row in rows.find("id", [*step_ids, *sources]) if row.type in RAW)
    _add_sources(rows, plan)
    _settle_claims(rows, plan, said)
    _restore_superseded(rows, plan)
    shortened = _add_orphans(rows, plan)
    _drop_wordings(rows, plan, frozenset(step_ids))
    for row in shortened:
        _reword(rows, plan, row, said)
    return plan


def _unshared(
    candidates: Iterable[NodeRow], links: Iterable[tuple[int, int]], plan: Deletions
) -> list[NodeRow]:
    """Those of *candidates* that no link leads from to a node that stays."""
    held = {one for one, other in links if other not in plan.gone}
    return [row for row in candidates if row.no not in held]


def _add_sources(rows: GraphRows, plan: Deletions) -> None:
    """Sources that no remaining step names go."""
    ends = {target for _, target in rows.edges("source", plan.gone, _PROVENANCE)}
    sources = [row for row in rows.find("no", ends - plan.gone.keys()) if row.type == "source"]
    links = rows.edges("target", [row.no for row in sources], _PROVENANCE)
    plan.add(_unshared(sources, [(target, source) for source, target in links], plan))


def _settle_claims(rows: GraphRows, plan: Deletions, said: Said) -> None:
    """Facts and instructions go with their last step; shared ones are judged."""
    ends = {source for source, _ in rows.edges("target", plan.gone, _PROVENANCE)}
    claims = [row for row in rows.find("no", ends - plan.gone.keys()) if row.type in CLAIMS]
    links = rows.edges("source", [row.no for row in claims], _PROVENANCE)
    steps = {row.no for row in rows.find("no", {t for _, t in links}) if row.type == "episodic"}
    grounds: dict[int, list[int]] = {row.no: [] for row in claims}
    for claim, step in links:
        if step in steps:
            grounds[claim].append(step)
    plan.add(_unshared(claims, [link for link in links if link[1] in steps], plan))
    shared = [row for row in claims if row.no not in plan.gone]
    plan.add([row for row in shared if not _stays(rows, plan, row, grounds[row.no], said)])


def _stays(
    rows: GraphRows, plan: Deletions, row: NodeRow, grounds: Sequence[int], said: Said
) -> bool:
    """Judge a shared claim; one that is damaged, or rests on what is, stays as it is."""
    try:
        read = {number: rows.read(number) for number in grounds}
        node, metadata = rows.read(row.no), rows.counts(row.no)
    except StoreCorrupt as damage:
        plan.unreadable.append(damage)
        return True
    steps = {number: step for number, step in read.items() if isinstance(step, Episodic)}
    remaining = [step for number, step in steps.items() if number not in plan.gone]
    gone = [step for number, step in steps.items() if number in plan.gone]
    lost = plan.lost(rows, steps.keys() & plan.gone.keys(), said)
    if _leaks([_text(node)], remaining, lost):
        return False
    plan.changed[row.no] = _narrowed(node, remaining, lost)
    plan.counts[row.no] = _counted(node, metadata, gone, remaining)
    return True


def _restore_superseded(rows: GraphRows, plan: Deletions) -> None:
    """Facts that erased ones had replaced hold again, or are replaced by what came after."""
    gone = {row.id: row for row in plan.gone.values()}
    for row in rows.find("superseded_by", gone.keys()):
        stays = row.type == "semantic" and row.no not in plan.gone
        fact = plan.node(rows, row.no) if stays else None
        if isinstance(fact, Semantic):
            plan.changed[row.no] = after = _relinked(rows, fact, gone)
            plan.facts_restored += after.superseded_by is None


def _relinked(rows: GraphRows, fact: Semantic, gone: Mapping[str, NodeRow]) -> Semantic:
    """*fact* without its erased replacements, one replaced by the next."""
    by, until = fact.superseded_by, fact.valid_to
    seen: set[str] = set()
    while by is not None and by in gone and by not in seen:
        seen.add(by)
        by, until = _replacement(rows, gone[by])
    if by is None or by in seen:
        return replace(fact, superseded_by=None, valid_to=None)
    return replace(fact, superseded_by=by, valid_to=until)


def _add_orphans(rows: GraphRows, plan: Deletions) -> list[NodeRow]:
    """Tags, intents and subgoals go with their last member; give those that lost some."""
    ends = {source for source, _ in rows.edges("target", plan.gone, _MEMBERSHIP)}
    routing = [row for row in rows.find("no", ends - plan.gone.keys()) if row.type in ROUTING]
    plan.add(_unshared(routing, rows.edges("source", [row.no for row in routing]), plan))
    return [row for row in routing if row.no not in plan.gone]


def _drop_wordings(rows: GraphRows, plan: Deletions, step_ids: frozenset[str]) -> None:
    """Intents lose the wordings that only erased steps gave them."""
    for row in rows.worded_by(step_ids):
        intent = None if row.no in plan.gone else plan.node(rows, row.no)
        if isinstance(intent, Intent):
            after = _unworded(intent, _members(rows, plan, row), step_ids)
            _change(plan, row, intent, after)


def _reword(rows: GraphRows, plan: Deletions, row: NodeRow, said: Said) -> None:
    """A routing node that lost members is worded from the others, or goes."""
    node = plan.node(rows, row.no)
    if node is None:
        return

    def lost() -> frozenset[str]:
        gone = [t for _, t in rows.edges("source", [row.no], _MEMBERSHIP) if t in plan.gone]
        behind = {target for _, target in rows.edges("source", gone, _PROVENANCE)}
        return plan.lost(rows, behind.union(gone), said) | plan.words

    after = _reworded(node, _members(rows, plan, row), lost)
    if after is None:
        plan.add([row])
    elif after is not node:
        _change(plan, row, node, after)


def _change(plan: Deletions, row: NodeRow, before: Node, after: Node) -> None:
    plan.changed[row.no] = after
    if after.text != before.text:
        plan.reworded.add(row.no)


def _members(rows: GraphRows, plan: Deletions, row: NodeRow) -> list[Node]:
    """The first remaining members; a damaged one names nothing: what only it named goes."""
    ends = sorted({t for _, t in rows.edges("source", [row.no], _MEMBERSHIP)} - plan.gone.keys())
    found = []
    for number in ends[:MEMBERS_READ]:
        try:
            found.append(rows.read(number))
        except StoreCorrupt:
            continue
    return found


# ── Facts and instructions ───────────────────────────────────────────────────────────


def _wordings(rows: GraphRows, row: NodeRow) -> tuple[str | None, ...]:
    """What a step or claim says and said; of a damaged one nothing is known."""
    try:
        node = rows.read(row.no)
    except StoreCorrupt:
        return ()
    if isinstance(node, Episodic):
        return (*_evidence(node), node.state, node.subgoal)
    return (_text(node), *(node.former_texts if isinstance(node, Claim) else ()))


def _text(node: Node) -> str:
    if isinstance(node, Procedural):
        return "\n".join((node.condition, node.instruction, node.expected_outcome))
    return node.text


def _evidence(step: Episodic) -> tuple[str | None, ...]:
    return (step.observation, step.action, step.actor)


def _leaks(
    texts: Iterable[str | None], remaining: Sequence[Episodic], lost: frozenset[str]
) -> bool:
    """Whether *texts* have lost words that no remaining step has."""
    suspect = words_of(texts) & lost
    return bool(suspect and suspect - words_of(t for step in remaining for t in _evidence(step)))


def _narrowed(node: Node, remaining: Sequence[Episodic], lost: frozenset[str]) -> Node:
    """*node* without the history that only erased steps word, since the first remaining step."""
    if isinstance(node, Claim) and node.edits:
        return replace(node, edits=tuple(_unsaid(edit, remaining, lost) for edit in node.edits))
    if not isinstance(node, Semantic) or node.valid_from is None:
        return node
    times = [as_utc(step.at) for step in remaining if step.at is not None]
    return replace(node, valid_from=min(times)) if times else node


def _unsaid(edit: Edit, remaining: Sequence[Episodic], lost: frozenset[str]) -> Edit:
    leaks = _leaks((edit.before, edit.reason), remaining, lost)
    return replace(edit, before=None, reason=None) if leaks else edit


def _counted(
    node: Node, metadata: NodeMetadata, gone: Sequence[Episodic], remaining: Sequence[Episodic]
) -> NodeMetadata:
    """
    *metadata* as if *remaining* alone had been committed; see ``credit``. What a fact has beyond
    the credit of its steps came from elsewhere, and stays.

    Which score of an instruction came from where is not known: it keeps their mean, once for
    each remaining trajectory.
    """
    before, after = credit([*gone, *remaining]), credit(remaining)
    count, total = metadata.reward_count, metadata.cumulative_reward
    if isinstance(node, Procedural):
        count = min(count, len(trajectories_of(remaining)))
        total = (metadata.mean_reward or 0.0) * count
    elif count and before.reward_count:
        more = max(0, count - before.reward_count)
        beyond = max(0.0, total - before.cumulative_reward) if more else 0.0
        count, total = after.reward_count + more, after.cumulative_reward + beyond
    return replace(
        metadata,
        cumulative_reward=total,
        reward_count=count,
        support_count=max(
            after.support_count, metadata.support_count + (after - before).support_count
        ),
    )


def _replacement(rows: GraphRows, row: NodeRow) -> tuple[str | None, datetime | None]:
    """By what an erased fact was replaced itself, and when; of a damaged one by its columns."""
    try:
        fact = rows.read(row.no)
    except StoreCorrupt:
        return row.superseded_by, None
    return (fact.superseded_by, fact.valid_to) if isinstance(fact, Semantic) else (None, None)


# ── Tags, intents and subgoals ───────────────────────────────────────────────────────


def _reworded(
    node: Node, members: Sequence[Node], lost: Callable[[], frozenset[str]]
) -> Node | None:
    """
    A routing node as it may stay with *members*, reworded if need be; ``None``: it goes.

    *lost*: Gives the words said in the erased steps behind the lost members.
    """
    said = [
        text
        for member in members
        for text in (_evidence(member) if isinstance(member, Episodic) else (_text(member),))
    ]
    goal = node.parent_goal if isinstance(node, Subgoal) else None
    unsaid = words_of([node.text]) - words_of((*said, goal))
    if not unsaid or not unsaid & lost():
        return node
    if isinstance(node, Intent) and members:
        first = members[0]
        plain = first.instruction if isinstance(first, Procedural) else first.text
        return replace(node, description=plain, vector=None)
    if isinstance(node, Subgoal):
        return replace(node, description=goal or "", vector=None)
    return None


def _unworded(intent: Intent, members: Sequence[Node], step_ids: Container[str]) -> Intent:
    """
    *intent* without the wordings that only *step_ids* gave it. Its description changes if it has
    words of theirs that nothing remaining says.
    """
    kept, gone = [], []
    for one in intent.wordings:
        left = tuple(source for source in one.sources if source not in step_ids)
        if one.sources and not left:
            gone.append(one.text)
        else:
            kept.append(replace(one, sources=left))
    after = replace(intent, wordings=tuple(kept))
    said = [*members, *(Intent(one.text) for one in kept)]
    fitting = _reworded(after, said, lambda: words_of(gone)) if gone and said else after
    return fitting if isinstance(fitting, Intent) else after


# ── Sessions and episodes ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class TouchedEpisode:
    """An episode of a touched session; *steps* it has, of which so many are *leaving*."""

    no: int
    id: str
    session: int
    status: str
    goal: str
    steps: int
    leaving: int

    @property
    def is_unfinished(self) -> bool:
        """Whether its steps were not committed or discarded as a whole."""
        return self.status in ("open", "closed")

    @property
    def is_emptied(self) -> bool:
        return 0 < self.leaving == self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """
    What an erasure does to sessions; numbers.

    *gone_episodes*: Of gone sessions, or without a step left. *shortened*: Touched; their staged
    work goes. *ended*: Those of *shortened* that were not over: discarded. *shaken*: Sessions that
    stay, without their owner, and come to rest.
    """

    gone: list[int]
    gone_episodes: list[TouchedEpisode]
    shortened: list[TouchedEpisode]
    ended: list[TouchedEpisode]
    shaken: list[int]


def plan_sessions(
    episodes: Sequence[TouchedEpisode],
    touched: Collection[int],
    whole: Container[int],
    dropped: Container[int] = (),
) -> SessionPlan:
    """
    Plan the fate of *touched* sessions, given all their episodes; *whole* ones go. *dropped*:
    Episodes whose staged work goes, although they lose no step.
    """
    living = {
        episode.session
        for episode in episodes
        if episode.steps > episode.leaving or (episode.is_unfinished and not episode.leaving)
    }
    gone = [session for session in sorted(touched) if session in whole or session not in living]
    shortened = [one for one in episodes if one.leaving or one.no in dropped]
    return SessionPlan(
        gone=gone,
        gone_episodes=[e for e in episodes if e.is_emptied or e.session in gone],
        shortened=shortened,
        ended=[episode for episode in shortened if episode.is_unfinished],
        shaken=[session for session in sorted(touched) if session not in gone],
    )


@dataclass(frozen=True, slots=True)
class AnnotatedStep:
    """A remaining step of a touched episode: what it says itself, and its annotation."""

    ordinal: int
    node_id: str
    said: str
    state: str | None
    subgoal: str | None


def plan_annotations(
    steps: Sequence[AnnotatedStep], goal: str, lost: frozenset[str]
) -> list[AnnotatedStep]:
    """
    The steps whose annotation loses what only erased steps said (*lost*, words).

    *goal* is their episode's, and stands for a subgoal that cannot stay.
    """
    after = [_stripped(step, goal, lost) for step in steps]
    return [new for new, old in zip(after, steps, strict=True) if new != old]


def _stripped(step: AnnotatedStep, goal: str, lost: frozenset[str]) -> AnnotatedStep:
    known = words_of((step.said, goal))
    state = step.state if not (words_of([step.state]) & lost) - known else None
    leaks = step.subgoal is not None and (words_of([step.subgoal]) & lost) - known
    return replace(step, state=state, subgoal=goal if leaks else step.subgoal)

"""
Supersede facts: order restatements and contradictions by time.

The statements of a fact are the steps that support it. A fact is a run of statements with
no contradicting statement between them, in the order of their positions. It holds from its
first statement to the first contradicting one after it. So the order of commits does not
matter: a statement that arrives late joins the run it belongs to, begins one of its own,
or cuts a stored run in two. What only ends something ("Ana sold the car") closes what was said
before it and is closed by nothing that it ends. Nothing is deleted.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeAlias

from mnemo.commit.changes import Draft, Known, Neighbours, late_rewards
from mnemo.english.similarity import equal_text, same_claim_guard
from mnemo.english.slots import outdates
from mnemo.graph.apply import credit, trajectories_of
from mnemo.runtime.clock import Breather, as_utc
from mnemo.values.changeset import Changeset
from mnemo.values.graph import (
    Claim,
    Edge,
    EdgeKind,
    Episodic,
    MetadataDelta,
    Semantic,
    united_confidence,
    united_metadata,
)
from mnemo.values.lookup import former_key, lookup_keys, rival_keys, text_key

Position: TypeAlias = tuple[datetime, str, int, str]
"""
Where a statement stands: its step's time (UTC) and, for equal times, as the lines of one
``remember`` have, the step's episode, its index there, and its id.
"""

_EVER = datetime.min.replace(tzinfo=UTC)


def reinforce(draft: Draft, support: Support, id: str, survivor: str) -> None:
    """Let *survivor* stand for *id*; an episode that states it again does not count twice."""
    own, before = support.credit(id), support.credit(survivor)
    draft.set(survivor, metadata=united_metadata(draft.node(survivor), draft.node(id)))
    support.unite(id, survivor)
    gained = support.credit(survivor) - before
    # Without steps it is a statement of its own.
    count = gained.support_count if own.support_count else 1
    is_by_steps = own.reward_count and isinstance(draft.node(id), Semantic)

    def adjust(delta: MetadataDelta) -> MetadataDelta:
        rewards = gained if delta.reward_count and is_by_steps else delta
        return replace(rewards, support_count=count)

    draft.replace(id, survivor, adjust=adjust)


def restates(claim: Claim, new: Claim) -> bool:
    """Whether *new*, which was extracted, says what *claim* said before it was corrected."""
    return not new.edits and any(
        equal_text(text, new.text) or same_claim_guard(text, new.text)
        for text in claim.former_texts
    )


@dataclass(eq=False, slots=True)
class Timeline:
    """Unites facts with those that they restate, and supersedes what they contradict."""

    _draft: Draft
    _known: Known
    _near: Neighbours
    _support: Support
    _placed: dict[str, dict[str, None]] = field(default_factory=dict)
    _told: set[frozenset[str]] = field(default_factory=set)

    def place(self, fact: Semantic, replaced: Iterable[str], *, supersede: bool) -> None:
        """Put *fact* in its place among those that say the same, and those it contradicts."""
        kept = next(self._corrected(fact), None)
        if kept is not None:
            self._reinforce(fact, kept)
            return
        self._draft.supported(fact.id, self._support.credit(fact.id).support_count)
        same = {other.id: other for other in self._same(fact)}
        rivals = self._rivals(fact, replaced, same) if supersede else []
        for part in self._cut(fact, rivals):
            owner = self._joined(part, same, rivals)
            same[owner.id] = owner
            rivals = [piece for rival in rivals for piece in self._cut(rival, [owner])]
            self._close_around(owner.id, rivals)

    def supersede(self, fact: Semantic) -> None:
        """Close what the new wording of the stored *fact* contradicts."""
        rivals = self._rivals(fact, (), ())
        self._close_around(fact.id, [part for r in rivals for part in self._cut(r, [fact])])

    def _reinforce(self, fact: Semantic, same: Semantic) -> None:
        """Let *same* stand for *fact* too: their confidence, start and steps are united."""
        starts = [as_utc(at) for at in (same.valid_from, fact.valid_from) if at is not None]
        # Since when what the hand worded holds, the hand has said.
        start = same.valid_from if same.edits else min(starts, default=None)
        confidence = united_confidence(same.confidence, fact.confidence)
        self._draft.set(same.id, confidence=confidence, valid_from=start)
        reinforce(self._draft, self._support, fact.id, same.id)

    # ── What it meets ────────────────────────────────────────────────────────────────

    def _same(self, fact: Semantic) -> Iterator[Semantic]:
        """Facts of the same claim: of equal text first, then the nearest to an extracted one."""
        equal = self._keyed([text_key(fact.proposition)])
        near = [] if fact.edits else self._near.of(fact.id)
        for agree, ids in ((equal_text, equal), (same_claim_guard, near)):
            for other in self._survivors(ids, fact):
                if agree(other.proposition, fact.proposition):
                    yield other

    def _corrected(self, fact: Semantic) -> Iterator[Semantic]:
        """Facts that hold, and said the same before they were corrected."""
        keys = (former_key(fact.proposition), *rival_keys(fact.proposition))
        for other in self._survivors(self._keyed(keys), fact):
            if other.valid_to is None and restates(other, fact):
                yield other

    def _rivals(
        self, fact: Semantic, replaced: Iterable[str], same: Iterable[str]
    ) -> list[Semantic]:
        """Facts of which *fact* outdates one or is outdated, or that it is said to replace."""
        ids = [*self._keyed(rival_keys(fact.proposition)), *self._near.of(fact.id)]
        told = list(self._survivors(replaced, fact))
        self._told.update(_pair(other, fact) for other in told)
        found = [
            other
            for other in self._survivors(ids, fact)
            if self._outdates(fact, other) or self._outdates(other, fact)
        ]
        rivals = {other.id: other for other in (*told, *found)}
        return [rival for id, rival in rivals.items() if id not in same]

    def _outdates(self, newer: Semantic, older: Semantic) -> bool:
        """Whether *newer* closes *older*, if it was said later."""
        told = _pair(newer, older) in self._told
        return told or outdates(newer.proposition, older.proposition)

    def _keyed(self, keys: Iterable[str]) -> list[str]:
        keys = list(keys)
        stored = [node.id for key in keys for node in self._known.keys.get(("semantic", key), ())]
        return stored + [id for key in keys for id in self._placed.get(key, ())]

    def _survivors(self, ids: Iterable[str], fact: Semantic) -> Iterator[Semantic]:
        for id in dict.fromkeys(map(self._draft.end, ids)):
            other = self._draft.survivor(id, Semantic)
            if other is not None and id != fact.id:
                yield other

    # ── Runs of statements ───────────────────────────────────────────────────────────

    def _cut(self, fact: Semantic, others: Sequence[Semantic]) -> list[Semantic]:
        """*fact* in as many facts as the statements of *others* leave runs of its own."""
        marks = self._marks(others)
        runs: dict[int, list[Position]] = {}
        for position in self._support.positions(fact):
            runs.setdefault(bisect(marks, position), []).append(position)
        later = [runs[gap] for gap in sorted(runs)[1:]]
        return [fact, *(self._split(fact, run) for run in later)]

    def _marks(self, facts: Iterable[Semantic]) -> list[Position]:
        return sorted(position for fact in facts for position in self._support.positions(fact))

    def _split(self, fact: Semantic, run: Sequence[Position]) -> Semantic:
        """A fact of its own for the statements of *run*."""
        steps = [step for *_, step in run]
        before, given = self._support.credit(fact.id), self._draft.given(fact.id)
        piece = self._draft.split(fact.id, steps, since=run[0][0])
        self._support.move(steps, fact.id, piece.id)
        gained, kept = map(self._support.credit, (piece.id, fact.id))
        if not self._draft.is_rewarded(fact.id):
            before, gained, kept = (
                MetadataDelta(support_count=one.support_count) for one in (before, gained, kept)
            )
        self._draft.add(piece.id, gained)
        self._draft.add(fact.id, kept - (given or before))
        self._remember(piece)
        return piece

    def _joined(self, part: Semantic, same: Iterable[str], rivals: Sequence[Semantic]) -> Semantic:
        """The fact whose run *part* belongs to; itself, where it begins one."""
        marks = self._marks(rivals)
        closers = {rival.id for rival in rivals}
        for id in list(same):
            other = self._draft.survivor(id, Semantic)
            if other and other.id != part.id and self._is_one_run(other, part, marks, closers):
                self._reinforce(part, other)
                return other
        self._remember(part)
        return part

    def _is_one_run(
        self, other: Semantic, part: Semantic, marks: list[Position], closers: set[str]
    ) -> bool:
        if other.valid_to is not None and other.superseded_by not in closers:
            # What ended it is not known by its statements: its end is.
            return self._support.latest(part) < as_utc(other.valid_to)
        gap = bisect(marks, self._support.positions(part)[0])
        return any(bisect(marks, at) == gap for at in self._support.positions(other))

    def _remember(self, fact: Semantic) -> None:
        for key in lookup_keys(fact):
            self._placed.setdefault(key, {})[fact.id] = None

    # ── Ends ─────────────────────────────────────────────────────────────────────────

    def _close_around(self, id: str, rivals: Sequence[Semantic]) -> None:
        """Close what was said before the fact, and the fact by what was said after it."""
        owner = self._now(id)
        said = self._support.positions(owner)
        for rival in rivals:
            if self._support.positions(rival)[-1] < said[0] and self._outdates(owner, rival):
                self._close(self._now(rival.id), by=owner)
        later = [
            rival
            for rival in rivals
            if self._support.positions(rival)[0] > said[-1] and self._outdates(rival, owner)
        ]
        if later:
            first = min(later, key=lambda rival: self._support.positions(rival)[0])
            self._close(owner, by=self._now(first.id))

    def _close(self, fact: Semantic, *, by: Semantic) -> None:
        """Let *by* close *fact*, unless something earlier has closed it already."""
        starts = self._support.start
        end = max(starts(fact), starts(by))
        until = as_utc(fact.valid_to) if fact.valid_to is not None else None
        if until is None or until > end or (until == end and self._is_before(by, fact)):
            self._draft.set(fact.id, valid_to=end, superseded_by=by.id)

    def _is_before(self, by: Semantic, fact: Semantic) -> bool:
        """Whether *by* was said before what has closed *fact*, at the same time."""
        closer = self._draft.survivor(fact.superseded_by or "", Semantic)
        positions = self._support.positions
        return closer is not None and positions(by)[0] < positions(closer)[0]

    def _now(self, id: str) -> Semantic:
        fact = self._draft.survivor(id, Semantic)
        assert fact is not None
        return fact


def _pair(a: Semantic, b: Semantic) -> frozenset[str]:
    return frozenset((a.proposition, b.proposition))


# ── What facts rest on ───────────────────────────────────────────────────────────────


class Support:
    """The steps behind the facts and instructions of a changeset and of what it meets."""

    def __init__(self, changeset: Changeset, known: Known) -> None:
        self._steps: dict[str, dict[str, Episodic]] = {}
        self.late: dict[str, MetadataDelta] = {}
        steps = {node.id: node for node in known.nodes.values() if isinstance(node, Episodic)}
        self._rest(known.edges, steps)
        if paid := late_rewards(changeset, steps):
            before = {id: credit(on.values()) for id, on in self._steps.items() if on.keys() & paid}
            steps |= paid
            self._rest(known.edges, steps)
            self.late = {id: self.credit(id) - credited for id, credited in before.items()}
        steps |= {node.id: node for node in changeset.nodes if isinstance(node, Episodic)}
        self._rest(changeset.edges, steps)

    def _rest(self, edges: Iterable[Edge], steps: Mapping[str, Episodic]) -> None:
        breather = Breather()
        for edge in edges:
            breather.breathe()
            if edge.kind is EdgeKind.PROVENANCE and edge.target in steps:
                self._steps.setdefault(edge.source, {})[edge.target] = steps[edge.target]

    def credit(self, id: str) -> MetadataDelta:
        return credit(self._of(id))

    def trajectories(self, id: str) -> int:
        """How many are behind a fact or instruction."""
        return len(trajectories_of(self._of(id)))

    def latest(self, fact: Semantic) -> datetime:
        """When *fact* was last said: its latest step, else the best that it knows."""
        return self.positions(fact)[-1][0]

    def positions(self, fact: Semantic) -> list[Position]:
        """
        Statements, ascending; of a fact without steps or edited by hand: its start and its id.
        """
        steps = () if fact.worded_at is not None else self._of(fact.id)
        found = {
            (as_utc(step.at), step.episode_id or step.id, step.step_index or 0, step.id)
            for step in steps
            if step.at is not None
        }
        return sorted(found) or [(self.start(fact), fact.id, 0, fact.id)]

    def start(self, fact: Semantic) -> datetime:
        """Since when *fact* holds: ``valid_from``, else when it was made, else ever."""
        at = fact.valid_from or fact.created_at
        return as_utc(at) if at is not None else _EVER

    def unite(self, id: str, survivor: str) -> None:
        """Let *survivor* rest on the steps of *id*, too."""
        self._steps.setdefault(survivor, {}).update(self._steps.get(id, {}))

    def move(self, steps: Iterable[str], id: str, target: str) -> None:
        """Let *steps* of *id* be those of *target*, which has none."""
        self._steps[target] = {step: self._steps[id].pop(step) for step in steps}

    def _of(self, id: str) -> Collection[Episodic]:
        return self._steps.get(id, {}).values()

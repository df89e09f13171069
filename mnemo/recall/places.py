"""
Places of the answer: what was made of one step is one, and what holds now stands first.

The store says which facts have ended; of others, rivals are told apart by their words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from mnemo.english.asked import told_by
from mnemo.english.slots import outdates
from mnemo.recall.hop_zero import Found, HopZero
from mnemo.recall.rivals import BEST, Rivals, outdated
from mnemo.values.corpus import CorpusView
from mnemo.values.graph import Claim, Node, NodeMetadata, NodeType, Semantic
from mnemo.values.steps import Step

RIVAL_SCALE = 2.5
"""Value → score of a note as it was when the weights of rivals were fitted."""
KNOWN = 0.04
"""
Probability from which a pair that the store knows is one of the question's: below, the question
is of others, unless the older gives the attribute that is asked for.
"""
KEPT = 5
"""Candidates that ``cut`` leaves in any case: behind the fifth it costs no answer (S)."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """
    A candidate with its value.

    Attributes:
        support: Node ids of the steps behind it that lie inside the window.
        latest: Time of its latest evidence.
        answers: What it got for a form that the question asks for, of ``score.ANSWERS``.
    """

    found: Found
    node: Node
    metadata: NodeMetadata | None
    value: float
    support: tuple[str, ...]
    latest: datetime
    answers: Mapping[str, float] = field(default_factory=dict)

    @property
    def order(self) -> tuple[float, float, float, str]:
        """Best value first, then the better match, then later evidence, then id."""
        age = -(self.latest - LONG_AGO).total_seconds()
        return (-self.value, -self.found.match, age, self.found.id)


@dataclass(slots=True)
class Place:
    """
    One place of the answer: a candidate, and what was made of the same step.

    Attributes:
        step: The step that all of them rest on; ``None``: it shares its place with nothing.
        newer: What replaced or ended it.
        until: When it ceased to hold.
    """

    scored: ScoredCandidate
    step: str | None
    others: list[ScoredCandidate] = field(default_factory=list)
    newer: ScoredCandidate | None = None
    until: datetime | None = None

    def said(self, corpus: CorpusView) -> tuple[datetime, int]:
        """When, and for what was said at one time the number of its step's document."""
        return self.scored.latest, max(corpus.steps.of(self.step or ""), default=-1)

    @property
    def is_asked_for(self) -> bool:
        """Whether it gives the attribute that the question asks for."""
        return any("attribute" in one.answers for one in (self.scored, *self.others))

    @property
    def spoken(self) -> tuple[NodeType, str]:
        """Type and id of what was said: the step, or the node that rests on none."""
        found = self.scored.found
        return ("episodic", self.step) if self.step else (found.type, found.id)

    def add(self, scored: ScoredCandidate) -> None:
        """Add what shares the place; what was worded by hand takes it."""
        if is_by_hand(scored.node) and not is_by_hand(self.scored.node):
            self.scored, scored = scored, self.scored
        self.others.append(scored)


def current_first(
    places: Sequence[Place],
    question: str,
    zero: HopZero,
    corpus: CorpusView,
    steps: Mapping[str, Step],
    unread: Collection[str],
    now: datetime,
) -> Sequence[Place]:
    """
    Place what holds now before what it replaced, and say of this until when it held.

    Args:
        steps: Those of the places, by the ids that they are found under.
        unread: Those of which no fact was made yet: what they end is not known to the store.
    """
    if not places:
        return places
    pairs = _ended_by_unread(places, corpus, steps, unread)
    by_step = {place.step: number for number, place in enumerate(places) if place.step}
    for number, place in enumerate(places):
        for fact in _ended(place, zero, corpus, now):
            place.until = fact.valid_to
            closers = _steps_behind(fact.superseded_by or "", corpus)
            newer = max((by_step.get(step, -1) for step in closers), default=-1)
            if newer >= 0 and places[newer].said(corpus) > place.said(corpus):
                pairs.append((number, newer))
    known = {pair: 0.0 if places[pair[0]].is_asked_for else KNOWN for pair in pairs}
    ranking = outdated(question, _rivals(places, zero, corpus, steps), known=known)
    for place, by in zip(places, ranking.outdated_by, strict=True):
        if by is not None:
            place.newer = places[by].scored
            place.until = place.until or place.newer.latest
    return [places[number] for number in ranking.order]


def _ended_by_unread(
    places: Sequence[Place],
    corpus: CorpusView,
    steps: Mapping[str, Step],
    unread: Collection[str],
) -> list[tuple[int, int]]:
    """Pairs of the best places, an older and an unread one that ends it as a commit would find."""
    best = places[:BEST] if any(p.step in unread for p in places[:BEST]) else ()
    said = {i: steps[p.step] for i, p in enumerate(best) if p.step and p.step in steps}
    told = {i: told_by(step.text, step.actor) for i, step in said.items()}
    return [
        (older, newer)
        for newer in told
        if places[newer].step in unread
        for older in told
        if said[older].actor == said[newer].actor
        and places[older].said(corpus) < places[newer].said(corpus)
        and outdates(told[newer], told[older])
    ]


def _ended(place: Place, zero: HopZero, corpus: CorpusView, now: datetime) -> list[Semantic]:
    """The fact of the place's step that answers best, if it holds no longer."""
    facts = zero.hits.get("semantic")
    if facts is None or place.step is None:
        return []
    pairs = corpus.restated
    of_step = np.isin(pairs[:, 1], corpus.steps.of(place.step))
    documents = [d for d in pairs[of_step, 0].tolist() if facts.view.alive[d]]
    best = max(documents, key=lambda d: float(facts.match[d]), default=None)
    node = facts.view.nodes[best] if best is not None else None
    if not isinstance(node, Semantic) or node.valid_to is None:
        return []
    return [node] if node.valid_to <= now else []


def _steps_behind(fact: str, corpus: CorpusView) -> list[str]:
    pairs = corpus.restated
    of_fact = np.isin(pairs[:, 0], corpus.nodes["semantic"].of(fact))
    return [corpus.steps.ids[d] for d in pairs[of_fact, 1].tolist()]


def _rivals(
    places: Sequence[Place], zero: HopZero, corpus: CorpusView, steps: Mapping[str, Step]
) -> Rivals:
    moments = [place.said(corpus) for place in places]
    said = [steps.get(place.step or "") for place in places]
    spoken = [place.spoken for place in places]
    vectors = [zero.hits[type].vector(id) for type, id in spoken]
    width = next((len(v) for v in vectors if v is not None), 1)
    rows = np.stack([np.full(width, np.nan) if v is None else v for v in vectors])
    return Rivals(
        texts=[s.text if s else p.scored.node.text for s, p in zip(said, places, strict=True)],
        times=[at.timestamp() for at, _ in moments],
        numbers=[number for _, number in moments],
        speakers=[step.actor if step else None for step in said],
        scores=[RIVAL_SCALE * place.scored.value for place in places],
        near=rows @ rows.T,
        cosines=np.asarray([zero.hits[type].cosine(id) for type, id in spoken]),
    )


def worth_reading(places: Sequence[Place], zero: HopZero, cut: float, k: int) -> list[Place]:
    """
    The first *k* of *places*, without what is far below the best.

    Args:
        cut: Share of the best value that a note needs behind the fifth place; of turns, whose
            scores lie closer, its square.
    """
    best = max(places, key=lambda place: place.scored.value, default=None)
    if best is None:
        return []
    kept: list[Place] = []
    for place in places:
        spoken = (place.spoken, best.spoken)
        notes = all(zero.hits[type].are_notes(id) for type, id in spoken)
        share = cut if notes else cut**2
        if len(kept) < KEPT or place.scored.value >= share * best.scored.value:
            kept.append(place)
    return kept[:k]


def is_by_hand(node: Node) -> bool:
    """Whether somebody gave *node* its wording by hand."""
    return isinstance(node, Claim) and node.worded_at is not None

"""
Hop 0: how well each document of a type answers a question. NumPy only, no await.

Every signal is brought to mean 0 and deviation 1 over the documents that are
eligible before it is weighted, so that a document which stands out in one signal
stands out in the sum by as much.

Source of the weights: chosen on two development files of labelled dialogues, one of
short chat turns and one of long assistant messages, in round steps, and only where the
paired bootstrap over questions could see them; see ``scripts/bench_recall --ablate``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mnemo.english.dates import spans_of
from mnemo.recall.bm25 import Chain, Matches
from mnemo.recall.question import RecallQuestion
from mnemo.recall.ranking import SignalInput, added_to, fitted_weights
from mnemo.values.corpus import DocumentsView, StepsView
from mnemo.values.postings import B

__all__ = [
    "Hits",
    "StepScores",
    "StepWeights",
    "node_hits",
    "restated_scores",
    "scored_steps",
    "step_hits",
]

FEW = 20
"""Documents of a type below which a deviation means nothing."""
ROUNDING = 1e-5
"""Deviation, as a share of the mean, that single precision makes of equal numbers at most."""
FOUND = 1e-3
"""Share of its score that a step keeps at least, whatever the fitted signals take from it."""
SHORT_B = 0.4
"""
How much the length of a chat turn counts against it: less than in BM25's usual text,
for a turn is as long as what it tells (NDCG@10 + 0.7, 95 %: 0.3 to 1.1).
"""

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWeights:
    """
    What each signal of a step counts; one that is 0 is not computed.

    Attributes:
        own: BM25 of the document.
        pairs: Share of the BM25 of the query's neighbouring terms, where they stand side
            by side, that is added to the document's before it is weighted. For long
            messages, in which the words of a question also meet by chance.
        joined: BM25 of the previous and this document, joined.
        cosine: Of the document with the query or a tag.
        joined_cosine: Of the previous and this document, joined.
        session: BM25 of the whole session.
        restated: Share of the best score of a fact that says this step again; a fact is
            free of what a turn says beside, and names whom it only calls "I".
        neighbour: Share of the better neighbour's sum that is added.
        second: Share of the better sum of the next but one on either side.
        reply: Share of the previous document's sum where that asked a question.
        replied: Share of the agent's reply's sum that is added to what it replies to.
        named: Added where the question names the actor, or means him by *I* or *you*.
        dated: Added where it was said in a time that the question names.
        asks: Added where the document ends as a question.
        length: Added per deviation of the length's logarithm.
        observation: Added where it is not the agent's side, unless the question asks for
            what the agent said.
        b: BM25's share of the length, in [0, 1]; of sessions the usual one.
        fitted: Of ``ranking.SIGNALS``: what each adds to the sum of the others, per
            deviation of that sum.
    """

    own: float = 0.0
    pairs: float = 0.0
    joined: float = 0.0
    cosine: float = 0.0
    joined_cosine: float = 0.0
    session: float = 0.0
    restated: float = 0.0
    neighbour: float = 0.0
    second: float = 0.0
    reply: float = 0.0
    replied: float = 0.0
    named: float = 0.0
    dated: float = 0.0
    asks: float = 0.0
    length: float = 0.0
    observation: float = 0.0
    b: float = B
    fitted: Mapping[str, float] = field(default_factory=dict)

    def shown(self) -> dict[str, float]:
        """Signal → weight, those that count."""
        names = (f.name for f in fields(self) if f.name not in ("b", "fitted"))
        named = {name: getattr(self, name) for name in names} | dict(self.fitted)
        return {name: weight for name, weight in named.items() if weight}

    @classmethod
    def for_short(cls, dense_weight: float) -> StepWeights:
        """For chats: a turn often is only understood with its neighbours."""
        return cls(
            own=0.6,
            joined=0.6,
            cosine=dense_weight * 2 / 3,
            joined_cosine=dense_weight * 2 / 3,
            session=0.5,
            restated=0.2,
            neighbour=0.2,
            second=0.2,
            reply=0.3,
            named=0.4,
            dated=0.4,
            asks=-0.2,
            length=0.15,
            b=SHORT_B,
            fitted=fitted_weights("short"),
        )

    @classmethod
    def for_long(cls, dense_weight: float, observation: float) -> StepWeights:
        """For long messages: each stands for itself, and for what it was answered."""
        return cls(
            own=1.0,
            pairs=0.5,
            cosine=dense_weight,
            restated=0.2,
            replied=0.3,
            named=0.4,
            dated=0.4,
            observation=observation,
            fitted=fitted_weights("long"),
        )


@dataclass(frozen=True, slots=True)
class Hits:
    """
    The documents of one type, scored.

    Attributes:
        scores: S of every document, in deviations; with *absolute*, relevance in
            [0, 1]. Minus infinity where a document is not eligible.
        cosines: Best cosine with the query or a tag, the tag's share counted; 0 where
            there is no vector.
        shares: Whether it shares a word with the question.
        reachable: Whether the question can have found it at all.
        absolute: Whether there were no deviations: of too few documents, or equal ones.
        parts: Signal → what it adds to the score of every document, if that was asked for.
    """

    view: DocumentsView
    scores: Floats
    cosines: Floats
    shares: Mask
    reachable: Mask
    absolute: bool
    parts: Mapping[str, Floats] = field(default_factory=dict)

    def parts_of(self, documents: Iterable[int]) -> dict[str, float]:
        """Signal → what it adds to the best of *documents*; only what is not 0."""
        best = max(documents, key=lambda d: float(self.scores[d]), default=None)
        if best is None:
            return {}
        named = ((name, float(values[best])) for name, values in self.parts.items())
        return {name: value for name, value in named if abs(value) > ROUNDING}

    @property
    def best(self) -> float:
        """The best S, in deviations; 0 if there is none."""
        if self.absolute or not len(self.scores):
            return 0.0
        return max(float(self.scores.max()), 0.0)

    def relevance(self, documents: Iterable[int], scale: float) -> float:
        """Of the best of *documents*, in [0, 1]; 0 if none of them is eligible."""
        best = max((float(self.scores[d]) for d in documents if self.reachable[d]), default=0.0)
        return min(max(best if self.absolute else best / scale, 0.0), 1.0)


def node_hits(
    view: DocumentsView,
    question: RecallQuestion,
    ok: Mask,
    dense_weight: float,
    *,
    explain: bool = False,
) -> Hits:
    """Score the documents of a type other than steps: BM25 and cosine."""
    matches = Matches.read(view, question, ok)
    words = matches.own(B)
    cosines, known = _cosines(view, question, ok)
    return _combine(view, question, matches, words, cosines, known, dense_weight, ok, explain)


def restated_scores(facts: Hits, pairs: NDArray[np.int32], steps: int) -> Floats | None:
    """
    The best score of a fact that says a step again, for each of *steps* documents.

    0 where none does or none stands out; ``None`` where facts are too few for deviations.

    Args:
        pairs: Documents of facts and of steps behind them, shape ``(pairs, 2)``.
    """
    if facts.absolute or not len(pairs):
        return None
    scores = facts.scores.take(pairs[:, 0])
    standing_out = np.flatnonzero(scores > 0)
    best = np.zeros(steps, np.float32)
    np.maximum.at(best, pairs[:, 1].take(standing_out), scores.take(standing_out))
    return best


def step_hits(
    view: StepsView,
    question: RecallQuestion,
    ok: Mask,
    weights: StepWeights,
    agents: frozenset[str],
    dense_weight: float,
    restated: Floats | None = None,
    *,
    explain: bool = False,
) -> Hits:
    """
    Score the sides of steps.

    Args:
        agents: Folded names of those who are the agent's side, beside every action.
        dense_weight: Of the cosine where there are too few documents for *weights*.
        restated: What ``restated_scores`` gave for these steps.
        explain: Whether to keep what each signal adds.
    """
    scored = scored_steps(
        view, question, ok, weights, agents, dense_weight, restated, explain=explain
    )
    return scored.raised(weights.fitted, explain=explain)


@dataclass(frozen=True, slots=True)
class StepScores:
    """
    The sides of steps, scored without the fitted signals.

    Attributes:
        asked: What the fitted signals look at; ``None`` where the scores have no deviations.
        deviation: Of the scores of the eligible documents.
    """

    hits: Hits
    asked: SignalInput | None = None
    deviation: float = 0.0

    def raised(self, fitted: Mapping[str, float], *, explain: bool) -> Hits:
        """The hits in the order that the signals *fitted* give them."""
        if self.asked is None:
            return self.hits
        scores, parts = self.hits.scores, dict(self.hits.parts)
        raised = scores.copy()
        for name, added in added_to(self.asked, fitted, explain=explain).items():
            parts[name] = self.deviation * added
            raised += parts[name]
        # They set the order; what the question finds without them stays found.
        raised = np.where(scores > 0, np.maximum(raised, np.float32(FOUND) * scores), raised)
        return replace(self.hits, scores=raised, parts=parts if explain else {})


def scored_steps(
    view: StepsView,
    question: RecallQuestion,
    ok: Mask,
    weights: StepWeights,
    agents: frozenset[str],
    dense_weight: float,
    restated: Floats | None,
    *,
    explain: bool,
) -> StepScores:
    """Score the sides of steps by all but ``weights.fitted``; arguments as of ``step_hits``."""
    question = question.for_evidence
    matches = Matches.read(view, question, ok)
    words = matches.own(weights.b)
    cosines, known = _cosines(view, question, ok)
    plain = partial(
        _combine, view, question, matches, words, cosines, known, dense_weight, ok, explain
    )
    if matches.population < FEW:
        return StepScores(plain())
    chain = Chain.of(view, ok)
    best = _strongest(cosines, question)
    sums = _Sum(ok, explain=explain)
    _add_words(sums, view, question, matches, words, weights, chain)
    if known.any():
        sums.add("cosine", weights.cosine, best, known)
        if weights.joined_cosine:
            together = _strongest(_joined_cosines(view, cosines, known, chain), question)
            sums.add("joined_cosine", weights.joined_cosine, together, known)
    scores = sums.mean()
    parts = sums.parts()
    if weights.restated and restated is not None:
        parts["restated"] = np.float32(weights.restated) * restated
        scores += parts["restated"]
    sides = _Sides.of(view, agents)
    parts["neighbours"] = _lent(view, scores, chain, weights, sides)
    parts["priors"] = _priors(view, question, ok, weights, sides)
    scores = scores + parts["neighbours"] + parts["priors"]
    if not _stands_out(scores[ok]):
        return StepScores(plain())
    deviation = scores[ok].std()
    asked = SignalInput(view, question, ok, chain, sides.agent, scores / deviation)
    shares = matches.shares(words)
    hits = Hits(
        view,
        np.where(ok, scores, np.float32(-np.inf)),
        best,
        shares,
        ok & (known | shares),
        absolute=False,
        parts=parts if explain else {},
    )
    return StepScores(hits, asked, deviation)


def _add_words(
    sums: _Sum,
    view: StepsView,
    question: RecallQuestion,
    matches: Matches,
    words: Floats,
    weights: StepWeights,
    chain: Chain,
) -> None:
    if weights.pairs:
        paired = matches.side_by_side(view, question, words, weights.b)
        sums.add("words", weights.own, words + np.float32(weights.pairs) * paired)
    else:
        sums.add("words", weights.own, words)
    if weights.joined:
        sums.add("joined", weights.joined, matches.joined(chain, weights.b))
    if weights.session:
        sums.add("session", weights.session, matches.sessions(view))


def _combine(
    view: DocumentsView,
    question: RecallQuestion,
    matches: Matches,
    words: Floats,
    cosines: Floats,
    known: Mask,
    dense_weight: float,
    ok: Mask,
    explain: bool,
) -> Hits:
    best = _strongest(cosines, question)
    dense = dense_weight if known.any() else 0.0
    sums = _Sum(ok, explain=explain)
    sums.add("words", 1.0, words)
    sums.add("cosine", dense, best, known)
    scores, parts = sums.mean(), sums.parts()
    absolute = matches.population < FEW or not _stands_out(scores)
    if absolute:
        matched = np.minimum(words / np.float32(max(matches.ideal(), 1e-9)), 1.0)
        near = np.float32(dense) * np.maximum(best, 0)
        scores = (matched + near) / np.float32(1 + dense)
        parts = {"words": matched / np.float32(1 + dense), "cosine": near / np.float32(1 + dense)}
    shares = matches.shares(words)
    scores = np.where(ok, scores, np.float32(-np.inf))
    reachable = ok & (known | shares)
    kept = parts if explain else {}
    return Hits(view, scores, best, shares, reachable, absolute=absolute, parts=kept)


def _stands_out(scores: Floats) -> bool:
    """Whether any document is better than another; equal ones have no deviations."""
    return len(scores) > 0 and float(scores.max()) > ROUNDING


# ── Vectors ──────────────────────────────────────────────────────────────────────────


def _cosines(view: DocumentsView, question: RecallQuestion, ok: Mask) -> tuple[Floats, Mask]:
    """Cosines with the query and each tag, shape ``(rows, documents)``, and who has any."""
    if question.vectors is None:
        return np.zeros((0, view.count), np.float32), np.zeros(view.count, np.bool_)
    cosines, known = view.cosines(question.vectors)
    return cosines, known & ok


def _strongest(cosines: Floats, question: RecallQuestion) -> Floats:
    if not len(cosines):
        return np.zeros(cosines.shape[1], np.float32)
    best: Floats = cosines[0]
    if len(cosines) > 1:
        best = (cosines * question.weights[:, np.newaxis]).max(axis=0)
    return best


def _joined_cosines(view: StepsView, cosines: Floats, known: Mask, chain: Chain) -> Floats:
    """Cosines of each document's vector and the one before it, added up."""
    both = chain.has_previous & known & known[chain.previous]
    # Of two unit vectors a and b: |a + b|^2 = 2 + 2 a·b.
    length = np.sqrt(np.maximum(2 + 2 * view.kinship, 1e-6))
    joined = (cosines + cosines[:, chain.previous]) / length
    return np.where(both, joined, cosines)


# ── Neighbours and priors ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Sides:
    """
    Whose words a document holds.

    Attributes:
        agent: True for every action, and for observations of the agent's side.
        both: Whether there are two sides at all; among people there are not.
    """

    agent: Mask
    both: bool

    @classmethod
    def of(cls, view: StepsView, agents: frozenset[str]) -> _Sides:
        agent = view.acted | (_lookup(view.actors, lambda name: name in agents)[view.actor] > 0)
        return cls(agent, bool(agent.any()) and not agent.all())


def _lent(
    view: StepsView, scores: Floats, chain: Chain, weights: StepWeights, sides: _Sides
) -> Floats:
    """What its neighbours in the session lend to each document, never less than 0."""
    lent = np.zeros(len(scores), np.float32)
    lending = np.maximum(scores, 0)
    before, after = chain.before(lending), chain.after(lending)
    if weights.neighbour:
        lent += np.float32(weights.neighbour) * np.maximum(before, after)
    if weights.second:
        further = np.maximum(chain.before(before), chain.after(after))
        lent += np.float32(weights.second) * further
    if weights.reply:
        asked = chain.has_previous & view.asks[chain.previous]
        lent += np.float32(weights.reply) * (asked * before)
    if weights.replied:
        answered = ~sides.agent & chain.has_next & sides.agent[chain.next]
        lent += np.float32(weights.replied) * (answered * after)
    return lent


def _priors(
    view: StepsView, question: RecallQuestion, ok: Mask, weights: StepWeights, sides: _Sides
) -> Floats:
    named = _lookup(view.actors, lambda name: not question.named.isdisjoint(name.split()))
    priors: Floats = np.float32(weights.named) * named[view.actor]
    if sides.both and question.about is not None:
        meant = sides.agent if question.about == "agent" else ~sides.agent
        priors += np.float32(weights.named) * meant
    if weights.dated:
        priors += np.float32(weights.dated) * _in_time(view, question, ok)
    if weights.asks:
        priors += np.float32(weights.asks) * view.asks
    if weights.length:
        priors += np.float32(weights.length) * _standard(view.log_words, ok)
    if weights.observation and question.about != "agent":
        priors += np.float32(weights.observation) * ~sides.agent
    return priors


def _in_time(view: StepsView, question: RecallQuestion, ok: Mask) -> Mask:
    """Which documents were said in a span of time that the question names."""
    said = view.last[ok]
    inside = np.zeros(view.count, np.bool_)
    for begin, end in spans_of(question.query, float(said.min()), float(said.max())):
        inside |= (view.last >= begin) & (view.last < end)
    return inside


def _lookup(actors: Iterable[str], holds: Callable[[str], bool]) -> Floats:
    return np.asarray([holds(name) for name in actors], np.float32)


# ── Deviations ───────────────────────────────────────────────────────────────────────


class _Sum:
    """The weighted mean of signals, each in deviations from its mean."""

    def __init__(self, ok: Mask, *, explain: bool) -> None:
        self._ok = ok
        self._total = np.zeros(len(ok), np.float32)
        self._weight = 0.0
        self._explain = explain
        self._added: dict[str, Floats] = {}

    def add(self, name: str, weight: float, values: Floats, population: Mask | None = None) -> None:
        """Add one signal; documents outside *population* stand at its mean."""
        added = np.float32(weight) * _standard(
            values, self._ok if population is None else population
        )
        self._total += added
        self._weight += weight
        if self._explain:
            self._added[name] = added

    def mean(self) -> Floats:
        return self._total / np.float32(self._weight or 1.0)

    def parts(self) -> dict[str, Floats]:
        """What each signal adds to the mean, if that is to be explained."""
        return {name: v / np.float32(self._weight or 1.0) for name, v in self._added.items()}


def _standard(values: Floats, population: Mask) -> Floats:
    """*values* with mean 0 and deviation 1 over *population*; 0 outside it."""
    chosen = values if population.all() else values[population]
    if not len(chosen):
        return np.zeros(len(values), np.float32)
    mean, deviation = chosen.mean(), chosen.std()
    if deviation <= ROUNDING * max(abs(mean), ROUNDING):
        return np.zeros(len(values), np.float32)
    standard = np.asarray((values - mean) / deviation, np.float32)
    if len(chosen) < len(values):
        standard[~population] = 0
    return standard

"""
Hop 0: how well each document of a type answers a question. NumPy only, no await.

Every signal is brought to mean 0 and deviation 1 over the documents that are
eligible before it is weighted, so that a document which stands out in one signal
stands out in the sum by as much.

Source of the weights: chosen on two development files of labelled dialogues, one of
short chat turns and one of long assistant messages; see ``scripts/bench_recall``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from mnemo.graph.corpus import DocumentsView, StepsView
from mnemo.graph.postings import Bm25, idf
from mnemo.recall.question import Question

__all__ = ["Hits", "StepWeights", "node_hits", "step_hits"]

FEW = 20
"""Documents of a type below which a deviation means nothing."""

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepWeights:
    """
    What each signal of a step counts.

    Attributes:
        own: BM25 of the document.
        joined: BM25 of the previous and this document, joined.
        cosine: Of the document with the query or a tag.
        joined_cosine: Of the previous and this document, joined.
        session: BM25 of the whole session.
        neighbour: Share of the better neighbour's sum that is added.
        named: Added where the question names the actor.
        asks: Added where the document ends as a question.
        length: Added per deviation of the length's logarithm.
        observation: Added where it is not the agent's side.
    """

    own: float
    joined: float
    cosine: float
    joined_cosine: float
    session: float
    neighbour: float
    named: float
    asks: float
    length: float
    observation: float

    def shown(self) -> dict[str, float]:
        """Signal → weight, those that count."""
        named = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: weight for name, weight in named if weight}

    @classmethod
    def for_short(cls, dense_weight: float) -> StepWeights:
        """For chats: a turn often is only understood with its neighbours."""
        dense = dense_weight * 2 / 3
        return cls(0.6, 0.6, dense, dense, 0.3, 0.2, 0.4, -0.2, 0.15, 0.0)

    @classmethod
    def for_long(cls, dense_weight: float, observation: float) -> StepWeights:
        """For long messages: each stands for itself."""
        return cls(1.0, 0.0, dense_weight, 0.0, 0.0, 0.0, 0.4, 0.0, 0.0, observation)


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
        absolute: Whether there were too few documents for deviations.
    """

    view: DocumentsView
    scores: Floats
    cosines: Floats
    shares: Mask
    reachable: Mask
    absolute: bool

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


def node_hits(view: DocumentsView, question: Question, ok: Mask, dense_weight: float) -> Hits:
    """Score the documents of a type other than steps: BM25 and cosine."""
    terms = _Terms.read(view, question, ok)
    words = terms.own()
    cosines, known = _cosines(view, question, ok)
    return _combine(view, question, terms, words, cosines, known, dense_weight, ok)


def step_hits(
    view: StepsView,
    question: Question,
    ok: Mask,
    weights: StepWeights,
    agents: frozenset[str],
    dense_weight: float,
) -> Hits:
    """
    Score the sides of steps.

    Args:
        agents: Folded names of those who are the agent's side, beside every action.
        dense_weight: Of the cosine where there are too few documents for *weights*.
    """
    question = question.for_steps
    terms = _Terms.read(view, question, ok)
    words = terms.own()
    cosines, known = _cosines(view, question, ok)
    if terms.population < FEW:
        return _combine(view, question, terms, words, cosines, known, dense_weight, ok)
    chain = _Chain.of(view, ok)
    sums = _Sum(ok)
    sums.add(weights.own, words)
    if weights.joined:
        sums.add(weights.joined, terms.joined(chain))
    if weights.session:
        sums.add(weights.session, terms.sessions(view))
    best = _strongest(cosines, question)
    if known.any():
        sums.add(weights.cosine, best, known)
        if weights.joined_cosine:
            together = _strongest(_joined_cosines(view, cosines, known, chain), question)
            sums.add(weights.joined_cosine, together, known)
    scores = sums.mean()
    if weights.neighbour:
        scores = scores + np.float32(weights.neighbour) * _better_neighbour(scores, chain)
    scores = scores + _priors(view, question, ok, weights, agents)
    shares = terms.shares(words)
    scores[~ok] = -np.inf
    return Hits(view, scores, best, shares, ok & (known | shares), absolute=False)


def _combine(
    view: DocumentsView,
    question: Question,
    terms: _Terms,
    words: Floats,
    cosines: Floats,
    known: Mask,
    dense_weight: float,
    ok: Mask,
) -> Hits:
    best = _strongest(cosines, question)
    dense = dense_weight if known.any() else 0.0
    few = terms.population < FEW
    if few:
        matched = np.minimum(words / np.float32(max(terms.ideal(), 1e-9)), 1.0)
        scores = (matched + np.float32(dense) * np.maximum(best, 0)) / np.float32(1 + dense)
    else:
        sums = _Sum(ok)
        sums.add(1.0, words)
        if dense:
            sums.add(dense, best, known)
        scores = sums.mean()
    shares = terms.shares(words)
    scores = np.where(ok, scores, np.float32(-np.inf))
    return Hits(view, scores, best, shares, ok & (known | shares), absolute=few)


# ── Keywords ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Term:
    weight: float
    documents: Ints
    counts: Floats


@dataclass(frozen=True, slots=True)
class _Terms:
    """The question's terms as far as eligible documents hold them."""

    found: dict[str, _Term]
    tagged: dict[str, _Term]
    weights: dict[str, float]
    lengths: Floats
    population: int

    @classmethod
    def read(cls, view: DocumentsView, question: Question, ok: Mask) -> _Terms:
        population = int(np.count_nonzero(ok))
        everyone = population == len(ok)
        lengths = view.lengths if everyone else np.where(ok, view.lengths, np.float32(0))

        def term(name: str, weight: float) -> _Term | None:
            posting = view.postings.read(name, view.count)
            if posting is None:
                return None
            documents, counts = posting
            if not everyone:
                kept = ok[documents]
                documents, counts = documents[kept], counts[kept]
            return _Term(weight, documents, counts) if len(documents) else None

        found = {n: t for n, w in question.terms.items() if (t := term(n, w))}
        others = question.shared - question.terms.keys()
        tagged = {n: t for n in others if (t := term(n, 0.0))}
        return cls(found, tagged, question.terms, lengths, population)

    def own(self) -> Floats:
        """BM25 of each document."""
        scores = np.zeros(len(self.lengths), np.float32)
        bm25 = Bm25.over(self.lengths, self.population)
        for term in self.found.values():
            bm25.add(scores, term.weight, term.documents, term.counts)
        return scores

    def ideal(self) -> float:
        """BM25 of a document of mean length that has every word of the query once."""
        own = {name: weight for name, weight in self.weights.items() if weight == 1.0}
        holding = {name: len(term.documents) for name, term in self.found.items()}
        return sum(idf(self.population, holding.get(name, 0)) for name in own or self.weights)

    def shares(self, own: Floats) -> Mask:
        """Which documents share a word with the question or a tag."""
        shares = own > 0
        for term in self.tagged.values():
            shares[term.documents] = True
        return shares

    def joined(self, chain: _Chain) -> Floats:
        """BM25 of each document with the one before it."""
        before = np.where(chain.has_previous, self.lengths[chain.previous], np.float32(0))
        bm25 = Bm25.over(self.lengths + before, self.population)
        scores = np.zeros(len(self.lengths), np.float32)
        counts = np.zeros(len(self.lengths), np.float32)
        for term in self.found.values():
            counts[term.documents] = term.counts
            followed = chain.has_next[term.documents]
            following = chain.next[term.documents[followed]]
            fresh = counts[following] == 0
            touched = np.concatenate((term.documents, following[fresh]))
            counts[following] += term.counts[followed]
            bm25.add(scores, term.weight, touched, counts[touched])
            counts[touched] = 0
        return scores

    def sessions(self, view: StepsView) -> Floats:
        """BM25 of each document's whole session."""
        lengths = np.bincount(view.session, self.lengths, view.sessions).astype(np.float32)
        bm25 = Bm25.over(lengths, int(np.count_nonzero(lengths)))
        scores = np.zeros(view.sessions, np.float32)
        for term in self.found.values():
            sessions = view.session[term.documents]
            counts = np.bincount(sessions, term.counts, view.sessions).astype(np.float32)
            holding = np.flatnonzero(counts)
            bm25.add(scores, term.weight, holding, counts[holding])
        return scores[view.session]


# ── Vectors ──────────────────────────────────────────────────────────────────────────


def _cosines(view: DocumentsView, question: Question, ok: Mask) -> tuple[Floats, Mask]:
    """Cosines with the query and each tag, shape ``(rows, documents)``, and who has any."""
    if question.vectors is None:
        return np.zeros((0, view.count), np.float32), np.zeros(view.count, np.bool_)
    cosines, known = view.cosines(question.vectors)
    return cosines, known & ok


def _strongest(cosines: Floats, question: Question) -> Floats:
    if not len(cosines):
        return np.zeros(cosines.shape[1], np.float32)
    best: Floats = cosines[0]
    if len(cosines) > 1:
        best = (cosines * question.weights[:, np.newaxis]).max(axis=0)
    return best


def _joined_cosines(view: StepsView, cosines: Floats, known: Mask, chain: _Chain) -> Floats:
    """Cosines of each document's vector and the one before it, added up."""
    both = chain.has_previous & known & known[chain.previous]
    # Of two unit vectors a and b: |a + b|^2 = 2 + 2 a·b.
    length = np.sqrt(np.maximum(2 + 2 * view.kinship, 1e-6))
    joined = (cosines + cosines[:, chain.previous]) / length
    return np.where(both, joined, cosines)


# ── Neighbours and priors ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Chain:
    """Each document's eligible neighbours in its session; number 0 where there is none."""

    previous: Ints
    has_previous: Mask
    next: Ints
    has_next: Mask

    @classmethod
    def of(cls, view: StepsView, ok: Mask) -> _Chain:
        previous = np.maximum(view.previous, 0)
        has_previous = (view.previous >= 0) & ok[previous] & ok
        beyond = (view.next < 0) | (view.next >= view.count)
        following = np.where(beyond, 0, view.next)
        return cls(previous, has_previous, following, ~beyond & ok[following] & ok)


def _better_neighbour(scores: Floats, chain: _Chain) -> Floats:
    before = np.where(chain.has_previous, scores[chain.previous], np.float32(0))
    after = np.where(chain.has_next, scores[chain.next], np.float32(0))
    return np.maximum(np.maximum(before, after), 0)


def _priors(
    view: StepsView, question: Question, ok: Mask, weights: StepWeights, agents: frozenset[str]
) -> Floats:
    actors = list(view.actors)
    named = _lookup(actors, lambda name: not question.named.isdisjoint(name.split()))
    priors: Floats = np.float32(weights.named) * named[view.actor]
    if weights.asks:
        priors += np.float32(weights.asks) * view.asks
    if weights.length:
        priors += np.float32(weights.length) * _standard(view.log_words, ok)
    if weights.observation:
        agent = _lookup(actors, lambda name: name in agents)[view.actor] > 0
        priors += np.float32(weights.observation) * ~(agent | view.acted)
    return priors


def _lookup(actors: Iterable[str], holds: Callable[[str], bool]) -> Floats:
    return np.asarray([holds(name) for name in actors], np.float32)


# ── Deviations ───────────────────────────────────────────────────────────────────────


class _Sum:
    """The weighted mean of signals, each in deviations from its mean."""

    def __init__(self, ok: Mask) -> None:
        self._ok = ok
        self._total = np.zeros(len(ok), np.float32)
        self._weight = 0.0

    def add(self, weight: float, values: Floats, population: Mask | None = None) -> None:
        """Add one signal; documents outside *population* stand at its mean."""
        self._total += np.float32(weight) * _standard(
            values, self._ok if population is None else population
        )
        self._weight += weight

    def mean(self) -> Floats:
        return self._total / np.float32(self._weight or 1.0)


def _standard(values: Floats, population: Mask) -> Floats:
    """*values* with mean 0 and deviation 1 over *population*; 0 outside it."""
    chosen = values if population.all() else values[population]
    if not len(chosen):
        return np.zeros(len(values), np.float32)
    mean, deviation = chosen.mean(), chosen.std()
    if deviation < 1e-9:
        return np.zeros(len(values), np.float32)
    standard = np.asarray((values - mean) / deviation, np.float32)
    if len(chosen) < len(values):
        standard[~population] = 0
    return standard

"""BM25 of a question's words: per document, joined pair and session. NumPy only, no await."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemo.recall.question import RecallQuestion
from mnemo.values.corpus import DocumentsView, StepsView
from mnemo.values.postings import Bm25, idf, saturation

__all__ = ["Chain", "Matches", "highest"]


PAIRED_DOCUMENTS = 100
"""Documents in which pairs are looked for, those that match the single words best."""
PAIRED_TERMS = 1_024
"""First terms of a document in which pairs are looked for; bounds the work."""

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chain:
    """Each document's eligible neighbours in its session; number 0 where there is none."""

    previous: Ints
    has_previous: Mask
    next: Ints
    has_next: Mask

    @classmethod
    def of(cls, view: StepsView, ok: Mask) -> Chain:
        """The neighbours among the documents *ok*."""
        previous = np.maximum(view.previous, 0)
        has_previous = (view.previous >= 0) & ok[previous] & ok
        beyond = (view.next < 0) | (view.next >= view.count)
        following = np.where(beyond, 0, view.next)
        return cls(previous, has_previous, following, ~beyond & ok[following] & ok)

    def before(self, values: Floats) -> Floats:
        """Of each document's previous one; 0 where there is none."""
        return np.where(self.has_previous, values.take(self.previous), np.float32(0))

    def after(self, values: Floats) -> Floats:
        """Of each document's next one; 0 where there is none."""
        return np.where(self.has_next, values.take(self.next), np.float32(0))


@dataclass(frozen=True, slots=True)
class _Term:
    weight: float
    documents: Ints
    counts: Floats


@dataclass(frozen=True, slots=True)
class Matches:
    """
    The question's terms as far as eligible documents hold them.

    Attributes:
        population: How many documents are eligible.
    """

    population: int
    _found: dict[str, _Term]
    _tagged: dict[str, _Term]
    _weights: dict[str, float]
    _lengths: Floats

    @classmethod
    def read(cls, view: DocumentsView, question: RecallQuestion, ok: Mask) -> Matches:
        """Look the question's terms up among the documents *ok*."""
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
        return cls(population, found, tagged, question.terms, lengths)

    def own(self, b: float) -> Floats:
        """BM25 of each document."""
        scores = np.zeros(len(self._lengths), np.float32)
        bm25 = Bm25.over(self._lengths, self.population, b=b)
        for term in self._found.values():
            bm25.add(scores, term.weight, term.documents, term.counts)
        return scores

    def ideal(self) -> float:
        """BM25 of a document of mean length that has every word of the query once."""
        own = {name: weight for name, weight in self._weights.items() if weight == 1.0}
        holding = {name: len(term.documents) for name, term in self._found.items()}
        return sum(idf(self.population, holding.get(name, 0)) for name in own or self._weights)

    def shares(self, own: Floats) -> Mask:
        """Which documents share a word with the question or a tag."""
        shares = own > 0
        for term in self._tagged.values():
            shares[term.documents] = True
        return shares

    def joined(self, chain: Chain, b: float) -> Floats:
        """BM25 of each document with the one before it."""
        before = np.where(chain.has_previous, self._lengths[chain.previous], np.float32(0))
        bm25 = Bm25.over(self._lengths + before, self.population, b=b)
        scores = np.zeros(len(self._lengths), np.float32)
        counts = np.zeros(len(self._lengths), np.float32)
        for term in self._found.values():
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
        lengths = np.bincount(view.session, self._lengths, view.sessions).astype(np.float32)
        bm25 = Bm25.over(lengths, int(np.count_nonzero(lengths)))
        scores = np.zeros(view.sessions, np.float32)
        for term in self._found.values():
            sessions = view.session[term.documents]
            counts = np.bincount(sessions, term.counts, view.sessions).astype(np.float32)
            holding = np.flatnonzero(counts)
            bm25.add(scores, term.weight, holding, counts[holding])
        return scores[view.session]

    def side_by_side(
        self, view: StepsView, question: RecallQuestion, own: Floats, b: float
    ) -> Floats:
        """
        BM25 of the query's pairs of neighbouring terms, where they are neighbours too.

        A pair weighs what its two terms weigh together. Only the documents that *own*
        ranks best are read for pairs.
        """
        added = np.zeros(len(own), np.float32)
        pairs = [pair for pair in question.pairs if all(term in self._found for term in pair)]
        documents = highest(own, own > 0, PAIRED_DOCUMENTS)
        if not pairs or not len(documents):
            return added
        first, second, place = _neighbours(view, documents)
        norms = Bm25.over(self._lengths, self.population, b=b).norms[documents]
        for one, other in pairs:
            numbers = view.term_numbers[one], view.term_numbers[other]
            together = place[(first == numbers[0]) & (second == numbers[1])]
            if len(together):
                counts = np.bincount(together, minlength=len(documents)).astype(np.float32)
                weight = self._weight(one) + self._weight(other)
                added[documents] += np.float32(weight) * saturation(counts, norms)
        return added

    def _weight(self, name: str) -> float:
        term = self._found[name]
        return term.weight * idf(self.population, len(term.documents))


def highest(scores: Floats, eligible: Mask, count: int) -> NDArray[np.intp]:
    """Return the *count* documents of *eligible* with the highest scores, in any order."""
    documents = np.flatnonzero(eligible)
    if len(documents) <= count:
        return documents
    return documents[np.argpartition(-scores[documents], count)[:count]]


def _neighbours(
    view: StepsView, documents: NDArray[np.intp]
) -> tuple[NDArray[np.int32], NDArray[np.int32], Ints]:
    """Numbers of the terms that stand side by side, and in which of *documents* they do."""
    lengths = np.minimum(view.lengths[documents].astype(np.int64), PAIRED_TERMS)
    begin = np.cumsum(lengths) - lengths
    place = np.repeat(np.arange(len(documents)), lengths)
    at = np.arange(len(place)) - begin[place] + view.starts[documents][place]
    terms = view.sequence[at]
    within = place[1:] == place[:-1]
    return terms[:-1][within], terms[1:][within], place[1:][within]

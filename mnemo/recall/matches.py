"""
How well words match: BM25 as a share of what a document with all of them could have.

Per document, per document joined with the one before it, and per piece of talk. One idf, that
of documents, serves all three. NumPy only, no await.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemo.recall.question import RecallQuestion
from mnemo.values.corpus import DocumentsView
from mnemo.values.pieces import Pieces
from mnemo.values.postings import Bm25, idf

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rarity:
    """
    How much each of the question's terms says, over everything that is stored.

    Attributes:
        weights: Index term → its weight in the question times its idf.
        whole: What the query's own terms say together; at least a little.
    """

    weights: Mapping[str, float]
    whole: float

    @classmethod
    def of(cls, question: RecallQuestion, stored: Iterable[tuple[DocumentsView, Mask]]) -> Rarity:
        """Count the terms of *question* among the documents that exist of each view."""
        stored = tuple(stored)
        population = sum(int(np.count_nonzero(exists)) for _, exists in stored)
        weights, whole = {}, 0.0
        for term, weight in question.terms.items():
            found = ((view.postings.read(term, view.count), exists) for view, exists in stored)
            held = sum(int(np.count_nonzero(exists[p[0]])) for p, exists in found if p)
            says = idf(population, held)
            whole += says if weight == 1.0 else 0.0
            if held:
                weights[term] = weight * says
        return cls(weights, max(whole, 1e-9))


@dataclass(frozen=True, slots=True)
class Matches:
    """The question's terms as far as the documents of one view hold them."""

    _found: list[tuple[float, Ints, Floats]]
    _lengths: Floats
    _population: int

    @classmethod
    def read(cls, view: DocumentsView, rarity: Rarity, exists: Mask) -> Matches:
        """Look the terms up among the documents that exist; the share of each is of *rarity*."""
        found = []
        for term, says in rarity.weights.items():
            posting = view.postings.read(term, view.count)
            if posting is not None:
                documents, counts = posting
                kept = exists[documents]
                found.append((says / rarity.whole, documents[kept], counts[kept]))
        lengths = np.where(exists, view.lengths, np.float32(0))
        return cls(found, lengths, int(np.count_nonzero(exists)))

    def own(self) -> Floats:
        """The share of each document."""
        bm25 = Bm25.over(self._lengths, self._population)
        scores = np.zeros(len(self._lengths), np.float32)
        for says, documents, counts in self._found:
            bm25.add(scores, says, documents, counts)
        return np.minimum(scores, np.float32(1))

    def joined(self, pieces: Pieces) -> Floats:
        """The share of each document joined with the one before it."""
        bm25 = Bm25.over(self._lengths + pieces.before(self._lengths), self._population)
        scores = np.zeros(len(self._lengths), np.float32)
        counts = np.zeros(len(self._lengths), np.float32)
        for says, documents, held in self._found:
            counts[documents] = held
            following = pieces.next[documents]
            touched = np.union1d(documents, following[following >= 0])
            both = counts[touched] + np.where(
                pieces.previous[touched] >= 0, counts[pieces.previous[touched]], np.float32(0)
            )
            bm25.add(scores, says, touched, both)
            counts[documents] = 0
        return np.minimum(scores, np.float32(1))

    def session(self, pieces: Pieces) -> Floats:
        """The share of each document's whole piece."""
        piece = np.maximum(pieces.piece, 0)
        bm25 = Bm25.over(np.bincount(piece, self._lengths, pieces.count).astype(np.float32))
        scores = np.zeros(pieces.count, np.float32)
        for says, documents, held in self._found:
            counts = np.bincount(piece[documents], held, pieces.count).astype(np.float32)
            holding = np.flatnonzero(counts)
            bm25.add(scores, says, holding, counts[holding])
        return np.minimum(scores, np.float32(1))[piece]

"""Which document holds which term, and BM25 over it. NumPy only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemo.graph.columns import Column

__all__ = ["K1", "B", "Bm25", "Postings", "idf", "saturation"]

K1 = 1.2
"""How soon a term's repeats stop counting (usual range 1.2 to 1.5)."""
B = 0.75
"""How much a document's length counts against it."""
_TF_BITS = 16
_MAX_TF = (1 << _TF_BITS) - 1

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Postings:
    """
    Term → documents and counts, as ascending numbers ``document << 16 | count``.

    One writer extends; a reader asks with the number of documents it knows of, and
    never sees a later one.
    """

    __slots__ = ("_terms",)

    def __init__(self) -> None:
        self._terms: dict[str, Column] = {}

    @staticmethod
    def code(document: int, count: int) -> int:
        """One posting as a number; counts above 65,535 are cut."""
        return document << _TF_BITS | min(count, _MAX_TF)

    def add(self, term: str, codes: list[int]) -> None:
        """Append postings of *term*, ascending and above all that it has."""
        column = self._terms.get(term) or Column(np.int64)
        column.extend(codes)
        # Only now may a reader meet it: a column is never seen empty.
        self._terms[term] = column

    def read(self, term: str, documents: int) -> tuple[Ints, Floats] | None:
        """The documents below *documents* that hold *term*, with counts; ``None`` if none."""
        column = self._terms.get(term)
        if column is None:
            return None
        codes = column.view()
        if codes[-1] >> _TF_BITS >= documents:
            codes = codes[: int(np.searchsorted(codes, documents << _TF_BITS))]
        if not len(codes):
            return None
        return codes >> _TF_BITS, (codes & _MAX_TF).astype(np.float32)


def idf(documents: int, holding: int) -> float:
    """How much a term held by *holding* of *documents* says; always positive."""
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))


def saturation(counts: Floats, norms: Floats) -> Floats:
    """BM25's share of a term's idf, given counts and ``k1 * (1 - b + b * length / mean)``."""
    shares: Floats = counts * np.float32(K1 + 1) / (counts + norms)
    return shares


@dataclass(frozen=True, slots=True)
class Bm25:
    """
    BM25 over one population of documents.

    Attributes:
        norms: Per document ``k1 * (1 - b + b * length / mean length)``.
        documents: Size of the population.
    """

    norms: Floats
    documents: int

    @classmethod
    def over(cls, lengths: Floats, documents: int | None = None, *, b: float = B) -> Bm25:
        """
        For documents of *lengths* in terms; those outside the population have length 0.

        Args:
            b: How much a document's length counts against it, in [0, 1].
        """
        population = len(lengths) if documents is None else documents
        mean = float(lengths.sum()) / max(population, 1)
        return cls(
            (np.float32(K1 * (1 - b)) + np.float32(K1 * b / max(mean, 1e-9)) * lengths).astype(
                np.float32, copy=False
            ),
            population,
        )

    def add(self, scores: Floats, weight: float, documents: Ints, counts: Floats) -> None:
        """Add one term's part to *scores*; *documents* are distinct."""
        part = weight * idf(self.documents, len(documents))
        scores[documents] += np.float32(part) * saturation(counts, self.norms[documents])

"""
BM25 as a share of what a document with all of a question's words could have.

Per document, per document joined with the one before it, and per piece; one idf serves all. Of
the whole store it takes sums alone: ``Totals``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mnemo.index.columns import Codes, Floats, Mask, ascending, idf
from mnemo.index.corpus import CorpusView, DocumentsView, Sums
from mnemo.index.pieces import Pieces

K1 = 1.2
"""How soon a term's repeats stop counting (usual range 1.2 to 1.5)."""
B = 0.75
"""How much a document's length counts against it."""

Held: TypeAlias = tuple[list[tuple[float, Codes, Floats]], Floats]
"""
Of each of the question's terms its share, the texts that hold it, and how often; and the length
of every text in terms, 0 of those outside the population.
"""


# ── The whole store ───────────────────────────────────────────────────────────────────


def mean_length(wholes: Iterable[tuple[float, int]]) -> float:
    """Of documents of several parts, whose ``whole_length`` these are."""
    known = [*wholes]
    lengths, counts = sum(length for length, _ in known), sum(count for _, count in known)
    return max(lengths / max(counts, 1), 1e-9)


@dataclass(frozen=True, slots=True)
class Totals:
    """
    Sums over a whole store that the score of each document depends on.

    Attributes:
        population: How many sides of steps, facts and instructions there are until the end.
        holding: Term of the question → how many of these hold it.
        living: Type → documents that are alive; ``episodic``: sides of steps.
        means: Type → mean length in index terms of these, of steps until the end; ``joined``: of a
            side with the one before it, ``piece``: of a whole piece.
        acted, observed: Whether any side is an action, and the actors of the others.
    """

    population: int
    holding: Mapping[str, int]
    living: Mapping[str, int]
    means: Mapping[str, float]
    acted: bool
    observed: frozenset[str]

    @classmethod
    def of(cls, view: CorpusView, terms: Iterable[str], pieces: Pieces, end: float) -> Totals:
        """Those of *view*, which holds everything; *pieces*: what exists until *end*."""
        steps, claims = view.steps, (view.nodes["semantic"], view.nodes["procedural"])
        stored: list[tuple[DocumentsView, Mask]] = [(steps, pieces.exists)]
        stored += [(claim, claim.alive & (claim.first <= end)) for claim in claims]
        holding = {}
        for term in terms:
            found = ((part.postings.read(term, part.count), exists) for part, exists in stored)
            holding[term] = sum(int(np.count_nonzero(exists[p[0]])) for p, exists in found if p)
        sums = Sums.of(steps, pieces)
        return cls(
            population=sum(int(np.count_nonzero(exists)) for _, exists in stored),
            holding=holding,
            living={
                "episodic": int(np.count_nonzero(steps.alive)),
                **{kind: int(np.count_nonzero(one.alive)) for kind, one in view.nodes.items()},
            },
            means={
                **sums.means,
                **{kind: mean_length([one.whole_length]) for kind, one in view.nodes.items()},
            },
            acted=sums.acted,
            observed=sums.observed,
        )

    def both(self, agents: frozenset[str]) -> bool:
        """Whether *agents*, which every actor of an action is, and others speak."""
        an_agent = self.acted or not agents.isdisjoint(self.observed)
        return an_agent and not self.observed <= agents


@dataclass(frozen=True, slots=True)
class Whole:
    """
    What the documents of a view are scored with, whatever part of the store the view holds.

    Attributes:
        pieces: Of the view's sides of steps, with those neighbours that the view holds.
        session: How much of the question each side's whole piece has, in [0, 1], as
            ``shares(of_pieces(…), …)`` gives it; ``None``: the view holds all pieces whole.
    """

    totals: Totals
    pieces: Pieces
    session: Floats | None = None

    @classmethod
    def of(cls, view: CorpusView, terms: Iterable[str], end: float) -> Whole:
        """Of *view*, which holds everything, for a question of *terms*, of what is until *end*."""
        pieces = view.steps.pieces if end == math.inf else view.steps.pieces_until(end)
        return cls(Totals.of(view, terms, pieces, end), pieces)


# ── Shares ────────────────────────────────────────────────────────────────────────────


def rarity_of(terms: Mapping[str, float], totals: Totals) -> dict[str, float]:
    """How much each of *terms* says of what those of weight 1, the question's own, say."""
    weights, whole = {}, 0.0
    for term, weight in terms.items():
        says = idf(totals.population, totals.holding[term])
        whole += says if weight == 1.0 else 0.0
        if totals.holding[term]:
            weights[term] = weight * says
    return {term: weight / max(whole, 1e-9) for term, weight in weights.items()}


def held(view: DocumentsView, rarity: Mapping[str, float], exists: Mask) -> Held:
    """The terms as far as the documents that exist of one view hold them."""
    found = []
    for term, share in rarity.items():
        posting = view.postings.read(term, view.count)
        if posting is not None:
            documents, counts = posting
            kept = exists[documents]
            found.append((share, documents[kept], counts[kept]))
    return found, np.where(exists, view.lengths, np.float32(0))


def with_previous(own: Held, pieces: Pieces) -> Held:
    """The same of each document joined with the one before it."""
    found, lengths = own
    counts = np.zeros(len(lengths), np.float32)
    both = []
    for share, documents, times in found:
        counts[documents] = times
        following = pieces.next[documents]
        touched = ascending(documents, following)
        before = pieces.previous[touched]
        ahead = np.where(before >= 0, counts[before], np.float32(0))
        both.append((share, touched, counts[touched] + ahead))
        counts[documents] = 0
    ahead = np.where(pieces.previous >= 0, lengths[pieces.previous], np.float32(0))
    return both, lengths + ahead


def of_pieces(own: Held, pieces: Pieces) -> Held:
    """The same of whole pieces."""
    found, lengths = own
    piece = np.maximum(pieces.piece, 0)
    whole = []
    for share, documents, times in found:
        counts = np.bincount(piece[documents], times, pieces.count).astype(np.float32)
        holding = np.flatnonzero(counts)
        whole.append((share, holding, counts[holding]))
    return whole, pieces.sums(lengths)


def shares(texts: Held, mean: float) -> Floats:
    """BM25 of each text, as a share; *mean*: of the lengths of all, in terms."""
    found, lengths = texts
    scores = np.zeros(len(lengths), np.float32)
    for share, holding, counts in found:
        norms = np.float32(K1 * (1 - B)) + np.float32(K1 * B / mean) * lengths[holding]
        gained = counts * np.float32(K1 + 1) / (counts + norms)
        scores[holding] += np.float32(share) * gained
    return np.minimum(scores, np.float32(1), out=scores)

"""
BM25 as a share of what a document with all of a question's words could have.

Per document, per document joined with the one before it, and per piece; one idf serves all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from mnemo.index.columns import Codes, Floats, Mask, idf
from mnemo.index.corpus import DocumentsView, Totals
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
        touched = np.union1d(documents, following[following >= 0])
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
    return np.minimum(scores, np.float32(1))

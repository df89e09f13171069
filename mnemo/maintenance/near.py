"""
Which of many vectors are near each other, without a full product of all with all.

A cosine is the sum of what two vectors share within a few directions and in the rest,
and the rest is at most the product of their lengths there (Cauchy and Schwarz). With
the directions in which the vectors differ most, that bound already rules out nearly
all pairs, at the cost of ``COARSE`` in place of all dimensions; what is left is
computed in full. No pair above the threshold is missed.

NumPy only; time grows with the square of the number of vectors, but a hundred thousand
take seconds, and memory with their number times ``COARSE``. For a worker thread, one
band after another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemo._clock import Breather

__all__ = ["BAND", "NEIGHBOURS", "Near", "Neighbourhood"]

COARSE = 64
"""Numbers per vector that the first look takes."""
SMALL = 2_048
"""Vectors that are compared whole: fewer than finding the directions would pay for."""
NEIGHBOURS = 12
"""Later vectors that each one is paired with, at most: the nearest."""
BAND = 512
"""Vectors whose neighbours one call looks for."""
_COLUMNS = 4_096
_SAMPLE = 4_096
_FEW = 16_384
_EXACT = 4_096
# Float32 sums of a few hundred products; "above" must not become "equal to".
_ROUNDING = 1e-6
_SLACK = 1e-4

Floats = NDArray[np.float32]
Ints = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Near:
    """
    Pairs of one band, each from an earlier place to a later one.

    Attributes:
        truncated: Places of the band that have more than ``NEIGHBOURS`` near them.
    """

    left: Ints
    right: Ints
    cosines: NDArray[np.float64]
    truncated: Ints


class Neighbourhood:
    """
    The vectors of *rows*, which have places 0, 1, 2 … in that order.

    Args:
        vectors: Unit rows.
        rows: Which of them, each once.
        threshold: Cosine that a pair must exceed.
    """

    def __init__(self, vectors: Floats, rows: Ints, *, threshold: float) -> None:
        self._vectors = vectors
        self._rows = rows
        self._threshold = threshold
        self._there = np.ones(len(rows), np.bool_)
        self._coarse = _coarse(vectors, rows)

    def drop(self, places: Ints) -> None:
        """Leave *places* out from now on."""
        self._there[places] = False

    def near(self, places: Ints) -> Near:
        """The nearest later vectors of *places*, ascending, above the threshold."""
        breather = Breather()
        n = len(self._rows)
        left, right, more = [_NONE], [_NONE], [_NONE]
        for start in range(int(places[0]) if len(places) else n, n, _COLUMNS):
            i, j, many = self._tile(places, start, min(start + _COLUMNS, n))
            left.append(i)
            right.append(j)
            more.append(many)
            breather.breathe()
        i, j = np.concatenate(left), np.concatenate(right)
        cosines = self._cosines(i, j, breather)
        above = cosines > self._threshold + _ROUNDING
        found = _nearest(i[above], j[above], cosines[above])
        return Near(*found[:3], np.union1d(found[3], np.concatenate(more)))

    def _tile(self, places: Ints, start: int, stop: int) -> tuple[Ints, Ints, Ints]:
        bounds = self._coarse[places] @ self._coarse[start:stop].T
        hits = np.flatnonzero(bounds >= self._threshold - _SLACK)
        if len(hits) > _FEW:
            return self._crowded_tile(places, start, stop)
        i, j = np.divmod(hits, stop - start)
        i, j = places[i], j + start
        counts = (j > i) & self._there[j]
        return i[counts], j[counts], _NONE

    def _crowded_tile(self, places: Ints, start: int, stop: int) -> tuple[Ints, Ints, Ints]:
        """Where the bound rules out little: the best of each row, by the whole product."""
        block = self._vectors[self._rows[places]] @ self._vectors[self._rows[start:stop]].T
        columns = np.arange(start, stop)
        block[~self._there[start:stop][np.newaxis] | (columns <= places[:, np.newaxis])] = -2.0
        # Ties go to the earlier place, wherever the tile begins.
        keys = np.rint(block * 1e5).astype(np.int64) * _COLUMNS - (columns - start)
        near = block > self._threshold - _SLACK
        many = near.sum(axis=1) > NEIGHBOURS
        kth = max(block.shape[1] - NEIGHBOURS, 0)
        best = np.argpartition(keys, kth if kth < block.shape[1] else 0, axis=1)[:, kth:]
        i, j = np.repeat(np.arange(len(places)), best.shape[1]), best.ravel()
        kept = near[i, j]
        return places[i[kept]], j[kept] + start, places[many]

    def _cosines(self, i: Ints, j: Ints, breather: Breather) -> NDArray[np.float64]:
        cosines = np.empty(len(i), np.float64)
        for first in range(0, len(i), _EXACT):
            part = slice(first, first + _EXACT)
            mine, theirs = (self._vectors[self._rows[ends[part]]] for ends in (i, j))
            cosines[part] = np.einsum("ij,ij->i", mine, theirs, dtype=np.float64)
            breather.breathe()
        return cosines


_NONE = np.zeros(0, np.intp)


def _coarse(vectors: Floats, rows: Ints) -> Floats:
    """Each vector in its main directions, and its length in all others: products are bounds."""
    if vectors.shape[1] <= COARSE or len(rows) <= SMALL:
        return vectors[rows]
    sample = vectors[rows[:: max(1, len(rows) // _SAMPLE)]].astype(np.float64)
    _, directions = np.linalg.eigh(sample.T @ sample)
    main = directions[:, -(COARSE - 1) :].astype(np.float32)
    coarse = np.empty((len(rows), COARSE), np.float32)
    for first in range(0, len(rows), _EXACT):
        part = slice(first, first + _EXACT)
        whole = vectors[rows[part]]
        coarse[part, :-1] = whole @ main
        rest = np.einsum("ij,ij->i", whole, whole) - np.einsum(
            "ij,ij->i", coarse[part, :-1], coarse[part, :-1]
        )
        coarse[part, -1] = np.sqrt(np.maximum(rest, 0.0))
    return coarse


def _nearest(
    left: Ints, right: Ints, cosines: NDArray[np.float64]
) -> tuple[Ints, Ints, NDArray[np.float64], Ints]:
    """The best of each left place, and the places that had more."""
    order = np.lexsort((right, -cosines, left))
    left, right, cosines = left[order], right[order], cosines[order]
    firsts = np.flatnonzero(np.diff(left, prepend=-1))
    sizes = np.diff(firsts, append=len(left))
    ranks = np.arange(len(left)) - np.repeat(firsts, sizes)
    kept = ranks < NEIGHBOURS
    return left[kept], right[kept], cosines[kept], left[firsts[sizes > NEIGHBOURS]]

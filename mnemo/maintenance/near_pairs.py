"""
Find near pairs among many vectors without a full product of all with all.

A cosine is the sum of what two vectors share within a few directions and in the rest, and the rest
is at most the product of their lengths there (Cauchy and Schwarz). With the directions in which the
vectors are longest, that bound already rules out nearly all pairs, at the cost of ``COARSE`` in
place of all dimensions; what is left is computed in full. No pair above the threshold is missed.

NumPy only; time grows with the square of the number of vectors, but a hundred thousand take
seconds, and memory with their number times ``COARSE``. For a worker thread, one band after another.

Products are made of many small ones: those BLAS leaves to the thread that asks. The threads it
takes for large ones spin for one another, and on a busy machine, where the event loop wants a core
too, a large one took six times as long as the small ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mnemo.runtime.clock import Breather
from mnemo.values.vectors import COSINE_ROUNDING

COARSE = 64
"""Numbers per vector that the first look takes."""
SMALL = 2_048
"""Vectors that are compared whole: fewer than finding the directions would pay for."""
NEIGHBOURS = 12
"""Later vectors that each one is paired with, at most: the nearest."""
BAND = 512
"""Vectors whose neighbours one call looks for."""
_COLUMNS = 2_048
_SAMPLE = 2_048
_FEW = 16_384
_EXACT = 4_096
# Products that OpenBLAS computes in the calling thread: rows times columns times width.
_ONE_THREAD = 262_144
_SLACK = 1e-4

Floats = NDArray[np.float32]
Ints = NDArray[np.intp]


class Vectors(Protocol):
    """Rows that are read as those of an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How many there are, and numbers of each."""

    def __getitem__(self, rows: Ints, /) -> Floats:
        """Those of *rows*."""


@dataclass(frozen=True, slots=True)
class Near:
    """Pairs of a band, earlier to later; *truncated*: places with over ``NEIGHBOURS``."""

    left: Ints
    right: Ints
    cosines: NDArray[np.float64]
    truncated: Ints


class Neighbourhood:
    """Unit *vectors* of *rows* (places 0, 1 …); pairs exceed the cosine *threshold*."""

    def __init__(self, vectors: Vectors, rows: Ints, *, threshold: float) -> None:
        self._vectors = vectors
        self._rows = rows
        self._threshold = threshold
        self._there = np.ones(len(rows), np.bool_)
        coarse = _coarse(vectors, rows)
        self._side = _side(coarse.shape[1])
        self._blocks = _blocks(coarse, self._side)

    def drop(self, places: Ints) -> None:
        self._there[places] = False

    def near(self, places: Ints) -> Near:
        """The nearest later vectors of *places* (ascending) above the threshold."""
        breather, n = Breather(), len(self._rows)
        mine = _blocks(self._blocks.reshape(-1, self._blocks.shape[-1])[places], self._side)
        left, right, more = [_NONE], [_NONE], [_NONE]
        first = int(places[0]) // _COLUMNS * _COLUMNS if len(places) else n
        for start in range(first, n, _COLUMNS):
            i, j, many = self._tile(places, mine, start)
            left.append(i)
            right.append(j)
            more.append(many)
            breather.breathe()
        i, j = np.concatenate(left), np.concatenate(right)
        cosines = self._cosines(i, j, breather)
        above = cosines > self._threshold + COSINE_ROUNDING
        found = _nearest(i[above], j[above], cosines[above])
        return Near(*found[:3], np.union1d(found[3], np.concatenate(more)))

    def _tile(self, places: Ints, mine: Floats, start: int) -> tuple[Ints, Ints, Ints]:
        side, stop = self._side, min(start + _COLUMNS, len(self._rows))
        theirs = self._blocks[start // side : (start + _COLUMNS) // side]
        bounds = _block_products(mine, theirs)
        hits = np.flatnonzero(bounds >= self._threshold - _SLACK)
        if len(hits) > _FEW:
            return self._crowded_tile(places, start, stop)
        row_block, column_block, row, column = np.unravel_index(hits, bounds.shape)
        i, j = row_block * side + row, column_block * side + column + start
        inside = (i < len(places)) & (j < stop)
        i, j = places[i[inside]], j[inside]
        counts = (j > i) & self._there[j]
        return i[counts], j[counts], _NONE

    def _crowded_tile(self, places: Ints, start: int, stop: int) -> tuple[Ints, Ints, Ints]:
        """Where the bound rules out little: the best of each row, by the whole product."""
        mine, theirs = self._vectors[self._rows[places]], self._vectors[self._rows[start:stop]]
        block = _products(mine, theirs)
        columns = np.arange(start, stop)
        block[~self._there[start:stop][np.newaxis] | (columns <= places[:, np.newaxis])] = -2.0
        near = block > self._threshold - _SLACK
        # Ties go to the earlier place, wherever the tile begins.
        keys = np.rint(block * 1e5).astype(np.int64) * _COLUMNS - (columns - start)
        kth = max(block.shape[1] - NEIGHBOURS, 0)
        best = np.argpartition(keys, kth, axis=1)[:, kth:]
        i, j = np.repeat(np.arange(len(places)), best.shape[1]), best.ravel()
        kept = near[i, j]
        return places[i[kept]], j[kept] + start, places[near.sum(axis=1) > NEIGHBOURS]

    def _cosines(self, i: Ints, j: Ints, breather: Breather) -> NDArray[np.float64]:
        cosines = np.empty(len(i), np.float64)
        for first in range(0, len(i), _EXACT):
            part = slice(first, first + _EXACT)
            mine, theirs = (self._vectors[self._rows[ends[part]]] for ends in (i, j))
            cosines[part] = np.einsum("ij,ij->i", mine, theirs, dtype=np.float64)
            breather.breathe()
        return cosines


_NONE = np.zeros(0, np.intp)


def _coarse(vectors: Vectors, rows: Ints) -> Floats:
    """Each vector in its main directions, and its length in all others: products are bounds."""
    if vectors.shape[1] <= COARSE or len(rows) <= SMALL:
        return vectors[rows]
    main = _main_directions(vectors[rows[:: max(1, len(rows) // _SAMPLE)]])
    coarse = np.empty((len(rows), COARSE), np.float32)
    for first in range(0, len(rows), _EXACT):
        part = slice(first, first + _EXACT)
        whole = vectors[rows[part]]
        coarse[part, :-1] = inside = _products(whole, main)
        rest = np.einsum("ij,ij->i", whole, whole) - np.einsum("ij,ij->i", inside, inside)
        coarse[part, -1] = np.sqrt(np.maximum(rest, 0.0))
    return coarse


def _main_directions(sample: Floats) -> Floats:
    """The orthonormal directions in which *sample* is longest, one less than ``COARSE``."""
    turned = np.ascontiguousarray(sample.T)
    _, directions = np.linalg.eigh(_products(turned, turned).astype(np.float64))
    return np.ascontiguousarray(directions[:, -(COARSE - 1) :].T, np.float32)


# ── Products of rows with rows ───────────────────────────────────────────────────────


def _side(width: int) -> int:
    """Rows of a block whose products with another block stay in the calling thread."""
    return 1 << int(math.log2(max(1.0, math.sqrt(_ONE_THREAD / max(width, 64)))))


def _blocks(rows: Floats, side: int) -> Floats:
    """*rows* in blocks of *side*, the last one filled up with zeros."""
    count = -(-len(rows) // side)
    padded = np.zeros((count * side, rows.shape[1]), np.float32)
    padded[: len(rows)] = rows
    return padded.reshape(count, side, rows.shape[1])


def _block_products(mine: Floats, theirs: Floats) -> Floats:
    """Products of all rows: by block of mine, block of theirs, row of mine, row of theirs."""
    products: Floats = np.matmul(mine[:, np.newaxis], theirs.transpose(0, 2, 1)[np.newaxis])
    return products


def _products(mine: Floats, theirs: Floats) -> Floats:
    side = _side(mine.shape[1])
    blocks = _block_products(_blocks(mine, side), _blocks(theirs, side)).transpose(0, 2, 1, 3)
    whole: Floats = blocks.reshape(blocks.shape[0] * side, -1)[: len(mine), : len(theirs)]
    return whole


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

"""
The talk that turns belong to: their neighbours, and what kind of text each is.

Nothing of it is stored: what a later turn can change is derived from columns when it is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.index.columns import Floats, Ints, Mask

NOTE, CHAT, DOCUMENT = range(3)
"""Kinds of text: one that stands alone, a turn of a chat, a long message."""
GAP_S = 6 * 3_600.0
"""Seconds of silence that end a piece."""
HEAD_WORDS = 7
"""Words of ``[Friday 14 May 2023 13:56] Ana:``, which count in a document's length."""
SHORT_WORDS = 80
"""Words below which a text is a note, and below which the median turn makes a piece a chat."""
TALKS_FROM = 10
"""One question in so many turns makes a piece without names a talk."""
LONG_TURN_WORDS = 60
"""Words from which a turn of a chat stands for itself, whatever its neighbours say."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """
    The turns that exist, cut where a session or thread is silent for six hours.

    Attributes:
        piece: Number of a document's piece; -1 for those that do not exist.
        previous, next: The neighbouring document of the same piece, -1 if none.
        long: Whether a document has 60 words or more.
    """

    exists: Mask
    piece: Ints
    count: int
    previous: Ints
    next: Ints
    kind: NDArray[np.uint8]
    long: Mask

    @classmethod
    def of(
        cls,
        exists: Mask,
        *,
        session: Ints,
        first: NDArray[np.float64],
        actor: Ints,
        asks: Mask,
        log_words: Floats,
    ) -> Pieces:
        """
        Cut the sides that exist into pieces, in the order of their numbers; columns as of steps.

        A piece in which one speaker alone speaks holds notes or documents, each by its own
        length: ``remember`` puts what has nothing to do with each other into one thread. Unless
        a tenth of it asks: then it is a talk that came without names. (Of notes of one person
        0 to 5 % ask, of 19 files; of sessions of dialogues 9 in 10 reach a tenth.)
        """
        piece, previous, following = np.full((3, len(exists)), -1, np.int32)
        kind = np.zeros(len(exists), np.uint8)
        long = log_words >= np.float32(math.log(LONG_TURN_WORDS + HEAD_WORDS))
        there = np.flatnonzero(exists)
        if not len(there):
            return cls(exists, piece, 0, previous, following, kind, long)
        order = there[np.argsort(session[there], kind="stable")]
        apart = (np.diff(session[order]) != 0) | (np.abs(np.diff(first[order])) > GAP_S)
        numbers = np.concatenate(([0], np.cumsum(apart)))
        piece[order] = numbers
        together = np.flatnonzero(~apart)
        previous[order[together + 1]] = order[together]
        following[order[together]] = order[together + 1]
        begins = np.concatenate(([0], np.flatnonzero(apart) + 1))
        speaks = actor[order]
        alone = np.minimum.reduceat(speaks, begins) == np.maximum.reduceat(speaks, begins)
        questions = np.add.reduceat(asks[order].astype(np.int64), begins)
        sizes = np.diff(begins, append=len(order))
        alone &= (questions < 2) | (questions * TALKS_FROM < sizes)
        limit = np.float32(math.log(SHORT_WORDS + HEAD_WORDS))
        short_piece = _medians(log_words[order], numbers, begins, sizes) < limit
        brief = log_words[order] < limit
        kind[order] = np.where(
            alone[numbers],
            np.where(brief, NOTE, DOCUMENT),
            np.where(short_piece[numbers], CHAT, DOCUMENT),
        )
        return cls(exists, piece, int(numbers[-1]) + 1, previous, following, kind, long)

    def sums(self, values: NDArray[Any]) -> Floats:
        """Of each piece the sum of *values* of its documents, of which all have one."""
        values = np.where(self.exists, values, np.float32(0))
        return np.bincount(np.maximum(self.piece, 0), values, self.count).astype(np.float32)


def places(chosen: NDArray[Any], numbers: NDArray[Any]) -> Ints:
    """Where *numbers* stand among *chosen*, which ascend; -1 where they do not."""
    at = np.searchsorted(chosen, numbers)
    there = np.append(chosen, -1)[at] == numbers
    return np.where(there & (numbers >= 0), at, -1).astype(np.int32)


def _medians(
    values: Floats, piece: NDArray[np.intp], first: NDArray[np.intp], sizes: NDArray[np.intp]
) -> Floats:
    """The median of *values* in each piece; they lie together, from *first* on."""
    ascending = values[np.lexsort((values, piece))]
    middle = ascending[first + (sizes - 1) // 2] + ascending[first + sizes // 2]
    return np.asarray(middle / 2, np.float32)

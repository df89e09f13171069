"""
The pieces of talk that turns belong to: their neighbours, and what kind of text each is.

Nothing of it is stored: what a later turn can change is derived from columns when it is asked
for. NumPy only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pieces:
    """
    The turns that exist, cut where a session or thread is silent for six hours.

    Attributes:
        exists: Which documents there are.
        piece: Number of a document's piece; -1 for those that do not exist.
        count: How many pieces there are.
        previous, next: The neighbouring document of the same piece, -1 if none.
        kind: ``NOTE``, ``CHAT`` or ``DOCUMENT``.
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
        chain: Ints,
        at: NDArray[np.float64],
        actor: Ints,
        log_words: NDArray[np.float32],
        asks: Mask,
        exists: Mask,
    ) -> Pieces:
        """
        Cut the documents that exist into pieces, in the order of their numbers.

        A piece in which one speaker alone speaks holds notes or documents, each by its own
        length: ``remember`` puts what has nothing to do with each other into one thread. Unless
        a tenth of it asks: then it is a talk that came without names. (Of notes of one person
        0 to 5 % ask, of 19 files; of sessions of dialogues 9 in 10 reach a tenth.)

        Args:
            chain: Number of each document's session or thread.
            at: Unix seconds.
            actor: Number of who spoke.
            log_words: Logarithm of the length in words, the head included.
            asks: Whether it ends as a question.
        """
        piece, previous, following = np.full((3, len(exists)), -1, np.int32)
        kind = np.zeros(len(exists), np.uint8)
        long = log_words >= np.float32(math.log(LONG_TURN_WORDS + HEAD_WORDS))
        there = np.flatnonzero(exists)
        if not len(there):
            return cls(exists, piece, 0, previous, following, kind, long)
        order = there[np.argsort(chain[there], kind="stable")]
        apart = (np.diff(chain[order]) != 0) | (np.abs(np.diff(at[order])) > GAP_S)
        numbers = np.concatenate(([0], np.cumsum(apart)))
        piece[order] = numbers
        together = np.flatnonzero(~apart)
        previous[order[together + 1]] = order[together]
        following[order[together]] = order[together + 1]
        first = np.concatenate(([0], np.flatnonzero(apart) + 1))
        speaks = actor[order]
        alone = np.minimum.reduceat(speaks, first) == np.maximum.reduceat(speaks, first)
        questions = np.add.reduceat(asks[order].astype(np.int64), first)
        sizes = np.diff(first, append=len(order))
        alone &= (questions < 2) | (questions * TALKS_FROM < sizes)
        limit = np.float32(math.log(SHORT_WORDS + HEAD_WORDS))
        short_piece = _medians(log_words[order], numbers, first, sizes) < limit
        brief = log_words[order] < limit
        kind[order] = np.where(
            alone[numbers],
            np.where(brief, NOTE, DOCUMENT),
            np.where(short_piece[numbers], CHAT, DOCUMENT),
        )
        return cls(exists, piece, int(numbers[-1]) + 1, previous, following, kind, long)

    def before(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of each document's previous one; 0 where there is none."""
        return np.where(self.previous >= 0, values[self.previous], np.float32(0))


def _medians(
    values: NDArray[np.float32],
    piece: NDArray[np.intp],
    first: NDArray[np.intp],
    sizes: NDArray[np.intp],
) -> NDArray[np.float32]:
    """The median of *values* in each piece; they lie together, from *first* on."""
    ascending = values[np.lexsort((values, piece))]
    middle = ascending[first + (sizes - 1) // 2] + ascending[first + sizes // 2]
    return np.asarray(middle / 2, np.float32)

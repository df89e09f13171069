"""The index terms of words, numbered."""

from __future__ import annotations

import re
from itertools import chain

from mnemo.english.words import index_terms_of
from mnemo.index.columns import LISTED, NUMBER, WORD, weight
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import words

MAX_INDEXED_CHARACTERS = 1_000_000
"""Characters of one document that are indexed; the store keeps, and its search finds, the rest."""
MAX_REMEMBERED = 500_000
"""Words whose terms are remembered; texts repeat few words, and stemming one takes 20 µs."""
_PIECE = re.compile(r".{1,4096}(?= |\Z)|.{1,4096}", re.DOTALL)
"""A part of a text, cut at a blank if there is one."""


class Lexicon(dict[str, tuple[int, ...]]):
    """Folded word → numbers of its index terms, for one writer; others may look up *numbers*."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return weight(self, WORD + LISTED) + weight(self.numbers, WORD + NUMBER)

    def __missing__(self, word: str) -> tuple[int, ...]:
        known = self.numbers
        found = tuple(known.setdefault(term, len(known)) for term in index_terms_of((word,)))
        self[word] = found
        return found

    def read(self, text: str, breather: Breather) -> tuple[list[int], int]:
        """The numbers of *text*'s index terms, in order, and how many words it has."""
        if len(self) > MAX_REMEMBERED:
            self.clear()
        numbers: list[int] = []
        spoken = 0
        for piece in _PIECE.findall(text[:MAX_INDEXED_CHARACTERS]):
            folded = words(piece)
            numbers.extend(chain.from_iterable(map(self.__getitem__, folded)))
            spoken += len(folded)
            breather.breathe()
        return numbers, spoken

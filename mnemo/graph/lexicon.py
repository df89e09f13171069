"""The index terms of one repository, each with a number, and texts as such numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from mnemo.english.lemmas import index_terms_of
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import words

__all__ = ["Lexicon"]

MAX_INDEXED_CHARACTERS = 1_000_000
"""Characters of one document that are indexed; the store keeps, and its search finds, the rest."""
MAX_REMEMBERED = 500_000
"""Words whose terms are remembered; texts repeat few words, and stemming one takes 20 µs."""
_PIECE = 4_096


class Lexicon:
    """
    Gives index terms numbers from 0 in order of first sight. One writer reads texts.

    Attributes:
        numbers: Index term → number; others may look up.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._remembered = _Remembered(self.numbers)

    def read(self, text: str, breather: Breather) -> tuple[list[int], int]:
        """The numbers of *text*'s index terms, in order, and how many words it has."""
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.clear()
        if len(text) <= _PIECE:
            return self._read(text)
        numbers: list[int] = []
        spoken = 0
        for piece in _pieces(text[:MAX_INDEXED_CHARACTERS]):
            found, said = self._read(piece)
            numbers += found
            spoken += said
            breather.breathe()
        return numbers, spoken

    def _read(self, piece: str) -> tuple[list[int], int]:
        folded = words(piece)
        found = map(self._remembered.__getitem__, folded)
        return list(chain.from_iterable(found)), len(folded)


class _Remembered(dict[str, tuple[int, ...]]):
    """Folded word → numbers of its terms: none of a stop word, many without blanks."""

    def __init__(self, numbers: dict[str, int]) -> None:
        super().__init__()
        self._numbers = numbers

    def __missing__(self, word: str) -> tuple[int, ...]:
        known = self._numbers
        found = tuple(known.setdefault(term, len(known)) for term in index_terms_of((word,)))
        self[word] = found
        return found


def _pieces(text: str) -> Iterator[str]:
    """*text* in parts of about 4,096 characters, cut at a blank if there is one."""
    start = 0
    while len(text) - start > _PIECE:
        cut = text.rfind(" ", start, start + _PIECE)
        end = cut if cut > start else start + _PIECE
        yield text[start:end]
        start = end
    yield text[start:]

"""Which document holds which term. NumPy only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from mnemo.english.words import index_terms_of
from mnemo.index.columns import Column
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import words

_TF_BITS = 16
_MAX_TF = (1 << _TF_BITS) - 1
_DOCUMENT_BITS = 32
_REPEATED = 16_384
"""Documents at once whose numbers are repeated, for which NumPy keeps the interpreter."""

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Postings:
    """
    Term → documents and counts, as ascending numbers ``document << 16 | count``.

    What the first ``add`` brings (of an index that is read anew: everything) lies end
    to end; each term that later ones bring has a column of its own, so that an addition
    costs what it adds. One writer adds; a reader asks with the number of documents it
    knows of, and never sees a later one.

    Args:
        numbers: Index term → its number.
    """

    __slots__ = ("_first", "_later", "_numbers")

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self._first = _EndToEnd.of(np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._later: dict[int, Column | Ints] = {}

    def add(self, first: int, lengths: NDArray[np.int32], terms: NDArray[np.int32]) -> None:
        """
        Add the documents from number *first* on, above all that were added before.

        Args:
            lengths: How many terms each of them has, repeats included.
            terms: Numbers of their terms, end to end.
        """
        if not len(terms):
            return
        owners, codes = _coded(first, lengths, terms)
        if not len(self._first.codes):
            self._first = _EndToEnd.of(owners, codes)
            return
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        ends = [*begins[1:].tolist(), len(codes)]
        for term, begin, end in zip(owners[begins].tolist(), begins.tolist(), ends, strict=True):
            known = self._later.get(term)
            if known is None:
                # Most terms come once: a part of this page, until there is more of it.
                self._later[term] = codes[begin:end]
            elif isinstance(known, Column):
                known.extend(codes[begin:end])
            else:
                column = Column(np.int64, capacity=2 * (len(known) + end - begin))
                column.extend(known)
                column.extend(codes[begin:end])
                # Only now may a reader meet it: a column is never seen without what it had.
                self._later[term] = column

    def read(self, term: str, documents: int) -> tuple[Ints, Floats] | None:
        """The documents below *documents* that hold *term*, with counts; ``None`` if none."""
        number = self._numbers.get(term)
        if number is None:
            return None
        codes, later = self._first.read(number), self._later.get(number)
        if later is not None:
            added = later.view() if isinstance(later, Column) else later
            codes = np.concatenate((codes, added)) if len(codes) else added
        if len(codes) and codes[-1] >> _TF_BITS >= documents:
            codes = codes[: int(np.searchsorted(codes, documents << _TF_BITS))]
        if not len(codes):
            return None
        return codes >> _TF_BITS, (codes & _MAX_TF).astype(np.float32)


@dataclass(frozen=True, slots=True)
class _EndToEnd:
    """Postings by ascending number of their term: *begins* and *ends* are places in *codes*."""

    terms: NDArray[np.int32]
    begins: Ints
    ends: Ints
    codes: Ints

    @classmethod
    def of(cls, owners: Ints, codes: Ints) -> _EndToEnd:
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        ends = np.append(begins[1:], len(codes))[: len(begins)]
        return cls(owners[begins].astype(np.int32), begins, ends, codes)

    def read(self, term: int) -> Ints:
        """The postings of *term*; empty if there are none."""
        at = int(np.searchsorted(self.terms, term))
        if at == len(self.terms) or self.terms[at] != term:
            return self.codes[:0]
        return self.codes[self.begins[at] : self.ends[at]]


def _coded(first: int, lengths: NDArray[np.int32], terms: NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Each pair of term and document once: the term, ascending, and the posting."""
    pairs = terms.astype(np.int64)
    pairs <<= _DOCUMENT_BITS
    done = 0
    for at in range(0, len(lengths), _REPEATED):
        some = lengths[at : at + _REPEATED]
        numbers = np.repeat(np.arange(first + at, first + at + len(some)), some)
        pairs[done : done + len(numbers)] |= numbers
        done += len(numbers)
    pairs.sort()
    new = np.flatnonzero(np.diff(pairs, prepend=-1))
    counts = np.diff(new, append=len(pairs))
    pairs = pairs[new]
    codes = pairs & ((1 << _DOCUMENT_BITS) - 1)
    codes <<= _TF_BITS
    codes |= np.minimum(counts, _MAX_TF)
    return pairs >> _DOCUMENT_BITS, codes


def idf(documents: int, holding: int) -> float:
    """How much a term held by *holding* of *documents* says; always positive."""
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))


MAX_INDEXED_CHARACTERS = 1_000_000
"""Characters of one document that are indexed; the store keeps, and its search finds, the rest."""
MAX_REMEMBERED = 500_000
"""Words whose terms are remembered; texts repeat few words, and stemming one takes 20 µs."""
_PIECE = 4_096
_MOST_HEAD = 40
"""Characters of a remembered head in brackets."""
_MOST_HEADS = 1_024


class Lexicon:
    """
    Gives index terms numbers from 0 in order of first sight. One writer reads texts.

    Attributes:
        numbers: Index term → number; others may look up.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._remembered = _Remembered(self.numbers)
        self._heads: dict[str, tuple[list[int], int]] = {}

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
        if not piece.startswith("["):
            return self._looked_up(piece)
        # The day and minute of a step are those of many others; no word goes across the end.
        head, end, rest = piece.partition("] ")
        if not end or len(head) > _MOST_HEAD:
            return self._looked_up(piece)
        known = self._heads.get(head)
        if known is None:
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()
            known = self._heads[head] = self._looked_up(head)
        numbers, spoken = self._looked_up(rest)
        return known[0] + numbers, known[1] + spoken

    def _looked_up(self, piece: str) -> tuple[list[int], int]:
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

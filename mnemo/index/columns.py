"""What documents are held in: columns, postings, metadata. One writer adds; readers never wait."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import cache
from sys import getsizeof
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.runtime.clock import Breather
from mnemo.values.filters import ScalarKind, Where, kind_of, members

K = TypeVar("K")
V = TypeVar("V")

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Ints = NDArray[np.int32]
Codes = NDArray[np.int64]
Numbers = NDArray[Any]
Hashes = NDArray[np.uint64]


# ── Columns ─────────────────────────────────────────────────────────────────────────────


TEXT = 80
"""Bytes of an id or key; *WORD*: of a word or term."""
WORD = 56
NUMBER = 28
"""Bytes of a number; *LISTED*: of a tuple or list of one."""
LISTED = 48
OBJECT = 170
"""Bytes of a column, an array, or a small dict."""


def weight(entries: Sized, each: int) -> int:
    """Bytes of a list or dict of which every entry takes *each* besides."""
    return getsizeof(entries) + each * len(entries)


_LEAST_GROWN = 16
"""Rows of a column that one is appended to, at least."""


class Column:
    """
    A growable array: one writer appends, readers keep the views they took. Growing copies into a
    new buffer, so a view stays as it was; rows below a view's length are never written again,
    except by ``replace``, which copies first.
    """

    __slots__ = ("_data", "count")

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self._data = _no_rows(dtype, width)
        self.count: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of its rows, those to come among them."""
        return self._data.nbytes

    def append(self, value: Any) -> None:
        if self.count == len(self._data):
            self._reserve(max(self.count + 1, _LEAST_GROWN))
        self._data[self.count] = value
        self.count += 1

    def extend(self, values: Any) -> None:
        end = self.count + len(values)
        self._reserve(end)
        self._data[self.count : end] = values
        self.count = end

    def replace(self, rows: Any, value: Any) -> None:
        """Set *rows* to *value* in a copy; views taken before keep what they had."""
        self._data = self._data.copy()
        self._data[rows] = value

    def link(self, rows: Any, values: Any) -> None:
        """Set *rows* where they are: for what no reader looks at before it is set."""
        self._data[rows] = values

    def view(self) -> NDArray[Any]:
        """All rows, without a copy."""
        # First the length: a buffer that is read later holds at least as many rows.
        rows = self.count
        return self._data[:rows]

    def _reserve(self, end: int) -> None:
        if end > len(self._data):
            # What is reserved takes no memory before it is written to.
            rows = max(end, 2 * len(self._data))
            grown = np.zeros((rows, *self._data.shape[1:]), self._data.dtype)
            grown[: self.count] = self._data[: self.count]
            self._data = grown


@cache
def _no_rows(dtype: Any, width: int | None) -> NDArray[Any]:
    """The buffer of columns that hold nothing yet: one for all."""
    return np.zeros(0 if width is None else (0, width), dtype)


# ── Words ───────────────────────────────────────────────────────────────────────────────


_TF_BITS = 16
_MAX_TF = (1 << _TF_BITS) - 1
_DOCUMENT_BITS = 32
_REPEATED = 16_384
"""Documents at once whose numbers are repeated, for which NumPy keeps the interpreter."""


class Postings:
    """
    Term → documents and counts, as ascending numbers ``document << 16 | count``.

    What the first ``add`` brings (of an index that is read anew: everything) lies end to end;
    each term that later ones bring has a column of its own, so that an addition costs what it
    adds. A reader asks with the number of documents it knows of, and never sees a later one.
    """

    __slots__ = ("_first", "_later", "_numbers", "_rows")

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self._first = (np.zeros(1, np.int64), np.zeros(0, np.int64))
        self._later: dict[int, Column] = {}
        self._rows = 0

    @property
    def nbytes(self) -> int:
        """Bytes in memory, of the later columns with those of their rows."""
        return sum(one.nbytes for one in self._first) + self._rows + weight(self._later, OBJECT)

    def add(self, first: int, lengths: NDArray[np.int32], terms: NDArray[np.int32]) -> None:
        """Add documents from number *first* on: how many *terms* each has, and these end to end."""
        if not len(terms):
            return
        owners, codes = coded(first, lengths, terms)
        if not len(self._first[1]):
            self._first = (np.searchsorted(owners, np.arange(owners[-1] + 2)), codes)
            return
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        ends = [*begins[1:].tolist(), len(codes)]
        for term, begin, end in zip(owners[begins].tolist(), begins.tolist(), ends, strict=True):
            known = self._later.setdefault(term, Column(np.int64))
            self._rows -= known.nbytes
            known.extend(codes[begin:end])
            self._rows += known.nbytes

    def look_for(self, terms: Sequence[str], hashed: Hashes) -> None:
        """Find *terms*, of which *hashed* are the ``hashes``, at once: they are to be read."""

    def read(self, term: str, documents: int) -> tuple[Codes, Floats] | None:
        """The documents below *documents* that hold *term*, with counts; ``None`` if none."""
        number = self._numbers.get(term)
        if number is None:
            return None
        begins, codes = self._first
        begin, end = begins[number : number + 2] if number + 1 < len(begins) else (0, 0)
        codes = codes[begin:end]
        if (later := self._later.get(number)) is not None:
            codes = np.concatenate((codes, later.view())) if len(codes) else later.view()
        if len(codes) and codes[-1] >> _TF_BITS >= documents:
            codes = codes[: int(np.searchsorted(codes, documents << _TF_BITS))]
        if not len(codes):
            return None
        return parted(codes)

    def beginning(self, start: str) -> list[str]:
        """The terms that begin with *start*, in whatever order."""
        return [term for term in [*self._numbers] if term.startswith(start)]


def parted(codes: Codes) -> tuple[Codes, Floats]:
    """The documents and counts of postings."""
    return codes >> _TF_BITS, (codes & _MAX_TF).astype(np.float32)


def coded(first: int, lengths: NDArray[np.int32], terms: NDArray[np.int32]) -> tuple[Codes, Codes]:
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


# ── Metadata ────────────────────────────────────────────────────────────────────────────


MOST_ASKED = 64
"""Filters whose answers are kept, and keys of which is kept who holds a value, the last ones."""


class Facets:
    """The metadata objects of an index, numbered; 0 is the empty one. One writer adds."""

    def __init__(self) -> None:
        self.texts: list[str] = ["{}"]
        self._objects: list[Mapping[str, Any]] = [{}]
        self._numbers = {"{}": 0}
        self._answers: dict[str, Column] = {}
        self._holders: dict[tuple[str, ...], _Holders] = {}
        self._characters = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Bytes in memory, estimated from the characters of the objects as JSON."""
        answers = sum(one.nbytes for one in self._answers.values())
        holders = sum(one.read * OBJECT for one in self._holders.values())
        objects = getsizeof(self._objects) + weight(self._numbers, OBJECT)
        return objects + 3 * self._characters + answers + holders

    def number(self, metadata: Mapping[str, Any] | None) -> int:
        """The number of *metadata*; the same for an equal one."""
        return self.number_of(json.dumps(metadata, sort_keys=True)) if metadata else 0

    def number_of(self, text: str) -> int:
        """The number of the metadata that *text*, of ``texts``, stands for."""
        number = self._numbers.setdefault(text, len(self._objects))
        if number == len(self._objects):
            self.texts.append(text)
            self._objects.append(json.loads(text))
            self._characters += len(text)
        return number

    def holding(self, where: Where) -> Mask:
        """By number, whether *where* holds; shape ``(n,)``, n all that are numbered by now."""
        asked, breather = repr(where), Breather()  # Not by equality: 1 equals True.
        with self._lock:
            answers = lately(self._answers, asked, lambda: Column(np.bool_))
            # Counted once: the writer goes on meanwhile.
            asking = range(answers.count, len(self._objects))
            new = np.zeros(len(asking), np.bool_)
            for number in self._worth_asking(where, asking):
                new[number - asking.start] = where.holds(self._objects[number])
                breather.breathe()
            answers.extend(new)
            return answers.view()

    def _worth_asking(self, where: Where, asking: range) -> Iterable[int]:
        """Those of the objects *asking* that hold a value *where* names; all, if it names none."""
        named = next((one for one in where.conditions if one.any_of is not None), None)
        if named is None or named.any_of is None:
            return asking
        holders = lately(self._holders, named.path, _Holders)
        holders.follow(self._objects, named.path)
        found = (holders.get((kind_of(value), value), ()) for value in named.any_of)
        return {number for numbers in found for number in numbers if number in asking}


class _Holders(dict[tuple[ScalarKind | None, Any], list[int]]):
    """By kind and value, the numbers of the metadata objects that hold it under one key."""

    read = 0

    def follow(self, objects: Sequence[Mapping[str, Any]], path: tuple[str, ...]) -> None:
        breather = Breather()
        for number in range(self.read, len(objects)):
            for member in members(objects[number], path) or ():
                if (kind := kind_of(member)) is not None:
                    self.setdefault((kind, member), []).append(number)
            self.read = number + 1
            breather.breathe()


def lately(cache: dict[K, V], key: K, make: Callable[[], V], most: int = MOST_ASKED) -> V:
    """The value under *key*, made where there is none; the last *most* keys are kept."""
    value = cache[key] = cache.pop(key) if key in cache else make()
    if len(cache) > most:
        del cache[next(iter(cache))]
    return value


def products(vectors: Floats | Coded, row: Floats) -> Floats:
    """The product of each of *vectors* with *row*."""
    if isinstance(vectors, Coded):
        return np.asarray(products_of(vectors, row[np.newaxis])[0])
    # Not BLAS: its threads spin for one another, and on a busy machine a product that
    # takes 2 ms took 50. Memory is the limit, not arithmetic.
    return np.asarray(np.einsum("ij,j->i", vectors, row))


def ascending(*numbers: Numbers) -> Numbers:
    """All of *numbers* from 0 on, once each; -1 is left out."""
    # As ``np.unique``, in a fifth of the time, and without 10 ms for NumPy's masked arrays.
    every = np.sort(np.concatenate(numbers))
    return np.asarray(every[np.append(every[:1] >= 0, every[1:] != every[:-1])])


class Coded:
    """Vectors as *codes*, one of which counts as much as the scale of each; read, they are rows."""

    def __init__(self, codes: NDArray[Any], scales: Floats) -> None:
        self.codes: NDArray[Any] = codes
        self.scales: Floats = scales
        self.shape: tuple[int, ...] = codes.shape

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Floats:
        return np.asarray(self.codes[rows] * self.scales[rows, np.newaxis], np.float32)


_MULTIPLIED = 2**18
"""Multiplications at once, so few that BLAS starts no threads: they spin for one another."""


def products_of(rows: NDArray[Any] | Coded, vectors: Floats) -> Floats:
    """The products of each of *vectors* with all *rows*, shape ``(vectors, rows)``."""
    if isinstance(rows, Coded):
        return products_of(rows.codes, vectors) * rows.scales
    if len(vectors) == 1:
        return products_of(rows, np.repeat(vectors, 2, axis=0))[:1]  # Else BLAS starts threads.
    found, step = np.empty((len(rows), len(vectors)), np.float32), _MULTIPLIED // vectors.size or 1
    for at in range(0, len(rows), step):
        some = rows[at : at + step].astype(np.float32, copy=False)
        np.matmul(some, vectors.T, out=found[at : at + step])
    return found.T

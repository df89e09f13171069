"""
Columns at rest: what reading and tokenising texts gave, kept in the store.

A *segment* holds some documents of one repository, in the order of their numbers: columns, terms
and names, no vectors and no nodes themselves. Those of steps and messages are one *chain*, each
segment going on where the one before ends, those of nodes another. It is made of rows and can be
made anew from them; what leaves recall leaves its segments in the same transaction (``erased``).
"""

from __future__ import annotations

import json
import math
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b, shake_128
from itertools import pairwise
from mmap import mmap
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from mnemo.english.words import ANALYSER
from mnemo.index.columns import ascending
from mnemo.runtime.clock import breathed
from mnemo.store.rows import UNDECODABLE
from mnemo.values.feed import FeedCursor

SEALED_FROM = 64
"""Documents that wait in memory alone, at most, before they are kept (scale.md section 3)."""
MOST_DOCUMENTS = 4_096
"""Documents of a segment, about: so many are packed in a tenth of a second, while recalls wait."""
MERGED = 8
"""Segments of one size that become one: a document is written again once per eightfold size."""


NAMED: dict[str, tuple[str, ...]] = {
    "chains": ("session", "thread"),
    "actors": ("actor", "told_by"),
    "metadata": ("metadata",),
    "terms": ("terms",),
}
"""Kind of names → columns that hold their numbers, from 1; 0 is none."""


# ── A segment as bytes ────────────────────────────────────────────────────────────────
# Head, what is said in JSON, a checksum for each block of the arrays, and the arrays: all of it
# little-endian and aligned, so that a file can be mapped, and opening it decodes no document.
# What is no whole block at the end of the arrays is checked with the head.


_MAGIC = b"mnemseg3"
_HEAD = struct.Struct("<8sIIQ")
_ALIGNED = 8
_BLOCK = 4_096
"""Bytes under one checksum: a page, so that checking reads little that is not asked for."""
_WEIGHTS = np.frombuffer(shake_128(_MAGIC).digest(_BLOCK), "<u8") | np.uint64(1)
"""Of the words of a block, in its checksum; odd, so that no other value of one gives the same."""
# Of changes of several words, one in 2^64 passes by chance, and that of two highest bits alone.
_AT_ONCE = 64
"""Blocks that are copied to be checked, so few that they are still in the processor's memory."""
_FOUND = frozenset(("ids", "chains", "terms", "behind"))
"""Kinds of names whose hashes a findable segment holds."""
_FEW = 8
"""Names that are decoded one by one, at most."""

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap
Numbers: TypeAlias = Sequence[int] | NDArray[Any]


class DamagedSegment(ValueError):
    """Met where a part of it is first read."""


class Stored:
    """
    An array in a segment; its blocks are checked when they are first read.

    *Raises* ``DamagedSegment`` then.
    """

    __slots__ = ("_array", "_at", "_body", "_width")

    def __init__(self, body: Body, at: int, dtype: str, shape: Sequence[int]) -> None:
        self._array = np.ndarray(shape, dtype, body.bytes, at)
        self._body, self._at = body, at
        self._width = self._array.dtype.itemsize * math.prod(shape[1:])

    def __len__(self) -> int:
        return len(self._array)

    @property
    def size(self) -> int:
        """Bytes, with those that align what follows."""
        return self._array.nbytes + -self._array.nbytes % _ALIGNED

    def cut(self, begin: int = 0, end: int | None = None) -> NDArray[Any]:
        """The rows from *begin* to *end*, read-only, without a copy."""
        end = len(self) if end is None else end
        self._body.check(self._at + begin * self._width, self._at + end * self._width)
        return self._array[begin:end]

    def spans(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any]:
        """All rows, of which those from each of *begins* to its end may be read."""
        end = self._at + self._array.nbytes
        if not self._body.has(self._at, end):
            size = int((ends - begins).max(initial=0)) * self._width
            self._body.check_each(np.minimum(self._at + begins * self._width, end - size), size)
        return self._array

    def around(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the rows, which ascend, begin and cease to be each of *values*."""
        first, last = (self._array.searchsorted(values, side) for side in ("left", "right"))
        # Undamaged rows on both sides of where a value belongs show that it belongs there.
        beside = np.concatenate((first - 1, first, last - 1, last))
        self.rows(beside[(beside >= 0) & (beside < len(self))])
        return first, last

    def rows(self, numbers: Numbers) -> NDArray[Any]:
        """The rows *numbers*, from 0, copied."""
        numbers = np.asarray(numbers, np.int64)
        if not self._body.has(self._at, self._at + self._array.nbytes):
            # No number lies in two blocks.
            size = self._width if _ALIGNED % (self._width or 1) else 1
            self._body.check_each(self._at + numbers * self._width, size)
        return self._array[numbers]


class Body:
    """The arrays of a segment as *bytes*, and the checksums of their blocks."""

    __slots__ = ("_blocks", "_checked", "_marks", "_sums", "bytes")

    def __init__(self, data: memoryview, sums: NDArray[np.uint64]) -> None:
        self.bytes: memoryview = data
        self._sums, self._blocks = sums, _blocks(data)
        self._checked = bytearray(len(sums)) + b"\1"  # The rest is.
        self._marks = np.frombuffer(self._checked, np.uint8)

    def check(self, begin: int, end: int) -> None:
        """Check the blocks that hold the bytes from *begin* to *end*."""
        if not self.has(begin, end):
            self._check(slice(begin // _BLOCK, min(-(-end // _BLOCK), len(self._sums))))

    def has(self, begin: int, end: int) -> bool:
        """Whether these were checked."""
        return begin >= end or 0 not in self._checked[begin // _BLOCK : -(-end // _BLOCK)]

    def check_each(self, begins: NDArray[np.int64], size: int) -> None:
        """Likewise *size* bytes from each of *begins* on."""
        for offset in {*range(0, size, _BLOCK), size - 1}:
            # Shifting takes a tenth of the time of dividing.
            blocks = (begins + offset) >> (_BLOCK.bit_length() - 1)
            new = blocks[self._marks[blocks] == 0]
            new = ascending(new) if len(new) else new
            for at in range(0, len(new), _AT_ONCE):
                self._check(new[at : at + _AT_ONCE])

    def _check(self, blocks: slice | NDArray[np.int64]) -> None:
        # As fast as the memory, where a CRC of each took five times as long.
        sums = self._blocks[blocks] @ _WEIGHTS[: _BLOCK // 8]
        if sums.tobytes() != self._sums[blocks].tobytes():
            raise DamagedSegment("a damaged segment: another checksum")
        self._marks[blocks] = 1


def _blocks(data: Buffer) -> NDArray[np.uint64]:
    """The words of the whole blocks of *data*."""
    words = len(data) // _BLOCK * (_BLOCK // 8)
    return np.frombuffer(data, "<u8", words).reshape(-1, _BLOCK // 8)


class Columns(Mapping[str, NDArray[Any]]):
    """Arrays by name; *stored* gives parts of them, of which alone the blocks are read."""

    __slots__ = ("stored",)

    def __init__(self, stored: Mapping[str, Stored]) -> None:
        self.stored: Mapping[str, Stored] = stored

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.stored[name].cut()

    def __contains__(self, name: object) -> bool:
        return name in self.stored  # Without reading it.

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


class Names(Sequence[str]):
    """Texts in a segment, decoded when they are asked for."""

    __slots__ = ("_begins", "_found", "_places", "_text")

    def __init__(self, begins: Stored, text: Stored, *found: Stored) -> None:
        self._begins, self._text, self._found = begins, text, found
        self._places: NDArray[Any] = np.zeros(0, np.uint8)

    def __len__(self) -> int:
        return len(self._begins) - 1

    def __iter__(self) -> Iterator[str]:
        return iter(_cut(self._text.cut().tobytes(), self._begins.cut().tolist()))

    def __getitem__(self, at: Any) -> Any:
        chosen = range(len(self))[at]
        return self.some(chosen) if isinstance(chosen, range) else self.some([chosen])[0]

    def some(self, numbers: Numbers) -> list[str]:
        """The names *numbers*, in that order."""
        numbers = np.asarray(numbers, np.int64)
        begins, ends = (self._begins.rows(at).astype(np.int64) for at in (numbers, numbers + 1))
        if len(numbers) <= _FEW:
            cuts = zip(begins.tolist(), ends.tolist(), strict=True)
            return [_decoded(self._text.cut(begin, end).data) for begin, end in cuts]
        text, lengths = self._text.spans(begins, ends), ends - begins
        last = np.cumsum(lengths)
        places = np.repeat(ends - last, lengths)
        return _cut(text[places + np.arange(len(places))].tobytes(), [0, *last.tolist()])

    def find(self, asked: Sequence[str], hashed: NDArray[np.uint64] | None = None) -> Places:
        """For each of *asked* its first place; -1: it is not there. *hashed*: their ``hashes``."""
        found = np.full(len(asked), -1, np.int64)
        which, places = self.find_all(asked, hashed)
        found[which[::-1]] = places[::-1]
        return found

    def find_all(
        self, asked: Sequence[str], hashed: NDArray[np.uint64] | None = None
    ) -> tuple[Places, Places]:
        """All places of *asked*: which of them, ascending, and where."""
        hashed = hashes(asked) if hashed is None else hashed
        if self._found:
            first, last = self._found[0].around(hashed)
        else:
            ordered, order = self.by_hash()
            first, last = (ordered.searchsorted(hashed, side) for side in ("left", "right"))
        counts = last - first
        which = at = counts.nonzero()[0]
        if len(which):
            if counts.max() > 1:
                which = np.repeat(which, counts[at])
                within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
                at = np.repeat(first, counts) + within
            else:
                at = first[which]
        places = (self._found[1].rows(at) if self._found else order[at]).astype(np.int64)
        found = zip(which.tolist(), self.some(places), strict=True)
        same = [asked[one] == name for one, name in found]
        return (which, places) if all(same) else (which[same], places[same])

    def beginning(self, start: str) -> list[str]:
        """The names that begin with *start*."""
        found = re.finditer(re.escape(_encoded(start)), self._text.cut().tobytes())
        at = np.array([one.start() for one in found], np.int64)
        return self.some(np.flatnonzero(np.isin(self._begins.cut()[:-1], at)))

    def hashed(self, numbers: Numbers) -> NDArray[np.uint64]:
        """The ``hashes`` of the names *numbers*."""
        ordered, order = self.by_hash()
        if not len(self._places):
            # As a whole: others may read meanwhile.
            self._places = narrowed(np.argsort(order, kind="stable"))
        return np.asarray(ordered[self._places[numbers]])

    def hashed_as(self, some: NDArray[np.uint64]) -> list[str]:
        """The names with one of the hashes *some*, which ascend and are not none."""
        ordered, order = self.by_hash()
        at = np.minimum(some.searchsorted(ordered), len(some) - 1)
        return self.some(order[some[at] == ordered])

    def by_hash(self) -> tuple[NDArray[np.uint64], NDArray[Any]]:
        """The ``hashes``, ascending, and the places of their names."""
        return (self._found[0].cut(), self._found[1].cut()) if self._found else _ordered(self)


Places: TypeAlias = NDArray[np.int64]


def hashes(names: Iterable[str]) -> NDArray[np.uint64]:
    """Stable hashes, by which a segment finds names."""
    digests = (blake2b(_encoded(name), digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(digests), "<u8")


def _ordered(names: Iterable[str]) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    hashed = hashes(breathed(names))
    order = np.argsort(hashed, kind="stable")
    return hashed[order], narrowed(order)


def _cut(encoded: bytes, ends: Sequence[int]) -> list[str]:
    """The names that lie between each two of *ends*."""
    if encoded.isascii():
        text = encoded.decode("ascii")
        return [text[begin:end] for begin, end in pairwise(ends)]
    return [_decoded(encoded[begin:end]) for begin, end in pairwise(ends)]


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _decoded(encoded: bytes | memoryview) -> str:
    return str(encoded, "utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Repeats:
    """Steps that are found as a message's document, as of ``Batch``."""

    steps: Names
    messages: Names
    sessions: Names
    born: Stored

    def __len__(self) -> int:
        return len(self.born)

    def __iter__(self) -> Iterator[tuple[str, str, str, int]]:
        born = self.born.cut().tolist()
        return zip(self.steps, self.messages, self.sessions, born, strict=True)


@dataclass(frozen=True, slots=True)
class Batch:
    """
    Documents of one type without their vectors.

    Attributes:
        columns: Name → a value for each document, but for ``terms``: the numbers of the terms of
            all documents, end to end. Numbers of names count within *names*.
        names: Kind of name → the names; ``ids`` has one for each document.
        repeats: Steps that are found as a message's document: id, message's id, session, ordinal.
            Of documents that stand alone its id is empty: in large segments of those whose message
            is gone, or that cannot have vectors; and of those whose row was damaged, which stands
            for the session, with the ordinal 0.
    """

    columns: Mapping[str, NDArray[Any]]
    names: Mapping[str, Sequence[str]]
    repeats: Sequence[Sequence[Any]] | Repeats = ()

    def __len__(self) -> int:
        return len(self.names["ids"])


Batches: TypeAlias = Mapping[str, Batch]
"""By type; those of steps and messages are ``steps``."""
Chain: TypeAlias = Literal["steps", "nodes"]
CHAINS: tuple[Chain, ...] = get_args(Chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """
    What a segment says of itself.

    Attributes:
        repo: The store's number of the repository.
        chain: Of steps and messages, or of nodes.
        after, until: The feed's cursors behind and up to which it holds what was read.
        reading: By what its columns were made; others are of no use (``reading``).
        documents: How many it holds.
        tongues: Of the last messages, whether they are in another language than the embedder's.
    """

    repo: int
    chain: Chain
    after: FeedCursor
    until: FeedCursor
    reading: str
    documents: int
    tongues: tuple[bool, ...] = ()


def reading(**settings: object) -> str:
    """Names what decides how a text becomes columns: this code, and *settings*."""
    return json.dumps([ANALYSER, settings], sort_keys=True)


def narrowed(numbers: NDArray[Any]) -> NDArray[Any]:
    """Numbers from 0 in as few bytes as hold them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def packed(head: Head, batches: Batches, *, findable: bool = False) -> bytes:
    """A segment as bytes; *findable*: ``Names.find`` needs not read all names."""
    body, parts = bytearray(), dict[str, Any]()

    def put(array: NDArray[Any]) -> list[Any]:
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        body.extend(array.tobytes())
        body.extend(bytes(-len(body) % _ALIGNED))
        return [array.dtype.str, *array.shape]

    def put_names(names: Iterable[str], found: bool) -> list[Any]:
        encoded = [_encoded(name) for name in breathed(names)]
        begins = narrowed(np.cumsum([0, *map(len, encoded)]))
        arrays = [begins, np.frombuffer(b"".join(encoded), np.uint8)]
        return [put(array) for array in (*arrays, *(_ordered(names) if found else ()))]

    for kind, batch in batches.items():
        columns = {name: put(array) for name, array in batch.columns.items()}
        names = {
            name: put_names(some, findable and name in _FOUND) for name, some in batch.names.items()
        }
        repeats = list[Any]()
        if batch.repeats:
            *texts, born = zip(*batch.repeats, strict=True)
            repeats = [put_names(some, findable) for some in texts] + [put(np.array(born))]
        parts[kind] = [columns, names, repeats]
    said = _encoded(json.dumps([asdict(head), parts], ensure_ascii=False, separators=(",", ":")))
    said += b" " * (-len(said) % _ALIGNED)
    sums = (_blocks(body) @ _WEIGHTS[: _BLOCK // 8]).astype("<u8").tobytes()
    checksum = zlib.crc32(body[len(body) // _BLOCK * _BLOCK :], zlib.crc32(said + sums))
    return b"".join((_HEAD.pack(_MAGIC, checksum, len(said), len(body)), said, sums, body))


def unpacked(segment: Buffer, *, at_once: bool = True) -> tuple[Head, Batches]:
    """
    The parts of ``packed``, as views. What is not checked *at_once*, is when it is first read.

    *Raises* ``ValueError``: it is damaged, or of another version.
    """
    try:
        said, body = opened(segment)
        if at_once:
            body.check(0, len(body.bytes))
        head, parts = json.loads(_decoded(said))
        head |= {end: FeedCursor(**head[end]) for end in ("after", "until")}
        head["tongues"] = tuple(head["tongues"])
        return Head(**head), _batches(body, parts)
    except UNDECODABLE as error:
        raise ValueError(f"a damaged segment: {error}") from error


def opened(segment: Buffer) -> tuple[memoryview, Body]:
    """What it says, and its arrays. *Raises* ``ValueError``: of another kind, length or head."""
    whole = memoryview(segment).toreadonly()
    magic, checksum, said, size = _HEAD.unpack(whole[: _HEAD.size].tobytes().ljust(_HEAD.size))
    sums = size // _BLOCK
    begin = _HEAD.size + said + sums * 8
    if magic != _MAGIC or len(whole) != begin + size:
        raise ValueError("of another length or kind")
    rest = whole[begin + sums * _BLOCK :]
    if zlib.crc32(rest, zlib.crc32(whole[_HEAD.size : begin])) != checksum:
        raise ValueError("another checksum")
    body = Body(whole[begin:], np.frombuffer(whole, "<u8", sums, _HEAD.size + said))
    return whole[_HEAD.size : _HEAD.size + said], body


def _batches(body: Body, parts: Mapping[str, Any]) -> Batches:
    at = 0

    def take(array: Any) -> Stored:
        nonlocal at
        dtype, *shape = array
        stored = Stored(body, at, dtype, shape)
        at += stored.size
        return stored

    batches = {}
    for kind, (columns, names, repeats) in parts.items():
        stored = Columns({name: take(array) for name, array in columns.items()})
        texts = {name: Names(*map(take, arrays)) for name, arrays in names.items()}
        repeated: Repeats | tuple[()] = ()
        if repeats:
            steps, messages, sessions = (Names(*map(take, arrays)) for arrays in repeats[:-1])
            repeated = Repeats(steps, messages, sessions, take(repeats[-1]))
        batches[kind] = Batch(stored, texts, repeated)
    return batches


def digest_of(segment: bytes) -> str:
    """The name of the file that holds *segment*."""
    return blake2b(segment, digest_size=20).hexdigest()


# ── Which are merged ──────────────────────────────────────────────────────────────────


def absorbed(sizes: Sequence[int], documents: int) -> int:
    """
    How many of the last segments of *sizes* are made one with *documents* new ones: the last
    ``MERGED`` of about one size, and so on upwards.
    """
    left, merged = [*sizes, documents], 0
    while len(left) >= MERGED:
        last = left[-MERGED:]
        if sum(last) > MOST_DOCUMENTS or _magnitude(min(last)) < _magnitude(max(last)):
            break
        left[-MERGED:] = [sum(last)]
        merged = len(sizes) + 1 - len(left)
    return merged


def _magnitude(documents: int) -> int:
    # Those that lost up to half of their documents are still of a size with their neighbours.
    return (max(2 * documents // SEALED_FROM, 1).bit_length() - 1) // (MERGED.bit_length() - 1)

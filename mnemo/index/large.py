"""
Repositories of more than ``EXACT`` steps and messages: segments that are searched where they lie.

A *large* segment holds, beside the columns of its documents, their vectors in a byte for each
number, and what a question needs and can be made of these: postings, sign bits, pieces and sums.
It is mapped, not read; of each question the best documents are gathered from all of them.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.index.batches import OF_PIECES, sign_bits, those
from mnemo.index.columns import (
    Codes,
    Facets,
    Floats,
    Hashes,
    Mask,
    Numbers,
    Postings,
    ascending,
    lately,
)
from mnemo.index.corpus import CorpusView, DocumentsView, Part, StepsView, Sums
from mnemo.index.pieces import Pieces
from mnemo.index.segments import (
    Batch,
    Batches,
    Columns,
    Head,
    Names,
    Repeats,
    Stored,
    hashes,
)
from mnemo.runtime.clock import Breather
from mnemo.values.filters import Where
from mnemo.values.graph import Node, NodeType

EXACT = 20_000
"""Steps and messages up to which all are scored for each question (scale.md section 3)."""
LARGE = 16_384
"""Documents of a large segment, at most."""
LARGE_FROM = 4_096
"""Documents that wait in memory, at most, before one is made, maybe of the last one and these."""
CLAIMS: tuple[NodeType, ...] = ("semantic", "procedural")
"""Types that large segments hold where they lie; there are few of the others."""
_READ = 8
"""Terms of a segment whose postings are kept as they were read, filters likewise."""
# ── Read ──────────────────────────────────────────────────────────────────────────────


class Sealed:
    """
    Documents of one type in a large segment, where they lie; numbers of names begin at 1.

    *alive*: Without what has left recall, or was written anew, and is still in it.
    """

    def __init__(self, batch: Batch, alive: Mask | None = None) -> None:
        assert isinstance(batch.columns, Columns)
        self.batch = batch
        self._alive = np.broadcast_to(np.True_, len(batch)) if alive is None else alive
        self._stored: Mapping[str, Stored] = batch.columns.stored

    def without(self, ids: Sequence[str], hashed: Hashes | None = None) -> Self:
        """The same without the documents of *ids*."""
        places = self.find(ids, hashed)[1]
        if not len(places):
            return self
        alive = self._alive.copy()
        alive[places] = False
        return type(self)(self.batch, alive)

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def is_whole(self) -> bool:
        """Whether all of it is found."""
        return bool(self._alive.all())

    @cached_property
    def view(self) -> DocumentsView:
        """Its documents as columns, without vectors; ids are found in ``ids``."""
        return DocumentsView(**_columns(self.batch, self._alive))

    @cached_property
    def current(self) -> Mask:
        """Which are found, and hold now."""
        return np.asarray(self._alive & np.isinf(self.view.valid_to))

    @property
    def living(self) -> Batch:
        """Those that are found."""
        return self.batch if self.is_whole else those(self.batch, self._alive)

    @property
    def ids(self) -> Names:
        """The id of each document."""
        return _names(self.batch, "ids")

    def find(self, ids: Sequence[str], hashed: Hashes | None = None) -> tuple[Numbers, Numbers]:
        """As of every ``Part``."""
        which, places = self.ids.find_all(ids, hashed)
        alive = self._alive[places]
        return which[alive], places[alive]

    def named(self, numbers: Numbers) -> list[str]:
        """As of every ``Part``."""
        return self.ids.some(numbers)

    def nodes_of(self, numbers: Numbers) -> tuple[Sequence[Node | None], Sequence[str | None]]:
        """As of every ``Part``."""
        origins: Sequence[str | None] = ()
        if "origins" in self.batch.names:
            origins = _names(self.batch, "origins").some(numbers)
        return [None] * len(numbers), origins

    @property
    def embedded(self) -> Mask:
        """As of every ``Part``."""
        return np.asarray(self.batch.columns["vectors"] > 0)

    def firsts(self, numbers: Numbers) -> Floats:
        """As of every ``Part``."""
        return self.vectors(self._begins[numbers])

    @property
    def centre(self) -> tuple[NDArray[np.float64], int]:
        """The sum of the documents' first vectors, and how many these are."""
        return self.batch.columns["sum"], int(self.batch.columns["summed"][0])

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self._stored["middle"].cut().shape[0])

    @cached_property
    def owners(self) -> NDArray[Any]:
        """Whose each vector is."""
        return self.batch.columns["owners"]

    @cached_property
    def _begins(self) -> NDArray[np.int64]:
        """Of the vectors of each document, and behind the last."""
        return _begins(self.batch.columns["vectors"])

    @cached_property
    def _are_single(self) -> bool:
        """Whether each document has one vector."""
        return bool((self.batch.columns["vectors"] == 1).all())

    def distances(self, bits: NDArray[np.uint64]) -> NDArray[np.uint16]:
        """How many signs of each vector are not *bits*, as of ``sign_bits``, less its middle."""
        differing = np.bitwise_count(self.batch.columns["signs"] ^ bits[:, np.newaxis])
        return np.asarray(differing.sum(axis=0, dtype=np.uint16))

    def coded(self, rows: Numbers) -> tuple[NDArray[np.int8], Floats]:
        """Vectors by their numbers, as codes, and what one of each counts."""
        return self._stored["codes"].rows(rows), self._stored["scales"].rows(rows)

    def vectors(self, rows: Numbers) -> Floats:
        """Vectors by their numbers."""
        codes, scales = self.coded(rows)
        return np.asarray(codes * scales[:, np.newaxis], np.float32)

    def rows_of(self, numbers: Numbers) -> tuple[Numbers, Numbers, NDArray[np.uint8]]:
        """The numbers of all vectors of documents *numbers*; of which each is, and passages."""
        if self._are_single:
            return numbers, numbers, np.zeros(len(numbers), np.uint8)
        rows, owners, passages = _spread(self._begins, numbers)
        return rows, owners, passages.astype(np.uint8)

    def vectors_of(self, numbers: Numbers) -> tuple[Floats, Numbers, NDArray[np.uint8]]:
        """As of every ``Part``."""
        rows, owners, passages = self.rows_of(numbers)
        return self.vectors(rows), owners, passages


class SealedSteps(Sealed):
    """The steps and messages of a large segment."""

    @cached_property
    def view(self) -> StepsView:
        """As of every ``Sealed``."""
        return _steps_view(self.batch, self._alive)

    @cached_property
    def pieces(self) -> Pieces:
        """The pieces of these documents alone."""
        columns, exists = self.batch.columns, self._alive
        piece = columns["piece"]
        around = (columns[name] for name in OF_PIECES[1:])
        return Pieces(exists, piece, int(piece.max(initial=-1)) + 1, *around)

    @property
    def current(self) -> Mask:
        """As of every ``Sealed``."""
        return self._alive

    @cached_property
    def sums(self) -> Sums:
        """Of its documents."""
        return Sums.of(self.view, self.pieces)

    @cached_property
    def of_pieces(self) -> Floats:
        """The length of each of its pieces, in terms."""
        return self.pieces.sums(self.view.lengths)


class SealedClaims(Sealed):
    """The facts, or the instructions, of a large segment; what is behind them are ids of steps."""

    @cached_property
    def _rests(self) -> NDArray[np.int64]:
        """Of what is behind each document, and behind the last."""
        return _begins(self.batch.columns["behind"])

    @property
    def rests(self) -> bool:
        """Whether any has steps behind it."""
        return len(_names(self.batch, "behind")) > 0

    @property
    def resting(self) -> Mask:
        """Which have steps behind them."""
        return np.asarray(self.batch.columns["behind"] > 0)

    def behind(self, numbers: Numbers) -> Iterator[tuple[int, str]]:
        """Each of documents *numbers* with each step behind it."""
        if not self.rests:
            return zip((), (), strict=True)
        places, owners, _ = _spread(self._rests, numbers)
        return zip(owners.tolist(), _names(self.batch, "behind").some(places), strict=True)

    def resting_on(self, steps: Sequence[str], hashed: Hashes) -> Numbers:
        """The living documents behind which one of *steps* is."""
        if not self.rests:
            return np.zeros(0, np.int64)
        _, places = _names(self.batch, "behind").find_all(steps, hashed)
        numbers = ascending(np.searchsorted(self._rests, places, "right") - 1)
        return numbers[self._alive[numbers]]


def _begins(counts: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _spread(begins: NDArray[np.int64], numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """All rows of *numbers*, of which each is, and its number among these."""
    first = begins[numbers]
    counts = begins[numbers + 1] - first
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(first, counts) + within, np.repeat(numbers, counts), within


def _names(batch: Batch, kind: str) -> Names:
    names = batch.names[kind]
    assert isinstance(names, Names)
    return names


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A large segment: its documents by type, and those of types that are held in memory."""

    head: Head
    sealed: Mapping[str, Sealed]
    others: Batches

    @classmethod
    def of(cls, head: Head, batches: Batches) -> Segment:
        sealed: dict[str, Sealed] = {
            kind: SealedSteps(batch) if kind == "steps" else SealedClaims(batch)
            for kind, batch in batches.items()
            if "codes" in batch.columns
        }
        return cls(head, sealed, {k: batch for k, batch in batches.items() if k not in sealed})

    def without(self, ids: Sequence[str], hashed: Hashes | None = None) -> Segment:
        """The same without the documents of *ids*."""
        hashed = hashes(ids) if hashed is None else hashed
        left = {kind: one.without(ids, hashed) for kind, one in self.sealed.items()}
        return self if left == self.sealed else replace(self, sealed=left)

    def __len__(self) -> int:
        return sum(map(len, self.sealed.values()))


S = TypeVar("S", bound=Sealed)


def coarse(parts: Sequence[tuple[Sealed, Mask]], asked: Floats, most: int) -> list[Numbers]:
    """
    Of each of *parts*, given with its documents that count, which of the about *most* vectors with
    the fewest signs that are not those of *asked* it has.
    """
    if not parts:
        return []
    farthest = len(asked) + 1
    bits = sign_bits(asked - np.stack([part.batch.columns["middle"] for part, _ in parts])).T
    distances = [part.distances(own) for (part, _), own in zip(parts, bits, strict=True)]
    for (part, ok), away in zip(parts, distances, strict=True):
        if not ok.all():
            away[~ok[part.owners]] = farthest
    away, begins = np.concatenate(distances), np.cumsum([0, *map(len, distances)])
    least = bisect_left(range(len(asked)), most, key=lambda d: int(np.count_nonzero(away <= d)))
    near, last = np.flatnonzero(away < least), np.flatnonzero(away == least)
    # Of those that are equally far the last ones, so that many of one text are no more.
    chosen = np.sort(np.concatenate((near, last[max(len(last) + len(near) - most, 0) :])))
    cuts = np.searchsorted(chosen, begins)
    return [chosen[a:b] - begin for a, b, begin in zip(cuts, cuts[1:], begins, strict=False)]


def of_kind(segments: Iterable[Segment], kind: str, wanted: type[S]) -> tuple[S, ...]:
    """The documents of one type in *segments*."""
    found = (one.sealed.get(kind) for one in segments)
    return tuple(one for one in found if isinstance(one, wanted))


def without_replaced(segments: Sequence[Segment]) -> list[Segment]:
    """*segments* without the documents that a later one has anew."""
    every = [sealed.ids.by_hash()[0] for one in segments for sealed in one.sealed.values()]
    hashed = np.sort(np.concatenate([np.zeros(0, np.uint64), *every]))
    twice = hashed[1:][hashed[1:] == hashed[:-1]]
    found, later = [*segments], set[str]()
    for at in range(len(found) - 1, -1, -1) if len(twice) else ():
        ids = {id for one in found[at].sealed.values() for id in one.ids.hashed_as(twice)}
        found[at], later = found[at].without([*ids & later]), later | ids
    return found


class _Held(Postings):
    """The postings of a large segment."""

    __slots__ = ("_batch", "_known", "_places")

    def __init__(self, batch: Batch) -> None:
        super().__init__({})
        self._batch = batch
        self._places: Mapping[str, int] = {}
        self._known: dict[str, tuple[Codes, Floats] | None] = {}

    def look_for(self, terms: Sequence[str], hashed: Hashes) -> None:
        places = _names(self._batch, "terms").find(terms, hashed)
        self._places = dict(zip(terms, places.tolist(), strict=True))

    def read(self, term: str, documents: int) -> tuple[Codes, Floats] | None:
        # One question reads each of its terms several times; others may do so at once.
        known = self._known
        if term not in known:
            if len(known) >= _READ:
                self._known = known = {}
            known[term] = self._read(term)
        return known[term]

    def _read(self, term: str) -> tuple[Codes, Floats] | None:
        columns, place = self._batch.columns, self._places.get(term)
        assert isinstance(columns, Columns)
        if place is None:
            place = int(_names(self._batch, "terms").find([term])[0])
        number = place + 1
        if not number:
            return None
        begin, end = columns.stored["begins"].cut(number, number + 2).tolist()
        held, counts = (columns.stored[name].cut(begin, end) for name in ("documents", "counts"))
        return held.astype(np.int64), counts.astype(np.float32)

    def beginning(self, start: str) -> list[str]:
        return _names(self._batch, "terms").beginning(start)


class _Metadata(Facets):
    """The metadata of a large segment; what may hold is decoded for each filter it meets first."""

    def __init__(self, texts: Iterable[str]) -> None:
        super().__init__()
        self._stored = texts
        self._masks: dict[str, Mask] = {}

    def holding(self, where: Where) -> Mask:
        with self._lock:
            return lately(self._masks, repr(where), lambda: self._mask(where), _READ)

    def _mask(self, where: Where) -> Mask:
        breather, holds, said = Breather(), [False], _said(where)
        for text in self._stored:
            may_hold = not said or any(one in text for one in said)
            holds.append(may_hold and where.holds(json.loads(text)))
            breather.breathe()
        return np.array(holds, np.bool_)


def _said(where: Where) -> list[str]:
    """Texts of which metadata as JSON has one where *where* holds of it; none: it may have none."""
    lists = (one.any_of for one in where.conditions if one.any_of is not None)
    named = next((some for some in lists if len(some) <= _READ), ())
    # Numbers may be written in several ways.
    return [json.dumps(one) for one in named] if all(isinstance(one, str) for one in named) else []


class _Numbers(Mapping[str, int]):
    """Names in a segment → their numbers, from 1."""

    def __init__(self, names: Any) -> None:
        self._names = names

    def __getitem__(self, name: str) -> int:
        place = int(self._names.find([name])[0])
        if place < 0:
            raise KeyError(name)
        return place + 1

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _columns(batch: Batch, alive: Mask) -> dict[str, Any]:
    """The fields of a view."""
    columns, count = batch.columns, len(batch)
    kept = ("lengths", "log_words", "first", "metadata", "born", "passages")
    of_claims = ("last", "valid_to", "by_hand")
    none = np.zeros(0, np.int32)
    return {
        "count": count,
        "alive": alive,
        "ids": batch.names["ids"],
        "nodes": (),
        "origins": {},
        "linked": np.broadcast_to(np.int32(-1), count),
        "facets": _Metadata(batch.names["metadata"]),
        "vectors": np.zeros((0, len(columns["middle"])), np.float32),  # Codes are not read whole.
        "vector_documents": none,
        "vector_passages": none.astype(np.uint8),
        "postings": _Held(batch),
        "documents": {},
        "aliases": {},
        **{name: columns[name] for name in kept},
        **{name: columns[name] for name in of_claims if name in columns},
    }


def _steps_view(batch: Batch, alive: Mask) -> StepsView:
    columns, count = batch.columns, len(batch)
    same = {"by_hand": np.False_, "valid_to": np.float64(math.inf)}
    known = _columns(batch, alive)
    known |= {name: np.broadcast_to(value, count) for name, value in same.items()}
    for name in ("session", "thread", "actor", "told_by", "acted", "asks", "form"):
        known[name] = columns[name]
    return StepsView(
        last=columns["first"],
        repeats={},
        joined=np.zeros((0, 2), np.int32),
        chains=_Numbers(batch.names["chains"]),
        actor_numbers=_Numbers(batch.names["actors"]),
        actors=("", *batch.names["actors"]),
        centre=np.zeros(len(columns["middle"]), np.float32),
        **known,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeView(CorpusView):
    """
    A repository of which ``steps`` and ``nodes`` hold the tails alone, behind large segments:
    *sealed* of steps and messages, *claims* of facts and of instructions.

    *waiting* (id of a step → facts or instructions that rest on it, by type), *awaited* (the other
    way round) and *repeating* (step of the tail → its session) are the writer's: look up only.
    """

    sealed: tuple[SealedSteps, ...]
    claims: Mapping[NodeType, tuple[SealedClaims, ...]]
    waiting: Mapping[NodeType, Mapping[str, Sequence[int]]]
    awaited: Mapping[NodeType, Mapping[int, Sequence[str]]]
    repeating: Mapping[str, tuple[str, int]]

    @property
    def is_empty(self) -> bool:
        """As of every view."""
        return False

    @property
    def is_linked(self) -> bool:
        """Whether anything rests on steps that are not in the tail, or repeats messages."""
        claims = (one for parts in self.claims.values() for one in parts)
        linked: list[Sized] = [*self._repeats(), *self.waiting.values(), self.steps.repeats]
        return any(map(len, linked)) or any(one.rests for one in claims)

    def parts(self, kind: NodeType) -> tuple[Part, ...]:
        """As of every view."""
        large: tuple[Part, ...] = self.claims.get(kind, ())
        return (
            *(self.sealed if kind in ("episodic", "source") else large),
            *CorpusView.parts(self, kind),
        )

    def aliases_of(self, ids: Sequence[str]) -> dict[str, str]:
        """As of every view."""
        found, stored = CorpusView.aliases_of(self, ids), [*self._repeats()]
        hashed = hashes(ids if stored else ())
        for repeats in stored:
            which, places = repeats.steps.find_all(ids, hashed)
            messages = repeats.messages.some(places)
            found |= {ids[one]: id for one, id in zip(which.tolist(), messages, strict=True) if id}
        return found

    def resting(self, kind: NodeType) -> Mask:
        """Of the tail, as of every view."""
        rest = CorpusView.resting(self, kind)
        known = np.array([*self.awaited[kind]], np.int64)
        rest[known[known < len(rest)]] = True
        return rest

    def behind_tail(self, kind: NodeType, numbers: Numbers) -> Iterator[tuple[int, str]]:
        """Each of the tail's documents *numbers* of facts or instructions with each step behind."""
        awaited, pairs = self.awaited[kind], self.behind[kind]
        for number in numbers.tolist():
            yield from ((number, id) for id in tuple(awaited.get(number, ())))
        for number, document in pairs[np.isin(pairs[:, 0], numbers)].tolist():
            yield number, self.steps.ids[document]

    def resting_in_tail(
        self, kind: NodeType, steps: Collection[str], documents: Numbers
    ) -> Numbers:
        """The tail's facts or instructions that rest on *steps*, or on *documents* of the tail."""
        waiting, pairs, view = self.waiting[kind], self.behind[kind], self.nodes[kind]
        found = {number for id in waiting.keys() & steps for number in tuple(waiting[id])}
        rest = pairs[np.isin(pairs[:, 1], documents), 0]
        numbers = ascending(np.array([*found], np.int64), rest)
        numbers = numbers[numbers < view.count]
        return numbers[view.alive[numbers]]

    def repeats_of(
        self, ids: Sequence[str], hashed: Hashes
    ) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
        """
        Step → the document among *ids* that it repeats, and the other way round; *hashed*: the
        ``hashes`` of *ids*.
        """
        repeats: dict[str, tuple[str, ...]] = {}
        for sealed in self._repeats():
            which, places = sealed.messages.find_all(ids, hashed)
            for one, step in zip(which.tolist(), sealed.steps.some(places), strict=True):
                repeats[ids[one]] = (*repeats.get(ids[one], ()), step)
        for id in ids if self.steps.repeats else ():
            if steps := self.steps.repeats.get(id, ()):
                repeats[id] = (*repeats.get(id, ()), *steps)
        return {step: id for id, steps in repeats.items() for step in steps}, repeats

    def repeated_in(self, session_id: str) -> list[str]:
        """The documents of messages that steps of a session repeat."""
        tail = [step for step, (id, _) in list(self.repeating.items()) if id == session_id]
        found = [self.steps.aliases.get(step, "") for step in tail]
        for repeats in self._repeats():
            found += repeats.messages.some(repeats.sessions.find_all([session_id])[1])
        return found

    def _repeats(self) -> Iterator[Repeats]:
        repeats = (one.batch.repeats for one in self.sealed)
        return (one for one in repeats if isinstance(one, Repeats))

"""
Repositories of more than ``EXACT`` steps and messages: segments that are searched where they lie.

A *large* segment holds, beside the columns of its documents, their vectors in a byte for each
number, and what a question needs and can be made of these: postings, sign bits, pieces and sums.
It is mapped, not read; of each question the best documents are gathered from all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.index.corpus import (
    Codes,
    CorpusView,
    Facets,
    Floats,
    Mask,
    Postings,
    StepsView,
    Sums,
    coded,
    lately,
    parted,
)
from mnemo.index.pieces import Pieces
from mnemo.index.segments import Batch, Columns, Head, Names, Repeats, Stored, hashes, narrowed
from mnemo.runtime.clock import Breather
from mnemo.values.filters import Where
from mnemo.values.graph import NodeType

EXACT = 20_000
"""Steps and messages up to which all are scored for each question (scale.md section 3)."""
LARGE = 16_384
"""Documents of a large segment."""
_READ = 8
"""Terms of a segment whose postings are kept as they were read, filters likewise."""
_CODE = 127
"""The greatest number of a code."""
_OF_PIECES = ("piece", "previous", "next", "kind", "long")
DERIVED = frozenset(
    (
        *("begins", "documents", "counts", "owners", "signs", "middle", "sum", "summed"),
        *_OF_PIECES,
    )
)
"""Columns that ``derived`` makes of the others."""


# ── Written ───────────────────────────────────────────────────────────────────────────


def with_vectors(batch: Batch, counts: NDArray[Any], rows: Floats) -> Batch:
    """
    *batch* as a large segment has it; *counts*: how many of *rows* each document has, these in the
    order of documents and passages.
    """
    scales = np.maximum(np.abs(rows).max(axis=1, initial=0), 1e-9) / _CODE
    codes = np.rint(rows / scales[:, None]).astype(np.int8)
    of_vectors = {"vectors": narrowed(counts), "codes": codes, "scales": scales.astype(np.float32)}
    return derived(replace(batch, columns={**batch.columns, **of_vectors}))


def derived(batch: Batch) -> Batch:
    """*batch* with the columns ``DERIVED``, made anew."""
    columns = {name: batch.columns[name] for name in batch.columns if name not in DERIVED}
    lengths, counts = columns["lengths"].astype(np.int32), columns["vectors"].astype(np.int64)
    terms, codes = coded(0, lengths, columns["terms"].astype(np.int32))
    documents, times = parted(codes)
    rows = columns["codes"] * columns["scales"][:, None]
    # Signs say more of vectors less their mean.
    middle = rows.mean(axis=0) if len(rows) else np.zeros(rows.shape[1], np.float32)
    first = rows[(np.cumsum(counts) - counts)[counts > 0]]
    columns |= {
        "begins": narrowed(np.searchsorted(terms, np.arange(len(batch.names["terms"]) + 2))),
        "documents": narrowed(documents),
        "counts": narrowed(times.astype(np.int64)),
        "owners": narrowed(np.repeat(np.arange(len(batch)), counts)),
        "signs": sign_bits(rows - middle),
        "middle": middle.astype(np.float32),
        "sum": first.sum(axis=0, dtype=np.float64),
        "summed": np.array([len(first)]),
    }
    said = {name: columns[name] for name in ("session", "first", "actor", "asks", "log_words")}
    pieces = Pieces.of(np.ones(len(batch), np.bool_), **said)
    columns |= {name: getattr(pieces, name) for name in _OF_PIECES}
    return replace(batch, columns=columns)


def sign_bits(rows: Floats) -> NDArray[np.uint64]:
    """The signs of each row, 64 in a number, shape ``(numbers, rows)``."""
    bits = np.packbits(rows > 0, axis=1)
    wide = np.zeros((len(rows), -(-bits.shape[1] // 8) * 8), np.uint8)
    wide[:, : bits.shape[1]] = bits
    return np.ascontiguousarray(wide.view(np.uint64).T)


# ── Read ──────────────────────────────────────────────────────────────────────────────


class Sealed:
    """
    A large segment of steps and messages where it lies; numbers of names begin at 1.

    *alive*: Without what has left recall and is still in it.
    """

    def __init__(self, head: Head, batch: Batch, alive: Mask | None = None) -> None:
        assert isinstance(batch.columns, Columns)
        self.head, self.batch = head, batch
        self._alive = np.broadcast_to(np.True_, len(batch)) if alive is None else alive
        self._stored: Mapping[str, Stored] = batch.columns.stored

    def without(self, ids: Sequence[str]) -> Sealed:
        """The same without the documents of *ids*."""
        places = self.ids.find_all(ids)[1]
        if not self._alive[places].any():
            return self
        alive = self._alive.copy()
        alive[places] = False
        return Sealed(self.head, self.batch, alive)

    def __len__(self) -> int:
        return len(self.batch)

    @cached_property
    def view(self) -> StepsView:
        """Its documents as columns, without vectors; ids are found in ``ids``."""
        return _view(self.batch, self._alive)

    @cached_property
    def pieces(self) -> Pieces:
        """The pieces of these documents alone."""
        columns, exists = self.batch.columns, self._alive
        piece = columns["piece"]
        around = (columns[name] for name in _OF_PIECES[1:])
        return Pieces(exists, piece, int(piece.max(initial=-1)) + 1, *around)

    @property
    def ids(self) -> Names:
        """The id of each document."""
        ids = self.batch.names["ids"]
        assert isinstance(ids, Names)
        return ids

    @property
    def centre(self) -> tuple[NDArray[np.float64], int]:
        """The sum of the documents' first vectors, and how many these are."""
        return self.batch.columns["sum"], int(self.batch.columns["summed"][0])

    @cached_property
    def sums(self) -> Sums:
        """Of its documents."""
        return Sums.of(self.view, self.pieces)

    @cached_property
    def owners(self) -> NDArray[Any]:
        """Whose each vector is."""
        return self.batch.columns["owners"]

    @cached_property
    def _begins(self) -> NDArray[np.int64]:
        """Of the vectors of each document, and behind the last."""
        counts = self.batch.columns["vectors"]
        return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))

    def distances(self, asked: Floats) -> NDArray[np.uint16]:
        """How many signs of each vector are not those of *asked*, shape ``(dimensions,)``."""
        columns = self.batch.columns
        bits = sign_bits((asked - columns["middle"])[np.newaxis])
        differing = np.bitwise_count(columns["signs"] ^ bits)
        return np.asarray(differing.sum(axis=0, dtype=np.uint16))

    def vectors(self, rows: NDArray[Any]) -> Floats:
        """Vectors by their numbers."""
        codes, scales = self._stored["codes"].rows(rows), self._stored["scales"].rows(rows)
        return np.asarray(codes * scales[:, np.newaxis], np.float32)

    def vectors_of(self, documents: NDArray[Any]) -> tuple[Floats, NDArray[Any], NDArray[np.uint8]]:
        """All vectors of *documents*, of which each is, and passages."""
        begins = self._begins[documents]
        counts = self._begins[documents + 1] - begins
        passages = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.repeat(begins, counts) + passages
        return self.vectors(rows), np.repeat(documents, counts), passages.astype(np.uint8)


class _Held(Postings):
    """The postings of a large segment."""

    __slots__ = ("_batch", "_known")

    def __init__(self, batch: Batch) -> None:
        super().__init__({})
        self._batch = batch
        self._known: dict[str, tuple[Codes, Floats] | None] = {}

    def read(self, term: str, documents: int) -> tuple[Codes, Floats] | None:
        # One question reads each of its terms several times.
        if term not in self._known:
            found = self._read(term)
            if len(self._known) >= _READ:
                self._known.clear()
            self._known[term] = found
            return found
        return self._known[term]

    def _read(self, term: str) -> tuple[Codes, Floats] | None:
        columns, names = self._batch.columns, self._batch.names["terms"]
        assert isinstance(columns, Columns)
        assert isinstance(names, Names)
        number = int(names.find([term])[0]) + 1
        if not number:
            return None
        begin, end = columns.stored["begins"].cut(number, number + 2).tolist()
        held, counts = (columns.stored[name].cut(begin, end) for name in ("documents", "counts"))
        return held.astype(np.int64), counts.astype(np.float32)


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


def _view(batch: Batch, alive: Mask) -> StepsView:
    columns, count = batch.columns, len(batch)
    same = {"by_hand": False, "valid_to": math.inf, "linked": np.int32(-1)}
    kept = ("lengths", "log_words", "first", "metadata", "born", "passages", "session", "thread")
    sides = ("actor", "told_by", "acted", "asks", "form")
    none = np.zeros(0, np.int32)
    return StepsView(
        count=count,
        alive=alive,
        ids=batch.names["ids"],
        nodes=(),
        origins={},
        last=columns["first"],
        facets=_Metadata(batch.names["metadata"]),
        vectors=np.zeros((0, columns["codes"].shape[1]), np.float32),
        vector_documents=none,
        vector_passages=none.astype(np.uint8),
        postings=_Held(batch),
        documents={},
        aliases={},
        repeats={},
        joined=none.reshape(0, 2),
        chains=_Numbers(batch.names["chains"]),
        actor_numbers=_Numbers(batch.names["actors"]),
        actors=("", *batch.names["actors"]),
        centre=np.zeros(columns["codes"].shape[1], np.float32),
        **{name: np.broadcast_to(np.asarray(value), count) for name, value in same.items()},
        **{name: columns[name] for name in (*kept, *sides)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeView(CorpusView):
    """
    A repository of which ``steps`` holds the tail alone, behind the large segments *sealed*.

    *waiting* (id of a step → facts or instructions that rest on it, by type), *awaited* (the other
    way round) and *repeating* (step of the tail → its session) are the writer's: look up only.
    """

    sealed: tuple[Sealed, ...]
    waiting: Mapping[NodeType, Mapping[str, Sequence[int]]]
    awaited: Mapping[NodeType, Mapping[int, Sequence[str]]]
    repeating: Mapping[str, tuple[str, int]]

    @property
    def is_empty(self) -> bool:
        """As of every view."""
        return False

    def found_as(self, ids: Iterable[str]) -> list[str]:
        """*ids*, and the documents of the messages that steps among them repeat."""
        asked = [*ids]
        found = {*asked, *(self.steps.aliases.get(id, id) for id in asked)}
        hashed = hashes(asked)
        for repeats in self._repeats():
            found.update(repeats.messages.some(repeats.steps.find_all(asked, hashed)[1]))
        return [*found]

    def steps_behind(self, kind: NodeType, facts: Sequence[int]) -> set[str]:
        """The ids of the steps behind documents of facts or instructions."""
        steps = {id for fact in facts for id in self.awaited[kind].get(fact, ())}
        pairs = self.behind[kind]
        documents = pairs[np.isin(pairs[:, 0], facts), 1].tolist()
        return steps.union(self.steps.ids[document] for document in documents)

    def repeats_of(self, ids: Sequence[str]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
        """Step → the document among *ids* that it repeats, and the other way round."""
        repeats: dict[str, tuple[str, ...]] = {}
        stored = [*self._repeats()]
        hashed = hashes(ids if stored else ())
        for sealed in stored:
            which, places = sealed.messages.find_all(ids, hashed)
            for one, step in zip(which.tolist(), sealed.steps.some(places), strict=True):
                repeats[ids[one]] = (*repeats.get(ids[one], ()), step)
        for id in ids:
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

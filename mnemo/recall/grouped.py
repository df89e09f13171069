"""
The documents of one type in all parts of a large repository, numbered through: what is chosen.

A part is a large segment, or the tail. What is asked of all of them at once costs what it finds,
and little for each part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.index.columns import (
    Coded,
    Codes,
    Floats,
    Hashes,
    Mask,
    Numbers,
    ascending,
    products,
    products_of,
)
from mnemo.index.corpus import DocumentsView, Part, StepsView, Sums
from mnemo.index.large import LargeView, Sealed, SealedClaims, SealedSteps, coarse
from mnemo.index.pieces import CHAT, DOCUMENT, NOTE, Pieces, places
from mnemo.index.segments import hashes
from mnemo.recall.score import by_itself, cosines, eligible_steps, in_time
from mnemo.recall.shares import shares
from mnemo.values.filters import Filters
from mnemo.values.graph import NodeType

BEST = 200
"""Texts of each kind that are gathered by their words, and as many by their vectors."""
COARSE = 4_000
"""
Vectors with the fewest other signs, of which the best are found by their codes: one in
``LOOKED_AT`` of all, but no more than these and no fewer than ``AT_LEAST``.
"""
LOOKED_AT, AT_LEAST = 40, 1_500
TALKS = 10
"""Pieces of talk, the best by words, that are gathered."""
TURNS = 64
"""Turns of each, the best by words."""
AROUND = 2
"""Neighbours on either side."""
_KINDS = (NOTE, CHAT, DOCUMENT)


@dataclass(slots=True, kw_only=True)
class SomePart:
    """
    A segment, or the tail, of one type.

    Attributes:
        ok: Which of its documents match the filters; *exists*: which have words.
        begin: The number of its first document among those of all parts.
    """

    source: Part
    ok: Mask
    exists: Mask
    begin: int = 0

    @property
    def view(self) -> DocumentsView:
        """The columns."""
        return self.source.view


@dataclass(slots=True, kw_only=True)
class StepsPart(SomePart):
    """
    Steps and messages.

    Attributes:
        lengths: Of its pieces, in terms.
        piece: The number of its first piece among those of all parts.
    """

    source: SealedSteps | StepsView
    pieces: Pieces
    sums: Sums
    lengths: Floats
    piece: int = 0

    @classmethod
    def of(cls, source: SealedSteps | StepsView, filters: Filters) -> StepsPart:
        """As of the filters' end."""
        view, end = source.view, filters.until
        sealed = source if isinstance(source, SealedSteps) else None
        ok = sealed.current if sealed and filters.is_open else eligible_steps(view, filters)
        is_early = end is None or view.first.max(initial=-math.inf) <= end.timestamp()
        if sealed and is_early:
            pieces, sums, lengths = sealed.pieces, sealed.sums, sealed.of_pieces
        else:
            pieces = view.pieces if end is None else view.pieces_until(end.timestamp())
            sums, lengths = Sums.of(view, pieces), pieces.sums(view.lengths)
        return cls(
            source=source, ok=ok, exists=pieces.exists, pieces=pieces, sums=sums, lengths=lengths
        )

    @property
    def view(self) -> StepsView:
        """As of every part."""
        return self.source.view


@dataclass(slots=True, kw_only=True)
class ClaimsPart(SomePart):
    """
    Facts, or instructions.

    Attributes:
        rests: Which have steps behind them; *behind* gives documents with each of these.
    """

    rests: Mask
    behind: Callable[[Numbers], Iterator[tuple[int, str]]]

    @classmethod
    def of(cls, corpus: LargeView, kind: NodeType, source: Part, filters: Filters) -> ClaimsPart:
        view = source.view
        if isinstance(source, SealedClaims):
            rests, behind = source.resting, source.behind
        else:
            rests, behind = corpus.resting(kind), partial(corpus.behind_tail, kind)
        if isinstance(source, Sealed) and filters.is_open:
            ok = source.current
        else:
            ok = in_time(view, filters)
        if not filters.is_open:
            ok = ok & (rests | by_itself(view, filters, rests))
        return cls(source=source, ok=ok, exists=view.alive, rests=rests, behind=behind)


P = TypeVar("P", bound=SomePart)


class Group(Generic[P]):
    """
    All documents of one type, numbered through the segments and the tail, which is the last part.

    Attributes:
        ok, exists: As of its parts.
        held: Of *terms* the documents that exist and hold each, and how often.
        words: How much of the question each document has.
        chosen: What is chosen; *taken*: all of that, ascending.
    """

    words: Floats
    taken: Numbers

    def __init__(self, parts: Iterable[P], terms: Sequence[str], hashed: Hashes) -> None:
        self.parts: list[P] = [*parts]
        self._begins = np.cumsum([0, *(part.view.count for part in self.parts)])
        for part, begin in zip(self.parts, self._begins.tolist(), strict=False):
            part.begin = begin
            part.view.postings.look_for(terms, hashed)
        self.ok: NDArray[Any] = self.whole("ok")
        self.exists: NDArray[Any] = self.whole("exists")
        is_whole = bool(self.exists.all())
        self.held: dict[str, tuple[Codes, Floats]] = dict[str, tuple[Codes, Floats]]()
        for term in terms:
            read = ((p, p.view.postings.read(term, p.view.count)) for p in self.parts)
            found = [(one[0] + part.begin, one[1]) for part, one in read if one is not None]
            if found:
                documents, counts = map(np.concatenate, zip(*found, strict=True))
                kept = slice(None) if is_whole else self.exists[documents]
                self.held[term] = documents[kept], counts[kept]
        self.chosen: list[Numbers] = list[Numbers]()
        self._split: tuple[Numbers, list[tuple[P, Numbers]]] = (self._begins[:0], [])

    def whole(self, name: str) -> NDArray[Any]:
        """A column of all documents."""
        return np.concatenate([*map(attrgetter(name), self.parts)])

    def split(self, numbers: Numbers) -> Sequence[tuple[P, Numbers]]:
        """The parts that have some of *numbers*, which ascend, with the numbers in each."""
        if self._split[0] is not numbers:
            cuts = np.searchsorted(numbers, self._begins).tolist()
            parts = zip(self.parts, cuts, cuts[1:], strict=False)
            found = [(part, numbers[a:b] - part.begin) for part, a, b in parts if a < b]
            self._split = numbers, found
        return self._split[1]

    def begins(self, numbers: Numbers) -> Numbers:
        """Where the part begins of each of *numbers*, which ascend."""
        split = self.split(numbers)
        return np.repeat([part.begin for part, _ in split], [len(some) for _, some in split])

    def column(self, name: str, numbers: Numbers) -> NDArray[Any]:
        """A column of documents *numbers*, which ascend."""
        read = attrgetter(name)
        found = [read(part)[some] for part, some in self.split(numbers)]
        return np.concatenate([*found, read(self.parts[-1])[:0]])

    def names(self, numbers: Numbers) -> list[str]:
        """The ids of *numbers*, which ascend."""
        return [id for part, some in self.split(numbers) for id in part.source.named(some)]

    def hashed(self, numbers: Numbers) -> Hashes:
        """The ``hashes`` of these."""
        found = [np.zeros(0, np.uint64)]
        for part, some in self.split(numbers):
            of_part = part.source
            if isinstance(of_part, Sealed):
                found.append(of_part.ids.hashed(some))
            else:
                found.append(hashes(of_part.named(some)))
        return np.concatenate(found)

    def find(self, ids: Sequence[str], hashed: Hashes) -> Numbers:
        """The documents of *ids*."""
        found = [part.source.find(ids, hashed)[1] + part.begin for part in self.parts]
        return np.sort(np.concatenate(found))

    def vectors(self, numbers: Numbers) -> tuple[Coded, Numbers, NDArray[np.uint8]]:
        """All vectors of documents *numbers*, which ascend; of which each is, and passages."""
        tail = self.parts[-1].view
        found = list[tuple[NDArray[Any], ...]]()
        for part, some in self.split(numbers):
            if isinstance(part.source, Sealed):
                rows, owners, passages = part.source.rows_of(some)
                found.append((*part.source.coded(rows), owners + part.begin, passages))
            else:
                rows, owners, passages = tail.vectors_of(some)
                ones = np.ones(len(rows), np.float32)
                found.append((rows, ones, owners + part.begin, passages))
        if not found:
            empty = tail.vectors[:0], tail.lengths[:0], self._begins[:0], tail.vector_passages[:0]
            found.append(empty)
        vectors, scales, owners, passages = map(np.concatenate, zip(*found, strict=True))
        return Coded(vectors, scales), owners, passages

    def score(self, rarity: Mapping[str, float], mean: float) -> None:
        """Note what the texts have of the question's words."""
        self.words = shares((self.texts(rarity), self.whole("view.lengths")), mean)

    def texts(self, rarity: Mapping[str, float]) -> list[tuple[float, Codes, Floats]]:
        """Of each term of the question its share, the texts that hold it, and how often."""
        return [(share, *self.held[term]) for term, share in rarity.items() if term in self.held]

    # ── Choosing ─────────────────────────────────────────────────────────────────────

    def kinds(self, documents: Numbers) -> NDArray[np.uint8]:
        """Of texts."""
        return np.full(len(documents), NOTE, np.uint8)

    def choose_by_words(self) -> None:
        """Choose the best by words."""
        documents = ascending(self._begins[:0], *(documents for documents, _ in self.held.values()))
        documents = documents[self.ok[documents] & (self.words[documents] > 0)]
        self._choose_best(documents, self.words[documents])

    def choose_near(self, asked: Floats, centre: Floats) -> None:
        """Choose the nearest to *asked*."""
        sealed = [(p, p.source) for p in self.parts if isinstance(p.source, Sealed)]
        most = min(max(len(self.ok) // LOOKED_AT, AT_LEAST), COARSE)
        near = coarse([(source, part.ok) for part, source in sealed], asked, most)
        owners, along, both = list[Numbers](), list[Floats](), np.stack((asked, centre))
        if sealed:
            coded = [source.coded(some) for (_, source), some in zip(sealed, near, strict=True)]
            codes, scales = map(np.concatenate, zip(*coded, strict=True))
            along.append(products_of(codes, both) * scales)
        for (part, source), some in zip(sealed, near, strict=True):
            owners.append(source.owners[some] + np.int64(part.begin))
        tail = self.parts[-1]
        if len(tail.view.vectors):
            owners.append(tail.view.vector_documents + np.int64(tail.begin))
            plain = products(tail.view.vectors, asked)
            along.append(np.stack((plain, tail.view.along(centre))))
        if owners:
            self._choose_owners(np.concatenate(owners), np.concatenate(along, axis=1), both)

    def choose_some(self, numbers: Numbers, asked: Floats, centre: Floats) -> None:
        """Choose of documents *numbers*, which ascend, the nearest to *asked*."""
        vectors, owners, _ = self.vectors(numbers)
        both = np.stack((asked, centre))
        self._choose_owners(owners, products_of(vectors, both), both)

    def _choose_owners(self, owners: Numbers, along: Floats, both: Floats) -> None:
        """
        Choose of *owners*, of which each vector is, the nearest; *along*: the products of the
        vectors with *both* the question's and the centre.
        """
        cosine, _ = cosines(along[0, :, np.newaxis], both[:1], both[1], along[1])
        kept = np.flatnonzero(self.ok[owners])
        kept = kept[np.argsort(owners[kept], kind="stable")]
        owners = owners[kept]
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        if len(begins):
            self._choose_best(owners[begins], np.maximum.reduceat(cosine[kept], begins))

    def _choose_best(self, documents: Numbers, values: Floats) -> None:
        """Choose of each kind of text the best; *values*: of each of *documents*."""
        kinds = self.kinds(documents)
        for kind in _KINDS:
            some = np.flatnonzero(kinds == kind)
            self.chosen.append(documents[_best(some, values, BEST)])

    def all_chosen(self) -> Numbers:
        """What is chosen, once each, ascending."""
        return ascending(np.zeros(0, np.int64), *self.chosen)


class Talk(Group[StepsPart]):
    """
    Steps and messages.

    Attributes:
        session: How much of the question each piece has.
    """

    session: Floats

    def __init__(self, parts: Iterable[StepsPart], terms: Sequence[str], hashed: Hashes) -> None:
        super().__init__(parts, terms, hashed)
        self._pieces = np.cumsum([0, *(part.pieces.count for part in self.parts)])
        for part, piece in zip(self.parts, self._pieces.tolist(), strict=False):
            part.piece = piece

    def kinds(self, documents: Numbers) -> NDArray[np.uint8]:
        """As of every group."""
        return self.column("pieces.kind", documents)

    def pieces_of(self, documents: Numbers) -> Numbers:
        """The pieces of *documents*, which ascend and exist."""
        found = [part.pieces.piece[some] + part.piece for part, some in self.split(documents)]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def score_pieces(self, rarity: Mapping[str, float], mean: float) -> None:
        """Note what the pieces have of the question's words."""
        whole = []
        for share, documents, times in self.texts(rarity):
            counts = np.bincount(self.pieces_of(documents), times, self._pieces[-1])
            holding = np.flatnonzero(counts)
            whole.append((share, holding, counts[holding].astype(np.float32)))
        self.session = shares((whole, self.whole("lengths")), mean)

    def choose_talks(self) -> None:
        """Choose of the best pieces of talk the turns that are the best by words."""
        for piece in _best(np.flatnonzero(self.session > 0), self.session, TALKS).tolist():
            part = self.parts[int(np.searchsorted(self._pieces, piece, "right")) - 1]
            pieces = part.pieces
            turns = (pieces.piece == piece - part.piece) & (pieces.kind == CHAT)
            self.chosen.append(_best(np.flatnonzero(turns) + part.begin, self.words, TURNS))

    def around(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """The documents before and behind *numbers*, which ascend, in their pieces; -1: none."""
        begins = self.begins(numbers).astype(np.int64)
        near = (self.column(f"pieces.{name}", numbers) for name in ("previous", "next"))
        previous, following = (np.where(one >= 0, one + begins, -1) for one in near)
        return previous, following

    def take(self) -> None:
        """Take what is chosen and what stands around it, as far as it exists."""
        taken = self.all_chosen()
        for _ in range(AROUND):
            taken = ascending(taken, *self.around(taken))
        taken = ascending(taken, self._other_sides(taken))
        self.taken: Numbers = taken[self.exists[taken]]

    def _other_sides(self, numbers: Numbers) -> Numbers:
        """The other sides of the steps of *numbers*, which stand beside them."""
        near = ascending(numbers - 1, numbers, numbers + 1)
        near = near[near < len(self.exists)]
        kept = [self.begins(near), *(self.column(f"view.{n}", near) for n in ("born", "session"))]
        same = np.diff(near) == 1
        for column in kept:
            same &= column[1:] == column[:-1]
        wanted = places(numbers, near) >= 0
        return np.concatenate((near[:-1][same & wanted[1:]], near[1:][same & wanted[:-1]]))


def _best(numbers: NDArray[Any], values: Floats, most: int) -> NDArray[Any]:
    """At most so many of *numbers*, those with the greatest of *values*."""
    if len(numbers) <= most:
        return numbers
    return numbers[np.argpartition(-values[numbers], most)[:most]]

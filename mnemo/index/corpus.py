"""
The searchable documents of one repository, in memory; a reader's ``CorpusView`` never changes.

A *document* is one searchable text: a fact, an instruction, a subgoal, a tag, an intent, or one
side of a raw step. *Document numbers* count up within a type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cache, cached_property
from sys import getsizeof
from threading import Lock
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.index.pieces import Pieces
from mnemo.runtime.clock import Breather
from mnemo.values.changeset import Revision
from mnemo.values.fast_init import fast_init
from mnemo.values.filters import ScalarKind, Where, kind_of, members
from mnemo.values.graph import Node, NodeType, Vector

K = TypeVar("K")
V = TypeVar("V")

ROLES = frozenset(("user", "assistant", "agent", "ai", "bot", "model", "system", "tool", "human"))
"""Folded names of speakers that are no names: a question that says "the user" names nobody."""

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Ints = NDArray[np.int32]
Codes = NDArray[np.int64]
Numbers = NDArray[Any]
Hashes = NDArray[np.uint64]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """
    A text to be found; times in Unix seconds, infinite where unknown.

    Attributes:
        key: Under which the store keeps its vector.
        text: What it is found by with keywords; *meaning* is what its vector is made of.
        first, last: Times of its evidence.
        node: Without its vector; ``None`` for the side of a step.
        origin: The changeset that stored or last changed the node, if known.
        steps: Ids of the steps that it says again in other words.
        metadata: What it is filtered by: a step's, or a node's given by hand.
        by_hand: Whether it also stands for itself, whatever steps are behind it.
        born: The feed's number of a step or message, the revision at which a node was read.
    """

    key: str
    id: str
    text: str
    meaning: str
    first: float = -math.inf
    last: float = math.inf
    valid_to: float = math.inf
    node: Node | None = None
    vector: Vector | None = field(default=None, compare=False, repr=False)
    origin: str | None = None
    steps: tuple[str, ...] = ()
    metadata: Mapping[str, Any] | None = field(default=None, repr=False)
    by_hand: bool = False
    born: int = 0


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Side(Document):
    """
    One side of a raw step or of a message: what was observed, or what the agent did (*acted*).

    Attributes:
        chain: What orders it: the session's id, or of a message ``thread_chain``.
        told_by: The actor of the whole step, which a filter looks at as well; ``""``: *actor*.
    """

    chain: str
    actor: str
    acted: bool
    asks: bool
    form: int = 0
    told_by: str = ""
    thread_id: str | None = None


def thread_chain(thread_id: str) -> str:
    """What orders the messages of a thread; no session's id is like it."""
    return f"\0{thread_id}"


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
        self.count = 0

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
        self.texts = ["{}"]
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


def products(vectors: Floats, row: Floats) -> Floats:
    """The product of each of *vectors* with *row*."""
    # Not BLAS: its threads spin for one another, and on a busy machine a product that
    # takes 2 ms took 50. Memory is the limit, not arithmetic.
    return np.asarray(np.einsum("ij,j->i", vectors, row))


# ── Views ────────────────────────────────────────────────────────────────────────────


_FLOAT, _TIME = {"dtype": np.float32}, {"dtype": np.float64}
_FLAG, _NUMBER = {"dtype": np.bool_}, {"dtype": np.int32}


class Part(Protocol):
    """Some of the documents of one type, numbered from 0."""

    @property
    def view(self) -> DocumentsView:
        """The columns."""

    @property
    def embedded(self) -> Mask:
        """Which documents have a vector."""

    def find(self, ids: Sequence[str], hashed: Hashes | None = None) -> tuple[Numbers, Numbers]:
        """
        The living documents of *ids*: of which of these each is, ascending, and its number;
        *hashed*: the ``hashes`` of *ids*, where they are known.
        """

    def named(self, numbers: Numbers) -> list[str]:
        """The ids of documents *numbers*."""

    def nodes_of(self, numbers: Numbers) -> tuple[Sequence[Node | None], Sequence[str | None]]:
        """The nodes of documents *numbers*, as far as they are in memory; their changesets."""

    def firsts(self, numbers: Numbers) -> Floats:
        """The first vectors of documents *numbers*, each of which has one."""

    def vectors_of(self, numbers: Numbers) -> tuple[Floats, Numbers, NDArray[np.uint8]]:
        """All vectors of documents *numbers*; of which each is, and passages."""


@dataclass(frozen=True)
class DocumentsView:
    """
    The documents of one type as they were at one moment.

    *ids*, *nodes*, *origins* (changesets), *facets*, *documents* (node id → numbers) and
    *aliases* (node id of a step made of a message → id of the document) are the writer's: look
    up, then check against *count* and *alive*. A field with a ``dtype`` is a column, too.

    Attributes:
        nodes: ``None`` for steps, which the store gives.
        lengths: In index terms; *log_words*: logarithm of that in words.
        alive: False for what was removed or replaced.
        born: As of ``Document``; *passages*: how many vectors it has or waits for.
        linked: Row of a document's first vector, which may come later than the view; else -1.
        vectors: Unit rows of the documents named by *vector_documents*, one for each
            passage, *vector_passages* its number from 0: see ``values.vectors``.
    """

    count: int
    ids: Sequence[str]
    nodes: Sequence[Node | None]
    origins: Mapping[int, str]
    lengths: Floats = field(metadata=_FLOAT)
    log_words: Floats = field(metadata=_FLOAT)
    first: NDArray[np.float64] = field(metadata=_TIME)
    last: NDArray[np.float64] = field(metadata=_TIME)
    valid_to: NDArray[np.float64] = field(metadata=_TIME)
    alive: Mask = field(metadata=_FLAG)
    metadata: Ints = field(metadata=_NUMBER)
    by_hand: Mask = field(metadata=_FLAG)
    born: Codes = field(metadata={"dtype": np.int64})
    passages: NDArray[np.uint8] = field(metadata={"dtype": np.uint8})
    linked: Ints = field(metadata=_NUMBER)
    facets: Facets
    vectors: Floats
    vector_documents: Ints
    vector_passages: NDArray[np.uint8]
    postings: Postings
    documents: Mapping[str, tuple[int, ...]]
    aliases: Mapping[str, str]

    def of(self, id: str) -> tuple[int, ...]:
        """The living documents of a node, or of a message by its document's id."""
        found = self.documents.get(self.aliases.get(id, id), ())
        return found and tuple([d for d in found if d < self.count and self.alive[d]])

    @property
    def view(self) -> DocumentsView:
        """As of every ``Part``."""
        return self

    def find(self, ids: Sequence[str], hashed: Hashes | None = None) -> tuple[Numbers, Numbers]:
        """As of every ``Part``."""
        found = [(which, number) for which, id in enumerate(ids) for number in self.of(id)]
        which, numbers = np.array(found, np.int64).reshape(-1, 2).T
        return which, numbers

    def named(self, numbers: Numbers) -> list[str]:
        """As of every ``Part``."""
        return [self.ids[number] for number in numbers.tolist()]

    def nodes_of(self, numbers: Numbers) -> tuple[Sequence[Node | None], Sequence[str | None]]:
        """As of every ``Part``."""
        chosen = numbers.tolist()
        return [self.nodes[one] for one in chosen], [self.origins.get(one) for one in chosen]

    @property
    def embedded(self) -> Mask:
        """As of every ``Part``."""
        return self.rows >= 0

    def firsts(self, numbers: Numbers) -> Floats:
        """As of every ``Part``."""
        return self.vectors[self.rows[numbers]]

    @cached_property
    def rows(self) -> Ints:
        """Row of a document's first vector; -1 without one."""
        linked = np.array(self.linked)  # a copy: the writer may link a document meanwhile
        return np.where(linked < len(self.vectors), linked, np.int32(-1))

    def along(self, centre: Floats) -> Floats:
        """The product of each vector with *centre*, kept until it is asked for another one."""
        known = self.__dict__.get("_along")
        if known is None or known[0] is not centre:
            known = self.__dict__["_along"] = centre, products(self.vectors, centre)
        return known[1]

    def first_of(self, values: Floats) -> Floats:
        """A document's first of *values*, of which each vector has one; 0 without any."""
        first, known = np.zeros(self.count, np.float32), self.rows >= 0
        first[known] = values[self.rows[known]]
        return first

    def best_of(self, values: Floats) -> Floats:
        """Likewise the best of a document's *values*."""
        best, further = self.first_of(values), np.flatnonzero(self.vector_passages)
        np.maximum.at(best, self.vector_documents[further], values[further])
        return best

    @cached_property
    def whole_length(self) -> tuple[float, int]:
        """Of the living documents, in index terms; and how many these are."""
        lengths = self.lengths[self.alive]
        return float(lengths.sum(dtype=np.float64)), len(lengths)

    def vectors_of(self, numbers: Numbers) -> tuple[Floats, Ints, NDArray[np.uint8]]:
        """The vectors of documents *numbers*, first ones first; of which each is, and passages."""
        first = self.rows[numbers]
        further = np.flatnonzero(self.vector_passages)
        further = further[np.isin(self.vector_documents[further], numbers)]
        rows = np.concatenate((first[first >= 0], further))
        return self.vectors[rows], self.vector_documents[rows], self.vector_passages[rows]


@dataclass(frozen=True)
class StepsView(DocumentsView):
    """
    The two sides of raw steps, and messages, in order of arrival.

    A step that was made of a message is found as that message's document. *repeats* (document
    → node ids of such steps), *chains* and *actor_numbers* are the writer's: look up only.

    Attributes:
        session: Number in *chains* of the session, or of the thread; *thread*: -1 if none.
        joined: Pairs of a session's number and a message's document that a step of the
            session repeats, shape ``(pairs, 2)``; -1 for those that were undone.
        actor, told_by: Numbers in *actors*: of who spoke, and of the whole step's actor.
        centre: Mean of the living documents' first vectors, shrunk by ``SHRINKAGE``.
    """

    repeats: Mapping[str, tuple[str, ...]]
    session: Ints = field(metadata=_NUMBER)
    actor: Ints = field(metadata=_NUMBER)
    acted: Mask = field(metadata=_FLAG)
    asks: Mask = field(metadata=_FLAG)
    form: NDArray[np.uint8] = field(metadata={"dtype": np.uint8})
    told_by: Ints = field(metadata=_NUMBER)
    thread: Ints = field(metadata=_NUMBER)
    joined: Ints
    chains: Mapping[str, int]
    actor_numbers: Mapping[str, int]
    actors: Sequence[str]
    centre: Floats

    @property
    def view(self) -> StepsView:
        """As of every ``Part``."""
        return self

    @cached_property
    def pieces(self) -> Pieces:
        """The pieces of the living documents."""
        return self.pieces_until(math.inf)

    def pieces_until(self, end: float) -> Pieces:
        """The pieces of what was said until *end*, Unix seconds."""
        exists = self.alive & (self.first <= end)
        return Pieces.of(
            exists,
            session=self.session,
            first=self.first,
            actor=self.actor,
            asks=self.asks,
            log_words=self.log_words,
        )


@dataclass(frozen=True, slots=True)
class CorpusView:
    """
    Everything searchable of one repository at one revision.

    Attributes:
        behind: Pairs of a node's document and a document of a step behind it, shape
            ``(pairs, 2)``; those of dead documents are among them.
        wordings: Former wordings of intents, under the intent's id; they have vectors only.
        damaged: Rows of the store that are left out, each as ``StoreCorrupt.row``.
        owed: How many vectors are still to be made.
    """

    revision: Revision
    steps: StepsView
    nodes: Mapping[NodeType, DocumentsView]
    behind: Mapping[NodeType, Ints]
    wordings: DocumentsView
    damaged: tuple[str, ...] = ()
    owed: int = 0

    def parts(self, kind: NodeType) -> tuple[Part, ...]:
        """The documents of one type, in order of their arrival; as of ``of_type``."""
        view = self.of_type(kind)
        return () if view is None else (view,)

    def of_type(self, kind: NodeType) -> DocumentsView | None:
        """The documents of one type; ``source`` nodes are found as the steps they repeat."""
        return self.steps if kind in ("episodic", "source") else self.nodes.get(kind)

    def aliases_of(self, ids: Sequence[str]) -> dict[str, str]:
        """Those of *ids* that are steps made of a message → the message's document."""
        aliases = self.steps.aliases
        return {id: aliases[id] for id in ids if id in aliases}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to find."""
        return not self.steps.count and not any(view.count for view in self.nodes.values())

    def whole(self, terms: Iterable[str], end: float) -> Whole:
        """What scores need of the whole store for a question of *terms*, of what is until *end*."""
        pieces = self.steps.pieces if end == math.inf else self.steps.pieces_until(end)
        return Whole(Totals.of(self, terms, pieces, end), pieces)

    def resting(self, kind: NodeType) -> Mask:
        """Which facts or instructions have steps behind them, living ones or not."""
        rest = np.zeros(self.nodes[kind].count, np.bool_)
        rest[self.behind[kind][:, 0]] = True
        return rest


# ── The whole ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Sums:
    """
    Of the sides of steps and messages that exist, as of ``Totals``.

    Attributes:
        said: How many there are; *pieces*: of how many pieces.
        lengths: In index terms; *joined*: each with the one before it.
    """

    said: int
    pieces: int
    lengths: float
    joined: float
    acted: bool
    observed: frozenset[str]

    @property
    def means(self) -> dict[str, float]:
        """As of ``Totals``, of steps."""
        of_each = {"episodic": (self.lengths, self.said), "joined": (self.joined, self.said)}
        of_each |= {"piece": (self.lengths, self.pieces)}
        return {name: max(sum / max(n, 1), 1e-9) for name, (sum, n) in of_each.items()}

    @classmethod
    def of(cls, view: StepsView, pieces: Pieces) -> Sums:
        lengths = np.where(pieces.exists, view.lengths, np.float32(0))
        whole = float(lengths.sum(dtype=np.float64))
        speaking = np.flatnonzero(np.bincount(view.actor[~view.acted])).tolist()
        return cls(
            said=int(np.count_nonzero(pieces.exists)),
            pieces=pieces.count,
            lengths=whole,
            joined=whole + float(lengths[pieces.next >= 0].sum(dtype=np.float64)),
            acted=bool(view.acted.any()),
            observed=frozenset(view.actors[number] for number in speaking),
        )

    @classmethod
    def together(cls, parts: Iterable[Sums]) -> Sums:
        """Of several parts of a store."""
        parts = [*parts]
        return cls(
            said=sum(one.said for one in parts),
            pieces=sum(one.pieces for one in parts),
            lengths=sum(one.lengths for one in parts),
            joined=sum(one.joined for one in parts),
            acted=any(one.acted for one in parts),
            observed=frozenset[str]().union(*(one.observed for one in parts)),
        )


def mean_length(wholes: Iterable[tuple[float, int]]) -> float:
    """Of documents of several parts, whose ``whole_length`` these are."""
    known = [*wholes]
    lengths, counts = sum(length for length, _ in known), sum(count for _, count in known)
    return max(lengths / max(counts, 1), 1e-9)


@dataclass(frozen=True, slots=True)
class Totals:
    """
    Sums over a whole store that the score of each document depends on.

    Attributes:
        population: How many sides of steps, facts and instructions there are until the end.
        holding: Term of the question → how many of these hold it.
        living: Type → documents that are alive; ``episodic``: sides of steps.
        means: Type → mean length in index terms of these, of steps until the end; ``joined``: of a
            side with the one before it, ``piece``: of a whole piece.
        acted, observed: Whether any side is an action, and the actors of the others.
    """

    population: int
    holding: Mapping[str, int]
    living: Mapping[str, int]
    means: Mapping[str, float]
    acted: bool
    observed: frozenset[str]

    @classmethod
    def of(cls, view: CorpusView, terms: Iterable[str], pieces: Pieces, end: float) -> Totals:
        """Those of *view*, which holds everything; *pieces*: what exists until *end*."""
        steps, claims = view.steps, (view.nodes["semantic"], view.nodes["procedural"])
        stored: list[tuple[DocumentsView, Mask]] = [(steps, pieces.exists)]
        stored += [(claim, claim.alive & (claim.first <= end)) for claim in claims]
        holding = {}
        for term in terms:
            found = ((part.postings.read(term, part.count), exists) for part, exists in stored)
            holding[term] = sum(int(np.count_nonzero(exists[p[0]])) for p, exists in found if p)
        sums = Sums.of(steps, pieces)
        return cls(
            population=sum(int(np.count_nonzero(exists)) for _, exists in stored),
            holding=holding,
            living={
                "episodic": int(np.count_nonzero(steps.alive)),
                **{kind: int(np.count_nonzero(one.alive)) for kind, one in view.nodes.items()},
            },
            means={
                **sums.means,
                **{kind: mean_length([one.whole_length]) for kind, one in view.nodes.items()},
            },
            acted=sums.acted,
            observed=sums.observed,
        )

    def both(self, agents: frozenset[str]) -> bool:
        """Whether *agents*, which every actor of an action is, and others speak."""
        an_agent = self.acted or not agents.isdisjoint(self.observed)
        return an_agent and not self.observed <= agents


@dataclass(frozen=True, slots=True)
class Whole:
    """
    What the documents of a view are scored with, whatever part of the store the view holds.

    Attributes:
        pieces: Of the view's sides of steps, with those neighbours that the view holds.
        session: How much of the question each side's whole piece has, in [0, 1], as
            ``shares(of_pieces(…), …)`` gives it; ``None``: the view holds all pieces whole.
    """

    totals: Totals
    pieces: Pieces
    session: Floats | None = None

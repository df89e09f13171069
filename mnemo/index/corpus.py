"""
The searchable documents of one repository, in memory; a reader's ``CorpusView`` never changes.

A *document* is one searchable text: a fact, an instruction, a subgoal, a tag, an intent, or one
side of a raw step. *Document numbers* count up within a type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mnemo.index.columns import (
    Coded,
    Codes,
    Facets,
    Floats,
    Ints,
    Mask,
    Numbers,
    Postings,
    products,
    products_of,
)
from mnemo.index.pieces import Pieces
from mnemo.values.changeset import Revision
from mnemo.values.fast_init import fast_init
from mnemo.values.graph import Node, NodeType, Vector
from mnemo.values.steps import PARTS

ROLES = frozenset(("user", "assistant", "agent", "ai", "bot", "model", "system", "tool", "human"))
"""Folded names of speakers that are no names: a question that says "the user" names nobody."""


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

    def find(self, ids: Sequence[str], hashed: Numbers | None = None) -> tuple[Numbers, Numbers]:
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
    vectors: Floats | Coded
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

    def key(self, number: int) -> str:
        """Under which the store keeps the first vector of a document."""
        return self.ids[number]

    def find(self, ids: Sequence[str], hashed: Numbers | None = None) -> tuple[Numbers, Numbers]:
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

    def products(self, asked: Floats, centre: Floats) -> tuple[Floats, Floats]:
        """Those of each vector with rows *asked*, shape ``(vectors, rows)``, and with *centre*."""
        vectors = self.vectors
        if isinstance(vectors, Coded):
            *plain, along = products_of(vectors, np.vstack((asked, centre)))
            return np.stack(plain, axis=1), along
        return np.stack([products(vectors, row) for row in asked], axis=1), self.along(centre)

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

    def key(self, number: int) -> str:
        """As of all documents, of one side."""
        return f"{self.ids[number]}/{PARTS[int(self.acted[number])]}"

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
        """
        The documents of one type, in order of their arrival; ``source`` nodes are found as the
        steps that they repeat.
        """
        view = self.steps if kind in ("episodic", "source") else self.nodes.get(kind)
        return () if view is None else (view,)

    def aliases_of(self, ids: Sequence[str]) -> dict[str, str]:
        """Those of *ids* that are steps made of a message → the message's document."""
        aliases = self.steps.aliases
        return {id: aliases[id] for id in ids if id in aliases}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to find."""
        return not self.steps.count and not any(view.count for view in self.nodes.values())

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

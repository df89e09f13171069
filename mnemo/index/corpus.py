"""
The searchable documents of one repository, in memory.

``index.corpus_writer`` adds and removes; readers take a ``CorpusView``, which does not change.

A *document* is one searchable text: a fact, an instruction, a subgoal, a tag, an
intent, or one side of a raw step. *Document numbers* count up within a type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.index.facets import Facets
from mnemo.index.postings import Postings
from mnemo.values.changeset import Revision
from mnemo.values.fast_init import fast_init
from mnemo.values.graph import Node, NodeType, Vector
from mnemo.values.vectors import Heads

ROLES = frozenset(("user", "assistant", "agent", "ai", "bot", "model", "system", "tool", "human"))
"""Folded names of speakers that are no names: a question that says "the user" names nobody."""

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Ints = NDArray[np.int32]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """
    A text to be found.

    Attributes:
        key: Under which the store keeps its vector.
        id: The node that it speaks for.
        text: What it is found by with keywords.
        meaning: What its vector is made of.
        first, last: Unix seconds of its evidence; infinite where unknown.
        valid_to: Unix seconds at which it ceased to hold; infinite while it does.
        node: The node without its vector; ``None`` for the side of a step.
        vector: Its vector, if it comes along.
        origin: The changeset that stored or last changed the node, if known.
        steps: Ids of the steps that it says again in other words.
        metadata: A JSON object that it is filtered by: a step's, or a node's given by hand.
        by_hand: Whether it also stands for itself, whatever steps are behind it.
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


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Side(Document):
    """
    One side of a raw step or of a message: what was observed, or what the agent did.

    Attributes:
        chain: What orders it: the session's id, or of a message ``thread_chain``.
        actor: Who speaks or acts.
        acted: Whether it is the agent's action.
        asks: Whether it ends as a question.
        form: Bits of ``index.documents``.
        told_by: The actor of the whole step, which a filter looks at as well; ``""``: *actor*.
        thread_id: The conversation that it was said in; ``None``: in none.
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


@dataclass(frozen=True)
class DocumentsView:
    """
    The documents of one type as they were at one moment.

    Attributes:
        ids: Document number → node id; may be longer than ``count``.
        nodes: Document number → node; ``None`` for steps, which the store gives.
        origins: Document number → changeset, where one is known.
        lengths: In index terms.
        log_words: Natural logarithm of the length in words.
        first, last: Unix seconds of the evidence; infinite where unknown.
        valid_to: Unix seconds at which a fact ceased to hold; infinite while it does.
        alive: False for what was removed or replaced.
        metadata: Number of its metadata, in *facets*.
        by_hand: Whether it also stands for itself, whatever steps are behind it.
        rows: Row of a document's first vector; -1, or beyond the vectors, without one.
        facets: Of the whole corpus, of the writer.
        vectors: Unit rows of the documents named by ``vector_documents``, one for each
            passage, ``vector_passages`` its number from 0: see ``values.passages``.
        heads: Of ``vectors``; ``None`` for steps, of which none is sought by nearness alone.
        documents: Node id → document numbers, of the writer: look up, then check
            against ``count`` and ``alive``.
    """

    count: int
    ids: Sequence[str]
    nodes: Sequence[Node | None]
    origins: Mapping[int, str]
    lengths: Floats
    log_words: Floats
    first: NDArray[np.float64]
    last: NDArray[np.float64]
    valid_to: NDArray[np.float64]
    alive: Mask
    metadata: Ints
    by_hand: Mask
    rows: Ints
    facets: Facets
    vectors: Floats
    vector_documents: Ints
    vector_passages: NDArray[np.uint8]
    heads: Heads | None
    postings: Postings
    documents: Mapping[str, tuple[int, ...]]

    def of(self, id: str) -> tuple[int, ...]:
        """The living documents of node *id*."""
        return self._living(self.documents.get(id, ()))

    def _living(self, found: tuple[int, ...]) -> tuple[int, ...]:
        return found and tuple([d for d in found if d < self.count and self.alive[d]])

    def cosines(self, question: Floats) -> tuple[Floats, Mask]:
        """
        The best cosine of every document with the unit vector *question*.

        The mask says which documents have a vector; the others have cosine 0.
        """
        known = np.zeros(self.count, np.bool_)
        # Of another width is a question of another space, asked while that changes.
        if not len(self.vectors) or self.vectors.shape[1] != len(question):
            return np.zeros(self.count, np.float32), known
        known[self.vector_documents[self._passages[0]]] = True
        # Not BLAS: its threads spin for one another, and on a busy machine a product that
        # takes 2 ms took 50. Memory is the limit, not arithmetic.
        return self.best_of(np.einsum("ij,j->i", self.vectors, question)), known

    def row_of(self, document: int) -> int | None:
        """The row of a document's first vector."""
        row = int(self.rows[document])
        return row if 0 <= row < len(self.vectors) else None

    def best_of(self, values: Floats) -> Floats:
        """The best of a document's *values*, of which each vector has one; 0 without any."""
        first, further = self._passages
        best = np.zeros(self.count, np.float32)
        best[self.vector_documents[first]] = values[first]
        if len(further):
            np.maximum.at(best, self.vector_documents[further], values[further])
        return best

    @cached_property
    def _passages(self) -> tuple[slice | NDArray[np.intp], NDArray[np.intp]]:
        """The rows of first passages, and those of further ones."""
        further = np.flatnonzero(self.vector_passages)
        if not len(further):
            return slice(None), further
        return np.flatnonzero(self.vector_passages == 0), further


@dataclass(frozen=True)
class StepsView(DocumentsView):
    """
    The two sides of raw steps, and messages, in order of arrival.

    A step that was made of a message is found as that message's document.

    Attributes:
        aliases: Node id of such a step → the id of the document, of the writer: look up only.
        repeats: Id of a message's document → the node ids of such steps, likewise.
        session: Number of the session, or of the thread, into ``chains``.
        thread: Number of the thread likewise, -1 if none.
        joined: Pairs of a session's number and a message's document that a step of the
            session repeats, shape ``(pairs, 2)``; -1 for those that were undone.
        told_by: Number of the actor of the whole step, into ``actors``.
        actor: Number of who spoke, into ``actors``.
        acted: True for the agent's own actions.
        asks: True if what was said ends as a question.
        form: Bits of ``index.documents``.
        actors: Folded names.
        actor_numbers: Folded name → its place in ``actors``; *chains* of sessions and threads
            likewise, both of the writer: look up only.
        centre: Mean of the living documents' first vectors, shrunk to nothing where these are
            few: their sum over their number and 200.
    """

    aliases: Mapping[str, str]
    repeats: Mapping[str, tuple[str, ...]]
    session: Ints
    actor: Ints
    acted: Mask
    asks: Mask
    form: NDArray[np.uint8]
    told_by: Ints
    thread: Ints
    joined: Ints
    chains: Mapping[str, int]
    actor_numbers: Mapping[str, int]
    actors: Sequence[str]
    centre: Floats

    def canonical(self, id: str) -> str:
        """The id that the step with episodic node *id* is found under."""
        return self.aliases.get(id, id)

    def made_of(self, id: str) -> str:
        """The node id of the first step that was made of message *id*; *id* if none was."""
        return next(iter(self.repeats.get(id, ())), id)

    def of(self, id: str) -> tuple[int, ...]:
        """The living documents of a step, by its node's id, or of a message's document."""
        return self._living(self.documents.get(self.aliases.get(id, id), ()))

    def first_of(self, values: Floats) -> Floats:
        """A document's first of *values*, of which each vector has one; 0 without any."""
        known = (self.rows >= 0) & (self.rows < len(values))
        first = np.zeros(self.count, np.float32)
        first[known] = values[self.rows[known]]
        return first

    @cached_property
    def pieces(self) -> Pieces:
        """The pieces of the living documents."""
        return self._pieces(self.alive)

    def pieces_until(self, end: float | None) -> Pieces:
        """The pieces of what was said until *end*, Unix seconds; ``None``: of all."""
        return self.pieces if end is None else self._pieces(self.alive & (self.first <= end))

    def _pieces(self, exists: Mask) -> Pieces:
        told = (self.session, self.first, self.actor, self.log_words, self.asks)
        return Pieces.of(*told, exists)


@dataclass(frozen=True, slots=True)
class CorpusView:
    """
    Everything searchable of one repository at one revision.

    Attributes:
        behind: Facts and instructions: pairs of a node's document and a document of a step
            behind it, shape ``(pairs, 2)``; those of dead documents are among them.
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

    def of_type(self, kind: NodeType) -> DocumentsView | None:
        """The documents of one type; ``source`` nodes are found as the steps they repeat."""
        return self.steps if kind in ("episodic", "source") else self.nodes.get(kind)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to find."""
        return not self.steps.count and not any(view.count for view in self.nodes.values())


# ── Pieces ───────────────────────────────────────────────────────────────────────────
# The talk that turns belong to: their neighbours, and what kind of text each is. Nothing of it is
# stored: what a later turn can change is derived from columns when it is asked for.

NOTE, CHAT, DOCUMENT = range(3)
"""Kinds of text: one that stands alone, a turn of a chat, a long message."""
GAP_S = 6 * 3_600.0
"""Seconds of silence that end a piece."""
HEAD_WORDS = 7
"""Words of ``[Friday 14 May 2023 13:56] Ana:``, which count in a document's length."""
SHORT_WORDS = 80
"""Words below which a text is a note, and below which the median turn makes a piece a chat."""
TALKS_FROM = 10
"""One question in so many turns makes a piece without names a talk."""
LONG_TURN_WORDS = 60
"""Words from which a turn of a chat stands for itself, whatever its neighbours say."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """
    The turns that exist, cut where a session or thread is silent for six hours.

    Attributes:
        exists: Which documents there are.
        piece: Number of a document's piece; -1 for those that do not exist.
        count: How many pieces there are.
        previous, next: The neighbouring document of the same piece, -1 if none.
        kind: ``NOTE``, ``CHAT`` or ``DOCUMENT``.
        long: Whether a document has 60 words or more.
    """

    exists: Mask
    piece: Ints
    count: int
    previous: Ints
    next: Ints
    kind: NDArray[np.uint8]
    long: Mask

    @classmethod
    def of(
        cls,
        chain: Ints,
        at: NDArray[np.float64],
        actor: Ints,
        log_words: NDArray[np.float32],
        asks: Mask,
        exists: Mask,
    ) -> Pieces:
        """
        Cut the documents that exist into pieces, in the order of their numbers.

        A piece in which one speaker alone speaks holds notes or documents, each by its own
        length: ``remember`` puts what has nothing to do with each other into one thread. Unless
        a tenth of it asks: then it is a talk that came without names. (Of notes of one person
        0 to 5 % ask, of 19 files; of sessions of dialogues 9 in 10 reach a tenth.)

        Args:
            chain: Number of each document's session or thread.
            at: Unix seconds.
            actor: Number of who spoke.
            log_words: Logarithm of the length in words, the head included.
            asks: Whether it ends as a question.
        """
        piece, previous, following = np.full((3, len(exists)), -1, np.int32)
        kind = np.zeros(len(exists), np.uint8)
        long = log_words >= np.float32(math.log(LONG_TURN_WORDS + HEAD_WORDS))
        there = np.flatnonzero(exists)
        if not len(there):
            return cls(exists, piece, 0, previous, following, kind, long)
        order = there[np.argsort(chain[there], kind="stable")]
        apart = (np.diff(chain[order]) != 0) | (np.abs(np.diff(at[order])) > GAP_S)
        numbers = np.concatenate(([0], np.cumsum(apart)))
        piece[order] = numbers
        together = np.flatnonzero(~apart)
        previous[order[together + 1]] = order[together]
        following[order[together]] = order[together + 1]
        first = np.concatenate(([0], np.flatnonzero(apart) + 1))
        speaks = actor[order]
        alone = np.minimum.reduceat(speaks, first) == np.maximum.reduceat(speaks, first)
        questions = np.add.reduceat(asks[order].astype(np.int64), first)
        sizes = np.diff(first, append=len(order))
        alone &= (questions < 2) | (questions * TALKS_FROM < sizes)
        limit = np.float32(math.log(SHORT_WORDS + HEAD_WORDS))
        short_piece = _medians(log_words[order], numbers, first, sizes) < limit
        brief = log_words[order] < limit
        kind[order] = np.where(
            alone[numbers],
            np.where(brief, NOTE, DOCUMENT),
            np.where(short_piece[numbers], CHAT, DOCUMENT),
        )
        return cls(exists, piece, int(numbers[-1]) + 1, previous, following, kind, long)

    def before(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Of each document's previous one; 0 where there is none."""
        return np.where(self.previous >= 0, values[self.previous], np.float32(0))


def _medians(
    values: NDArray[np.float32],
    piece: NDArray[np.intp],
    first: NDArray[np.intp],
    sizes: NDArray[np.intp],
) -> NDArray[np.float32]:
    """The median of *values* in each piece; they lie together, from *first* on."""
    ascending = values[np.lexsort((values, piece))]
    middle = ascending[first + (sizes - 1) // 2] + ascending[first + sizes // 2]
    return np.asarray(middle / 2, np.float32)

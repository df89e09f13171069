"""
The searchable documents of one repository, in memory.

One writer adds and removes; readers take a ``CorpusView``, which does not change:
arrays only grow at their end, masks are copied before they are written. So one recall
sees one state, and never waits for the writer.

A *document* is one searchable text: a fact, an instruction, a subgoal, a tag, an
intent, or one side of a raw step. *Document numbers* count up within a type.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.runtime.clock import Breather
from mnemo.runtime.text import fold
from mnemo.values.changeset import Revision
from mnemo.values.columns import Column
from mnemo.values.graph import Intent, Node, NodeType, Vector
from mnemo.values.postings import Lexicon, Postings
from mnemo.values.vectors import HEAD, Heads, head_and_tail

__all__ = ["Corpus", "CorpusView", "Document", "DocumentsView", "Side", "StepsView"]

_GATHERED = 1_024
"""Rows that are gathered at most: more would hold the interpreter for long when written."""

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Ints = NDArray[np.int32]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Side(Document):
    """
    One side of a raw step or of a message: what was observed, or what the agent did.

    Attributes:
        chain: What orders it: the session's id, or of a message that of its thread behind
            U+0000, which no id holds.
        actor: Who speaks or acts.
        acted: Whether it is the agent's action.
        asks: Whether it ends as a question.
        form: Bits of ``graph.form``.
    """

    chain: str
    actor: str
    acted: bool
    asks: bool
    form: int = 0


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
        vectors: Unit rows of the documents named by ``vector_documents``.
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
    vectors: Floats
    vector_documents: Ints
    heads: Heads | None
    postings: Postings
    documents: Mapping[str, tuple[int, ...]]

    def of(self, id: str) -> tuple[int, ...]:
        """The living documents of node *id*."""
        found = self.documents.get(id, ())
        return tuple(d for d in found if d < self.count and self.alive[d])

    def cosines(self, questions: Floats) -> tuple[Floats, Mask]:
        """
        Cosine of every document with each row of *questions*, shape ``(rows, count)``.

        The mask says which documents have a vector; the others have cosine 0.
        """
        known = np.zeros(self.count, np.bool_)
        cosines = np.zeros((len(questions), self.count), np.float32)
        # Of another width is a question of another space, asked while that changes.
        if len(self.vectors) and self.vectors.shape[1] == questions.shape[1]:
            known[self.vector_documents] = True
            for row, question in zip(cosines, questions, strict=True):
                # Not BLAS: its threads spin for one another, and on a busy machine a
                # product that takes 2 ms took 50. Memory is the limit, not arithmetic.
                row[self.vector_documents] = np.einsum("ij,j->i", self.vectors, question)
        return cosines, known


@dataclass(frozen=True)
class StepsView(DocumentsView):
    """
    The two sides of raw steps, and messages, in order of arrival.

    A step that was made of a message is found as that message's document.

    Attributes:
        aliases: Node id of such a step → the id of the document, of the writer: look up only.
        repeats: Id of a message's document → the node ids of such steps, likewise.
        session: Number of the session, or of the thread.
        previous, next: The neighbouring document of the same session, -1 if none;
            ``next`` may name one beyond ``count``.
        actor: Number of who spoke, into ``actors``.
        acted: True for the agent's own actions.
        asks: True if what was said ends as a question.
        form: Bits of ``graph.form``.
        rows: Row of a document's vector; meaningless unless it has one.
        kinship: Cosine with the previous document; meaningless unless both have vectors.
        actors: Folded names.
        sessions: How many there are.
        sequence: Numbers of the documents' index terms, in order, end to end.
        starts: Where in ``sequence`` a document begins; it is ``lengths`` long.
        term_numbers: Index term → its number, of the writer: look up only.
    """

    aliases: Mapping[str, str]
    repeats: Mapping[str, tuple[str, ...]]
    session: Ints
    previous: Ints
    next: Ints
    actor: Ints
    acted: Mask
    asks: Mask
    form: NDArray[np.uint8]
    rows: Ints
    kinship: Floats
    actors: Sequence[str]
    sessions: int
    sequence: Ints
    starts: NDArray[np.int64]
    term_numbers: Mapping[str, int]

    def canonical(self, id: str) -> str:
        """The id that the step with episodic node *id* is found under."""
        return self.aliases.get(id, id)

    def made_of(self, id: str) -> str:
        """The node id of the first step that was made of message *id*; *id* if none was."""
        return next(iter(self.repeats.get(id, ())), id)

    def of(self, id: str) -> tuple[int, ...]:
        """The living documents of a step, by its node's id, or of a message's document."""
        return super().of(self.canonical(id))

    @cached_property
    def median_words(self) -> float:
        """The median length of the living documents, in words; 0 if there is none."""
        alive = self.log_words[self.alive]
        return math.exp(float(np.median(alive))) if len(alive) else 0.0


@dataclass(frozen=True, slots=True)
class CorpusView:
    """
    Everything searchable of one repository at one revision.

    Attributes:
        restated: Pairs of a fact's document and a document of a step behind it, shape
            ``(pairs, 2)``; those of dead documents are among them.
        wordings: Former wordings of intents, under the intent's id; they have vectors only.
        damaged: Rows of the store that are left out, each as ``StoreCorrupt.row``.
    """

    revision: Revision
    steps: StepsView
    nodes: Mapping[NodeType, DocumentsView]
    restated: Ints
    wordings: DocumentsView
    damaged: tuple[str, ...] = ()

    def of_type(self, kind: NodeType) -> DocumentsView | None:
        """The documents of one type; ``source`` nodes are found as the steps they repeat."""
        return self.steps if kind in ("episodic", "source") else self.nodes.get(kind)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to find."""
        return not self.steps.count and not any(view.count for view in self.nodes.values())


# ── The writer's side ────────────────────────────────────────────────────────────────


class _Documents:
    """The growing documents of one type."""

    def __init__(self, dimensions: int, lexicon: Lexicon) -> None:
        self.ids: list[str] = []
        self.nodes: list[Node | None] = []
        self.origins: dict[int, str] = {}
        self.documents: dict[str, tuple[int, ...]] = {}
        self.lexicon = lexicon
        self.postings = Postings(lexicon.numbers)
        self.columns = {
            "lengths": Column(np.float32),
            "log_words": Column(np.float32),
            "first": Column(np.float64),
            "last": Column(np.float64),
            "valid_to": Column(np.float64),
            "alive": Column(np.bool_),
        }
        self.vectors = Column(np.float32, dimensions)
        self.vector_documents = Column(np.int32)
        self._heads = Column(np.float32, min(HEAD, dimensions))
        self._tails = Column(np.float32)
        self.living = 0
        self._terms = array("i")
        self._published = 0
        self._rows: list[tuple[Any, ...]] = []

    def add(self, document: Document, breather: Breather, *own: Any) -> int:
        """
        Append *document*; its postings are seen after ``publish``.

        Args:
            own: What the columns hold of it that only this type of document has.
        """
        number = len(self.ids)
        found, spoken = self.lexicon.read(document.text, breather)
        self._terms.extend(found)
        times = (document.first, document.last, document.valid_to)
        self._rows.append((len(found), math.log(max(spoken, 1)), *times, True, *own))
        if len(self._rows) >= _GATHERED:
            self._settle()
        self.ids.append(document.id)
        self.nodes.append(document.node)
        if document.origin is not None:
            self.origins[number] = document.origin
        self.living += 1
        self.documents[document.id] = (*self.documents.get(document.id, ()), number)
        return number

    def _settle(self) -> None:
        """Write the gathered rows, a column at a time, before anything else touches columns."""
        rows, self._rows = self._rows, []
        if rows:
            for column, values in zip(self.columns.values(), zip(*rows, strict=True), strict=True):
                column.extend(values)

    def publish(self) -> NDArray[np.int32]:
        """Let readers find what is new by its words; gives its terms, end to end."""
        self._settle()
        terms = np.array(self._terms, np.int32)
        lengths = self.columns["lengths"].view()[self._published :].astype(np.int32)
        self.postings.add(self._published, lengths, terms)
        self._published, self._terms = len(self.ids), array("i")
        return terms

    def remove(self, ids: Iterable[str]) -> None:
        gone = [number for id in ids for number in self.documents.pop(id, ())]
        if gone:
            self._settle()
            self.living -= len(gone)
            self.columns["alive"].replace(gone, False)

    def vector_of(self, number: int) -> Vector | None:
        rows = np.flatnonzero(self.vector_documents.view() == number)
        return self.vectors.view()[rows[0]] if len(rows) else None

    def add_vectors(self, numbers: Sequence[int], vectors: Sequence[Vector]) -> None:
        self.vectors.extend(vectors)
        self.vector_documents.extend(numbers)
        self.note_heads(len(numbers))

    def note_heads(self, count: int) -> None:
        """Note the heads of the last *count* vectors."""
        heads, tails = head_and_tail(self.vectors.view()[-count:])
        self._heads.extend(heads)
        self._tails.extend(tails)

    def heads(self) -> Heads | None:
        """Of all vectors."""
        return Heads(self._heads.view(), self._tails.view())

    def fields(self) -> dict[str, Any]:
        return {
            "count": len(self.ids),
            "ids": self.ids,
            "nodes": self.nodes,
            "origins": self.origins,
            "vectors": self.vectors.view(),
            "vector_documents": self.vector_documents.view(),
            "heads": self.heads(),
            "postings": self.postings,
            "documents": self.documents,
            **{name: column.view() for name, column in self.columns.items()},
        }


class _Steps(_Documents):
    """The growing sides of raw steps and messages, chained within their sessions and threads."""

    def __init__(self, dimensions: int, lexicon: Lexicon) -> None:
        super().__init__(dimensions, lexicon)
        self.columns |= {
            "session": Column(np.int32),
            "previous": Column(np.int32),
            "actor": Column(np.int32),
            "acted": Column(np.bool_),
            "asks": Column(np.bool_),
            "form": Column(np.uint8),
            "starts": Column(np.int64),
            "next": Column(np.int32),
            "rows": Column(np.int32),
            "kinship": Column(np.float32),
        }
        self._sequence = Column(np.int32)
        self._sessions = _Numbering()
        self._actors = _Numbering()
        self._last: dict[int, int] = {}
        self._followed: list[tuple[int, int]] = []
        self._noted = 0
        self.aliases: dict[str, str] = {}
        self.repeats: dict[str, tuple[str, ...]] = {}

    def publish(self) -> NDArray[np.int32]:
        terms = super().publish()
        self._sequence.extend(terms)
        self._link_next()
        return terms

    def note_heads(self, count: int) -> None:
        """Steps need none."""

    def heads(self) -> Heads | None:
        return None

    def add_side(self, side: Side, breather: Breather) -> int:
        session = self._sessions.number(side.chain)
        previous = self._last.get(session, -1)
        actor = self._actors.number(fold(side.actor))
        said = (actor, side.acted, side.asks, side.form)
        # Neither a following one, nor a vector and so a kinship, is known yet.
        number = self.add(side, breather, session, previous, *said, self._noted, -1, -1, 0.0)
        self._noted = self._sequence.count + len(self._terms)
        if previous >= 0:
            self._followed.append((previous, number))
        self._last[session] = number
        return number

    def add_repeat(self, step: str, message: str) -> None:
        """Have the step with node *step* found as the document of *message*."""
        self.aliases[step] = message
        self.repeats[message] = (*self.repeats.get(message, ()), step)

    def canonical(self, id: str) -> str:
        """The id that a step or message is found under."""
        return self.aliases.get(id, id)

    def forget_repeats(self, ids: Iterable[str]) -> None:
        """Forget steps that repeat a message which stays."""
        for id in ids:
            if (message := self.aliases.pop(id, None)) is not None:
                self.repeats[message] = tuple(s for s in self.repeats[message] if s != id)

    def handed_on(self, ids: Iterable[str]) -> dict[str, str]:
        """
        Give the documents of messages in *ids* to the steps that repeat them.

        Returns:
            Id of each such message → the step whose document it is now.
        """
        heirs: dict[str, str] = {}
        for id in ids:
            steps = self.repeats.pop(id, ())
            if not steps or id not in self.documents:
                continue
            heir, *others = steps
            heirs[id] = heir
            del self.aliases[heir]
            self.documents[heir] = self.documents.pop(id)
            for number in self.documents[heir]:
                # In place: whoever looks it up in an earlier view finds the same document.
                self.ids[number] = heir
            for other in others:
                self.add_repeat(other, heir)
        return heirs

    def _link_next(self) -> None:
        self._settle()
        if self._followed:
            previous, following = np.array(self._followed, np.int32).T
            self.columns["next"].link(previous, following)
            self._followed = []

    def add_vectors(self, numbers: Sequence[int], vectors: Sequence[Vector]) -> None:
        self._link_next()
        first = self.vectors.count
        super().add_vectors(numbers, vectors)
        added = np.asarray(numbers, np.intp)
        self.columns["rows"].link(added, np.arange(first, first + len(added)))
        following = self.columns["next"].view()[added]
        self._link_kin(np.concatenate((added, following[following >= 0])))

    def _link_kin(self, numbers: NDArray[np.intp]) -> None:
        """Note how near each of *numbers* is to the document before it, where both are known."""
        rows, previous = self.columns["rows"].view(), self.columns["previous"].view()[numbers]
        both = (previous >= 0) & (rows[numbers] >= 0) & (rows[previous] >= 0)
        numbers, previous = numbers[both], previous[both]
        vectors = self.vectors.view()
        near = np.einsum("ij,ij->i", vectors[rows[numbers]], vectors[rows[previous]])
        self.columns["kinship"].link(numbers, near)

    def view(self) -> StepsView:
        return StepsView(
            **self.fields(),
            aliases=self.aliases,
            repeats=self.repeats,
            actors=self._actors.names,
            sessions=len(self._sessions.names),
            sequence=self._sequence.view(),
            term_numbers=self.lexicon.numbers,
        )


class _Numbering:
    """Gives names numbers from 0 in order of first sight."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        number = self.numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number


class _Restated:
    """Which documents of steps a fact says again; either may come first."""

    def __init__(self) -> None:
        self.pairs = Column(np.int32, 2)
        self._waiting: dict[str, list[int]] = {}

    def add(self, fact: int, steps: Iterable[str], known: _Steps) -> None:
        for step in map(known.canonical, steps):
            for document in known.documents.get(step, ()):
                self.pairs.append((fact, document))
            if step not in known.documents:
                self._waiting.setdefault(step, []).append(fact)

    def arrived(self, step: str, document: int) -> None:
        # Kept: the step's other side may follow.
        for fact in self._waiting.get(step, ()):
            self.pairs.append((fact, document))

    def repeated(self, step: str, message: str, known: _Steps) -> None:
        """*step* is found as *message*: hand over the facts that wait for it."""
        for fact in self._waiting.pop(step, ()):
            self.add(fact, (message,), known)


class Corpus:
    """
    The writer's side of a repository's documents. Not for two writers at once.

    Args:
        dimensions: Width of the vectors.
    """

    def __init__(self, *, dimensions: int) -> None:
        self.dimensions = dimensions
        lexicon = Lexicon()
        self._steps = _Steps(dimensions, lexicon)
        kinds: list[NodeType] = ["semantic", "procedural", "subgoal", "tag", "intent"]
        self._nodes: dict[NodeType, _Documents] = {
            kind: _Documents(dimensions, lexicon) for kind in kinds
        }
        self._wordings = _Documents(dimensions, lexicon)
        self._waiting: dict[str, tuple[_Documents, int]] = {}
        self._restated = _Restated()

    @property
    def documents(self) -> int:
        """How many can be found."""
        return sum(group.living for group in (self._steps, *self._nodes.values()))

    def knows_step(self, id: str) -> bool:
        """Whether the step with episodic node *id*, or the message's document, is here."""
        return id in self._steps.documents or id in self._steps.aliases

    def repeat(self, step: str, message: str) -> None:
        """
        Have a step found as the document of the message that it was made of.

        Args:
            step: Node id of the step; *message* the id of the document, which may follow.
        """
        self._steps.add_repeat(step, message)
        self._restated.repeated(step, message, self._steps)

    def add_side(self, side: Side, breather: Breather) -> None:
        """Append the side of a step or message; in order of arrival, it waits for its vector."""
        number = self._steps.add_side(side, breather)
        self._waiting[side.key] = (self._steps, number)
        self._restated.arrived(side.id, number)

    def put(self, document: Document, breather: Breather) -> bool:
        """
        Add a node's document in the place of what stood under its id.

        Returns:
            Whether it waits for a vector: neither does the node bring one, nor had
            what it replaces the same meaning and one.
        """
        node = document.node
        if node is None or node.type not in self._nodes:
            raise ValueError(f"{document.id!r} is not the document of a searchable node")
        group = self._nodes[node.type]
        vector = document.vector if document.vector is not None else _inherited(group, document)
        group.remove([document.id])
        number = group.add(document, breather)
        self._waiting[document.key] = (group, number)
        if isinstance(node, Intent):
            self._put_wordings(node, document, breather)
        self._restated.add(number, document.steps, self._steps)
        if vector is not None:
            self.add_vectors({document.key: vector})
        return vector is None

    def _put_wordings(self, intent: Intent, document: Document, breather: Breather) -> None:
        self._wordings.remove([intent.id])
        rows = [one.vector for one in intent.wordings if one.text != intent.description]
        known = [row for row in rows if row is not None and len(row) == self.dimensions]
        bare = replace(document, text="", meaning="", origin=None)
        numbers = [self._wordings.add(bare, breather) for _ in known]
        if known:
            self._wordings.add_vectors(numbers, known)

    def add_vectors(self, vectors: Mapping[str, Vector]) -> set[str]:
        """Give documents their vectors; the keys that none waited for are given back."""
        found: dict[int, tuple[_Documents, list[int], list[Vector]]] = {}
        unknown = set()
        for key, vector in vectors.items():
            if key not in self._waiting:
                unknown.add(key)
                continue
            group, number = self._waiting.pop(key)
            _, numbers, rows = found.setdefault(id(group), (group, [], []))
            numbers.append(number)
            rows.append(vector)
        for group, numbers, rows in found.values():
            group.add_vectors(numbers, rows)
        return unknown

    def remove(self, ids: Sequence[str]) -> dict[str, str | None]:
        """
        Remove nodes, steps and messages by id; a step that repeats a message takes its place.

        Returns:
            The keys that wait no more → under which key the document waits now, if it does.
        """
        gone = set(ids)
        if not gone:
            return {}
        self._steps.forget_repeats(gone)
        heirs = self._steps.handed_on(gone)
        for group in (self._steps, self._wordings, *self._nodes.values()):
            group.remove(gone)
        keys: dict[str, str | None] = {}
        for key, (group, at) in list(self._waiting.items()):
            owner, slash, part = key.rpartition("/")
            if owner in heirs:
                keys[key] = renamed = f"{heirs[owner]}{slash}{part}"
                self._waiting[renamed] = self._waiting.pop(key)
            elif group.ids[at] in gone:
                keys[key] = None
                del self._waiting[key]
        return keys

    def view(self, revision: Revision, breather: Breather) -> CorpusView:
        """Everything as it is now; call it while nobody writes."""
        for group in (self._steps, self._wordings, *self._nodes.values()):
            group.publish()
            breather.breathe()
        nodes = {kind: DocumentsView(**group.fields()) for kind, group in self._nodes.items()}
        wordings = DocumentsView(**self._wordings.fields())
        return CorpusView(
            revision, self._steps.view(), nodes, self._restated.pairs.view(), wordings
        )


def _inherited(group: _Documents, document: Document) -> Vector | None:
    before = group.documents.get(document.id)
    if not before or (old := group.nodes[before[0]]) is None:
        return None
    return group.vector_of(before[0]) if old.text == document.meaning else None

"""The writable corpus, and its views: arrays only grow, masks are copied, readers never wait."""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import fields, replace
from itertools import chain
from sys import getsizeof
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.english.words import index_terms_of
from mnemo.index.columns import LISTED, NUMBER, TEXT, WORD, Column, Facets, Postings, weight
from mnemo.index.corpus import CorpusView, Document, DocumentsView, Side, StepsView, thread_chain
from mnemo.index.large import CLAIMS, LargeView, SealedClaims, SealedSteps, Segment, of_kind
from mnemo.index.owed import Debt, Group, Owed
from mnemo.index.segments import Chain
from mnemo.runtime.clock import Breather, breathed
from mnemo.runtime.text import fold, words
from mnemo.values.changeset import Revision
from mnemo.values.graph import Intent, Node, NodeType, Vector
from mnemo.values.steps import Step
from mnemo.values.vectors import keyed_passages, passage_key, vector_keys

SHRINKAGE = 200
"""Documents at which half of the mean counts as the centre (S); else small stores lose 9 points."""
_FINENESS = 2**24
"""Steps per unit in which vectors are added up."""


NODE = 350
"""Bytes of a node without its texts, its columns and entries in tables."""
PIECES = 20
"""Bytes of a document in what a view derives from the columns."""
EMPTY = 40_000
"""Bytes of a corpus of no documents, most of them of its columns and their views."""
MAX_INDEXED_CHARACTERS = 1_000_000
"""Characters of one document that are indexed; the store keeps, and its search finds, the rest."""
MAX_REMEMBERED = 500_000
"""Words whose terms are remembered; texts repeat few words, and stemming one takes 20 µs."""
_PIECE = re.compile(r".{1,4096}(?= |\Z)|.{1,4096}", re.DOTALL)
"""A part of a text, cut at a blank if there is one."""


class Lexicon(dict[str, tuple[int, ...]]):
    """Folded word → numbers of its index terms, for one writer; others may look up *numbers*."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return weight(self, WORD + LISTED) + weight(self.numbers, WORD + NUMBER)

    def __missing__(self, word: str) -> tuple[int, ...]:
        known = self.numbers
        found = tuple(known.setdefault(term, len(known)) for term in index_terms_of((word,)))
        self[word] = found
        return found

    def read(self, text: str, breather: Breather) -> tuple[list[int], int]:
        """The numbers of *text*'s index terms, in order, and how many words it has."""
        if len(self) > MAX_REMEMBERED:
            self.clear()
        numbers: list[int] = []
        spoken = 0
        for piece in _PIECE.findall(text[:MAX_INDEXED_CHARACTERS]):
            folded = words(piece)
            numbers.extend(chain.from_iterable(map(self.__getitem__, folded)))
            spoken += len(folded)
            breather.breathe()
        return numbers, spoken


class Documents:
    """The growing documents of one type."""

    read_as: type[DocumentsView] = DocumentsView

    def __init__(self, dimensions: int, lexicon: Lexicon, facets: Facets) -> None:
        self.ids: list[str] = []
        self.nodes: list[Node | None] = []
        self.origins: dict[int, str] = {}
        self.documents: dict[str, tuple[int, ...]] = {}
        self.lexicon = lexicon
        self.facets = facets
        self.postings: Postings = Postings(lexicon.numbers)
        columns = (one for one in fields(self.read_as) if one.metadata)
        self.columns: dict[str, Column] = {
            one.name: Column(one.metadata["dtype"]) for one in columns
        }
        self.vectors: Column = Column(np.float32, dimensions)
        self.vector_documents: Column = Column(np.int32)
        self.vector_passages: Column = Column(np.uint8)
        self.aliases: dict[str, str] = {}
        self.living: int = 0
        self.texts: int = 0
        self.terms: array[int] = array("i")
        self._published = self._published_terms = 0

    @property
    def count(self) -> int:
        """How many documents there are and were."""
        return len(self.ids)

    def add(self, document: Document, breather: Breather, **row: Any) -> int:
        """Append *document*, and *row* to the columns; its words are seen after ``publish``."""
        number = len(self.ids)
        found, spoken = self.lexicon.read(document.text, breather)
        self.terms.extend(found)
        row |= {"lengths": len(found), "log_words": math.log(max(spoken, 1)), "passages": 0}
        row |= {"alive": True, "linked": -1, "metadata": self.facets.number(document.metadata)}
        for name, column in self.columns.items():
            column.append(row[name] if name in row else getattr(document, name))
        self.ids.append(document.id)
        self.nodes.append(document.node)
        if document.node is not None:
            self.texts += NODE + getsizeof(document.text)
        if document.origin is not None:
            self.origins[number] = document.origin
        self.living += 1
        self.documents[document.id] = (*self.documents.get(document.id, ()), number)
        return number

    @property
    def nbytes(self) -> int:
        """Bytes in memory: of columns as they are, of the rest as entries commonly take."""
        columns = (*self.columns.values(), self.vectors, self.vector_documents)
        tables = weight(self.documents, TEXT + LISTED) + weight(self.aliases, 2 * TEXT)
        tables += weight(self.ids, NUMBER + PIECES)
        tables += sum(map(getsizeof, (self.nodes, self.origins, self.terms)))
        return sum(c.nbytes for c in columns) + tables + self.postings.nbytes + self.texts

    def is_alive(self, number: int) -> bool:
        """Whether a document is the last one of its node, which is not gone."""
        return bool(self.columns["alive"].view()[number])

    def view(self) -> DocumentsView:
        """The documents as they are now."""
        return DocumentsView(**self.fields())

    def publish(self) -> None:
        """Let readers find what is new by its words."""
        terms = np.array(self.terms[self._published_terms :], np.int32)
        lengths = self.columns["lengths"].view()[self._published :].astype(np.int32)
        self.postings.add(self._published, lengths, terms)
        self._published, self._published_terms = len(self.ids), len(self.terms)

    def remove(self, ids: Iterable[str]) -> None:
        self.end([number for id in ids for number in self.documents.pop(id, ())])

    def end(self, numbers: Sequence[int]) -> None:
        """End documents whose next ones follow; earlier views still find them."""
        alive = self.columns["alive"].view()
        if gone := [number for number in numbers if alive[number]]:
            self.living -= len(gone)
            self.columns["alive"].replace(gone, False)

    def vectors_of(self, number: int) -> dict[int, Vector]:
        """The vectors of a document by the numbers of their passages."""
        rows = np.flatnonzero(self.vector_documents.view() == number)
        passages = self.vector_passages.view()[rows].tolist()
        return dict(zip(passages, self.vectors.view()[rows], strict=True))

    def add_vectors(
        self, numbers: Sequence[int], passages: Sequence[int], vectors: Sequence[Vector]
    ) -> None:
        first = np.flatnonzero(np.asarray(passages) == 0)
        self.columns["linked"].link(np.asarray(numbers, np.intp)[first], self.vectors.count + first)
        self.vectors.extend(vectors)
        self.vector_documents.extend(numbers)
        self.vector_passages.extend(passages)
        self._count(self.vectors.view()[-len(passages) :][first], 1)

    def _count(self, vectors: NDArray[np.float32], sign: int) -> None:
        """Nothing: of steps alone the mean is known."""

    def fields(self) -> dict[str, Any]:
        """What every view holds: the columns as they are now, and what the writer goes on with."""
        shared = (one.name for one in fields(DocumentsView) if not one.metadata)
        found = {name: getattr(self, name) for name in shared} | self.columns
        return {n: one.view() if isinstance(one, Column) else one for n, one in found.items()}


class Steps(Documents):
    """The growing sides of raw steps and messages, chained within their sessions and threads."""

    read_as: type[DocumentsView] = StepsView

    def __init__(self, dimensions: int, lexicon: Lexicon, facets: Facets) -> None:
        super().__init__(dimensions, lexicon, facets)
        self._sum = np.zeros(dimensions, np.int64)
        self._summed = 0
        self.sessions: _Numbering = _Numbering()
        self.actors: _Numbering = _Numbering()
        self._joined = Column(np.int32, 2)
        self.has_heirs: bool = False
        """Whether some are found as other documents than they would be if they were read anew."""
        self.repeating: dict[str, tuple[str, int]] = {}
        self.repeats: dict[str, tuple[str, ...]] = {}
        self.unread: dict[str, str] = {}
        """Damaged rows → the ids that their documents would have."""

    def add_side(self, side: Side, breather: Breather) -> int:
        id, numbers = side.thread_id, self.sessions
        number = self.add(
            side,
            breather,
            session=numbers[side.chain],
            actor=self.actors[fold(side.actor)],
            told_by=self.actors[fold(side.told_by or side.actor)],
            thread=-1 if id is None else numbers[thread_chain(id)],
        )
        for step in self.repeats.get(side.id, ()):
            self.join(step, [number])
        return number

    def add_repeat(self, step: str, message: str, session_id: str, born: int) -> None:
        """Have the step with node *step* of a session found as the document of *message*."""
        self.aliases[step] = message
        self.repeating[step] = session_id, born
        self.repeats[message] = (*self.repeats.get(message, ()), step)
        self.join(step, self.documents.get(message, ()))

    def join(self, step: str, documents: Iterable[int]) -> None:
        session = self.sessions[self.repeating[step][0]]
        for document in documents:
            self._joined.append((session, document))

    def forget_repeats(self, ids: Iterable[str]) -> None:
        """Forget steps that repeat a message which stays."""
        for id in ids:
            if (message := self.aliases.pop(id, None)) is not None:
                self.repeats[message] = tuple(s for s in self.repeats[message] if s != id)
                session, pairs = self.sessions[self.repeating.pop(id)[0]], self._joined.view()
                joined = np.isin(pairs[:, 1], self.documents.get(message, ()))
                self._joined.replace(np.flatnonzero(joined & (pairs[:, 0] == session)), -1)

    def handed_on(self, ids: Iterable[str]) -> dict[str, str]:
        """Give the documents of messages in *ids* to the steps that repeat them: message → step."""
        heirs: dict[str, str] = {}
        for id in ids:
            steps = self.repeats.pop(id, ())
            self.has_heirs = self.has_heirs or bool(steps)
            if not steps or id not in self.documents:
                continue
            heir, *others = steps
            heirs[id] = heir
            del self.aliases[heir], self.repeating[heir]
            self.documents[heir] = self.documents.pop(id)
            for number in self.documents[heir]:
                # In place: whoever looks it up in an earlier view finds the same document.
                self.ids[number] = heir
            for other in others:
                self.aliases[other] = heir
            self.repeats |= {heir: tuple(others)} if others else {}
        return heirs

    def remove(self, ids: Iterable[str]) -> None:
        ids = tuple(ids)
        gone = [number for id in ids for number in self.documents.get(id, ())]
        rows = self.columns["linked"].view()[gone]
        self._count(self.vectors.view()[rows[rows >= 0]], -1)
        super().remove(ids)

    def count_elsewhere(self, sum: NDArray[np.float64], count: int) -> None:
        """Count so many vectors of this *sum* as well, which are not here."""
        self._sum += np.rint(sum * _FINENESS).astype(np.int64)
        self._summed += count

    def _count(self, vectors: NDArray[np.float32], sign: int) -> None:
        """Add *vectors* to the sum of all, or take them off it: in whole numbers, so exact."""
        parts = np.rint(vectors * np.float32(_FINENESS))
        self._sum += sign * parts.sum(axis=0, dtype=np.float64).astype(np.int64)
        self._summed += sign * len(vectors)

    @property
    def nbytes(self) -> int:
        """As of all documents, with the threads, sessions and actors."""
        names = sum(weight(one, TEXT) for one in (self.sessions, self.actors, self.repeats))
        return super().nbytes + names + self._joined.nbytes + weight(self.repeating, 2 * TEXT)

    def view(self) -> StepsView:
        return StepsView(
            **self.fields(),
            repeats=self.repeats,
            joined=self._joined.view(),
            chains=self.sessions,
            actor_numbers=self.actors,
            actors=tuple(self.actors),
            centre=(self._sum / (_FINENESS * (self._summed + SHRINKAGE))).astype(np.float32),
        )


class _Numbering(dict[str, int]):
    """Name → its number, from 0 in order of first sight."""

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, len(self))


class _Behind:
    """Which documents of steps are behind a node's; either may come first."""

    def __init__(self) -> None:
        self.pairs = Column(np.int32, 2)
        self.waiting: dict[str, list[int]] = {}
        self.awaited: dict[int, list[str]] = {}
        self._repeating: dict[int, list[str]] = {}
        """Steps behind a node that are found as a message: they stay when that expires."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        waiting = weight(self.waiting, TEXT + 2 * LISTED) + weight(self.awaited, 2 * LISTED)
        return self.pairs.nbytes + waiting + weight(self._repeating, 2 * LISTED)

    def add(self, node: int, steps: Iterable[str], known: Steps) -> None:
        steps = [*steps]
        if repeating := [step for step in steps if step in known.aliases]:
            self._repeating.setdefault(node, []).extend(repeating)
        # Of steps that repeat one message it is behind the node once.
        for step in dict.fromkeys(known.aliases.get(step, step) for step in steps):
            for document in known.documents.get(step, ()):
                self.pairs.append((node, document))
            if step not in known.documents:
                self._wait(node, step)

    def _wait(self, node: int, step: str) -> None:
        if step not in (awaited := self.awaited.setdefault(node, [])):
            awaited.append(step)
            self.waiting.setdefault(step, []).append(node)

    def steps_of(self, nodes: Set[int], known: Steps) -> dict[int, set[str]]:
        """The ids of the steps behind documents of *nodes*."""
        found = {node: {*self.awaited.get(node, ())} for node in nodes}
        pairs = self.pairs.view()
        for node, document in pairs[np.isin(pairs[:, 0], np.array([*nodes], np.int32))].tolist():
            found[node].add(known.ids[document])
        for node in nodes & self._repeating.keys():
            repeating = self._repeating[node]
            found[node].difference_update(map(known.aliases.get, repeating))
            found[node].update(repeating)
        return found

    def arrived(self, step: str, document: int) -> None:
        # Kept: the step's other side may follow.
        for node in self.waiting.get(step, ()):
            self.pairs.append((node, document))

    def repeated(self, step: str, known: Steps) -> None:
        """*step* is found as a message: hand over the nodes that wait for it."""
        for node in self.waiting.pop(step, ()):
            self.awaited[node].remove(step)
            others = self._repeating.get(node, [])
            if known.aliases[step] in map(known.aliases.get, others):
                others.append(step)  # The message is behind the node already.
            else:
                self.add(node, (step,), known)

    def wait_for_all(self, known: Steps) -> None:
        """Wait for all steps, whose documents are to have other numbers."""
        for node, document in self.pairs.view().tolist():
            self._wait(node, known.ids[document])
        for node, steps in self._repeating.items():
            for step in steps:
                self._wait(node, step)
        self.pairs = Column(np.int32, 2)


class Corpus:
    """The writer's side of a repository's documents. Not for two writers at once."""

    def __init__(self, *, dimensions: int, passage_tokens: int | None = None) -> None:
        self.dimensions = dimensions
        self._passage_tokens = passage_tokens
        lexicon, facets = Lexicon(), Facets()
        self.steps: Steps = Steps(dimensions, lexicon, facets)
        kinds: list[NodeType] = ["semantic", "procedural", "subgoal", "tag", "intent"]
        self.nodes: dict[NodeType, Documents] = {
            kind: Documents(dimensions, lexicon, facets) for kind in kinds
        }
        self._wordings = Documents(dimensions, lexicon, facets)
        self.owed: Owed = Owed()
        self.behind: dict[NodeType, _Behind] = {"semantic": _Behind(), "procedural": _Behind()}

    @property
    def _findable(self) -> tuple[Documents, ...]:
        return (self.steps, *self.nodes.values())

    @property
    def _groups(self) -> tuple[Documents, ...]:
        return (*self._findable, self._wordings)

    def renew_steps(self, sums: Iterable[tuple[NDArray[np.float64], int]]) -> None:
        """
        Begin the steps and messages anew, behind large segments; *sums*: of the first vectors that
        each of these holds, and how many they are.
        """
        for behind in self.behind.values():
            behind.wait_for_all(self.steps)
        self._owe_nothing(self.steps)
        self.steps = Steps(self.dimensions, Lexicon(), Facets())
        for vectors, count in sums:
            self.steps.count_elsewhere(vectors, count)

    def renew_claims(self, kind: NodeType) -> None:
        """Begin the facts, or the instructions, anew, behind large segments."""
        self._owe_nothing(self.nodes[kind])
        self.nodes[kind] = Documents(self.dimensions, Lexicon(), Facets())
        self.behind[kind] = _Behind()

    def _owe_nothing(self, group: Documents) -> None:
        for key in [key for key, debt in self.owed.items() if debt.group is group]:
            self.owed.take(key)

    def count_of(self, chain: Chain) -> int:
        """How many documents of steps, or of nodes, there are and were."""
        groups = (self.steps,) if chain == "steps" else self.nodes.values()
        return sum(group.count for group in groups)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, with those of a view; within a quarter from 1,000 documents on."""
        columns = sum(group.nbytes for group in self._groups)
        columns += sum(behind.nbytes for behind in self.behind.values())
        shared = {
            id(one): one.nbytes for group in self._groups for one in (group.lexicon, group.facets)
        }
        return EMPTY + columns + sum(shared.values()) + self.owed.nbytes

    @property
    def documents(self) -> int:
        """How many can be found."""
        return sum(group.living for group in self._findable)

    @property
    def removed(self) -> int:
        """Documents that are found no more and take up room."""
        return sum(len(group.ids) for group in self._findable) - self.documents

    def knows_step(self, id: str) -> bool:
        """Whether the step with episodic node *id*, or the message's document, is here."""
        return id in self.steps.documents or id in self.steps.aliases

    def repeat(self, step: Step, message: str) -> None:
        """Have *step* found as the document, which may follow, of the message it was made of."""
        self.steps.add_repeat(step.node_id, message, step.session_id, step.ordinal)
        for behind in self.behind.values():
            behind.repeated(step.node_id, self.steps)

    def add_side(self, side: Side, breather: Breather) -> dict[str, str]:
        """Append the side of a step or message; give its texts by the keys of their vectors."""
        number = self.steps.add_side(side, breather)
        for behind in self.behind.values():
            behind.arrived(side.id, number)
        return self._wait(side, self.steps, number)

    def _wait(self, document: Document, group: Documents, number: int) -> dict[str, str]:
        texts = keyed_passages(document.key, document.meaning, self._passage_tokens)
        group.columns["passages"].link(number, len(texts))
        for passage, (key, part) in enumerate(texts.items()):
            self.owed.add(key, Debt(group, number, passage, part))
        return texts

    def put(self, document: Document, breather: Breather) -> dict[str, str]:
        """Put a node's document in its place; give texts as ``add_side``, of vectors not known."""
        node = document.node
        if node is None or node.type not in self.nodes:
            raise ValueError(f"{document.id!r} is not the document of a searchable node")
        group = self.nodes[node.type]
        before = group.documents.get(document.id, ())
        old = group.nodes[before[-1]] if before else None
        vectors: dict[int, Vector] = {}
        if old is not None and old.text == document.meaning:
            vectors = group.vectors_of(before[-1])
        if document.vector is not None:
            vectors[0] = document.vector
        group.end(before)
        for key in vector_keys([document.key]):
            self.owed.take(key)
        number = group.add(document, breather)
        texts = self._wait(document, group, number)
        if isinstance(node, Intent):
            self.put_wordings(node, document, breather)
        if (behind := self.behind.get(node.type)) is not None:
            behind.add(number, document.steps, self.steps)
        known = {passage_key(document.key, n): vector for n, vector in vectors.items()}
        self.add_vectors(known)
        return {key: text for key, text in texts.items() if key not in known}

    def put_wordings(self, intent: Intent, document: Document, breather: Breather) -> None:
        self._wordings.end(self._wordings.documents.get(intent.id, ()))
        rows = [one.vector for one in intent.wordings if one.text != intent.description]
        known = [row for row in rows if row is not None and len(row) == self.dimensions]
        bare = replace(document, text="", meaning="", origin=None)
        numbers = [self._wordings.add(bare, breather) for _ in known]
        if known:
            self._wordings.add_vectors(numbers, [0] * len(known), known)

    def add_vectors(self, vectors: Mapping[str, Vector]) -> set[str]:
        """Give documents their vectors, by key; give the keys that none waited for."""
        debts = {key: self.owed.take(key) for key in breathed(vectors)}
        found: defaultdict[Group, list[tuple[int, int, Vector]]] = defaultdict(list)
        for key, debt in debts.items():
            if debt is not None:
                found[debt.group].append((debt.number, debt.passage, vectors[key]))
        for group, rows in found.items():
            group.add_vectors(*zip(*rows, strict=True))
        return {key for key, debt in debts.items() if debt is None}

    def waits_in(self, thread_id: str) -> bool:
        """Whether something that was said in the thread waits for a vector."""
        numbers = [debt.number for _, debt in self.owed.items() if debt.group is self.steps]
        threads = self.steps.columns["thread"].view()[numbers]
        return bool((threads == self.steps.sessions.get(thread_chain(thread_id), -2)).any())

    def remove(self, ids: Sequence[str]) -> None:
        """
        Remove nodes, steps and messages; a step that repeats a message takes its place. Of
        changesets nothing is said any more to come.
        """
        gone = set(ids)
        if gone - self.steps.documents.keys() - self.steps.aliases.keys():
            for nodes in self.nodes.values():
                known = nodes.origins.items()
                nodes.origins = {node: one for node, one in known if one not in gone}
        self.steps.forget_repeats(gone)
        heirs = self.steps.handed_on(gone)
        for group in self._groups:
            group.remove(gone)
        for key, debt in list(self.owed.items()):
            owner, slash, part = key.rpartition("/")
            if owner in heirs:
                self.owed.rename(key, f"{heirs[owner]}{slash}{part}")
            elif debt.node_id in gone:
                self.owed.take(key)

    def view(
        self,
        revision: Revision,
        breather: Breather,
        large: Mapping[Chain, Sequence[Segment]] | None = None,
    ) -> CorpusView:
        """Everything as it is now, behind *large* segments; call it while nobody writes."""
        for group in self._groups:
            group.publish()
            breather.breathe()
        nodes = {kind: group.view() for kind, group in self.nodes.items()}
        wordings = self._wordings.view()
        behind = {kind: behind.pairs.view() for kind, behind in self.behind.items()}
        if large is None or not any(large.values()):
            return CorpusView(revision, self.steps.view(), nodes, behind, wordings)
        return LargeView(
            *(revision, self.steps.view(), nodes, behind, wordings),
            sealed=of_kind(large["steps"], "steps", SealedSteps),
            claims={kind: of_kind(large["nodes"], kind, SealedClaims) for kind in CLAIMS},
            waiting={kind: one.waiting for kind, one in self.behind.items()},
            awaited={kind: one.awaited for kind, one in self.behind.items()},
            repeating=self.steps.repeating,
        )

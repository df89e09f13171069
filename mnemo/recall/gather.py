"""
Repositories of more than 20,000 texts: what one question is answered from.

Of each kind of text, of the facts and of the instructions the best by words and by vectors among
what the filters leave, the best pieces of talk, what the best facts rest on, the neighbours of all
of these, and what rests on them are gathered from the large segments and from the tail behind
them; then they are scored as ever, with the totals of the whole store. Where the filters leave no
more than 20,000 steps and messages, all of them are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.index.columns import Codes, Facets, Floats, Ints, Mask, Numbers, Postings, products
from mnemo.index.corpus import (
    CorpusView,
    DocumentsView,
    Part,
    StepsView,
    Sums,
    Totals,
    Whole,
    mean_length,
)
from mnemo.index.large import (
    CLAIMS,
    EXACT,
    LargeView,
    Sealed,
    SealedClaims,
    SealedSteps,
    coarse,
)
from mnemo.index.pieces import CHAT, DOCUMENT, NOTE, Pieces, places
from mnemo.index.segments import hashes
from mnemo.index.shares import Held, held, of_pieces, rarity_of, shares
from mnemo.recall.score import RecallQuestion, by_itself, cosines, eligible_steps, in_time
from mnemo.values.filters import Filters, Where
from mnemo.values.graph import Node, NodeType

BEST = 200
"""Texts of each kind that are gathered by their words, and as many by their vectors."""
COARSE = 4_000
"""Vectors with the fewest other signs, of which the best are found by their codes."""
TALKS = 10
"""Pieces of talk, the best by words, that are gathered."""
TURNS = 64
"""Turns of each, the best by words."""
AROUND = 2
"""Neighbours on either side."""
_KINDS = (NOTE, CHAT, DOCUMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredView(CorpusView):
    """
    A repository of which only what was gathered for a question is here; but for routing nodes.

    Attributes:
        scored_with: Terms of a question → what they are scored with for it.
        eligible: Which steps and messages match the filters.
        rests: Type → facts or instructions that have steps behind them, gathered or not.
    """

    scored_with: Mapping[tuple[str, ...], Whole]
    eligible: Mask
    rests: Mapping[NodeType, Mask]

    def whole(self, terms: Iterable[str], end: float) -> Whole:
        """What they were gathered with."""
        return self.scored_with[(*terms,)]

    def resting(self, kind: NodeType) -> Mask:
        """As of every view."""
        return self.rests[kind]


def gathered(
    corpus: LargeView,
    questions: Sequence[RecallQuestion],
    filters: Filters,
    more: Collection[str] = (),
) -> GatheredView:
    """
    Gather what *questions* are answered from; *more*: ids that are gathered in any case, of facts
    and instructions the ``BEST`` by vectors.
    """
    first, *others = gatherings = [_Gathering(corpus, one, filters) for one in questions]
    first.choose(more)
    for other in others:
        other.choose()
        first.join(other)
    first.add_neighbours()
    first.add_resting()
    return first.view(gatherings)


@dataclass(slots=True, kw_only=True)
class _Part:
    """
    A segment, or the tail, of one type: what its texts have of the words, and what is chosen.

    Attributes:
        ok: Which of its documents match the filters; *exists*: which have words.
        taken: All that was chosen, ascending; in the gathered view from number *begin* on.
    """

    source: Part
    ok: Mask
    exists: Mask
    words: Floats = field(init=False)
    chosen: list[Numbers] = field(default_factory=list)
    taken: Numbers = field(init=False)
    begin: int = field(init=False)

    @property
    def view(self) -> DocumentsView:
        """The columns."""
        return self.source.view

    def kinds(self, documents: Numbers) -> NDArray[np.uint8]:
        """Of texts."""
        return np.full(len(documents), NOTE, np.uint8)

    def read(self, rarity: Mapping[str, float], mean: float) -> Held:
        """Note what its texts have of the question's words."""
        own = held(self.view, rarity, self.exists)
        self.words = shares(own, mean)
        return own

    def all_chosen(self) -> Mask:
        """What is chosen; behind it one more."""
        chosen = np.zeros(self.view.count + 1, np.bool_)
        for some in self.chosen:
            chosen[some] = True
        return chosen

    def take(self, chosen: Mask, begin: int) -> int:
        """Take what is chosen, from number *begin* on; where the next part begins."""
        self.taken, self.begin = np.flatnonzero(chosen), begin
        return begin + len(self.taken)

    def places(self, documents: Numbers) -> Ints:
        """The numbers of *documents* in the gathered view; -1 where it has them not."""
        found = places(self.taken, documents)
        return np.where(found >= 0, found + np.int32(self.begin), found)

    def posting(self, term: str) -> tuple[Codes, Floats] | None:
        """As of a view of what is taken."""
        read = self.view.postings.read(term, self.view.count)
        if read is None:
            return None
        at = places(read[0], self.taken)
        there = np.flatnonzero(at >= 0)
        return there + self.begin, read[1][at[there]]


@dataclass(slots=True, kw_only=True)
class _Steps(_Part):
    """Steps and messages."""

    source: SealedSteps | StepsView
    pieces: Pieces
    sums: Sums
    talk: Floats = field(init=False)

    @classmethod
    def of(cls, source: SealedSteps | StepsView, filters: Filters) -> _Steps:
        """As of the filters' end."""
        view, end = source.view, filters.until
        ok, last = eligible_steps(view, filters), view.first.max(initial=-math.inf)
        if isinstance(source, SealedSteps) and (end is None or last <= end.timestamp()):
            pieces, sums = source.pieces, source.sums
        else:
            pieces = view.pieces if end is None else view.pieces_until(end.timestamp())
            sums = Sums.of(view, pieces)
        return cls(source=source, ok=ok, exists=pieces.exists, pieces=pieces, sums=sums)

    @property
    def view(self) -> StepsView:
        """As of every part."""
        return self.source.view

    def kinds(self, documents: Numbers) -> NDArray[np.uint8]:
        """As of every part."""
        return self.pieces.kind[documents]


@dataclass(slots=True, kw_only=True)
class _Claims(_Part):
    """
    Facts, or instructions.

    Attributes:
        rests: Which have steps behind them; *behind* gives documents with each of these.
    """

    rests: Mask
    behind: Callable[[Numbers], Iterator[tuple[int, str]]]

    @classmethod
    def of(cls, corpus: LargeView, kind: NodeType, source: Part, filters: Filters) -> _Claims:
        view, ok = source.view, in_time(source.view, filters)
        if isinstance(source, SealedClaims):
            rests, behind = source.resting, source.behind
        else:
            rests, behind = corpus.resting(kind), partial(corpus.behind_tail, kind)
        if not filters.is_open:
            ok = ok & (rests | by_itself(view, filters, rests))
        return cls(source=source, ok=ok, exists=view.alive, rests=rests, behind=behind)


class _Gathering:
    """Chooses documents of all parts, and puts them together."""

    def __init__(self, corpus: LargeView, question: RecallQuestion, filters: Filters) -> None:
        self._corpus, self._question, self._is_open = corpus, question, filters.is_open
        steps: tuple[SealedSteps | StepsView, ...] = (*corpus.sealed, corpus.steps)
        self._steps = [_Steps.of(one, filters) for one in steps]
        self._claims = {
            kind: [_Claims.of(corpus, kind, one, filters) for one in corpus.parts(kind)]
            for kind in CLAIMS
        }
        self._ids = list[str]()
        terms = [*question.terms]
        hashed = hashes(terms)
        for part in self._all_parts():
            part.view.postings.look_for(terms, hashed)
        if filters.session_id is not None:
            self._admit_repeated(filters)
        end = math.inf if filters.until is None else filters.until.timestamp()
        self._totals = totals = self._totals_until(end)
        self._rarity = rarity_of(question.terms, totals)
        for part in self._steps:
            own = part.read(self._rarity, totals.means["episodic"])
            part.talk = shares(of_pieces(own, part.pieces), totals.means["piece"])
        for kind, parts in self._claims.items():
            for claims in parts:
                claims.read(self._rarity, totals.means[kind])

    def _totals_until(self, end: float) -> Totals:
        """Of all parts."""
        tail, sealed = self._corpus.whole(self._question.terms, end).totals, self._steps[:-1]
        counted: list[tuple[_Part, Mask]] = [(part, part.exists) for part in sealed]
        living = {**tail.living}
        living["episodic"] += sum(part.view.count for part in sealed)
        sums = Sums.together(part.sums for part in self._steps)
        means = {**tail.means, **sums.means}
        for kind, parts in self._claims.items():
            wholes = [part.view.whole_length for part in parts]
            living[kind], means[kind] = sum(count for _, count in wholes), mean_length(wholes)
            counted += [(part, part.exists & (part.view.first <= end)) for part in parts[:-1]]
        holding = dict(tail.holding)
        for term, (part, exists) in product(holding, counted):
            if (read := part.view.postings.read(term, part.view.count)) is not None:
                holding[term] += int(np.count_nonzero(exists[read[0]]))
        return Totals(
            population=tail.population + sum(int(np.count_nonzero(some)) for _, some in counted),
            holding=holding,
            living=living,
            means=means,
            acted=sums.acted,
            observed=sums.observed,
        )

    def _admit_repeated(self, filters: Filters) -> None:
        """Messages that steps of the session repeat match as well."""
        open_to_all = replace(filters, session_id=None)
        for part, numbers in self._places(self._corpus.repeated_in(filters.session_id or "")):
            part.ok[numbers] = eligible_steps(part.view, open_to_all)[numbers]

    # ── Choosing ─────────────────────────────────────────────────────────────────────

    def choose(self, more: Collection[str] = ()) -> None:
        """Choose the candidates of all parts, and documents of *more* ids."""
        if few := self._are_few():
            for part in self._all_parts():
                # Those that rest on steps come with these.
                rests = part.rests if isinstance(part, _Claims) else False
                part.chosen.append(np.flatnonzero(part.ok & ~np.asarray(rests)))
        else:
            self._choose_from(self._steps)
            self._choose_talks()
        for claims in self._claims.values():
            if not few:
                self._choose_from(claims)
            self._choose_some(claims, more)
        self._add(more)
        found = (
            part.behind(np.flatnonzero(part.all_chosen()[:-1]))
            for parts in self._claims.values()
            for part in parts
        )
        self._add({id for pairs in found for _, id in pairs})

    def _are_few(self) -> bool:
        """Whether what the filters leave is to be scored whole."""
        left = sum(int(np.count_nonzero(part.ok)) for part in self._steps)
        for claims in (one for parts in self._claims.values() for one in parts):
            # With filters only what rests on the steps that match.
            ok = claims.ok if self._is_open else claims.ok & ~claims.rests
            left += int(np.count_nonzero(ok))
        return left <= EXACT

    def _choose_from(self, parts: Sequence[_Part]) -> None:
        """Choose the best by words, and by vectors."""
        self._choose_best(
            (part, np.flatnonzero(part.ok & (part.words > 0)), part.words) for part in parts
        )
        for asked in self._vectors():
            self._choose_best(self._near(parts, asked))

    def _choose_some(self, parts: Sequence[_Part], ids: Collection[str]) -> None:
        """Choose of the documents of *ids* the nearest."""
        hashed, listed = hashes(ids), [*ids]
        found = [(part, part.source.find(listed, hashed)[1]) for part in parts] if listed else []
        for asked in self._vectors()[:1]:
            self._choose_best(self._among(part, numbers, asked) for part, numbers in found)

    def _vectors(self) -> Sequence[Floats]:
        vectors = self._question.vectors
        width = len(self._corpus.steps.centre)
        return [] if vectors is None or vectors.shape[1] != width else [*vectors]

    def _choose_best(self, scored: Iterable[tuple[_Part, Numbers, Floats]]) -> None:
        """Choose the best of each kind of text; *scored*: documents, and values of all."""
        found: list[tuple[_Part, Numbers, Floats, NDArray[np.uint8]]] = []
        for part, documents, values in scored:
            kinds = part.kinds(documents)
            for kind in _KINDS:
                some = _best(documents[kinds == kind], values, BEST)
                found.append((part, some, values[some], part.kinds(some)))
        if not found:
            return
        kinds = np.concatenate([kinds for *_, kinds in found])
        values = np.concatenate([values for _, _, values, _ in found])
        chosen = np.zeros(len(values), np.bool_)
        for kind in _KINDS:
            chosen[_best(np.flatnonzero(kinds == kind), values, BEST)] = True
        at = 0
        for part, some, *_ in found:
            part.chosen.append(some[chosen[at : at + len(some)]])
            at += len(some)

    def _near(
        self, parts: Sequence[_Part], asked: Floats
    ) -> Iterator[tuple[_Part, Numbers, Floats]]:
        """The documents that are the nearest to *asked*, with the cosines of all that were seen."""
        sealed = [(one.source, one.ok) for one in parts if isinstance(one.source, Sealed)]
        part_of = {id(part.source): part for part in parts}
        for source, rows in coarse(sealed, asked, COARSE):
            owners = source.owners[rows].astype(np.int64)
            yield self._cosines(part_of[id(source)], source.vectors(rows), owners, asked)
        for part in parts:
            tail = part.source
            if isinstance(tail, DocumentsView) and len(tail.vectors):
                centre = self._corpus.steps.centre
                cosine, _ = cosines(tail.vectors, asked[np.newaxis], centre, tail.along(centre))
                yield part, *_by_document(part, tail.vector_documents, cosine)

    def _among(self, part: _Part, numbers: Numbers, asked: Floats) -> tuple[_Part, Numbers, Floats]:
        """Likewise of documents *numbers*."""
        rows, owners, _ = part.source.vectors_of(numbers)
        return self._cosines(part, rows, owners, asked)

    def _cosines(
        self, part: _Part, rows: Floats, owners: Numbers, asked: Floats
    ) -> tuple[_Part, Numbers, Floats]:
        centre = self._corpus.steps.centre
        cosine, _ = cosines(rows, asked[np.newaxis], centre, products(rows, centre))
        return part, *_by_document(part, owners, cosine)

    def _choose_talks(self) -> None:
        found = []
        for part in self._steps:
            pieces = _best(np.flatnonzero(part.talk > 0), part.talk, TALKS)
            found += [(float(part.talk[piece]), part, piece) for piece in pieces.tolist()]
        found.sort(key=lambda one: -one[0])
        for _, part, piece in found[:TALKS]:
            talk = (part.pieces.piece == piece) & (part.pieces.kind == CHAT)
            part.chosen.append(_best(np.flatnonzero(talk), part.words, TURNS))

    # ── By id ────────────────────────────────────────────────────────────────────────

    def _add(self, ids: Collection[str]) -> None:
        """Choose the steps and messages of *ids* as well."""
        for part, numbers in self._places(ids):
            part.chosen.append(numbers)

    def _places(self, ids: Collection[str]) -> Iterator[tuple[_Steps, Numbers]]:
        """Where the documents of *ids* are, of steps that repeat a message those of this."""
        wanted = [*{*ids, *self._corpus.aliases_of([*ids]).values()}]
        hashed = hashes(wanted)
        return ((part, part.source.find(wanted, hashed)[1]) for part in self._steps)

    def join(self, other: _Gathering) -> None:
        """Choose what *other* has chosen of the same parts as well."""
        for part, its in zip(self._all_parts(), other._all_parts(), strict=True):
            part.chosen += its.chosen

    def _all_parts(self) -> Iterator[_Part]:
        yield from self._steps
        for parts in self._claims.values():
            yield from parts

    def add_neighbours(self) -> None:
        """Take what is chosen and what stands around it, as far as it exists."""
        begin = 0
        for part in self._steps:
            pieces, wanted = part.pieces, part.all_chosen()  # The last is what is no neighbour.
            for _ in range(AROUND):
                chosen = np.flatnonzero(wanted[:-1])
                wanted[pieces.previous[chosen]] = wanted[pieces.next[chosen]] = True
            wanted[_other_sides(part.view, np.flatnonzero(wanted[:-1]))] = True
            begin = part.take(wanted[:-1] & pieces.exists, begin)
            self._ids += part.source.named(part.taken)

    def add_resting(self) -> None:
        """Take the facts and instructions that are chosen, and what rests on steps that are."""
        corpus, ids = self._corpus, [*dict.fromkeys(self._ids)]
        hashed = hashes(ids)
        self._aliases, self._repeats = corpus.repeats_of(ids, hashed)
        hashed = np.concatenate((hashed, hashes(self._aliases)))
        ids += self._aliases
        tail = self._steps[-1].taken
        for kind, parts in self._claims.items():
            begin = 0
            for part in parts:
                if isinstance(part.source, SealedClaims):
                    part.chosen.append(part.source.resting_on(ids, hashed))
                else:
                    part.chosen.append(corpus.resting_in_tail(kind, {*ids}, tail))
                begin = part.take(part.all_chosen()[:-1] & part.view.alive, begin)

    # ── Putting together ─────────────────────────────────────────────────────────────

    def view(self, gatherings: Sequence[_Gathering]) -> GatheredView:
        """The chosen documents as a view of their own, for the questions of *gatherings*."""
        corpus = self._corpus
        terms = dict.fromkeys(term for one in gatherings for term in one._rarity)
        steps, pieces = self._view_of_steps(terms), self._pieces()
        wholes = {}
        for one in gatherings:
            talk = [
                its.talk[part.pieces.piece[part.taken]]
                for part, its in zip(self._steps, one._steps, strict=True)
            ]
            whole = Whole(one._totals, pieces, np.concatenate(talk))
            wholes[(*one._question.terms,)] = whole
        nodes = {
            kind: DocumentsView(**_columns(parts, _named(parts), terms), aliases={})
            for kind, parts in self._claims.items()
        }
        given = {one.name: getattr(corpus, one.name) for one in fields(CorpusView)}
        given |= {"steps": steps, "nodes": {**corpus.nodes, **nodes}}
        given |= {"behind": {kind: self._pairs(kind, steps) for kind in corpus.behind}}
        return GatheredView(
            **given,
            scored_with=wholes,
            eligible=np.concatenate([part.ok[part.taken] for part in self._steps]),
            rests={
                kind: np.concatenate([part.rests[part.taken] for part in parts])
                for kind, parts in self._claims.items()
            },
        )

    def _view_of_steps(self, terms: Iterable[str]) -> StepsView:
        actors: dict[str, int] = {}
        columns = _columns(self._steps, self._ids, terms)
        columns |= {name: _column(self._steps, name) for name in ("acted", "asks", "form")}
        none = np.zeros(len(self._ids), np.int32)
        return StepsView(
            session=none,
            thread=none,
            chains={},
            joined=np.zeros((0, 2), np.int32),
            actor=self._actors("actor", actors),
            told_by=self._actors("told_by", actors),
            actor_numbers=actors,
            actors=list(actors),
            aliases=self._aliases,
            repeats=self._repeats,
            centre=self._corpus.steps.centre,
            **columns,
        )

    def _actors(self, name: str, known: dict[str, int]) -> Ints:
        """The column *name* with numbers of *known*, which gets names that are new."""
        columns = []
        for part in self._steps:
            numbers = getattr(part.view, name)[part.taken]
            used, back = np.unique(numbers, return_inverse=True)
            names = (part.view.actors[number] for number in used.tolist())
            ours = [known.setdefault(actor, len(known)) for actor in names]
            columns.append(np.array(ours, np.int32)[back])
        return np.concatenate(columns)

    def _pieces(self) -> Pieces:
        columns = {}
        for name in ("exists", "previous", "next", "kind", "long"):
            found = [(part, getattr(part.pieces, name)[part.taken]) for part in self._steps]
            is_place = name in ("previous", "next")
            columns[name] = np.concatenate([p.places(one) if is_place else one for p, one in found])
        # What their whole pieces have is known.
        return Pieces(piece=np.full(len(columns["exists"]), -1, np.int32), count=0, **columns)

    def _pairs(self, kind: NodeType, steps: StepsView) -> Ints:
        """Facts or instructions, and documents among *steps* that are behind them."""
        found = list[tuple[int, int]]()
        for part in self._claims[kind]:
            pairs = [*part.behind(part.taken)]
            numbers = part.places(np.array([owner for owner, _ in pairs], np.int64)).tolist()
            for number, (_, id) in zip(numbers, pairs, strict=True):
                documents = steps.documents.get(steps.aliases.get(id, id), ())
                found += [(number, document) for document in documents]
        return np.unique(np.array(found, np.int32).reshape(-1, 2), axis=0)


def _columns(parts: Sequence[_Part], ids: Sequence[str], terms: Iterable[str]) -> dict[str, Any]:
    """The fields of a view of what is taken."""
    documents: dict[str, tuple[int, ...]] = {}
    for number, id in enumerate(ids):
        documents[id] = (*documents.get(id, ()), number)
    vectors, owners, passages = map(np.concatenate, zip(*map(_vectors, parts), strict=True))
    linked = np.full(len(ids), -1, np.int32)
    first = np.flatnonzero(passages == 0)
    linked[owners[first]] = first
    nodes, origins = list[Node | None](), dict[int, str]()
    for part in parts:
        of_part, its_origins = part.source.nodes_of(part.taken)
        nodes += of_part
        origins |= {part.begin + at: one for at, one in enumerate(its_origins) if one}
    kept = ("lengths", "log_words", "first", "last", "valid_to", "alive", "by_hand", "born")
    return {
        "count": len(ids),
        "ids": ids,
        "nodes": nodes,
        "origins": origins,
        "facets": _Asked(parts),
        "metadata": np.arange(len(ids)),
        "vectors": vectors,
        "vector_documents": owners,
        "vector_passages": passages,
        "linked": linked,
        "postings": _postings(parts, terms),
        "documents": documents,
        **{name: _column(parts, name) for name in (*kept, "passages")},
    }


def _column(parts: Sequence[_Part], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(part.view, name)[part.taken] for part in parts])


def _vectors(part: _Part) -> tuple[Floats, Ints, NDArray[np.uint8]]:
    rows, owners, passages = part.source.vectors_of(part.taken)
    return rows, part.places(owners), passages


def _named(parts: Sequence[_Part]) -> list[str]:
    return [id for part in parts for id in part.source.named(part.taken)]


class _Asked(Facets):
    """The metadata of what is taken, asked where they lie."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        super().__init__()
        self._parts = parts

    def holding(self, where: Where) -> Mask:
        held = ((part, part.view.facets.holding(where)) for part in self._parts)
        return np.concatenate([mask[part.view.metadata[part.taken]] for part, mask in held])


def _postings(parts: Sequence[_Part], terms: Iterable[str]) -> Postings:
    """Of *terms*, as far as what is taken holds them."""
    postings = {}
    for term in terms:
        found = [one for part in parts if (one := part.posting(term)) is not None]
        if found:
            documents, counts = map(np.concatenate, zip(*found, strict=True))
            postings[term] = documents, counts
    return _Read(postings)


def _other_sides(view: StepsView, chosen: NDArray[Any]) -> NDArray[Any]:
    """The other sides of the steps of documents *chosen*, which stand beside them."""
    around = np.concatenate((chosen - 1, chosen + 1))
    there = (around >= 0) & (around < view.count)
    near, own = around[there], np.tile(chosen, 2)[there]
    same = (view.born[near] == view.born[own]) & (view.session[near] == view.session[own])
    return np.asarray(near[same])


class _Read(Postings):
    """Postings of the terms of some questions."""

    __slots__ = ("_read",)

    def __init__(self, read: Mapping[str, tuple[Codes, Floats]]) -> None:
        super().__init__({})
        self._read = read

    def read(self, term: str, documents: int) -> tuple[Codes, Floats] | None:
        return self._read.get(term)


def _by_document(part: _Part, owners: NDArray[Any], cosine: Floats) -> tuple[NDArray[Any], Floats]:
    """The eligible documents among *owners*, and the best cosine of each, 0 of all others."""
    values = np.full(part.view.count, -np.inf, np.float32)
    np.maximum.at(values, owners, cosine)
    return np.flatnonzero(part.ok & (values > -np.inf)), values


def _best(numbers: NDArray[Any], values: Floats, most: int) -> NDArray[Any]:
    """At most so many of *numbers*, those with the greatest of *values*."""
    if len(numbers) <= most:
        return numbers
    return numbers[np.argpartition(-values[numbers], most)[:most]]

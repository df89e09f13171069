"""
Repositories of more than 20,000 steps and messages: what one question is answered from.

Of each kind of text the best by words and by vectors among what the filters leave, the best
pieces of talk whole, what the best facts rest on, and the neighbours of all of these are gathered
from the large segments and from the tail behind them; then they are scored as ever, with the
totals of the whole store. Where the filters leave no more than 20,000, all of them are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.index.corpus import (
    Codes,
    CorpusView,
    Facets,
    Floats,
    Ints,
    Mask,
    Postings,
    StepsView,
    Sums,
    Totals,
    Whole,
    products,
)
from mnemo.index.large import EXACT, LargeView, Sealed
from mnemo.index.pieces import CHAT, DOCUMENT, NOTE, Pieces, places
from mnemo.index.segments import hashes
from mnemo.index.shares import held, of_pieces, rarity_of, shares
from mnemo.recall.score import Nearness, RecallQuestion, cosines, eligible_steps
from mnemo.values.filters import Filters
from mnemo.values.graph import NodeType

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
_CLAIMS: tuple[NodeType, ...] = ("semantic", "procedural")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredView(CorpusView):
    """
    A repository of whose steps and messages only those gathered for a question are here.

    Attributes:
        scored_with: Terms of a question → what they are scored with for it.
        eligible: Which of them match the filters.
        rests: Type → facts or instructions that have steps behind them, gathered or not.
        looked_for: Type → which of these are here with all their steps that there are; absent
            where all of them are.
        nearness: Query → type → how near these are, where it was looked at.
    """

    scored_with: Mapping[tuple[str, ...], Whole]
    eligible: Mask
    rests: Mapping[NodeType, Mask]
    looked_for: Mapping[NodeType, Mask]
    nearness: Mapping[str, Mapping[NodeType, Nearness]]

    def whole(self, terms: Iterable[str], end: float) -> Whole:
        """What they were gathered with."""
        return self.scored_with[(*terms,)]

    def resting(self, kind: NodeType) -> Mask:
        """As of every view."""
        return self.rests[kind]

    def nearness_to(self, question: RecallQuestion, kind: NodeType) -> Nearness | None:
        """How near nodes of one type are to *question*, where it was looked at."""
        return self.nearness.get(question.query, {}).get(kind)

    def is_whole(self, kind: NodeType) -> Mask:
        """Which nodes of one type can be scored: not those whose steps were not looked for."""
        whole = np.ones(self.nodes[kind].count, np.bool_)
        if kind in self.looked_for:
            whole = ~self.rests[kind] | self.looked_for[kind]
            whole[self.behind[kind][:, 0]] = True
        return whole


def gathered(
    corpus: LargeView,
    questions: Sequence[RecallQuestion],
    filters: Filters,
    more: Iterable[str] = (),
) -> GatheredView:
    """Gather what *questions* are answered from; *more*: ids that are gathered in any case."""
    *others, last = (_Gathering(corpus, question, filters) for question in questions)
    last.choose()
    last.add(more)
    for other in others:
        other.choose()
        last.join(other)
    last.add_neighbours()
    return last.view([*others, last])


@dataclass(slots=True)
class _Part:
    """
    A segment, or the tail: what its texts and pieces have of the words, and what is chosen.

    Attributes:
        taken: All that was chosen, ascending; in the gathered view from number *begin* on.
    """

    view: StepsView
    pieces: Pieces
    sealed: Sealed | None
    ok: Mask
    sums: Sums
    words: Floats = field(init=False)
    talk: Floats = field(init=False)
    chosen: list[NDArray[Any]] = field(default_factory=list)
    taken: NDArray[Any] = field(init=False)
    begin: int = field(init=False)

    @classmethod
    def of(cls, corpus: LargeView, sealed: Sealed | None, filters: Filters) -> _Part:
        """As of the filters' end."""
        view = corpus.steps if sealed is None else sealed.view
        ok, end = eligible_steps(view, filters), filters.until
        last = view.first.max(initial=-math.inf)
        if sealed is not None and (end is None or last <= end.timestamp()):
            return cls(view, sealed.pieces, sealed, ok, sealed.sums)
        pieces = view.pieces if end is None else view.pieces_until(end.timestamp())
        return cls(view, pieces, sealed, ok, Sums.of(view, pieces))

    def read(self, rarity: Mapping[str, float], means: Mapping[str, float]) -> None:
        """Note what its texts and pieces have of the question's words."""
        own = held(self.view, rarity, self.pieces.exists)
        self.words = shares(own, means["episodic"])
        self.talk = shares(of_pieces(own, self.pieces), means["piece"])

    def places(self, documents: NDArray[Any]) -> Ints:
        """The numbers of *documents* in the gathered view; -1 where it has them not."""
        found = places(self.taken, documents)
        return np.where(found >= 0, found + np.int32(self.begin), found)

    def vectors(self) -> tuple[Floats, Ints, NDArray[np.uint8]]:
        """As of a view of what is taken."""
        source = self.sealed or self.view
        rows, owners, passages = source.vectors_of(self.taken)
        return rows, self.places(owners), passages

    def posting(self, term: str) -> tuple[Codes, Floats] | None:
        """Likewise."""
        read = self.view.postings.read(term, self.view.count)
        if read is None:
            return None
        at = places(read[0], self.taken)
        there = np.flatnonzero(at >= 0)
        return there + self.begin, read[1][at[there]]

    def ids(self) -> list[str]:
        """Of what is taken."""
        if self.sealed is not None:
            return self.sealed.ids.some(self.taken)
        return [self.view.ids[number] for number in self.taken.tolist()]


class _Gathering:
    """Chooses documents of all parts, and puts them together."""

    def __init__(self, corpus: LargeView, question: RecallQuestion, filters: Filters) -> None:
        self._corpus, self._question, self._filters = corpus, question, filters
        self._nearness: dict[NodeType, Nearness] = {}
        self._looked_for: dict[NodeType, Mask] = {}
        self._parts = [_Part.of(corpus, one, filters) for one in (*corpus.sealed, None)]
        if filters.session_id is not None:
            self._admit_repeated(filters)
        end = math.inf if filters.until is None else filters.until.timestamp()
        self._totals = self._totals_until(end)
        self._rarity = rarity_of(question.terms, self._totals)
        for part in self._parts:
            part.read(self._rarity, self._totals.means)

    def _totals_until(self, end: float) -> Totals:
        """Of all parts, and of the facts and instructions."""
        tail = self._corpus.whole(self._question.terms, end).totals
        sealed = self._parts[:-1]
        holding = dict(tail.holding)
        for term, part in ((term, part) for term in holding for part in sealed):
            if (read := part.view.postings.read(term, part.view.count)) is not None:
                holding[term] += int(np.count_nonzero(part.pieces.exists[read[0]]))
        sums = Sums.together(part.sums for part in self._parts)
        return Totals(
            population=tail.population + sum(part.sums.said for part in sealed),
            holding=holding,
            living=dict(tail.living)
            | {"episodic": tail.living["episodic"] + sum(part.view.count for part in sealed)},
            means={**tail.means, **sums.means},
            acted=sums.acted,
            observed=sums.observed,
        )

    def _admit_repeated(self, filters: Filters) -> None:
        """Messages that steps of the session repeat match as well."""
        open_to_all = replace(filters, session_id=None)
        for part, numbers in self._places(self._corpus.repeated_in(filters.session_id or "")):
            part.ok[numbers] = eligible_steps(part.view, open_to_all)[numbers]

    # ── Choosing ─────────────────────────────────────────────────────────────────────

    def choose(self) -> None:
        """Choose the candidates of all parts."""
        if sum(int(np.count_nonzero(part.ok)) for part in self._parts) <= EXACT:
            for part in self._parts:
                part.chosen.append(np.flatnonzero(part.ok))
            return
        self._choose_best(
            (part, np.flatnonzero(part.ok & (part.words > 0)), part.words) for part in self._parts
        )
        vectors = self._question.vectors
        centre = self._corpus.steps.centre
        if vectors is not None and vectors.shape[1] == len(centre):
            for asked in vectors:
                self._choose_best(self._near(asked, centre))
        self._choose_talks()
        self.add(self._behind_best(centre))

    def _choose_best(self, scored: Iterable[tuple[_Part, NDArray[Any], Floats]]) -> None:
        """Choose the best of each kind of text; *scored*: documents, and values of all."""
        found: list[tuple[_Part, NDArray[Any], Floats, NDArray[np.uint8]]] = []
        for part, documents, values in scored:
            kinds = part.pieces.kind[documents]
            for kind in _KINDS:
                some = _best(documents[kinds == kind], values, BEST)
                found.append((part, some, values[some], part.pieces.kind[some]))
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

    def _near(self, asked: Floats, centre: Floats) -> Iterator[tuple[_Part, NDArray[Any], Floats]]:
        """The documents that are the nearest to *asked*, with the cosines of all that were seen."""
        coarse = _coarse(self._parts[:-1], asked)
        for part, rows in coarse:
            assert part.sealed is not None
            vectors = part.sealed.vectors(rows)
            along = products(vectors, centre)
            cosine, _ = cosines(vectors, asked[np.newaxis], centre, along)
            yield part, *_by_document(part, part.sealed.owners[rows].astype(np.int64), cosine)
        tail = self._parts[-1]
        if len(vectors := tail.view.vectors):
            cosine, _ = cosines(vectors, asked[np.newaxis], centre, tail.view.along(centre))
            yield tail, *_by_document(tail, tail.view.vector_documents, cosine)

    def _choose_talks(self) -> None:
        found = []
        for part in self._parts:
            pieces = _best(np.flatnonzero(part.talk > 0), part.talk, TALKS)
            found += [(float(part.talk[piece]), part, piece) for piece in pieces.tolist()]
        found.sort(key=lambda one: -one[0])
        for _, part, piece in found[:TALKS]:
            talk = (part.pieces.piece == piece) & (part.pieces.kind == CHAT)
            part.chosen.append(_best(np.flatnonzero(talk), part.words, TURNS))

    def _behind_best(self, centre: Floats) -> set[str]:
        """The steps behind the facts and instructions that are the best by themselves."""
        steps, corpus = set[str](), self._corpus
        for kind in _CLAIMS:
            view = corpus.nodes[kind]
            if not view.count:
                continue
            alive = np.flatnonzero(view.alive)
            words = shares(held(view, self._rarity, view.alive), self._totals.means[kind])
            best = [_best(alive[words[alive] > 0], words, BEST)]
            self._nearness[kind] = near = Nearness.of(view, self._question, centre)
            if near.asked is not None:
                best.append(_best(alive, near.best, BEST))
            facts = np.unique(np.concatenate(best))
            self._looked_for[kind] = np.isin(np.arange(view.count), facts)
            steps |= corpus.steps_behind(kind, facts.tolist())
        return steps

    # ── By id ────────────────────────────────────────────────────────────────────────

    def add(self, ids: Iterable[str]) -> None:
        """Choose the documents of *ids* as well."""
        for part, numbers in self._places({*ids}):
            part.chosen.append(numbers)

    def _places(self, ids: Iterable[str]) -> Iterator[tuple[_Part, NDArray[Any]]]:
        """Where the documents of *ids* are, of steps that repeat a message those of this."""
        wanted = self._corpus.found_as(ids)
        hashed, tail = hashes(wanted), self._parts[-1]
        for part in self._parts[:-1]:
            assert part.sealed is not None
            yield part, part.sealed.ids.find_all(wanted, hashed)[1]
        yield tail, np.array([d for id in wanted for d in tail.view.of(id)], np.int64)

    def join(self, other: _Gathering) -> None:
        """Choose what *other* has chosen of the same parts as well."""
        for part, its in zip(self._parts, other._parts, strict=True):
            part.chosen += its.chosen
        for kind, looked_for in other._looked_for.items():
            self._looked_for[kind] = self._looked_for.get(kind, False) | looked_for

    def add_neighbours(self) -> None:
        """Take what is chosen and what stands around it, as far as it exists."""
        begin = 0
        for part in self._parts:
            pieces = part.pieces
            wanted = np.zeros(part.view.count + 1, np.bool_)  # The last is what is no neighbour.
            for some in part.chosen:
                wanted[some] = True
            for _ in range(AROUND):
                chosen = np.flatnonzero(wanted[:-1])
                wanted[pieces.previous[chosen]] = wanted[pieces.next[chosen]] = True
            wanted[_other_sides(part.view, np.flatnonzero(wanted[:-1]))] = True
            part.taken, part.begin = np.flatnonzero(wanted[:-1] & pieces.exists), begin
            begin += len(part.taken)

    # ── Putting together ─────────────────────────────────────────────────────────────

    def view(self, gatherings: Sequence[_Gathering]) -> GatheredView:
        """The chosen documents as a view of their own, for the questions of *gatherings*."""
        corpus = self._corpus
        ids = [id for part in self._parts for id in part.ids()]
        terms = dict.fromkeys(term for one in gatherings for term in one._rarity)
        steps, pieces = self._steps(ids, terms), self._pieces()
        wholes = {}
        for one in gatherings:
            talk = [
                its.talk[part.pieces.piece[part.taken]]
                for part, its in zip(self._parts, one._parts, strict=True)
            ]
            whole = Whole(one._totals, pieces, np.concatenate(talk))
            wholes[(*one._question.terms,)] = whole
        behind = {kind: self._pairs(kind, steps) for kind in corpus.behind}
        rests = {}
        for kind in behind:
            rests[kind] = corpus.resting(kind)
            known = np.array(list(corpus.awaited[kind]), np.int64)
            rests[kind][known[known < len(rests[kind])]] = True
        given = {one.name: getattr(corpus, one.name) for one in fields(CorpusView)}
        return GatheredView(
            **given | {"steps": steps, "behind": behind},
            scored_with=wholes,
            eligible=np.concatenate([part.ok[part.taken] for part in self._parts]),
            rests=rests,
            looked_for=self._looked_for,
            nearness={one._question.query: one._nearness for one in gatherings},
        )

    def _steps(self, ids: list[str], terms: Iterable[str]) -> StepsView:
        corpus, count = self._corpus, len(ids)
        documents: dict[str, tuple[int, ...]] = {}
        for number, id in enumerate(ids):
            documents[id] = (*documents.get(id, ()), number)
        aliases, repeats = corpus.repeats_of(list(documents))
        found = [part.vectors() for part in self._parts]
        vectors, owners, passages = map(np.concatenate, zip(*found, strict=True))
        linked = np.full(count, -1, np.int32)
        first = np.flatnonzero(passages == 0)
        linked[owners[first]] = first
        actors: dict[str, int] = {}
        none = np.zeros(count, np.int32)
        kept = ("lengths", "log_words", "first", "last", "valid_to", "alive", "by_hand", "born")
        columns = (*kept, "passages", "acted", "asks", "form")
        return StepsView(
            count=count,
            ids=ids,
            nodes=[None] * count,
            origins={},
            # The filters were asked where they lay.
            facets=Facets(),
            metadata=none,
            session=none,
            thread=none,
            chains={},
            joined=np.zeros((0, 2), np.int32),
            actor=self._actors("actor", actors),
            told_by=self._actors("told_by", actors),
            actor_numbers=actors,
            actors=list(actors),
            vectors=vectors,
            vector_documents=owners,
            vector_passages=passages,
            linked=linked,
            postings=self._postings(terms),
            documents=documents,
            aliases=aliases,
            repeats=repeats,
            centre=corpus.steps.centre,
            **{name: self._column(name) for name in columns},
        )

    def _column(self, name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part.view, name)[part.taken] for part in self._parts])

    def _actors(self, name: str, known: dict[str, int]) -> Ints:
        """The column *name* with numbers of *known*, which gets names that are new."""
        columns = []
        for part in self._parts:
            numbers = getattr(part.view, name)[part.taken]
            used, back = np.unique(numbers, return_inverse=True)
            names = (part.view.actors[number] for number in used.tolist())
            ours = [known.setdefault(actor, len(known)) for actor in names]
            columns.append(np.array(ours, np.int32)[back])
        return np.concatenate(columns)

    def _postings(self, terms: Iterable[str]) -> Postings:
        """Of *terms*, as far as what is chosen holds them."""
        postings = {}
        for term in terms:
            found = [one for part in self._parts if (one := part.posting(term)) is not None]
            if found:
                documents, counts = map(np.concatenate, zip(*found, strict=True))
                postings[term] = documents, counts
        return _Read(postings)

    def _pieces(self) -> Pieces:
        columns = {}
        for name in ("exists", "previous", "next", "kind", "long"):
            found = [(part, getattr(part.pieces, name)[part.taken]) for part in self._parts]
            is_place = name in ("previous", "next")
            columns[name] = np.concatenate([p.places(one) if is_place else one for p, one in found])
        # What their whole pieces have is known.
        return Pieces(piece=np.full(len(columns["exists"]), -1, np.int32), count=0, **columns)

    def _pairs(self, kind: NodeType, steps: StepsView) -> Ints:
        """Facts or instructions, and documents among *steps* that are behind them."""
        corpus, tail = self._corpus, self._parts[-1].taken
        pairs, waiting = corpus.behind[kind], corpus.waiting[kind]
        at = places(tail, pairs[:, 1])
        known = np.stack((pairs[:, 0], at + np.int32(steps.count - len(tail))), axis=1)[at >= 0]
        found = []
        for name in waiting.keys() & (steps.documents.keys() | steps.aliases.keys()):
            documents = steps.documents[steps.aliases.get(name, name)]
            found += [(node, d) for node in list(waiting[name]) for d in documents]
        both = np.concatenate((known, np.array(found, np.int32).reshape(-1, 2)))
        both = np.unique(both, axis=0) if found else both
        return both[both[:, 0] < corpus.nodes[kind].count]


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


def _coarse(parts: Sequence[_Part], asked: Floats) -> list[tuple[_Part, NDArray[Any]]]:
    """The about ``COARSE`` vectors of eligible documents with the fewest signs not of *asked*."""
    seen: list[tuple[_Part, NDArray[Any] | None, NDArray[np.uint16]]] = []
    counts = np.zeros(len(asked) + 1, np.int64)
    for part in parts:
        assert part.sealed is not None
        distances, rows = part.sealed.distances(asked), None
        if not part.ok.all():
            rows = np.flatnonzero(part.ok[part.sealed.owners])
            distances = distances[rows]
        counts += np.bincount(distances, minlength=len(counts))
        seen.append((part, rows, distances))
    least = int(np.searchsorted(np.cumsum(counts), COARSE))
    # Of those that are equally far the last ones, so that many of one text are no more.
    spare, found = COARSE - int(counts[:least].sum()), []
    for part, rows, distances in reversed(seen):
        near = np.flatnonzero(distances < least)
        last = np.flatnonzero(distances == least)
        last = last[max(len(last) - spare, 0) :]
        spare -= len(last)
        chosen = np.union1d(near, last)
        found.append((part, chosen if rows is None else rows[chosen]))
    return found


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

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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mnemo.index.columns import (
    Codes,
    Facets,
    Floats,
    Ints,
    Mask,
    Numbers,
    Postings,
    ascending,
)
from mnemo.index.corpus import CorpusView, DocumentsView, StepsView, Sums
from mnemo.index.large import (
    CLAIMS,
    EXACT,
    LargeView,
    SealedClaims,
    SealedSteps,
)
from mnemo.index.pieces import Pieces, places
from mnemo.index.segments import hashes
from mnemo.recall.grouped import ClaimsPart, Group, StepsPart, Talk
from mnemo.recall.score import RecallQuestion, eligible_steps
from mnemo.recall.shares import Totals, Whole, mean_length, rarity_of
from mnemo.values.filters import Filters, Where
from mnemo.values.graph import Node, NodeType


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
    view = first.view(gatherings)
    routes = (one for kind, one in view.nodes.items() if kind not in CLAIMS)
    if more or corpus.is_linked or any(one.count for one in routes):
        # Edges may lead to any of them.
        for one in (view.steps, *(view.nodes[kind] for kind in CLAIMS)):
            _ids_of(one).read_all()
    return view


class _Gathering:
    """Chooses documents of all parts, and puts them together."""

    def __init__(self, corpus: LargeView, question: RecallQuestion, filters: Filters) -> None:
        self._corpus, self._question, self._is_open = corpus, question, filters.is_open
        terms = [*question.terms]
        asked = terms, hashes(terms)
        steps: tuple[SealedSteps | StepsView, ...] = (*corpus.sealed, corpus.steps)
        self._talk = Talk((StepsPart.of(one, filters) for one in steps), *asked)
        self._claims = {
            kind: Group(
                (ClaimsPart.of(corpus, kind, p, filters) for p in corpus.parts(kind)), *asked
            )
            for kind in CLAIMS
        }
        self._groups: tuple[Group[Any], ...] = (self._talk, *self._claims.values())
        if filters.session_id is not None:
            self._admit_repeated(filters)
        end = math.inf if filters.until is None else filters.until.timestamp()
        self._totals = totals = self._totals_until(end)
        self._rarity = rarity_of(question.terms, totals)
        self._talk.score(self._rarity, totals.means["episodic"])
        self._talk.score_pieces(self._rarity, totals.means["piece"])
        for kind, group in self._claims.items():
            group.score(self._rarity, totals.means[kind])

    def _totals_until(self, end: float) -> Totals:
        """Of all parts."""
        nodes, steps = self._corpus.nodes, self._talk.parts
        population, holding = 0, dict.fromkeys(self._question.terms, 0)
        for group in self._groups:
            counted = group.exists
            if end < math.inf and group is not self._talk:
                counted = counted & (group.whole("view.first") <= end)
            population += int(np.count_nonzero(counted))
            for term, (documents, _) in group.held.items():
                holding[term] += int(np.count_nonzero(counted[documents]))
        wholes = {kind: [one.whole_length] for kind, one in nodes.items()}
        for kind, claims in self._claims.items():
            wholes[kind] = [part.view.whole_length for part in claims.parts]
        living = {str(kind): sum(n for _, n in some) for kind, some in wholes.items()}
        living["episodic"] = sum(part.view.count for part in steps[:-1])
        living["episodic"] += int(np.count_nonzero(self._corpus.steps.alive))
        sums = Sums.together(part.sums for part in steps)
        return Totals(
            population=population,
            holding=holding,
            living=living,
            means={**sums.means, **{kind: mean_length(some) for kind, some in wholes.items()}},
            acted=sums.acted,
            observed=sums.observed,
        )

    def _admit_repeated(self, filters: Filters) -> None:
        """Messages that steps of the session repeat match as well."""
        open_to_all = replace(filters, session_id=None)
        numbers = self._places(self._corpus.repeated_in(filters.session_id or ""))
        for part, some in self._talk.split(numbers):
            self._talk.ok[some + part.begin] = eligible_steps(part.view, open_to_all)[some]

    # ── Choosing ─────────────────────────────────────────────────────────────────────

    def choose(self, more: Collection[str] = ()) -> None:
        """Choose the candidates of all parts, and documents of *more* ids."""
        vectors, centre = self._vectors(), self._corpus.steps.centre
        if self._are_few():
            self._talk.chosen.append(np.flatnonzero(self._talk.ok))
            for claims in self._claims.values():
                # Those that rest on steps come with these.
                claims.chosen.append(np.flatnonzero(claims.ok & ~claims.whole("rests")))
        else:
            for group in self._groups:
                group.choose_by_words()
                for asked in vectors:
                    group.choose_near(asked, centre)
            self._talk.choose_talks()
        if more and len(vectors):
            listed, hashed = [*more], hashes(more)
            for claims in self._claims.values():
                claims.choose_some(claims.find(listed, hashed), vectors[0], centre)
        self._add(more)
        found = (_behind(claims, claims.all_chosen()) for claims in self._claims.values())
        self._add({id for pairs in found for _, id in pairs})

    def _are_few(self) -> bool:
        """Whether what the filters leave is to be scored whole."""
        left = int(np.count_nonzero(self._talk.ok))
        for claims in self._claims.values():
            # With filters only what rests on the steps that match.
            ok = claims.ok if self._is_open else claims.ok & ~claims.whole("rests")
            left += int(np.count_nonzero(ok))
        return left <= EXACT

    def _vectors(self) -> Sequence[Floats]:
        vectors = self._question.vectors
        width = len(self._corpus.steps.centre)
        return [] if vectors is None or vectors.shape[1] != width else [*vectors]

    # ── By id ────────────────────────────────────────────────────────────────────────

    def _add(self, ids: Collection[str]) -> None:
        """Choose the steps and messages of *ids* as well."""
        self._talk.chosen.append(self._places(ids))

    def _places(self, ids: Collection[str]) -> Numbers:
        """Where the documents of *ids* are, of steps that repeat a message those of this."""
        wanted = [*{*ids, *self._corpus.aliases_of([*ids]).values()}] if ids else []
        return self._talk.find(wanted, hashes(wanted)) if wanted else np.zeros(0, np.int64)

    def join(self, other: _Gathering) -> None:
        """Choose what *other* has chosen of the same parts as well."""
        for group, its in zip(self._groups, other._groups, strict=True):
            group.chosen += its.chosen

    def add_neighbours(self) -> None:
        """Take what is chosen and what stands around it, as far as it exists."""
        self._talk.take()

    def add_resting(self) -> None:
        """Take the facts and instructions that are chosen, and what rests on steps that are."""
        corpus, ids, hashed = self._corpus, list[str](), np.zeros(0, np.uint64)
        if corpus.is_linked:
            hashed = self._talk.hashed(self._talk.taken)
            # Once for both sides of a step, which stand beside each other.
            first = np.flatnonzero(np.append(True, hashed[1:] != hashed[:-1])[: len(hashed)])
            ids, hashed = self._talk.names(self._talk.taken[first]), hashed[first]
        self._aliases, self._repeats = corpus.repeats_of(ids, hashed)
        hashed = np.concatenate((hashed, hashes(self._aliases)))
        ids = [*ids, *self._aliases]
        tail = self._talk.taken - self._talk.parts[-1].begin
        for kind, claims in self._claims.items():
            for part in claims.parts:
                if isinstance(part.source, SealedClaims):
                    rest = part.source.resting_on(ids, hashed)
                else:
                    rest = corpus.resting_in_tail(kind, {*ids}, tail[tail >= 0])
                claims.chosen.append(rest + part.begin)
            taken = claims.all_chosen()
            claims.taken = taken[claims.exists[taken]]

    # ── Putting together ─────────────────────────────────────────────────────────────

    def view(self, gatherings: Sequence[_Gathering]) -> GatheredView:
        """The chosen documents as a view of their own, for the questions of *gatherings*."""
        corpus, taken = self._corpus, self._talk.taken
        pieces, own = self._pieces(), self._talk.pieces_of(taken)
        wholes = {
            (*one._question.terms,): Whole(one._totals, pieces, one._talk.session[own])
            for one in gatherings
        }
        steps = self._view_of_steps([one._talk for one in gatherings])
        nodes = {
            kind: _Claims(
                **_columns(claims, [g._claims[kind] for g in gatherings]),
                **_nodes(claims),
                **_read(claims, _OF_CLAIMS),
                aliases={},
            )
            for kind, claims in self._claims.items()
        }
        given = {one.name: getattr(corpus, one.name) for one in fields(CorpusView)}
        given |= {"steps": steps, "nodes": {**corpus.nodes, **nodes}}
        given |= {"behind": {kind: self._pairs(kind, steps) for kind in corpus.behind}}
        return GatheredView(
            **given,
            scored_with=wholes,
            eligible=self._talk.ok[taken],
            rests={kind: one.column("rests", one.taken) for kind, one in self._claims.items()},
        )

    def _view_of_steps(self, asked: Sequence[Talk]) -> StepsView:
        talk, actors = self._talk, dict[str, int]()
        columns = _columns(talk, asked) | _read(talk, _OF_STEPS)
        count = len(talk.taken)
        none = np.broadcast_to(np.int32(0), count)
        return _Steps(
            nodes=[None] * count,
            origins={},
            session=none,
            thread=none,
            chains={},
            joined=np.zeros((0, 2), np.int32),
            actor=self._actors(actors),
            told_by=none,
            actor_numbers=actors,
            actors=list(actors),
            aliases=self._aliases,
            repeats=self._repeats,
            centre=self._corpus.steps.centre,
            last=columns["first"],
            valid_to=np.broadcast_to(math.inf, count),
            by_hand=np.broadcast_to(np.False_, count),
            **columns,
        )

    def _actors(self, known: dict[str, int]) -> Ints:
        """The actor of each as numbers of *known*, which gets their names."""
        columns = [np.zeros(0, np.int32)]
        for part, some in self._talk.split(self._talk.taken):
            numbers = part.view.actor[some]
            ours = np.bincount(numbers).astype(np.int32)
            used = np.flatnonzero(ours)
            names = (part.view.actors[number] for number in used.tolist())
            ours[used] = [known.setdefault(actor, len(known)) for actor in names]
            columns.append(ours[numbers])
        return np.concatenate(columns)

    def _pieces(self) -> Pieces:
        talk = self._talk
        previous, following = (places(talk.taken, one) for one in talk.around(talk.taken))
        count = len(talk.taken)
        # What their whole pieces have is known.
        return Pieces(
            exists=np.ones(count, np.bool_),
            piece=np.full(count, -1, np.int32),
            count=0,
            previous=previous,
            next=following,
            kind=talk.kinds(talk.taken),
            long=talk.column("pieces.long", talk.taken),
        )

    def _pairs(self, kind: NodeType, steps: StepsView) -> Ints:
        """Facts or instructions, and documents among *steps* that are behind them."""
        claims = self._claims[kind]
        pairs = [*_behind(claims, claims.taken)]
        numbers = places(claims.taken, np.array([owner for owner, _ in pairs], np.int64)).tolist()
        found = [
            (number << 32) + document
            for number, (_, id) in zip(numbers, pairs, strict=True)
            for document in steps.documents.get(steps.aliases.get(id, id), ())
        ]
        both = ascending(np.array(found, np.int64))
        return np.stack((both >> 32, both & (2**32 - 1)), axis=1).astype(np.int32)


def _behind(claims: Group[ClaimsPart], numbers: Numbers) -> Iterator[tuple[int, str]]:
    """Each of *numbers*, which ascend, with each step behind it."""
    for part, some in claims.split(numbers):
        yield from ((number + part.begin, id) for number, id in part.behind(some))


_OF_STEPS = ("log_words", "first", "acted", "asks", "form")
_OF_CLAIMS = ("log_words", "first", "last", "valid_to", "by_hand")


def _columns(group: Group[Any], asked: Sequence[Group[Any]]) -> dict[str, Any]:
    """The fields that views of all types have, of what is taken, for all that is *asked*."""
    taken, count, ids = group.taken, len(group.taken), _Ids(group)
    vectors, owners, passages = group.vectors(taken)
    owners = places(taken, owners)
    linked = np.full(count, -1, np.int32)
    first = np.flatnonzero(passages == 0)
    linked[owners[first]] = first
    return {
        "count": count,
        "ids": ids,
        "facets": _Asked(group),
        "metadata": np.arange(count),
        "vectors": vectors,
        "vector_documents": owners,
        "vector_passages": passages,
        "linked": linked,
        "lengths": group.column("view.lengths", taken),
        "alive": np.ones(count, np.bool_),
        "born": np.broadcast_to(np.int64(0), count),
        "passages": np.broadcast_to(np.uint8(0), count),
        "postings": _Read({term: one for its in asked for term, one in _held(its, taken)}),
        "documents": ids.documents,
    }


def _nodes(group: Group[ClaimsPart]) -> dict[str, Any]:
    """The nodes of what is taken, and the changesets that these are from."""
    nodes, origins = list[Node | None](), list[str | None]()
    for part, some in group.split(group.taken):
        of_part, its_origins = part.source.nodes_of(some)
        nodes += of_part
        origins += its_origins or [None] * len(some)
    return {"nodes": nodes, "origins": {number: one for number, one in enumerate(origins) if one}}


class _Ids(Sequence[str]):
    """The ids of what is taken, read when they are asked for; *documents*: which each has."""

    def __init__(self, group: Group[Any]) -> None:
        self._group, self._known = group, dict[int, str]()
        self.documents = _Documents(self)

    def __len__(self) -> int:
        return len(self._group.taken)

    def __getitem__(self, number: Any) -> Any:
        at: int = range(len(self))[number]
        return self._known[at] if at in self._known else self.some(np.array([at]))[0]

    def __iter__(self) -> Iterator[str]:
        self.read_all()
        return (self._known[at] for at in range(len(self)))

    def read_all(self) -> None:
        """Read those of all, once."""
        if len(self._known) < len(self):
            self.some(np.arange(len(self)))

    def some(self, numbers: Numbers) -> list[str]:
        """The ids of *numbers*, in that order."""
        # Both sides of a step have its id; they stand beside each other.
        near = ascending(numbers - 1, numbers, numbers + 1)
        near = near[near < len(self)]
        named = dict(zip(near.tolist(), self._group.names(self._group.taken[near]), strict=True))
        for number in numbers.tolist():
            self._known[number] = id = named[number]
            around = (number - 1, number, number + 1)
            self.documents[id] = tuple([one for one in around if named.get(one) == id])
        return [named[number] for number in numbers.tolist()]


class _Documents(dict[str, tuple[int, ...]]):
    """Id → documents of it: of the ids that were read, and of all once another is asked for."""

    def __init__(self, ids: _Ids) -> None:
        super().__init__()
        self._ids = ids

    def get(self, id: str, default: Any = None) -> Any:
        if id and id not in self:
            self._ids.read_all()
        return super().get(id, default)


class _Steps(StepsView):
    def named(self, numbers: Numbers) -> list[str]:
        return _ids_of(self).some(numbers)


class _Claims(DocumentsView):
    def named(self, numbers: Numbers) -> list[str]:
        return _ids_of(self).some(numbers)


def _ids_of(view: DocumentsView) -> _Ids:
    assert isinstance(view.ids, _Ids)
    return view.ids


def _read(group: Group[Any], names: Iterable[str]) -> dict[str, Any]:
    """Columns of what is taken."""
    return {name: group.column(f"view.{name}", group.taken) for name in names}


def _held(group: Group[Any], taken: Numbers) -> Iterator[tuple[str, tuple[Codes, Floats]]]:
    """The terms of the question, and what of *taken* holds each, and how often."""
    for term, (documents, counts) in group.held.items():
        at = places(documents, taken)
        there = np.flatnonzero(at >= 0)
        yield term, (there, counts[at[there]])


class _Asked(Facets):
    """The metadata of what is taken, asked where they lie."""

    def __init__(self, group: Group[Any]) -> None:
        super().__init__()
        self._group = group

    def holding(self, where: Where) -> Mask:
        found = [np.zeros(0, np.bool_)]
        for part, some in self._group.split(self._group.taken):
            found.append(part.view.facets.holding(where)[part.view.metadata[some]])
        return np.concatenate(found)


class _Read(Postings):
    """Postings of the terms of some questions."""

    __slots__ = ("_read",)

    def __init__(self, read: Mapping[str, tuple[Codes, Floats]]) -> None:
        super().__init__({})
        self._read = read

    def read(self, term: str, documents: int) -> tuple[Codes, Floats] | None:
        return self._read.get(term)

"""Some documents of several views, as one view in which they score as in the whole store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from mnemo.index.corpus import (
    Codes,
    CorpusView,
    DocumentsView,
    Facets,
    Floats,
    Ints,
    Mask,
    Postings,
    StepsView,
    Whole,
)
from mnemo.index.pieces import places
from mnemo.values.filters import Where
from mnemo.values.graph import NodeType

T = TypeVar("T")
V = TypeVar("V", bound=DocumentsView)

Part: TypeAlias = tuple[CorpusView, Mapping[NodeType, Ints]]
"""A view, and by type the numbers of the documents chosen, ascending; ``episodic``: of steps."""
Links: TypeAlias = Mapping[NodeType, Sequence[tuple[str, str]]]
"""Type → ids of a node and of a step behind it, where these are of two parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredView(CorpusView):
    """
    A view of some documents, for one question and one end of time.

    Attributes:
        given: What they are scored with.
        rest: Type → which of its nodes have steps behind them, in the view or not.
    """

    given: Whole
    rest: Mapping[NodeType, Mask]

    def whole(self, terms: Iterable[str], end: float) -> Whole:
        return self.given

    def resting(self, kind: NodeType) -> Mask:
        return self.rest[kind]


def gathered(
    parts: Sequence[Part], whole: Whole, *, like: CorpusView, links: Links | None = None
) -> GatheredView:
    """
    The chosen documents of all *parts*, in their order.

    A document's score is that in the whole if what counts in it is chosen too: the other side of
    a step (``with_other_sides``), the steps behind a fact or an instruction, what was made of a
    step, and of a turn of a chat those before and after it.

    Args:
        whole: Of the documents as they are numbered here.
        like: Gives the revision, the centre, wordings, and what is damaged or owed.
    """
    said = _some([(view.steps, chosen.get("episodic")) for view, chosen in parts])
    steps = _steps(said, like.steps.centre)
    nodes, behind, rest = dict[NodeType, DocumentsView](), dict[NodeType, Ints](), {}
    for kind in like.nodes:
        some = _some([(view.nodes[kind], chosen.get(kind)) for view, chosen in parts])
        nodes[kind] = DocumentsView(**_fields(some))
        if kind in like.behind:
            of_parts = list(zip((view for view, _ in parts), some, said, strict=True))
            rest[kind] = np.concatenate(
                [view.resting(kind)[one.chosen] for view, one, _ in of_parts]
            )
            pairs = [one.pairs_with(other, view.behind[kind]) for view, one, other in of_parts]
            for id, step in (links or {}).get(kind, ()):
                for number in nodes[kind].of(id):
                    rest[kind][number] = True
                    pairs += [np.array([(number, d)], np.int32) for d in steps.of(step)]
            behind[kind] = np.concatenate(pairs)
    told = like.wordings, like.damaged, like.owed
    return GatheredView(like.revision, steps, nodes, behind, *told, given=whole, rest=rest)


def with_other_sides(steps: StepsView, chosen: Ints) -> Ints:
    """Documents *chosen* with the other sides of their steps, which stand beside them."""
    around = np.concatenate((chosen - 1, chosen + 1))
    known = (around >= 0) & (around < steps.count)
    near, own = around[known], np.tile(chosen, 2)[known]
    same = (steps.born[near] == steps.born[own]) & (steps.session[near] == steps.session[own])
    return np.union1d(chosen, near[same & steps.alive[near]]).astype(np.int32)


# ── Of one type ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Some(Generic[V]):
    """The documents *chosen* of one part's *view*; in the gathered view from *first* on."""

    view: V
    chosen: Ints
    first: int

    def places(self, numbers: Ints) -> Ints:
        """The numbers in the gathered view of *numbers*; -1 for what was not chosen."""
        found = places(self.chosen, numbers)
        return np.where(found >= 0, found + np.int32(self.first), found)

    def pairs_with(self, other: _Some[StepsView], pairs: Ints) -> Ints:
        """Those of *pairs* of which this and *other* have chosen both, renumbered."""
        found = np.stack((self.places(pairs[:, 0]), other.places(pairs[:, 1])), axis=1)
        return found[(found >= 0).all(axis=1)]

    def read(self, term: str) -> tuple[Codes, Floats] | None:
        """As of ``Postings``, of the chosen ones."""
        posting = self.view.postings.read(term, self.view.count)
        if posting is None:
            return None
        documents, counts = posting
        # The chosen ones are few, what holds a word may be many.
        at = np.minimum(np.searchsorted(documents, self.chosen), len(documents) - 1)
        there = np.flatnonzero(documents[at] == self.chosen)
        return there + self.first, counts[at[there]]


def _some(views: Iterable[tuple[V, Ints | None]]) -> list[_Some[V]]:
    found, first = list[_Some[V]](), 0
    for view, chosen in views:
        numbers = np.zeros(0, np.int32) if chosen is None else np.asarray(chosen, np.int32)
        found.append(_Some(view, numbers, first))
        first += len(numbers)
    return found


def _fields(some: Sequence[_Some[V]]) -> dict[str, Any]:
    """The fields of their view; each document has a number of its own for its metadata."""
    ids = [id for one in some for id in _named(one.view.ids, one.chosen)]
    documents = dict[str, tuple[int, ...]]()
    for number, id in enumerate(ids):
        documents[id] = (*documents.get(id, ()), number)
    columns = {
        column.name: np.concatenate([getattr(one.view, column.name)[one.chosen] for one in some])
        for column in fields(some[0].view)
        if column.metadata
    }
    found = [one.view.vectors_of(one.chosen) for one in some]
    owners = [one.places(owners) for one, (_, owners, _) in zip(some, found, strict=True)]
    vector_documents = np.concatenate(owners)
    passages = np.concatenate([passages for *_, passages in found])
    linked, first = np.full(len(ids), -1, np.int32), np.flatnonzero(passages == 0)
    linked[vector_documents[first]] = first
    return columns | {
        "count": len(ids),
        "ids": ids,
        "nodes": [node for one in some for node in _named(one.view.nodes, one.chosen)],
        "origins": {
            number: one.view.origins[before]
            for one in some
            if one.view.origins
            for number, before in enumerate(one.chosen.tolist(), one.first)
            if before in one.view.origins
        },
        "metadata": np.arange(len(ids), dtype=np.int32),
        "linked": linked,
        "facets": _Facets(some),
        "vectors": np.concatenate([rows for rows, *_ in found]),
        "vector_documents": vector_documents,
        "vector_passages": passages,
        "postings": _Postings(some),
        "documents": documents,
        "aliases": {},
    }


class _Postings(Postings):
    """What the chosen documents have of the postings of their parts."""

    __slots__ = ("_some",)

    def __init__(self, some: Sequence[_Some[Any]]) -> None:
        super().__init__({})
        self._some = some

    def read(self, term: str, documents: int) -> tuple[Codes, Floats] | None:
        found = [posting for one in self._some if (posting := one.read(term)) is not None]
        if not any(len(numbers) for numbers, _ in found):
            return None
        numbers, counts = map(np.concatenate, zip(*found, strict=True))
        return numbers, counts


class _Facets(Facets):
    """The metadata of the chosen documents, numbered as these are."""

    def __init__(self, some: Sequence[_Some[Any]]) -> None:
        super().__init__()
        self._some = some

    def holding(self, where: Where) -> Mask:
        found = [
            one.view.facets.holding(where)[one.view.metadata[one.chosen]] for one in self._some
        ]
        return np.concatenate(found)


# ── Of steps ─────────────────────────────────────────────────────────────────────────


def _steps(some: Sequence[_Some[StepsView]], centre: Floats) -> StepsView:
    given, joined = _fields(some), list[Ints]()
    chains, actors, repeats = dict[str, int](), dict[str, int](), dict[str, tuple[str, ...]]()
    for one in some:
        view, here = one.view, slice(one.first, one.first + len(one.chosen))
        for name in ("session", "thread"):
            given[name][here] = _renumbered(given[name][here], chains, view.chain_names)
        for name in ("actor", "told_by"):
            given[name][here] = _renumbered(given[name][here], actors, partial(_named, view.actors))
        pairs = np.stack((view.joined[:, 0], one.places(view.joined[:, 1])), axis=1)
        pairs = pairs[pairs[:, 1] >= 0]
        pairs[:, 0] = _renumbered(pairs[:, 0], chains, view.chain_names)
        joined.append(pairs)
        if view.repeats:
            repeats |= {id: view.repeats[id] for id in given["ids"][here] if id in view.repeats}
    given["aliases"] = {step: id for id, steps in repeats.items() for step in steps}
    return StepsView(
        **given,
        repeats=repeats,
        joined=np.concatenate(joined),
        chains=chains,
        actor_numbers=actors,
        actors=tuple(actors),
        centre=centre,
    )


def _named(names: Sequence[T], numbers: Ints) -> list[T]:
    return [*map(names.__getitem__, numbers.tolist())]


def _renumbered(
    numbers: Ints, known: dict[str, int], names_of: Callable[[Ints], Sequence[str]]
) -> Ints:
    """*numbers* of names as *known* numbers these, which takes what is new; -1 stays."""
    used = np.unique(numbers[numbers >= 0])
    table = [known.setdefault(name, len(known)) for name in names_of(used)]
    return np.array([*table, -1], np.int32)[
        np.where(numbers >= 0, np.searchsorted(used, numbers), len(used))
    ]

"""
Consolidation: merge facts that say the same.

Near facts that the guard lets pass are a pair; of a pair the one with the lower decay score loses,
once. What a loser has goes to the end of its chain of losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import merge
from itertools import repeat
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mnemo.english.similarity import same_claim_guard
from mnemo.index.columns import Floats
from mnemo.index.corpus import CorpusView, Part
from mnemo.maintenance.near_pairs import BAND, Near, Neighbourhood
from mnemo.maintenance.plan import Plan, Sources, pieces
from mnemo.recall.score import decay_score, parameters_of
from mnemo.runtime.clock import Breather, as_utc
from mnemo.runtime.progress import reached
from mnemo.values.changeset import Upkeep
from mnemo.values.graph import Node, NodeMetadata, Semantic, united_confidence, united_metadata

Ints: TypeAlias = NDArray[np.intp]
Pair: TypeAlias = tuple[float, int, int]
"""Minus the cosine, and the places of two facts: the nearest pairs sort first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation(Plan):
    """*losses*: loser → survivor, which may lose itself; *facts*: these, as planned."""

    losses: Mapping[str, str]
    facts: Mapping[str, Semantic]

    async def upkeep(self, view: CorpusView) -> Upkeep:
        """Merge what still is what it was; whoever names a loser names its survivor then."""
        still = await self.unchanged(view, self.facts.values())
        losses = {a: b for a, b in self.losses.items() if a in still and b in still}
        merges = _ends(losses)
        changed: list[Node] = [*_united(merges, self.facts)]
        ended = await self.sources.threads.run(_ended, view) if merges else ()
        for ids in pieces(ended):
            changed += _redirected(await self.sources.nodes(ids), merges)
        return Upkeep(changed=tuple(changed), merges=merges, sweeps=True)


async def plan_consolidation(sources: Sources, *, threshold: float) -> Consolidation:
    """
    Find the facts that say the same: pairs whose cosine exceeds *threshold*, in [-1, 1]. *Raises*
    ``StoreError``: the store could not be read. *Cancellation*: safe.
    """
    view = await sources.index.corpus()
    facts = await sources.threads.run(_Facts.of, view)
    places = np.arange(len(facts.ids))
    hood = await sources.threads.run(lambda: Neighbourhood(facts, places, threshold=threshold))
    merging = _Merging(sources, facts.ids, hood)
    await merging.run()
    return Consolidation(
        sources=sources,
        revision=view.revision,
        checked=facts.holding,
        losses=merging.losses,
        facts=merging.involved,
    )


@dataclass(frozen=True, slots=True)
class _Facts:
    """
    The facts that hold and have a vector, by id (which merging does not change): to be read as an
    array of their first vectors. *holding*: how many there are with those that have none.
    """

    parts: Sequence[Part]
    ids: Sequence[str]
    part: Ints
    number: Ints
    shape: tuple[int, int]
    holding: int

    @classmethod
    def of(cls, view: CorpusView) -> _Facts:
        parts, breather, holding = view.parts("semantic"), Breather(), 0
        found = list[tuple[str, int, int]]()
        for place, part in enumerate(parts):
            holds = part.view.alive & np.isinf(part.view.valid_to)
            holding += int(np.count_nonzero(holds))
            for some in pieces(np.flatnonzero(holds & part.embedded).tolist()):
                found += zip(part.named(np.array(some)), repeat(place), some)
                breather.breathe()
        # Sorted in pieces: one long sort would not let the event loop in between.
        placed = [*merge(*(sorted(piece) for piece in pieces(found)))]
        _, part_of, number = [*zip(*placed, strict=True)] or [(), (), ()]
        width = next((part.view.vectors.shape[1] for part in parts), 0)
        return cls(
            parts=parts,
            ids=[id for id, *_ in placed],
            part=np.array(part_of, np.intp),
            number=np.array(number, np.intp),
            shape=(len(placed), width),
            holding=holding,
        )

    def __getitem__(self, places: Ints) -> Floats:
        rows = np.empty((len(places), self.shape[1]), np.float32)
        part_of = self.part[places]
        for place, part in enumerate(self.parts):
            mine = part_of == place
            rows[mine] = part.firsts(self.number[places[mine]])
        return rows


# ── Who loses to whom ────────────────────────────────────────────────────────────────


class _Merging:
    """Decides which of the facts *ids* lose: loser → survivor; *hood* has their vectors."""

    def __init__(self, sources: Sources, ids: Sequence[str], hood: Neighbourhood) -> None:
        self._sources = sources
        self._all = ids
        self._facts = dict[int, Semantic]()
        self._hood = hood
        self._crowds = _Crowds()
        self.losses: dict[str, str] = {}
        self.involved: dict[str, Semantic] = {}

    async def run(self) -> None:
        """Look at each fact's nearest, again where some lost, so that a second run finds none."""
        places = np.arange(len(self._all))
        while len(places):
            pairs: list[Pair] = []
            for first in range(0, len(places), BAND):
                reached(first, len(places))
                band = places[first : first + BAND]
                near = await self._sources.threads.run(self._look, band)
                await self._read(near)
                pairs += await self._sources.threads.run(self._passed, near)
            ids = await self._sources.threads.run(self._ids, pairs)
            metadata = await self._sources.metadata(ids)
            places = await self._sources.threads.run(self._decide, pairs, metadata)

    def _look(self, places: Ints) -> Near:
        near = self._hood.near(places)
        self._crowds.seen(places, near)
        return near

    async def _read(self, near: Near) -> None:
        """Read the facts at both ends."""
        ends = np.union1d(near.left, near.right).tolist()
        wanted = {self._all[place]: place for place in ends if place not in self._facts}
        for ids in pieces([*wanted]):
            for fact in await self._sources.nodes(ids):
                if isinstance(fact, Semantic):
                    self._facts[wanted[fact.id]] = fact

    def _passed(self, near: Near) -> list[Pair]:
        breather, passed = Breather(), list[Pair]()
        ends = zip(near.left.tolist(), near.right.tolist(), near.cosines.tolist(), strict=True)
        for i, j, cosine in ends:
            breather.breathe()
            one, other = self._facts.get(i), self._facts.get(j)
            if one is None or other is None or one.superseded_by or other.superseded_by:
                continue
            # What the hand wrote is kept as it is, and what it wrote apart stays apart.
            if one.edits and other.edits:
                continue
            if same_claim_guard(one.proposition, other.proposition):
                passed.append((-cosine, i, j))
        return passed

    def _ids(self, pairs: Iterable[Pair]) -> list[str]:
        places = dict.fromkeys(place for _, *ends in pairs for place in ends)
        return [self._facts[place].id for place in places]

    def _decide(self, pairs: list[Pair], metadata: Mapping[str, NodeMetadata]) -> Ints:
        """Let the nearest pairs decide first; give the places that must be looked at again."""
        breather, now = Breather(), self._sources.clock.now()
        ranks: dict[int, tuple[bool, float, datetime, str]] = {}
        for place in {place for _, *ends in pairs for place in ends}:
            ranks[place] = self._rank(self._facts[place], metadata, now)
            breather.breathe()
        lost: list[int] = []
        for _, i, j in sorted(pairs):
            breather.breathe()
            keeps, loses = sorted((i, j), key=ranks.__getitem__)
            loser, winner = self._facts[loses], self._facts[keeps]
            if loser.id not in self.losses:
                self.losses[loser.id] = winner.id
                self.involved |= {loser.id: loser, winner.id: winner}
                lost.append(loses)
        gone = np.array(lost, np.intp)
        self._hood.drop(gone)
        return self._crowds.freed_by(gone)

    def _rank(
        self, fact: Semantic, metadata: Mapping[str, NodeMetadata], now: datetime
    ) -> tuple[bool, float, datetime, str]:
        """The smallest survives: the hand's, the higher score, the older, the smaller id."""
        parameters = parameters_of(self._sources.config.scoring, "semantic")
        entry = metadata.get(fact.id)
        score = decay_score(fact, entry, parameters, now)
        created = entry.created_at if entry else fact.created_at
        return not fact.edits, -score, as_utc(created) if created else now, fact.id


class _Crowds:
    """Places that have more near them than were looked at, and those that were."""

    def __init__(self) -> None:
        self._left = np.zeros(0, np.intp)
        self._right = np.zeros(0, np.intp)

    def seen(self, places: Ints, near: Near) -> None:
        """Remember the crowded ones of *places*, in the place of what was seen before."""
        old = ~np.isin(self._left, places)
        new = np.isin(near.left, near.truncated)
        self._left = np.concatenate((self._left[old], near.left[new]))
        self._right = np.concatenate((self._right[old], near.right[new]))

    def freed_by(self, gone: Ints) -> Ints:
        """The places, ascending, that are still there and saw some of those that are *gone*."""
        there = ~np.isin(self._left, gone)
        self._left, self._right = self._left[there], self._right[there]
        return np.unique(self._left[np.isin(self._right, gone)])


# ── What becomes of them ─────────────────────────────────────────────────────────────


def _ends(losses: Mapping[str, str]) -> dict[str, str]:
    """Loser → the end of its chain; nobody loses to a fact of lower rank, so there is one."""
    ends: dict[str, str] = {}
    for loser in losses:
        chain = [loser]
        while chain[-1] in losses and chain[-1] not in ends:
            chain.append(losses[chain[-1]])
        end = ends.get(chain[-1], chain[-1])
        ends.update(dict.fromkeys(chain[:-1], end))
    return ends


def _united(merges: Mapping[str, str], facts: Mapping[str, Semantic]) -> Iterator[Semantic]:
    """The survivors as they will be: text and id their own, the rest of all."""
    losers: dict[str, list[Semantic]] = {}
    for loser, survivor in merges.items():
        losers.setdefault(survivor, []).append(facts[loser])
    for survivor, lost in losers.items():
        whole = (facts[survivor], *lost)
        yield replace(
            facts[survivor],
            confidence=united_confidence(*(fact.confidence for fact in whole)),
            valid_from=_start(facts[survivor], lost),
            created_at=_earliest(fact.created_at for fact in whole),
            metadata=united_metadata(*lost, facts[survivor]),
        )


def _start(fact: Semantic, lost: Sequence[Semantic]) -> datetime | None:
    """Since when *fact* holds; the hand has said it of what it wrote."""
    return fact.valid_from if fact.edits else _earliest(f.valid_from for f in (fact, *lost))


def _earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min((at for at in times if at is not None), key=as_utc, default=None)


def _ended(view: CorpusView) -> list[str]:
    """The facts that hold no longer."""
    found = list[str]()
    for part in view.parts("semantic"):
        found += part.named(np.flatnonzero(part.view.alive & np.isfinite(part.view.valid_to)))
    return found


def _redirected(nodes: Iterable[Node], merges: Mapping[str, str]) -> Iterator[Node]:
    """The facts that losers had superseded, superseded by the survivors."""
    for node in nodes:
        if isinstance(node, Semantic) and node.superseded_by in merges:
            yield replace(node, superseded_by=merges[str(node.superseded_by)])

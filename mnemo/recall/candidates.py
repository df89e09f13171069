"""
The candidates of an answer: a step and what was made of it share a place, what holds now comes
before what it replaced, and each has its sources. The store says which facts have ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain

import numpy as np

from mnemo.english.asked import told_by
from mnemo.english.slots import outdates
from mnemo.recall.result import Candidate, SourceRef
from mnemo.recall.rivals import BEST, Rivals, outdated
from mnemo.recall.score import explained
from mnemo.recall.search import Found, Search
from mnemo.values.graph import Node, NodeType, Semantic

RIVAL_SCALE = 2.5
"""Value → score of a note as it was when the weights of rivals were fitted."""
KNOWN = 0.04
"""
Probability from which a pair that the store knows is one of the question's: below, the question
is of others, unless the older gives the attribute that is asked for.
"""
_UNITED: tuple[NodeType, ...] = ("semantic", "procedural", "episodic")
"""Types of which those of one step take one place."""
KEPT = 5
"""Candidates that ``cut`` leaves in any case: behind the fifth it costs no answer (S)."""


async def answered(search: Search) -> list[Candidate]:
    """The best candidates with their sources, what holds now before what held."""
    places, named, ended = await search.threads.run(_placed, search)
    await search.read_steps(named)
    await search.read_before(place.step for place in places[:BEST] if place.step)
    facts = await search.read_nodes(("semantic", id) for id in ended if id)
    return await search.threads.run(_told, search, places, [facts.get(id) for id in ended])


def _placed(search: Search) -> tuple[list[Found], list[str], list[str]]:
    """
    Places of the best candidates, a step's shared with what was made of it; steps to read; and of
    each place the fact that holds no longer, "" without one.
    """
    request = search.run.request
    unites = request.types is None or not {"semantic", "episodic"} <= {*request.types}
    places: list[Found] = []
    of_step: dict[str, int] = {}
    for f in search.ranked:
        if unites and f.type in _UNITED and f.support:
            f.step = f.support[0]
        if f.step is not None and f.step in of_step:
            place = places[of_step[f.step]]
            if f.is_by_hand and not place.is_by_hand:
                places[of_step[f.step]] = f
                f.others, place.others, place, f = place.others, [], f, place
            place.others.append(f)
        elif len(places) < max(request.k, BEST) and f.relevance >= request.min_score:
            if f.step is not None:
                of_step[f.step] = len(places)
            places.append(f)
    shown = [one for place in places for one in (place, *place.others)]
    return places, [id for one in shown for id in one.support], _ended(search, places)


def _told(search: Search, places: list[Found], ended: Sequence[Node | None]) -> list[Candidate]:
    if not places:
        return []
    ordered = _worth_reading(search, _current_first(search, places, ended))
    return [_candidate(search, place) for place in ordered]


def _current_first(
    search: Search, places: list[Found], ended: Sequence[Node | None]
) -> list[Found]:
    """Place what holds now before what it replaced, and say of this until when it held."""
    steps, behind = search.corpus.steps, search.corpus.behind["semantic"]
    # When, and for what was said at one time the number of its step's document.
    said = [(p.latest, max(steps.of(p.step or ""), default=-1)) for p in places]
    pairs = _ended_by_unread(search, places, said)
    by_step = {place.step: number for number, place in enumerate(places) if place.step}
    for number, (place, fact) in enumerate(zip(places, ended, strict=True)):
        if isinstance(fact, Semantic):
            place.until = fact.valid_to
            closer = search.corpus.nodes["semantic"].of(fact.superseded_by or "")
            closers = behind[np.isin(behind[:, 0], np.array(closer, np.int32)), 1].tolist()
            newer = max((by_step.get(steps.ids[d], -1) for d in closers), default=-1)
            if newer >= 0 and said[newer] > said[number]:
                pairs.append((number, newer))
    known = {}
    for pair in pairs:
        one_place = (places[pair[0]], *places[pair[0]].others)
        known[pair] = 0.0 if any("attribute" in one.answers for one in one_place) else KNOWN
    ranking = outdated(search.query, _rivals(search, places, said), known=known)
    for place, by in zip(places, ranking.outdated_by, strict=True):
        if by is not None:
            place.newer = places[by]
            place.until = place.until or place.newer.latest
    order = ranking.order
    for older, newer in pairs:
        if older == order[0] and places[older].newer is None:
            # Too unlikely to take the place of the best, yet never cut: it says what ended it.
            order.remove(newer)
            order.insert(1, newer)
    return [places[number] for number in order]


def _ended_by_unread(
    search: Search, places: Sequence[Found], said: Sequence[tuple[datetime, int]]
) -> list[tuple[int, int]]:
    """Pairs of the best places, an older and an unread one that ends it as a commit would find."""
    ending = [i for i, place in enumerate(places[:BEST]) if place.step in search.unread]
    read = ((i, search.steps.get(place.step or "")) for i, place in enumerate(places[:BEST]))
    best = {i: step for i, step in read if ending and step is not None}
    told = {i: told_by(step.text, step.actor) for i, step in best.items()}
    return [
        (older, newer)
        for newer in ending
        if newer in told
        for older in told
        if best[older].actor == best[newer].actor
        and said[older] < said[newer]
        and outdates(told[newer], told[older])
    ]


def _ended(search: Search, places: Sequence[Found]) -> list[str]:
    """Of each place: the fact of its step that answers best, "" if that holds."""
    facts, pairs = search.hits.get("semantic"), search.corpus.behind["semantic"]
    if facts is None:
        return [""] * len(places)
    view, now = facts.view, search.run.now.timestamp()
    steps = [search.corpus.steps.of(place.step or "") for place in places]
    of_step = defaultdict[int, list[int]](list)
    of_these = np.isin(pairs[:, 1], np.array([*chain(*steps)], np.int32))
    for fact, step in pairs[of_these].tolist():
        of_step[step].append(fact)
    ended = []
    for sides in steps:
        known = sorted(d for side in sides for d in of_step[side] if view.alive[d])
        best = max(known, key=lambda d: float(facts.match[d]), default=-1)
        ended.append(view.ids[best] if best >= 0 and view.valid_to[best] <= now else "")
    return ended


def _rivals(
    search: Search, places: Sequence[Found], said: Sequence[tuple[datetime, int]]
) -> Rivals:
    spoken = [(search.hits[type], id) for type, id in (place.spoken for place in places)]
    vectors = [scored.vector(id) for scored, id in spoken]
    width = next((len(v) for v in vectors if v is not None), 1)
    rows = np.stack([np.full(width, np.nan) if v is None else v for v in vectors])
    read = [search.steps.get(place.step or "") for place in places]
    return Rivals(
        texts=[search.said(place.step) or place.node.text for place in places],
        times=[at.timestamp() for at, _ in said],
        numbers=[number for _, number in said],
        speakers=[step.actor if step else None for step in read],
        scores=[RIVAL_SCALE * place.value for place in places],
        near=rows @ rows.T,
        cosines=np.asarray([scored.best(scored.cosines, id) for scored, id in spoken]),
    )


def _worth_reading(search: Search, places: Sequence[Found]) -> list[Found]:
    """
    The first *k* of *places*, without what is far below the best. A note behind the fifth place
    needs ``config.recall.cut`` of the best value; a turn, whose scores lie closer, its square.
    """
    kept = list[Found]()
    best = max(places, key=lambda place: place.value)
    for place in places:
        if len(kept) < KEPT or not is_far_below(search, place, best):
            kept.append(place)
    return kept[: search.run.request.k]


def is_far_below(search: Search, place: Found, best: Found) -> bool:
    """Whether *place* is cut behind the fifth one."""
    cut = search.config.recall.cut
    notes = all(search.hits[type].are_notes(id) for type, id in (place.spoken, best.spoken))
    return place.value < (cut if notes else cut**2) * best.value


def _candidate(search: Search, f: Found) -> Candidate:
    steps = [search.steps[id] for id in f.support if id in search.steps]
    sources = [SourceRef.of(step) for step in steps]
    # Of the same step, so that it counts once among the sources of the result.
    wordings = dict.fromkeys(one.node.text for one in f.others)
    said = {source.text for source in sources}
    sources += [replace(sources[0], text=text) for text in wordings if sources and text not in said]
    hits = search.hits[f.type]
    if not sources:
        # Of a node without steps: the changeset that stored it.
        origins = [hits.view.origins.get(d) for d in hits.view.of(f.node.id)]
        sources = [SourceRef.of_node(f.node, origins[-1] if origins else None)]
    why = None
    if search.run.request.explain:
        # Of what was made of a step, what adds up to the score of that.
        parts = search.hits["episodic"].parts_of(f.support[0]) if f.support else {}
        why = explained(
            search.config.scoring,
            f.node,
            f.metadata,
            search.run.now,
            signals={**(parts or hits.parts_of(f.id)), **f.answers},
            cosine=hits.best(hits.cosines, f.id),
            via=f.via,
            mode_weight=search.run.weights[f.type],
        )
    held = f.node.valid_to if isinstance(f.node, Semantic) else None
    return Candidate(
        node=f.node,
        score=f.value,
        relevance=f.relevance,
        phase=f.phase,
        hop=f.hop,
        sources=sources,
        metadata=f.metadata,
        outdated_by=f.newer.node.id if f.newer else None,
        valid_to=held or f.until,
        why=why,
    )

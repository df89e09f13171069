"""Hops over the graph: the graph adds candidates, it never re-orders what was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mnemo.config import ScoringConfig
from mnemo.graph.nodes import NodeType
from mnemo.recall.candidates import Found, HopZero
from mnemo.recall.neighbours import Neighbours
from mnemo.recall.score import parameters_of

__all__ = ["HOP_DECAY", "SEEDS", "Route", "routes_from", "targets_of"]

SEEDS = 20
"""Best candidates that a hop starts from."""
MAX_BEHIND = 200
"""Nodes behind one routing node that a hop takes, best cosine first."""
HOP_DECAY = 0.5
"""Share of relevance that one more hop leaves."""
_BEHIND: dict[NodeType, NodeType] = {"tag": "semantic", "intent": "procedural"}


@dataclass(frozen=True, slots=True)
class Route:
    """A routing node, and how relevant it makes what stands behind it."""

    id: str
    type: NodeType
    relevance: float


def routes_from(
    seeds: Iterable[Found],
    neighbours: Neighbours,
    zero: HopZero,
    *,
    over: Iterable[NodeType],
    scoring: ScoringConfig,
) -> list[Route]:
    """The routing nodes above *seeds* that pass their threshold, each by its best seed."""
    allowed = {type: parameters_of(scoring, type).threshold for type in over}
    best: dict[str, Route] = {}
    for seed in seeds:
        for id, type in neighbours.above(seed.id).items():
            if type not in allowed or not zero.passes(type, id, allowed[type]):
                continue
            relevance = seed.relevance * zero.relevance(type, id)
            if id not in best or best[id].relevance < relevance:
                best[id] = Route(id, type, relevance)
    return sorted(best.values(), key=lambda route: (-route.relevance, route.id))


def targets_of(
    routes: Iterable[Route],
    neighbours: Neighbours,
    zero: HopZero,
    *,
    hop: int,
    known: Iterable[str],
    searched: Mapping[NodeType, float],
) -> list[Found]:
    """What stands behind *routes* and is not *known* yet; the best route counts."""
    taken = set(known)
    best: dict[str, Found] = {}
    for route in routes:
        type = _BEHIND[route.type]
        if type not in searched:
            continue
        handed = HOP_DECAY**hop * route.relevance
        for id in _behind(route, type, neighbours, zero, taken):
            relevance = max(zero.relevance(type, id), handed)
            if id not in best or best[id].relevance < relevance:
                best[id] = Found(id, type, relevance, "multi_hop", hop)
    return [found for found in best.values() if found.relevance > 0]


def _behind(
    route: Route, type: NodeType, neighbours: Neighbours, zero: HopZero, taken: set[str]
) -> list[str]:
    fresh = [
        id for id in neighbours.below(route.id) if id not in taken and zero.is_eligible(type, id)
    ]
    return sorted(fresh, key=lambda id: (-zero.cosine(type, id), id))[:MAX_BEHIND]

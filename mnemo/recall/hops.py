"""Graph expansion: the routes of a hop over tags and intents, and the nodes behind them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mnemo.config import ScoringConfig
from mnemo.protocols import GraphStore
from mnemo.recall.hop_zero import Found, HopZero
from mnemo.recall.value import parameters_of
from mnemo.values.corpus import CorpusView
from mnemo.values.graph import Edge, EdgeKind, NodeType

__all__ = ["BEHIND", "HOP_DECAY", "SEEDS", "CandidateEdges", "Route", "routes_from", "targets_of"]

SEEDS = 20
"""Best candidates that a hop starts from."""
MAX_BEHIND = 200
"""Nodes behind one routing node that a hop takes, best cosine first."""
HOP_DECAY = 0.5
"""Share of relevance that one more hop leaves."""
BEHIND: dict[NodeType, NodeType] = {"tag": "semantic", "intent": "procedural"}
"""Type of routing node → type of what stands behind it."""


_ROUTES: dict[EdgeKind, NodeType] = {EdgeKind.MEMBERSHIP: "tag", EdgeKind.HIERARCHICAL: "intent"}


class CandidateEdges:
    """
    The edges around a recall's candidates: the steps behind them, the tags and intents above.

    Edges to what the corpus does not hold (it is of one revision, the store may have
    moved on) are left out.
    """

    def __init__(self, graph: GraphStore, corpus: CorpusView) -> None:
        self._graph = graph
        self._corpus = corpus
        self._read: set[str] = set()
        self._support: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._above: defaultdict[tuple[str, NodeType], dict[str, None]] = defaultdict(dict)
        self._below: defaultdict[str, dict[str, None]] = defaultdict(dict)

    async def load(self, ids: Iterable[str]) -> None:
        """Read the edges of *ids*, unless they were read before."""
        missing = [id for id in dict.fromkeys(ids) if id not in self._read]
        if not missing or not any(view.count for view in self._corpus.nodes.values()):
            return
        self._read.update(missing)
        for edge in await self._graph.edges(missing, intact=True):
            self._note(edge)

    def _note(self, edge: Edge) -> None:
        route = self._route(edge)
        if route is not None:
            self._above[edge.target, route][edge.source] = None
            self._below[edge.source][edge.target] = None
        elif self._corpus.steps.of(edge.target):
            self._support[edge.source][self._corpus.steps.canonical(edge.target)] = None

    def _route(self, edge: Edge) -> NodeType | None:
        route = _ROUTES.get(edge.kind)
        return route if route and self._corpus.nodes[route].of(edge.source) else None

    def support(self, id: str) -> tuple[str, ...]:
        """The steps behind node *id*, by the ids that they are found under."""
        return tuple(self._support.get(id, ()))

    def above(self, id: str, type: NodeType) -> tuple[str, ...]:
        """The tags or the intents of node *id*."""
        return tuple(self._above.get((id, type), ()))

    def below(self, id: str) -> tuple[str, ...]:
        """The facts of a tag, the instructions of an intent."""
        return tuple(self._below.get(id, ()))


@dataclass(frozen=True, slots=True)
class Route:
    """
    A routing node, and how relevant it makes what stands behind it.

    Attributes:
        relevance: Of its best seed, times its own.
    """

    id: str
    type: NodeType
    relevance: float


def routes_from(
    seeds: Iterable[Found],
    neighbours: CandidateEdges,
    zero: HopZero,
    *,
    over: Iterable[NodeType],
    scoring: ScoringConfig,
) -> list[Route]:
    """The best routing nodes above *seeds* that pass their threshold, each by its best seed."""
    routes: list[Route] = []
    for type in over:
        parameters = parameters_of(scoring, type)
        best: dict[str, float] = {}
        for seed in seeds:
            for id in neighbours.above(seed.id, type):
                if zero.passes(type, id, parameters.threshold):
                    best[id] = max(best.get(id, 0.0), seed.relevance * zero.relevance(type, id))
        reached = sorted(best.items(), key=lambda found: (-found[1], found[0]))
        routes += [Route(id, type, given) for id, given in reached[: parameters.top_k]]
    return routes


def targets_of(
    routes: Iterable[Route],
    neighbours: CandidateEdges,
    zero: HopZero,
    *,
    hop: int,
    known: Iterable[str],
    searched: Mapping[NodeType, float],
) -> list[Found]:
    """List the targets of *routes* that are not *known* yet, most relevant first."""
    taken = set(known)
    best: dict[str, Found] = {}
    for route in routes:
        type = BEHIND[route.type]
        if type not in searched:
            continue
        handed = HOP_DECAY**hop * route.relevance
        for id in _behind(route, type, neighbours, zero, taken):
            relevance = max(zero.relevance(type, id), handed)
            if id not in best or best[id].relevance < relevance:
                best[id] = Found(
                    id, type, relevance, zero.match(type, id), "multi_hop", hop, route.id
                )
    found = [f for f in best.values() if f.relevance > 0]
    return sorted(found, key=lambda f: (-f.relevance, f.id))


def _behind(
    route: Route, type: NodeType, neighbours: CandidateEdges, zero: HopZero, taken: set[str]
) -> list[str]:
    below = neighbours.below(route.id)
    fresh = [id for id in below if id not in taken and zero.is_eligible(type, id)]
    return sorted(fresh, key=lambda id: (-zero.cosine(type, id), id))[:MAX_BEHIND]

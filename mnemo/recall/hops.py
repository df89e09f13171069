"""Graph expansion: the routes of a hop over tags and intents, and the nodes behind them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from mnemo.config import ScoringConfig
from mnemo.protocols import GraphStore
from mnemo.recall.hop_zero import Found, HopZero
from mnemo.recall.score import Hits
from mnemo.recall.value import parameters_of
from mnemo.values.corpus import CorpusView
from mnemo.values.graph import Edge, EdgeKind, NodeType

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


def routes_from(
    seeds: Iterable[Found],
    neighbours: CandidateEdges,
    zero: HopZero,
    *,
    over: Iterable[NodeType],
    scoring: ScoringConfig,
) -> list[Found]:
    """
    The best routing nodes above *seeds* that pass their threshold.

    As relevant as the best seed of each times itself.
    """
    routes: list[Found] = []
    for type in over:
        parameters = parameters_of(scoring, type)
        best: dict[str, float] = {}
        if (hits := zero.hits.get(type)) is None:
            continue
        for seed in seeds:
            for id in neighbours.above(seed.id, type):
                if hits.passes(id, parameters.threshold):
                    best[id] = max(best.get(id, 0.0), seed.relevance * hits.relevance(id))
        reached = sorted(best.items(), key=lambda found: (-found[1], found[0]))
        routes += [Found(id, type, given) for id, given in reached[: parameters.top_k]]
    return routes


def targets_of(
    routes: Iterable[Found],
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
        hits = zero.hits.get(type)
        if type not in searched or hits is None:
            continue
        handed = HOP_DECAY**hop * route.relevance
        via = zero.hits[route.type].text(route.id)
        for id in _behind(route, neighbours, hits, taken):
            relevance = max(hits.relevance(id), handed)
            if id not in best or best[id].relevance < relevance:
                match = hits.best_match(id)
                best[id] = Found(id, type, relevance, match, "multi_hop", hop, via)
    found = [f for f in best.values() if f.relevance > 0]
    return sorted(found, key=lambda f: (-f.relevance, f.id))


def _behind(route: Found, neighbours: CandidateEdges, hits: Hits, taken: set[str]) -> list[str]:
    below = neighbours.below(route.id)
    fresh = [id for id in below if id not in taken and hits.has(id)]
    return sorted(fresh, key=lambda id: (-hits.cosine(id), id))[:MAX_BEHIND]

"""The edges around a recall's candidates, read in few and large reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from mnemo.graph.corpus import CorpusView
from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.nodes import NodeType
from mnemo.protocols import GraphStore

__all__ = ["Neighbours"]

_ROUTES: dict[EdgeKind, NodeType] = {EdgeKind.MEMBERSHIP: "tag", EdgeKind.HIERARCHICAL: "intent"}


class Neighbours:
    """
    Which steps support a node, and which tags and intents stand above it.

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
            self._support[edge.source][edge.target] = None

    def _route(self, edge: Edge) -> NodeType | None:
        route = _ROUTES.get(edge.kind)
        return route if route and self._corpus.nodes[route].of(edge.source) else None

    def support(self, id: str) -> tuple[str, ...]:
        """The steps behind node *id*, by the id of their episodic node."""
        return tuple(self._support.get(id, ()))

    def above(self, id: str, type: NodeType) -> tuple[str, ...]:
        """The tags or the intents of node *id*."""
        return tuple(self._above.get((id, type), ()))

    def below(self, id: str) -> tuple[str, ...]:
        """The facts of a tag, the instructions of an intent."""
        return tuple(self._below.get(id, ()))

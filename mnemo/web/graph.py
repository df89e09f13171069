"""Pictures of a repository's graph: communities, and a bounded part of its nodes and edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from mnemo import Edge, Node, NotFound, Repository, Semantic

__all__ = ["Community", "Graphs", "Mark", "Picture"]

DRAWN = ("semantic", "procedural", "tag", "intent")
"""Types of node in a picture: what is known, and what it is about."""
ROUNDS = 12
"""Rounds of label propagation (S)."""
MOST_COMMUNITIES = 200
"""Communities that a picture names, the largest (S)."""
MOST_TEXT = 300
"""Characters of a mark's text."""
MOST_KEPT = 8
"""Graphs that are kept in memory, each as of one revision (S)."""

Indexes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """
    A node in a picture.

    Attributes:
        text: Its first 300 characters.
        community: Number of its community, the largest is 0.
        degree: Edges that it has in the whole graph.
        valid_from, valid_to: Of a fact: from when to when it held.
    """

    id: str
    type: str
    text: str
    community: int
    degree: int
    created_at: datetime | None
    valid_from: datetime | None
    valid_to: datetime | None
    superseded_by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Community:
    """
    Nodes that are tied to each other more than to others.

    Attributes:
        label: The text of its best connected tag, or node.
        nodes: How many it has.
    """

    number: int
    label: str
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """
    A part of a graph.

    Attributes:
        total: Nodes of the whole graph that could be in a picture.
        nodes: The best connected first.
        edges: Places of both ends in *nodes*, and the kind.
        communities: The largest first.
        links: Numbers of two communities, and the edges between them.
    """

    revision: int
    total: int
    nodes: list[Mark]
    edges: list[tuple[int, int, str]]
    communities: list[Community]
    links: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Graph:
    """A repository's graph as of one revision; *pairs* has the ends of *edges* as places."""

    revision: int
    nodes: Sequence[Node]
    edges: Sequence[Edge]
    pairs: Indexes
    degrees: Indexes
    labels: Indexes

    @classmethod
    def of(cls, revision: int, nodes: Sequence[Node], edges: Sequence[Edge]) -> Graph:
        """Find the communities of a graph; runs in a worker thread."""
        place = {node.id: number for number, node in enumerate(nodes)}
        inner = [edge for edge in edges if edge.source in place and edge.target in place]
        ends = [(place[edge.source], place[edge.target]) for edge in inner]
        pairs = np.array(ends, np.int64).reshape(-1, 2)
        degrees = np.bincount(pairs.ravel(), minlength=len(nodes))
        return cls(revision, nodes, inner, pairs, degrees, communities_of(len(nodes), pairs))

    def picture(self, limit: int, community: int | None, around: str | None) -> Picture:
        """The part that is asked for, at most *limit* nodes; runs in a worker thread."""
        chosen = self._chosen(limit, community, around)
        place = {int(node): number for number, node in enumerate(chosen)}
        inside = np.flatnonzero(np.isin(self.pairs, chosen).all(axis=1))
        return Picture(
            revision=self.revision,
            total=len(self.nodes),
            nodes=[self._mark(int(node)) for node in chosen],
            edges=[
                (place[int(a)], place[int(b)], str(self.edges[int(number)].kind))
                for number, (a, b) in zip(inside, self.pairs[inside], strict=True)
            ],
            communities=self._communities(),
            links=self._links(),
        )

    def _chosen(self, limit: int, community: int | None, around: str | None) -> Indexes:
        wanted = np.ones(len(self.nodes), bool)
        if community is not None:
            wanted = self.labels == community
        if around is not None:
            wanted = self._near(around)
        found = np.flatnonzero(wanted)
        best = found[np.argsort(-self.degrees[found], kind="stable")]
        if around is not None:  # itself first, whatever it is tied to
            own = self._place(around)
            best = np.concatenate([[own], best[best != own]])
        return best[:limit]

    def _place(self, id: str) -> int:
        for number, node in enumerate(self.nodes):
            if node.id == id:
                return number
        raise NotFound("node", id)

    def _near(self, id: str) -> NDArray[np.bool_]:
        """Which nodes are at most two edges away."""
        near = np.zeros(len(self.nodes), bool)
        near[self._place(id)] = True
        for _ in range(2):
            touched = near[self.pairs].any(axis=1)
            near[self.pairs[touched].ravel()] = True
        return near

    def _mark(self, number: int) -> Mark:
        node = self.nodes[number]
        fact = node if isinstance(node, Semantic) else None
        return Mark(
            id=node.id,
            type=node.type,
            text=node.text[:MOST_TEXT],
            community=int(self.labels[number]),
            degree=int(self.degrees[number]),
            created_at=node.created_at,
            valid_from=fact.valid_from if fact else None,
            valid_to=fact.valid_to if fact else None,
            superseded_by=fact.superseded_by if fact else None,
        )

    def _communities(self) -> list[Community]:
        sizes = np.bincount(self.labels)[:MOST_COMMUNITIES]
        tags = np.array([node.type == "tag" for node in self.nodes], bool)
        order = np.lexsort((-self.degrees, ~tags))
        first: dict[int, str] = {}
        for number in order:
            first.setdefault(int(self.labels[number]), self.nodes[number].text[:80])
        return [
            Community(number=number, label=first[number], nodes=int(size))
            for number, size in enumerate(sizes)
        ]

    def _links(self) -> list[tuple[int, int, int]]:
        ends = np.sort(self.labels[self.pairs], axis=1)
        ends = ends[(ends[:, 0] != ends[:, 1]) & (ends[:, 1] < MOST_COMMUNITIES)]
        links, counts = np.unique(ends, axis=0, return_counts=True)
        return [(int(a), int(b), int(n)) for (a, b), n in zip(links, counts, strict=True)]


def communities_of(count: int, pairs: Indexes) -> Indexes:
    """
    Number the communities of a graph, the largest 0, by label propagation.

    Each node takes the label that most of its neighbours have, its own counting half, ties the
    smallest; half of the nodes at a time, since all at once would swap labels for ever.

    Args:
        count: Nodes.
        pairs: Ends of edges, shape ``(n, 2)``.
    """
    labels = np.arange(count)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    ends = np.concatenate([both, both, np.stack([labels, labels], axis=1)])
    for turn in range(ROUNDS):
        moving = ends[ends[:, 0] % 2 == turn % 2]
        votes, counts = np.unique(moving[:, 0] * count + labels[moving[:, 1]], return_counts=True)
        node, label = np.divmod(votes, max(count, 1))
        order = np.lexsort((label, -counts, node))
        winner = order[np.unique(node[order], return_index=True)[1]]
        labels[node[winner]] = label[winner]
    _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[inverse]


class Graphs:
    """The graphs that pictures were asked of, each read once a revision."""

    def __init__(self) -> None:
        self._kept: dict[str, Graph] = {}

    async def picture(
        self, repo: Repository, *, limit: int, community: int | None, around: str | None
    ) -> Picture:
        """
        A picture of the present graph of *repo*.

        Raises:
            NotFound: There is no node *around* in a picture. *Cancellation*: safe.
        """
        graph = await self._graph(repo)
        return await anyio.to_thread.run_sync(graph.picture, limit, community, around)

    async def _graph(self, repo: Repository) -> Graph:
        revision = (await repo.inspection.changes()).revision
        kept = self._kept.pop(repo.id, None)
        if kept is None or kept.revision != revision:
            nodes = await repo.get_nodes(DRAWN)
            edges = await repo.get_edges([node.id for node in nodes])
            kept = await anyio.to_thread.run_sync(Graph.of, revision, nodes, edges)
        self._kept[repo.id] = kept
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return kept

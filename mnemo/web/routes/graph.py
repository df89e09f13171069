"""The graph for a page that draws it: its communities, and a bounded part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import anyio.to_thread
import numpy as np
from fastapi import APIRouter, Query, Request
from numpy.typing import NDArray

from mnemo import Edge, Node, NotFound, Repository, Semantic
from mnemo.exchange import NodeShape
from mnemo.runtime.clock import elapsed
from mnemo.runtime.validation import portions
from mnemo.web.access import Id, Readable

router = APIRouter(prefix="/v1", tags=["graph"])

DRAWN = ("semantic", "procedural", "tag", "intent")
"""Types of node in a picture: what is known, and what it is about."""
ROUNDS = 20
"""Rounds of label propagation (S)."""
MIXER = 2_654_435_761
"""Of multiplicative hashing: the bits of its multiples divide the nodes."""
MOST_COMMUNITIES = 200
"""Communities that a picture names, the largest (S)."""
MOST_TEXT = 300
"""Characters of a mark's text."""
ALWAYS_NEW = 5_000
"""Nodes up to which a graph is read for every revision (S)."""
KEPT_TIMES = 10
"""Times the seconds that reading a larger one took, for which it is kept (S)."""
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
    """
    A repository's graph as of one revision; *places* is node id → place in *nodes*.

    *pairs* are the ends of *edges* as places, shape ``(n, 2)``; *labels* are the communities.
    """

    revision: int
    nodes: Sequence[Node]
    edges: Sequence[Edge]
    places: Mapping[str, int]
    pairs: Indexes
    degrees: Indexes
    labels: Indexes
    communities: list[Community]
    links: list[tuple[int, int, int]]

    @classmethod
    def of(cls, revision: int, nodes: Sequence[Node], edges: Sequence[Edge]) -> Graph:
        """Find the communities of a graph; runs in a worker thread."""
        place = {node.id: number for number, node in enumerate(nodes)}
        inner = [edge for edge in edges if edge.source in place and edge.target in place]
        ends = [(place[edge.source], place[edge.target]) for edge in inner]
        pairs = np.array(ends, np.int64).reshape(-1, 2)
        degrees = np.bincount(pairs.ravel(), minlength=len(nodes))
        labels = communities_of(len(nodes), pairs)
        named = _named(nodes, degrees, labels)
        links = _links(labels, pairs)
        return cls(revision, nodes, inner, place, pairs, degrees, labels, named, links)

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
            communities=self.communities,
            links=self.links,
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
        if id not in self.places:
            raise NotFound("node", id)
        return self.places[id]

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


def _named(nodes: Sequence[Node], degrees: Indexes, labels: Indexes) -> list[Community]:
    """The largest communities, each by its best connected tag, or node."""
    sizes = np.bincount(labels)[:MOST_COMMUNITIES]
    untagged = np.array([node.type != "tag" for node in nodes], bool)
    order = np.lexsort((-degrees, untagged, labels))
    first = order[np.searchsorted(labels[order], np.arange(len(sizes)))]
    return [
        Community(number=number, label=nodes[int(node)].text[:80], nodes=int(size))
        for number, (node, size) in enumerate(zip(first, sizes, strict=True))
    ]


def _links(labels: Indexes, pairs: Indexes) -> list[tuple[int, int, int]]:
    ends = np.sort(labels[pairs], axis=1)
    ends = ends[(ends[:, 0] != ends[:, 1]) & (ends[:, 1] < MOST_COMMUNITIES)]
    links, counts = np.unique(ends, axis=0, return_counts=True)
    return [(int(a), int(b), int(n)) for (a, b), n in zip(links, counts, strict=True)]


def communities_of(count: int, pairs: Indexes) -> Indexes:
    """
    Number the communities of *count* nodes with *pairs* of ends, shape ``(n, 2)``, the largest 0.

    Label propagation: each node takes the label that most of its neighbours have, its own counting
    half, ties the smallest; half of the nodes at a time, then the others, since all at once would
    swap labels for ever. The halves are of another mixture each time: a fixed one can hold a tag
    and its facts, which then swap all the same.
    """
    labels, own = np.arange(count), np.arange(count)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    ends = np.concatenate([both, both, np.stack([labels, labels], axis=1)])
    still = 0
    for turn in range(ROUNDS):
        half = own * MIXER >> 16 + turn // 2 & 1
        moving = ends[half[ends[:, 0]] == turn % 2]
        # Sorted by node, then label: the first of the most frequent is the smallest label.
        votes, counts = np.unique(moving[:, 0] * count + labels[moving[:, 1]], return_counts=True)
        node, label = np.divmod(votes, max(count, 1))
        starts = np.flatnonzero(np.diff(node, prepend=-1))
        most = np.maximum.reduceat(counts, starts) if len(starts) else counts
        won = np.flatnonzero(counts == np.repeat(most, np.diff(starts, append=len(node))))
        first = won[np.flatnonzero(np.diff(node[won], prepend=-1))]
        still = still + 1 if np.array_equal(labels[node[first]], label[first]) else 0
        labels[node[first]] = label[first]
        if still == 3:  # two of these turns were of both halves
            break
    _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[inverse]


@dataclass(frozen=True, slots=True)
class Kept:
    """A graph that was read at *at* within *seconds*."""

    graph: Graph
    at: float
    seconds: float

    @property
    def serves_later(self) -> bool:
        """Whether it stands for later revisions too: it is large, and young for what it cost."""
        age = elapsed() - self.at
        return len(self.graph.nodes) > ALWAYS_NEW and age < KEPT_TIMES * self.seconds


class Graphs:
    """The graphs that pictures were asked of: read once a revision, one after the other."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._reading = anyio.Lock()

    async def picture(
        self, repo: Repository, *, limit: int, community: int | None, around: str | None
    ) -> Picture:
        """
        A picture of the graph of *repo*; ``Picture.revision`` says as of when.

        A large graph is kept for some time although the repository goes on, unless *around* is not
        in it. *Raises* ``NotFound``: there is no node *around*. *Cancellation*: safe.
        """
        graph = await self._graph(repo, around)
        return await anyio.to_thread.run_sync(graph.picture, limit, community, around)

    async def _graph(self, repo: Repository, around: str | None) -> Graph:
        async with self._reading:
            revision = (await repo.inspection.changes()).revision
            kept = self._kept.pop(repo.id, None)
            if kept is None or not _is_current(kept, revision, around):
                kept = await self._read(repo, revision)
            self._kept[repo.id] = kept
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            return kept.graph

    async def _read(self, repo: Repository, revision: int) -> Kept:
        begun = elapsed()
        nodes = await repo.get_nodes(DRAWN)
        ids, edges = [node.id for node in nodes], dict[Edge, None]()
        for some in portions(ids):
            edges |= dict.fromkeys(await repo.get_edges(some))
        graph = await anyio.to_thread.run_sync(Graph.of, revision, nodes, list(edges))
        return Kept(graph, elapsed(), elapsed() - begun)


def _is_current(kept: Kept, revision: int, around: str | None) -> bool:
    is_there = around is None or around in kept.graph.places
    return kept.graph.revision == revision or (is_there and kept.serves_later)


# ── Routes ──────────────────────────────────────────────────────────────────────────────


@router.get("/graph", response_model=Picture)
async def graph(
    request: Request,
    repo: Readable,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 500,
    community: Annotated[int | None, Query(ge=0)] = None,
    around: Annotated[str | None, Query(min_length=1, max_length=512)] = None,
) -> Any:
    """
    Give the best connected nodes with their edges, and the communities of the whole graph.

    *community* narrows the nodes to one of these, *around* to what is at most two edges away
    from a node. Raw steps are not in it.
    """
    graphs = request.app.state.graphs
    return await graphs.picture(repo, limit=limit, community=community, around=around)


@router.get("/graph/node", response_model=NodeShape)
async def node(repo: Readable, id: Id) -> Node:
    """Give one node of any type, whole."""
    found = await repo.get_node(id)
    if found is None:
        raise NotFound("node", id)
    return found

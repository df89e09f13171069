"""Look up the part of the stored graph that a changeset concerns, and near facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mnemo.commit.changes import Questions, corrected
from mnemo.protocols import GraphStore, VectorIndex
from mnemo.runtime.clock import Breather
from mnemo.values.changeset import Changeset, Revision
from mnemo.values.graph import Edge, EdgeKind, Node, NodeType, Semantic
from mnemo.values.lookup import lookup_keys
from mnemo.values.vectors import COSINE_ROUNDING

__all__ = ["Known", "Neighbours", "look_up"]

NEIGHBOURS = 12
"""Stored nodes that each new one is compared with, by vector; the nearest."""
MOST_PER_KEY = 200
"""
Stored nodes of one lookup key that are compared, those stored last (S): the history of a
value that changes with every episode must not make every further commit dearer.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """
    The stored nodes and edges that a changeset concerns, of one revision.

    Attributes:
        nodes: Stored nodes by id.
        keys: Type and lookup key → stored nodes, oldest first.
        near: New node's id → stored neighbours of its type with cosines, best first.
        edges: What the looked-up facts and instructions rest on, and their intents.
    """

    revision: Revision = 0
    nodes: Mapping[str, Node] = field(default_factory=dict)
    keys: Mapping[tuple[NodeType, str], tuple[Node, ...]] = field(default_factory=dict)
    near: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    edges: tuple[Edge, ...] = ()


async def look_up(
    asked: Questions,
    stored: Mapping[str, Node],
    graph: GraphStore,
    index: VectorIndex,
    *,
    revision: Revision,
    thresholds: Mapping[NodeType, float],
) -> Known:
    """
    Look up *asked* in the store and the index.

    Reads may straddle another write: *revision* must be taken before, and whoever
    writes must expect it.

    Args:
        stored: The nodes that the changeset names, as far as they exist.
        thresholds: Least cosine that counts as near, per type.
    """
    nodes = dict(stored)
    found: dict[tuple[NodeType, str], dict[str, Node]] = {}
    for type, keys in asked.keys.items():
        for node in await graph.nodes(types=(type,), keys=keys, newest=MOST_PER_KEY, intact=True):
            nodes[node.id] = node
            for key in lookup_keys(node):
                found.setdefault((type, key), {})[node.id] = node
    near = await _neighbours(asked, index, thresholds)
    await _add(nodes, graph, (id for pairs in near.values() for id, _ in pairs))
    edges = await _surroundings(asked, graph, nodes)
    await _add(nodes, graph, (edge.target for edge in edges))
    return Known(
        revision=revision,
        nodes=nodes,
        keys={key: tuple(by_id.values()) for key, by_id in found.items()},
        near=near,
        edges=edges,
    )


async def _neighbours(
    asked: Questions, index: VectorIndex, thresholds: Mapping[NodeType, float]
) -> dict[str, tuple[tuple[str, float], ...]]:
    near: dict[str, tuple[tuple[str, float], ...]] = {}
    for type, (ids, rows) in asked.vectors.items():
        found = await index.nearest(rows, type=type, threshold=thresholds[type], limit=NEIGHBOURS)
        near.update({id: tuple(pairs) for id, pairs in zip(ids, found, strict=True)})
    return near


async def _surroundings(
    asked: Questions, graph: GraphStore, nodes: Mapping[str, Node]
) -> tuple[Edge, ...]:
    """
    Provenance of facts, instructions and rewarded steps, intents of instructions, and tags of
    the facts that have several steps, which a late contradiction may cut in two.
    """
    supported = [id for id, n in nodes.items() if n.type in ("semantic", "procedural")]
    edges: list[Edge] = []
    if supported or asked.rewarded:
        ids = tuple(dict.fromkeys((*supported, *asked.rewarded)))
        edges += await graph.edges(ids, kind=EdgeKind.PROVENANCE, intact=True)
    if several := _with_several_steps(edges, nodes):
        edges += await graph.edges(several, kind=EdgeKind.MEMBERSHIP, intact=True)
    if instructions := [id for id, n in nodes.items() if n.type == "procedural"]:
        edges += await graph.edges(instructions, kind=EdgeKind.HIERARCHICAL, intact=True)
    return tuple(edges)


def _with_several_steps(edges: Iterable[Edge], nodes: Mapping[str, Node]) -> list[str]:
    counts = Counter(edge.source for edge in edges)
    return [
        id for id, n in counts.items() if n > 1 and id in nodes and nodes[id].type == "semantic"
    ]


async def _add(nodes: dict[str, Node], graph: GraphStore, ids: Iterable[str]) -> None:
    missing = tuple(dict.fromkeys(id for id in ids if id not in nodes))
    if missing:
        nodes.update({node.id: node for node in await graph.nodes(missing, intact=True)})


_ROWS = 256


class Neighbours:
    """For each new or corrected fact the stored ones and the earlier new ones near it."""

    def __init__(self, changeset: Changeset, known: Known, *, threshold: float) -> None:
        nodes = (*changeset.nodes, *corrected(changeset, known.nodes))
        facts = [node for node in nodes if isinstance(node, Semantic)]
        self._near = {fact.id: list(known.near.get(fact.id, ())) for fact in facts}
        self._add_earlier([f for f in facts if f.vector is not None], threshold - COSINE_ROUNDING)

    def of(self, id: str) -> list[str]:
        """Ids near the new fact *id*, best first; new ones may have been replaced since."""
        return [other for other, _ in sorted(self._near[id], key=lambda pair: -pair[1])]

    def _add_earlier(self, facts: list[Semantic], threshold: float) -> None:
        """Compare in blocks, so that many facts need no square of memory."""
        if len(facts) < 2:
            return
        rows = np.stack([fact.vector for fact in facts if fact.vector is not None])
        breather = Breather()
        for first in range(0, len(facts), _ROWS):
            breather.breathe()
            cosines = rows[first : first + _ROWS] @ rows[: first + _ROWS].T
            for i, j in zip(*np.nonzero(cosines >= threshold), strict=True):
                if j < first + i:
                    self._near[facts[first + i].id].append((facts[j].id, float(cosines[i, j])))

"""Edges: rows, unique per (source, target, kind), walked both ways."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mnemo.graph.nodes import NodeType

__all__ = ["ENDS", "Edge", "EdgeKind"]


class EdgeKind(StrEnum):
    """What an edge says of its two ends."""

    MEMBERSHIP = "membership"
    HIERARCHICAL = "hierarchical"
    PROVENANCE = "provenance"
    SIBLING = "sibling"


ENDS: dict[EdgeKind, frozenset[tuple[NodeType, NodeType]]] = {
    EdgeKind.MEMBERSHIP: frozenset({("tag", "semantic")}),
    EdgeKind.HIERARCHICAL: frozenset({("subgoal", "episodic"), ("intent", "procedural")}),
    EdgeKind.PROVENANCE: frozenset(
        {("semantic", "episodic"), ("procedural", "episodic"), ("episodic", "source")}
    ),
    EdgeKind.SIBLING: frozenset({("semantic", "semantic")}),
}
"""The (source type, target type) pairs that each kind may join."""


@dataclass(frozen=True, slots=True)
class Edge:
    """*source* and *target* are node ids; a node never links to itself."""

    source: str
    target: str
    kind: EdgeKind

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", EdgeKind(self.kind))

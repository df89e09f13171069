"""What a store is told to write in one transaction, and what it says afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from mnemo.episode.journal import Settlement
from mnemo.errors import StoreCorrupt
from mnemo.graph.changeset import NodeChange, Revision
from mnemo.graph.edges import Edge
from mnemo.graph.metadata import MetadataDelta
from mnemo.graph.nodes import Node
from mnemo.graph.upkeep import Upkeep
from mnemo.messages import EmbeddingSpace

__all__ = ["Applied", "GraphWrite", "Intact", "StoreReport"]

Intact: TypeAlias = bool | list[StoreCorrupt]
"""Whether a read passes by damaged rows: True logs them, a list gets them as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphWrite:
    """
    A reconciled changeset: exactly what one transaction writes.

    Attributes:
        changeset_id: Met again, nothing is written and the first answer is given.
        expected_revision: The revision that it was reconciled against.
        nodes: To insert, complete with ``created_at``. ``source`` and ``episodic`` nodes
            carry no vector (those of their step serve); another node without one is
            found by keyword until the index has caught up with it.
        edges: To insert; one that exists already is skipped.
        dropped: Stored edges to delete, before *edges* are inserted.
        metadata: Node id → difference; every new node gets an entry in any case.
        changes: New field values (``vector`` included) of stored nodes.
        node_ids: What the receipt names: ids that exist afterwards, created or changed.
        settlement: What it does to its session; ``None`` for ``repo.apply``.
        space: Of the vectors in it; stamps the repository if it has none. ``None``: the
            vectors must have the stamped length.
        upkeep: What maintenance does, after the rest. If that and the rest change
            nothing, the revision stays and the id is not remembered.
    """

    changeset_id: str
    expected_revision: Revision
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    dropped: tuple[Edge, ...] = ()
    metadata: Mapping[str, MetadataDelta] = field(default_factory=dict)
    changes: tuple[NodeChange, ...] = ()
    node_ids: tuple[str, ...] = ()
    settlement: Settlement | None = None
    space: EmbeddingSpace | None = None
    upkeep: Upkeep | None = None

    @property
    def is_empty(self) -> bool:
        """Whether, upkeep aside, the graph stays as it is; then the revision stays too."""
        return not (self.nodes or self.edges or self.metadata or self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """
    What a graph write left; *again* if its changeset had been applied before.

    *removed* are the ids that its upkeep deleted; told the first time only.
    """

    revision: Revision
    node_ids: tuple[str, ...]
    edge_count: int
    again: bool = False
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What a check of the whole store found; no *problems* is healthy."""

    problems: tuple[str, ...]
    counts: Mapping[str, int]
    schema_version: int
    synchronous: str

"""
A changeset: what extraction wants to add to the graph, before it met the graph. Immutable.

``merge`` is associative with ``Changeset()`` as its unit, in the order of trajectories;
``validate`` refuses what could not be stored. ``Upkeep`` is what maintenance does to stored nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from mnemo.runtime.validation import (
    MOST_NUMBER,
    every,
    exact_id,
    exact_text,
    finite_number,
    instance_of,
    stored_time,
    whole_number,
)
from mnemo.values.graph import ENDS, Edge, MetadataDelta, Node, NodeType

Revision = int
"""The number of graph writes a repository has seen; 0 is the empty repository."""

_EMPTY: Mapping[str, MetadataDelta] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeChange:
    """
    New values for some fields of a stored node.

    Attributes:
        fields: Field name → new value, e.g. ``{"reward": 0.9}`` on an episodic node.
    """

    id: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Changeset:
    """
    Nodes and edges to add, differences to add to metadata, and changes to stored nodes.

    Attributes:
        metadata: Node id → difference, for nodes here or stored.
        id: Given when it is staged or applied; the same id is never applied twice.
        changes: New field values of nodes that are stored already.
        replaces: Id of a new fact → ids of stored facts that a model says it replaces.
        left_out: Facts that ``config.extraction.max_facts`` kept out of it.
    """

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    metadata: Mapping[str, MetadataDelta] = field(default_factory=lambda: _EMPTY)
    id: str | None = None
    changes: tuple[NodeChange, ...] = ()
    replaces: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    left_out: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "edges", tuple(self.edges))
        object.__setattr__(self, "changes", tuple(self.changes))

    @property
    def is_empty(self) -> bool:
        """Whether applying it would change nothing."""
        return not (self.nodes or self.edges or self.metadata or self.changes)

    def merge(self, other: Changeset) -> Changeset:
        """This changeset followed by *other*; the id of neither is kept."""
        metadata = dict(self.metadata)
        for id, delta in other.metadata.items():
            metadata[id] = metadata[id] + delta if id in metadata else delta
        return Changeset(
            nodes=self.nodes + other.nodes,
            edges=tuple(dict.fromkeys(self.edges + other.edges)),
            metadata=metadata,
            changes=self.changes + other.changes,
            replaces={**self.replaces, **other.replaces},
            left_out=self.left_out + other.left_out,
        )

    def without_vectors(self) -> Changeset:
        """This changeset, to be embedded anew."""
        return replace(
            self,
            nodes=tuple(replace(node, vector=None) for node in self.nodes),
            changes=tuple(
                NodeChange(c.id, {k: v for k, v in c.fields.items() if k != "vector"})
                for c in self.changes
            ),
        )

    def check_storable(self) -> None:
        """
        Refuse values from outside that not every store can keep.

        Raises:
            ValueError: An id, text, number or time that is none or beyond the limits; it
                is named.
        """
        for name in ("metadata", "replaces"):
            instance_of(name, getattr(self, name), Mapping)  # type: ignore[type-abstract]
        members = ((Node, self.nodes), (Edge, self.edges), (NodeChange, self.changes))
        for kind, given in (*members, (MetadataDelta, self.metadata.values())):
            for one in given:
                instance_of("a member of a changeset", one, kind)
        for replaced in self.replaces.values():
            every("replaces", replaced)
        ends = (end for edge in self.edges for end in (edge.source, edge.target))
        for id in (*(node.id for node in self.nodes), *ends, *self.metadata, *self.replaces):
            exact_id("an id of a changeset", id)
        for id, delta in self.metadata.items():
            whole_number(f"reward_count of {id!r}", delta.reward_count, -MOST_NUMBER)
            whole_number(f"support_count of {id!r}", delta.support_count, -MOST_NUMBER)
            finite_number(f"cumulative_reward of {id!r}", delta.cumulative_reward)
        for node in self.nodes:
            if node.vector is not None:
                instance_of(f"the vector of {node.id!r}", node.vector, np.ndarray)
            for name in node._said:
                exact_text(f"{name} of {node.id!r}", getattr(node, name))
            for f in fields(node):
                _check_value(f"{f.name} of {node.id!r}", getattr(node, f.name))
        for change in self.changes:
            instance_of("the fields of a change", change.fields, Mapping)  # type: ignore[type-abstract]
            for name, value in change.fields.items():
                _check_value(f"{name} of {change.id!r}", value)

    def validate(
        self, *, stored: Mapping[str, NodeType] | None = None, dimensions: int | None = None
    ) -> None:
        """
        Refuse what could not be stored.

        Args:
            stored: Id → type of the nodes outside that edges and changes refer to.
            dimensions: Length that every vector must have, if known.

        Raises:
            ValueError: A duplicate id, an edge end that is neither here nor stored, a
                kind that does not fit its ends, a self-link, a change to an unknown
                node, or a vector of wrong length or not of unit norm.
        """
        types: dict[str, NodeType] = dict(stored or {})
        for node in self.nodes:
            if node.id in types:
                raise ValueError(f"node id {node.id!r} is already taken")
            types[node.id] = node.type
        _check_vectors(self.nodes, dimensions)
        _check_edges(self.edges, types)
        for id in (*self.metadata, *(change.id for change in self.changes)):
            if id not in types:
                raise ValueError(f"a change names the unknown node {id!r}")


def _check_value(name: str, value: object) -> None:
    if isinstance(value, str):
        exact_text(name, value)
    if isinstance(value, float):
        finite_number(name, value)
    if isinstance(value, datetime):
        stored_time(name, value)


def _check_vectors(nodes: Iterable[Node], dimensions: int | None) -> None:
    for node in nodes:
        if node.vector is None:
            continue
        if node.vector.ndim != 1 or (dimensions and node.vector.shape[0] != dimensions):
            raise ValueError(f"the vector of {node.id!r} has shape {node.vector.shape}")
        if not abs(float(np.linalg.norm(node.vector)) - 1.0) < 1e-3:
            raise ValueError(f"the vector of {node.id!r} is not of unit length")


def _check_edges(edges: Iterable[Edge], types: Mapping[str, NodeType]) -> None:
    for edge in edges:
        for end in (edge.source, edge.target):
            if end not in types:
                raise ValueError(f"an edge names the unknown node {end!r}")
        if edge.source == edge.target:
            raise ValueError(f"node {edge.source!r} links to itself")
        if (types[edge.source], types[edge.target]) not in ENDS[edge.kind]:
            raise ValueError(
                f"a {edge.kind} edge cannot join {types[edge.source]} to {types[edge.target]}"
            )


Operation: TypeAlias = Literal["consolidate", "decay", "validate"]

RAW: tuple[NodeType, ...] = ("episodic", "source")
"""Raw steps: maintenance never removes them."""
ROUTING: tuple[NodeType, ...] = ("tag", "intent", "subgoal")
"""What stands for its members, and goes with the last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """
    Part of a graph write: done in this order, in its transaction.

    Attributes:
        changed: Stored nodes as they will be; their texts and vectors stay.
        merges: Loser, to be deleted → survivor, which is no loser itself. It gets the loser's
            edges (without doubles and self-links); accesses and rewards are added,
            ``created_at`` is the earliest, ``last_accessed_at`` the latest, the penalty the
            smallest, ``support_count`` the number of episodes behind the united provenance
            (where no episode is known, the greatest there was).
        removals: Nodes to delete, but for those that were accessed after *accessed_until*.
        penalties: Node id → penalty to set, in [0, 1).
        sweeps: Whether tags and intents without a member, and subgoals without a step, go too.
    """

    changed: tuple[Node, ...] = ()
    merges: Mapping[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()
    accessed_until: datetime | None = None
    penalties: Mapping[str, float] = field(default_factory=dict)
    sweeps: bool = False

    @property
    def named_ids(self) -> tuple[str, ...]:
        """Every node that must be stored, each once."""
        ids = (*(node.id for node in self.changed), *self.merges, *self.merges.values())
        return tuple(dict.fromkeys((*ids, *self.removals, *self.penalties)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """
    What one maintenance operation did; counts that do not apply are 0.

    Attributes:
        checked: Nodes that were looked at.
        deleted: Length of *deleted_ids*.
        deleted_ids: Losers, decayed nodes, and the routing nodes left without a member.
        merged: Loser → survivor.
        penalized: Facts and instructions whose evidence does not say what they say.
        orphaned: Those that no provenance leads from to a step.
        grounded: Those whose evidence does.
        damaged: Rows that cannot be decoded and were passed by, sorted, each as "the table,
            a blank, the row's key". They were left as they are; ``Mnemo.check`` tells more.
        revision: Of the graph afterwards.
        duration_s: Seconds, waiting for an earlier operation aside.
    """

    operation: Operation
    checked: int = 0
    deleted: int = 0
    deleted_ids: tuple[str, ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)
    penalized: int = 0
    orphaned: int = 0
    grounded: int = 0
    damaged: tuple[str, ...] = ()
    revision: Revision = 0
    duration_s: float = 0.0

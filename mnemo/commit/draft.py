"""The draft of a graph write: what reconciliation has decided about a changeset so far."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import numpy as np

from mnemo.commit.changes import Known
from mnemo.protocols import GraphWrite
from mnemo.runtime.clock import Breather
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.graph import Edge, EdgeKind, MetadataDelta, Node, Semantic, node_id

_Kind = TypeVar("_Kind", bound=Node)
_NOTHING = MetadataDelta()


class Draft:
    """
    Collects decisions about a changeset; not thread-safe.

    Args:
        now: ``created_at`` of nodes that have none.
    """

    def __init__(self, changeset: Changeset, known: Known, *, now: datetime) -> None:
        self._changeset = changeset
        self._known = known
        self._new: dict[str, Node] = {
            node.id: node if node.created_at else replace(node, created_at=now)
            for node in changeset.nodes
        }
        self._replaced: dict[str, str] = {}
        self._moved: dict[tuple[str, str], str] = {}
        self._added: list[Edge] = []
        self._fields: dict[str, dict[str, Any]] = {}
        self._deltas: dict[str, MetadataDelta] = dict(changeset.metadata)
        for change in changeset.changes:
            self.set(change.id, **change.fields)

    def new(self, kind: type[_Kind]) -> list[_Kind]:
        """The changeset's nodes of one kind that are kept so far, in its order."""
        return [node for node in self._new.values() if isinstance(node, kind)]

    def is_new(self, id: str) -> bool:
        """Whether the node comes with this changeset and is kept."""
        return id in self._new

    def node(self, id: str) -> Node:
        """
        A node as it will be.

        Raises:
            KeyError: It is neither new nor known.
        """
        if id in self._new:
            return self._new[id]
        stored = self._known.nodes[id]
        return replace(stored, **self._fields[id]) if id in self._fields else stored

    def survivor(self, id: str, kind: type[_Kind]) -> _Kind | None:
        """What stands for *id*; ``None`` if nobody knows it, or it is of another kind."""
        end = self.end(id)
        if end not in self._new and end not in self._known.nodes:
            return None
        node = self.node(end)
        return node if isinstance(node, kind) else None

    def end(self, id: str) -> str:
        """The node that stands for *id*; survivors are never replaced themselves."""
        return self._replaced.get(id, id)

    def set(self, id: str, **values: Any) -> None:
        """Give a node new field values; those it has already change nothing."""
        node = self.node(id)
        values = {name: v for name, v in values.items() if not _equal(getattr(node, name), v)}
        if not values:
            return
        if id in self._new:
            self._new[id] = replace(node, **values)
        else:
            self._fields.setdefault(id, {}).update(values)

    def add(self, id: str, delta: MetadataDelta) -> None:
        """Add to the difference of a node's counts."""
        self._deltas[id] = self._deltas.get(id, _NOTHING) + delta

    def supported(self, id: str) -> None:
        """Count the statement that a new fact or instruction comes with, if nobody has."""
        if not self._deltas.get(id, _NOTHING).support_count:
            self.add(id, MetadataDelta(support_count=1))

    def replace(
        self,
        id: str,
        survivor: str,
        *,
        adjust: Callable[[MetadataDelta], MetadataDelta] = lambda delta: delta,
    ) -> None:
        """Let *survivor*, stored or new, stand for the new node *id*, and get its difference."""
        del self._new[id]
        self._replaced[id] = survivor
        self.add(survivor, adjust(self._deltas.pop(id, _NOTHING)))

    def split(self, id: str, steps: Collection[str], *, since: datetime) -> Semantic:
        """Give *steps* of a fact, with its tags, to a new fact of the same words."""
        fact = self.node(id)
        assert isinstance(fact, Semantic)
        piece = replace(fact, id=node_id("semantic"), valid_from=since)
        self._new[piece.id] = piece
        for edge in (*self._changeset.edges, *self._known.edges, *self._added):
            if edge.kind is EdgeKind.MEMBERSHIP and self.end(edge.target) == id:
                self._added.append(replace(edge, target=piece.id))
        if id in self._known.nodes:
            self._added += [Edge(id, step, EdgeKind.PROVENANCE) for step in steps]
        self._moved.update({(id, step): piece.id for step in steps})
        return piece

    def edges(self) -> tuple[Edge, ...]:
        """The edges between survivors, without doubles and self-links."""
        breather = Breather()
        kept: dict[Edge, None] = {}
        for given in (*self._changeset.edges, *self._added):
            breather.breathe()
            edge = replace(given, source=self._source(given), target=self.end(given.target))
            if edge.source != edge.target:
                kept[edge] = None
        return tuple(kept)

    def _source(self, edge: Edge) -> str:
        source = edge.source
        while True:
            # First: a fact may have been cut before another came to stand for its rest.
            after = self._moved.get((source, edge.target)) or self.end(source)
            if after == source:
                return source
            source = after

    def _dropped(self) -> tuple[Edge, ...]:
        moved = [(id, step) for id, step in self._moved if id in self._known.nodes]
        return tuple(Edge(id, step, EdgeKind.PROVENANCE) for id, step in moved)

    def write(self) -> GraphWrite:
        """The finished write."""
        deltas = {
            id: delta for id, delta in self._deltas.items() if id in self._new or delta != _NOTHING
        }
        named = (self.end(node.id) for node in self._changeset.nodes)
        touched = {*self._new, *self._fields, *deltas}
        ids = (*(id for id in named if id in touched), *self._fields, *deltas)
        assert self._changeset.id is not None
        return GraphWrite(
            changeset_id=self._changeset.id,
            expected_revision=self._known.revision,
            nodes=tuple(self._new.values()),
            edges=self.edges(),
            dropped=self._dropped(),
            metadata=deltas,
            changes=tuple(NodeChange(id, values) for id, values in self._fields.items()),
            node_ids=tuple(dict.fromkeys(ids)),
        )


def _equal(before: Any, after: Any) -> bool:
    if isinstance(before, np.ndarray) or isinstance(after, np.ndarray):
        return before is not None and after is not None and np.array_equal(before, after)
    return bool(before == after)

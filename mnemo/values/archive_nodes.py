"""Nodes and changesets in the lines of an archive: what is written, and what may be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from mnemo.runtime.validation import finite_number, stored_json, stored_text, whole_number
from mnemo.values.archive import ArchivedNode
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.fields import STRICT, Count, Entity, Id, Key, packed, read_time, read_vector
from mnemo.values.graph import (
    NODE_TYPES,
    Edge,
    EdgeKind,
    Edit,
    MetadataDelta,
    Node,
    NodeMetadata,
    NodeType,
    Vector,
)
from mnemo.values.wordings import plain_edits, plain_wordings, read_edits, read_wordings

__all__ = ["CHANGESET", "COUNTS", "NodeLines", "changeset_line"]

_TIMES = frozenset({"created_at", "at", "valid_from", "valid_to"})
_NUMBERS = frozenset({"confidence", "reward", "return_score"})
_WHOLE_NUMBERS = frozenset({"step_index"})


# ── Writing ──────────────────────────────────────────────────────────────────────────


def changeset_line(changeset: Changeset) -> dict[str, Any]:
    """What a line says of *changeset*."""
    return {
        "id": changeset.id,
        "nodes": [
            {"id": n.id, "type": n.type, "fields": _fields(n), "vector": _plain(n.vector)}
            for n in changeset.nodes
        ],
        "edges": [(e.source, e.target, str(e.kind)) for e in changeset.edges],
        "metadata": {
            id: (float(delta.cumulative_reward), delta.reward_count, delta.support_count)
            for id, delta in changeset.metadata.items()
        },
        "changes": [
            {"id": c.id, "fields": {name: _plain(value) for name, value in c.fields.items()}}
            for c in changeset.changes
        ],
        "replaces": {id: list(replaced) for id, replaced in changeset.replaces.items()},
    }


def _fields(node: Node) -> dict[str, Any]:
    """What *node* says, but for what stands at its default."""
    said = {}
    for f in fields(node):
        value = getattr(node, f.name)
        if f.name not in ("id", "vector") and (f.default is MISSING or value != f.default):
            said[f.name] = _plain(value)
    return said


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        is_edited = bool(value) and isinstance(value[0], Edit)
        return plain_edits(value) if is_edited else plain_wordings(value)
    return packed(value) if isinstance(value, np.ndarray) else value


# ── Reading ──────────────────────────────────────────────────────────────────────────


def _as_fields(said: Any) -> dict[str, Any]:
    """Fields of a node, by name. *Raises* ``ValueError`` for a value that does not fit."""
    if not isinstance(said, dict):
        raise ValueError("fields must be an object")
    return {name: _as_value(name, value) for name, value in said.items()}


def _as_value(name: str, value: Any) -> Any:
    if name == "wordings":
        return read_wordings(value)
    if name == "edits":
        return read_edits(value)
    if value is None:
        return None
    if name == "metadata":
        return _as_object(value)
    if name == "vector":
        return read_vector(value)
    if name in _TIMES:
        return read_time(value)
    if name in _WHOLE_NUMBERS:
        return whole_number(name, value, 0)
    if name in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} must be int or float")
        return finite_number(name, value) if isinstance(value, float) else value
    return stored_text(name, value)


def _as_object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("metadata must be an object")
    return stored_json("metadata", value)


def _node(type: NodeType, id: str, said: Mapping[str, Any], vector: Vector | None = None) -> Node:
    kind = NODE_TYPES[type]
    known = {f.name: f for f in fields(kind) if f.name not in ("id", "vector")}
    if strange := said.keys() - known.keys():
        raise ValueError(f"a node of type {type!r} has no {min(strange)!r}")
    for name, f in known.items():
        if f.default is MISSING and said.get(name) is None:
            raise ValueError(f"a node of type {type!r} needs {name!r}")
    return kind(id=id, vector=vector, **said)


_Fields: TypeAlias = Annotated[Any, BeforeValidator(_as_fields)]
_Vector: TypeAlias = Annotated[Any, BeforeValidator(read_vector)]


@with_config(STRICT)
class _StagedNode(TypedDict):
    id: Id
    type: NodeType
    fields: _Fields
    vector: _Vector | None


@with_config(STRICT)
class _Change(TypedDict):
    id: Id
    fields: _Fields


@with_config(STRICT)
class _Changeset(TypedDict):
    id: Key | None
    nodes: list[_StagedNode]
    edges: list[Annotated[list[Id], Field(min_length=3, max_length=3)]]
    metadata: dict[Id, Annotated[list[float], Field(min_length=3, max_length=3)]]
    changes: list[_Change]
    replaces: dict[Id, list[Id]]


def _changeset(said: Any) -> Changeset:
    return Changeset(
        nodes=tuple(_node(n["type"], n["id"], n["fields"], n["vector"]) for n in said["nodes"]),
        edges=tuple(Edge(a, b, EdgeKind(kind)) for a, b, kind in said["edges"]),
        metadata={
            id: MetadataDelta(
                cumulative_reward=reward, reward_count=int(count), support_count=int(support)
            )
            for id, (reward, count, support) in said["metadata"].items()
        },
        id=said["id"],
        changes=tuple(NodeChange(change["id"], change["fields"]) for change in said["changes"]),
        replaces={id: tuple(replaced) for id, replaced in said["replaces"].items()},
    )


CHANGESET: Any = Annotated[_Changeset, AfterValidator(_changeset)]
"""What a line must say of a changeset, for pydantic."""

COUNTS = Entity(
    NodeMetadata,
    types={"created_at": "instant", "last_accessed_at": "instant"},
    shapes={"penalty": Annotated[float, Field(ge=0, lt=1)]},
)


class NodeLines:
    """The lines of nodes; what a node says depends on its type."""

    kind = ArchivedNode

    def __init__(self) -> None:
        self._adapter: TypeAdapter[dict[str, Any]] | None = None

    def line(self, record: Any) -> dict[str, Any]:
        """What a line says of *record*."""
        return {
            "id": record.node.id,
            "type": record.node.type,
            "revision": record.revision,
            "fields": _fields(record.node),
            "counts": COUNTS.line(record.metadata),
        }

    def read(self, raw: Mapping[str, Any]) -> ArchivedNode:
        """The node that a line says. *Raises* as ``Entity.read``."""
        if self._adapter is None:
            self._adapter = TypeAdapter(_node_shape())
        said = self._adapter.validate_python(raw)
        node = _node(said["type"], said["id"], said["fields"])
        if node.created_at is None:
            raise ValueError("a stored node needs 'created_at'")
        metadata = COUNTS.make(**said["counts"])
        return ArchivedNode(node=node, metadata=metadata, revision=said["revision"])


def _node_shape() -> Any:
    make: Any = TypedDict
    said = {
        "id": Id,
        "type": NodeType,
        "revision": Count,
        "fields": _Fields,
        "counts": COUNTS.shape,
    }
    return with_config(STRICT)(make("Node", said))

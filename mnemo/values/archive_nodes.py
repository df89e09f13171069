"""Nodes, edges and changesets as entities: their fields, their rows, and their lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from mnemo.values.archive import ArchivedNode
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.fields import STRICT, Count, Entity, Id, Key, Stored, packed, read_vector
from mnemo.values.graph import (
    NODE_TYPES,
    Edge,
    MetadataDelta,
    Node,
    NodeMetadata,
    NodeType,
    Vector,
)

# ── Entities ─────────────────────────────────────────────────────────────────────────


def _fields_of(kind: type[Node]) -> Entity[Any]:
    """What nodes of *kind* say; ids among it are texts like any other, numbers may be below 0."""
    hints = get_type_hints(kind)
    numbers = [name for name, hint in hints.items() if hint in (float, float | None)]
    return Entity(
        kind,
        types={name: "text" for name, hint in hints.items() if hint in (str, str | None)},
        shapes=dict.fromkeys(numbers, float),
        without=("id", "vector"),
        sparse=True,
    )


NODE_FIELDS: dict[NodeType, Entity[Any]] = {t: _fields_of(kind) for t, kind in NODE_TYPES.items()}
"""What nodes of each type say beside their id and vector."""
_ANY_FIELD: dict[str, Stored] = {f.name: f for e in NODE_FIELDS.values() for f in e.fields}

COUNTS = Entity(
    NodeMetadata,
    types={"created_at": "instant", "last_accessed_at": "instant"},
    shapes={"penalty": Annotated[float, Field(ge=0, lt=1)]},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNode:
    """
    The row of a node: what it is found and judged by, and all that it says.

    Attributes:
        at: When what it holds was said.
        body: ``NODE_FIELDS`` of its type as JSON.
        session_id: By this, its episode and the superseding fact an erasure judges it.
    """

    id: str
    type: NodeType
    at: datetime | None
    session_id: str | None
    episode_id: str | None
    superseded_by: str | None
    body: str
    metadata: NodeMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A node, or the node of a step, that left recall; followers read these in order."""

    node_id: str


NODE = Entity(StoredNode, key=("id",), types={"at": "instant"}, inline={"metadata": COUNTS})
EDGE = Entity(
    Edge,
    owners=("source", "target"),
    key=("kind",),
    lines={"kind": "type"},
    shapes={"source": Id, "target": Id},
)
_EDGE_LINE = tuple(field.line for field in EDGE.fields)
REMOVAL = Entity(Removal)


# ── Writing ──────────────────────────────────────────────────────────────────────────


def changeset_line(changeset: Changeset) -> dict[str, Any]:
    """What a line says of *changeset*."""
    return {
        "id": changeset.id,
        "nodes": [
            {"id": n.id, "type": n.type, "fields": NODE_FIELDS[n.type].line(n)}
            | {"vector": _packed(n.vector)}
            for n in changeset.nodes
        ],
        "edges": [tuple(EDGE.line(edge).values()) for edge in changeset.edges],
        "metadata": {
            id: (float(delta.cumulative_reward), delta.reward_count, delta.support_count)
            for id, delta in changeset.metadata.items()
        },
        "changes": [{"id": c.id, "fields": _changed_line(c.fields)} for c in changeset.changes],
        "replaces": {id: list(replaced) for id, replaced in changeset.replaces.items()},
    }


def _packed(vector: Vector | None) -> str | None:
    return None if vector is None else packed(vector)


def _changed_line(changed: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(name, value) for name, value in changed.items()}


def _plain(name: str, value: Any) -> Any:
    if name == "vector":
        return _packed(value)
    write = _ANY_FIELD[name].write
    return value if write is None or value is None else write(value)


# ── Reading ──────────────────────────────────────────────────────────────────────────

_Vector: TypeAlias = Annotated[Any, BeforeValidator(read_vector)]
_OBJECT: Any = TypedDict


def _object(name: str, fields: Mapping[str, Any], *, total: bool = True) -> Any:
    return with_config(STRICT)(_OBJECT(name, fields, total=total))


def _node_shape(type: Any, said: NodeType, **more: Any) -> Any:
    """Of a node of *said*, which its line must say to be *type*."""
    return _object("Node", {"id": Id, "type": type, "fields": NODE_FIELDS[said].shape, **more})


_STORED_TYPE: Any = Literal[tuple(NODE_TYPES)]
_STAGED: Any = Annotated[
    reduce(or_, (_node_shape(Literal[t], t, vector=_Vector | None) for t in NODE_TYPES)),
    Field(discriminator="type"),
]
_CHANGED = _object(
    "Changed",
    {name: field.shape | None for name, field in _ANY_FIELD.items()} | {"vector": _Vector | None},
    total=False,
)
_CHANGE: Any = _object("Change", {"id": Id, "fields": _CHANGED})
_CHANGESET = _object(
    "Changeset",
    {
        "id": Key | None,
        "nodes": list[_STAGED],
        "edges": list[Annotated[list[Any], AfterValidator(lambda said: _edge(said))]],
        "metadata": dict[Id, Annotated[list[float], Field(min_length=3, max_length=3)]],
        "changes": list[_CHANGE],
        "replaces": dict[Id, list[Id]],
    },
)


def _edge(said: list[Any]) -> Edge:
    if len(said) > len(_EDGE_LINE):
        raise ValueError(f"an edge has {len(_EDGE_LINE)} values at most")
    return EDGE.read(dict(zip(_EDGE_LINE, said, strict=False)))


def _changeset(said: Any) -> Changeset:
    return Changeset(
        nodes=tuple(_node(n["type"], n["id"], n["fields"], n["vector"]) for n in said["nodes"]),
        edges=tuple(said["edges"]),
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


def _node(type: NodeType, id: str, said: Mapping[str, Any], vector: Vector | None = None) -> Node:
    return NODE_TYPES[type](id=id, vector=vector, **said)


CHANGESET: Any = Annotated[_CHANGESET, AfterValidator(_changeset)]
"""What a line must say of a changeset, for pydantic."""


class NodeLines:
    """The lines of nodes; what a node says depends on its type."""

    kind = ArchivedNode

    def __init__(self) -> None:
        self._adapters: dict[str, TypeAdapter[dict[str, Any]]] = {}

    def line(self, record: Any) -> dict[str, Any]:
        """What a line says of *record*."""
        return {
            "id": record.node.id,
            "type": record.node.type,
            "revision": record.revision,
            "fields": NODE_FIELDS[record.node.type].line(record.node),
            "counts": COUNTS.line(record.metadata),
        }

    def read(self, raw: Mapping[str, Any]) -> ArchivedNode:
        """The node that a line says. *Raises* as ``Entity.read``."""
        found = raw.get("type")
        type: NodeType = found if isinstance(found, str) and found in NODE_TYPES else "semantic"
        if type not in self._adapters:
            shape = _node_shape(_STORED_TYPE, type, revision=Count, counts=COUNTS.shape)
            self._adapters[type] = TypeAdapter(shape)
        said = self._adapters[type].validate_python(raw)
        node = _node(type, said["id"], said["fields"])
        if node.created_at is None:
            raise ValueError("a stored node needs 'created_at'")
        metadata = COUNTS.make(**said["counts"])
        return ArchivedNode(node=node, metadata=metadata, revision=said["revision"])

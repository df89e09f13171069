"""
Values to columns and back: nodes and changesets as JSON, vectors as float32 bytes.

What is written here is what later versions have to read; a change of a shape is a
migration.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime
from functools import cache
from typing import Any

import numpy as np

from mnemo._clock import Breather, in_utc
from mnemo.graph.changeset import Changeset, NodeChange
from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.metadata import MetadataDelta
from mnemo.graph.nodes import NODE_TYPES, Node, NodeType, Vector
from mnemo.graph.wordings import plain_wordings, read_wordings

__all__ = [
    "decode_changeset",
    "decode_json",
    "decode_node",
    "decode_time",
    "decode_vector",
    "encode_changeset",
    "encode_json",
    "encode_node",
    "encode_time",
    "encode_vector",
    "moment",
    "utc_text",
]

_TIME = "$time"
_VECTOR = "$vector"
_NODE_TIMES = frozenset({"created_at", "at", "valid_from", "valid_to"})


def encode_json(value: Any) -> str:
    """
    Compact JSON.

    Raises:
        ValueError: If *value* holds NaN, an infinity or something that JSON has no word for.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except TypeError as error:
        raise ValueError(f"not storable as JSON: {error}") from error


def decode_json(text: str) -> Any:
    """What ``encode_json`` was given; tuples come back as lists."""
    return json.loads(text)


def encode_time(at: datetime | None) -> str | None:
    """ISO 8601 with the zone's offset, which is part of what was said."""
    return at.isoformat() if at is not None else None


def decode_time(text: str | None) -> datetime | None:
    """The time with its offset."""
    return datetime.fromisoformat(text) if text is not None else None


def utc_text(at: datetime) -> str:
    """ISO 8601 in UTC with microseconds: as text it sorts as the instants do."""
    return in_utc(at).isoformat(timespec="microseconds")


def moment(node: Node) -> str | None:
    """When what *node* holds was said, as ``utc_text``; ``None`` for kinds that do not know."""
    at = getattr(node, "at", None)
    return utc_text(at) if at is not None else None


def encode_vector(vector: Vector) -> bytes:
    """Little-endian float32, whatever the machine."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def decode_vector(blob: bytes) -> Vector:
    """A read-only float32 vector over *blob*."""
    return np.frombuffer(blob, dtype="<f4").astype(np.float32, copy=False)


# ── Nodes ────────────────────────────────────────────────────────────────────────────


@cache
def _field_names(type: NodeType) -> tuple[str, ...]:
    return tuple(f.name for f in fields(NODE_TYPES[type]) if f.name not in ("id", "vector"))


def encode_node(node: Node) -> str:
    """The node's fields but its id, type and vector, which have columns of their own."""
    return encode_json(_body(node))


def decode_node(id: str, type: NodeType, body: str, vector: bytes | None = None) -> Node:
    """The node that ``encode_node`` was given, with *vector* if it has one."""
    return _node(id, type, decode_json(body), decode_vector(vector) if vector else None)


def _body(node: Node) -> dict[str, Any]:
    values = {name: getattr(node, name) for name in _field_names(node.type)}
    for name in _NODE_TIMES & values.keys():
        values[name] = encode_time(values[name])
    if "wordings" in values:
        values["wordings"] = plain_wordings(values["wordings"]) or None
    return {name: value for name, value in values.items() if value is not None}


def _node(id: str, type: NodeType, body: dict[str, Any], vector: Vector | None) -> Node:
    for name in _NODE_TIMES & body.keys():
        body[name] = decode_time(body[name])
    if type == "intent":
        body["wordings"] = read_wordings(body.get("wordings") or ())
    # None is left out of the body; it must not come back as another default.
    values = {name: body.get(name) for name in _field_names(type)}
    return NODE_TYPES[type](id=id, vector=vector, **values)


# ── Changesets ───────────────────────────────────────────────────────────────────────


def encode_changeset(changeset: Changeset) -> bytes:
    """
    Compressed JSON lines with vectors: a head, then a line per node.

    For a worker thread: it pauses between nodes, so that an episode of any size
    does not keep the interpreter to itself.
    """
    breather = Breather()
    lines = [encode_json(_head(changeset))]
    for node in changeset.nodes:
        lines.append(encode_json([node.id, node.type, _body(node), _packed(node.vector)]))
        breather.breathe()
    return zlib.compress("\n".join(lines).encode(), level=1)


def decode_changeset(blob: bytes) -> Changeset:
    """The changeset that ``encode_changeset`` was given; for a worker thread too."""
    breather = Breather()
    head, *lines = zlib.decompress(blob).decode().split("\n")
    raw = decode_json(head)
    nodes = []
    for line in lines:
        id, type, body, vector = decode_json(line)
        nodes.append(_node(id, type, body, _unpacked(vector)))
        breather.breathe()
    return Changeset(
        nodes=tuple(nodes),
        edges=tuple(Edge(source, target, EdgeKind(kind)) for source, target, kind in raw["edges"]),
        metadata={id: MetadataDelta(**delta) for id, delta in raw["metadata"].items()},
        id=raw["id"],
        changes=tuple(NodeChange(id, _rich_fields(values)) for id, values in raw["changes"]),
        replaces={id: tuple(replaced) for id, replaced in raw["replaces"].items()},
    )


def _head(changeset: Changeset) -> dict[str, Any]:
    return {
        "id": changeset.id,
        "edges": [(e.source, e.target, str(e.kind)) for e in changeset.edges],
        "metadata": {id: asdict(delta) for id, delta in changeset.metadata.items()},
        "changes": [(c.id, _plain_fields(c.fields)) for c in changeset.changes],
        "replaces": {id: list(replaced) for id, replaced in changeset.replaces.items()},
    }


def _packed(vector: Vector | None) -> str | None:
    return None if vector is None else base64.b64encode(encode_vector(vector)).decode()


def _unpacked(text: str | None) -> Vector | None:
    return None if text is None else decode_vector(base64.b64decode(text))


def _plain_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return {_TIME: encode_time(value)}
    if isinstance(value, np.ndarray):
        return {_VECTOR: _packed(value)}
    return value


def _rich_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _rich(value) for name, value in values.items()}


def _rich(value: Any) -> Any:
    if isinstance(value, dict) and _TIME in value:
        return decode_time(value[_TIME])
    if isinstance(value, dict) and _VECTOR in value:
        return _unpacked(value[_VECTOR])
    return value

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
from math import isfinite
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from mnemo.runtime.clock import Breather, in_utc
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.graph import NODE_TYPES, Edge, EdgeKind, MetadataDelta, Node, NodeType, Vector
from mnemo.values.wordings import plain_edits, plain_wordings, read_edits, read_wordings

__all__ = [
    "decode_changeset",
    "decode_json",
    "decode_list",
    "decode_node",
    "decode_object",
    "decode_time",
    "decode_vector",
    "encode_changeset",
    "encode_json",
    "encode_node",
    "encode_time",
    "encode_vector",
    "node_columns",
    "stored_time",
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


def decode_object(text: str) -> dict[str, Any]:
    """A JSON object. *Raises* ``ValueError`` for other JSON."""
    found: dict[str, Any] = _expected(decode_json(text), dict)
    return found


def decode_list(text: str, kind: type[Any] = object) -> list[Any]:
    """A JSON array of values of *kind*. *Raises* ``ValueError`` for other JSON."""
    found: list[Any] = _expected(decode_json(text), list)
    for value in found:
        _expected(value, kind)
    return found


def _expected(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"not {kind.__name__} but {type(value).__name__}")
    return value


def encode_time(at: datetime | None) -> str | None:
    """ISO 8601 with the zone's offset, which is part of what was said."""
    return at.isoformat() if at is not None else None


def decode_time(text: str | None) -> datetime | None:
    """The time with its offset; ``None`` for none."""
    return stored_time(text) if text is not None else None


def stored_time(text: str) -> datetime:
    """The time with its offset. *Raises* ``ValueError`` for text that is no aware time."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a time without its zone")
    return at


def utc_text(at: datetime) -> str:
    """ISO 8601 in UTC with microseconds: as text it sorts as the instants do."""
    return in_utc(at).isoformat(timespec="microseconds")


def node_columns(node: Node) -> tuple[str | None, ...]:
    """
    What is stored of *node* beside its id, type and vector.

    Returns:
        Session, episode and superseding fact, by which it can be judged without its body;
        when what it holds was said, as ``utc_text``; its body.
    """
    at = getattr(node, "at", None)
    stems = (getattr(node, name, None) for name in ("session_id", "episode_id", "superseded_by"))
    return (*stems, utc_text(at) if at is not None else None, encode_node(node))


def encode_vector(vector: Vector) -> bytes:
    """Little-endian float32, whatever the machine."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def decode_vector(blob: bytes, dimensions: int | None = None) -> Vector:
    """
    A read-only float32 vector over *blob*.

    Raises:
        ValueError: It has not *dimensions* (where given), or holds what is no number.
    """
    vector = np.frombuffer(blob, dtype="<f4").astype(np.float32, copy=False)
    if dimensions is not None and len(vector) != dimensions:
        raise ValueError(f"a vector of {len(vector)} dimensions, not {dimensions}")
    if not isfinite(vector.dot(vector)):
        raise ValueError("a vector that is not finite")
    return vector


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
    if "edits" in values:
        values["edits"] = plain_edits(values["edits"]) or None
    return {name: value for name, value in values.items() if value is not None}


def _node(id: str, type: NodeType, body: dict[str, Any], vector: Vector | None) -> Node:
    for name in _NODE_TIMES & body.keys():
        body[name] = datetime.fromisoformat(body[name])
    if type == "intent":
        body["wordings"] = read_wordings(body.get("wordings") or ())
    if type in ("semantic", "procedural"):
        edits = body.get("edits")
        body["edits"] = read_edits(edits) if edits else ()
    # None is left out of the body; it must not come back as another default.
    values = {name: body.get(name) for name in _field_names(type)}
    for name, kinds in _field_kinds(type):
        if not isinstance(values[name], kinds):
            raise ValueError(f"{name} is {values[name].__class__.__name__}")
    return NODE_TYPES[type](id=id, vector=vector, **values)


@cache
def _field_kinds(type: NodeType) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The classes that a value of each field may have."""
    hints = get_type_hints(NODE_TYPES[type])
    return tuple((name, _classes(hints[name])) for name in _field_names(type))


def _classes(hint: Any) -> tuple[Any, ...]:
    """The classes in *hint*, such as ``str | None``; an integer is a number too."""
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    classes = tuple(get_origin(part) or part for part in parts)
    return (*classes, int) if float in classes else classes


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
        return datetime.fromisoformat(value[_TIME])
    if isinstance(value, dict) and _VECTOR in value:
        return _unpacked(value[_VECTOR])
    return value

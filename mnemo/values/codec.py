"""Values as they are stored, and back: JSON and float32. A change of a shape is a migration."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from math import isfinite
from operator import attrgetter
from types import NoneType
from typing import Any, get_origin

import numpy as np

from mnemo.runtime.clock import Breather, in_utc
from mnemo.runtime.validation import stored_text, stored_time
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.entities import NODE_FIELDS, StoredNode
from mnemo.values.fields import Stored, Type, exact_json
from mnemo.values.graph import (
    NODE_TYPES,
    Edge,
    Edit,
    MetadataDelta,
    Node,
    NodeMetadata,
    NodeType,
    Vector,
    Wording,
)

# ``json.dumps`` makes a new one at each call.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_TIME = "$time"
_VECTOR = "$vector"


def encode_json(value: Any) -> str:
    """Compact JSON. *Raises* ``ValueError``: *value* holds what JSON has no word for, as NaN."""
    try:
        return _ENCODER.encode(value)
    except TypeError as error:
        raise ValueError(f"not storable as JSON: {error}") from error


def decode_object(text: str) -> dict[str, Any]:
    """A JSON object. *Raises* ``ValueError`` for other JSON."""
    found: dict[str, Any] = _expected(json.loads(text), dict)
    return found


def decode_list(text: str, kind: type[Any] = object) -> list[Any]:
    """A JSON array of values of *kind*. *Raises* ``ValueError`` for other JSON."""
    found: list[Any] = _expected(json.loads(text), list)
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


def decode_time(text: str) -> datetime:
    """The time with its offset. *Raises* ``ValueError`` for text that is no aware time."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("a time without its zone")
    return at


def utc_text(at: datetime) -> str:
    """ISO 8601 in UTC with microseconds: as text it sorts as the instants do."""
    return in_utc(at).isoformat(timespec="microseconds")


def encode_vector(vector: Vector) -> bytes:
    """Little-endian float32, whatever the machine."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def decode_vector(blob: bytes, dimensions: int | None = None) -> Vector:
    """A read-only vector over *blob*. *Raises* ``ValueError``: not finite, or not *dimensions*."""
    vector = np.frombuffer(blob, dtype="<f4").astype(np.float32, copy=False)
    if dimensions is not None and len(vector) != dimensions:
        raise ValueError(f"a vector of {len(vector)} dimensions, not {dimensions}")
    if not isfinite(vector.dot(vector)):
        raise ValueError("a vector that is not finite")
    return vector


# ── Nodes ────────────────────────────────────────────────────────────────────────────


def _several(made: Callable[..., Any], what: str) -> Callable[[Any], tuple[Any, ...]]:
    """Makes one of each row. *Raises* ``ValueError`` for any other value."""

    def read(rows: Any) -> tuple[Any, ...]:
        try:
            return tuple(made(*row) for row in rows)
        except TypeError as error:
            raise ValueError(f"these are no {what}: {error}") from None

    return read


def _edit(at: Any, by: Any, before: Any, reason: Any) -> Edit:
    if by != "hand":
        raise ValueError("an edit is made by hand")
    texts = (None if text is None else stored_text("an edit", text) for text in (before, reason))
    return Edit(stored_time("an edit", datetime.fromisoformat(at)), by, *texts)


def _wording(text: Any, sources: Any, vector: Any) -> Wording:
    if not isinstance(text, str) or not all(isinstance(source, str) for source in sources):
        raise ValueError("a wording is a text, the ids of its steps, and a vector")
    return Wording(text, tuple(sources), _unpacked(vector))


_LOADS: dict[Type, Callable[[Any], Any]] = {
    "time": decode_time,
    "edits": _several(_edit, "edits of a fact or instruction"),
    "wordings": _several(_wording, "wordings of an intent"),
}
_WRITES: dict[Type, Callable[[Any], Any]] = {
    "number": float,
    "time": datetime.isoformat,
    "object": dict,
    "edits": lambda edits: [[e.at.isoformat(), e.by, e.before, e.reason] for e in edits],
    "wordings": lambda said: [[one.text, list(one.sources), _packed(one.vector)] for one in said],
}


@dataclass(frozen=True, slots=True)
class _Field:
    """
    A field of a node's body; *kinds*: the classes of its value.

    *write*: Makes JSON of a value; ``None``: it is JSON. *default*: What it is where the body does
    not name it. *unnamed*: What the body does not name, though a default may change.
    """

    name: str
    load: Callable[[Any], Any] | None
    write: Callable[[Any], Any] | None
    kinds: tuple[type[Any], ...]
    default: Any
    unnamed: Any


@cache
def _fields(type: NodeType) -> tuple[_Field, ...]:
    return tuple(
        _Field(
            name=f.name,
            load=_LOADS.get(f.type),
            write=_WRITES.get(f.type),
            kinds=_classes(f),
            default=None if f.default is MISSING else f.default,
            unnamed=[] if f.default == () else None if f.default is None else MISSING,
        )
        for f in NODE_FIELDS[type].fields
    )


def _classes(field: Stored) -> tuple[type[Any], ...]:
    """An integer is a number too; there may be none where the default is another."""
    kind = get_origin(field.hint) or field.hint
    may_be_none = field.optional or isinstance(field.default, str | float)
    return (kind, *((int,) if kind is float else ()), *((NoneType,) if may_be_none else ()))


# Values that no JSON has, and texts of characters that are escaped, or not of ASCII.
_MAY_BE_INEXACT = re.compile(r"NaN|Infinity|\\u|[^\x00-\x7f]")
_BESIDE = ("at", "session_id", "episode_id", "superseded_by")
_NEW = NodeMetadata(created_at=datetime.min.replace(tzinfo=UTC))


def stored_node(node: Node, metadata: NodeMetadata = _NEW) -> StoredNode:
    return StoredNode(
        id=node.id,
        type=node.type,
        body=encode_json(_body(node)),
        metadata=metadata,
        **_beside(node),
    )


def _beside(node: Node) -> dict[str, Any]:
    """What has a column beside the body."""
    return {name: getattr(node, name, None) for name in _BESIDE}


def checked_node(row: StoredNode) -> Node:
    """The node of *row*. *Raises* ``ValueError``: its body is not whole, or says otherwise."""
    body = decode_object(row.body)
    if _MAY_BE_INEXACT.search(row.body):
        exact_json(body)
    node = _node(row.id, row.type, body, None)
    if unknown := body.keys() - {field.name for field in _fields(row.type)}:
        raise ValueError(f"its body has no {min(unknown)}")
    if node.created_at is None:
        raise ValueError("a stored node needs 'created_at'")
    if any(getattr(row, name) != value for name, value in _beside(node).items()):
        raise ValueError("its columns say something else than its body")
    return node


def _body(node: Node) -> dict[str, Any]:
    """The node's fields but its id, type and vector, which have columns of their own."""
    said = {}
    for field in _fields(node.type):
        value = getattr(node, field.name)
        if field.write is not None and value is not None:
            value = field.write(value)
        if value != field.unnamed:
            said[field.name] = value
    return said


def decode_node(id: str, type: NodeType, body: str, vector: bytes | None = None) -> Node:
    """The node of a row with this body, with *vector* if it has one."""
    return _node(id, type, json.loads(body), decode_vector(vector) if vector else None)


def _node(id: str, type: NodeType, body: dict[str, Any], vector: Vector | None) -> Node:
    values = {}
    for field in _fields(type):
        value = body.get(field.name, field.default)
        if field.load is not None and value is not field.default:
            value = field.load(value)
        if not isinstance(value, field.kinds):
            raise ValueError(f"{field.name} is {value.__class__.__name__}")
        values[field.name] = value
    return NODE_TYPES[type](id=id, vector=vector, **values)


# ── Changesets ───────────────────────────────────────────────────────────────────────


# ``astuple`` and ``asdict`` copy each value deeply, in 20 calls for an edge.
_edge = attrgetter(*(field.name for field in fields(Edge)))
_DELTA = tuple(field.name for field in fields(MetadataDelta))
_delta = attrgetter(*_DELTA)


def encode_changeset(changeset: Changeset) -> bytes:
    """Compressed JSON lines with vectors: a head, then one per node; for a worker thread."""
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
    raw = json.loads(head)
    nodes = []
    for line in lines:
        id, type, body, vector = json.loads(line)
        nodes.append(_node(id, type, body, _unpacked(vector)))
        breather.breathe()
    return Changeset(
        nodes=tuple(nodes),
        edges=tuple(Edge(*values) for values in raw["edges"]),
        metadata={id: MetadataDelta(**delta) for id, delta in raw["metadata"].items()},
        id=raw["id"],
        changes=tuple(
            NodeChange(id, {name: _rich(value) for name, value in values.items()})
            for id, values in raw["changes"]
        ),
        replaces={id: tuple(replaced) for id, replaced in raw["replaces"].items()},
        left_out=raw.get("left_out", 0),
    )


def _head(changeset: Changeset) -> dict[str, Any]:
    return {
        "id": changeset.id,
        "edges": [_edge(edge) for edge in changeset.edges],
        "metadata": {
            id: dict(zip(_DELTA, _delta(delta), strict=True))
            for id, delta in changeset.metadata.items()
        },
        "changes": [
            (c.id, {name: _plain(value) for name, value in c.fields.items()})
            for c in changeset.changes
        ],
        "replaces": {id: list(replaced) for id, replaced in changeset.replaces.items()},
        "left_out": changeset.left_out,
    }


def _packed(vector: Vector | None) -> str | None:
    return None if vector is None else base64.b64encode(encode_vector(vector)).decode()


def _unpacked(text: str | None) -> Vector | None:
    return None if text is None else decode_vector(base64.b64decode(text, validate=True))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return {_TIME: encode_time(value)}
    if isinstance(value, np.ndarray):
        return {_VECTOR: _packed(value)}
    return value


def _rich(value: Any) -> Any:
    if isinstance(value, dict) and _TIME in value:
        return datetime.fromisoformat(value[_TIME])
    if isinstance(value, dict) and _VECTOR in value:
        return _unpacked(value[_VECTOR])
    return value

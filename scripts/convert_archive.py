"""
Convert the last archive of a development version of mnemo into one that a release imports.

Usage: ``scripts/convert_archive.py OLD.jsonl NEW.jsonl``
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from mnemo.store import tables
from mnemo.store.archive_rows import Kind, line_of
from mnemo.stores import KINDS
from mnemo.values.archive import DEVELOPMENT_FORMAT, FORMAT, VERSION
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.codec import (
    decode_node,
    decode_time,
    decode_vector,
    encode_changeset,
    encode_json,
    stored_node,
)
from mnemo.values.entities import NODE_FIELDS
from mnemo.values.graph import Edge, MetadataDelta, Node, NodeMetadata

LAST = 3
"""The format version of the last development archive."""
_CALLED = {
    "idx": "index",
    "kind": "type",
    "note": "topic",
    "goal_ids": "goals",
    "message_ids": "messages",
    "subgoal_vector": "vector",
}
"""Fields of its lines by columns, where they are neither the same nor lack an ``_id``."""
_TIMES = {f.name for entity in NODE_FIELDS.values() for f in entity.fields if f.type == "time"}


def converted(lines: Iterable[str]) -> Iterator[str]:
    """
    *lines* of a development archive as those of a present one.

    Raises:
        ValueError: They are of something else.
    """
    old = iter(lines)
    head = json.loads(next(old, "null"))
    if not isinstance(head, dict) or head.get("format") != DEVELOPMENT_FORMAT:
        raise ValueError("this is no archive of a development version")
    if head.get("version") != LAST:
        raise ValueError(
            f"the archive has format version {head.get('version')}, the last one was {LAST}: "
            "import it with the mnemo that wrote it, and export it with the last one"
        )
    counts = {kind: head["counts"].get(kind, 0) for kind in KINDS}
    yield line_of(head | {"format": FORMAT, "version": VERSION, "counts": counts})
    for line in old:
        said = json.loads(line)
        # Messages have no vectors of their own any more.
        if (kind := KINDS.get(said["kind"])) is not None:
            yield line_of(said if "damaged" in said else {"kind": kind.name, **_row(kind, said)})


def _row(kind: Kind, said: dict[str, Any]) -> dict[str, Any]:
    if kind.name == "node":
        return _node_row(said)
    if kind.name == "note_task":
        return {"task_id": said["id"]}
    if isinstance(said.get("content"), list):
        said |= {"content": None, "blocks": said["content"]}
    said |= {"annotation": None} | (said.get("annotation") or {})
    row = {}
    for column, type in kind.types.items():
        names = (_CALLED.get(column), column, column.removesuffix("_id"))
        found = next((said[name] for name in names if name in said), None)
        name = "type" if column == "kind" else column
        row[name] = _value(column, found, may_be_null=not type.endswith("NOT NULL"))
    return row


def _value(column: str, value: Any, *, may_be_null: bool) -> Any:
    if column == "changeset" and value is not None:
        return base64.b64encode(encode_changeset(_changeset(value))).decode()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | dict):
        return encode_json(value) if value or not may_be_null else None
    return value


def _node_row(said: Mapping[str, Any]) -> dict[str, Any]:
    counts = dict(said["counts"])
    for name in ("created_at", "last_accessed_at"):
        counts[name] = counts[name] and datetime.fromisoformat(counts[name])
    stored = stored_node(_node(said), NodeMetadata(**counts))
    row = dict(zip(tables.NODES.columns, tables.NODES.values(stored), strict=True))
    return row | {"revision": said["revision"]}


def _node(said: Mapping[str, Any]) -> Node:
    vector = base64.b64decode(said["vector"]) if said.get("vector") else None
    return decode_node(said["id"], said["type"], encode_json(said["fields"]), vector)


def _changeset(said: Mapping[str, Any]) -> Changeset:
    return Changeset(
        nodes=tuple(map(_node, said["nodes"])),
        edges=tuple(Edge(*values) for values in said["edges"]),
        metadata={id: _delta(*numbers) for id, numbers in said["metadata"].items()},
        id=said["id"],
        changes=tuple(NodeChange(c["id"], _changed(c["fields"])) for c in said["changes"]),
        replaces={id: tuple(replaced) for id, replaced in said["replaces"].items()},
    )


def _delta(reward: float, rewards: int, supports: int) -> MetadataDelta:
    return MetadataDelta(cumulative_reward=reward, reward_count=rewards, support_count=supports)


def _changed(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _rich(name, value) for name, value in fields.items()}


def _rich(name: str, value: Any) -> Any:
    if value is not None and name == "vector":
        return decode_vector(base64.b64decode(value))
    return decode_time(value) if value is not None and name in _TIMES else value


def main(old: str, new: str) -> None:
    partial = Path(f"{new}.part")
    try:
        with Path(old).open(encoding="utf-8") as lines, partial.open("w") as out:
            out.writelines(converted(lines))
        partial.rename(new)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")

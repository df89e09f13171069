"""
The lines of an archive: JSON Lines in ASCII, one record each, after a head.

ASCII, so that no encoding, editor or splitter of lines can harm it; texts come back
exactly. Numbers and texts that a reader gets were checked one by one; whether records
fit each other is for the store to see.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from mnemo.episode.archive import (
    KINDS,
    ArchivedChangeset,
    ArchivedEpisode,
    ArchivedMessageVector,
    ArchivedNode,
    ArchivedSession,
    ArchivedStep,
    ArchivedTrajectory,
    ArchivedVector,
    ArchiveHead,
    LeftOut,
    NumberedRecord,
    Record,
)
from mnemo.episode.archive_note_lines import note_data
from mnemo.episode.archive_note_shapes import NOTE_SHAPES
from mnemo.episode.archive_notes import NoteRecord
from mnemo.episode.archive_shapes import KINDS_OF, SHAPES, HeadShape, Shape
from mnemo.episode.archive_talk_lines import talk_data
from mnemo.episode.archive_talk_shapes import TALK_SHAPES
from mnemo.episode.archive_values import instant_text, packed, time_text
from mnemo.errors import InvalidArchive
from mnemo.graph.changeset import Changeset
from mnemo.graph.edges import Edge
from mnemo.graph.nodes import Node
from mnemo.graph.wordings import plain_wordings
from mnemo.runtime.clock import Breather

__all__ = ["FORMAT", "VERSION", "ArchiveReader", "head_line", "record_lines"]

FORMAT: Final = "mnemo-repository"
VERSION: Final = 2
"""Of the format of lines; it has nothing to do with the schema of any store."""
READABLE: Final = tuple(KINDS_OF)
"""Versions that are read: 1 knew no conversations and no notes."""

_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_SHAPES = SHAPES | TALK_SHAPES | NOTE_SHAPES
_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


# ── Writing ──────────────────────────────────────────────────────────────────────────


def head_line(head: ArchiveHead) -> str:
    """The first line, with its end."""
    space = head.space and {"name": head.space.name, "dimensions": head.space.dimensions}
    return _line(
        {
            "format": FORMAT,
            "version": VERSION,
            "revision": head.revision,
            "space": space,
            "counts": {kind: head.counts.get(kind, 0) for kind in KINDS},
        }
    )


def record_lines(records: Iterable[Record]) -> list[str]:
    """A line per record, each with its end; for a worker thread."""
    breather = Breather()
    lines = []
    for record in records:
        lines.append(_line(_data(record)))
        breather.breathe()
    return lines


def _line(data: Mapping[str, Any]) -> str:
    return _ENCODER.encode(data) + "\n"


def _data(record: Record) -> dict[str, Any]:
    match record:
        case LeftOut(kind=kind, key=key):
            return {"kind": kind, "damaged": key}
        case ArchivedStep():
            return {"kind": "step"} | _step(record)
        case ArchivedNode():
            return {"kind": "node"} | _node(record)
        case Edge(source=source, target=target, kind=kind):
            return {"kind": "edge", "source": source, "target": target, "type": str(kind)}
        case ArchivedVector(key=key, vector=vector):
            return {"kind": "vector", "key": key, "vector": packed(vector)}
        case ArchivedSession():
            return {"kind": "session"} | _session(record)
        case ArchivedEpisode():
            return {"kind": "episode"} | _episode(record)
        case ArchivedTrajectory():
            return {"kind": "trajectory"} | _trajectory(record)
        case ArchivedChangeset():
            return {"kind": "changeset"} | _applied(record)
        case _ if isinstance(record, NoteRecord):
            return note_data(record)
        case _:
            return talk_data(record)


def _session(record: ArchivedSession) -> dict[str, Any]:
    return {
        "id": record.id,
        "state": str(record.state),
        "updated_at": instant_text(record.updated_at),
        "error": record.error,
        "error_trajectory": record.error_trajectory,
    }


def _episode(record: ArchivedEpisode) -> dict[str, Any]:
    return {
        "id": record.id,
        "session": record.session_id,
        "goal": record.goal,
        "goal_at": time_text(record.goal_at),
        "status": record.status,
        "changeset": _changeset(record.changeset) if record.changeset else None,
        "changeset_steps": record.changeset_steps,
        "receipt_nodes": record.receipt_nodes,
    }


def _trajectory(record: ArchivedTrajectory) -> dict[str, Any]:
    staged = record.staged
    return {
        "episode": record.episode_id,
        "key": staged.key,
        "trajectory": staged.trajectory_id,
        "steps": staged.steps,
        "changeset": _changeset(staged.changeset),
    }


def _step(record: ArchivedStep) -> dict[str, Any]:
    step = record.step
    return {
        "session": step.session_id,
        "episode": step.episode_id,
        "index": step.index,
        "node_id": step.node_id,
        "observation": step.observation,
        "action": step.action,
        "at": time_text(step.at),
        "actor": step.actor,
        "key": step.key,
        "metadata": dict(step.metadata),
        "committed": record.committed,
        "gone": record.gone,
        "annotation": _annotation(step.annotation) if step.annotation else None,
        "thread": step.thread_id,
        "message": step.message_id,
    }


def _annotation(found: Any) -> dict[str, Any]:
    return {
        "state": found.state,
        "subgoal": found.subgoal,
        "reward": None if found.reward is None else float(found.reward),
        "trajectory": found.trajectory_id,
        "boundary": found.boundary,
        "embedded": found.embedded,
        "vector": packed(found.vector),
    }


def _node(record: ArchivedNode) -> dict[str, Any]:
    counts = record.metadata
    return {
        "id": record.node.id,
        "type": record.node.type,
        "revision": record.revision,
        "fields": _fields(record.node),
        "counts": {
            "created_at": instant_text(counts.created_at),
            "last_accessed_at": instant_text(counts.last_accessed_at),
            "access_count": counts.access_count,
            "cumulative_reward": float(counts.cumulative_reward),
            "reward_count": counts.reward_count,
            "support_count": counts.support_count,
            "penalty": float(counts.penalty),
        },
    }


def _applied(record: ArchivedChangeset) -> dict[str, Any]:
    return {
        "id": record.id,
        "revision": record.revision,
        "node_ids": record.node_ids,
        "edge_count": record.edge_count,
    }


def _changeset(changeset: Changeset) -> dict[str, Any]:
    return {
        "id": changeset.id,
        "nodes": [
            {"id": n.id, "type": n.type, "fields": _fields(n), "vector": packed(n.vector)}
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
        return time_text(value)
    if isinstance(value, tuple):
        return plain_wordings(value)
    return packed(value) if isinstance(value, np.ndarray) else value


# ── Reading ──────────────────────────────────────────────────────────────────────────


class ArchiveReader:
    """Turns the lines of an archive into records, one after the other."""

    def __init__(self) -> None:
        self._line = 0
        self._left: dict[str, int] = {}
        self._dimensions: int | None = None
        self._revision = 0

    def head(self, line: str | None) -> ArchiveHead:
        """
        Read the first line, which must be there.

        Raises:
            InvalidArchive: It is no head, or of a format that this version does not read.
        """
        if line is None:
            raise InvalidArchive(1, "there is nothing in it")
        self._line = 1
        raw = self._object(line)
        if raw.get("format") != FORMAT:
            raise self._wrong(f'it is no head of a repository\'s archive ("format": "{FORMAT}")')
        if (version := raw.get("version")) not in READABLE:
            raise self._wrong(
                f"the archive has format version {version}, this mnemo reads up to {VERSION}: "
                "import it with the mnemo that it was made for"
            )
        head: ArchiveHead = self._shaped(HeadShape, raw)
        self._left = {kind: head.counts[kind] for kind in KINDS}
        self._dimensions = head.space.dimensions if head.space else None
        self._revision = head.revision
        return head

    def records(self, lines: Iterable[str]) -> list[NumberedRecord]:
        """
        Read further lines; for a worker thread.

        Raises:
            InvalidArchive: Which line is broken, and why.
        """
        breather = Breather()
        found = []
        for line in lines:
            self._line += 1
            found.append((self._line, self._record(line)))
            breather.breathe()
        return found

    def finish(self) -> None:
        """*Raises* ``InvalidArchive`` if the head has promised more than there was."""
        if missing := next((kind for kind, count in self._left.items() if count), None):
            self._line += 1
            raise self._wrong(
                f"the archive ends before it, but by its head {self._left[missing]} more "
                f"of kind {missing!r} are due"
            )

    def _record(self, line: str) -> Record:
        raw = self._object(line)
        kind = raw.pop("kind", None)
        expected = next((kind for kind, count in self._left.items() if count), None)
        if expected is None or kind != expected:
            due = f"a line of kind {expected!r}" if expected else "no further line"
            raise self._wrong(f"its kind is {kind!r}, but {due} is due by the archive's head")
        self._left[expected] -= 1
        if "damaged" in raw:
            return LeftOut(kind=expected, key=str(raw["damaged"]))
        record: Record = self._shaped(_SHAPES[expected], raw)
        self._check_against_head(record)
        return record

    def _check_against_head(self, record: Record) -> None:
        match record:
            case ArchivedVector(vector=vector) | ArchivedMessageVector(vector=vector):
                self._dimensions = self._dimensions or len(vector)
                if len(vector) != self._dimensions:
                    raise self._wrong(
                        f"the vector has {len(vector)} dimensions, not {self._dimensions}"
                    )
            case ArchivedNode(revision=revision) | ArchivedChangeset(revision=revision):
                if revision > self._revision:
                    raise self._wrong(f"its revision is past that of the head, {self._revision}")

    def _object(self, line: str) -> dict[str, Any]:
        if not isinstance(line, str):
            raise self._wrong(f"a line must be text, not {type(line).__name__}")
        try:
            raw = json.loads(line, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            raise self._wrong(f"not JSON: {error.msg} (column {error.colno})") from None
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"not JSON that can be read: {error}") from None
        if not isinstance(raw, dict):
            raise self._wrong("it is no JSON object")
        # Only what is escaped, or came in through a careless decoder, can hold one.
        if (_ESCAPED_SURROGATE.search(line) or not line.isascii()) and _SURROGATES.search(
            json.dumps(raw, ensure_ascii=False)
        ):
            raise self._wrong("a text holds a lone surrogate, or bytes that are no UTF-8")
        return raw

    def _shaped(self, shape: type[Shape], raw: dict[str, Any]) -> Any:
        try:
            return shape.model_validate(raw).record()
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise self._wrong(f"{where}: {first['msg']}" if where else first["msg"]) from None
        except ValueError as error:
            raise self._wrong(str(error)) from None

    def _wrong(self, reason: str) -> InvalidArchive:
        return InvalidArchive(self._line, reason)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")

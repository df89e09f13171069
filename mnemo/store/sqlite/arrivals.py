"""
Records of an archive on their way in: kept apart first, then checked, then moved over.

They wait in a database of their own that the writer attaches, private to its
connection and gone with it. So the store's file is locked only for the last move, and
a broken archive leaves nothing in it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from mnemo.episode.archive import (
    ArchivedChangeset,
    ArchivedEpisode,
    ArchivedNode,
    ArchivedSession,
    ArchivedStep,
    ArchivedTrajectory,
    ArchivedVector,
    LeftOut,
    NumberedRecord,
    Record,
    owner_of_vector,
)
from mnemo.episode.archive_notes import NoteRecord
from mnemo.graph.edges import Edge
from mnemo.graph.lookup import lookup_keys
from mnemo.runtime.clock import Breather
from mnemo.store.sqlite.arrivals_notes import NOTE_TABLE_OF, NOTE_TABLES, note_row
from mnemo.store.sqlite.arrivals_talk import TALK_TABLE_OF, TALK_TABLES, talk_row
from mnemo.store.sqlite.codec import (
    encode_changeset,
    encode_json,
    encode_time,
    encode_vector,
    node_columns,
    utc_text,
)

__all__ = ["TABLES", "ArrivingRows", "Batch", "attach", "detach", "put"]

Batch = list[tuple[str, list[tuple[Any, ...]]]]
"""Statements with the rows that each is executed with."""

# ``n`` counts up from 1 in each table: the places that numbers of the store follow.
_TABLES = {
    "sessions": "id, state, updated_at, error, error_trajectory",
    "episodes": """id, session, goal, goal_at, status, changeset, changeset_steps,
                   receipt_nodes""",
    "staged": "episode, key, trajectory_id, steps, changeset",
    "steps": """session, episode, idx, node_id, observation, action, at, actor, key, metadata,
                thread, message, committed, gone, state, subgoal, reward, trajectory_id, boundary,
                embedded, subgoal_vector""",
    "nodes": """id, type, created_at, session_id, episode_id, superseded_by, at, body,
                revision, last_accessed_at, access_count,
                cumulative_reward, reward_count, support_count, penalty""",
    "edges": "source, target, kind",
    "vectors": "key, owner, is_side, vector",
    "changesets": "id, revision, node_ids, edge_count",
    **TALK_TABLES,
    **NOTE_TABLES,
}
TABLES = tuple(_TABLES)
"""The tables that records wait in."""
_ATTACH = (
    "ATTACH '' AS arriving",
    # Nothing of it outlives the connection, so nothing is to be rolled back or flushed.
    "PRAGMA arriving.journal_mode = OFF",
    "PRAGMA arriving.synchronous = OFF",
    "CREATE TABLE arriving.keys (node INTEGER NOT NULL, key TEXT NOT NULL)",
    *(
        f"CREATE TABLE arriving.{table} (n INTEGER PRIMARY KEY, line INTEGER, {columns})"
        for table, columns in _TABLES.items()
    ),
)
_PUT = {
    table: f"INSERT INTO arriving.{table} (n, line, {columns}) "
    f"VALUES (?, ?{', ?' * len(columns.split(','))})"
    for table, columns in _TABLES.items()
}
_PUT_KEY = "INSERT INTO arriving.keys (node, key) VALUES (?, ?)"


def attach(connection: sqlite3.Connection) -> None:
    """Make room for one archive; outside of any transaction."""
    for statement in _ATTACH:
        connection.execute(statement)


def detach(connection: sqlite3.Connection) -> None:
    """Drop everything that has arrived; outside of any transaction."""
    connection.execute("DETACH arriving")


def put(connection: sqlite3.Connection, batch: Batch) -> None:
    """Keep rows; the store's own file is neither read nor locked."""
    connection.execute("BEGIN")
    try:
        for statement, rows in batch:
            connection.executemany(statement, rows)
    finally:
        connection.execute("COMMIT")


class ArrivingRows:
    """Makes the rows of records, page by page; for a worker thread."""

    def __init__(self) -> None:
        self._last = dict.fromkeys(_TABLES, 0)
        self.left_out = 0
        """Records that were damaged in the store that the archive was made of."""

    def batch(self, records: Sequence[NumberedRecord]) -> Batch:
        """The rows of *records* and what they are put by."""
        breather, batch = Breather(), []
        for kind, run in groupby(records, key=lambda numbered: type(numbered[1])):
            if kind is LeftOut:
                self.left_out += len(list(run))
                continue
            table = _TABLE_OF[kind]
            rows, keys = [], []
            for line, record in run:
                self._last[table] += 1
                place = self._last[table]
                rows.append((place, line, *_row(record)))
                if isinstance(record, ArchivedNode):
                    keys += [(place, key) for key in lookup_keys(record.node)]
                breather.breathe()
            batch += [(_PUT[table], rows), (_PUT_KEY, keys)]
        return batch


_TABLE_OF: dict[type[Record], str] = {
    ArchivedSession: "sessions",
    ArchivedEpisode: "episodes",
    ArchivedTrajectory: "staged",
    ArchivedStep: "steps",
    ArchivedNode: "nodes",
    Edge: "edges",
    ArchivedVector: "vectors",
    ArchivedChangeset: "changesets",
    **TALK_TABLE_OF,
    **NOTE_TABLE_OF,
}


def _row(record: Record) -> tuple[Any, ...]:
    match record:
        case ArchivedStep():
            return _step(record)
        case ArchivedNode():
            return _node(record)
        case Edge(source=source, target=target, kind=kind):
            return (source, target, str(kind))
        case ArchivedVector(key=key, vector=vector):
            return (key, *owner_of_vector(key), encode_vector(vector))
        case ArchivedSession() as s:
            return (s.id, str(s.state), utc_text(s.updated_at), s.error, s.error_trajectory)
        case ArchivedEpisode():
            return _episode(record)
        case ArchivedTrajectory(episode_id=episode, staged=staged):
            blob, steps = encode_changeset(staged.changeset), json.dumps(staged.steps)
            return (episode, staged.key, staged.trajectory_id, steps, blob)
        case ArchivedChangeset() as c:
            return (c.id, c.revision, json.dumps(c.node_ids), c.edge_count)
        case _ if isinstance(record, NoteRecord):
            return note_row(record)
        case _:
            return talk_row(record)


def _episode(record: ArchivedEpisode) -> tuple[Any, ...]:
    staged = record.changeset
    return (
        record.id,
        record.session_id,
        record.goal,
        encode_time(record.goal_at),
        record.status,
        encode_changeset(staged) if staged is not None else None,
        json.dumps(record.changeset_steps) if staged is not None else None,
        json.dumps(record.receipt_nodes),
    )


def _step(record: ArchivedStep) -> tuple[Any, ...]:
    step = record.step
    return (
        step.session_id,
        step.episode_id,
        step.index,
        step.node_id,
        step.observation,
        step.action,
        encode_time(step.at),
        step.actor,
        step.key,
        encode_json(dict(step.metadata)),
        step.thread_id,
        step.message_id,
        record.committed,
        record.gone,
        *_annotation(record),
    )


def _annotation(record: ArchivedStep) -> Iterable[Any]:
    found = record.step.annotation
    if found is None:
        return (None,) * 7
    return (
        found.state,
        found.subgoal,
        found.reward,
        found.trajectory_id,
        found.boundary,
        found.embedded,
        None if found.vector is None else encode_vector(found.vector),
    )


def _node(record: ArchivedNode) -> tuple[Any, ...]:
    node, counts = record.node, record.metadata
    return (
        node.id,
        node.type,
        utc_text(counts.created_at),
        *node_columns(node),
        record.revision,
        encode_time(counts.last_accessed_at),
        counts.access_count,
        counts.cumulative_reward,
        counts.reward_count,
        counts.support_count,
        counts.penalty,
    )

"""Export: a repository's rows as records of an archive, in the order of an archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mnemo.store import tables
from mnemo.store.codec import decode_time, decode_vector
from mnemo.store.rows import Rows, repo_row
from mnemo.store.table import ARRIVAL, Table
from mnemo.store.tables import STEP_COLUMNS, STEPS
from mnemo.store.tx import Result, Tx
from mnemo.values.archive import (
    ArchivedMessage,
    ArchivedNode,
    ArchivedStep,
    ArchivedTrajectory,
    ArchivedVector,
    ArchiveHead,
    Record,
)
from mnemo.values.chat import EmbeddingSpace

OWNED: dict[str, Table[Any]] = {
    "session": tables.SESSIONS,
    "episode": tables.EPISODES,
    "changeset": tables.CHANGESETS,
    "thread": tables.THREADS,
    "message": tables.MESSAGES,
    "compaction": tables.COMPACTIONS,
    "snapshot": tables.SNAPSHOTS,
    "outcome": tables.OUTCOMES,
    "goal": tables.GOALS,
    "pin": tables.PINS,
    "note": tables.NOTES,
    "note_version": tables.NOTE_VERSIONS,
    "note_change": tables.NOTE_CHANGES,
    "note_mark": tables.NOTE_MARKS,
    "note_request": tables.NOTE_REQUESTS,
    "note_task": tables.NOTE_TASKS,
    "checkpoint": tables.CHECKPOINTS,
    "channel_value": tables.CHANNEL_VALUES,
    "checkpoint_write": tables.CHECKPOINT_WRITES,
    "item": tables.ITEMS,
}
"""Table of each kind of record that belongs to a thread, a note or the repository alone."""
OWNERS: dict[str, Table[Any]] = {
    "session": tables.SESSIONS,
    "thread": tables.THREADS,
    "note": tables.NOTES,
}
"""Owners by the column that has their number."""


def _counted(kind: str, table: Table[Any]) -> str:
    if table.parent == "repo":
        return f"SELECT '{kind}', count(*) FROM {table.name} WHERE repo = :repo"
    return (
        f"SELECT '{kind}', count(*) FROM {OWNERS[table.parent].name} p "
        f"JOIN {table.name} d ON d.{table.parent} = p.no WHERE p.repo = :repo"
    )


def _selected(table: Table[Any]) -> str:
    """The rows of a repository by owner and order."""
    order = ", ".join(f"d.{column}" for column in table.order)
    if table.parent == "repo":
        return f"SELECT {table.of('d')} FROM {table.name} d WHERE d.repo = ? ORDER BY {order}"
    owner = OWNERS[table.parent]
    (id,) = owner.key
    return (
        f"SELECT p.{id}, {table.of('d')} FROM {owner.name} p $join {table.name} d "
        f"ON d.{table.parent} = p.no WHERE p.repo = ? ORDER BY p.{id}, {order}"
    )


# Messages have other numbers where they are imported: recall embeds them anew.
_OF_NODES = "v.key NOT LIKE 'message-%'"
_COUNTS = f"""
SELECT 'trajectory', count(*) FROM episodes e JOIN staged g ON g.episode = e.no
          WHERE e.repo = :repo
UNION ALL SELECT 'step', count(*) FROM steps WHERE repo = :repo
UNION ALL SELECT 'node', count(*) FROM nodes WHERE repo = :repo
UNION ALL SELECT 'edge', count(*) FROM nodes n JOIN edges e ON e.source = n.no
          WHERE n.repo = :repo
UNION ALL SELECT 'vector', count(*) FROM vectors v WHERE repo = :repo AND {_OF_NODES}
UNION ALL {" UNION ALL ".join(_counted(kind, table) for kind, table in OWNED.items())}
"""
# A plus before a column keeps its index out of it: tables are read in the order they
# are in, with nothing to sort.
# A session was last active when its last step was recorded, if that is later.
_SESSIONS = f"""
SELECT {tables.SESSIONS.of("s")}, (SELECT recorded_at FROM steps WHERE episode = s.episode
       ORDER BY idx DESC LIMIT 1)
FROM sessions s WHERE +s.repo = ? ORDER BY s.no
"""
_EPISODES = f"""
SELECT s.id, {tables.EPISODES.of("e")}
FROM sessions s $join episodes e ON e.session = s.no
WHERE +s.repo = ? ORDER BY s.no, e.no
"""
_STAGED = f"""
SELECT e.id, {tables.STAGED.of("g")}
FROM sessions s $join episodes e ON e.session = s.no $join staged g ON g.episode = e.no
WHERE +s.repo = ? ORDER BY s.no, e.no, g.{ARRIVAL}
"""
_STEPS = f"""
SELECT {STEP_COLUMNS}, t.committed, t.gone FROM steps t
$join episodes e ON e.no = t.episode $join sessions s ON s.no = t.session
WHERE +t.repo = ? ORDER BY t.ordinal
"""
_NODES = f"""
SELECT id, type, body, revision, {tables.NODES.counted}
FROM nodes WHERE +repo = ? ORDER BY no
"""
_EDGES = f"""
SELECT a.id, b.id, {tables.EDGES.of("e")} FROM nodes a $join edges e ON e.source = a.no
$join nodes b ON b.no = e.target WHERE +a.repo = ? ORDER BY a.no, e.target, e.kind
"""
_VECTORS = f"""
SELECT v.key, v.vector, r.space_dimensions FROM repos r $join vectors v ON v.repo = r.no
WHERE r.no = ? AND {_OF_NODES} ORDER BY v.seq
"""
_CHANGESETS = f"""
SELECT {", ".join(tables.CHANGESETS.columns)} FROM changesets WHERE +repo = ? ORDER BY {ARRIVAL}
"""
SEARCHED = "{searched}"
"""Stands in a query for the condition that the message is in the full text."""
_MESSAGES = f"""
SELECT t.id, {tables.MESSAGES.of("m")}, {SEARCHED}
FROM messages m $join threads t ON t.no = m.thread WHERE +m.repo = ? ORDER BY m.no
"""
_NOTE_CHANGES = f"""
SELECT n.topic, {tables.NOTE_CHANGES.of("j")} FROM note_journal j JOIN notes n ON n.no = j.note
WHERE n.repo = ? ORDER BY coalesce(j.update_id, ''), j.seq
"""
_NOTE_MARKS = "SELECT key FROM note_marks WHERE repo = ? ORDER BY seq"
# The topic of a note that was purged would be a trace of it.
_NOTE_REQUESTS = """
SELECT r.digest, n.topic, r.refused
FROM note_requests r LEFT JOIN notes n ON n.repo = r.repo AND n.topic = r.topic
WHERE r.repo = ? ORDER BY r.digest
"""


def head_of(tx: Tx, repo_id: str) -> tuple[int, ArchiveHead]:
    """The repository's row number, and what an archive of it says first."""
    repo, revision, name, dimensions = repo_row(tx, repo_id)
    space = EmbeddingSpace(name, dimensions) if name is not None and dimensions else None
    counts = dict(tx.run(_COUNTS, {"repo": repo}).fetchall())
    return repo, ArchiveHead(revision=revision, space=space, counts=counts)


def _session(row: Sequence[Any]) -> Record:
    session = tables.SESSIONS.rows.one(row)
    if row[-1] is None:
        return session
    return replace(session, updated_at=max(session.updated_at, decode_time(row[-1])))


def _episode(row: Sequence[Any]) -> Record:
    episode = tables.EPISODES.rows.one(row)
    return episode if episode.changeset is not None else replace(episode, changeset_steps=())


def _trajectory(row: Sequence[Any]) -> Record:
    return ArchivedTrajectory(episode_id=row[0], staged=tables.STAGED.rows.one(row[1:]))


def _step(row: Sequence[Any]) -> Record:
    return ArchivedStep(step=STEPS.rows.one(row), committed=bool(row[-2]), gone=bool(row[-1]))


def _node(row: Sequence[Any]) -> Record:
    id, type, body, revision = row[:4]
    _, metadata = tables.NODES.counts.one(row[4:])
    node = tables.NODES.whole.one((id, type, body))
    return ArchivedNode(node=node, metadata=metadata, revision=revision)


def _vector(row: Sequence[Any]) -> Record:
    return ArchivedVector(key=row[0], vector=decode_vector(row[1], row[2]))


def _message(row: Sequence[Any]) -> Record:
    message = tables.MESSAGES.rows.one(row)
    return ArchivedMessage(message=message, searched=bool(row[-1]))


_SPECIAL: dict[str, tuple[str, Rows[Any]]] = {
    "session": (_SESSIONS, Rows("sessions", "", _session)),
    "episode": (_EPISODES, Rows("episodes", "", _episode)),
    "trajectory": (_STAGED, Rows("staged", "s", _trajectory, key=(0, 1))),
    "step": (_STEPS, Rows("steps", "", _step)),
    "node": (_NODES, Rows("nodes", "s s s i", _node)),
    "edge": (_EDGES, tables.EDGES.rows),
    "vector": (_VECTORS, Rows("vectors", "s b i", _vector)),
    "changeset": (_CHANGESETS, tables.CHANGESETS.rows),
    "message": (_MESSAGES, Rows("messages", "", _message)),
    "note_change": (_NOTE_CHANGES, tables.NOTE_CHANGES.rows),
    "note_mark": (_NOTE_MARKS, tables.NOTE_MARKS.rows),
    "note_request": (_NOTE_REQUESTS, tables.NOTE_REQUESTS.rows),
}
EXPORTS: dict[str, tuple[str, Rows[Any]]] = _SPECIAL | {
    kind: (_selected(table), table.rows) for kind, table in OWNED.items() if kind not in _SPECIAL
}
"""Query (of a repository's number) and reader of its rows, by kind of record."""


def opened(query: str, repo: int, tx: Tx) -> Result:
    """The rows of one query of ``EXPORTS``."""
    if SEARCHED in query:
        query = query.replace(SEARCHED, tx.dialect.has_text(tx, repo, "4 * m.no + 2"))
    return tx.run(query, (repo,))

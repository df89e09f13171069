"""A repository's rows as records of an archive: what is read, and in which order."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from mnemo.episode.archive import (
    ArchivedChangeset,
    ArchivedEpisode,
    ArchivedNode,
    ArchivedSession,
    ArchivedStep,
    ArchivedTrajectory,
    ArchivedVector,
    ArchiveHead,
    Record,
)
from mnemo.episode.journal import SessionState
from mnemo.messages import EmbeddingSpace
from mnemo.store.sqlite.codec import decode_changeset, decode_list, decode_vector, stored_time
from mnemo.store.sqlite.commit import CHANGESETS
from mnemo.store.sqlite.damage import Rows
from mnemo.store.sqlite.departures_notes import NOTE_COUNTS, NOTE_DEPARTURES
from mnemo.store.sqlite.departures_talk import TALK_COUNTS, TALK_DEPARTURES, WORDS
from mnemo.store.sqlite.rows import EDGES, METADATA, NODES, repo_row
from mnemo.store.sqlite.sessions import STAGED
from mnemo.store.sqlite.steps import COLUMNS, STEPS
from mnemo.store.sqlite.texts import text_tables

__all__ = ["DEPARTURES", "head_of", "opened"]

_COUNTS = f"""
SELECT 'session', count(*) FROM sessions WHERE repo = :repo
UNION ALL SELECT 'episode', count(*) FROM sessions s JOIN episodes e ON e.session = s.no
          WHERE s.repo = :repo
UNION ALL SELECT 'trajectory', count(*) FROM sessions s JOIN episodes e ON e.session = s.no
          JOIN staged g ON g.episode = e.no WHERE s.repo = :repo
UNION ALL SELECT 'step', count(*) FROM steps WHERE repo = :repo
UNION ALL SELECT 'node', count(*) FROM nodes WHERE repo = :repo
UNION ALL SELECT 'edge', count(*) FROM nodes n JOIN edges e ON e.source = n.no
          WHERE n.repo = :repo
UNION ALL SELECT 'vector', count(*) FROM vectors WHERE repo = :repo
UNION ALL SELECT 'changeset', count(*) FROM changesets WHERE repo = :repo
UNION ALL {TALK_COUNTS}
UNION ALL {NOTE_COUNTS}
"""
# A plus before a column keeps its index out of it: tables are read in the order they
# are in, with nothing to sort.
_SESSIONS = """
SELECT s.id, s.state, max(s.updated_at, coalesce((SELECT recorded_at FROM steps
       WHERE episode = s.episode ORDER BY idx DESC LIMIT 1), '')), s.error, s.error_trajectory
FROM sessions s WHERE +s.repo = ? ORDER BY s.no
"""
_EPISODES = """
SELECT e.id, s.id, e.goal, e.goal_at, e.status, e.changeset, e.changeset_steps, e.receipt_nodes
FROM sessions s CROSS JOIN episodes e ON e.session = s.no
WHERE +s.repo = ? ORDER BY s.no, e.no
"""
_STAGED = """
SELECT g.key, g.trajectory_id, g.steps, g.changeset, e.id
FROM sessions s CROSS JOIN episodes e ON e.session = s.no CROSS JOIN staged g ON g.episode = e.no
WHERE +s.repo = ? ORDER BY s.no, e.no, g.rowid
"""
_STEPS = f"""
SELECT {COLUMNS}, t.committed, t.gone FROM steps t
CROSS JOIN episodes e ON e.no = t.episode CROSS JOIN sessions s ON s.no = t.session
WHERE +t.repo = ? ORDER BY t.ordinal
"""
_NODES = """
SELECT id, type, body, revision, id, created_at, last_accessed_at, access_count,
       cumulative_reward, reward_count, support_count, penalty
FROM nodes WHERE +repo = ? ORDER BY no
"""
_EDGES = """
SELECT a.id, b.id, e.kind FROM nodes a CROSS JOIN edges e ON e.source = a.no
CROSS JOIN nodes b ON b.no = e.target WHERE +a.repo = ? ORDER BY a.no, e.target, e.kind
"""
_VECTORS = """
SELECT v.key, v.vector, r.space_dimensions FROM repos r CROSS JOIN vectors v ON v.repo = r.no
WHERE r.no = ? ORDER BY v.seq
"""
_CHANGESETS = """
SELECT id, revision, node_ids, edge_count FROM changesets WHERE +repo = ? ORDER BY rowid
"""


def head_of(connection: sqlite3.Connection, repo_id: str) -> tuple[int, ArchiveHead]:
    """The repository's row number, and what an archive of it says first."""
    repo, revision, name, dimensions = repo_row(connection, repo_id)
    space = EmbeddingSpace(name, dimensions) if name is not None and dimensions else None
    counts = dict(connection.execute(_COUNTS, {"repo": repo}).fetchall())
    return repo, ArchiveHead(revision=revision, space=space, counts=counts)


def _session(row: Sequence[Any]) -> Record:
    id, state, updated_at, error, trajectory = row
    return ArchivedSession(
        id=id,
        state=SessionState(state),
        updated_at=stored_time(updated_at),
        error=error,
        error_trajectory=trajectory,
    )


def _episode(row: Sequence[Any]) -> Record:
    id, session_id, goal, goal_at, status, changeset, steps, receipt = row
    return ArchivedEpisode(
        id=id,
        session_id=session_id,
        goal=goal,
        goal_at=stored_time(goal_at),
        status=status,
        changeset=decode_changeset(changeset) if changeset else None,
        changeset_steps=tuple(decode_list(steps, int)) if changeset else (),
        receipt_nodes=tuple(decode_list(receipt, str)),
    )


def _trajectory(row: Sequence[Any]) -> Record:
    return ArchivedTrajectory(episode_id=row[-1], staged=STAGED.one(row))


def _step(row: Sequence[Any]) -> Record:
    return ArchivedStep(step=STEPS.one(row), committed=bool(row[-2]), gone=bool(row[-1]))


def _node(row: Sequence[Any]) -> Record:
    id, type, body, revision = row[:4]
    _, metadata = METADATA.one(row[4:])
    node = NODES.one((id, type, body))
    return ArchivedNode(node=node, metadata=metadata, revision=revision)


def _vector(row: Sequence[Any]) -> Record:
    return ArchivedVector(key=row[0], vector=decode_vector(row[1], row[2]))


def _changeset(row: Sequence[Any]) -> Record:
    revision, node_ids, edge_count = CHANGESETS.one(row)
    return ArchivedChangeset(id=row[0], revision=revision, node_ids=node_ids, edge_count=edge_count)


DEPARTURES: tuple[tuple[str, Rows[Any]], ...] = (
    (_SESSIONS, Rows("sessions", "s s s s? s?", _session)),
    (_EPISODES, Rows("episodes", "s s s s s b? s? s", _episode)),
    (_STAGED, Rows("staged", "s s s b s", _trajectory, key=(4, 0))),
    (_STEPS, Rows("steps", "", _step, key=(7,))),
    (_NODES, Rows("nodes", "s s s i", _node)),
    (_EDGES, EDGES),
    (_VECTORS, Rows("vectors", "s b i", _vector)),
    (_CHANGESETS, Rows("changesets", "s", _changeset)),
    *TALK_DEPARTURES,
    *NOTE_DEPARTURES,
)
"""Query (of a repository's number) and reader of its rows, in the order of ``KINDS``."""

# Of a repository without any text.
_NO_WORDS = "(SELECT 0 AS rowid WHERE 0)"


def opened(query: str, repo: int, connection: sqlite3.Connection) -> sqlite3.Cursor:
    """The rows of one query of ``DEPARTURES``."""
    if WORDS in query:
        query = query.replace(WORDS, text_tables(connection, repo).words or _NO_WORDS)
    return connection.execute(query, (repo,))

"""A repository's rows as records of an archive: what is read, and in which order."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from mnemo._clock import Breather
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
from mnemo.episode.journal import SessionState, StagedTrajectory
from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.metadata import NodeMetadata
from mnemo.messages import EmbeddingSpace
from mnemo.store.sqlite.codec import decode_changeset, decode_node, decode_vector
from mnemo.store.sqlite.departures_notes import NOTE_COUNTS, NOTE_DEPARTURES
from mnemo.store.sqlite.departures_talk import TALK_COUNTS, TALK_DEPARTURES, WORDS
from mnemo.store.sqlite.rows import repo_row
from mnemo.store.sqlite.steps import COLUMNS, read_steps
from mnemo.store.sqlite.texts import text_tables

__all__ = ["DEPARTURES", "ReadRows", "head_of", "opened"]

Rows: TypeAlias = Iterable[tuple[Any, ...]]
ReadRows: TypeAlias = Callable[[Rows], Sequence[Record]]

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
SELECT e.id, g.key, g.trajectory_id, g.steps, g.changeset
FROM sessions s CROSS JOIN episodes e ON e.session = s.no CROSS JOIN staged g ON g.episode = e.no
WHERE +s.repo = ? ORDER BY s.no, e.no, g.rowid
"""
_STEPS = f"""
SELECT {COLUMNS}, t.committed, t.gone FROM steps t
CROSS JOIN episodes e ON e.no = t.episode CROSS JOIN sessions s ON s.no = t.session
WHERE +t.repo = ? ORDER BY t.ordinal
"""
_NODES = """
SELECT id, type, body, revision, created_at, last_accessed_at, access_count,
       cumulative_reward, reward_count, support_count, penalty
FROM nodes WHERE +repo = ? ORDER BY no
"""
_EDGES = """
SELECT a.id, b.id, e.kind FROM nodes a CROSS JOIN edges e ON e.source = a.no
CROSS JOIN nodes b ON b.no = e.target WHERE +a.repo = ? ORDER BY a.no, e.target, e.kind
"""
_VECTORS = "SELECT key, vector FROM vectors WHERE repo = ? ORDER BY seq"
_CHANGESETS = """
SELECT id, revision, node_ids, edge_count FROM changesets WHERE +repo = ? ORDER BY rowid
"""


def head_of(connection: sqlite3.Connection, repo_id: str) -> tuple[int, ArchiveHead]:
    """The repository's row number, and what an archive of it says first."""
    repo, revision, name, dimensions = repo_row(connection, repo_id)
    space = EmbeddingSpace(name, dimensions) if name is not None and dimensions else None
    counts = dict(connection.execute(_COUNTS, {"repo": repo}).fetchall())
    return repo, ArchiveHead(revision=revision, space=space, counts=counts)


def _one_by_one(read: Callable[[tuple[Any, ...]], Record]) -> ReadRows:
    def read_all(rows: Rows) -> Sequence[Record]:
        return list(_breathing(map(read, rows)))

    return read_all


def _breathing(records: Iterator[Record]) -> Iterator[Record]:
    breather = Breather()
    for record in records:
        breather.breathe()
        yield record


def _session(row: tuple[Any, ...]) -> Record:
    id, state, updated_at, error, trajectory = row
    return ArchivedSession(
        id=id,
        state=SessionState(state),
        updated_at=datetime.fromisoformat(updated_at),
        error=error,
        error_trajectory=trajectory,
    )


def _episode(row: tuple[Any, ...]) -> Record:
    id, session_id, goal, goal_at, status, changeset, steps, receipt = row
    return ArchivedEpisode(
        id=id,
        session_id=session_id,
        goal=goal,
        goal_at=datetime.fromisoformat(goal_at),
        status=status,
        changeset=decode_changeset(changeset) if changeset else None,
        changeset_steps=tuple(json.loads(steps)) if changeset else (),
        receipt_nodes=tuple(json.loads(receipt)),
    )


def _trajectory(row: tuple[Any, ...]) -> Record:
    episode_id, key, trajectory_id, steps, changeset = row
    staged = StagedTrajectory(
        key=key,
        trajectory_id=trajectory_id,
        steps=tuple(json.loads(steps)),
        changeset=decode_changeset(changeset),
    )
    return ArchivedTrajectory(episode_id=episode_id, staged=staged)


def _steps(rows: Rows) -> Sequence[Record]:
    found = list(rows)
    return [
        ArchivedStep(step=step, committed=bool(row[-2]), gone=bool(row[-1]))
        for step, row in zip(read_steps(found), found, strict=True)
    ]


def _node(row: tuple[Any, ...]) -> Record:
    id, type, body, revision, created_at, accessed_at, accesses, reward, rewards, support, less = (
        row
    )
    metadata = NodeMetadata(
        created_at=datetime.fromisoformat(created_at),
        last_accessed_at=datetime.fromisoformat(accessed_at) if accessed_at else None,
        access_count=accesses,
        cumulative_reward=reward,
        reward_count=rewards,
        support_count=support,
        penalty=less,
    )
    return ArchivedNode(node=decode_node(id, type, body), metadata=metadata, revision=revision)


def _edge(row: tuple[Any, ...]) -> Record:
    source, target, kind = row
    return Edge(source, target, EdgeKind(kind))


def _vector(row: tuple[Any, ...]) -> Record:
    key, blob = row
    return ArchivedVector(key=key, vector=decode_vector(blob))


def _changeset(row: tuple[Any, ...]) -> Record:
    id, revision, node_ids, edge_count = row
    return ArchivedChangeset(
        id=id, revision=revision, node_ids=tuple(json.loads(node_ids)), edge_count=edge_count
    )


DEPARTURES: tuple[tuple[str, ReadRows], ...] = (
    (_SESSIONS, _one_by_one(_session)),
    (_EPISODES, _one_by_one(_episode)),
    (_STAGED, _one_by_one(_trajectory)),
    (_STEPS, _steps),
    (_NODES, _one_by_one(_node)),
    (_EDGES, _one_by_one(_edge)),
    (_VECTORS, _one_by_one(_vector)),
    (_CHANGESETS, _one_by_one(_changeset)),
    *TALK_DEPARTURES,
    *NOTE_DEPARTURES,
)
"""Query (of a repository's number) and reader of its rows, in the order of an archive."""

# Of a repository without any text.
_NO_WORDS = "(SELECT 0 AS rowid WHERE 0)"


def opened(query: str, repo: int, connection: sqlite3.Connection) -> sqlite3.Cursor:
    """The rows of one query of ``DEPARTURES``."""
    if WORDS in query:
        query = query.replace(WORDS, text_tables(connection, repo).words or _NO_WORDS)
    return connection.execute(query, (repo,))

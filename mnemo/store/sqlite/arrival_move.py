"""Moving what has arrived into the store: the one transaction of an import."""

from __future__ import annotations

import sqlite3

from mnemo.episode.archive import ArchiveHead
from mnemo.errors import Conflict, UsageError
from mnemo.store.sqlite.acts import repo_number
from mnemo.store.sqlite.arrivals_notes import NOTE_FILLED, NOTE_MOVES
from mnemo.store.sqlite.arrivals_talk import TALK_BASES, TALK_MOVES, index_talk
from mnemo.store.sqlite.rows import repo_row
from mnemo.store.sqlite.texts import put_texts, step_row
from mnemo.store.sqlite.tombs import refuse_erased

__all__ = ["move", "refuse_filled"]

_FILLED = f"""
SELECT EXISTS (SELECT 1 FROM repos WHERE no = :repo AND revision > 0)
    OR EXISTS (SELECT 1 FROM sessions WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM nodes WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM changesets WHERE repo = :repo)
    OR EXISTS (SELECT 1 FROM threads WHERE repo = :repo)
    OR {NOTE_FILLED}
"""
_KNOWN = """
SELECT 'session', a.id FROM arriving.sessions a JOIN sessions s ON s.id = a.id
UNION ALL SELECT 'episode', a.id FROM arriving.episodes a JOIN episodes e ON e.id = a.id LIMIT 1
"""
_IDS = """
SELECT id FROM arriving.sessions UNION ALL SELECT id FROM arriving.episodes
UNION ALL SELECT node_id FROM arriving.steps
"""
_BASES = """
SELECT (SELECT coalesce(max(no), 0) FROM sessions), (SELECT coalesce(max(no), 0) FROM episodes),
       (SELECT coalesce(max(no), 0) FROM nodes), (SELECT coalesce(max(no), 0) FROM notes),
       (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'steps'),
       (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'vectors')
"""
_NAMES = ("sessions", "episodes", "nodes", "notes", "steps", "vectors")
_BASE = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?"
_STAMP = """
UPDATE repos SET revision = ?, space_name = ?, space_dimensions = ? WHERE no = ?
"""
# Gaps are where steps were forgotten; their number is all that is kept of that.
_ERASED = """
(SELECT max(t.idx) + 1 - count(*) FROM arriving.steps t WHERE t.episode = a.id)
"""
_MOVES = (
    """
    INSERT INTO sessions (no, id, repo, state, episode, owner, updated_at, error, error_trajectory)
    SELECT :sessions + a.n, a.id, :repo, a.state,
           :episodes + (SELECT max(e.n) FROM arriving.episodes e WHERE e.session = a.id),
           NULL, a.updated_at, a.error, a.error_trajectory
    FROM arriving.sessions a ORDER BY a.n
    """,
    f"""
    INSERT INTO episodes (no, id, session, goal, goal_at, status, changeset, changeset_steps,
                          receipt_nodes, erased)
    SELECT :episodes + a.n, a.id, :sessions + s.n, a.goal, a.goal_at, a.status, a.changeset,
           a.changeset_steps, a.receipt_nodes, coalesce({_ERASED}, 0)
    FROM arriving.episodes a CROSS JOIN arriving.sessions s ON s.id = a.session ORDER BY a.n
    """,
    """
    INSERT INTO staged (episode, key, trajectory_id, steps, changeset)
    SELECT :episodes + e.n, a.key, a.trajectory_id, a.steps, a.changeset
    FROM arriving.staged a CROSS JOIN arriving.episodes e ON e.id = a.episode ORDER BY a.n
    """,
    """
    INSERT INTO steps (ordinal, repo, session, episode, idx, node_id, observation, action, at,
                       actor, key, metadata, thread, message, recorded_at, committed, gone, state,
                       subgoal, reward, trajectory_id, boundary, embedded, subgoal_vector)
    SELECT :steps + a.n, :repo, :sessions + s.n, :episodes + e.n, a.idx, a.node_id, a.observation,
           a.action, a.at, a.actor, a.key, a.metadata, a.thread, a.message, s.updated_at,
           a.committed, a.gone, a.state, a.subgoal, a.reward, a.trajectory_id, a.boundary,
           a.embedded, a.subgoal_vector
    FROM arriving.steps a CROSS JOIN arriving.sessions s ON s.id = a.session
    CROSS JOIN arriving.episodes e ON e.id = a.episode ORDER BY a.n
    """,
    """
    INSERT INTO nodes (no, repo, id, type, created_at, session_id, episode_id, superseded_by, at,
                       body, revision, last_accessed_at, access_count, cumulative_reward,
                       reward_count, support_count, penalty)
    SELECT :nodes + n, :repo, id, type, created_at, session_id, episode_id, superseded_by, at,
           body, revision, last_accessed_at, access_count, cumulative_reward, reward_count,
           support_count, penalty
    FROM arriving.nodes ORDER BY n
    """,
    """
    INSERT OR IGNORE INTO node_keys (repo, key, node)
    SELECT :repo, key, :nodes + node FROM arriving.keys ORDER BY key, node
    """,
    """
    INSERT INTO edges (source, target, kind)
    SELECT :nodes + s.n, :nodes + t.n, a.kind FROM arriving.edges a
    CROSS JOIN arriving.nodes s ON s.id = a.source CROSS JOIN arriving.nodes t ON t.id = a.target
    ORDER BY a.n
    """,
    """
    INSERT INTO vectors (seq, repo, key, vector)
    SELECT :vectors + n, :repo, key, vector FROM arriving.vectors ORDER BY n
    """,
    """
    INSERT INTO changesets (repo, id, revision, node_ids, edge_count)
    SELECT :repo, id, revision, node_ids, edge_count FROM arriving.changesets ORDER BY n
    """,
    *TALK_MOVES,
    *NOTE_MOVES,
    """
    UPDATE threads SET erased = next_seq -
        (SELECT count(*) FROM messages WHERE messages.thread = threads.no)
    WHERE repo = :repo
    """,
)
_HALVES = "SELECT n, observation, action FROM arriving.steps ORDER BY n"
# Steps whose texts are written at once.
_BITE = 1_000


def refuse_filled(connection: sqlite3.Connection, repo_id: str) -> None:
    """*Raises* ``UsageError`` if there is anything in the repository."""
    repo = repo_row(connection, repo_id)[0]
    (filled,) = connection.execute(_FILLED, {"repo": repo}).fetchone()
    if filled:
        raise UsageError(f"repository {repo_id!r} is not empty: import into another one")


def move(connection: sqlite3.Connection, repo_id: str, head: ArchiveHead) -> None:
    """
    Put everything where it belongs.

    Raises:
        UsageError: The repository is not empty.
        Conflict: A session or episode is in this store already, or was forgotten in it.
    """
    refuse_filled(connection, repo_id)
    known = connection.execute(_KNOWN).fetchone()
    if known is not None:
        raise Conflict(f"{known[0]} {known[1]!r} is in this store already; nothing was imported")
    refuse_erased(connection, (id for (id,) in connection.execute(_IDS)))
    repo = repo_number(connection, repo_id)
    space = (head.space.name, head.space.dimensions) if head.space else (None, None)
    connection.execute(_STAMP, (head.revision, *space, repo))
    bases: dict[str, int] = dict(zip(_NAMES, connection.execute(_BASES).fetchone(), strict=True))
    bases |= {name: connection.execute(_BASE, (name,)).fetchone()[0] for name in TALK_BASES}
    for statement in _MOVES:
        connection.execute(statement, bases | {"repo": repo})
    _index_steps(connection, repo, bases["steps"])
    index_talk(connection, repo, bases)


def _index_steps(connection: sqlite3.Connection, repo: int, base: int) -> None:
    rows = connection.execute(_HALVES)
    while bite := rows.fetchmany(_BITE):
        texts = [
            (step_row(base + n, side), text)
            for n, *halves in bite
            for side, text in enumerate(halves)
        ]
        put_texts(connection, repo, texts)

"""
Erasing steps and all that was derived from them alone; one transaction, in the writer.

Tables of the writer's own connection hold what goes, by number, so that the number of
statements does not grow with it. Only what is shared with remaining steps is looked at
one by one, by the rules of ``graph.erasure``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from mnemo.episode.erasure import Erased, ErasureReport, Selection
from mnemo.runtime.clock import Breather
from mnemo.store.sqlite.bereft import (
    settle_claims,
    settle_routing,
    settle_superseded,
    settle_wordings,
)
from mnemo.store.sqlite.codec import stored_time
from mnemo.store.sqlite.damage import Passed, Rows
from mnemo.store.sqlite.remnants import end_episodes, end_sessions, said_in
from mnemo.store.sqlite.rows import repo_row
from mnemo.store.sqlite.shown import unshow
from mnemo.store.sqlite.texts import drop_texts, step_row
from mnemo.store.sqlite.tombs import remember_erased
from mnemo.store.sqlite.traces import Traces

__all__ = ["erase", "taken", "touched_sessions"]

_ANY_TIME = datetime.min.replace(tzinfo=UTC)

_TABLES = (
    """CREATE TEMP TABLE IF NOT EXISTS erased_steps
    (ordinal INTEGER PRIMARY KEY, session INTEGER, episode INTEGER, node_id TEXT)""",
    """CREATE TEMP TABLE IF NOT EXISTS erased_nodes
    (no INTEGER PRIMARY KEY, id TEXT UNIQUE, type TEXT)""",
    "DELETE FROM erased_steps",
    "DELETE FROM erased_nodes",
)
_CANDIDATES = """
SELECT t.ordinal, t.session, t.episode, t.node_id, t.at, t.thread FROM sessions s
CROSS JOIN episodes e ON e.session = s.no CROSS JOIN steps t ON t.episode = e.no
WHERE s.repo = ? AND (? IS NULL OR s.id = ?) ORDER BY t.ordinal
"""
_CANDIDATES_OF_THREAD = """
SELECT t.ordinal, t.session, t.episode, t.node_id, t.at, t.thread FROM steps t
CROSS JOIN sessions s ON s.no = t.session
WHERE t.repo = ? AND (? IS NULL OR s.id = ?) AND t.thread = ? ORDER BY t.ordinal
"""
_SESSION = "SELECT no FROM sessions WHERE repo = ? AND id = ?"
_SESSION_IDS = "SELECT id FROM sessions WHERE no IN (SELECT value FROM json_each(?))"
_SELECT = "INSERT INTO erased_steps (ordinal, session, episode, node_id) VALUES (?, ?, ?, ?)"

# ── Nodes ────────────────────────────────────────────────────────────────────────────

# CROSS JOIN keeps the order: a few erased rows, then what they lead to, by index.
_NODES_OF_STEPS = """
INSERT OR IGNORE INTO erased_nodes (no, id, type)
SELECT n.no, n.id, n.type FROM erased_steps x CROSS JOIN nodes n ON n.repo = ?
AND n.id IN (x.node_id, 'source' || substr(x.node_id, 9)) AND n.type IN ('episodic', 'source')
"""
_SOURCES = """
INSERT OR IGNORE INTO erased_nodes (no, id, type)
SELECT n.no, n.id, n.type FROM erased_nodes x
CROSS JOIN edges e ON e.source = x.no AND e.kind = 'provenance'
CROSS JOIN nodes n ON n.no = e.target AND n.type = 'source'
WHERE NOT EXISTS (SELECT 1 FROM edges o WHERE o.target = n.no AND o.kind = 'provenance'
                  AND o.source NOT IN (SELECT no FROM erased_nodes))
"""
_CLAIMS = """
INSERT OR IGNORE INTO erased_nodes (no, id, type)
SELECT n.no, n.id, n.type FROM erased_nodes x
CROSS JOIN edges e ON e.target = x.no AND e.kind = 'provenance'
CROSS JOIN nodes n ON n.no = e.source AND n.type IN ('semantic', 'procedural')
WHERE NOT EXISTS (SELECT 1 FROM edges o CROSS JOIN nodes g ON g.no = o.target
                  WHERE o.source = n.no AND o.kind = 'provenance' AND g.type = 'episodic'
                  AND g.no NOT IN (SELECT no FROM erased_nodes))
"""
_ORPHANS = """
INSERT OR IGNORE INTO erased_nodes (no, id, type)
SELECT n.no, n.id, n.type FROM erased_nodes x
CROSS JOIN edges e ON e.target = x.no AND e.kind IN ('membership', 'hierarchical')
CROSS JOIN nodes n ON n.no = e.source AND n.type IN ('tag', 'intent', 'subgoal')
WHERE NOT EXISTS (SELECT 1 FROM edges o WHERE o.source = n.no
                  AND o.target NOT IN (SELECT no FROM erased_nodes))
"""
_GOING = "SELECT id FROM erased_nodes ORDER BY no"

# ── Deleting ─────────────────────────────────────────────────────────────────────────

# What a tag or an intent says is part of its members' documents.
_SHOW_MEMBERS = """
UPDATE nodes SET revision = ? WHERE no IN
    (SELECT e.target FROM erased_nodes x CROSS JOIN edges e ON e.source = x.no
     WHERE e.kind IN ('membership', 'hierarchical'))
"""
_DROP_EDGES = (
    "DELETE FROM edges WHERE source IN (SELECT no FROM erased_nodes)",
    "DELETE FROM edges WHERE target IN (SELECT no FROM erased_nodes)",
)
_VECTOR_KEYS = """
SELECT id FROM erased_nodes UNION SELECT node_id || '/observation' FROM erased_steps
UNION SELECT node_id || '/action' FROM erased_steps
"""
# Of the same length, it is written in place: what deleting moves about holds nothing then.
_BLANK = "substr(hex(zeroblob(length(CAST({0} AS BLOB)))), 1, length(CAST({0} AS BLOB)))"
_OVERWRITE = (
    f"UPDATE nodes SET body = {_BLANK.format('body')} WHERE no IN (SELECT no FROM erased_nodes)",
    f"""UPDATE steps SET observation = {_BLANK.format("observation")},
        action = {_BLANK.format("action")}, metadata = {_BLANK.format("metadata")},
        state = {_BLANK.format("state")}, subgoal = {_BLANK.format("subgoal")},
        subgoal_vector = zeroblob(length(subgoal_vector))
        WHERE ordinal IN (SELECT ordinal FROM erased_steps)""",
    f"""UPDATE vectors SET vector = zeroblob(length(vector))
        WHERE repo = ? AND key IN ({_VECTOR_KEYS})""",
)
_DROP_VECTORS = f"DELETE FROM vectors WHERE repo = ? AND key IN ({_VECTOR_KEYS})"
# Staged vectors of wordings are few, and made again by the next attempt.
_DROP_MOVING = f"""
DELETE FROM moving WHERE repo = ? AND (key IN ({_VECTOR_KEYS}) OR instr(key, '/wording-'))
"""
_REMOVALS = """
INSERT INTO removals (repo, node_id)
SELECT ?, id FROM erased_nodes UNION SELECT ?, node_id FROM erased_steps
"""
_ORDINALS = "SELECT ordinal FROM erased_steps ORDER BY ordinal"
_RECORDS = """
SELECT s.id, x.node_id || p.part FROM erased_steps x JOIN sessions s ON s.no = x.session
CROSS JOIN (SELECT '/observation' AS part UNION ALL SELECT '/action') p
"""
_DROP_ROWS = (
    "DELETE FROM node_keys WHERE node IN (SELECT no FROM erased_nodes)",
    "DELETE FROM nodes WHERE no IN (SELECT no FROM erased_nodes)",
    "DELETE FROM steps WHERE ordinal IN (SELECT ordinal FROM erased_steps)",
)
_NEXT_REVISION = "UPDATE repos SET revision = revision + 1 WHERE no = ?"


def touched_sessions(
    connection: sqlite3.Connection, repo_id: str, selection: Selection
) -> tuple[str, ...]:
    """The sessions that steps are selected of, and the one that goes whole; changes nothing."""
    repo = repo_row(connection, repo_id)[0]
    found = {row[1] for row in _selected(connection, repo, selection, [])}
    return _ids_of(connection, found | _whole(connection, repo, selection))


def erase(
    connection: sqlite3.Connection, repo_id: str, selection: Selection, unreadable: Passed
) -> tuple[Erased, Traces]:
    """
    Erase what is selected; give what was done and by what its traces would be known.

    Args:
        unreadable: Gets what may hold something of the erased and cannot be judged.
    """
    repo, revision, _, _ = repo_row(connection, repo_id)
    rows = _selected(connection, repo, selection, unreadable)
    whole = _whole(connection, repo, selection)
    traces = Traces()
    if not rows and not whole:
        return Erased(), traces
    for statement in _TABLES:
        connection.execute(statement)
    connection.executemany(_SELECT, [row[:4] for row in rows])
    session_ids = _ids_of(connection, {row[1] for row in rows} | whole)
    report, node_ids = _erase_graph(connection, repo, revision + 1, traces, unreadable)
    unshow(connection, repo, connection.execute(_RECORDS).fetchall(), traces)
    report = _erase_steps(connection, repo, report)
    sessions = end_sessions(connection, whole)
    return Erased(
        report=replace(report, sessions=sessions), node_ids=node_ids, session_ids=session_ids
    ), traces


def _selected(
    connection: sqlite3.Connection, repo: int, selection: Selection, unreadable: Passed
) -> list[tuple[Any, ...]]:
    breather = Breather()
    found: list[tuple[Any, ...]] = []
    read = Rows("steps", "i i i s s s?", partial(taken, selection, 4), key=(3,))
    id, thread = selection.session_id, selection.thread_id
    query, of_thread = (_CANDIDATES, ()) if thread is None else (_CANDIDATES_OF_THREAD, (thread,))
    for row in connection.execute(query, (repo, id, id, *of_thread)):
        if any(read.all([row], unreadable)):
            found.append(row)
        breather.breathe()
    return found


def taken(selection: Selection, place: int, row: Sequence[Any]) -> bool:
    """
    Whether *selection* takes a row with its time at *place*, and its thread's id behind that.

    As text, times do not sort as the instants do: each keeps its own zone. Where no time
    was given, none is read.
    """
    at = _ANY_TIME if selection.before is None else stored_time(row[place])
    return selection.takes()(at, row[place + 1])


def _whole(connection: sqlite3.Connection, repo: int, selection: Selection) -> set[int]:
    if selection.whole_session is None:
        return set()
    row = connection.execute(_SESSION, (repo, selection.whole_session)).fetchone()
    return set() if row is None else {row[0]}


def _ids_of(connection: sqlite3.Connection, numbers: Iterable[int]) -> tuple[str, ...]:
    listed = "[" + ",".join(map(str, sorted(numbers))) + "]"
    return tuple(id for (id,) in connection.execute(_SESSION_IDS, (listed,)))


def _erase_graph(
    connection: sqlite3.Connection, repo: int, revision: int, traces: Traces, unreadable: Passed
) -> tuple[ErasureReport, tuple[str, ...]]:
    said = said_in(connection)
    connection.execute(_NODES_OF_STEPS, (repo,))
    connection.execute(_SOURCES)
    connection.execute(_CLAIMS)
    changed = settle_claims(connection, said, revision, unreadable)
    restored = settle_superseded(connection, repo, revision, unreadable)
    connection.execute(_ORPHANS)
    moved = settle_wordings(connection, repo, revision, traces, unreadable)
    moved += settle_routing(connection, repo, said, revision, traces, unreadable)
    # Tags that no remaining member names went in between, and were somebody's members.
    moved += end_episodes(connection, repo, said, revision, traces, unreadable)
    traces.take(connection, repo)
    node_ids = tuple(id for (id,) in connection.execute(_GOING))
    connection.execute(_SHOW_MEMBERS, (revision,))
    edges = sum(connection.execute(statement).rowcount for statement in _DROP_EDGES)
    if node_ids or changed or restored or moved:
        connection.execute(_NEXT_REVISION, (repo,))
    report = ErasureReport(
        nodes=len(node_ids), edges=edges, facts_changed=changed, facts_restored=restored
    )
    return report, node_ids


def _erase_steps(connection: sqlite3.Connection, repo: int, report: ErasureReport) -> ErasureReport:
    remember_erased(connection, "SELECT node_id FROM erased_steps")
    ordinals = [ordinal for (ordinal,) in connection.execute(_ORDINALS)]
    for statement in _OVERWRITE:
        connection.execute(statement, (repo,) * statement.count("?"))
    texts = [step_row(ordinal, side) for ordinal in ordinals for side in (0, 1)]
    dropped = drop_texts(connection, repo, texts)
    vectors = connection.execute(_DROP_VECTORS, (repo,)).rowcount
    connection.execute(_DROP_MOVING, (repo,))
    connection.execute(_REMOVALS, (repo, repo))
    *_, steps = [connection.execute(statement).rowcount for statement in _DROP_ROWS]
    return replace(report, steps=steps, vectors=vectors, fulltext_rows=dropped)

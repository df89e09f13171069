"""Sessions and episodes that steps were erased from: ended, shortened, or gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from mnemo.errors import StoreCorrupt
from mnemo.graph.changeset import NodeChange
from mnemo.graph.erasure import Said, stripped
from mnemo.runtime.clock import Breather
from mnemo.store.sqlite.commit import change_node
from mnemo.store.sqlite.damage import Passed
from mnemo.store.sqlite.tombs import remember_erased
from mnemo.store.sqlite.traces import Traces

__all__ = ["end_episodes", "end_sessions", "said_in"]

_SAID = """
SELECT t.observation, t.action, t.actor, t.state, t.subgoal FROM episodes e
CROSS JOIN steps t ON t.episode = e.no
WHERE e.id = ? AND t.ordinal IN (SELECT ordinal FROM erased_steps)
"""
_LEFT = (
    "SELECT 1 FROM steps WHERE episode = ? AND ordinal NOT IN (SELECT ordinal FROM erased_steps)"
)
_GOAL = "SELECT no, goal FROM episodes WHERE id = ?"
_TOUCHED = """
SELECT e.no, e.id, e.status, e.goal, count(*) FROM erased_steps x
JOIN episodes e ON e.no = x.episode GROUP BY e.no ORDER BY e.no
"""
_DROP_STAGED = "DELETE FROM staged WHERE episode = ?"
_SHORTEN = """
UPDATE episodes SET erased = erased + ?, changeset = NULL, changeset_steps = NULL,
       status = iif(status IN ('open', 'closed'), 'discarded', status)
WHERE no = ?
"""
_EPISODE_ID = "SELECT id FROM episodes WHERE no = ?"

# What is left of an episode that was not over stays in the record and leaves recall.
_UNCOMMITTED = """
FROM steps WHERE episode = ? AND committed = 0 AND gone = 0
AND ordinal NOT IN (SELECT ordinal FROM erased_steps)
"""
_HIDE = (
    f"INSERT INTO removals (repo, node_id) SELECT repo, node_id {_UNCOMMITTED} ORDER BY idx",
    f"""DELETE FROM vectors WHERE (repo, key) IN (
        SELECT repo, node_id || '/observation' {_UNCOMMITTED}
        UNION ALL SELECT repo, node_id || '/action' {_UNCOMMITTED})""",
    f"UPDATE steps SET gone = 1 WHERE ordinal IN (SELECT ordinal {_UNCOMMITTED})",
)
_ANNOTATED = """
SELECT t.ordinal, t.node_id, t.observation, t.action, t.actor, t.state, t.subgoal FROM steps t
WHERE t.episode = ? AND t.subgoal IS NOT NULL
AND t.ordinal NOT IN (SELECT ordinal FROM erased_steps) ORDER BY t.idx
"""
_STRIP = "UPDATE steps SET state = ?, subgoal = ?, subgoal_vector = NULL WHERE ordinal = ?"
_IS_NODE = "SELECT 1 FROM nodes WHERE repo = ? AND id = ?"

# ── Sessions ─────────────────────────────────────────────────────────────────────────

_EMPTY_EPISODES = """
SELECT DISTINCT x.episode FROM erased_steps x
WHERE NOT EXISTS (SELECT 1 FROM steps t WHERE t.episode = x.episode)
"""
_DROP_EPISODE = "DELETE FROM episodes WHERE no = ?"
_OF_STEPS = "SELECT DISTINCT session FROM erased_steps"
_LIVES_ON = """
SELECT EXISTS (SELECT 1 FROM steps t WHERE t.episode IN
               (SELECT no FROM episodes WHERE session = s.no))
    OR EXISTS (SELECT 1 FROM episodes WHERE session = s.no AND status IN ('open', 'closed'))
FROM sessions s WHERE s.no = ?
"""
_IDS = (
    "SELECT id FROM sessions WHERE no = ?",
    "SELECT id FROM episodes WHERE session = ?",
)
_DROP_SESSION = (
    "DELETE FROM staged WHERE episode IN (SELECT no FROM episodes WHERE session = ?)",
    "DELETE FROM episodes WHERE session = ?",
    "DELETE FROM sessions WHERE no = ?",
)
_RELEASE = "UPDATE sessions SET owner = NULL WHERE no = ?"
_COME_TO_REST = """
UPDATE sessions SET state = 'idle', error = NULL, error_trajectory = NULL,
       episode = (SELECT max(no) FROM episodes WHERE session = sessions.no)
WHERE no = ? AND NOT EXISTS (SELECT 1 FROM episodes e WHERE e.no = sessions.episode
                             AND e.status IN ('open', 'closed'))
"""


def said_in(connection: sqlite3.Connection) -> Said:
    """The words of the erased steps, by episode."""

    def texts_of(id: str | None) -> Iterable[str | None]:
        row = connection.execute(_GOAL, (id,)).fetchone()
        if row is None:
            return ()
        texts = [_text(text) for said in connection.execute(_SAID, (id,)) for text in said]
        if connection.execute(_LEFT, (row[0],)).fetchone() is None:
            texts.append(_text(row[1]))
        return texts

    return Said(texts_of)


def _text(stored: Any) -> str | None:
    """*stored* as text; of one that is damaged what can be read of it."""
    return stored.decode(errors="replace") if isinstance(stored, bytes) else stored


def end_episodes(
    connection: sqlite3.Connection,
    repo: int,
    said: Said,
    revision: int,
    traces: Traces,
    unreadable: Passed,
) -> int:
    """
    End and shorten the episodes that steps go from; give how many nodes were reworded.

    Args:
        unreadable: Gets the nodes that are damaged, and may hold what only erased steps said.
    """
    changed, breather = 0, Breather()
    for number, id, status, goal, count in connection.execute(_TOUCHED).fetchall():
        breather.breathe()
        traces.take_staged(connection, number)
        connection.execute(_DROP_STAGED, (number,))
        if status in ("open", "closed"):
            remember_erased(connection, _EPISODE_ID, (number,))
            for statement in _HIDE:
                connection.execute(statement, (number,) * statement.count("?"))
        connection.execute(_SHORTEN, (count, number))
        change = partial(_change, connection, repo, revision, unreadable)
        changed += _strip(
            connection, number, _text(goal) or "", partial(said.of, [id]), traces, change
        )
    return changed


def _change(
    connection: sqlite3.Connection,
    repo: int,
    revision: int,
    unreadable: Passed,
    node_id: str,
    after: tuple[str | None, str | None],
) -> bool:
    """Reword a step's node, if there is one; whether that was done."""
    if connection.execute(_IS_NODE, (repo, node_id)).fetchone() is None:
        return False
    try:
        change = NodeChange(node_id, {"state": after[0], "subgoal": after[1]})
        change_node(connection, repo, change, revision)
    except StoreCorrupt as damage:
        unreadable.append(damage)
        return False
    return True


def _strip(
    connection: sqlite3.Connection,
    episode: int,
    goal: str,
    erased: Callable[[], frozenset[str]],
    traces: Traces,
    change: Callable[[str, tuple[str | None, str | None]], bool],
) -> int:
    """Take from the annotations of remaining steps what only erased ones said."""
    changed = 0
    rows = connection.execute(_ANNOTATED, (episode,)).fetchall()
    gone = erased() if rows else frozenset()
    for ordinal, node_id, *texts in rows:
        *said, state, subgoal = map(_text, texts)
        after = stripped(state, subgoal, "\n".join(text or "" for text in said), goal, gone)
        if after == (state, subgoal):
            continue
        traces.add(state)
        traces.add(subgoal)
        connection.execute(_STRIP, (*after, ordinal))
        changed += change(node_id, after)
    return changed


def end_sessions(connection: sqlite3.Connection, whole: set[int]) -> int:
    """
    End the sessions that steps were erased from; give how many are gone altogether.

    Args:
        whole: Sessions that go with everything they have.
    """
    for (episode,) in connection.execute(_EMPTY_EPISODES).fetchall():
        remember_erased(connection, _EPISODE_ID, (episode,))
        connection.execute(_DROP_EPISODE, (episode,))
    gone = 0
    for number in sorted(whole | {no for (no,) in connection.execute(_OF_STEPS)}):
        (lives_on,) = connection.execute(_LIVES_ON, (number,)).fetchone()
        if lives_on and number not in whole:
            connection.execute(_RELEASE, (number,))
            connection.execute(_COME_TO_REST, (number,))
            continue
        for query in _IDS:
            remember_erased(connection, query, (number,))
        for statement in _DROP_SESSION:
            connection.execute(statement, (number,))
        gone += 1
    return gone

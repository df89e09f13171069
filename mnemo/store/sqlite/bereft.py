"""What remains after an erasure: shared knowledge loses a part, the replaced holds again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from mnemo.errors import StoreCorrupt
from mnemo.graph.changeset import NodeChange
from mnemo.graph.erasure import Claim, Ground, Said, judge, relinked, reworded, without_sources
from mnemo.graph.nodes import Episodic, Intent, Node, Semantic
from mnemo.graph.wordings import packed_vector
from mnemo.runtime.clock import Breather
from mnemo.store.sqlite.codec import node_columns
from mnemo.store.sqlite.commit import change_node
from mnemo.store.sqlite.damage import Passed
from mnemo.store.sqlite.rows import METADATA, NODES, SET_COLUMNS
from mnemo.store.sqlite.traces import Traces

__all__ = ["go", "settle_claims", "settle_routing", "settle_superseded", "settle_wordings"]

# Members that are read to tell whether a tag or an intent is worded from what remains.
_MEMBERS_READ = 200

_SHARED = """
SELECT DISTINCT n.no, n.id, n.type, n.body, n.id, n.created_at, n.last_accessed_at,
       n.access_count, n.cumulative_reward, n.reward_count, n.support_count, n.penalty
FROM erased_nodes x
CROSS JOIN edges e ON e.target = x.no AND e.kind = 'provenance'
CROSS JOIN nodes n ON n.no = e.source AND n.type IN ('semantic', 'procedural')
WHERE n.no NOT IN (SELECT no FROM erased_nodes) ORDER BY n.no
"""
_GROUNDS = """
SELECT s.id, s.type, s.body, NULL, s.no IN (SELECT no FROM erased_nodes) FROM edges e
CROSS JOIN nodes s ON s.no = e.target AND s.type = 'episodic'
WHERE e.source = ? AND e.kind = 'provenance' ORDER BY s.no
"""
_GO = "INSERT OR IGNORE INTO erased_nodes (no, id, type) VALUES (?, ?, ?)"
_KEEP = f"""
UPDATE nodes SET {SET_COLUMNS}, revision = ?, cumulative_reward = ?, reward_count = ?,
                 support_count = ?
WHERE no = ?
"""
_SUPERSEDED = """
SELECT no, id, type, body FROM nodes WHERE repo = ? AND type = 'semantic'
AND superseded_by IN (SELECT id FROM erased_nodes)
AND no NOT IN (SELECT no FROM erased_nodes) ORDER BY no
"""
_ERASED_FACT = """
SELECT n.id, n.type, n.body, n.superseded_by FROM erased_nodes x JOIN nodes n ON n.no = x.no
WHERE x.id = ? AND x.type = 'semantic'
"""
_RELINK = f"UPDATE nodes SET {SET_COLUMNS}, revision = ? WHERE no = ?"
_ROUTING = """
SELECT DISTINCT r.no, r.id, r.type, r.body FROM erased_nodes x
CROSS JOIN edges e ON e.target = x.no AND e.kind IN ('membership', 'hierarchical')
CROSS JOIN nodes r ON r.no = e.source AND r.type IN ('tag', 'intent', 'subgoal')
WHERE r.no NOT IN (SELECT no FROM erased_nodes) ORDER BY r.no
"""
_MEMBERS = """
SELECT n.id, n.type, n.body FROM edges e CROSS JOIN nodes n ON n.no = e.target
WHERE e.source = ? AND e.kind IN ('membership', 'hierarchical')
AND n.no NOT IN (SELECT no FROM erased_nodes) ORDER BY n.no LIMIT ?
"""
_EPISODES = """
SELECT DISTINCT g.episode_id FROM edges e
CROSS JOIN erased_nodes x ON x.no = e.target
LEFT JOIN edges p ON p.source = x.no AND p.kind = 'provenance'
CROSS JOIN nodes g ON g.no IN (x.no, p.target) AND g.type = 'episodic'
WHERE e.source = ?
"""
_ERASED_STEPS = "SELECT node_id FROM erased_steps"
_WORDED = f"""
SELECT n.no, n.id, n.type, n.body FROM nodes n
WHERE n.repo = ? AND n.type = 'intent' AND n.no NOT IN (SELECT no FROM erased_nodes)
AND EXISTS (
    SELECT 1 FROM json_each(iif(json_valid(n.body), n.body, '{{}}'), '$.wordings') w,
                  json_each(iif(json_valid(w.value), w.value, '[]'), '$[1]') s
    WHERE s.value IN ({_ERASED_STEPS})
) ORDER BY n.no
"""
_DROP_VECTOR = "DELETE FROM vectors WHERE repo = ? AND key = ?"


def go(connection: sqlite3.Connection, number: int, node: Node) -> None:
    """Let a node be erased with the others."""
    connection.execute(_GO, (number, node.id, node.type))


# ── Facts and instructions ───────────────────────────────────────────────────────────


def settle_claims(
    connection: sqlite3.Connection, said: Said, revision: int, unreadable: Passed
) -> int:
    """
    Narrow what remaining steps support too, or let it go; give how many stay.

    Args:
        unreadable: Gets what is damaged, or rests on what is: it stays as it is.
    """
    breather, kept = Breather(), 0
    for number, *row in connection.execute(_SHARED).fetchall():
        breather.breathe()
        try:
            claim = _claim(connection, number, row)
        except StoreCorrupt as damage:
            unreadable.append(damage)
            continue
        verdict = judge(claim, said)
        if verdict.node is None or verdict.metadata is None:
            go(connection, number, claim.node)
            continue
        counts = verdict.metadata
        values = (counts.cumulative_reward, counts.reward_count, counts.support_count)
        connection.execute(_KEEP, (*node_columns(verdict.node), revision, *values, number))
        kept += 1
    return kept


def _claim(connection: sqlite3.Connection, number: int, row: Sequence[Any]) -> Claim:
    """*Raises* ``StoreCorrupt``: its own row, or that of a step that it rests on, is damaged."""
    rows = connection.execute(_GROUNDS, (number,)).fetchall()
    steps = NODES.all(rows)
    grounds = [
        Ground(step, bool(erased))
        for step, (*_, erased) in zip(steps, rows, strict=True)
        if isinstance(step, Episodic)
    ]
    _, metadata = METADATA.one(row[3:])
    return Claim(NODES.one(row[:3]), metadata, tuple(grounds))


def settle_superseded(
    connection: sqlite3.Connection, repo: int, revision: int, unreadable: Passed
) -> int:
    """
    Reopen what erased facts had replaced; give how many facts hold again.

    Args:
        unreadable: Gets the damaged ones, which stay as they are.
    """
    restored = 0
    for number, *row in connection.execute(_SUPERSEDED, (repo,)).fetchall():
        for fact in NODES.all([row], unreadable):
            assert isinstance(fact, Semantic)
            after = relinked(fact, _replaced_by(connection, fact))
            connection.execute(_RELINK, (*node_columns(after), revision, number))
            restored += after.superseded_by is None
    return restored


def _replaced_by(connection: sqlite3.Connection, fact: Semantic) -> dict[str, Semantic]:
    """The erased facts that lead on from *fact*, one replaced by the next."""
    chain: dict[str, Semantic] = {}
    by = fact.superseded_by
    while by is not None and by not in chain:
        row = connection.execute(_ERASED_FACT, (by,)).fetchone()
        if row is None:
            break
        chain[by] = _fact(*row)
        by = chain[by].superseded_by
    return chain


def _fact(id: str, type: str, body: str, superseded_by: str | None) -> Semantic:
    """A fact; of a damaged one what its columns say."""
    for node in NODES.all([(id, type, body)], []):
        assert isinstance(node, Semantic)
        return node
    return Semantic("", id=id, superseded_by=superseded_by)


# ── Tags, intents and subgoals ───────────────────────────────────────────────────────


def settle_routing(
    connection: sqlite3.Connection,
    repo: int,
    said: Said,
    revision: int,
    traces: Traces,
    unreadable: Passed,
) -> int:
    """
    Word anew what only erased members were worded by; give how many were.

    Args:
        unreadable: Gets the damaged ones, which stay as they are.
    """
    breather, changed = Breather(), 0
    for number, *row in connection.execute(_ROUTING).fetchall():
        breather.breathe()
        for node in NODES.all([row], unreadable):
            # A damaged member names nothing: what only it could vouch for goes.
            members = NODES.all(connection.execute(_MEMBERS, (number, _MEMBERS_READ)), [])
            after = reworded(node, members, _said_behind(connection, number, said))
            if after is None:
                go(connection, number, node)
            elif after is not node:
                traces.add(node.text)
                change = NodeChange(node.id, {"description": after.text})
                change_node(connection, repo, change, revision)
                connection.execute(_DROP_VECTOR, (repo, node.id))
                changed += 1
    return changed


def settle_wordings(
    connection: sqlite3.Connection, repo: int, revision: int, traces: Traces, unreadable: Passed
) -> int:
    """
    Take erased steps out of the sources of wordings; give how many intents changed.

    Args:
        unreadable: Gets the damaged ones, which stay as they are.
    """
    changed, erased = 0, {id for (id,) in connection.execute(_ERASED_STEPS)}
    for number, *row in connection.execute(_WORDED, (repo,)).fetchall():
        for intent in NODES.all([row], unreadable):
            assert isinstance(intent, Intent)
            members = NODES.all(connection.execute(_MEMBERS, (number, _MEMBERS_READ)), [])
            after, gone = without_sources(intent, members, erased)
            fields: dict[str, Any] = {"wordings": after.wordings}
            if after.description != intent.description:
                traces.add(intent.description)
                fields["description"] = after.description
                connection.execute(_DROP_VECTOR, (repo, intent.id))
            for one in gone:
                traces.add(one.text)
                traces.add(packed_vector(one.vector) or "")
            change_node(connection, repo, NodeChange(intent.id, fields), revision)
            changed += 1
    return changed


def _said_behind(
    connection: sqlite3.Connection, number: int, said: Said
) -> Callable[[], frozenset[str]]:
    return lambda: said.of(id for (id,) in connection.execute(_EPISODES, (number,)).fetchall())

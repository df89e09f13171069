"""
Upkeep in the graph's transaction: merging, removing, setting penalties; by sets of rows.

A table of this transaction holds what is merged, so that the number of statements does
not depend on the number of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mnemo.errors import CommitFailed
from mnemo.log.feed import leave_recall
from mnemo.store.codec import encode_time
from mnemo.store.rows import SIDE_KEYS, chunks, holes, listed
from mnemo.store.spaces import drop_vectors
from mnemo.store.tables import EDGES, NODES
from mnemo.store.tx import Tx
from mnemo.values.changeset import RAW, Revision, Upkeep
from mnemo.values.erasure import ErasureReport
from mnemo.values.vectors import PASSAGE_KEYS

_DROP_EDGES = [f"DELETE FROM edges WHERE {end} IN $numbers" for end in ("source", "target")]
_DROP_NODES = (
    "DELETE FROM node_keys WHERE node IN $numbers",
    "DELETE FROM nodes WHERE no IN $numbers",
)


def remove_nodes(tx: Tx, repo: int, gone: Mapping[int, str]) -> ErasureReport:
    """
    Delete nodes, also as steps that have a vector for each side.

    Args:
        gone: Number of each node → its id, in the order in which followers read them.
    """
    numbers = listed(gone)
    edges = sum(tx.run(statement, (numbers,)).rowcount for statement in _DROP_EDGES)
    for statement in _DROP_NODES:
        tx.run(statement, (numbers,))
    ends = (*PASSAGE_KEYS, *SIDE_KEYS)
    vectors = drop_vectors(tx, repo, [f"{id}{end}" for id in gone.values() for end in ends])
    leave_recall(tx, repo, list(gone.values()))
    return ErasureReport(nodes=len(gone), edges=edges, vectors=vectors)


_MERGING = "loser INTEGER UNIQUE, survivor INTEGER"
_EMPTIED = "DELETE FROM merging"
_NAMED = "SELECT id, no, type FROM nodes WHERE repo = ? AND id IN ({})"
_PENALIZE = "UPDATE nodes SET penalty = ? WHERE no = ?"

# ── Merging ──────────────────────────────────────────────────────────────────────────

_MERGE = "INSERT INTO merging (loser, survivor) VALUES (?, ?)"
# ``$join`` keeps the order: a few losers, then their edges by index.
_MOVE_EDGES = f"""
INSERT INTO edges (source, target, {", ".join(EDGES.columns)})
SELECT coalesce(a.survivor, e.source), coalesce(b.survivor, e.target), {EDGES.of("e")}
FROM (SELECT e.* FROM merging m $join edges e ON e.source = m.loser
      UNION
      SELECT e.* FROM merging m $join edges e ON e.target = m.loser) e
LEFT JOIN merging a ON a.loser = e.source LEFT JOIN merging b ON b.loser = e.target
WHERE coalesce(a.survivor, e.source) <> coalesce(b.survivor, e.target) ON CONFLICT DO NOTHING
"""
_UNITE_COUNTS = """
UPDATE nodes SET
    access_count = access_count + g.accesses,
    cumulative_reward = cumulative_reward + g.rewards,
    reward_count = reward_count + g.rewarded,
    support_count = $greatest(support_count, g.support),
    created_at = $least(created_at, g.created),
    last_accessed_at = nullif($greatest(coalesce(last_accessed_at, ''), g.accessed), ''),
    penalty = $least(penalty, g.least_penalty),
    revision = ?
FROM (SELECT m.survivor, sum(n.access_count) AS accesses, sum(n.cumulative_reward) AS rewards,
             sum(n.reward_count) AS rewarded, max(n.support_count) AS support,
             min(n.created_at) AS created, max(coalesce(n.last_accessed_at, '')) AS accessed,
             min(n.penalty) AS least_penalty
      FROM merging m $join nodes n ON n.no = m.loser GROUP BY m.survivor) g
WHERE nodes.no = g.survivor
"""
_COUNT_EPISODES = """
UPDATE nodes SET support_count = g.episodes
FROM (SELECT d.survivor, count(*) AS episodes
      FROM (SELECT DISTINCT m.survivor, s.session_id, s.episode_id
            FROM (SELECT DISTINCT survivor FROM merging) m
            $join edges e ON e.source = m.survivor AND e.kind = 'provenance'
            $join nodes s ON s.no = e.target AND s.episode_id IS NOT NULL) d
      GROUP BY d.survivor) g
WHERE nodes.no = g.survivor
"""

# ── Removing ─────────────────────────────────────────────────────────────────────────

_UNUSED = """
SELECT no FROM nodes WHERE no IN $numbers AND (last_accessed_at IS NULL OR last_accessed_at <= ?)
"""
# What a tag or an intent says is part of its members' documents.
SHOW_MEMBERS = """
UPDATE nodes SET revision = ? WHERE no IN
    (SELECT e.target FROM $numbers l $join edges e ON e.source = l.value
     WHERE e.kind IN ('membership', 'hierarchical'))
"""
_ORPHANS = """
SELECT n.no, n.id FROM nodes n WHERE n.repo = ? AND n.type IN ('tag', 'intent', 'subgoal')
AND NOT EXISTS (SELECT 1 FROM edges e WHERE e.source = n.no) ORDER BY n.no
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """What upkeep did: whether it changed anything, and the ids that it removed."""

    changed: bool
    removed: tuple[str, ...]


def keep_up(
    tx: Tx,
    repo: int,
    upkeep: Upkeep,
    changed: Sequence[tuple[Any, ...]],
    revision: Revision,
) -> Kept:
    """
    Do *upkeep*; what changes is of *revision*.

    Args:
        changed: What the changed nodes say, and their ids; see ``graph.apply.prepare``.

    Raises:
        CommitFailed: It names an unknown node, or would remove a raw step.
    """
    numbers = _numbers(tx, repo, upkeep)
    tx.run_many(NODES.change, [(*columns, revision, numbers[id]) for *columns, id in changed])
    penalties = [(penalty, numbers[id]) for id, penalty in upkeep.penalties.items()]
    tx.run_many(_PENALIZE, penalties)
    if upkeep.merges:
        pairs = [(numbers[loser], numbers[end]) for loser, end in upkeep.merges.items()]
        _merge(tx, pairs, revision)
    leaving = {numbers[id]: id for id in upkeep.merges}
    leaving |= _unused(tx, {numbers[id]: id for id in upkeep.removals}, upkeep.accessed_until)
    removed = _remove(tx, repo, leaving, revision, upkeep.sweeps)
    return Kept(bool(changed or penalties or removed), removed)


def _numbers(tx: Tx, repo: int, upkeep: Upkeep) -> dict[str, int]:
    ids = upkeep.named_ids
    leaving = {*upkeep.merges, *upkeep.removals}
    numbers: dict[str, int] = {}
    for chunk in chunks(ids):
        query = _NAMED.format(holes(chunk))
        for id, number, type in tx.run(query, (repo, *chunk)):
            if type in RAW and id in leaving:
                raise CommitFailed(f"nothing was written: {id!r} is a raw step, which stays")
            numbers[id] = number
    if unknown := next((id for id in ids if id not in numbers), None):
        raise CommitFailed(f"nothing was written: the node {unknown!r} does not exist")
    return numbers


def _merge(tx: Tx, pairs: Sequence[tuple[int, int]], revision: Revision) -> None:
    tx.dialect.make_scratch(tx, "merging", _MERGING)
    tx.run_many(_MERGE, pairs)
    tx.run(_MOVE_EDGES)
    tx.run(_UNITE_COUNTS, (revision,))
    tx.run(_COUNT_EPISODES)
    tx.run(_EMPTIED)


def _unused(tx: Tx, nodes: Mapping[int, str], until: datetime | None) -> dict[int, str]:
    """Those of *nodes* that no recall has returned since."""
    if until is None:
        return dict(nodes)
    unused = {no for (no,) in tx.run(_UNUSED, (listed(nodes), encode_time(until)))}
    return {no: id for no, id in nodes.items() if no in unused}


def _remove(
    tx: Tx, repo: int, leaving: Mapping[int, str], revision: Revision, sweeps: bool
) -> tuple[str, ...]:
    tx.run(SHOW_MEMBERS, (revision, listed(leaving)))
    remove_nodes(tx, repo, leaving)
    orphans = dict(tx.run(_ORPHANS, (repo,)).fetchall()) if sweeps else {}
    remove_nodes(tx, repo, orphans)
    return (*leaving.values(), *orphans.values())

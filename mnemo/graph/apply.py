"""
The graph's one transaction: nodes, edges, metadata, vectors, session, changeset id.

``prepare`` makes rows in a worker thread, so that ``apply_write``, in the writer, waits for nothing
but the store; it computes what depends on the rows that it reads there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, TypeAlias

from mnemo.errors import CommitFailed, StaleRevision
from mnemo.jobs.job_rows import LeaseTime
from mnemo.log.feed import leave_recall
from mnemo.log.job_rules import finish_extraction
from mnemo.log.sessions import write_settlement
from mnemo.log.tombstones import refuse_barred, refuse_erased
from mnemo.log.transcript import TranscriptWriter
from mnemo.log.vectors import check_space, drop_vectors, put_vectors
from mnemo.protocols import Applied, GraphWrite
from mnemo.runtime.clock import Breather
from mnemo.store.rows import (
    UNDECODABLE,
    listed,
    repo_number,
    repo_row,
)
from mnemo.store.tables import CHANGESETS, EDGES, NODES
from mnemo.store.tx import Tx
from mnemo.values.archive import ChangesetRow
from mnemo.values.changeset import RAW, NodeChange, Revision, Upkeep
from mnemo.values.codec import checked_node, encode_time, encode_vector, stored_node
from mnemo.values.erasure import ErasureReport
from mnemo.values.graph import (
    Claim,
    Edge,
    EdgeKind,
    Episodic,
    MetadataDelta,
    Node,
    NodeMetadata,
    Source,
)
from mnemo.values.journal import Settlement
from mnemo.values.lookup import lookup_keys
from mnemo.values.steps import mean_reward
from mnemo.values.vectors import PASSAGE_KEYS, SIDE_KEYS, vector_keys

NEXT_REVISION = "UPDATE repos SET revision = revision + 1 WHERE no = ?"
_MOVE_ON = "UPDATE repos SET revision = ?, turn = NULL WHERE no = ?"
_MINE = f"{_MOVE_ON} AND (turn IS NULL OR turn = ?)"
_LEFT = f"{_MOVE_ON} AND turn_until <= ?"
_SAID = [c for c in NODES.columns if c not in ("type", *NODES.counted.split(", "))]
_said_of = itemgetter(*map(NODES.columns.index, _SAID))
_RESTATE = f"""
UPDATE nodes SET {", ".join(f"{column} = ?" for column in (*_SAID, "revision"))}
WHERE no = ? AND $also repo = ?
"""
_ADD_NODE = NODES.insert_with("revision")
_FIND_NODES = "SELECT id, type, body, NULL, no FROM nodes WHERE repo = ? AND id IN $texts"
_NUMBERS = """
SELECT id, no, type FROM nodes $by(idx_nodes_repo_id) WHERE repo = ? AND id IN $texts
"""
_ADD_KEY = "INSERT INTO node_keys (repo, key, node) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_DROP_KEYS = "DELETE FROM node_keys WHERE repo = ? AND node IN $numbers"
_ADD_EDGE = f"{EDGES.insert} ON CONFLICT DO NOTHING"
_DROP_EDGE = """
DELETE FROM edges WHERE repo = ? AND source = ? AND target = ? AND kind = ?
"""
_CHANGED = "UPDATE nodes SET revision = ? WHERE $also repo = ? AND no = ?"
# Neither rounding nor a cut of a fact that came without its steps' rewards brings one below 0.
_ADD_METADATA = """
UPDATE nodes SET cumulative_reward = $greatest(cumulative_reward + ?, 0.0),
                 reward_count = $greatest(reward_count + ?, 0),
                 support_count = $greatest(support_count + ?, 0)
WHERE $also repo = ? AND no = ?
"""
_NEIGHBOURS = """
UPDATE nodes SET revision = ? WHERE $also repo = ? AND no IN (
    SELECT target FROM edges WHERE repo = ? AND source IN $numbers
    UNION SELECT source FROM edges WHERE repo = ? AND target IN $numbers
)
"""
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_HIDE_STEPS = "UPDATE steps SET gone = 1 WHERE repo = ? AND node_id IN $texts"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A write with its rows made; *keys*: lookup key and node id; *changed*: body and id."""

    write: GraphWrite
    nodes: list[tuple[Any, ...]]
    keys: list[tuple[str, str]]
    vectors: dict[str, bytes]
    changed: list[tuple[Any, ...]]


def check_readable(node: Node) -> None:
    """*Raises* ``ValueError``: the row of *node* would be a damaged one."""
    try:
        row = stored_node(node if node.created_at else replace(node, created_at=_ANY_TIME))
        for column, value in zip(NODES.columns, NODES.values(row), strict=True):
            if value is not None and column in NODES.judges:
                NODES.judges[column](value)
        checked_node(row)
    except UNDECODABLE as error:
        raise ValueError(f"node {node.id!r} cannot be stored: {error}") from error


def _said(node: Node) -> tuple[Any, ...]:
    """The values of ``_SAID``."""
    found: tuple[Any, ...] = _said_of(NODES.values(stored_node(node)))
    return found


def prepare(write: GraphWrite, now: datetime) -> Prepared:
    """Make the rows of *write*; *now* is the creation time of nodes that have none."""
    breather = Breather()
    prepared = Prepared(write, [], [], {}, [])
    for given in write.nodes:
        node = given if given.created_at else replace(given, created_at=now)
        metadata = NodeMetadata(created_at=node.created_at or now)
        prepared.nodes.append(NODES.values(stored_node(node, metadata)))
        prepared.keys.extend((key, node.id) for key in lookup_keys(node))
        if node.vector is not None:
            prepared.vectors[node.id] = encode_vector(node.vector)
        breather.breathe()
    for node in write.upkeep.changed if write.upkeep else ():
        prepared.changed.append((*_said(node), node.id))
        breather.breathe()
    return prepared


def apply_write(
    tx: Tx, repo_id: str, prepared: Prepared, token: str, lease_time: LeaseTime
) -> Applied:
    """
    Write everything, or raise and leave it to the savepoint that nothing stays.

    Raises:
        StaleRevision: The repository moved on since ``expected_revision``, or it is another
            changeset's turn.
        Conflict: Another owner has the settled session, or its episode was discarded;
            or it comes from steps that were forgotten, or its job is another's by now.
        EmbeddingSpaceMismatch: A vector is of another space than the stamped one.
        CommitFailed: The write contradicts the graph: an id in use, an unknown end.
        Barred: Facts or instructions were extracted that were erased for good.
    """
    write = prepared.write
    repo = repo_number(tx, repo_id)
    refuse_erased(tx, repo_id, _origins(write))
    earlier = applied_before(tx, repo_id, write.changeset_id, write.settlement, token)
    if earlier is not None:
        return earlier
    if write.settlement is not None:
        write_settlement(tx, repo_id, write.settlement, token, write.node_ids, again=False)
        if write.settlement.intake is not None:
            writer = TranscriptWriter(tx, repo_id, write.settlement.at)
            finish_extraction(writer, write.settlement.intake)
            writer.flush()
    revision = repo_row(tx, repo_id)[1]
    if revision != write.expected_revision:
        raise StaleRevision(f"revision {write.expected_revision} was replaced by {revision}")
    _refuse_barred(tx, repo_id, repo, write)
    edge_count, changed = 0, not write.is_empty
    removed: tuple[str, ...] = ()
    if changed:
        edge_count = _write_graph(tx, repo_id, repo, prepared, revision + 1)
    if write.upkeep is not None:
        did, removed = keep_up(tx, repo, write.upkeep, prepared.changed, revision + 1)
        changed = changed or did
    if changed:
        revision += 1
        _move_on(tx, repo, revision, write.changeset_id, lease_time)
    if changed or write.upkeep is None:
        applied = ChangesetRow(
            id=write.changeset_id,
            revision=revision,
            node_ids=tuple(write.node_ids),
            edge_count=edge_count,
        )
        CHANGESETS.add(tx, repo, applied)
    return Applied(
        revision=revision, node_ids=write.node_ids, edge_count=edge_count, removed=removed
    )


def _move_on(
    tx: Tx, repo: int, revision: Revision, changeset_id: str, lease_time: LeaseTime
) -> None:
    if tx.run(_MINE, (revision, repo, changeset_id)).rowcount:
        return
    if not tx.run(_LEFT, (revision, repo, lease_time(tx).timestamp())).rowcount:
        raise StaleRevision("it is another changeset's turn")


def _origins(write: GraphWrite) -> Iterator[str | None]:
    """The steps, episodes and sessions that the raw nodes of *write* are of."""
    for node in write.nodes:
        if isinstance(node, Episodic | Source):
            yield from (node.id, node.episode_id, node.session_id)


def _refuse_barred(tx: Tx, repo_id: str, repo: int, write: GraphWrite) -> None:
    resting = {edge.source for edge in write.edges if edge.kind is EdgeKind.PROVENANCE}
    claims = [node for node in write.nodes if isinstance(node, Claim)]
    extracted = [claim for claim in claims if claim.id in resting and not claim.edits]
    corrected = [change for change in write.changes if "edits" in change.fields]
    by_hand = [claim for claim in claims if claim.edits]
    by_hand += [node for _, node in _changed(tx, repo, corrected) if isinstance(node, Claim)]
    refuse_barred(tx, repo_id, extracted, by_hand)


def applied_before(
    tx: Tx, repo_id: str, changeset_id: str, settlement: Settlement | None, token: str
) -> Applied | None:
    """The answer to a changeset when it was applied, its session settled; ``None``: never."""
    found = CHANGESETS.get(tx, repo_row(tx, repo_id)[0], changeset_id)
    if found is None:
        return None
    if settlement is not None:
        write_settlement(tx, repo_id, settlement, token, found.node_ids, again=True)
    return Applied(
        revision=found.revision, node_ids=found.node_ids, edge_count=found.edge_count, again=True
    )


def _write_graph(
    tx: Tx,
    repo_id: str,
    repo: int,
    prepared: Prepared,
    revision: Revision,
) -> int:
    write = prepared.write
    vectors = prepared.vectors | {
        change.id: encode_vector(change.fields["vector"])
        for change in write.changes
        if change.fields.get("vector") is not None
    }
    check_space(tx, repo_id, write.space, vectors.values())
    with tx.refusing(CommitFailed("nothing was written: a node id is in use already")):
        tx.run_many(_ADD_NODE, [(repo, *row, revision) for row in prepared.nodes])
    shown = (*write.edges, *write.dropped)
    shown_ids = {end for edge in shown for end in (edge.source, edge.target)}
    numbers = _numbers(tx, repo, list({*shown_ids, *write.metadata, *(n.id for n in write.nodes)}))
    tx.run_many(_ADD_KEY, [(repo, key, numbers[id]) for key, id in prepared.keys])
    ends = [(numbers[e.source], numbers[e.target], str(e.kind)) for e in write.dropped]
    tx.run_many(_DROP_EDGE, [(repo, *of) for of in ends])
    edge_count = _add_edges(tx, repo, write.edges, numbers)
    _touch_claims(tx, repo, shown, numbers, revision)
    _change_nodes(tx, repo, write.changes, revision)
    tx.run_many(
        _ADD_METADATA,
        [
            (delta.cumulative_reward, delta.reward_count, delta.support_count, repo, numbers[id])
            for id, delta in write.metadata.items()
        ],
    )
    put_vectors(tx, repo, vectors)
    return edge_count


def _numbers(
    tx: Tx, repo: int, ids: Sequence[str], *, leaving: Collection[str] = ()
) -> dict[str, int]:
    """Row numbers of *ids*. *Raises* ``CommitFailed``: one is unknown, or a leaving raw step."""
    numbers: dict[str, int] = {}
    for id, number, type in tx.run(_NUMBERS, (repo, listed(ids))).fetchall():
        if type in RAW and id in leaving:
            raise CommitFailed(f"nothing was written: {id!r} is a raw step, which stays")
        numbers[id] = number
    if unknown := next((id for id in ids if id not in numbers), None):
        raise CommitFailed(f"nothing was written: the node {unknown!r} does not exist")
    return numbers


def _add_edges(tx: Tx, repo: int, edges: Sequence[Edge], numbers: Mapping[str, int]) -> int:
    rows = [(repo, numbers[e.source], numbers[e.target], *EDGES.values(e)) for e in edges]
    return max(tx.run_many(_ADD_EDGE, rows) if rows else 0, 0)


def _touch_claims(
    tx: Tx, repo: int, edges: Sequence[Edge], numbers: Mapping[str, int], revision: Revision
) -> None:
    """Note that new or deleted *edges* change the documents of what they say something of."""
    touched = {
        numbers[edge.source if edge.kind is EdgeKind.PROVENANCE else edge.target]
        for edge in edges
        if edge.kind is not EdgeKind.SIBLING
    }
    tx.run_many(_CHANGED, [(revision, repo, number) for number in touched])


def _change_nodes(tx: Tx, repo: int, changes: Sequence[NodeChange], revision: Revision) -> None:
    """Give stored nodes new field values, and take the vectors of the old ones."""
    found = _changed(tx, repo, changes)
    if not found:
        return
    restate(tx, repo, found, revision)
    renewed = {change.id for change in changes if "vector" in change.fields}
    drop_vectors(tx, repo, vector_keys(node.id for _, node in found if node.id in renewed))
    # What a routing node says is part of its members' documents.
    routing = listed(no for no, node in found if node.type in ("intent", "tag"))
    tx.run(_NEIGHBOURS, (revision, repo, repo, routing, repo, routing))


def restate(tx: Tx, repo: int, nodes: Collection[tuple[int, Node]], revision: Revision) -> None:
    """Store what these nodes say from now on, by number, and what they are found by."""
    tx.run_many(_RESTATE, [(*_said(node), revision, no, repo) for no, node in nodes])
    tx.run(_DROP_KEYS, (repo, listed(no for no, _ in nodes)))
    tx.run_many(_ADD_KEY, [(repo, key, no) for no, node in nodes for key in lookup_keys(node)])


def _changed(tx: Tx, repo: int, changes: Iterable[NodeChange]) -> list[tuple[int, Node]]:
    """The numbers of stored nodes, and the nodes as *changes* make them."""
    fields: dict[str, dict[str, Any]] = {}
    for change in changes:
        fields.setdefault(change.id, {}).update(change.fields)
    rows = tx.run(_FIND_NODES, (repo, listed(fields))).fetchall() if fields else []
    found = [(row[-1], replace(NODES.whole.one(row), **fields.pop(row[0]))) for row in rows]
    if unknown := next(iter(fields), None):
        raise CommitFailed(f"nothing was written: the node {unknown!r} does not exist")
    return found


def delete_nodes(tx: Tx, repo_id: str, ids: Sequence[str]) -> tuple[str, ...]:
    """Delete nodes with all that hangs on them; give the ids that existed."""
    repo, revision, *_ = repo_row(tx, repo_id)
    rows = tx.run(_NUMBERS, (repo, listed(ids))).fetchall()
    numbers = {id: number for id, number, _ in rows}
    if not numbers:
        return ()
    tx.run(NEXT_REVISION, (repo,))
    known = tuple(id for id in dict.fromkeys(ids) if id in numbers)
    gone = listed(numbers.values())
    tx.run(_NEIGHBOURS, (revision + 1, repo, repo, gone, repo, gone))
    tx.run(_HIDE_STEPS, (repo, listed(known)))
    remove_nodes(tx, repo, {numbers[id]: id for id in known})
    return known


# ── What supports a claim ───────────────────────────────────────────────────────────────

Episode: TypeAlias = tuple[str | None, str]
"""Session and id; of a step without an episode the step's own id."""


def episodes_of(steps: Iterable[Episodic]) -> set[Episode]:
    """The episodes behind *steps*."""
    return {(step.session_id, step.episode_id or step.id) for step in steps}


def trajectories_of(steps: Iterable[Episodic]) -> list[list[Episodic]]:
    """*steps* by trajectory."""
    found: dict[tuple[str | None, ...], list[Episodic]] = {}
    for step in steps:
        # An id that is missing is no name that steps share.
        own = (step.trajectory_id,) if step.trajectory_id else (None, step.id)
        found.setdefault((step.session_id, step.episode_id, *own), []).append(step)
    return list(found.values())


def credit(steps: Collection[Episodic]) -> MetadataDelta:
    """
    What *steps*, each given once, are worth to a fact that rests on them: the one rule.

    Its support is the number of episodes behind them, its rewards are the means of what is known
    of each trajectory; a step without an episode or trajectory is one of its own. Commits add the
    difference that new steps make, cuts share it out, and an erasure leaves the credit of the
    steps that remain, as if only they had been committed. Statements without steps (of
    support 1) and the scores of instructions come on top.
    """
    means = [mean_reward(step.reward for step in group) for group in trajectories_of(steps)]
    known = [mean for mean in means if mean is not None]
    return MetadataDelta(
        cumulative_reward=sum(known),
        reward_count=len(known),
        support_count=len(episodes_of(steps)),
    )


# ── Upkeep: merging, removing, setting penalties, by sets of rows ───────────────────────
#
# What is merged is one parameter, so that the number of statements does not depend on the
# number of nodes.

_DROP_EDGES = [
    f"DELETE FROM edges WHERE repo = ? AND {end} IN $numbers" for end in ("source", "target")
]
_DROP_NODES = (_DROP_KEYS, "DELETE FROM nodes WHERE $also repo = ? AND no IN $numbers")


def remove_nodes(tx: Tx, repo: int, gone: Mapping[int, str]) -> ErasureReport:
    """Delete nodes, by number → id in the order of followers; steps have a vector for each side."""
    numbers = listed(gone)
    edges = sum(tx.run(statement, (repo, numbers)).rowcount for statement in _DROP_EDGES)
    for statement in _DROP_NODES:
        tx.run(statement, (repo, numbers))
    ends = (*PASSAGE_KEYS, *SIDE_KEYS)
    vectors = drop_vectors(tx, repo, [f"{id}{end}" for id in gone.values() for end in ends])
    leave_recall(tx, repo, list(gone.values()))
    return ErasureReport(nodes=len(gone), edges=edges, vectors=vectors)


_PENALIZE = "UPDATE nodes SET penalty = ? WHERE $also repo = ? AND no = ?"

# ── Merging ──────────────────────────────────────────────────────────────────────────

_MERGING = """
WITH merging AS
    (SELECT CAST(key AS BIGINT) AS loser, CAST(value AS BIGINT) AS survivor FROM $pairs)
"""
# ``$join`` keeps the order: a few losers, then their edges by index.
_MOVE_EDGES = f"""{_MERGING}
INSERT INTO edges (repo, source, target, {", ".join(EDGES.columns)})
SELECT e.repo, coalesce(a.survivor, e.source), coalesce(b.survivor, e.target), {EDGES.of("e")}
FROM (SELECT e.* FROM merging m $join edges e ON e.repo = ? AND e.source = m.loser
      UNION
      SELECT e.* FROM merging m $join edges e ON e.repo = ? AND e.target = m.loser) e
LEFT JOIN merging a ON a.loser = e.source LEFT JOIN merging b ON b.loser = e.target
WHERE coalesce(a.survivor, e.source) <> coalesce(b.survivor, e.target) ON CONFLICT DO NOTHING
"""
_UNITE_COUNTS = f"""{_MERGING}
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
      FROM merging m $join nodes n ON n.no = m.loser AND $also n.repo = ?
      GROUP BY m.survivor) g
WHERE nodes.no = g.survivor AND $also nodes.repo = ?
"""
_BEHIND = f"""{_MERGING}
SELECT m.survivor, s.session_id, s.episode_id, s.id FROM (SELECT DISTINCT survivor FROM merging) m
$join edges e ON e.repo = ? AND e.source = m.survivor AND e.kind = 'provenance'
$join nodes s ON s.no = e.target AND $also s.repo = e.repo
"""
# What was said without steps has no episode here: it takes nothing away.
_SUPPORT = """
UPDATE nodes SET support_count = $greatest(support_count, ?) WHERE $also repo = ? AND no = ?
"""

# ── Removing ─────────────────────────────────────────────────────────────────────────

_UNUSED = """
SELECT no FROM nodes WHERE $also repo = ? AND no IN $numbers
AND (last_accessed_at IS NULL OR last_accessed_at <= ?)
"""
# What a tag or an intent says is part of its members' documents.
SHOW_MEMBERS = """
UPDATE nodes SET revision = ? WHERE $also repo = ? AND no IN
    (SELECT e.target FROM $numbers l $join edges e ON e.repo = ? AND e.source = l.value
     WHERE e.kind IN ('membership', 'hierarchical'))
"""
_ORPHANS = """
SELECT n.no, n.id FROM nodes n WHERE n.repo = ? AND n.type IN ('tag', 'intent', 'subgoal')
AND NOT EXISTS (SELECT 1 FROM edges e WHERE e.repo = n.repo AND e.source = n.no) ORDER BY n.no
"""


def keep_up(
    tx: Tx,
    repo: int,
    upkeep: Upkeep,
    changed: Sequence[tuple[Any, ...]],
    revision: Revision,
) -> tuple[bool, tuple[str, ...]]:
    """
    Do *upkeep*; what changes is of *revision*. Give whether anything did, and the ids removed.

    *changed*: What the changed nodes say, and their ids; see ``prepare``. *Raises*
    ``CommitFailed``: it names an unknown node, or would remove a raw step.
    """
    leaving_ids = {*upkeep.merges, *upkeep.removals}
    numbers = _numbers(tx, repo, upkeep.named_ids, leaving=leaving_ids)
    tx.run_many(_RESTATE, [(*columns, revision, numbers[id], repo) for *columns, id in changed])
    penalties = [(penalty, repo, numbers[id]) for id, penalty in upkeep.penalties.items()]
    tx.run_many(_PENALIZE, penalties)
    if upkeep.merges:
        pairs = {numbers[loser]: numbers[end] for loser, end in upkeep.merges.items()}
        _merge(tx, repo, json.dumps(pairs), revision)
    leaving = {numbers[id]: id for id in upkeep.merges}
    leaving |= _unused(tx, repo, {numbers[id]: id for id in upkeep.removals}, upkeep.accessed_until)
    tx.run(SHOW_MEMBERS, (revision, repo, listed(leaving), repo))
    remove_nodes(tx, repo, leaving)
    orphans = dict(tx.run(_ORPHANS, (repo,)).fetchall()) if upkeep.sweeps else {}
    remove_nodes(tx, repo, orphans)
    removed = (*leaving.values(), *orphans.values())
    return bool(changed or penalties or removed), removed


def _merge(tx: Tx, repo: int, merging: str, revision: Revision) -> None:
    """*merging*: Number of what goes → that of what stays, as JSON."""
    tx.run(_MOVE_EDGES, (merging, repo, repo))
    tx.run(_UNITE_COUNTS, (merging, revision, repo, repo))
    behind: dict[int, set[Episode]] = {}
    for survivor, session, episode, step in tx.run(_BEHIND, (merging, repo)):
        behind.setdefault(survivor, set()).add((session, episode or step))
    tx.run_many(_SUPPORT, [(len(episodes), repo, no) for no, episodes in behind.items()])


def _unused(tx: Tx, repo: int, nodes: Mapping[int, str], until: datetime | None) -> dict[int, str]:
    """Those of *nodes* that no recall has returned since."""
    if until is None:
        return dict(nodes)
    unused = {no for (no,) in tx.run(_UNUSED, (repo, listed(nodes), encode_time(until)))}
    return {no: id for no, id in nodes.items() if no in unused}

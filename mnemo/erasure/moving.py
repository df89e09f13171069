"""A repository's way to another embedding space: staged vectors, and the switch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mnemo.errors import Conflict
from mnemo.items.item_rows import owe_items
from mnemo.jobs.job_rows import find_jobs
from mnemo.log.feed import owned_keys
from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.clock import Breather
from mnemo.store.codec import decode_changeset, decode_vector, encode_changeset, encode_node
from mnemo.store.rows import (
    SIDE_KEYS,
    Passed,
    Rows,
    chunks,
    holes,
    log_passed,
    repo_number,
    repo_row,
)
from mnemo.store.tables import JOBS, NODES
from mnemo.store.tx import Tx
from mnemo.values.feed import FeedCursor
from mnemo.values.graph import Intent, Vector
from mnemo.values.jobs import JobState
from mnemo.values.vectors import PASSAGE_KEYS
from mnemo.values.wordings import wording_key

_NEXT = "SELECT next_space_name, next_space_dimensions FROM repos WHERE no = ?"
_SET_NEXT = "UPDATE repos SET next_space_name = ?, next_space_dimensions = ? WHERE no = ?"
_CLEAR = "DELETE FROM moving WHERE repo = ?"
_STAGED = "SELECT key, digest FROM moving WHERE repo = ? AND key IN ({})"
_STAGE = """
INSERT INTO moving (repo, key, digest, vector) VALUES (?, ?, ?, ?)
ON CONFLICT (repo, key) DO UPDATE SET digest = excluded.digest, vector = excluded.vector
"""

_DROP = "DELETE FROM vectors WHERE repo = ?"


def _ends(id: str, ends: Iterable[str]) -> str:
    """The keys of the vectors of *id*, an expression, in a list of SQL."""
    return ", ".join(f"{id} || '{end}'" for end in ends)


# What was said anew since it was read is embedded again, as anything new is.
_MOVE_NODES = f"""
INSERT INTO vectors (repo, key, vector) SELECT m.repo, m.key, m.vector FROM moving m
JOIN nodes n ON n.repo = m.repo AND m.key IN ({_ends("n.id", PASSAGE_KEYS)})
WHERE m.repo = ? AND n.revision <= ? ORDER BY n.no
"""
_MOVE_STEPS = f"""
INSERT INTO vectors (repo, key, vector) SELECT m.repo, m.key, m.vector FROM steps t
$join moving m ON m.repo = t.repo
AND m.key IN ({_ends("t.node_id", SIDE_KEYS)})
WHERE t.repo = ? AND t.gone = 0 ORDER BY t.ordinal
"""
_MOVE_MESSAGES = f"""
INSERT INTO vectors (repo, key, vector) SELECT m.repo, m.key, m.vector FROM threads t
$join messages o ON o.thread = t.no $join moving m ON m.repo = t.repo
AND m.key IN ({_ends("'message-' || o.no", SIDE_KEYS)})
WHERE t.repo = ? ORDER BY o.no
"""
_WORDED = """
SELECT no, id, type, body FROM nodes
WHERE repo = ? AND type = 'intent' AND body LIKE '%"wordings"%'
"""
_STAGED_VECTOR = "SELECT vector FROM moving WHERE repo = ? AND key = ?"
_STAMP = """
UPDATE repos SET space_name = ?, space_dimensions = ?,
       next_space_name = NULL, next_space_dimensions = NULL
WHERE no = ?
"""
_UNENDED = """
FROM episodes e WHERE e.repo = ? AND e.status IN ('open', 'closed')
"""
_FORGET_SUBGOALS = f"""
UPDATE steps SET subgoal_vector = NULL
WHERE episode IN (SELECT e.no {_UNENDED}) AND subgoal_vector IS NOT NULL
"""
_CHANGESETS = f"SELECT e.no, e.changeset {_UNENDED} AND e.changeset IS NOT NULL"
_SET_CHANGESET = "UPDATE episodes SET changeset = ? WHERE no = ?"
_TRAJECTORIES = f"""
SELECT g.episode, g.key, g.changeset FROM staged g WHERE g.episode IN (SELECT e.no {_UNENDED})
"""
_SET_TRAJECTORY = "UPDATE staged SET changeset = ? WHERE episode = ? AND key = ?"


def begin_move(tx: Tx, repo_id: str, space: EmbeddingSpace) -> None:
    """Say where the repository goes; what was staged for another space is dropped."""
    repo = repo_number(tx, repo_id)
    if _next(tx, repo) != (space.name, space.dimensions):
        tx.run(_CLEAR, (repo,))
        tx.run(_SET_NEXT, (space.name, space.dimensions, repo))


def _next(tx: Tx, repo: int) -> tuple[str | None, int | None]:
    found: tuple[str | None, int | None] | None = tx.run(_NEXT, (repo,)).fetchone()
    return found or (None, None)


def unmoved(tx: Tx, repo_id: str, digests: Mapping[str, bytes]) -> frozenset[str]:
    """Those of the keys that no vector is staged for, of a text with this digest."""
    repo = repo_row(tx, repo_id)[0]
    staged: dict[str, bytes] = {}
    for chunk in chunks(list(digests)):
        staged.update(tx.run(_STAGED.format(holes(chunk)), (repo, *chunk)))
    return frozenset(key for key, digest in digests.items() if staged.get(key) != digest)


def stage_moved(
    tx: Tx,
    repo_id: str,
    space: EmbeddingSpace,
    rows: Sequence[tuple[str, bytes, bytes]],
) -> None:
    """
    Keep (key, digest, vector) for the switch; keys whose owner is gone are skipped.

    Raises:
        Conflict: The repository is not on its way to *space* any more.
    """
    repo = repo_row(tx, repo_id)[0]
    _check_next(tx, repo, space)
    owned = owned_keys(tx, repo, [row[0] for row in rows])
    tx.run_many(_STAGE, [(repo, *row) for row in rows if row[0] in owned])


def _check_next(tx: Tx, repo: int, space: EmbeddingSpace) -> None:
    """*Raises* ``Conflict``: somebody else moves it to another space, or has moved it."""
    if _next(tx, repo) != (space.name, space.dimensions):
        raise Conflict(f"the repository is not on its way to {space} any more")


def switch_space(tx: Tx, repo_id: str, space: EmbeddingSpace, cursor: FeedCursor) -> int:
    """
    Put the staged vectors in the place of the old ones; give how many there are.

    Staged changesets, annotations of unfinished sessions and items lose theirs, to be embedded
    again.

    Raises:
        Conflict: The repository is not on its way to *space* any more.
    """
    repo = repo_row(tx, repo_id)[0]
    _check_next(tx, repo, space)
    tx.run(_DROP, (repo,))
    moved = tx.run(_MOVE_STEPS, (repo,)).rowcount
    moved += tx.run(_MOVE_MESSAGES, (repo,)).rowcount
    moved += tx.run(_MOVE_NODES, (repo, cursor.revision)).rowcount
    _move_wordings(tx, repo)
    _move_jobs(tx, repo, space)
    tx.run(_STAMP, (space.name, space.dimensions, repo))
    tx.run(_CLEAR, (repo,))
    tx.run(_FORGET_SUBGOALS, (repo,))
    owe_items(tx, repo)
    breather = Breather()
    passed: Passed = []
    rows = tx.run(_CHANGESETS, (repo,)).fetchall()
    for episode, blob in _EPISODES.all(rows, passed):
        tx.run(_SET_CHANGESET, (blob, episode))
        breather.breathe()
    rows = tx.run(_TRAJECTORIES, (repo,)).fetchall()
    for episode, key, blob in _STAGED_ROWS.all(rows, passed):
        tx.run(_SET_TRAJECTORY, (blob, episode, key))
        breather.breathe()
    log_passed(passed)
    return moved


def _move_wordings(tx: Tx, repo: int) -> None:
    """Give the wordings of intents their staged vectors; those that have none lose theirs."""
    breather = Breather()
    for number, *row in tx.run(_WORDED, (repo,)).fetchall():
        # A damaged one says nothing that could be found by a vector.
        intent = next(iter(NODES.whole.all([row], [])), None)
        if not isinstance(intent, Intent):
            continue
        moved = tuple(
            replace(one, vector=_staged_vector(tx, repo, wording_key(intent.id, one.text)))
            for one in intent.wordings
        )
        after = encode_node(replace(intent, wordings=moved))
        tx.run("UPDATE nodes SET body = ? WHERE no = ?", (after, number))
        breather.breathe()


def _move_jobs(tx: Tx, repo: int, space: EmbeddingSpace) -> None:
    """Have the jobs that are owed be done in the new space."""
    for state in (JobState.WAITING, JobState.RUNNING, JobState.DEAD):
        for job in find_jobs(tx, repo, state, due=None, limit=None):
            if "space" in job.needs:
                needs = {**job.needs, "space": str(space)}
                JOBS.put(tx, repo, replace(job, needs=needs))


def _staged_vector(tx: Tx, repo: int, key: str) -> Vector | None:
    row = tx.run(_STAGED_VECTOR, (repo, key)).fetchone()
    return None if row is None else next(iter(_MOVED.all([(key, *row)], [])), None)


def _unembedded(blob: bytes) -> bytes:
    return encode_changeset(decode_changeset(blob).without_vectors())


_MOVED = Rows("moving", "s b", lambda row: decode_vector(row[1]))
_EPISODES = Rows("episodes", "i b", lambda row: (row[0], _unembedded(row[1])))
_STAGED_ROWS = Rows(
    "staged", "i s b", lambda row: (row[0], row[1], _unembedded(row[2])), key=(0, 1)
)

"""
The log by which followers learn what left recall: nodes, steps and messages' documents.

It does not grow for ever: of a repository its last ``KEPT`` removals stay, and whoever follows
from before them starts again from nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mnemo.store.rows import SIDE_KEYS, listed
from mnemo.store.spaces import drop_vectors
from mnemo.store.tx import Tx

KEPT = 10_000
"""Removals of a repository that stay to be read; about half a megabyte."""

_ADD = "INSERT INTO removals (repo, node_id) SELECT ?, x.value FROM $texts x"
_DROP_OLD = """
DELETE FROM removals WHERE repo = ? AND seq <=
    (SELECT seq FROM removals WHERE repo = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)
"""
_BEHIND = "SELECT seq, node_id FROM removals WHERE repo = ? AND seq > ? ORDER BY seq"
_FIRST = "SELECT min(seq) FROM removals WHERE repo = ?"
_UNCOMMITTED = "FROM steps WHERE episode IN $numbers AND committed = 0 AND gone = 0"
_HIDDEN = f"SELECT node_id {_UNCOMMITTED} ORDER BY ordinal"
_HIDE = f"UPDATE steps SET gone = 1 WHERE ordinal IN (SELECT ordinal {_UNCOMMITTED})"


def leave_recall(tx: Tx, repo: int, ids: Sequence[str]) -> None:
    """Log that *ids* are gone from recall, in the order in which followers read them."""
    if ids:
        tx.run(_ADD, (repo, listed(ids)))
        # Not before: whoever adds holds the repository's row, and nobody else drops.
        tx.run(_DROP_OLD, (repo, repo, KEPT + len(ids)))


def removals_behind(tx: Tx, repo: int, after: int) -> tuple[list[tuple[int, str]], bool]:
    """
    The numbers and ids behind the number *after*, and whether some of them are logged no more.

    As rows go only while ``KEPT`` later ones stay, a reader of fewer has missed none; nor has
    one who stands where the log still is.
    """
    rows = tx.run(_BEHIND, (repo, after)).fetchall()
    return rows, len(rows) >= KEPT and after < tx.run(_FIRST, (repo,)).fetchone()[0]


def hide_uncommitted(tx: Tx, repo: int, episodes: Iterable[int]) -> None:
    """Take the uncommitted steps of *episodes* from recall; they stay in the record."""
    numbers = listed(episodes)
    # A damaged id was never followed.
    ids = [id for (id,) in tx.run(_HIDDEN, (numbers,)).fetchall() if isinstance(id, str)]
    drop_vectors(tx, repo, [f"{id}{end}" for id in ids for end in SIDE_KEYS])
    tx.run(_HIDE, (numbers,))
    leave_recall(tx, repo, ids)

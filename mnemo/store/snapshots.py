"""Snapshots with their rows in the full text."""

from __future__ import annotations

from mnemo.store.tables import SNAPSHOTS
from mnemo.store.text_rows import snapshot_row
from mnemo.store.tx import Tx
from mnemo.values.derived import Snapshot

__all__ = ["drop_snapshot", "put_snapshot"]

_FIND = "SELECT no, text FROM snapshots WHERE thread = ? AND id = ?"


def put_snapshot(tx: Tx, repo: int, thread: int, snapshot: Snapshot) -> None:
    """Insert it, or replace the one of its id."""
    before = tx.run(_FIND, (thread, snapshot.id)).fetchone()
    SNAPSHOTS.put(tx, thread, snapshot)
    no, text = tx.run(_FIND, (thread, snapshot.id)).fetchone()
    if before is not None and before[1] == text:
        return
    tx.dialect.drop_texts(tx, repo, [snapshot_row(no)])
    tx.dialect.put_texts(tx, repo, [(snapshot_row(no), text)])


def drop_snapshot(tx: Tx, repo: int, thread: int, snapshot: Snapshot) -> None:
    """Take its text out of the index, if it is there."""
    row = tx.run(_FIND, (thread, snapshot.id)).fetchone()
    if row is not None:
        tx.dialect.drop_texts(tx, repo, [snapshot_row(row[0])])

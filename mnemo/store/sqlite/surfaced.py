"""Index of surfaced records: the rows of ``surfaced`` that show a record go with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import chain

from mnemo.store.sqlite.damage import Passed, Rows
from mnemo.store.table import decode_shown
from mnemo.values.derived import Surfaced

__all__ = ["erase_showing", "index_shown", "unindex_shown", "unindex_thread"]

_BEFORE = "SELECT shown FROM surfaced WHERE thread = ? AND epoch = ? AND seq = ?"
_ADD = """
INSERT OR IGNORE INTO surfaced_records (repo, stream, record, thread, epoch, seq)
VALUES (?, ?, ?, ?, ?, ?)
"""
_DROP_RECORD = """
DELETE FROM surfaced_records WHERE repo = ? AND stream = ? AND record = ?
AND thread = ? AND epoch = ? AND seq = ?
"""
_DROP_PLACE = """
DELETE FROM surfaced_records WHERE repo = ? AND thread = ? AND epoch = ? AND seq = ?
"""
_SHOWN = Rows("surfaced", "i i i s", lambda row: decode_shown(row[3]), key=(0, 1, 2))
_SHOWING = """
SELECT thread, epoch, seq FROM surfaced_records WHERE repo = ? AND stream = ? AND record = ?
"""
_PLACE = "thread = ? AND epoch = ? AND seq = ?"
_SHOWN_IN = "SELECT epoch, seq, shown FROM surfaced WHERE thread = ?"
_DROP = f"DELETE FROM surfaced WHERE {_PLACE}"


def index_shown(connection: sqlite3.Connection, repo: int, thread: int, value: Surfaced) -> None:
    """Index what *value* shows, in the place of its stored row; call it before the upsert."""
    unindex_shown(connection, repo, thread, value)
    place = (thread, value.epoch, value.seq)
    connection.executemany(_ADD, [(repo, *record, *place) for record in value.shown])


def unindex_shown(connection: sqlite3.Connection, repo: int, thread: int, value: Surfaced) -> None:
    """Unindex what the stored row of this place shows; call it before the deletion."""
    place = (thread, value.epoch, value.seq)
    for row in connection.execute(_BEFORE, place).fetchall():
        _unindex(connection, repo, place, row[0])


def unindex_thread(connection: sqlite3.Connection, repo: int, thread: int) -> None:
    """Unindex what the rows of a thread show; call it before their deletion."""
    for *place, shown in connection.execute(_SHOWN_IN, (thread,)).fetchall():
        _unindex(connection, repo, (thread, *place), shown)


def _unindex(
    connection: sqlite3.Connection, repo: int, place: tuple[int, int, int], shown: str
) -> None:
    """Unindex the row of *place*; of a damaged one by a scan, for nothing is indexed by place."""
    damaged: Passed = []
    records = _SHOWN.all([(*place, shown)], damaged)
    for record in chain.from_iterable(records):
        connection.execute(_DROP_RECORD, (repo, *record, *place))
    if damaged:
        connection.execute(_DROP_PLACE, (repo, *place))


def erase_showing(
    connection: sqlite3.Connection, repo: int, records: Iterable[tuple[str, str]]
) -> None:
    """Delete the rows, of any thread, that show one of these records (stream, id)."""
    places = {
        place for record in records for place in connection.execute(_SHOWING, (repo, *record))
    }
    for place in sorted(places):
        (shown,) = connection.execute(_BEFORE, place).fetchone()
        _unindex(connection, repo, place, shown)
        connection.execute(_DROP, place)

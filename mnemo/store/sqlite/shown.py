"""Where records were shown, so that what showed them can go with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import chain

from mnemo.store.sqlite.damage import Passed, Rows
from mnemo.store.tables import decode_shown
from mnemo.transcript.derived import Surfaced

__all__ = ["note_shown", "unnote_shown", "unnote_thread", "unshow"]

_BEFORE = "SELECT shown FROM surfaced WHERE thread = ? AND epoch = ? AND seq = ?"
_NOTE = """
INSERT OR IGNORE INTO surfaced_records (repo, stream, record, thread, epoch, seq)
VALUES (?, ?, ?, ?, ?, ?)
"""
_UNNOTE = """
DELETE FROM surfaced_records WHERE repo = ? AND stream = ? AND record = ?
AND thread = ? AND epoch = ? AND seq = ?
"""
_UNNOTE_PLACE = """
DELETE FROM surfaced_records WHERE repo = ? AND thread = ? AND epoch = ? AND seq = ?
"""
_SHOWN = Rows("surfaced", "i i i s", lambda row: decode_shown(row[3]), key=(0, 1, 2))
_SHOWING = """
SELECT thread, epoch, seq FROM surfaced_records WHERE repo = ? AND stream = ? AND record = ?
"""
_PLACE = "thread = ? AND epoch = ? AND seq = ?"
_SHOWN_IN = "SELECT epoch, seq, shown FROM surfaced WHERE thread = ?"
_DROP = f"DELETE FROM surfaced WHERE {_PLACE}"


def note_shown(connection: sqlite3.Connection, repo: int, thread: int, value: Surfaced) -> None:
    """Note what *value* shows, in the place of what it showed before; ahead of its row."""
    unnote_shown(connection, repo, thread, value)
    place = (thread, value.epoch, value.seq)
    connection.executemany(_NOTE, [(repo, *record, *place) for record in value.shown])


def unnote_shown(connection: sqlite3.Connection, repo: int, thread: int, value: Surfaced) -> None:
    """Forget what the stored row of this place shows; ahead of its deletion."""
    place = (thread, value.epoch, value.seq)
    for row in connection.execute(_BEFORE, place).fetchall():
        _unnote(connection, repo, place, row[0])


def unnote_thread(connection: sqlite3.Connection, repo: int, thread: int) -> None:
    """Forget what the rows of a thread show; ahead of their deletion."""
    for *place, shown in connection.execute(_SHOWN_IN, (thread,)).fetchall():
        _unnote(connection, repo, (thread, *place), shown)


def _unnote(
    connection: sqlite3.Connection, repo: int, place: tuple[int, int, int], shown: str
) -> None:
    """Forget what the row of *place* shows; of a damaged one by looking through all rows."""
    damaged: Passed = []
    records = _SHOWN.all([(*place, shown)], damaged)
    for record in chain.from_iterable(records):
        connection.execute(_UNNOTE, (repo, *record, *place))
    if damaged:
        connection.execute(_UNNOTE_PLACE, (repo, *place))


def unshow(
    connection: sqlite3.Connection,
    repo: int,
    records: Iterable[tuple[str, str]],
) -> None:
    """Erase what surfaced, in any thread, together with one of these records."""
    places = {
        place for record in records for place in connection.execute(_SHOWING, (repo, *record))
    }
    for place in sorted(places):
        (shown,) = connection.execute(_BEFORE, place).fetchone()
        _unnote(connection, repo, place, shown)
        connection.execute(_DROP, place)

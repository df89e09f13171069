"""Index of surfaced records: the rows of ``surfaced`` that show a record go with it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from mnemo.store.rows import Passed, Rows
from mnemo.store.table import decode_shown
from mnemo.store.tx import Tx
from mnemo.values.derived import Surfaced

_BEFORE = "SELECT shown FROM surfaced WHERE thread = ? AND epoch = ? AND seq = ?"
_ADD = """
INSERT INTO surfaced_records (repo, stream, record, thread, epoch, seq)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
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


def index_shown(tx: Tx, repo: int, thread: int, value: Surfaced) -> None:
    """Index what *value* shows, in the place of its stored row; call it before the upsert."""
    unindex_shown(tx, repo, thread, value)
    place = (thread, value.epoch, value.seq)
    tx.run_many(_ADD, [(repo, *record, *place) for record in value.shown])


def unindex_shown(tx: Tx, repo: int, thread: int, value: Surfaced) -> None:
    """Unindex what the stored row of this place shows; call it before the deletion."""
    place = (thread, value.epoch, value.seq)
    for row in tx.run(_BEFORE, place).fetchall():
        _unindex(tx, repo, place, row[0])


def unindex_thread(tx: Tx, repo: int, thread: int) -> None:
    """Unindex what the rows of a thread show; call it before their deletion."""
    for *place, shown in tx.run(_SHOWN_IN, (thread,)).fetchall():
        _unindex(tx, repo, (thread, *place), shown)


def _unindex(tx: Tx, repo: int, place: tuple[int, int, int], shown: str) -> None:
    """Unindex the row of *place*; of a damaged one by a scan, for nothing is indexed by place."""
    damaged: Passed = []
    records = _SHOWN.all([(*place, shown)], damaged)
    for record in chain.from_iterable(records):
        tx.run(_DROP_RECORD, (repo, *record, *place))
    if damaged:
        tx.run(_DROP_PLACE, (repo, *place))


def erase_showing(tx: Tx, repo: int, records: Iterable[tuple[str, str]]) -> None:
    """Delete the rows, of any thread, that show one of these records (stream, id)."""
    places = {place for record in records for place in tx.run(_SHOWING, (repo, *record))}
    for place in sorted(places):
        (shown,) = tx.run(_BEFORE, place).fetchone()
        _unindex(tx, repo, place, shown)
        tx.run(_DROP, place)

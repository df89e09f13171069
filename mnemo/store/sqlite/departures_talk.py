"""A repository's conversations as records of an archive: what is read, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mnemo.episode.archive import ArchivedMessage, ArchivedMessageVector
from mnemo.store.sqlite.codec import decode_vector
from mnemo.store.sqlite.damage import Rows
from mnemo.store.sqlite.derived import Shelf, shelf_of
from mnemo.store.sqlite.messages import COLUMNS, MESSAGES
from mnemo.store.sqlite.threads import THREADS
from mnemo.transcript.derived import (
    Compaction,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
)

__all__ = ["DERIVED", "TALK_COUNTS", "TALK_DEPARTURES", "THREAD_COLUMNS", "WORDS"]

WORDS = "{words}"
"""Stands in a query for the table of the repository's full text."""
THREAD_COLUMNS = (
    *("id", "next_seq", "epoch", "epoch_start", "boundary", "budget_tokens", "ttl_s"),
    *("next_goal", "declined_to"),
)
DERIVED: dict[str, Shelf[Any]] = {
    "compaction": shelf_of(Compaction),
    "snapshot": shelf_of(Snapshot),
    "outcome": shelf_of(EvictionOutcome),
    "goal": shelf_of(Goal),
    "pin": shelf_of(Pin),
}
"""Where each kind of record that is derived from messages is kept."""

_OF_THREADS = (
    "SELECT '{}', count(*) FROM threads t JOIN {} d ON d.thread = t.no WHERE t.repo = :repo"
)
TALK_COUNTS = " UNION ALL ".join(
    [
        "SELECT 'thread', count(*) FROM threads WHERE repo = :repo",
        _OF_THREADS.format("message", "messages"),
        _OF_THREADS.format("message_vector", "message_vectors"),
        *(_OF_THREADS.format(kind, shelf.table) for kind, shelf in DERIVED.items()),
    ]
)
"""Kind and number of records of the repository ``:repo``."""

_THREADS = f"SELECT {', '.join(THREAD_COLUMNS)} FROM threads WHERE repo = ? ORDER BY id"
# A plus before a column keeps its index out of it: the table is read in the order it is in.
_MESSAGES = f"""
SELECT {COLUMNS}, m.owed, EXISTS (SELECT 1 FROM {WORDS} WHERE rowid = 4 * m.no + 2)
FROM messages m CROSS JOIN threads t ON t.no = m.thread WHERE +m.repo = ? ORDER BY m.no
"""
_VECTORS = """
SELECT t.id, v.seq, v.vector, r.space_dimensions FROM repos r JOIN threads t ON t.repo = r.no
CROSS JOIN message_vectors v ON v.thread = t.no
JOIN messages m ON m.thread = v.thread AND m.seq = v.seq WHERE t.repo = ? ORDER BY m.no
"""


def _derived_of(shelf: Shelf[Any]) -> str:
    columns = ", ".join(f"d.{column}" for column in shelf.columns)
    order = ", ".join(f"d.{column}" for column in shelf.order)
    return (
        f"SELECT t.id, {columns} FROM threads t CROSS JOIN {shelf.table} d ON d.thread = t.no "
        f"WHERE t.repo = ? ORDER BY t.id, {order}"
    )


def _message(row: Sequence[Any]) -> ArchivedMessage:
    return ArchivedMessage(message=MESSAGES.one(row), owed=bool(row[-2]), searched=bool(row[-1]))


def _vector(row: Sequence[Any]) -> ArchivedMessageVector:
    thread_id, seq, blob, dimensions = row
    return ArchivedMessageVector(
        thread_id=thread_id, seq=seq, vector=decode_vector(blob, dimensions)
    )


TALK_DEPARTURES: tuple[tuple[str, Rows[Any]], ...] = (
    (_THREADS, THREADS),
    (_MESSAGES, Rows("messages", "", _message, key=(0, 2))),
    (_VECTORS, Rows("message_vectors", "s i b i", _vector, key=(0, 1))),
    *((_derived_of(shelf), shelf.rows) for shelf in DERIVED.values()),
)
"""Query (of a repository's number) and reader of its rows, in the order of an archive."""

"""Conversations of an archive on their way in: their rows, whether they fit, where they go."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from mnemo.episode.archive import ArchivedMessage, ArchivedMessageVector, Record
from mnemo.store.sqlite.codec import encode_json, encode_time, encode_vector, utc_text
from mnemo.store.sqlite.departures_talk import DERIVED, THREAD_COLUMNS
from mnemo.store.sqlite.derived import shelf_of
from mnemo.store.sqlite.texts import message_row, put_texts, snapshot_row
from mnemo.transcript.derived import (
    Compaction,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
    Thread,
)
from mnemo.transcript.message import StoredMessage, embedded_text, searchable_text

__all__ = [
    "TALK_BASES",
    "TALK_CHECKS",
    "TALK_INDEXES",
    "TALK_MOVES",
    "TALK_TABLES",
    "TALK_TABLE_OF",
    "TALK_UNIQUE",
    "index_talk",
    "talk_row",
]

_MESSAGE = """seq, id, epoch, role, kind, tokens, recorded_at, at, is_error, tool_call_id, name,
              actor, content, blocks, tool_calls, metadata, owed"""
_DERIVED_COLUMNS = {shelf.table: ", ".join(shelf.columns) for shelf in DERIVED.values()}

TALK_TABLES = {
    "threads": ", ".join(THREAD_COLUMNS),
    "messages": f"thread, {_MESSAGE}, text, speaks",
    "message_vectors": "thread, seq, vector",
    **{table: f"thread, {columns}" for table, columns in _DERIVED_COLUMNS.items()},
}
"""Columns of the tables that records wait in; *text* is what is searched for."""
TALK_TABLE_OF: dict[type[Record], str] = {
    Thread: "threads",
    ArchivedMessage: "messages",
    ArchivedMessageVector: "message_vectors",
    Compaction: "compactions",
    Snapshot: "snapshots",
    EvictionOutcome: "outcomes",
    Goal: "goals",
    Pin: "pins",
}


def talk_row(record: Record) -> tuple[Any, ...]:
    """The row of a record of a conversation."""
    match record:
        case Thread():
            return tuple(getattr(record, name) for name in THREAD_COLUMNS)
        case ArchivedMessage():
            return _message(record)
        case ArchivedMessageVector(thread_id=thread, seq=seq, vector=vector):
            return (thread, seq, encode_vector(vector))
        case Compaction() | Snapshot() | EvictionOutcome() | Goal() | Pin():
            return (record.thread_id, *shelf_of(type(record)).values(record))
    raise TypeError(f"{type(record).__name__} is no record of a conversation")


def _message(record: ArchivedMessage) -> tuple[Any, ...]:
    message = record.message
    return (
        message.thread_id,
        message.seq,
        message.id,
        message.epoch,
        message.role,
        message.kind,
        message.tokens,
        utc_text(message.recorded_at),
        encode_time(message.at),
        message.is_error,
        message.tool_call_id,
        message.name,
        message.actor,
        *_contents(message),
        record.owed,
        searchable_text(message, tools=True) if record.searched else "",
        bool(embedded_text(message)),
    )


def _contents(message: StoredMessage) -> tuple[Any, ...]:
    content, calls = message.content, message.tool_calls
    return (
        content if isinstance(content, str) else None,
        encode_json(content) if isinstance(content, list) else None,
        encode_json([[c.id, c.name, c.arguments] for c in calls]) if calls else None,
        encode_json(dict(message.metadata)) if message.metadata else None,
    )


# ── Checking ─────────────────────────────────────────────────────────────────────────

TALK_INDEXES = (
    "CREATE INDEX arriving.threads_id ON threads (id)",
    "CREATE INDEX arriving.messages_place ON messages (thread, seq)",
    "CREATE INDEX arriving.compactions_id ON compactions (thread, id)",
    "CREATE INDEX arriving.snapshots_id ON snapshots (thread, id)",
)
TALK_UNIQUE = (
    ("threads", "id"),
    ("messages", "thread, seq"),
    ("messages", "thread, id"),
    ("message_vectors", "thread, seq"),
    *((shelf.table, ", ".join(("thread", *shelf.key))) for shelf in DERIVED.values()),
)
"""What must not be there twice."""
_ENDS = {
    "messages": "a.seq >= t.next_seq",
    "compactions": "a.end_seq >= t.next_seq",
    "snapshots": "a.to_seq >= t.next_seq",
    "outcomes": "a.to_seq >= t.next_seq",
    "goals": "a.id >= t.next_goal",
    "pins": "a.seq >= t.next_seq",
}
_NO_THREAD = """
SELECT line FROM arriving.{} WHERE thread NOT IN (SELECT id FROM arriving.threads) ORDER BY n
"""
_PAST_END = """
SELECT a.line FROM arriving.{} a JOIN arriving.threads t ON t.id = a.thread
WHERE a.epoch > t.epoch OR {} ORDER BY a.n
"""

TALK_CHECKS: tuple[tuple[str, str], ...] = (
    *(
        ("its thread is not in the archive", _NO_THREAD.format(table))
        for table in TALK_TABLES
        if table != "threads"
    ),
    *(
        ("it is past the end of its thread", _PAST_END.format(table, end))
        for table, end in _ENDS.items()
    ),
    (
        "what the vector is of has none, or waits for one",
        """SELECT v.line FROM arriving.message_vectors v WHERE NOT EXISTS
           (SELECT 1 FROM arriving.messages m WHERE m.thread = v.thread AND m.seq = v.seq
            AND m.speaks AND NOT m.owed) ORDER BY v.n""",
    ),
    (
        "the message that it pins is not in the archive",
        """SELECT p.line FROM arriving.pins p WHERE NOT EXISTS
           (SELECT 1 FROM arriving.messages m WHERE m.thread = p.thread AND m.seq = p.seq
            AND m.id = p.message_id) ORDER BY p.n""",
    ),
    *(
        (
            "the summary that it names is not in the archive",
            f"""SELECT a.line FROM arriving.{table} a WHERE a.{column} IS NOT NULL AND NOT EXISTS
                (SELECT 1 FROM arriving.{named} b WHERE b.thread = a.thread AND b.id = a.{column})
                ORDER BY a.n""",
        )
        for table, column, named in (
            ("compactions", "superseded_by", "compactions"),
            ("snapshots", "covered_by", "snapshots"),
            ("outcomes", "snapshot_id", "snapshots"),
        )
    ),
)
"""What is wrong, and the query for the lines where it is."""

# ── Moving ───────────────────────────────────────────────────────────────────────────

TALK_BASES = ("threads", "messages", "snapshots")
"""Tables whose last numbers the moves go on from."""
_IN_THREAD = "FROM arriving.{} a CROSS JOIN arriving.threads t ON t.id = a.thread ORDER BY a.n"


def _moves() -> Iterator[str]:
    threads = ", ".join(THREAD_COLUMNS)
    yield (
        f"INSERT INTO threads (no, repo, {threads}) "
        f"SELECT :threads + n, :repo, {threads} FROM arriving.threads ORDER BY n"
    )
    yield (
        f"INSERT INTO messages (no, repo, thread, {_MESSAGE}) "
        f"SELECT :messages + a.n, :repo, :threads + t.n, {_of('a', _MESSAGE)} "
        + _IN_THREAD.format("messages")
    )
    yield (
        "INSERT INTO message_calls (thread, call_id, seq) "
        "SELECT :threads + t.n, c.value ->> '$[0]', a.seq FROM arriving.messages a "
        "CROSS JOIN arriving.threads t ON t.id = a.thread CROSS JOIN json_each(a.tool_calls) c"
    )
    yield (
        "INSERT INTO message_vectors (thread, seq, vector) SELECT :threads + t.n, a.seq, a.vector "
        + _IN_THREAD.format("message_vectors")
    )
    for table, columns in _DERIVED_COLUMNS.items():
        numbered = table == "snapshots"
        yield (
            f"INSERT INTO {table} ({'no, ' if numbered else ''}thread, {columns}) "
            f"SELECT {':snapshots + a.n, ' if numbered else ''}:threads + t.n, {_of('a', columns)} "
            + _IN_THREAD.format(table)
        )


def _of(alias: str, columns: str) -> str:
    return ", ".join(f"{alias}.{column.strip()}" for column in columns.split(","))


TALK_MOVES = tuple(_moves())

_TEXTS = "SELECT n, text FROM arriving.{} WHERE text <> '' ORDER BY n"
# Messages whose texts are written at once.
_BITE = 1_000


def index_talk(connection: sqlite3.Connection, repo: int, bases: dict[str, int]) -> None:
    """Put the words of messages and snapshots into the repository's full text."""
    for table, row_of in (("messages", message_row), ("snapshots", snapshot_row)):
        rows = connection.execute(_TEXTS.format(table))
        while bite := rows.fetchmany(_BITE):
            put_texts(connection, repo, [(row_of(bases[table] + n), text) for n, text in bite])

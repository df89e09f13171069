"""
Erasing messages and what was derived from ranges that held them; rows alone, not files.

Tables of the writer's own connection hold what goes, by number, so that the number of
statements does not grow with it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from mnemo.store.sqlite.codec import decode_list
from mnemo.store.sqlite.damage import Passed, Rows
from mnemo.store.sqlite.scrub import note_pending
from mnemo.store.sqlite.shown import unnote_thread, unshow
from mnemo.store.sqlite.texts import drop_texts, message_row, snapshot_row
from mnemo.store.sqlite.tombs import remember_messages
from mnemo.store.sqlite.traces import Traces
from mnemo.transcript.derived import ErasedRows

__all__ = ["erase_messages", "erase_thread"]

_TABLES = (
    """CREATE TEMP TABLE IF NOT EXISTS erased_messages
    (no INTEGER PRIMARY KEY, thread INTEGER, seq INTEGER, epoch INTEGER, id TEXT)""",
    "CREATE TEMP TABLE IF NOT EXISTS erased_compactions (no INTEGER PRIMARY KEY)",
    "CREATE TEMP TABLE IF NOT EXISTS erased_snapshots (no INTEGER PRIMARY KEY)",
    """CREATE INDEX IF NOT EXISTS temp.erased_messages_place ON erased_messages (thread, seq)""",
    "DELETE FROM erased_messages",
    "DELETE FROM erased_compactions",
    "DELETE FROM erased_snapshots",
)
_SELECT = """
INSERT OR IGNORE INTO erased_messages
SELECT no, thread, seq, epoch, id FROM messages WHERE thread = ? AND seq = ?
"""
_SELECT_THREAD = """
INSERT INTO erased_messages SELECT no, thread, seq, epoch, id FROM messages WHERE thread = ?
"""
# A range of a thread held one of them; CROSS JOIN: few threads, then their ranges by index.
_HELD = """
INSERT OR IGNORE INTO {erased} SELECT r.no FROM
(SELECT thread, min(epoch) AS first, max(epoch) AS last FROM erased_messages GROUP BY thread) x
CROSS JOIN {table} r ON r.thread = x.thread AND r.epoch BETWEEN x.first AND x.last
WHERE EXISTS (SELECT 1 FROM erased_messages e WHERE e.thread = r.thread
              AND e.seq BETWEEN r.{start} AND r.{end})
"""
_RANGES = (
    _HELD.format(
        erased="erased_compactions", table="compactions", start="start_seq", end="end_seq"
    ),
    _HELD.format(erased="erased_snapshots", table="snapshots", start="from_seq", end="to_seq"),
)
_OF_THREAD = (
    "INSERT INTO erased_compactions SELECT no FROM compactions WHERE thread = ?",
    "INSERT INTO erased_snapshots SELECT no FROM snapshots WHERE thread = ?",
)
_MESSAGES = "SELECT no, thread, id FROM erased_messages ORDER BY no"
_SNAPSHOTS = "SELECT no FROM erased_snapshots ORDER BY no"
_RECORDS = """
SELECT t.id, x.id FROM erased_messages x JOIN threads t ON t.no = x.thread
UNION ALL SELECT t.id, s.id FROM erased_snapshots x JOIN snapshots s ON s.no = x.no
          JOIN threads t ON t.no = s.thread
"""

# ── Deleting ─────────────────────────────────────────────────────────────────────────

# Of the same length, it is written in place: what deleting moves about holds nothing then.
_BLANK = "{0} = substr(hex(zeroblob(length(CAST({0} AS BLOB)))), 1, length(CAST({0} AS BLOB)))"


def _blanked(table: str, columns: Iterable[str], condition: str) -> str:
    return f"UPDATE {table} SET {', '.join(map(_BLANK.format, columns))} WHERE {condition}"


_GONE_MESSAGES = "no IN (SELECT no FROM erased_messages)"
_GONE_COMPACTIONS = "no IN (SELECT no FROM erased_compactions)"
_GONE_SNAPSHOTS = "no IN (SELECT no FROM erased_snapshots)"
_GONE_PLACES = "(thread, epoch, seq) IN (SELECT thread, epoch, seq FROM erased_messages)"
_GONE_VECTORS = "(thread, seq) IN (SELECT thread, seq FROM erased_messages)"
_CALLING = """
SELECT x.thread, x.seq, m.tool_calls FROM erased_messages x CROSS JOIN messages m ON m.no = x.no
WHERE m.tool_calls IS NOT NULL
"""
_CALLS = Rows(
    "messages",
    "i i s",
    lambda row: [(row[0], call[0], row[1]) for call in decode_list(row[2], list)],
)
_DROP_CALL = "DELETE FROM message_calls WHERE thread = ? AND call_id = ? AND seq = ?"
_DROP_CALLS = "DELETE FROM message_calls WHERE thread = ? AND seq = ?"
_OVERWRITE = (
    _blanked(
        "messages",
        ("content", "blocks", "tool_calls", "metadata", "extra", "name", "actor"),
        _GONE_MESSAGES,
    ),
    f"UPDATE message_vectors SET vector = zeroblob(length(vector)) WHERE {_GONE_VECTORS}",
    _blanked("pins", ["excerpt"], _GONE_PLACES),
    _blanked("compactions", ["text"], _GONE_COMPACTIONS),
    _blanked("snapshots", ["text"], _GONE_SNAPSHOTS),
)
# What a record of a higher level stood for stands for itself again.
_LET_GO = (
    """UPDATE compactions SET superseded_by = NULL WHERE (thread, superseded_by) IN
       (SELECT c.thread, c.id FROM erased_compactions x JOIN compactions c ON c.no = x.no)""",
    """UPDATE snapshots SET covered_by = NULL WHERE (thread, covered_by) IN
       (SELECT s.thread, s.id FROM erased_snapshots x JOIN snapshots s ON s.no = x.no)""",
    """UPDATE outcomes SET snapshot_id = NULL WHERE (thread, snapshot_id) IN
       (SELECT s.thread, s.id FROM erased_snapshots x JOIN snapshots s ON s.no = x.no)""",
)
_DROP = {
    "vectors": f"DELETE FROM message_vectors WHERE {_GONE_VECTORS}",
    "pins": f"DELETE FROM pins WHERE {_GONE_PLACES}",
    "compactions": f"DELETE FROM compactions WHERE {_GONE_COMPACTIONS}",
    "snapshots": f"DELETE FROM snapshots WHERE {_GONE_SNAPSHOTS}",
    "messages": f"DELETE FROM messages WHERE {_GONE_MESSAGES}",
}
_REST_OF_THREAD = {
    "goals": ("description",),
    "pins": ("excerpt",),
    "outcomes": (),
    "surfaced": ("shown", "hits"),
}
_COUNT = """
UPDATE threads SET erased = erased + x.count
FROM (SELECT thread, count(*) AS count FROM erased_messages GROUP BY thread) x
WHERE threads.no = x.thread
"""
_BEGIN_ANEW = """
UPDATE threads SET epoch = epoch + 1, epoch_start = next_seq, boundary = next_seq WHERE no = ?
"""


def erase_messages(
    connection: sqlite3.Connection,
    repo: int,
    places: Iterable[tuple[int, int]],
    traces: Traces | None = None,
) -> ErasedRows:
    """
    Erase the messages at these places (thread's number, seq), those that are there.

    Their words stay in the index until ``merge_texts``.

    Args:
        traces: Told by what the erased would be known.
    """
    _prepare(connection)
    connection.executemany(_SELECT, places)
    for statement in _RANGES:
        connection.execute(statement)
    return _erase(connection, repo, traces)


def erase_thread(
    connection: sqlite3.Connection, repo: int, thread: int, traces: Traces
) -> ErasedRows:
    """Erase all messages of a thread and all that was derived; the thread begins anew."""
    _prepare(connection)
    for statement in (_SELECT_THREAD, *_OF_THREAD):
        connection.execute(statement, (thread,))
    traces.take_thread(connection, thread)
    unnote_thread(connection, repo, thread)
    counts = {table: _erase_rest(connection, table, thread) for table in _REST_OF_THREAD}
    if any(counts.values()):
        # Not all of these are counted in a report, which may say that nothing was there.
        note_pending(connection)
    erased = _erase(connection, repo, traces)
    connection.execute(_BEGIN_ANEW, (thread,))
    return ErasedRows(
        messages=erased.messages,
        compactions=erased.compactions,
        snapshots=erased.snapshots,
        pins=counts["pins"],
        goals=counts["goals"],
        fulltext_rows=erased.fulltext_rows,
        vectors=erased.vectors,
    )


def _prepare(connection: sqlite3.Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)


def _erase_rest(connection: sqlite3.Connection, table: str, thread: int) -> int:
    columns = _REST_OF_THREAD[table]
    if columns:
        connection.execute(_blanked(table, columns, "thread = ?"), (thread,))
    return connection.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,)).rowcount


def _drop_calls(connection: sqlite3.Connection) -> None:
    """Forget who makes the erased calls; of a damaged message by looking through its thread."""
    for row in connection.execute(_CALLING).fetchall():
        damaged: Passed = []
        for calls in _CALLS.all([row], damaged):
            connection.executemany(_DROP_CALL, calls)
        if damaged:
            connection.execute(_DROP_CALLS, row[:2])


def _erase(connection: sqlite3.Connection, repo: int, traces: Traces | None) -> ErasedRows:
    messages = connection.execute(_MESSAGES).fetchall()
    snapshots = [no for (no,) in connection.execute(_SNAPSHOTS)]
    if traces is not None:
        traces.take_messages(connection)
    remember_messages(connection, [(thread, id) for _, thread, id in messages])
    unshow(connection, repo, connection.execute(_RECORDS).fetchall(), traces)
    _drop_calls(connection)
    rows = [message_row(no) for no, _, _ in messages] + [snapshot_row(no) for no in snapshots]
    fulltext_rows = drop_texts(connection, repo, rows)
    for statement in (*_OVERWRITE, *_LET_GO, _COUNT):
        connection.execute(statement)
    dropped = {what: connection.execute(query).rowcount for what, query in _DROP.items()}
    return ErasedRows(fulltext_rows=fulltext_rows, **dropped)

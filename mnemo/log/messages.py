"""Messages as rows: how they are written, read back, and looked up within one thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import Conflict
from mnemo.store.codec import decode_vector, utc_text
from mnemo.store.rows import Passed, Rows, chunks, holes, log_passed, message_row, messages_among
from mnemo.store.tables import MESSAGE_COLUMNS, MESSAGES
from mnemo.store.tx import Tx
from mnemo.values.messages import Role, StoredMessage

# ``$join`` keeps the order: the one thread, then its messages by an index.
_OF_THREAD = f"""
SELECT {MESSAGE_COLUMNS} FROM threads t $join messages m {{index}} ON m.thread = t.no
WHERE t.no = ?
"""
_BY_PLACE = _OF_THREAD.format(index="$by(messages_place)")
_BY_ROLE = {
    "user": _OF_THREAD.format(index="$by(messages_user)") + "AND m.role = 'user'",
    "system": _OF_THREAD.format(index="$by(messages_system)") + "AND m.role = 'system'",
    "assistant": _BY_PLACE + "AND m.role = 'assistant'",
    "tool": _BY_PLACE + "AND m.role = 'tool'",
}
_BY_ID = _OF_THREAD.format(index="$by(messages_id)") + "AND m.id IN ({})"
_HELD = """
SELECT t.id, m.id FROM threads t $join messages m $by(messages_id) ON m.thread = t.no
WHERE t.repo = ? AND t.id IN ({}) AND m.id IN ({})
"""
_BY_SEQ = _BY_PLACE + "AND m.seq IN ({}) ORDER BY m.seq"
_OF_CALLS = """
SELECT seq FROM message_calls WHERE thread = ? AND call_id IN ({0})
UNION SELECT seq FROM messages $by(messages_answers)
WHERE thread = ? AND tool_call_id IN ({0})
"""
_LAST_SEQ = 2**63 - 1
"""The last that a column holds; whoever asks beyond it asks for nothing."""
_SPAN = """
SELECT count(*), coalesce(sum(tokens), 0) FROM messages $by(messages_place)
WHERE thread = ? AND seq >= ?
"""
# The keys of a message's sides and passages: what begins with its document and a slash.
_VECTORS = """
SELECT m.seq, v.vector FROM messages m $by(messages_place) $join vectors v ON v.repo = m.repo
AND v.key > 'message-' || m.no || '/' AND v.key < 'message-' || m.no || '0'
WHERE m.thread = ? AND m.seq >= ? AND m.recorded_at >= ? ORDER BY m.seq DESC, v.key LIMIT ?
"""
_INSERTED = ("no", "repo", "thread", *MESSAGES.columns)
_CALL = ("thread", "call_id", "seq")


# ── Writing ──────────────────────────────────────────────────────────────────────────


def insert_messages(tx: Tx, repo: int, messages: Sequence[tuple[int, StoredMessage, str]]) -> None:
    """
    Insert messages, each with the number of its thread and with its full text.

    Raises:
        Conflict: A seq or id is in its thread already.
    """
    last = tx.dialect.reserve(tx, "messages", len(messages), [repo])
    rows, texts, calls = [], [], []
    for no, (thread, message, text) in enumerate(messages, last + 1):
        rows.append((no, repo, thread, *MESSAGES.values(message)))
        texts.append((message_row(no), text, message.said_at))
        calls += [(thread, call.id, message.seq) for call in message.tool_calls]
    with tx.refusing(Conflict("a message's id or seq is in the thread already")):
        tx.insert("messages", _INSERTED, rows)
    tx.insert("message_calls", _CALL, calls)
    tx.dialect.put_texts(tx, repo, texts)


# ── Reading ──────────────────────────────────────────────────────────────────────────


def messages_in(
    tx: Tx,
    thread: int,
    *,
    from_seq: int,
    to_seq: int | None,
    newest: int | None,
    role: Role | None,
    since: datetime | None,
) -> list[StoredMessage]:
    """Messages of the range, ascending."""
    query, values = _BY_ROLE[role] if role else _BY_PLACE, [thread, min(from_seq, _LAST_SEQ)]
    query += " AND m.seq >= ?"
    last = None if to_seq is None else min(to_seq, _LAST_SEQ)
    given = ((" AND m.seq <= ?", last), (" AND m.recorded_at >= ?", since and utc_text(since)))
    for condition, value in given:
        if value is not None:
            query += condition
            values.append(value)  # type: ignore[arg-type]
    if newest is None:
        return MESSAGES.rows.all(tx.run(query + " ORDER BY m.seq", values))
    query += " ORDER BY m.seq DESC LIMIT ?"
    return MESSAGES.rows.all(tx.run(query, [*values, newest]))[::-1]


def messages_by_id(tx: Tx, thread: int, ids: Sequence[str]) -> dict[str, StoredMessage]:
    """Those of *ids* that the thread holds."""
    found: dict[str, StoredMessage] = {}
    for chunk in chunks(list(dict.fromkeys(ids))):
        rows = tx.run(_BY_ID.format(holes(chunk)), (thread, *chunk))
        found.update((message.stored_id, message) for message in MESSAGES.rows.all(rows))
    return found


def held_messages(tx: Tx, repo: int, messages: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of *messages*, by thread and id, that the repository holds."""
    return messages_among(tx, _HELD, repo, messages)


def messages_of_calls(tx: Tx, thread: int, call_ids: Sequence[str]) -> list[StoredMessage]:
    """The messages that make these calls, and those that answer them, ascending."""
    seqs: set[int] = set()  # first: a message may make more calls than one statement asks for
    for chunk in chunks(list(dict.fromkeys(call_ids))):
        query = _OF_CALLS.format(holes(chunk))
        seqs.update(seq for (seq,) in tx.run(query, (thread, *chunk, thread, *chunk)))
    found: list[StoredMessage] = []
    for places in chunks(sorted(seqs)):
        rows = tx.run(_BY_SEQ.format(holes(places)), (thread, *places))
        found += MESSAGES.rows.all(rows)
    return found


def span_of(tx: Tx, thread: int, from_seq: int, since: datetime | None) -> tuple[int, int]:
    """How many messages there are from *from_seq* on, and their tokens together."""
    if since is None:
        row = tx.run(_SPAN, (thread, from_seq)).fetchone()
    else:
        query = _SPAN + "AND recorded_at >= ?"
        row = tx.run(query, (thread, from_seq, utc_text(since))).fetchone()
    return int(row[0]), int(row[1])


def vectors_of(
    tx: Tx,
    thread: int,
    dimensions: int,
    *,
    from_seq: int,
    since: datetime | None,
    newest: int | None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Seqs and vectors, one a passage, the last messages first; damaged ones are left out."""
    recorded = "" if since is None else utc_text(since)
    read = Rows("vectors", "i b", lambda row: (row[0], decode_vector(row[1], dimensions)))
    passed: Passed = []
    rows = read.all(tx.run(_VECTORS, (thread, from_seq, recorded, newest or _LAST_SEQ)), passed)
    log_passed(passed)
    vectors = np.empty((len(rows), dimensions), dtype=np.float32)
    for place, (_, vector) in enumerate(rows):
        vectors[place] = vector
    return np.array([seq for seq, _ in rows], np.int64), vectors

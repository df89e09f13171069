"""
Erasure of messages, and of what was derived from ranges that held them; rows only.

Words stay in the index, and bytes in the file, until it is scrubbed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from mnemo.log.feed import leave_recall
from mnemo.log.record_rows import BY_PLACE, message_row, snapshot_row
from mnemo.log.tombstones import remember_messages
from mnemo.log.units import Around, messages_at
from mnemo.log.vectors import drop_vectors
from mnemo.store.rows import Passed, Rows, listed
from mnemo.store.table import decode_shown
from mnemo.store.tables import MESSAGES
from mnemo.store.texts import drop_texts
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_list
from mnemo.values.derived import Surfaced
from mnemo.values.erasure import ErasureReport
from mnemo.values.feed import message_document
from mnemo.values.messages import StoredMessage
from mnemo.values.vectors import SIDE_KEYS

_FIRST = BY_PLACE + "ORDER BY m.seq LIMIT ?"
_MESSAGES = "SELECT no, seq, id FROM messages WHERE repo = ? AND thread = ? AND seq IN $numbers"
_MESSAGES_OF_THREAD = """
SELECT no, seq, id FROM messages WHERE repo = ? AND thread = ? ORDER BY seq
"""
_RANGES = {
    table: f"SELECT no, id, {ends} FROM {table} WHERE repo = ? AND thread = ?"
    for table, ends in (("compactions", "start_seq, end_seq"), ("snapshots", "from_seq, to_seq"))
}
_FIND_THREAD = "SELECT no FROM threads WHERE repo = ? AND id = ?"
THREAD_ID = "SELECT id FROM threads WHERE $also repo = ? AND no = ?"
# It may quote what was said.
_FORGET_ERROR = "UPDATE jobs SET error = NULL WHERE repo = ? AND subject = ?"
CALLING = "SELECT repo, thread, seq, tool_calls FROM messages WHERE {}"
CALLS = Rows(
    "messages",
    "i i i s",
    lambda row: [(*row[:2], call[0], row[2]) for call in decode_list(row[3], list)],
    key=(1,),
)
"""Repository, thread, id and seq of each call of a message, of rows of ``CALLING``."""
_CALLING = CALLING.format("$also repo = ? AND no IN $numbers AND tool_calls IS NOT NULL")
_DROP_CALL = """
DELETE FROM message_calls WHERE repo = ? AND thread = ? AND call_id = ? AND seq = ?
"""
_DROP_CALLS = "DELETE FROM message_calls WHERE repo = ? AND thread = ? AND seq = ?"
# What a record of a higher level stood for stands for itself again.
_LET_GO = {
    "compactions": [
        """UPDATE compactions SET superseded_by = NULL
            WHERE repo = ? AND thread = ? AND superseded_by IN $texts"""
    ],
    "snapshots": [
        f"""UPDATE {table} SET {column} = NULL
            WHERE repo = ? AND thread = ? AND {column} IN $texts"""
        for table, column in (("snapshots", "covered_by"), ("outcomes", "snapshot_id"))
    ],
}
_DROP_RANGES = "DELETE FROM {} WHERE $also repo = ? AND no IN $numbers"
_DROP_MOVING = "DELETE FROM moving WHERE repo = ? AND key IN $texts"
# By either: the other may be damaged, and the excerpt tells what was said.
_DROP_PINS = """
DELETE FROM pins WHERE repo = ? AND thread = ? AND (seq IN $numbers OR message_id IN $texts)
"""
_DROP_MESSAGES = "DELETE FROM messages WHERE $also repo = ? AND no IN $numbers"
_COUNT = "UPDATE threads SET erased = erased + ? WHERE $also repo = ? AND no = ?"
_REST_OF_THREAD = ("goals", "pins", "outcomes", "surfaced")
_BEGIN_ANEW = """
UPDATE threads SET epoch = epoch + 1, epoch_start = next_seq, boundary = next_seq
WHERE $also repo = ? AND no = ?
"""


def whole_units(
    tx: Tx, repo: int, thread: int, seqs: Iterable[int], unreadable: Passed
) -> set[int]:
    """*seqs* of a thread, with the rest of the tool groups and of the items that they are of."""
    wanted = set(seqs)
    found = messages_at(tx, repo, thread, wanted, unreadable)
    units = Around(tx, repo, thread, passed=unreadable).units(found)
    return wanted.union(message.seq for unit in units for message in unit.messages)


def messages_of(
    tx: Tx, repo: int, thread: int, seqs: Sequence[int] | None, limit: int
) -> list[StoredMessage]:
    """The first messages of a thread, or of these *seqs*; damaged ones are left out."""
    if seqs is not None:
        return messages_at(tx, repo, thread, seqs, [])
    return MESSAGES.rows.all(tx.run(_FIRST, (repo, thread, limit)), [])


def ids_at(tx: Tx, repo: int, places: Iterable[tuple[int, int]]) -> dict[str, set[str]]:
    """The ids of the messages at these places, by the id of their thread."""
    found = {}
    for thread, seqs in by_thread(places).items():
        (id,) = tx.run(THREAD_ID, (repo, thread)).fetchone()
        found[id] = {row[-1] for row in tx.run(_MESSAGES, (repo, thread, listed(seqs)))}
    return found


def by_thread(places: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    seqs = defaultdict[int, list[int]](list)
    for thread, seq in places:
        seqs[thread].append(seq)
    return seqs


def erase_messages(
    tx: Tx, repo: int, places: Iterable[tuple[int, int]], *, expired: bool = False
) -> ErasureReport:
    """Erase the messages at these places (thread's number, seq), those that are there."""
    erased, wanted = ErasureReport(), by_thread(places)
    rows = {
        no: tx.run(_MESSAGES, (repo, no, listed(seqs))).fetchall() for no, seqs in wanted.items()
    }
    # Of all threads at once: what is kept of them is looked through for each call.
    documents = [message_document(row[0]) for some in rows.values() for row in some]
    leave_recall(tx, repo, documents, expired=expired)
    for thread, messages in rows.items():
        if messages:
            held = {table: _held(tx, table, (repo, thread), wanted[thread]) for table in _RANGES}
            erased += _erase(tx, repo, thread, messages, held)
    return erased


def _held(
    tx: Tx, table: str, thread: tuple[int, int], seqs: Iterable[int]
) -> list[tuple[int, str]]:
    """Number and id of the ranges that held one of *seqs*, or are damaged: they may have."""
    ordered = sorted(seqs)

    def spares(first: object, last: object) -> bool:
        if not isinstance(first, int) or not isinstance(last, int):
            return False
        at = bisect_left(ordered, first)
        return at == len(ordered) or ordered[at] > last

    rows = tx.run(_RANGES[table], thread)
    return [(no, id) for no, id, *ends in rows if not spares(*ends)]


def erase_thread(tx: Tx, repo: int, thread: int) -> ErasureReport:
    """Erase all messages of a thread and all that was derived; the thread begins anew."""
    unindex_thread(tx, repo, thread)
    counts = {
        table: tx.run(f"DELETE FROM {table} WHERE repo = ? AND thread = ?", (repo, thread)).rowcount
        for table in _REST_OF_THREAD
    }
    if any(counts.values()):
        # Not all of these are counted in a report, which may say that nothing was there.
        tx.dialect.note_erased(tx)
    rows = tx.run(_MESSAGES_OF_THREAD, (repo, thread)).fetchall()
    leave_recall(tx, repo, [message_document(row[0]) for row in rows])
    held = {
        table: [row[:2] for row in tx.run(query, (repo, thread))]
        for table, query in _RANGES.items()
    }
    erased = _erase(tx, repo, thread, rows, held)
    tx.run(_BEGIN_ANEW, (repo, thread))
    return replace(erased, pins=counts["pins"], goals=counts["goals"])


def _erase(
    tx: Tx,
    repo: int,
    thread: int,
    messages: Sequence[tuple[int, int, str]],
    held: Mapping[str, Sequence[tuple[int, str]]],
) -> ErasureReport:
    """
    Delete rows (no, seq, id) of a thread, which have left recall, and by table what was derived
    (no, id).
    """
    numbers = listed(row[0] for row in messages)
    ids, snapshots = [row[-1] for row in messages], held["snapshots"]
    remember_messages(tx, [(thread, id) for id in ids])
    (stream,) = tx.run(THREAD_ID, (repo, thread)).fetchone()
    erase_showing(tx, repo, [(stream, id) for id in (*ids, *(id for _, id in snapshots))])
    tx.run(_FORGET_ERROR, (repo, stream))
    _drop_calls(tx, repo, numbers)
    documents = [message_document(row[0]) for row in messages]
    keys = [f"{document}{end}" for document in documents for end in SIDE_KEYS]
    vectors = drop_vectors(tx, repo, keys)
    tx.run(_DROP_MOVING, (repo, listed(keys)))
    texts = [*(message_row(row[0]) for row in messages), *(snapshot_row(no) for no, _ in snapshots)]
    tx.run(_COUNT, (len(messages), repo, thread))
    return ErasureReport(
        fulltext_rows=drop_texts(tx, repo, texts),
        vectors=vectors,
        pins=tx.run(
            _DROP_PINS, (repo, thread, listed(row[1] for row in messages), listed(ids))
        ).rowcount,
        compactions=_drop_ranges(tx, "compactions", (repo, thread), held["compactions"]),
        snapshots=_drop_ranges(tx, "snapshots", (repo, thread), snapshots),
        messages=tx.run(_DROP_MESSAGES, (repo, numbers)).rowcount,
    )


def thread_number(tx: Tx, repo: int, id: str) -> int:
    """The thread's row number; 0: nobody wrote to it yet."""
    row = tx.run(_FIND_THREAD, (repo, id)).fetchone()
    return 0 if row is None else int(row[0])


def _drop_ranges(
    tx: Tx, table: str, thread: tuple[int, int], held: Sequence[tuple[int, str]]
) -> int:
    if not held:
        return 0
    for statement in _LET_GO[table]:
        tx.run(statement, (*thread, listed(id for _, id in held)))
    numbers = listed(no for no, _ in held)
    return tx.run(_DROP_RANGES.format(table), (thread[0], numbers)).rowcount


def _drop_calls(tx: Tx, repo: int, numbers: str) -> None:
    """Forget who makes the erased calls; of a damaged message by looking through its thread."""
    for row in tx.run(_CALLING, (repo, numbers)).fetchall():
        damaged: Passed = []
        for calls in CALLS.all([row], damaged):
            tx.run_many(_DROP_CALL, calls)
        if damaged:
            tx.run(_DROP_CALLS, row[:3])


# ── What surfaced by itself ──────────────────────────────────────────────────────────


_SHOWN_AT = """
SELECT shown FROM surfaced WHERE repo = ? AND thread = ? AND epoch = ? AND seq = ?
"""
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
_SHOWN_IN = "SELECT epoch, seq, shown FROM surfaced WHERE repo = ? AND thread = ?"
_DROP_SURFACED = """
DELETE FROM surfaced WHERE repo = ? AND thread = ? AND epoch = ? AND seq = ?
"""


def index_shown(tx: Tx, repo: int, thread: int, value: Surfaced) -> None:
    """Index what *value* shows, in the place of its stored row; call it before the upsert."""
    unindex_shown(tx, repo, thread, value)
    place = (thread, value.epoch, value.seq)
    tx.run_many(_ADD, [(repo, *record, *place) for record in value.shown])


def unindex_shown(tx: Tx, repo: int, thread: int, value: Surfaced) -> None:
    """Unindex what the stored row of this place shows; call it before the deletion."""
    place = (thread, value.epoch, value.seq)
    for row in tx.run(_SHOWN_AT, (repo, *place)).fetchall():
        _unindex(tx, repo, place, row[0])


def unindex_thread(tx: Tx, repo: int, thread: int) -> None:
    """Unindex what the rows of a thread show; call it before their deletion."""
    for *place, shown in tx.run(_SHOWN_IN, (repo, thread)).fetchall():
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
        (shown,) = tx.run(_SHOWN_AT, (repo, *place)).fetchone()
        _unindex(tx, repo, place, shown)
        tx.run(_DROP_SURFACED, (repo, *place))

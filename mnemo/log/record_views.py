"""What lies around a record, on SQLite: its neighbours, and the snapshots beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from mnemo.errors import Conflict, NotFound
from mnemo.log.record_rows import (
    HALF_COLUMNS,
    HALVES,
    Expiry,
)
from mnemo.store.damage import Passed, Rows, log_passed
from mnemo.store.rows import repo_row
from mnemo.store.tables import MESSAGE_COLUMNS, MESSAGES, SNAPSHOTS
from mnemo.store.tx import Tx
from mnemo.values.records import (
    SNAPSHOTS_BESIDE,
    Record,
    Surroundings,
    ViewQuery,
    message_record,
    snapshot_record,
)

_SIDES = {"observation": 0, "action": 1}
_STEP = f"""
SELECT {HALF_COLUMNS}, t.session, t.episode, t.idx
FROM steps t JOIN sessions s ON s.no = t.session WHERE t.repo = ? AND t.node_id = ?
"""
# By its episodes, each of which has its steps in order.
_STEPS_BESIDE = f"""
SELECT {HALF_COLUMNS} FROM sessions s $join episodes e ON e.session = s.no
$join steps t ON t.episode = e.no
WHERE s.no = ? AND (e.no, t.idx) {{}} (?, ?) ORDER BY e.no {{}}, t.idx {{}} LIMIT ?
"""
_STREAMS = """
SELECT t.no, t.id, t.ttl_s, m.recorded_at, m.seq FROM threads t
$join messages m $by(messages_id) ON m.thread = t.no
WHERE t.repo = ? AND m.id = ? AND (CAST(? AS TEXT) IS NULL OR t.id = ?)
"""
_SNAPSHOT_STREAMS = """
SELECT t.no, t.id, t.ttl_s, (
    SELECT o.recorded_at FROM messages o WHERE o.thread = n.thread
    AND o.seq BETWEEN n.from_seq AND n.to_seq ORDER BY o.seq LIMIT 1), n.no
FROM snapshots n $join threads t ON t.no = n.thread
WHERE t.repo = ? AND n.id = ? AND (CAST(? AS TEXT) IS NULL OR t.id = ?)
"""
_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS} FROM threads t $join messages m $by(messages_place)
ON m.thread = t.no WHERE t.no = ? AND m.seq BETWEEN ? AND ? AND m.recorded_at >= ?
ORDER BY m.seq {{}} LIMIT ?
"""
_SNAPSHOTS = f"SELECT {SNAPSHOTS.of('n')} FROM snapshots n "
# Of what another one contains only that one counts, if it lies on the same side.
_UNCONTAINED = """
AND NOT EXISTS (
    SELECT 1 FROM snapshots o $by(snapshots_range) WHERE o.thread = n.thread
    AND o.epoch = n.epoch AND o.from_seq <= n.from_seq AND o.to_seq >= n.to_seq
    AND o.level = 2 AND (n.level = 1 OR o.from_seq < n.from_seq OR o.to_seq > n.to_seq)
    AND {side})
AND coalesce((SELECT o.recorded_at FROM messages o WHERE o.thread = n.thread
              AND o.seq BETWEEN n.from_seq AND n.to_seq ORDER BY o.seq LIMIT 1), ?) >= ?
"""
_BEFORE = (
    _SNAPSHOTS
    + "$by(snapshots_range) WHERE n.thread = ? AND n.epoch = ? AND n.to_seq < ? "
    + _UNCONTAINED.format(side="o.to_seq < ?")
    + "ORDER BY n.from_seq DESC LIMIT ?"
)
_AFTER = (
    _SNAPSHOTS
    + "$by(snapshots_range) WHERE n.thread = ? AND n.epoch = ? AND n.from_seq > ? "
    + _UNCONTAINED.format(side="o.from_seq > ?")
    + "ORDER BY n.from_seq LIMIT ?"
)
_LAST_SEQ = 2**63 - 1
_THREADS: Rows[tuple[Any, ...]] = Rows("threads", "i s f? s? i", tuple, key=(1,))
"""Number, id and time to live of a thread, when the record was made, and its place."""

_Look = Callable[[], Surroundings]


def around(tx: Tx, repo_id: str, wanted: ViewQuery, expiry: Expiry) -> Surroundings:
    """
    A record with its nearest neighbours, and the snapshots beside them.

    Raises:
        NotFound: There is no such record.
        Conflict: Several threads have a record of this id.
    """
    repo = repo_row(tx, repo_id)[0]
    found = [
        *_in_sessions(tx, repo, wanted),
        *_in_threads(tx, repo, wanted, expiry),
        *_among_snapshots(tx, repo, wanted, expiry),
    ]
    if not found:
        raise NotFound("message", wanted.message_id)
    if len(found) > 1:
        _refuse(wanted.message_id, [stream for stream, _ in found])
    return found[0][1]()


def _refuse(id: str, streams: Sequence[str]) -> NoReturn:
    names = ", ".join(map(repr, sorted(streams)))
    raise Conflict(f"message {id!r} is in several threads ({names}); say which by session_id")


# ── Steps ────────────────────────────────────────────────────────────────────────────


def _in_sessions(tx: Tx, repo: int, wanted: ViewQuery) -> list[tuple[str, _Look]]:
    node_id, _, part = wanted.message_id.rpartition("/")
    if part not in _SIDES:
        return []
    row = tx.run(_STEP, (repo, node_id)).fetchone()
    target = HALVES.one(row)[_SIDES[part]] if row else None
    if target is None or wanted.session_id not in (None, target.session_id):
        return []
    return [(target.session_id, partial(_around_step, tx, row, target, wanted))]


def _around_step(tx: Tx, row: Sequence[Any], target: Record, wanted: ViewQuery) -> Surroundings:
    place = row[-3:]
    own = [half for half in HALVES.one(row) if half]
    earlier = _halves(tx, _STEPS_BESIDE.format("<", "DESC", "DESC"), place, wanted.before)
    later = _halves(tx, _STEPS_BESIDE.format(">", "", ""), place, wanted.after)
    halves = sorted([*earlier, *own, *later], key=lambda half: half.seq)
    at = halves.index(target)
    return Surroundings(
        target=target,
        before=tuple(halves[max(at - wanted.before, 0) : at]),
        after=tuple(halves[at + 1 : at + 1 + wanted.after]),
        last_seq=target.seq,
    )


def _halves(tx: Tx, statement: str, place: Sequence[int], limit: int) -> list[Record]:
    passed: Passed = []
    rows = HALVES.all(tx.run(statement, (*place, limit)), passed)
    log_passed(passed)
    return [half for halves in rows for half in halves if half]


# ── Messages and snapshots ───────────────────────────────────────────────────────────


def _in_threads(tx: Tx, repo: int, wanted: ViewQuery, expiry: Expiry) -> list[tuple[str, _Look]]:
    values = (repo, wanted.message_id, wanted.session_id, wanted.session_id)
    rows = _THREADS.all(tx.run(_STREAMS, values).fetchall())
    return [
        (id, partial(_around_message, tx, thread, seq, wanted, expiry.since(ttl_s)))
        for thread, id, ttl_s, recorded_at, seq in rows
        if recorded_at >= expiry.since(ttl_s)
    ]


def _around_message(tx: Tx, thread: int, seq: int, wanted: ViewQuery, since: str) -> Surroundings:
    (found,) = tx.run(_MESSAGES.format(""), (thread, seq, seq, since, 1))
    target = MESSAGES.rows.one(found)
    before = _messages(tx, thread, (0, seq - 1), since, -wanted.before)
    after = _messages(tx, thread, (seq + 1, _LAST_SEQ), since, wanted.after)
    record = message_record(target)
    return _surroundings(tx, thread, target.epoch, record, before, after, seq, since)


def _among_snapshots(
    tx: Tx, repo: int, wanted: ViewQuery, expiry: Expiry
) -> list[tuple[str, _Look]]:
    values = (repo, wanted.message_id, wanted.session_id, wanted.session_id)
    rows = _THREADS.all(tx.run(_SNAPSHOT_STREAMS, values).fetchall())
    return [
        (id, partial(_around_snapshot, tx, (thread, id, no), wanted, expiry.since(ttl_s)))
        for thread, id, ttl_s, recorded_at, no in rows
        if recorded_at is None or recorded_at >= expiry.since(ttl_s)
    ]


def _around_snapshot(
    tx: Tx, place: tuple[int, str, int], wanted: ViewQuery, since: str
) -> Surroundings:
    thread, id, no = place
    row = tx.run(f"{_SNAPSHOTS} WHERE n.no = ?", (no,)).fetchone()
    target = SNAPSHOTS.rows.one((id, *row))
    before = _messages(tx, thread, (0, target.from_seq - 1), since, -wanted.before)
    after = _messages(tx, thread, (target.from_seq, target.to_seq), since, wanted.after)
    record, last = snapshot_record(target), target.to_seq
    return _surroundings(tx, thread, target.epoch, record, before, after, last, since)


def _messages(tx: Tx, thread: int, seqs: tuple[int, int], since: str, count: int) -> list[Record]:
    """The first *count* messages of the range; the last ones if it is negative."""
    statement = _MESSAGES.format("DESC" if count < 0 else "")
    rows = tx.run(statement, (thread, *seqs, since, abs(count)))
    passed: Passed = []
    found = [message_record(message) for message in MESSAGES.rows.all(rows, passed)]
    log_passed(passed)
    return found[::-1] if count < 0 else found


def _surroundings(
    tx: Tx,
    thread: int,
    epoch: int,
    target: Record,
    before: Sequence[Record],
    after: Sequence[Record],
    last_seq: int,
    since: str,
) -> Surroundings:
    first = before[0].seq if before else target.seq
    last = max(after[-1].seq if after else target.seq, last_seq)
    beside = [
        tx.run(statement, (thread, epoch, edge, edge, since, since, SNAPSHOTS_BESIDE)).fetchall()
        for statement, edge in ((_BEFORE, first), (_AFTER, last))
    ]
    rows = SNAPSHOTS.rows
    passed: Passed = []
    snapshots = [rows.all(((target.session_id, *r) for r in some), passed) for some in beside]
    log_passed(passed)
    return Surroundings(
        target=target,
        before=tuple(before),
        after=tuple(after),
        last_seq=last_seq,
        snapshots_before=tuple(reversed(snapshots[0])),
        snapshots_after=tuple(snapshots[1]),
    )

"""The rows of the full text, what each is the text of, and what lies around that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, NoReturn

from mnemo.errors import Conflict, NotFound
from mnemo.runtime.text import is_blank
from mnemo.store.rows import Rows, listed, repo_row
from mnemo.store.tables import MESSAGE_COLUMNS, MESSAGES, SNAPSHOTS
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_time, utc_text
from mnemo.values.derived import alive_since
from mnemo.values.records import (
    SNAPSHOTS_BESIDE,
    Hidden,
    Ranking,
    Record,
    Surroundings,
    ViewQuery,
    message_record,
    snapshot_record,
)


def step_row(ordinal: int, side: int) -> int:
    """The row of a step's half: *side* 0 is the observation, 1 the action."""
    return 4 * ordinal + side


def message_row(no: int) -> int:
    return 4 * no + 2


def snapshot_row(no: int) -> int:
    return 4 * no + 3


_OF_REPO = "coalesce(p.repo, t.repo) = ?"
_OF_STREAM = "? IN (coalesce(s.id, t.id), p.thread)"
_NOT_LAST_STEPS = """
NOT EXISTS (
    SELECT 1 FROM (
        SELECT i.ordinal, i.thread, i.message FROM sessions h
        $join episodes e ON e.repo = h.repo AND e.session = h.no
        $join steps i ON i.repo = e.repo AND i.episode = e.no
        WHERE h.repo = ? AND h.id = ? ORDER BY e.no DESC, i.idx DESC LIMIT ?) l
    WHERE l.ordinal = p.ordinal
    OR (l.thread = coalesce(t.id, q.id) AND l.message = coalesce(m.id, o.id)))
"""
_NOT_FROM_SEQ = """
NOT (coalesce(t.id, q.id, '') = ? AND coalesce(m.seq, o.seq, -1) >= ?
     AND coalesce(m.recorded_at, o.recorded_at) >= ?)
"""
_NOT_THESE = "NOT (coalesce(t.id, '') = ? AND n.id IS NOT NULL AND n.id IN $texts)"
_EPOCH = "coalesce(m.epoch, n.epoch, o.epoch)"
_THIS_EPOCH = f"({_EPOCH} IS NULL OR {_EPOCH} = coalesce(t.epoch, q.epoch))"

HALF_COLUMNS = "t.ordinal, t.node_id, s.id, t.at, t.actor, t.observation, t.action"
"""What ``HALVES`` expects, of ``steps t`` and ``sessions s``."""
_STEPS = f"""
SELECT {HALF_COLUMNS} FROM steps t JOIN sessions s ON s.no = t.session AND $also s.repo = t.repo
WHERE $also t.repo = ? AND t.ordinal IN $numbers
"""
_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS}, m.no FROM messages m
$join threads t ON t.no = m.thread AND $also t.repo = m.repo
WHERE $also m.repo = ? AND m.no IN $numbers
"""
_SNAPSHOTS = f"""
SELECT n.no, t.id, {SNAPSHOTS.of("n")} FROM snapshots n
$join threads t ON t.no = n.thread AND $also t.repo = n.repo
WHERE $also n.repo = ? AND n.no IN $numbers
"""

PARTS = ("observation", "action")


class Lean(NamedTuple):
    """
    A row that matches, as far as it takes to rank it. Of a step that repeats a stored message
    *message_thread*, its id, *message_seq* and *message_no* are of that.
    """

    row: int
    relevance: float
    at: datetime
    stream: str
    seq: int
    ttl_s: float | None
    recorded_at: str | None
    message_thread: str
    message_seq: int
    message_no: int | None

    def order(self, ranking: Ranking) -> tuple[float, float, str, int]:
        """Smallest first."""
        return ranking.order(self.relevance, self.at, self.stream, self.seq)


LEANS = Rows(
    "records",
    "i f s s i f? s? s i i?",
    lambda row: Lean(row[0], row[1], decode_time(row[2]), *row[3:10]),
)
"""Rows that match, of row, relevance and ``LEAN``; a row is named by its place in the full text."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """Which messages live at *now*; *known* remembers what each time to live comes to."""

    now: datetime
    default_ttl_s: float | None
    known: dict[float | None, str] = field(default_factory=dict)

    def since(self, ttl_s: float | None) -> str:
        """What was recorded before this text is expired."""
        if ttl_s not in self.known:
            alive = alive_since(ttl_s, self.default_ttl_s, self.now)
            self.known[ttl_s] = "" if alive is None else utc_text(alive)
        return self.known[ttl_s]

    def living(self, lean: Lean) -> Lean | None:
        """
        The row of the record that *lean* is shown as; ``None`` if that is expired. A step that
        repeats a message is shown as the message while that lives, and as itself afterwards.
        """
        lives = lean.recorded_at is None or lean.recorded_at >= self.since(lean.ttl_s)
        if lean.message_no is None:
            return lean if lives else None
        if not lives:
            return lean
        row = message_row(lean.message_no)
        return lean._replace(row=row, stream=lean.message_thread, seq=lean.message_seq)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows of a full text are looked at; a condition on ``BASE`` with its values."""

    condition: str
    values: tuple[Any, ...]

    @classmethod
    def of(
        cls, repo: int, *, stream: str | None, hidden: Hidden | None, this_epoch: bool = False
    ) -> Scope:
        """Of the repository; of one stream if given; without what is hidden."""
        conditions: list[tuple[str, tuple[Any, ...]]] = [(_OF_REPO, (repo,))]
        if stream is not None:
            conditions.append((_OF_STREAM, (stream,)))
        if hidden is not None:
            conditions += _hiding(repo, hidden)
        if this_epoch:
            conditions.append((_THIS_EPOCH, ()))
        text = " AND ".join(condition for condition, _ in conditions)
        return cls(text, tuple(value for _, values in conditions for value in values))


def _hiding(repo: int, hidden: Hidden) -> Iterable[tuple[str, tuple[Any, ...]]]:
    stream = hidden.stream
    if hidden.last_steps:
        yield _NOT_LAST_STEPS, (repo, stream, hidden.last_steps)
    if hidden.message_seq is not None:
        since = utc_text(hidden.message_since) if hidden.message_since else ""
        yield _NOT_FROM_SEQ, (stream, hidden.message_seq, since)
    if hidden.ids:
        yield _NOT_THESE, (stream, json.dumps(sorted(hidden.ids)))


# ── Records ──────────────────────────────────────────────────────────────────────────


def _halves(row: Sequence[Any]) -> tuple[Record | None, Record | None]:
    return _half(row, 0), _half(row, 1)


def _half(row: Sequence[Any], side: int) -> Record | None:
    ordinal, node_id, session, at, actor = row[:5]
    text = row[5 + side]
    if is_blank(text):
        return None
    return Record(
        message_id=f"{node_id}/{PARTS[side]}",
        session_id=session,
        seq=2 * ordinal + side,
        kind="action" if side else "observation",
        at=decode_time(at),
        actor=actor,
        text=text,
    )


HALVES = Rows("steps", "i s s s s s s", _halves, key=(1,))
"""The halves of steps, of rows with ``HALF_COLUMNS``; ``None``: nothing was said there."""


def read_records(tx: Tx, repo: int, rows: Iterable[int]) -> dict[int, Record]:
    """The records of these rows of the repository's full text; damaged ones are passed by."""
    numbers: tuple[set[int], ...] = (set(), set(), set(), set())
    for row in rows:
        numbers[row & 3].add(row >> 2)
    found: dict[int, Record] = {}
    if ordinals := numbers[0] | numbers[1]:
        for halves in HALVES.intact(tx.run(_STEPS, (repo, listed(ordinals)))):
            found |= {2 * one.seq - (one.seq & 1): one for one in halves if one is not None}
    if numbers[2]:
        for row in tx.run(_MESSAGES, (repo, listed(numbers[2]))):
            found |= {message_row(row[-1]): message_record(m) for m in MESSAGES.rows.intact([row])}
    if numbers[3]:
        for no, *row in tx.run(_SNAPSHOTS, (repo, listed(numbers[3]))):
            found |= {snapshot_row(no): snapshot_record(s) for s in SNAPSHOTS.rows.intact([row])}
    return found


# ── What lies around a record ────────────────────────────────────────────────────────


_SIDES = {"observation": 0, "action": 1}
_STEP = f"""
SELECT {HALF_COLUMNS}, t.repo, t.session, t.episode, t.idx
FROM steps t JOIN sessions s ON s.no = t.session AND $also s.repo = t.repo
WHERE t.repo = ? AND t.node_id = ?
"""
# By its episodes, each of which has its steps in order; the sign keeps SQLite from reading a range
# of all steps instead.
_STEPS_BESIDE = f"""
SELECT {HALF_COLUMNS} FROM sessions s
$join episodes e ON e.repo = s.repo AND e.session = s.no
$join steps t ON t.repo = e.repo AND t.episode = +e.no
WHERE $also s.repo = ? AND s.no = ? AND (e.no, t.idx) {{}} (?, ?)
ORDER BY e.no {{}}, t.idx {{}} LIMIT ?
"""
_STREAMS = """
SELECT t.no, t.id, t.ttl_s, m.recorded_at, m.seq FROM threads t
$join messages m $by(messages_id) ON m.repo = t.repo AND m.thread = t.no
WHERE t.repo = ? AND m.id = ? AND (CAST(? AS TEXT) IS NULL OR t.id = ?)
"""
_SNAPSHOT_STREAMS = """
SELECT t.no, t.id, t.ttl_s, (
    SELECT o.recorded_at FROM messages o WHERE o.repo = n.repo AND o.thread = n.thread
    AND o.seq BETWEEN n.from_seq AND n.to_seq ORDER BY o.seq LIMIT 1), n.no
FROM snapshots n $by(snapshots_id)
$join threads t ON t.no = n.thread AND $also t.repo = n.repo
WHERE n.repo = ? AND n.id = ? AND (CAST(? AS TEXT) IS NULL OR t.id = ?)
"""
# ``$join`` keeps the order: the one thread, then its messages by an index.
OF_THREAD = f"""
SELECT {MESSAGE_COLUMNS} FROM threads t $join messages m {{index}}
ON m.repo = t.repo AND m.thread = t.no WHERE $also t.repo = ? AND t.no = ?
"""
BY_PLACE = OF_THREAD.format(index="$by(messages_place)")
MESSAGES_BESIDE = (
    BY_PLACE + "AND m.seq BETWEEN ? AND ? AND m.recorded_at >= ? ORDER BY m.seq {} LIMIT ?"
)
_SNAPSHOTS_BESIDE = f"SELECT {SNAPSHOTS.of('n')} FROM snapshots n "
# Of what another one contains only that one counts, if it lies on the same side.
_UNCONTAINED = """
AND NOT EXISTS (
    SELECT 1 FROM snapshots o $by(snapshots_range) WHERE o.repo = n.repo AND o.thread = n.thread
    AND o.epoch = n.epoch AND o.from_seq <= n.from_seq AND o.to_seq >= n.to_seq
    AND o.level = 2 AND (n.level = 1 OR o.from_seq < n.from_seq OR o.to_seq > n.to_seq)
    AND {side})
AND coalesce((SELECT o.recorded_at FROM messages o WHERE o.repo = n.repo
              AND o.thread = n.thread AND o.seq BETWEEN n.from_seq AND n.to_seq
              ORDER BY o.seq LIMIT 1), ?) >= ?
"""
_BEFORE = (
    _SNAPSHOTS_BESIDE
    + "$by(snapshots_range) WHERE n.repo = ? AND n.thread = ? AND n.epoch = ? AND n.to_seq < ? "
    + _UNCONTAINED.format(side="o.to_seq < ?")
    + "ORDER BY n.from_seq DESC LIMIT ?"
)
_AFTER = (
    _SNAPSHOTS_BESIDE
    + "$by(snapshots_range) WHERE n.repo = ? AND n.thread = ? AND n.epoch = ? AND n.from_seq > ? "
    + _UNCONTAINED.format(side="o.from_seq > ?")
    + "ORDER BY n.from_seq LIMIT ?"
)
LAST_SEQ = 2**63 - 1
"""The last that a column holds; whoever asks beyond it asks for nothing."""
_THREADS: Rows[tuple[Any, ...]] = Rows("threads", "i s f? s? i", tuple, key=(1,))
"""Number, id and time to live of a thread, when the record was made, and its place."""

_Look = Callable[[], Surroundings]


def around(tx: Tx, repo_id: str, wanted: ViewQuery, expiry: Expiry) -> Surroundings:
    """
    A record with its nearest neighbours, and the snapshots beside them.

    *Raises* ``NotFound``: there is no such record; ``Conflict``: several threads have a record of
    this id.
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
    place = row[-4:]
    own = [half for half in HALVES.one(row) if half]
    earlier = _halves_beside(tx, _STEPS_BESIDE.format("<", "DESC", "DESC"), place, wanted.before)
    later = _halves_beside(tx, _STEPS_BESIDE.format(">", "", ""), place, wanted.after)
    halves = sorted([*earlier, *own, *later], key=lambda half: half.seq)
    at = halves.index(target)
    return Surroundings(
        target=target,
        before=tuple(halves[max(at - wanted.before, 0) : at]),
        after=tuple(halves[at + 1 : at + 1 + wanted.after]),
        last_seq=target.seq,
    )


def _halves_beside(tx: Tx, statement: str, place: Sequence[int], limit: int) -> list[Record]:
    rows = HALVES.intact(tx.run(statement, (*place, limit)))
    return [half for halves in rows for half in halves if half]


# ── Messages and snapshots ───────────────────────────────────────────────────────────


def _in_threads(tx: Tx, repo: int, wanted: ViewQuery, expiry: Expiry) -> list[tuple[str, _Look]]:
    values = (repo, wanted.message_id, wanted.session_id, wanted.session_id)
    rows = _THREADS.all(tx.run(_STREAMS, values).fetchall())
    return [
        (id, partial(_around_message, tx, (repo, thread), seq, wanted, expiry.since(ttl_s)))
        for thread, id, ttl_s, recorded_at, seq in rows
        if recorded_at >= expiry.since(ttl_s)
    ]


def _around_message(
    tx: Tx, thread: tuple[int, int], seq: int, wanted: ViewQuery, since: str
) -> Surroundings:
    (found,) = tx.run(MESSAGES_BESIDE.format(""), (*thread, seq, seq, since, 1))
    target = MESSAGES.rows.one(found)
    before = _messages(tx, thread, (0, seq - 1), since, -wanted.before)
    after = _messages(tx, thread, (seq + 1, LAST_SEQ), since, wanted.after)
    record = message_record(target)
    return _surroundings(tx, thread, target.epoch, record, before, after, seq, since)


def _among_snapshots(
    tx: Tx, repo: int, wanted: ViewQuery, expiry: Expiry
) -> list[tuple[str, _Look]]:
    values = (repo, wanted.message_id, wanted.session_id, wanted.session_id)
    rows = _THREADS.all(tx.run(_SNAPSHOT_STREAMS, values).fetchall())
    return [
        (id, partial(_around_snapshot, tx, (repo, thread), (id, no), wanted, expiry.since(ttl_s)))
        for thread, id, ttl_s, recorded_at, no in rows
        if recorded_at is None or recorded_at >= expiry.since(ttl_s)
    ]


def _around_snapshot(
    tx: Tx, thread: tuple[int, int], named: tuple[str, int], wanted: ViewQuery, since: str
) -> Surroundings:
    id, no = named
    row = tx.run(
        f"{_SNAPSHOTS_BESIDE} WHERE n.no = ? AND $also n.repo = ?", (no, thread[0])
    ).fetchone()
    target = SNAPSHOTS.rows.one((id, *row))
    before = _messages(tx, thread, (0, target.from_seq - 1), since, -wanted.before)
    after = _messages(tx, thread, (target.from_seq, target.to_seq), since, wanted.after)
    record, last = snapshot_record(target), target.to_seq
    return _surroundings(tx, thread, target.epoch, record, before, after, last, since)


def _messages(
    tx: Tx, thread: tuple[int, int], seqs: tuple[int, int], since: str, count: int
) -> list[Record]:
    """The first *count* messages of the range; the last ones if it is negative."""
    statement = MESSAGES_BESIDE.format("DESC" if count < 0 else "")
    rows = tx.run(statement, (*thread, *seqs, since, abs(count)))
    found = [message_record(message) for message in MESSAGES.rows.intact(rows)]
    return found[::-1] if count < 0 else found


def _surroundings(
    tx: Tx,
    thread: tuple[int, int],
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
        tx.run(statement, (*thread, epoch, edge, edge, since, since, SNAPSHOTS_BESIDE)).fetchall()
        for statement, edge in ((_BEFORE, first), (_AFTER, last))
    ]
    rows = SNAPSHOTS.rows
    snapshots = [rows.intact((target.session_id, *r) for r in some) for some in beside]
    return Surroundings(
        target=target,
        before=tuple(before),
        after=tuple(after),
        last_seq=last_seq,
        snapshots_before=tuple(reversed(snapshots[0])),
        snapshots_after=tuple(snapshots[1]),
    )

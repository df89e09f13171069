"""The rows of the full text, and what each is the text of: a step's half, a message, a snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from mnemo.runtime.text import is_blank
from mnemo.store.codec import decode_time, utc_text
from mnemo.store.damage import Passed, Rows, log_passed
from mnemo.store.rows import chunks, holes, message_row
from mnemo.store.tables import MESSAGE_COLUMNS, MESSAGES, SNAPSHOTS
from mnemo.store.tx import Tx
from mnemo.values.derived import Thread
from mnemo.values.records import Hidden, Ranking, Record, message_record, snapshot_record

_OF_REPO = "coalesce(p.repo, t.repo) = ?"
_OF_STREAM = "? IN (coalesce(s.id, t.id), p.thread)"
_NOT_LAST_STEPS = """
NOT EXISTS (
    SELECT 1 FROM (
        SELECT i.ordinal, i.thread, i.message FROM sessions h
        $join episodes e ON e.session = h.no $join steps i ON i.episode = e.no
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
SELECT {HALF_COLUMNS} FROM steps t JOIN sessions s ON s.no = t.session WHERE t.ordinal IN ({{}})
"""
_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS}, m.no FROM messages m $join threads t ON t.no = m.thread
WHERE m.no IN ({{}})
"""
_SNAPSHOTS = """
SELECT n.no, t.id, {columns} FROM snapshots n $join threads t ON t.no = n.thread
WHERE n.no IN ({{}})
"""

PARTS = ("observation", "action")


class Lean(NamedTuple):
    """
    A row that matches, as far as it takes to rank it; see ``LEAN``.

    Attributes:
        message_thread: Of a step that repeats a stored message: the id of its thread;
            *message_seq* and *message_no* likewise.
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
            alive = Thread(id="-", ttl_s=ttl_s).alive_since(self.now, self.default_ttl_s)
            self.known[ttl_s] = "" if alive is None else utc_text(alive)
        return self.known[ttl_s]

    def living(self, lean: Lean) -> Lean | None:
        """
        The row of the record that *lean* is shown as; ``None`` if that is expired.

        A step that repeats a message is shown as the message while that lives, and as
        itself afterwards.
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


def read_records(tx: Tx, rows: Sequence[int]) -> dict[int, Record]:
    """The records of these rows of a full text; damaged ones are passed by."""
    found: dict[int, Record] = {}
    passed: Passed = []
    for read, sort in ((_read_halves, (0, 1)), (_read_messages, (2,)), (_read_snapshots, (3,))):
        for some in chunks(sorted({row >> 2 for row in rows if row & 3 in sort})):
            found |= read(tx, some, passed)
    log_passed(passed)
    return found


def _read_halves(tx: Tx, ordinals: Sequence[int], passed: Passed) -> dict[int, Record]:
    rows = tx.run(_STEPS.format(holes(ordinals)), ordinals)
    records = (half for halves in HALVES.all(rows, passed) for half in halves)
    return {2 * record.seq - (record.seq & 1): record for record in records if record is not None}


def _read_messages(tx: Tx, numbers: Sequence[int], passed: Passed) -> dict[int, Record]:
    found: dict[int, Record] = {}
    for row in tx.run(_MESSAGES.format(holes(numbers)), numbers):
        for message in MESSAGES.rows.all([row], passed):
            found[4 * row[-1] + 2] = message_record(message)
    return found


def _read_snapshots(tx: Tx, numbers: Sequence[int], passed: Passed) -> dict[int, Record]:
    query = _SNAPSHOTS.format(columns=SNAPSHOTS.of("n")).format(holes(numbers))
    found: dict[int, Record] = {}
    for no, *row in tx.run(query, numbers):
        for snapshot in SNAPSHOTS.rows.all([row], passed):
            found[4 * no + 3] = snapshot_record(snapshot)
    return found

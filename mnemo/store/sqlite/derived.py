"""What was derived from a thread's messages, as rows: one shelf for each kind."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mnemo.store.sqlite.codec import (
    decode_list,
    decode_time,
    encode_json,
    encode_time,
    stored_time,
)
from mnemo.store.sqlite.damage import Rows
from mnemo.transcript.derived import (
    Compaction,
    Derived,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
    Surfaced,
)

__all__ = ["Shelf", "decode_shown", "shelf_of"]

D = TypeVar("D", bound=Derived)


@dataclass(frozen=True, slots=True, eq=False)
class Shelf(Generic[D]):
    """
    How values of one kind are kept.

    Attributes:
        key: Columns that tell it from the others of its thread.
        order: Columns that it is ordered by, distinct within its thread.
        index: What finds the live ones in that order; none where all are live.
        values: Every column but the thread's, with its value.
        rows: Reads a thread's id and those columns, in that order.
    """

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]
    values: Callable[[D], tuple[Any, ...]]
    rows: Rows[D]
    live: str = ""
    index: str = ""

    def put(self, connection: sqlite3.Connection, thread: int, value: D) -> None:
        """Insert, or replace what has the same key."""
        names = ", ".join(self.columns)
        changed = ", ".join(f"{c} = excluded.{c}" for c in self.columns if c not in self.key)
        connection.execute(
            f"INSERT INTO {self.table} (thread, {names}) "
            f"VALUES (?{', ?' * len(self.columns)}) "
            f"ON CONFLICT (thread, {', '.join(self.key)}) DO UPDATE SET {changed}",
            (thread, *self.values(value)),
        )

    def drop(self, connection: sqlite3.Connection, thread: int, value: D) -> None:
        """Delete what has the same key."""
        connection.execute(
            f"DELETE FROM {self.table} WHERE {self._found}", (thread, *self.key_of(value))
        )

    def key_of(self, value: D) -> tuple[Any, ...]:
        """The values of its key."""
        named = dict(zip(self.columns, self.values(value), strict=True))
        return tuple(named[column] for column in self.key)

    @property
    def _found(self) -> str:
        return " AND ".join(f"{column} = ?" for column in ("thread", *self.key))

    def all(
        self,
        connection: sqlite3.Connection,
        thread: int,
        thread_id: str,
        *,
        epoch: int | None,
        live: bool,
        newest: int | None,
    ) -> list[D]:
        """Ascending; the last *newest* of those that the rest allows."""
        query, values = self.query(epoch=epoch, live=live, newest=newest), [thread]
        values += [value for value in (epoch, newest) if value is not None]
        rows = connection.execute(query, values)
        found = self.rows.all((thread_id, *row) for row in rows)
        return found if newest is None else found[::-1]

    def query(self, *, epoch: int | None, live: bool, newest: int | None) -> str:
        """The query of ``all``."""
        indexed = f"INDEXED BY {self.index} " if live and self.index else ""
        query = f"SELECT {', '.join(self.columns)} FROM {self.table} {indexed}WHERE thread = ?"
        if epoch is not None:
            query += " AND epoch = ?"
        if live and self.live:
            query += f" AND {self.live}"
        direction = "" if newest is None else " DESC"
        query += " ORDER BY " + ", ".join(column + direction for column in self.order)
        return query if newest is None else query + " LIMIT ?"


def shelf_of(kind: type[D]) -> Shelf[D]:
    """Where *kind* is kept."""
    return _SHELVES[kind]


def _compaction(value: Compaction) -> tuple[Any, ...]:
    places = (value.id, value.epoch, value.start_seq, value.end_seq, value.level)
    rest = (value.superseded_by, encode_time(value.at), value.summary_text)
    return (*places, value.origin, value.token_count, *rest)


def _read_compaction(
    thread_id: str,
    id: str,
    epoch: int,
    start_seq: int,
    end_seq: int,
    level: Any,
    origin: Any,
    tokens: int,
    superseded_by: str | None,
    at: str,
    text: str,
) -> Compaction:
    return Compaction(
        id=id,
        thread_id=thread_id,
        epoch=epoch,
        start_seq=start_seq,
        end_seq=end_seq,
        summary_text=text,
        token_count=tokens,
        level=level,
        origin=origin,
        at=stored_time(at),
        superseded_by=superseded_by,
    )


def _snapshot(value: Snapshot) -> tuple[Any, ...]:
    places = (value.id, value.epoch, value.from_seq, value.to_seq, value.level)
    said = (encode_time(value.said_from), encode_time(value.said_to))
    rest = (value.covered_by, encode_time(value.at), *said, value.text)
    return (*places, value.origin, value.token_count, *rest)


def _read_snapshot(
    thread_id: str,
    id: str,
    epoch: int,
    from_seq: int,
    to_seq: int,
    level: Any,
    origin: Any,
    tokens: int,
    covered_by: str | None,
    at: str,
    said_from: str,
    said_to: str,
    text: str,
) -> Snapshot:
    return Snapshot(
        id=id,
        thread_id=thread_id,
        epoch=epoch,
        level=level,
        from_seq=from_seq,
        to_seq=to_seq,
        text=text,
        token_count=tokens,
        origin=origin,
        at=stored_time(at),
        said_from=stored_time(said_from),
        said_to=stored_time(said_to),
        covered_by=covered_by,
    )


def _outcome(value: EvictionOutcome) -> tuple[Any, ...]:
    places = (value.epoch, value.from_seq, value.to_seq, value.kind)
    return (*places, value.snapshot_id, value.attempts, encode_time(value.at))


def _read_outcome(
    thread_id: str,
    epoch: int,
    from_seq: int,
    to_seq: int,
    kind: Any,
    snapshot_id: str | None,
    attempts: int,
    at: str,
) -> EvictionOutcome:
    return EvictionOutcome(
        thread_id=thread_id,
        epoch=epoch,
        from_seq=from_seq,
        to_seq=to_seq,
        kind=kind,
        snapshot_id=snapshot_id,
        attempts=attempts,
        at=stored_time(at),
    )


def _goal(value: Goal) -> tuple[Any, ...]:
    times = (encode_time(value.created_at), encode_time(value.completed_at))
    return (value.epoch, value.id, value.parent_id, value.status, *times, value.description)


def _read_goal(
    thread_id: str,
    epoch: int,
    id: int,
    parent_id: int | None,
    status: Any,
    created_at: str,
    completed_at: str | None,
    description: str,
) -> Goal:
    return Goal(
        thread_id=thread_id,
        epoch=epoch,
        id=id,
        parent_id=parent_id,
        description=description,
        status=status,
        created_at=stored_time(created_at),
        completed_at=decode_time(completed_at),
    )


def _pin(value: Pin) -> tuple[Any, ...]:
    goals = encode_json(list(value.goal_ids))
    return (value.epoch, value.seq, value.message_id, goals, value.token_count, value.excerpt)


def _read_pin(
    thread_id: str, epoch: int, seq: int, message_id: str, goals: str, tokens: int, excerpt: str
) -> Pin:
    return Pin(
        thread_id=thread_id,
        epoch=epoch,
        seq=seq,
        message_id=message_id,
        excerpt=excerpt,
        goal_ids=tuple(decode_list(goals, int)),
        token_count=tokens,
    )


def _surfaced(value: Surfaced) -> tuple[Any, ...]:
    shown, hits = encode_json(value.shown), encode_json(value.hits)
    return (value.epoch, value.seq, encode_time(value.at), shown, hits)


def decode_shown(text: str) -> tuple[tuple[str, str], ...]:
    """Stream and id of each record that surfaced. *Raises* ``ValueError`` for other JSON."""
    return tuple((str(stream), str(id)) for stream, id in decode_list(text, list))


def _read_surfaced(
    thread_id: str, epoch: int, seq: int, at: str, shown: str, hits: str
) -> Surfaced:
    return Surfaced(
        thread_id=thread_id,
        epoch=epoch,
        seq=seq,
        shown=decode_shown(shown),
        hits=tuple(decode_list(hits, dict)),
        at=stored_time(at),
    )


_COMPACTIONS = Shelf(
    "compactions",
    (
        *("id", "epoch", "start_seq", "end_seq", "level", "origin", "tokens"),
        *("superseded_by", "at", "text"),
    ),
    key=("id",),
    order=("epoch", "start_seq", "end_seq", "id"),
    values=_compaction,
    rows=Rows(
        "compactions", "s s i i i i s i s? s s", lambda row: _read_compaction(*row), key=(0, 1)
    ),
    live="superseded_by IS NULL",
    index="compactions_live",
)
_SNAPSHOTS = Shelf(
    "snapshots",
    (
        *("id", "epoch", "from_seq", "to_seq", "level", "origin", "tokens"),
        *("covered_by", "at", "said_from", "said_to", "text"),
    ),
    key=("id",),
    order=("epoch", "from_seq", "to_seq", "id"),
    values=_snapshot,
    rows=Rows(
        "snapshots", "s s i i i i s i s? s s s s", lambda row: _read_snapshot(*row), key=(0, 1)
    ),
    live="covered_by IS NULL",
    index="snapshots_live",
)
_OUTCOMES = Shelf(
    "outcomes",
    ("epoch", "from_seq", "to_seq", "kind", "snapshot_id", "attempts", "at"),
    key=("epoch", "from_seq"),
    order=("epoch", "from_seq"),
    values=_outcome,
    rows=Rows("outcomes", "s i i i s s? i s", lambda row: _read_outcome(*row), key=(0, 1, 2)),
)
_GOALS = Shelf(
    "goals",
    ("epoch", "id", "parent_id", "status", "created_at", "completed_at", "description"),
    key=("epoch", "id"),
    order=("epoch", "id"),
    values=_goal,
    rows=Rows("goals", "s i i i? s s s? s", lambda row: _read_goal(*row), key=(0, 1, 2)),
    live="status = 'active'",
    index="goals_active",
)
_PINS = Shelf(
    "pins",
    ("epoch", "seq", "message_id", "goal_ids", "tokens", "excerpt"),
    key=("epoch", "seq"),
    order=("epoch", "seq"),
    values=_pin,
    rows=Rows("pins", "s i i s s i s", lambda row: _read_pin(*row), key=(0, 1, 2)),
)
_SURFACED = Shelf(
    "surfaced",
    ("epoch", "seq", "at", "shown", "hits"),
    key=("epoch", "seq"),
    order=("epoch", "seq"),
    values=_surfaced,
    rows=Rows("surfaced", "s i i s s s", lambda row: _read_surfaced(*row), key=(0, 1, 2)),
)
_SHELVES: Mapping[type, Shelf[Any]] = {
    Compaction: _COMPACTIONS,
    Snapshot: _SNAPSHOTS,
    EvictionOutcome: _OUTCOMES,
    Goal: _GOALS,
    Pin: _PINS,
    Surfaced: _SURFACED,
}

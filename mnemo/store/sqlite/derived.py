"""What was derived from a thread's messages, as rows: one shelf for each kind."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from mnemo.store.sqlite.codec import decode_json, decode_time, encode_json, encode_time
from mnemo.transcript.derived import (
    Compaction,
    Derived,
    EvictionOutcome,
    Goal,
    Pin,
    Snapshot,
    Surfaced,
)

__all__ = ["SNAPSHOT_COLUMNS", "Shelf", "read_snapshot", "shelf_of"]

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
        read: The value of a thread's id and those columns, in that order.
    """

    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]
    values: Callable[[D], tuple[Any, ...]]
    read: Callable[..., D]
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
        found = [self.read(thread_id, *row) for row in rows]
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
        at=datetime.fromisoformat(at),
        superseded_by=superseded_by,
    )


def _snapshot(value: Snapshot) -> tuple[Any, ...]:
    places = (value.id, value.epoch, value.from_seq, value.to_seq, value.level)
    said = (encode_time(value.said_from), encode_time(value.said_to))
    rest = (value.covered_by, encode_time(value.at), *said, value.text)
    return (*places, value.origin, value.token_count, *rest)


def read_snapshot(
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
    """A snapshot of a thread's id and a row with ``SNAPSHOT_COLUMNS``."""
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
        at=datetime.fromisoformat(at),
        said_from=datetime.fromisoformat(said_from),
        said_to=datetime.fromisoformat(said_to),
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
        at=datetime.fromisoformat(at),
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
        created_at=datetime.fromisoformat(created_at),
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
        goal_ids=tuple(decode_json(goals)),
        token_count=tokens,
    )


def _surfaced(value: Surfaced) -> tuple[Any, ...]:
    shown, hits = encode_json(value.shown), encode_json(value.hits)
    return (value.epoch, value.seq, encode_time(value.at), shown, hits)


def _read_surfaced(
    thread_id: str, epoch: int, seq: int, at: str, shown: str, hits: str
) -> Surfaced:
    return Surfaced(
        thread_id=thread_id,
        epoch=epoch,
        seq=seq,
        shown=tuple((session_id, id) for session_id, id in decode_json(shown)),
        hits=tuple(decode_json(hits)),
        at=datetime.fromisoformat(at),
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
    read=_read_compaction,
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
    read=read_snapshot,
    live="covered_by IS NULL",
    index="snapshots_live",
)
SNAPSHOT_COLUMNS = ", ".join(f"s.{column}" for column in _SNAPSHOTS.columns)
"""What ``read_snapshot`` expects after a thread's id, of ``snapshots s``."""
_OUTCOMES = Shelf(
    "outcomes",
    ("epoch", "from_seq", "to_seq", "kind", "snapshot_id", "attempts", "at"),
    key=("epoch", "from_seq"),
    order=("epoch", "from_seq"),
    values=_outcome,
    read=_read_outcome,
)
_GOALS = Shelf(
    "goals",
    ("epoch", "id", "parent_id", "status", "created_at", "completed_at", "description"),
    key=("epoch", "id"),
    order=("epoch", "id"),
    values=_goal,
    read=_read_goal,
    live="status = 'active'",
    index="goals_active",
)
_PINS = Shelf(
    "pins",
    ("epoch", "seq", "message_id", "goal_ids", "tokens", "excerpt"),
    key=("epoch", "seq"),
    order=("epoch", "seq"),
    values=_pin,
    read=_read_pin,
)
_SURFACED = Shelf(
    "surfaced",
    ("epoch", "seq", "at", "shown", "hits"),
    key=("epoch", "seq"),
    order=("epoch", "seq"),
    values=_surfaced,
    read=_read_surfaced,
)
_SHELVES: Mapping[type, Shelf[Any]] = {
    Compaction: _COMPACTIONS,
    Snapshot: _SNAPSHOTS,
    EvictionOutcome: _OUTCOMES,
    Goal: _GOALS,
    Pin: _PINS,
    Surfaced: _SURFACED,
}

"""
What was derived from messages goes with them: as soon as they expire, not when they are swept.

A snapshot whose range held an expired message, and a pin on one, are not shown any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mnemo.protocols import TranscriptReader
from mnemo.transcript.derived import Pin, Snapshot

__all__ = ["living_pins", "living_snapshots"]


def living_pins(tx: TranscriptReader, pins: Sequence[Pin], since: datetime | None) -> list[Pin]:
    """Those of *pins* whose message was recorded at *since* or later."""
    if since is None:
        return list(pins)
    return [pin for pin in pins if _alive(tx, pin.thread_id, pin.seq, pin.seq, since)]


def living_snapshots(
    tx: TranscriptReader, snapshots: Sequence[Snapshot], since: datetime | None
) -> list[Snapshot]:
    """
    Those of *snapshots*, all of one thread, whose range holds no message older than *since*.

    Two aggregates settle it where nothing has expired; only else the ranges are read.
    """
    if since is None or not snapshots:
        return list(snapshots)
    thread_id, first = snapshots[0].thread_id, min(s.from_seq for s in snapshots)
    if tx.span(thread_id, from_seq=first) == tx.span(thread_id, from_seq=first, since=since):
        return list(snapshots)
    return [s for s in snapshots if _alive(tx, thread_id, s.from_seq, s.to_seq, since)]


def _alive(
    tx: TranscriptReader, thread_id: str, from_seq: int, to_seq: int, since: datetime
) -> bool:
    messages = tx.messages(thread_id, from_seq=from_seq, to_seq=to_seq)
    return bool(messages) and all(message.recorded_at >= since for message in messages)

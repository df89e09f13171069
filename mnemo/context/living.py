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
    return [pin for pin in pins if _is_alive(tx, pin.thread_id, pin.seq, since)]


def living_snapshots(
    tx: TranscriptReader, snapshots: Sequence[Snapshot], since: datetime | None
) -> list[Snapshot]:
    """
    Those of *snapshots* whose range holds no message recorded before *since*.

    Messages are recorded in the order of their seqs, so the ends of a range tell of all of
    it; only a range that an end is missing from is read whole.
    """
    if since is None:
        return list(snapshots)
    return [snapshot for snapshot in snapshots if _holds(tx, snapshot, since)]


def _holds(tx: TranscriptReader, snapshot: Snapshot, since: datetime) -> bool:
    thread_id, first, last = snapshot.thread_id, snapshot.from_seq, snapshot.to_seq
    ends = {first, last}
    found = [m for seq in ends for m in tx.messages(thread_id, from_seq=seq, to_seq=seq)]
    if len(found) < len(ends):
        found = tx.messages(thread_id, from_seq=first, to_seq=last)
    return bool(found) and all(message.recorded_at >= since for message in found)


def _is_alive(tx: TranscriptReader, thread_id: str, seq: int, since: datetime) -> bool:
    return bool(tx.messages(thread_id, from_seq=seq, to_seq=seq, since=since))

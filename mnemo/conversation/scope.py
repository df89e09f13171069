"""
Scope of a call: which messages of a thread, and which derived rows, it may see.

Messages of the present epoch that have not expired. What was derived from an expired
message goes with it at once, not when it is swept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mnemo.config import Config
from mnemo.conversation.settings import ThreadSettings
from mnemo.log.transcript import TranscriptReader
from mnemo.values.derived import Compaction, Pin, Snapshot, Thread
from mnemo.values.messages import StoredMessage


@dataclass(frozen=True, slots=True)
class ThreadScope:
    """
    A thread as one handle sees it in one transaction.

    Attributes:
        thread: Its row, with the handle's ``ttl_s`` where the handle has one.
        since: Messages recorded before it are expired; ``None``: none is.
        is_new: Whether nobody has written to the thread yet.
        is_stale: Whether the stored row has another ``ttl_s`` than the handle gives it.
    """

    thread: Thread
    since: datetime | None
    is_new: bool
    is_stale: bool

    @classmethod
    def of(cls, tx: TranscriptReader, settings: ThreadSettings, config: Config) -> ThreadScope:
        """Read the thread's row."""
        stored = tx.thread(settings.thread_id)
        thread = stored if settings.ttl_s is None else replace(stored, ttl_s=settings.ttl_s)
        is_new = stored == Thread(id=settings.thread_id)
        return cls(
            thread=thread,
            since=thread.alive_since(tx.now, config.conversation.ttl_s),
            is_new=is_new,
            is_stale=not is_new and thread != stored,
        )

    def shows(self, message: StoredMessage) -> bool:
        """Whether *message* is of the present epoch and has not expired."""
        return message.seq >= self.thread.epoch_start and self.is_alive(message)

    def is_alive(self, message: StoredMessage) -> bool:
        """Whether *message* has not expired."""
        return self.since is None or message.recorded_at >= self.since


def live_records(tx: TranscriptReader, scope: ThreadScope) -> list[Compaction]:
    """
    The records that shape what is loaded, ascending; no two overlap.

    A record whose range holds an expired message is gone for every reader, whether or not
    the sweep has come to it.
    """
    thread = scope.thread
    records = tx.all(Compaction, thread.id, epoch=thread.epoch, live=True)
    return [record for record in records if not outlived(tx, scope, record)]


def outlived(tx: TranscriptReader, scope: ThreadScope, record: Compaction) -> bool:
    """Whether a message in the range of *record* has expired and was not swept yet."""
    if scope.since is None:
        return False
    telling = _telling(tx, record.thread_id, record.start_seq, record.end_seq)
    return not all(map(scope.is_alive, telling))


def current_snapshots(
    tx: TranscriptReader, thread: Thread, since: datetime | None
) -> list[Snapshot]:
    """Read the living snapshots of the thread's epoch that nothing of a higher level covers."""
    found = tx.all(Snapshot, thread.id, epoch=thread.epoch, live=True)
    return living_snapshots(tx, found, since)


def living_snapshots(
    tx: TranscriptReader, snapshots: Sequence[Snapshot], since: datetime | None
) -> list[Snapshot]:
    """Return those of *snapshots* whose range holds no message recorded before *since*."""
    if since is None:
        return list(snapshots)
    return [snapshot for snapshot in snapshots if _is_living(tx, snapshot, since)]


def _is_living(tx: TranscriptReader, snapshot: Snapshot, since: datetime) -> bool:
    telling = _telling(tx, snapshot.thread_id, snapshot.from_seq, snapshot.to_seq)
    return bool(telling) and all(message.recorded_at >= since for message in telling)


def living_pins(tx: TranscriptReader, thread: Thread, since: datetime | None) -> list[Pin]:
    """Read the pins of the thread's epoch whose message was recorded at *since* or later."""
    pins = tx.all(Pin, thread.id, epoch=thread.epoch)
    if since is None:
        return pins
    return [
        pin
        for pin in pins
        if tx.messages(pin.thread_id, from_seq=pin.seq, to_seq=pin.seq, since=since)
    ]


def _telling(tx: TranscriptReader, thread_id: str, start: int, end: int) -> list[StoredMessage]:
    """
    Read the messages that tell whether one of a range has expired.

    Messages are recorded in the order of their seqs, but for a clock that is set back, so
    the ends tell; where one of them was erased, the whole range is read.
    """
    ends = {start, end}
    found = [m for seq in sorted(ends) for m in tx.messages(thread_id, from_seq=seq, to_seq=seq)]
    if len(found) < len(ends):
        return tx.messages(thread_id, from_seq=start, to_seq=end)
    return found

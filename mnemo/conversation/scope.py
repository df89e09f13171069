"""Which messages of a thread a call may see: those of its epoch that have not expired."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from mnemo.config import Config
from mnemo.conversation.parts import ThreadSettings
from mnemo.transcript.derived import Compaction, Thread
from mnemo.transcript.message import StoredMessage
from mnemo.transcript.transaction import TranscriptReader

__all__ = ["Scope", "live_records", "outlived"]


@dataclass(frozen=True, slots=True)
class Scope:
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
    def of(cls, tx: TranscriptReader, settings: ThreadSettings, config: Config) -> Scope:
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


def live_records(tx: TranscriptReader, scope: Scope) -> list[Compaction]:
    """
    The records that shape what is loaded, ascending; no two overlap.

    A record whose range holds an expired message is gone for every reader, whether or not
    the sweep has come to it.
    """
    thread = scope.thread
    records = tx.all(Compaction, thread.id, epoch=thread.epoch, live=True)
    return [record for record in records if not outlived(tx, scope, record)]


def outlived(tx: TranscriptReader, scope: Scope, record: Compaction) -> bool:
    """
    Whether a message in the range of *record* has expired and was not swept yet.

    Its ends tell: messages are recorded in the order of their seqs, but for a clock that is
    set back.
    """
    if scope.since is None:
        return False
    first, last = (
        tx.messages(record.thread_id, from_seq=seq, to_seq=seq)
        for seq in (record.start_seq, record.end_seq)
    )
    if not first:  # erased before the record was made: the oldest of the rest may lie anywhere
        first = tx.messages(record.thread_id, from_seq=record.start_seq, to_seq=record.end_seq)
    return not all(map(scope.is_alive, (*first, *last)))

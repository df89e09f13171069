"""
The expiry sweep: deletes expired messages with all that was derived from them.

Readers never see an expired message, swept or not; the sweep deletes it. It reads a
thread from its oldest message on, in batches, and stops at the first one that lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from mnemo.conversation.scope import ConversationParts, ThreadSettings
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.flights import Flights
from mnemo.values.messages import StoredMessage

BATCH = 128
"""Messages that one transaction looks at, or deletes (S)."""
LONGEST_STRIDE = 4_096
"""Seqs that are passed over at once where nothing is left of them (S)."""
MOST_KNOWN = 10_000
"""Threads whose oldest message is remembered at most, the last ones swept (S)."""
MOST_RUNNING = 1
"""Threads that are swept at once: other writers wait for one batch, not for several."""


@dataclass(frozen=True, slots=True)
class _Swept:
    """
    The state of a thread after its last sweep.

    Attributes:
        from_seq: Nothing is left before it.
        oldest: When what begins there was recorded; ``None``: nothing is left at all.
    """

    from_seq: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class _Found:
    """
    What one reading of a thread found.

    Attributes:
        expired: Seq and time of what has expired, ascending.
        then: What is known once that is deleted.
        done: Whether nothing else can have expired.
    """

    expired: tuple[tuple[int, datetime], ...]
    then: _Swept
    done: bool


class ExpirySweep:
    """Sweeps the threads of one repository, each at most once at a time."""

    def __init__(self, parts: ConversationParts) -> None:
        self._parts = parts
        self._flights = Flights(self._run, spawn=parts.spawn, limit=MOST_RUNNING)
        self._known: dict[str, _Swept] = {}

    def appended(self, settings: ThreadSettings) -> None:
        """Sweep the thread after an append, if its messages expire; a plain call."""
        ttl_s = settings.ttl_s
        if ttl_s or self._parts.config.conversation.ttl_s or settings.thread_id in self._known:
            self._flights.poke(settings.thread_id)

    async def sweep(self) -> int:
        """
        Sweep every thread; how many messages were deleted.

        Raises:
            StoreError: What was deleted before stays so. *Cancellation*: safe; likewise.
        """
        threads = await self._parts.store.reading(lambda tx: tx.threads())
        default = self._parts.config.conversation.ttl_s
        expiring = [one.id for one in threads if one.ttl_s or (one.ttl_s is None and default)]
        return sum([await self._flights.join(thread_id) for thread_id in expiring])

    async def settled(self, thread_id: str) -> None:
        """Wait until no sweep of the thread is running or due. *Cancellation*: safe."""
        await self._flights.settled(thread_id)

    async def _run(self, thread_id: str) -> int:
        deleted = 0
        while True:
            known = self._known.pop(thread_id, _Swept(0, None))
            found = await self._parts.store.reading(partial(self._look, thread_id, known))
            if found is None:
                return deleted
            if found.expired:
                erase = partial(self._erase, thread_id, found.expired)
                deleted += await self._parts.store.writing(erase)
            self._known[thread_id] = found.then
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
            if found.done:
                return deleted

    def _look(self, thread_id: str, known: _Swept, tx: TranscriptReader) -> _Found | None:
        """Find the next batch to delete; ``None``: the messages of this thread never expire."""
        since = self._since(tx, thread_id)
        if since is None:
            return None
        if known.oldest is not None and known.oldest >= since:
            return _Found((), known, True)
        batch = _batch(tx, thread_id, known.from_seq)
        expired = tuple((m.seq, m.recorded_at) for m in batch if m.recorded_at < since)
        alive = next((m for m in batch if m.recorded_at >= since), None)
        if alive is not None:
            return _Found(expired, _Swept(alive.seq, alive.recorded_at), True)
        end = batch[-1].seq + 1 if batch else tx.thread(thread_id).next_seq
        return _Found(expired, _Swept(end, None), not batch)

    def _erase(
        self, thread_id: str, expired: Sequence[tuple[int, datetime]], tx: TranscriptWriter
    ) -> int:
        # How long messages live may have been changed since they were looked at.
        since = self._since(tx, thread_id)
        seqs = [seq for seq, at in expired if since is not None and at < since]
        return tx.erase(thread_id, seqs).messages

    def _since(self, tx: TranscriptReader, thread_id: str) -> datetime | None:
        default = self._parts.config.conversation.ttl_s
        return tx.thread(thread_id).alive_since(tx.now, default)


def _batch(tx: TranscriptReader, thread_id: str, start: int) -> list[StoredMessage]:
    """Read the first messages from *start* on; erased seqs are skipped in growing strides."""
    end, stride = tx.thread(thread_id).next_seq, BATCH
    while start < end:
        found = tx.messages(thread_id, from_seq=start, to_seq=start + stride - 1)
        if found:
            return found[:BATCH]
        start, stride = start + stride, min(2 * stride, LONGEST_STRIDE)
    return []

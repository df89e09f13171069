"""Snapshots of a thread and the outcomes of its evictions, read for the caller."""

from __future__ import annotations

from typing import Literal

from mnemo.conversation.scope import living_snapshots
from mnemo.conversation.settings import ConversationParts
from mnemo.log.transcript import TranscriptReader
from mnemo.values.derived import EvictionOutcome, Snapshot


class Snapshots:
    """
    The snapshots of one thread's epoch (``conversation.snapshots``).

    Args:
        parts: The repository's conversations.
        thread_id: The thread that they belong to.
    """

    __slots__ = ("_parts", "_thread_id")

    def __init__(self, parts: ConversationParts, thread_id: str) -> None:
        self._parts = parts
        self._thread_id = thread_id

    def __repr__(self) -> str:
        return f"<Snapshots of {self._thread_id!r}>"

    async def outcomes(self) -> list[EvictionOutcome]:
        """The verdicts of the thread's epoch, ascending. *Cancellation*: safe."""

        def work(tx: TranscriptReader) -> list[EvictionOutcome]:
            thread = tx.thread(self._thread_id)
            return tx.all(EvictionOutcome, thread.id, epoch=thread.epoch)

        return await self._parts.store.reading(work)

    async def list(
        self, *, level: Literal[1, 2] | None = None, current: bool = False
    ) -> list[Snapshot]:
        """
        Ascending by range; without those whose range holds an expired message.

        Args:
            level: 1: of messages; 2: of snapshots; ``None``: both.
            current: Only what nothing of a higher level covers.

        Raises:
            ValueError: There is no such level. *Cancellation*: safe.
        """
        if level not in (None, 1, 2):
            raise ValueError(f"level must be 1, 2 or None, not {level!r}")

        def work(tx: TranscriptReader) -> list[Snapshot]:
            thread = tx.thread(self._thread_id)
            since = thread.alive_since(tx.now, self._parts.config.conversation.ttl_s)
            found = tx.all(Snapshot, thread.id, epoch=thread.epoch, live=current)
            alive = living_snapshots(tx, found, since)
            return [snapshot for snapshot in alive if level in (None, snapshot.level)]

        return await self._parts.store.reading(work)

"""
The message indexer: embeds stored messages in the background.

The store says which messages are owed one, and keeps a vector only if its message is
still there; so nothing is embedded twice, and nothing is forgotten by a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import anyio

from mnemo.conversation.scope import ConversationParts, ThreadSettings
from mnemo.errors import StoreReadOnly, UsageError
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.traffic import Pauses, traffic
from mnemo.runtime.user_code import traceback_of
from mnemo.values.graph import Vector
from mnemo.values.messages import StoredMessage, embedded_text
from mnemo.values.strategies import Composite, Nearest, Retrieval
from mnemo.values.vectors import unit_rows

log = logging.getLogger("mnemo")

BATCH = 256
"""Messages per call of the embedder, at most (S)."""
MAX_EMBEDDED_CHARACTERS = 32_768
"""Characters of a message that are handed to the embedder, which may read fewer."""
MOST_PASSED_OVER = 256
"""Orders that keep failing and are passed over for those behind them (S)."""
PATIENCE_S = 5.0
"""Seconds after which it begins although writes go on."""
MAX_RETRY_S = 60.0
"""Longest pause after failures, in seconds of the clock (S)."""
MOST_LIMITED = 10_000
"""Threads whose ``max_index_size`` is remembered at most, the last appended to (S)."""
MOST_COUNTED = 10_000
"""Orders that are counted; that there are more is not worth finding out (S)."""


@dataclass(frozen=True, slots=True)
class _Orders:
    """
    Messages to embed, and those that have expired before it came to that.

    Attributes:
        is_from_the_start: Whether nothing is left behind those that were passed over.
    """

    due: tuple[StoredMessage, ...]
    expired: tuple[StoredMessage, ...]
    is_from_the_start: bool


class Indexing:
    """
    Embeds the messages of a repository, in one task that runs ``run``.

    It waits for a pause in the writes, unless somebody waits for it in ``settled``.
    A failed order stays in the store. After a failure everything waits, longer each time,
    and fewer messages are tried at once, so that one that is refused holds up nobody.
    """

    def __init__(self, parts: ConversationParts) -> None:
        self._parts = parts
        self._limits: dict[str, int] = {}
        self._poked = anyio.Event()
        self._pulse = anyio.Event()
        self._batch = BATCH
        self._passed_over = 0
        self._failures = 0
        self._resting = False
        self._ended = False
        self._traffic = traffic()
        self._pauses = Pauses(PATIENCE_S)
        self._awaited = 0

    async def depth(self) -> int:
        """Count the messages that wait for a vector; 10,000 stands for more, too."""
        return await self._parts.store.reading(lambda tx: tx.owed_count(limit=MOST_COUNTED))

    def appended(self, settings: ThreadSettings) -> None:
        """Something was appended; a plain call."""
        limits = _index_limits(settings.retrieval)
        bounds = [limit for limit in limits if limit is not None]
        if limits:
            self._limits.pop(settings.thread_id, None)
        if bounds and len(bounds) == len(limits):
            self._limits[settings.thread_id] = max(bounds)
            if len(self._limits) > MOST_LIMITED:
                del self._limits[next(iter(self._limits))]
        self.poke()

    def poke(self) -> None:
        """Something may be owed a vector: look soon. A plain call."""
        self._poked.set()

    async def settled(self, thread_id: str) -> None:
        """
        Wait until the thread is owed no vector, or the worker waits after a failure.

        Raises:
            UsageError: The repository was closed before that. *Cancellation*: safe.
        """
        self._awaited += 1
        try:
            while True:
                pulse = self._pulse  # before looking: a beat meanwhile is not missed
                if self._resting or not await self._owes(thread_id):
                    return
                if self._ended:
                    raise UsageError("the repository was closed before its messages were indexed")
                self.poke()
                self._pauses.end()
                await pulse.wait()
        finally:
            self._awaited -= 1

    async def _owes(self, thread_id: str) -> bool:
        owed = await self._parts.store.reading(lambda tx: tx.owed(limit=1, thread_id=thread_id))
        return bool(owed)

    # ── The worker ───────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """
        Embed what is owed, at once and then whenever poked, until cancelled.

        *Cancellation*: safe; what was not saved is still owed.
        """
        try:
            while True:
                self._poked = anyio.Event()
                if await self._tried():
                    await self._poked.wait()
                    await self._let_writes_go_first()
                else:
                    await self._rest()
        finally:
            self._ended = True
            self._beat()

    async def _let_writes_go_first(self) -> None:
        if not self._awaited:
            await self._pauses.pause()

    async def _rest(self) -> None:
        base = self._parts.config.conversation.retry_backoff_s
        self._resting = True
        self._beat()
        await self._parts.clock.sleep(min(MAX_RETRY_S, base * 2 ** (self._failures - 1)))
        self._resting = False

    def _beat(self) -> None:
        self._pulse.set()
        self._pulse = anyio.Event()

    async def _tried(self) -> bool:
        """Whether everything that is owed was embedded."""
        try:
            more = True
            while more:
                async with self._traffic.beside():
                    more = await self._portion()
                    self._beat()
        # The repository closes, or cannot be written: the next who opens it goes on.
        except (UsageError, StoreReadOnly) as error:
            log.info("messages are not embedded: %s", error)
        except Exception as error:
            # Whatever an embedder or the store may raise: loading goes on without vectors.
            if not self._failures:
                trace = traceback_of(error)
                log.warning("messages wait for their vectors: %s", error, exc_info=trace)
            self._failures = min(self._failures + 1, 32)
            return False
        self._beat()
        self._failures = 0
        return True

    async def _portion(self) -> bool:
        """Embed some; whether any were owed."""
        orders = await self._parts.store.reading(self._orders)
        if orders.is_from_the_start:
            self._passed_over = 0
        if orders.expired:
            await self._parts.store.writing(partial(self._drop, orders.expired))
        if orders.due:
            await self._embed(orders.due)
        return bool(orders.due or orders.expired)

    def _orders(self, tx: TranscriptReader) -> _Orders:
        owed = tx.owed(limit=self._passed_over + self._batch)
        behind = owed[self._passed_over :]
        owed = behind or owed[: self._batch]
        alive, expired = self._sorted(tx, owed)
        return _Orders(tuple(alive), tuple(expired), not behind)

    async def _embed(self, due: Sequence[StoredMessage]) -> None:
        try:
            vectors = await self._vectors(due)
            space = self._parts.embedder.space
            await self._parts.store.writing(partial(self._save, space, due, vectors))
        except Exception:
            if len(due) == 1:
                self._passed_over = (self._passed_over + 1) % MOST_PASSED_OVER
            self._batch = max(1, len(due) // 2)
            raise
        self._batch = min(BATCH, 2 * self._batch)

    async def _vectors(self, due: Sequence[StoredMessage]) -> Sequence[Vector]:
        embedder = self._parts.embedder
        texts = [embedded_text(message)[:MAX_EMBEDDED_CHARACTERS] for message in due]
        reply = await embedder.embed(texts, kind="document")
        return list(unit_rows(reply, rows=len(due), dimensions=embedder.space.dimensions))

    def _save(
        self,
        space: EmbeddingSpace,
        due: Sequence[StoredMessage],
        vectors: Sequence[Vector],
        tx: TranscriptWriter,
    ) -> None:
        of = {(m.thread_id, m.seq): vector for m, vector in zip(due, vectors, strict=True)}
        alive, expired = self._sorted(tx, due)
        tx.save_vectors(space, {(m.thread_id, m.seq): of[m.thread_id, m.seq] for m in alive})
        for thread_id in {message.thread_id for message in alive} & self._limits.keys():
            tx.drop_vectors(thread_id, keep_newest=self._limits[thread_id])
        _erase(tx, expired)

    def _drop(self, messages: Sequence[StoredMessage], tx: TranscriptWriter) -> None:
        """Delete those of *messages* that still are expired: the sweep comes for them anyhow."""
        _, expired = self._sorted(tx, messages)
        _erase(tx, expired)

    def _sorted(
        self, tx: TranscriptReader, messages: Sequence[StoredMessage]
    ) -> tuple[list[StoredMessage], list[StoredMessage]]:
        """Separate *messages* into live and expired ones."""
        default = self._parts.config.conversation.ttl_s
        threads = {message.thread_id for message in messages}
        since = {one: tx.thread(one).alive_since(tx.now, default) for one in threads}
        alive: list[StoredMessage] = []
        expired: list[StoredMessage] = []
        for message in messages:
            from_then = since[message.thread_id]
            lives = from_then is None or message.recorded_at >= from_then
            (alive if lives else expired).append(message)
        return alive, expired


def _erase(tx: TranscriptWriter, messages: Sequence[StoredMessage]) -> None:
    for thread_id in {message.thread_id for message in messages}:
        tx.erase(thread_id, [m.seq for m in messages if m.thread_id == thread_id])


def _index_limits(retrieval: Retrieval) -> list[int | None]:
    """List how many vectors each ``Nearest`` in *retrieval* keeps; ``None``: all."""
    if isinstance(retrieval, Composite):
        return [limit for part in retrieval.strategies for limit in _index_limits(part)]
    return [retrieval.max_index_size] if isinstance(retrieval, Nearest) else []

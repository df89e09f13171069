"""``MessageLog``: one thread's history, as its users append to it and load it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from mnemo._text import is_blank
from mnemo.config import Config
from mnemo.conversation.appending import Appended, Draft, append, drafts_of
from mnemo.conversation.counting import counter_of
from mnemo.conversation.parts import ConversationParts, ThreadSettings
from mnemo.conversation.scope import Scope
from mnemo.episode.erasure import ErasureReport
from mnemo.errors import StoreError
from mnemo.transcript.message import Message, StoredMessage
from mnemo.transcript.strategies import (
    Composite,
    Recent,
    Retrieval,
    Semantic,
    Summary,
    ToolOutputPruner,
)
from mnemo.transcript.transaction import TranscriptReader, TranscriptWriter

__all__ = ["OMITTED", "MessageLog", "settings_of"]

log = logging.getLogger("mnemo")
T = TypeVar("T")
Given = Message | Mapping[str, Any]

OMITTED: Any = object()
"""In place of a keyword that was not given: the configuration decides."""
SMALL_BATCH = 16
"""Messages that are checked on the event loop; more go to a worker thread."""
SMALL_TEXT = 65_536
"""Characters of a batch that are checked on the event loop, likewise."""


def settings_of(
    thread_id: str,
    config: Config,
    *,
    retrieval: Retrieval = OMITTED,
    compression: Summary | ToolOutputPruner | Sequence[Summary | ToolOutputPruner] | None = OMITTED,
    ttl_s: float | None = OMITTED,
) -> ThreadSettings:
    """
    What the keywords of a handle come to; one that is omitted is as *config* says.

    Raises:
        ValueError: The id is blank, a strategy is none, or *ttl_s* is not above 0.
    """
    if not isinstance(thread_id, str) or is_blank(thread_id):
        raise ValueError("a thread needs an id that is not blank")
    own = config.conversation
    chosen = own.retrieval if retrieval is OMITTED else retrieval
    if not isinstance(chosen, Recent | Semantic | Composite):
        raise ValueError("retrieval must be Recent, Semantic or Composite")
    return ThreadSettings(
        thread_id=thread_id,
        retrieval=chosen,
        compressions=own.compressions if compression is OMITTED else _compressions(compression),
        ttl_s=None if ttl_s is OMITTED else _ttl(ttl_s),
    )


def _compressions(given: object) -> tuple[Summary | ToolOutputPruner, ...]:
    if given is None:
        return ()
    strategies = tuple(given) if isinstance(given, list | tuple) else (given,)
    for strategy in strategies:
        if not isinstance(strategy, Summary | ToolOutputPruner):
            raise ValueError("compression must be Summary, ToolOutputPruner, several or None")
    return strategies


def _ttl(ttl_s: object) -> float:
    if ttl_s is None:
        return 0.0
    is_number = isinstance(ttl_s, int | float) and not isinstance(ttl_s, bool)
    if not is_number or not 0 < ttl_s < math.inf:  # type: ignore[operator]
        raise ValueError(f"ttl_s must be seconds above 0, or None, not {ttl_s!r}")
    return float(ttl_s)  # type: ignore[arg-type]


class MessageLog:
    """
    The history of one thread; all handles of a thread share everything.

    Making one touches nothing. A ``ttl_s`` that the handle was given is stored with its
    next write or reading, if the thread has another one.
    """

    def __init__(self, parts: ConversationParts, settings: ThreadSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._count = counter_of(parts.config.conversation)
        self._limiter = CapacityLimiter(1)

    @property
    def thread_id(self) -> str:
        """The thread's id, as given."""
        return self._settings.thread_id

    async def append(
        self, messages: Given | Iterable[Given], *, expected_seq: int | None = None
    ) -> list[StoredMessage]:
        """
        Store one message, or several in one transaction, and give them as they are stored.

        What is there already by its id is not stored again. What ``load`` made, and what
        was erased, is left out of the result. Durable and searchable once it returns.

        Args:
            messages: ``Message`` values or mappings of the same keys.
            expected_seq: What the next seq must be, if anything of the batch is new.

        Raises:
            ValueError: A message is invalid; nothing was stored.
            Conflict: An id stands for another message already, or *expected_seq* is not
                next; nothing was stored. *Cancellation*: the batch is stored as a whole or
                not at all; appending it again with the same ids is safe.
        """
        batch = [messages] if isinstance(messages, Message | Mapping) else list(messages)
        if not batch:
            return []
        drafts = await self._drafts(batch)
        stored = 0

        def work(tx: TranscriptWriter) -> Appended:
            nonlocal stored
            appended = self._append(tx, drafts, expected_seq)
            stored = appended.stored
            return appended

        try:
            return (await self._parts.store.writing(work)).messages
        finally:
            if stored:  # whoever called may be cancelled; what is stored is stored
                self._parts.appended(self._settings)

    async def _drafts(self, batch: Sequence[Given]) -> list[Draft]:
        if self._parts.config.conversation.token_counter is None and _is_small(batch):
            return drafts_of(batch, self._count)
        work = partial(drafts_of, batch, self._count)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    def _append(
        self, tx: TranscriptWriter, drafts: Sequence[Draft], expected_seq: int | None
    ) -> Appended:
        config = self._parts.config
        return append(
            tx,
            Scope.of(tx, self._settings, config),
            drafts,
            expected_seq=expected_seq,
            search_tools=config.recall.index_tool_results,
        )

    async def history(self, *, from_seq: int = 0, to_seq: int | None = None) -> list[StoredMessage]:
        """
        The originals of a range, ascending, of all epochs; expired and purged ones are absent.

        Args:
            from_seq: At least 0; inclusive, like *to_seq*. ``None``: to the end.

        Raises:
            ValueError: A seq is negative, or the range is turned round.
                *Cancellation*: safe.
        """
        _require_range(from_seq, to_seq)
        return await self._read(
            lambda tx, scope: tx.messages(
                self.thread_id, from_seq=from_seq, to_seq=to_seq, since=scope.since
            )
        )

    async def next_seq(self) -> int:
        """The seq that the next stored message gets. *Cancellation*: safe."""
        return await self._read(lambda tx, scope: scope.thread.next_seq)

    async def purge(self) -> ErasureReport:
        """
        Erase the thread and all that was derived from it alone; its seqs go on.

        Raises:
            StoreError: Nothing was erased. *Cancellation*: the transaction completes.
        """
        return await self._parts.forget(self.thread_id)

    async def _read(self, work: Callable[[TranscriptReader, Scope], T]) -> T:
        def within(tx: TranscriptReader) -> tuple[T, bool]:
            scope = Scope.of(tx, self._settings, self._parts.config)
            return work(tx, scope), scope.is_stale

        result, is_stale = await self._parts.store.reading(within)
        if is_stale:
            await self._keep_ttl()
        return result

    async def _keep_ttl(self) -> None:
        def work(tx: TranscriptWriter) -> None:
            scope = Scope.of(tx, self._settings, self._parts.config)
            if scope.is_stale:
                tx.keep(scope.thread)

        try:
            await self._parts.store.writing(work)
        except StoreError as error:
            log.warning(
                "the ttl of thread %r is kept with the next write: %s", self.thread_id, error
            )


def _is_small(batch: Sequence[Given]) -> bool:
    return len(batch) <= SMALL_BATCH and sum(map(_weight, batch)) <= SMALL_TEXT


def _weight(given: object) -> int:
    content = given.get("content") if isinstance(given, Mapping) else getattr(given, "content", "")
    if content is None:
        return 0
    return len(content) if isinstance(content, str) else SMALL_TEXT // 4


def _require_range(from_seq: object, to_seq: object) -> None:
    for name, seq in (("from_seq", from_seq), ("to_seq", 0 if to_seq is None else to_seq)):
        if isinstance(seq, bool) or not isinstance(seq, int) or seq < 0:
            raise ValueError(f"{name} must be a whole number, at least 0, not {seq!r}")
    if isinstance(to_seq, int) and isinstance(from_seq, int) and from_seq > to_seq:
        raise ValueError(f"from_seq {from_seq} lies behind to_seq {to_seq}")

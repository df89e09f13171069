"""The conversations of one repository: their handles, and the work behind them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias, TypeVar

from anyio.abc import TaskGroup

from mnemo.context.noted import Overview
from mnemo.context.passive import PassiveRecall
from mnemo.conversation.expiring import Expiry
from mnemo.conversation.log import settings_of
from mnemo.conversation.parts import ConversationParts, ThreadSettings
from mnemo.episode.erasure import ErasureReport
from mnemo.errors import MnemoError, StoreReadOnly, UsageError
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import TranscriptReader, TranscriptStore, TranscriptWriter
from mnemo.repository.conversation import Conversation, Departments
from mnemo.repository.parts import ConversationStatistics, RepositoryParts, ThreadRecord
from mnemo.transcript.derived import Thread

__all__ = ["RepositoryConversations"]

log = logging.getLogger("mnemo")
T = TypeVar("T")
Work: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]


class Guarded:
    """A ``TranscriptStore`` that serves only while its repository is open."""

    def __init__(self, store: TranscriptStore, check_usable: Callable[[], None]) -> None:
        self._store = store
        self._check_usable = check_usable

    async def reading(self, work: Callable[[TranscriptReader], T]) -> T:
        """As the store. *Raises* ``UsageError`` where the repository is closed."""
        self._check_usable()
        return await self._store.reading(work)

    async def writing(self, work: Callable[[TranscriptWriter], T]) -> T:
        """As the store. *Raises* ``UsageError`` where the repository is closed."""
        self._check_usable()
        return await self._store.writing(work)


def _threads(tx: TranscriptReader, *, default_ttl_s: float | None) -> list[ThreadRecord]:
    return [_listed(tx, thread, default_ttl_s) for thread in tx.threads() if thread.next_seq]


def _listed(tx: TranscriptReader, thread: Thread, default_ttl_s: float | None) -> ThreadRecord:
    since = thread.alive_since(tx.now, default_ttl_s)
    messages, tokens = tx.span(thread.id, from_seq=0, since=since)
    last = tx.messages(thread.id, newest=1, since=since)
    return ThreadRecord(
        id=thread.id,
        messages=messages,
        tokens=tokens,
        next_seq=thread.next_seq,
        epoch=thread.epoch,
        last_at=last[0].at if last else None,
        budget_tokens=thread.budget_tokens,
    )


class RepositoryConversations:
    """
    Makes the handles of one repository's threads, and runs what works behind them.

    Args:
        forget: Erases a thread with all that was derived from it alone.
        overview: Tells of the repository's notes.
        check_usable: Raises ``UsageError`` where the repository is closed.
    """

    def __init__(
        self,
        parts: RepositoryParts,
        *,
        forget: Callable[[str], Awaitable[ErasureReport]],
        overview: Overview,
        check_usable: Callable[[], None],
    ) -> None:
        self._group: TaskGroup | None = None
        self._waiting: list[tuple[Work, tuple[Any, ...]]] = []
        self._ended = False
        self.usage = UsageMeter()
        self._parts = ConversationParts(
            repo_id=parts.repo_id,
            store=Guarded(parts.transcript, check_usable),
            embedder=parts.embedder,
            chat_model=parts.chat_model,
            clock=parts.clock,
            config=parts.config,
            publish=parts.publish,
            spawn=self._spawn,
            meter=self.usage,
            forget=forget,
            appended=self._appended,
            spans=parts.spans,
        )
        self._expiry = Expiry(self._parts)
        self._departments = Departments(
            self._parts,
            recall=PassiveRecall(self._parts, parts.records),
            overview=overview,
            check_usable=check_usable,
        )

    def handle(self, thread_id: str, **keywords: Any) -> Conversation:
        """A handle of the thread. *Raises* ``ValueError``: see ``settings_of``."""
        settings = settings_of(thread_id, self._parts.config, **keywords)
        return Conversation(self._parts, settings, self._departments)

    async def threads(self) -> list[ThreadRecord]:
        """All threads that anything was appended to, by id. *Cancellation*: safe."""
        default_ttl_s = self._parts.config.conversation.ttl_s
        return await self._parts.store.reading(partial(_threads, default_ttl_s=default_ttl_s))

    async def statistics(self) -> ConversationStatistics:
        """How much is under way."""
        departments = self._departments
        mneme = departments.mneme.statistics()
        return ConversationStatistics(
            compressing=departments.compressing.under_way,
            evicting=mneme.running + mneme.waiting,
            evictions=mneme.evictions,
            eviction_failures=mneme.failures,
            waiting_for_vectors=await departments.indexing.depth(),
            usage=self.usage.by_purpose,
        )

    async def run(self, group: TaskGroup) -> None:
        """Take up what an earlier run left due, then work until cancelled."""
        self._group = group
        for work, args in self._waiting:
            group.start_soon(_guarded, work, args)
        group.start_soon(self._take_up)
        try:
            await self._departments.indexing.run()
        finally:
            self._ended = True

    async def _take_up(self) -> None:
        for work in (self._expiry.sweep, self._departments.mneme.resume):
            try:
                await work()
            except (UsageError, StoreReadOnly):
                return  # it was closed, or cannot be written; the next who opens it looks again
            except MnemoError:
                log.exception("what was due in a repository's conversations waits for a write")

    async def sweep(self) -> int:
        """Delete what has expired; how many messages. *Cancellation*: safe; the rest waits."""
        return await self._expiry.sweep()

    def follow(self) -> None:
        """Messages may be owed vectors: look. A plain call."""
        self._departments.indexing.poke()

    def _appended(self, settings: ThreadSettings) -> None:
        if self._ended:  # what is due is found in the store by the next who opens it
            return
        self._expiry.appended(settings)
        self._departments.indexing.appended(settings)
        self._departments.feeding.appended(settings.thread_id)
        self._departments.compressing.appended(settings)
        self._departments.mneme.appended(settings)

    def _spawn(self, work: Work, *args: Any) -> None:
        if self._ended:
            raise UsageError("the repository is closed; open it again with open_repo")
        if self._group is None:
            self._waiting.append((work, args))
        else:
            self._group.start_soon(_guarded, work, args)


async def _guarded(work: Work, args: tuple[Any, ...]) -> None:
    """Do some work; its failure is logged, and ends no other work of the repository."""
    try:
        await work(*args)
    except Exception:
        log.exception("work behind a conversation failed: %s", getattr(work, "__qualname__", work))

"""The conversations of one repository: their handles, and the work behind them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mnemo.context.noted import Overview
from mnemo.context.passive import PassiveRecall
from mnemo.conversation.expiring import Expiry
from mnemo.conversation.log import settings_of
from mnemo.conversation.parts import ConversationParts, ThreadSettings
from mnemo.episode.erasure import ErasureReport
from mnemo.errors import MnemoError, StoreReadOnly, UsageError
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import TranscriptReader
from mnemo.repository.conversation import Conversation, Departments
from mnemo.repository.guarded import Guarded
from mnemo.repository.parts import ConversationStatistics, RepositoryParts, ThreadRecord
from mnemo.runtime.tasks import Branch
from mnemo.transcript.derived import Thread

__all__ = ["RepositoryConversations"]

log = logging.getLogger("mnemo")


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
        tasks: Where that work runs.
        forget: Erases a thread with all that was derived from it alone.
        overview: Tells of the repository's notes.
        check_usable: Raises ``UsageError`` where the repository is closed.
    """

    def __init__(
        self,
        parts: RepositoryParts,
        *,
        tasks: Branch,
        forget: Callable[[str], Awaitable[ErasureReport]],
        overview: Overview,
        check_usable: Callable[[], None],
    ) -> None:
        self._tasks = tasks
        self.usage = UsageMeter()
        self._parts = ConversationParts(
            repo_id=parts.repo_id,
            store=Guarded(parts.transcript, check_usable),
            embedder=parts.embedder,
            chat_model=parts.chat_model,
            clock=parts.clock,
            config=parts.config,
            publish=parts.publish,
            spawn=tasks.spawn,
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

    def open(self) -> None:
        """Take up what an earlier run left due, and work until the tasks are cancelled."""
        self._tasks.spawn(self._take_up)
        self._tasks.spawn(self._departments.indexing.run)

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
        if self._tasks.ended:  # what is due is found in the store by the next who opens it
            return
        self._expiry.appended(settings)
        self._departments.indexing.appended(settings)
        self._departments.feeding.appended(settings.thread_id)
        self._departments.compressing.appended(settings)
        self._departments.mneme.appended(settings)

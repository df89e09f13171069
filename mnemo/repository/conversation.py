"""The conversations of a repository: handles of its threads, and the tasks behind them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from mnemo.config import Config
from mnemo.context.eviction import Snapshots
from mnemo.context.goals import Goals, Pins
from mnemo.context.mneme import Mneme
from mnemo.context.passive import PassiveRecall
from mnemo.context.rendering import Overview, WindowLook, look
from mnemo.context.viewport import Viewport
from mnemo.conversation.compression import Compressing
from mnemo.conversation.log import ExpirySweep, MessageLog
from mnemo.conversation.mirror import Feed, Feeding
from mnemo.conversation.scope import ConversationParts, ThreadScope, ThreadSettings, settings_of
from mnemo.errors import MnemoError, StoreReadOnly, UsageError
from mnemo.log.transcript import TranscriptReader
from mnemo.prompts.usage import UsageMeter
from mnemo.repository.jobs import Jobs
from mnemo.repository.parts import ConversationStatistics, RepositoryParts, ThreadRecord, settled
from mnemo.runtime.tasks import Branch, on_clock
from mnemo.runtime.transactions import guarded
from mnemo.session.session import Session
from mnemo.values.derived import Compaction, Thread
from mnemo.values.erasure import Erased, Selection

log: logging.Logger = logging.getLogger("mnemo")


class Conversation(MessageLog):
    """
    One thread of messages, append-only; made by ``Repository.conversation``.

    Handles of one thread share everything, and making one touches nothing.
    """

    def __init__(
        self, parts: ConversationParts, settings: ThreadSettings, shared: RepositoryConversations
    ) -> None:
        super().__init__(parts, settings)
        self._shared = shared

    @property
    def goals(self) -> Goals:
        """The goals of the thread; kept in view until they are completed."""
        return Goals(self._parts, self._settings)

    @property
    def pins(self) -> Pins:
        """Messages that goals hold on to."""
        return Pins(self._parts, self._settings)

    @property
    def snapshots(self) -> Snapshots:
        """Summaries of what has left the window, and the verdicts it left by."""
        return Snapshots(self._parts, self._settings)

    def viewport(self, budget_tokens: int | None = None, *, notes: bool = False) -> Viewport:
        """
        Make the viewport of the thread: what fits a token budget; a plain call.

        From now on the window is kept within this budget, the latest one given.

        Args:
            budget_tokens: Of the whole rendering; default ``config.viewport.budget_tokens``.
            notes: Begin the memory with an overview of the repository's notes. It has a share
                of its own, ``config.viewport.notes_fraction``, that the window is smaller by,
                and changes only when a note does.

        Raises:
            ValueError: The budget is below 1.
            ConfigError: With *notes* the window would be too small.
        """
        return Viewport(
            self._parts,
            self._settings,
            mneme=self._shared.mneme,
            recall=self._shared.recall,
            overview=self._shared.overview if notes else None,
            budget_tokens=budget_tokens,
        )

    async def look(self, budget_tokens: int | None = None) -> WindowLook:
        """
        Describe the window in numbers and zones; nothing is written or watched.

        Args:
            budget_tokens: Default: what the thread is watched with, else as configured.

        Raises:
            ValueError: The budget is below 1. *Cancellation*: safe.
        """
        return await self._parts.store.reading(
            lambda tx: look(tx, self._settings, self._parts.config, budget_tokens)
        )

    async def compress(self) -> Compaction | None:
        """
        Summarise old messages now if that is due, or join the run in flight.

        Returns:
            The record; ``None``: nothing was due, or the summary failed.
                *Cancellation*: safe; the run goes on.
        """
        self._shared.check_usable()
        return await self._shared.compressing.compress(self._settings)

    async def settle(self, timeout_s: float | None = None) -> None:
        """
        Wait until no compression, indexing or eviction of the thread runs or is due.

        A summary that failed is not due before its next attempt, which nobody waits for here;
        a failed eviction is waited for.

        Args:
            timeout_s: Seconds of the clock; ``None`` is without limit.

        Raises:
            TimeoutError: The time is over; the work goes on. *Cancellation*: safe.
        """
        self._shared.check_usable()
        await on_clock(self._parts.clock.sleep, timeout_s, self._settled)

    async def _settled(self) -> None:
        shared = self._shared
        await shared.compressing.settled(self.thread_id)
        await shared.mneme.settled(self.thread_id)
        await settled(partial(shared.is_behind, self.thread_id))

    async def feed(self, session: Session, *, from_seq: int | None = None) -> Feed:
        """
        Have every message become a step of *session*, as the conversation grows.

        Each exactly once, whatever is restarted or fed again; it goes on in the background
        until it is cancelled, or the session takes no more. A message that ``remember`` has
        had extracted is a step already and is left out.

        Args:
            from_seq: Where to begin; default: behind the last message of the thread that
                the session holds, or if it holds none, with what is appended next.

        Raises:
            ValueError: *from_seq* is no seq, or *session* none of this repository: what
                is erased here would not be erased there. *Cancellation*: safe; nothing is fed.
        """
        self._shared.check_usable()
        if not isinstance(session, Session) or session.repo_id != self._parts.repo_id:
            raise ValueError("a conversation feeds a session that its own repository started")
        return await self._shared.feeding.feed(self.thread_id, session, from_seq=from_seq)


def _record_of(tx: TranscriptReader, thread: Thread, config: Config) -> ThreadRecord:
    scope = ThreadScope.stored(tx, thread.id, config)
    messages, tokens = tx.span(thread.id, from_seq=0, since=scope.since)
    last = scope.messages(tx, newest=1)
    return ThreadRecord(
        thread_id=thread.id,
        messages=messages,
        tokens=tokens,
        next_seq=thread.next_seq,
        epoch=thread.epoch,
        last_at=last[0].at if last else None,
        budget_tokens=thread.budget_tokens,
    )


class RepositoryConversations:
    """Makes handles of one repository's threads, and runs the tasks that they share."""

    def __init__(
        self,
        parts: RepositoryParts,
        jobs: Jobs,
        *,
        tasks: Branch,
        forget: Callable[[Selection], Awaitable[Erased]],
        overview: Overview,
        check_usable: Callable[[], None],
    ) -> None:
        self._tasks = tasks
        self._index = parts.index
        self._erase = forget
        self.usage: UsageMeter = UsageMeter()
        self._parts = ConversationParts(
            repo_id=parts.repo_id,
            store=guarded(parts.transcript, check_usable),
            embedder=parts.embedder,
            chat_model=parts.chat_model,
            clock=parts.clock,
            config=parts.config,
            publish=parts.bus.publish,
            spawn=tasks.spawn,
            meter=self.usage,
            forget=self._forget,
            appended=self._appended,
            demand=jobs.demand,
            poke_jobs=jobs.poke,
            spans=parts.spans,
        )
        self._expiry = ExpirySweep(self._parts)
        self.compressing: Compressing = Compressing(self._parts)
        self.feeding: Feeding = Feeding(self._parts)
        self.mneme: Mneme = Mneme(self._parts)
        self.recall: PassiveRecall = PassiveRecall(self._parts, parts.records)
        self.overview = overview
        self.check_usable = check_usable

    def handle(self, thread_id: str, **keywords: Any) -> Conversation:
        """Make a handle of the thread. *Raises* ``ValueError``: see ``settings_of``."""
        settings = settings_of(thread_id, self._parts.config, **keywords)
        return Conversation(self._parts, settings, self)

    async def threads(self, limit: int | None, after: str) -> list[ThreadRecord]:
        """List threads that anything was appended to, by id. *Cancellation*: safe."""
        config = self._parts.config
        return await self._parts.store.reading(
            lambda tx: [_record_of(tx, one, config) for one in tx.begun_threads(limit, after)]
        )

    def statistics(self) -> ConversationStatistics:
        """Count what the tasks have in progress."""
        mneme = self.mneme.statistics()
        return ConversationStatistics(
            compressing=self.compressing.under_way,
            evicting=mneme.running + mneme.waiting,
            evictions=mneme.evictions,
            eviction_failures=mneme.failures,
            usage=self.usage.by_purpose,
        )

    async def is_behind(self, thread_id: str) -> bool:
        """Whether messages of the thread wait for their vectors."""
        self.check_usable()
        return await self._index.is_behind(thread_id)

    def open(self) -> None:
        """Start the tasks; the first does what an earlier run left due."""
        self._tasks.spawn(self._take_up, self._expiry.sweep, self.mneme.resume)

    async def sweep(self) -> None:
        """Erase what has expired; a failure is logged. *Cancellation*: safe."""
        await self._take_up(self._expiry.sweep)

    async def _take_up(self, *due: Callable[[], Awaitable[object]]) -> None:
        for work in due:
            try:
                await work()
            except (UsageError, StoreReadOnly):
                return  # it was closed, or cannot be written; the next who opens it looks again
            except MnemoError:
                log.exception("what was due in a repository's conversations waits for a write")

    async def _forget(self, selection: Selection) -> Erased:
        self.check_usable()
        return await self._erase(selection)

    def _appended(self, settings: ThreadSettings) -> None:
        if self._tasks.ended:  # what is due is found in the store by the next who opens it
            return
        self._index.poke()
        self._expiry.appended(settings)
        self.feeding.appended(settings.thread_id)
        if settings.summaries:
            self.compressing.appended(settings)
        self.mneme.appended(settings)

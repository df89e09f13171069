"""A conversation: the messages of one thread, its window, and what survives leaving it."""

from __future__ import annotations

from collections.abc import Callable

from mnemo.context.goals import Goals
from mnemo.context.looking import WindowLook, look
from mnemo.context.mneme import Mneme
from mnemo.context.noted import Overview
from mnemo.context.passive import PassiveRecall
from mnemo.context.pins import Pins
from mnemo.context.snapshots import Snapshots
from mnemo.context.viewport import Viewport
from mnemo.conversation.compressing import Compressing
from mnemo.conversation.feeding import Feed, Feeding
from mnemo.conversation.indexing import Indexing
from mnemo.conversation.log import MessageLog
from mnemo.conversation.parts import ConversationParts, ThreadSettings
from mnemo.runtime.tasks import on_clock
from mnemo.session.session import Session
from mnemo.transcript.derived import Compaction

__all__ = ["Conversation", "Departments"]


class Departments:
    """
    Who works on the conversations of one repository, beside those who append and load.

    Args:
        overview: Tells of the notes, in windows that are to show them.
        check_usable: Raises ``UsageError`` where the repository is closed.
    """

    def __init__(
        self,
        parts: ConversationParts,
        *,
        recall: PassiveRecall,
        overview: Overview,
        check_usable: Callable[[], None],
    ) -> None:
        self.compressing = Compressing(parts)
        self.indexing = Indexing(parts)
        self.feeding = Feeding(parts)
        self.mneme = Mneme(parts)
        self.recall = recall
        self.overview = overview
        self.check_usable = check_usable


class Conversation(MessageLog):
    """
    One thread of messages, append-only; made by ``Repository.conversation``.

    Handles of one thread share everything, and making one touches nothing.
    """

    def __init__(
        self, parts: ConversationParts, settings: ThreadSettings, departments: Departments
    ) -> None:
        super().__init__(parts, settings)
        self._departments = departments

    @property
    def goals(self) -> Goals:
        """What the thread is after; held in view until it is completed."""
        return Goals(self._parts.store, self.thread_id)

    @property
    def pins(self) -> Pins:
        """Messages that goals hold on to."""
        return Pins(self._parts, self._settings)

    @property
    def snapshots(self) -> Snapshots:
        """Summaries of what has left the window, and the verdicts it left by."""
        return Snapshots(self._parts, self.thread_id)

    def viewport(self, budget_tokens: int | None = None, *, notes: bool = False) -> Viewport:
        """
        What an agent sees of the thread within a budget; a plain call.

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
            mneme=self._departments.mneme,
            recall=self._departments.recall,
            overview=self._departments.overview if notes else None,
            budget_tokens=budget_tokens,
        )

    async def look(self, budget_tokens: int | None = None) -> WindowLook:
        """
        What the window would be, in numbers and zones; nothing is written or watched by it.

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
        self._departments.check_usable()
        return await self._departments.compressing.compress(self._settings)

    async def settle(self, timeout_s: float | None = None) -> None:
        """
        Wait until no compression, indexing or eviction of the thread runs or is due.

        Args:
            timeout_s: Seconds of the clock; ``None`` is without limit.

        Raises:
            TimeoutError: The time is over; the work goes on. *Cancellation*: safe.
        """
        self._departments.check_usable()
        await on_clock(self._parts.clock.sleep, timeout_s, self._settled)

    async def _settled(self) -> None:
        departments = self._departments
        await departments.compressing.settled(self.thread_id)
        await departments.mneme.settled(self.thread_id)
        await departments.indexing.settled(self.thread_id)

    async def feed(self, session: Session, *, from_seq: int | None = None) -> Feed:
        """
        Have every message become a step of *session*, as the conversation grows.

        Each exactly once, whatever is restarted or fed again; it goes on in the background
        until it is cancelled, or the session takes no more.

        Args:
            from_seq: Where to begin; default: behind the last message of the thread that
                the session holds, or if it holds none, with what is appended next.

        Raises:
            ValueError: *from_seq* is no seq, or *session* none of this repository: what
                is erased here would not be erased there. *Cancellation*: safe; nothing is fed.
        """
        self._departments.check_usable()
        if not isinstance(session, Session) or session.repo_id != self._parts.repo_id:
            raise ValueError("a conversation feeds a session that its own repository started")
        return await self._departments.feeding.feed(self.thread_id, session, from_seq=from_seq)

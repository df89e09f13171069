"""
Mirroring: appends a thread's messages to a session as the thread grows.

Every message becomes a step under its own key, so that a feed which begins again where it is not
sure adds nothing twice, and one that begins where the last one ended misses nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import anyio

from mnemo.conversation.scope import ConversationParts, ThreadScope
from mnemo.errors import StoreError, UsageError
from mnemo.log.transcript import TranscriptReader
from mnemo.runtime.tasks import CancelHandle, Home
from mnemo.runtime.user_code import called, traceback_of
from mnemo.runtime.validation import whole_number
from mnemo.values.messages import StoredMessage

log: logging.Logger = logging.getLogger("mnemo")

PORTION = 64
"""Seqs that are read at once (S)."""
LOOKED_UP = 256
"""Messages of the session that are looked up at once, where it is asked how far it is (S)."""
MAX_RETRY_S = 60.0
"""Longest pause after failures of the store, in seconds of the clock (S)."""


class FeedTarget(Protocol):
    """A session that a thread can be mirrored to."""

    @property
    def id(self) -> str:
        """Names it in messages to people."""
        ...

    async def _take_fed(self, messages: Sequence[StoredMessage], /) -> None:
        """
        Keep *messages* but for known, erased or extracted ones; in one transaction if they fit.
        """
        ...

    def held_messages(self, thread_id: str, /) -> Sequence[str]:
        """Ids of the thread's messages that it holds, the last one first."""
        ...


class Feed:
    """
    The mirroring of one thread to one session; made by ``Conversation.feed``.

    It ends when it is cancelled, when the session takes no more, or with the repository.
    What was not fed then is fed by the next feed of the two.
    """

    thread_id: str
    session_id: str
    error: Exception | None

    def __init__(
        self, parts: ConversationParts, thread_id: str, session: FeedTarget, from_seq: int
    ) -> None:
        self.thread_id = thread_id
        self.session_id = session.id
        self.error = None
        self._parts = parts
        self._session = session
        self._next = from_seq
        self._home = Home(f"the feed of {session.id!r}")
        self._handle = CancelHandle()
        self._poked = anyio.Event()
        self._beat = anyio.Event()
        self._wanted = 1
        self._done = 0
        self._ended = False

    def __repr__(self) -> str:
        state = "active" if self.active else "ended"
        return f"<Feed {self.thread_id!r} to {self.session_id!r}, {state}>"

    @property
    def active(self) -> bool:
        """Whether it goes on."""
        return not self._ended

    def poke(self) -> None:
        """The thread may have grown; a plain call."""
        self._wanted += 1
        self._poked.set()

    def cancel(self) -> None:
        """
        End it; what is being written may still be. Idempotent, a plain call.

        Raises:
            UsageError: It belongs to another event loop.
        """
        self._home.check()
        self._handle.cancel()

    async def caught_up(self) -> None:
        """
        Wait until everything that is stored in the thread at this moment is in the session.

        Raises:
            SessionError: The session takes no more; it is ``error`` as well.
            UsageError: It was cancelled, or the repository was closed; or it belongs to
                another event loop. *Cancellation*: safe; only the wait ends.
        """
        self._home.check()
        self.poke()
        target = self._wanted
        while self._done < target:
            if self._ended:
                raise self.error or UsageError(f"the feed of {self.session_id!r} has ended")
            await self._beat.wait()

    async def run(self) -> None:
        """Feed until the end. *Cancellation*: safe."""
        try:
            with self._handle:
                await self._feed()
        except Exception as error:
            self.error = error
            log.warning(
                "session %r is not fed by thread %r any more: %s",
                self.session_id,
                self.thread_id,
                error,
                exc_info=traceback_of(error),
            )
        finally:
            self._ended = True
            self._pulse()

    def _pulse(self) -> None:
        self._beat.set()
        self._beat = anyio.Event()

    async def _feed(self) -> None:
        failures = 0
        while True:
            self._poked, wanted = anyio.Event(), self._wanted
            try:
                await self._catch_up()
            except StoreError as error:
                failures = min(failures + 1, 32)
                log.warning("session %r is fed later: %s", self.session_id, error)
                await self._rest(failures)
                continue
            failures, self._done = 0, wanted
            self._pulse()
            await self._poked.wait()

    async def _rest(self, failures: int) -> None:
        base = self._parts.config.conversation.retry_backoff_s
        await self._parts.clock.sleep(min(MAX_RETRY_S, base * 2 ** (failures - 1)))

    async def _catch_up(self) -> None:
        more = True
        while more:
            messages, end, more = await self._parts.store.reading(self._read)
            if messages:
                await called(self._session._take_fed, messages)
            self._next = end

    def _read(self, tx: TranscriptReader) -> tuple[list[StoredMessage], int, bool]:
        """Some messages, the seq behind them, and whether more follow."""
        scope = ThreadScope.stored(tx, self.thread_id, self._parts.config)
        start, following = self._next, scope.thread.next_seq
        end = min(start + PORTION, max(start, following))
        messages = scope.messages(tx, from_seq=start, to_seq=end - 1) if end > start else []
        return messages, end, end < following


class Feeding:
    """The feeds of one repository's threads."""

    def __init__(self, parts: ConversationParts) -> None:
        self._parts = parts
        self._feeds: dict[str, list[Feed]] = {}

    async def feed(
        self, thread_id: str, session: FeedTarget, *, from_seq: int | None = None
    ) -> Feed:
        """
        Have *session* take every message of the thread, by seq, but for blank and expired ones.

        It goes on in the background until it is cancelled, the session takes no more or the
        repository is closed; a later feed of the two goes on there. *from_seq*: At least 0;
        ``None``: behind the last message that the session holds, or if it holds none from the next
        append on. *Raises* ``ValueError``: *from_seq* is no seq; ``UsageError``: the repository is
        closed. *Cancellation*: safe; nothing is fed.
        """
        if from_seq is None:
            held = list(session.held_messages(thread_id))
            from_seq = await self._parts.store.reading(partial(_behind, thread_id, held))
        else:
            whole_number("from_seq", from_seq, 0, math.inf)
        feed = Feed(self._parts, thread_id, session, from_seq)
        self._parts.spawn(self._run, feed)
        self._feeds.setdefault(thread_id, []).append(feed)
        return feed

    def appended(self, thread_id: str) -> None:
        """Something was appended to the thread; a plain call."""
        for feed in self._feeds.get(thread_id, ()):
            feed.poke()

    async def _run(self, feed: Feed) -> None:
        try:
            await feed.run()
        finally:
            feeds = self._feeds[feed.thread_id]
            feeds.remove(feed)
            if not feeds:
                del self._feeds[feed.thread_id]


def _behind(thread_id: str, held: Sequence[str], tx: TranscriptReader) -> int:
    """The seq behind the last of the messages *held*; of none, the thread's next."""
    if not held:
        return tx.thread(thread_id).next_seq
    for start in range(0, len(held), LOOKED_UP):
        found = tx.by_id(thread_id, held[start : start + LOOKED_UP])
        if found:
            return max(message.seq for message in found.values()) + 1
    # All that it holds is gone from the thread: whatever is left there came later.
    return 0

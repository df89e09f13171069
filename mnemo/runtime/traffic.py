"""Write traffic of an event loop: background work waits for a pause in the writes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import RunVar

from mnemo.runtime.clock import elapsed
from mnemo.runtime.tasks import of_loop

QUIET_S = 0.02
"""Seconds over which writes are counted."""
CALM_WRITES = 10
"""Writes within ``QUIET_S`` that still count as a pause (500 a second)."""
SPAN_S = 0.25
"""Seconds in which writes are counted whatever bursts they come in (S)."""
BUSY_WRITES = 15
"""Writes in so many seconds from which the loop is busy (60 a second) (S)."""
FOREGROUND_SHARE = 4.0
"""Rest after a portion of work while writes go on, in times of the portion's own duration."""


class Traffic:
    """
    Counts the writes of one event loop, and resolves waiters at a pause in them. *elsewhere*:
    writes of other processes that were read: they may need the same machine. *embedded*: texts
    whose vectors were made, and *embedding_s* the seconds that this took.
    """

    __slots__ = ("_last", "_seen", "_waiters", "elsewhere", "embedded", "embedding_s", "writes")

    def __init__(self) -> None:
        self.writes: int = 0
        self.elsewhere: int = 0
        self.embedded: int = 0
        self.embedding_s: float = 0.0
        self._last: deque[float] = deque(maxlen=BUSY_WRITES)
        self._seen = 0
        self._waiters: list[tuple[asyncio.Future[None], float]] = []

    def passed(self) -> None:
        """Count a durable write; cheap enough for every append."""
        self.writes += 1
        self._last.append(elapsed())

    @property
    def is_busy(self) -> bool:
        """Whether there are many writes now, or were within the last quarter of a second."""
        last = self._last
        many = len(last) == BUSY_WRITES and last[-1] - last[0] <= SPAN_S
        return many and elapsed() - last[-1] <= SPAN_S

    def pause(self, patience_s: float) -> asyncio.Future[None]:
        """Return a future that is done at the next pause, or after *patience_s*."""
        loop = asyncio.get_running_loop()
        if not self._waiters:
            self._seen = self.writes
            loop.call_later(QUIET_S, self._look)
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append((waiter, elapsed() + patience_s))
        return waiter

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Do a portion of background work; if writes went on meanwhile, rest after it."""
        began, before = elapsed(), self.writes + self.elsewhere
        yield
        if self.writes + self.elsewhere - before > CALM_WRITES:
            await anyio.sleep(FOREGROUND_SHARE * (elapsed() - began))

    def _look(self) -> None:
        busy = self.writes - self._seen > CALM_WRITES
        self._seen, now = self.writes, elapsed()
        waiters, self._waiters = self._waiters, []
        for waiter, deadline in waiters:
            if busy and now < deadline:
                self._waiters.append((waiter, deadline))
            elif not waiter.done():
                waiter.set_result(None)
        if self._waiters:
            asyncio.get_running_loop().call_later(QUIET_S, self._look)


class Pauses:
    """The pauses that a background worker makes for writes, each *patience_s* at most."""

    __slots__ = ("_patience_s", "_traffic", "_waiter")

    def __init__(self, patience_s: float) -> None:
        self._traffic = traffic()
        self._patience_s = patience_s
        self._waiter: asyncio.Future[None] | None = None

    async def pause(self) -> None:
        """Wait for a pause in the writes, or for ``end``."""
        self._waiter = self._traffic.pause(self._patience_s)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def end(self) -> None:
        """Let the worker go on: somebody waits for it. A plain call."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


_TRAFFIC: RunVar[Traffic] = RunVar("mnemo.runtime.traffic")


def traffic() -> Traffic:
    """Return the running event loop's."""
    return of_loop(_TRAFFIC, Traffic)

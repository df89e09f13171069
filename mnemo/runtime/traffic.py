"""Write traffic of an event loop: background work waits for a pause in the writes."""

from __future__ import annotations

import asyncio

from anyio.lowlevel import RunVar

from mnemo.runtime.clock import elapsed
from mnemo.runtime.threads import of_loop

__all__ = ["CALM_WRITES", "Traffic", "traffic"]

QUIET_S = 0.02
"""Seconds over which writes are counted."""
CALM_WRITES = 10
"""Writes within ``QUIET_S`` that still count as a pause (500 a second)."""


class Traffic:
    """
    Counts the writes of one event loop, and resolves waiters at a pause in them.

    Attributes:
        writes: How many there were.
    """

    __slots__ = ("_seen", "_waiters", "writes")

    def __init__(self) -> None:
        self.writes = 0
        self._seen = 0
        self._waiters: list[tuple[asyncio.Future[None], float]] = []

    def passed(self) -> None:
        """Count a durable write; cheap enough for every append."""
        self.writes += 1

    def pause(self, patience_s: float) -> asyncio.Future[None]:
        """Return a future that is done at the next pause, or after *patience_s*."""
        loop = asyncio.get_running_loop()
        if not self._waiters:
            self._seen = self.writes
            loop.call_later(QUIET_S, self._look)
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append((waiter, elapsed() + patience_s))
        return waiter

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


_TRAFFIC: RunVar[Traffic] = RunVar("mnemo.runtime.traffic")


def traffic() -> Traffic:
    """Return the running event loop's."""
    return of_loop(_TRAFFIC, Traffic)

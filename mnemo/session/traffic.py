"""
Appends go first: work of this process that can wait waits for a pause in them.

All sessions of an event loop share one interpreter, so what counts is what all of
them do: with 256 sessions each one pauses for a moment all the time.
"""

from __future__ import annotations

import asyncio

from anyio.lowlevel import RunVar

from mnemo.runtime.clock import elapsed

__all__ = ["Traffic", "traffic"]

QUIET_S = 0.02
"""Seconds over which appends are counted."""
QUIET_APPENDS = 10
"""Appends within ``QUIET_S`` that still count as a pause (500 a second)."""
PATIENCE_S = 2.0
"""Seconds after which waiting work goes on although appends do (S)."""


class Traffic:
    """The appends of one event loop, and who waits for a pause in them."""

    def __init__(self) -> None:
        self._appends = 0
        self._seen = 0
        self._began = 0.0
        self._waiters: list[asyncio.Future[None]] = []

    def passed(self) -> None:
        """Count a durable append."""
        self._appends += 1

    def pause(self) -> asyncio.Future[None]:
        """A future that is done at the next pause, or when patience is over."""
        loop = asyncio.get_running_loop()
        if not self._waiters:
            self._seen, self._began = self._appends, elapsed()
            loop.call_later(QUIET_S, self._look)
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def _look(self) -> None:
        busy = self._appends - self._seen > QUIET_APPENDS
        if busy and elapsed() - self._began < PATIENCE_S:
            self._seen = self._appends
            asyncio.get_running_loop().call_later(QUIET_S, self._look)
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


_TRAFFIC: RunVar[Traffic] = RunVar("mnemo.session.traffic")


def traffic() -> Traffic:
    """The running event loop's."""
    try:
        return _TRAFFIC.get()
    except LookupError:
        _TRAFFIC.set(made := Traffic())
        return made

"""A clock that stands still until a test moves it, and an observer that remembers."""

from __future__ import annotations

import heapq
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from mnemo.events import Event


class ManualClock:
    """
    A ``Clock`` that moves only by ``advance``.

    Args:
        start: The first value of ``now``; aware. Default: 2024-01-01 00:00 UTC.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime(2024, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, anyio.Event]] = []

    def now(self) -> datetime:
        """The start plus all advances."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by *seconds*. *Cancellation*: safe."""
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        woken = anyio.Event()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        await woken.wait()

    def advance(self, seconds: float) -> Settled:
        """
        Move the clock and wake who has slept enough.

        The clock has moved when this returns; await the result to let the woken run.
        """
        self._elapsed += seconds
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            heapq.heappop(self._sleepers)[2].set()
        return Settled()


class Settled:
    """Awaited, gives the tasks that were woken some turns of the event loop."""

    def __await__(self) -> Generator[Any, Any, None]:
        return _turns(20).__await__()


async def _turns(number: int) -> None:
    for _ in range(number):
        await anyio.lowlevel.checkpoint()


E = TypeVar("E", bound=Event)


class RecordingObserver:
    """
    A synchronous observer for ``Mnemo.subscribe``.

    Attributes:
        events: Everything it was told, in order.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

"""
The system clock, time helpers and ids; the only door to time and chance.

Wall time (aware, UTC) is for what is stored, monotonic time for timers; a test can hold both.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import anyio

T = TypeVar("T")


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The present time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin; never goes backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait; not at all for a time that is over. *Cancellation*: safe."""
        await anyio.sleep(max(0.0, seconds))


def as_utc(at: datetime) -> datetime:
    """Give a time without a zone the zone UTC; one with a zone is kept as it is."""
    return at if at.utcoffset() is not None else at.replace(tzinfo=UTC)


def in_utc(at: datetime) -> datetime:
    """*at* in UTC; beyond years 1 to 9999 their nearest end, so that old rows can be read."""
    if at.tzinfo is UTC:
        return at
    at = as_utc(at)
    try:
        return at.astimezone(UTC)
    except OverflowError:
        return (datetime.min if at.year == 1 else datetime.max).replace(tzinfo=UTC)


def moved(at: datetime, by: timedelta) -> datetime:
    """*at* moved *by* so much; outside the years 1 to 9999 of UTC their nearest end."""
    try:
        return in_utc(at) + by
    except OverflowError:
        return (datetime.min if by < timedelta() else datetime.max).replace(tzinfo=UTC)


def of_timestamp(seconds: float) -> datetime:
    """The time of Unix *seconds*, in UTC; outside the years 1 to 9999 their nearest end."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError):
        return (datetime.min if seconds < 0 else datetime.max).replace(tzinfo=UTC)


def elapsed() -> float:
    """Seconds for measuring a duration; not for timers, which run on the service's clock."""
    return time.perf_counter()


SLICE_S = 0.001
"""Seconds of work between two pauses; a pause costs up to 0.1 ms of processor time."""
PAUSE_S = 0.000_2
"""Seconds of each pause; long enough for a waiting thread to wake."""


class Breather:
    """
    Lets other threads run while this one computes.

    A worker thread that runs pure Python holds the interpreter for whole switch intervals (5 ms by
    default), which the event loop feels as lag. Called often in a loop, ``breathe`` sleeps for a
    moment whenever ``SLICE_S`` has passed: the loop waits for one slice of every thread that
    computes, at most.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = time.perf_counter() + SLICE_S

    def breathe(self) -> None:
        """Pause if it is time to; costs well under a microsecond if it is not."""
        if time.perf_counter() >= self._next:
            time.sleep(PAUSE_S)
            self._next = time.perf_counter() + SLICE_S


def breathed(items: Iterable[T]) -> Iterator[T]:
    """Each of *items*, as a ``Breather`` breathes."""
    breather = Breather()
    for item in items:
        yield item
        breather.breathe()


MAX_DEBT_MINUTES = 5
"""What a bucket may be overdrawn by, in minutes of its flow."""


class Bucket:
    """
    A budget that refills steadily and may be overdrawn. *per_minute*: What flows in, ``None`` is no
    limit; *size*: what it holds at most, a minute's flow if left out; *state*: two numbers that it
    keeps its state in, 0 at first: what is missing, and when (monotonic).
    """

    def __init__(
        self,
        per_minute: float | None,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        size: float | None = None,
        state: MutableSequence[float] | memoryview[float] | None = None,
    ) -> None:
        self._per_minute = per_minute
        self._size = size or per_minute or 0.0
        self._monotonic = monotonic
        self._state = [0.0, 0.0] if state is None else state

    def wait_for(self, amount: float) -> float:
        """Seconds until *amount* is there; one above the capacity needs a full bucket only."""
        if self._per_minute is None:
            return 0.0
        self._refill(self._per_minute)
        missing = min(amount, self._size) - self._size + self._state[0]
        return max(0.0, missing * 60 / self._per_minute)

    def take(self, amount: float) -> None:
        """Take *amount*, or give back a negative one; never above what it holds at most."""
        if self._per_minute is not None:
            self._refill(self._per_minute)
            most = self._size + MAX_DEBT_MINUTES * self._per_minute
            self._state[0] = min(most, max(0.0, self._state[0] + amount))

    def _refill(self, per_minute: float) -> None:
        now = self._monotonic()
        gained = (now - self._state[1]) * per_minute / 60
        self._state[0] = max(0.0, self._state[0] - gained)
        self._state[1] = now


# Seeded from the system once: asking it for every id gives up the interpreter lock every
# time, and an event loop that does so for each append waits for the writer as often.
_chance = random.Random(os.urandom(32))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _chance.seed(os.urandom(32)))


def new_id(prefix: str) -> str:
    """
    Make an id such as ``semantic-0192f3c4a5b6-9f3a1c2b4d5e``.

    Twelve hex digits of Unix milliseconds, then twelve of chance: ids sort by the
    time they were made, and two processes do not meet (48 bits within one millisecond).
    """
    return f"{prefix}-{time.time_ns() // 1_000_000:012x}-{_chance.getrandbits(48):012x}"

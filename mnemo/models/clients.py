"""HTTP clients of one model, one per event loop, and the limits of its requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread

from mnemo.protocols import Clock

CLOSING_S = 5.0
"""Seconds that closing connections may take; a server that does not answer is left."""


class _Shared:
    """One client and how many requests use it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.borrowers = 0
        self.retired = False

    async def close_if_idle(self) -> None:
        if self.retired and not self.borrowers:
            with anyio.move_on_after(CLOSING_S, shield=True):
                await self.client.aclose()


class _Home:
    """What belongs to one event loop."""

    def __init__(self, max_concurrency: int) -> None:
        self.lane = Lane(max_concurrency)
        self.making = anyio.Lock()
        self.shared: _Shared | None = None


class Clients:
    """
    Lends the running loop's client.

    Args:
        make: Makes a client; called in a worker thread, since it imports and reads certificates.
        max_concurrency: Requests at once, per event loop.
    """

    def __init__(self, make: Callable[[], Any], *, max_concurrency: int) -> None:
        self._make = make
        self._max_concurrency = max_concurrency
        self._homes: dict[asyncio.AbstractEventLoop, _Home] = {}

    @property
    def lane(self) -> Lane:
        """The waiting lines of the running loop."""
        return self._home().lane

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Any]:
        """
        Lend the client, making it at first use.

        *Cancellation*: safe; the last borrower of a closed client closes its connections.
        """
        shared = await self._current(self._home())
        shared.borrowers += 1
        try:
            yield shared.client
        finally:
            shared.borrowers -= 1
            await shared.close_if_idle()

    async def aclose(self) -> None:
        """Close the running loop's client, or have its last borrower do it. Idempotent."""
        home = self._home()
        with anyio.CancelScope(shield=True):
            async with home.making:
                shared, home.shared = home.shared, None
        if shared is not None:
            shared.retired = True
            await shared.close_if_idle()

    async def _current(self, home: _Home) -> _Shared:
        async with home.making:
            if home.shared is None:
                home.shared = _Shared(await anyio.to_thread.run_sync(self._make))
            return home.shared

    def _home(self) -> _Home:
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop)
        if home is None:
            for gone in [known for known in self._homes if known.is_closed()]:
                del self._homes[gone]
            home = self._homes[loop] = _Home(self._max_concurrency)
        return home


# ── Limits: requests at once, and per minute ────────────────────────────────────────────

MAX_DEBT_MINUTES = 5
"""What a bucket may be overdrawn by, in minutes of its flow, whatever a server says was used."""


class Bucket:
    """
    A budget that refills steadily and may be overdrawn.

    Args:
        per_minute: What flows in per minute, and what it holds at most; ``None`` is no limit.
    """

    def __init__(self, per_minute: float | None, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._level = per_minute or 0.0
        self._filled_at = clock.monotonic()

    def wait_for(self, amount: float) -> float:
        """Seconds until *amount* is there; one above the capacity needs a full bucket only."""
        if self._per_minute is None:
            return 0.0
        self._refill(self._per_minute)
        missing = min(amount, self._per_minute) - self._level
        return max(0.0, missing * 60 / self._per_minute)

    def take(self, amount: float) -> None:
        """Take *amount*, or give back a negative one; never above what it holds at most."""
        if self._per_minute is not None:
            self._refill(self._per_minute)
            debt = -MAX_DEBT_MINUTES * self._per_minute
            self._level = min(self._per_minute, max(debt, self._level - amount))

    def _refill(self, per_minute: float) -> None:
        now = self._clock.monotonic()
        gained = (now - self._filled_at) * per_minute / 60
        self._level = min(per_minute, self._level + gained)
        self._filled_at = now


class Lane:
    """The waiting lines of one event loop; both are first come, first served."""

    def __init__(self, max_concurrency: int) -> None:
        self.slots = anyio.Semaphore(max_concurrency)
        self.head = anyio.Lock()


class Limits:
    """
    The limits of one model instance: requests at once per event loop, requests and tokens per
    minute over all of them.
    """

    def __init__(
        self,
        *,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        clock: Clock,
    ) -> None:
        self._requests = Bucket(requests_per_minute, clock)
        self._tokens = Bucket(tokens_per_minute, clock)
        self._clock = clock

    @asynccontextmanager
    async def turn(self, lane: Lane, tokens: float) -> AsyncIterator[None]:
        """
        Wait for a turn to send a request of about *tokens*, and hold its slot.

        *Cancellation*: safe; who leaves the line takes nothing.
        """
        async with lane.slots:
            async with lane.head:
                await self._admitted(tokens)
            yield

    async def _admitted(self, tokens: float) -> None:
        while True:
            # Looked at again after each wait: another call may have settled meanwhile.
            wait = max(self._requests.wait_for(1), self._tokens.wait_for(tokens))
            if wait <= 1e-9:
                break
            await self._clock.sleep(wait)
        self._requests.take(1)
        self._tokens.take(tokens)

    def settle(self, estimated: float, actual: float) -> None:
        """Correct what a turn took for *estimated* tokens, now that *actual* are known."""
        self._tokens.take(actual - estimated)

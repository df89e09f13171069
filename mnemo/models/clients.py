"""The connections of one model: a client per event loop, made at first use, closed when idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread

from mnemo.models.limits import Lane

__all__ = ["Clients"]

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

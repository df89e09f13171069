"""Backoff: failed attempts of background work by key, and the wait before the next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field

import anyio


@dataclass
class _Pause:
    over: anyio.Event = field(default_factory=anyio.Event)


class Backoff:
    """
    Counts failed attempts by key, and waits before the next one.

    Args:
        sleep: The clock's.
        spawn: Starts a task; a plain call.
        backoff_s: Seconds before the second attempt, doubled for each after it.
    """

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]],
        spawn: Callable[..., object],
        *,
        backoff_s: float,
    ) -> None:
        self._sleep = sleep
        self._spawn = spawn
        self._backoff_s = backoff_s
        self._failed: dict[Hashable, tuple[Hashable, int]] = {}
        self._pauses: dict[Hashable, _Pause] = {}

    @property
    def pending(self) -> int:
        """Pieces of work that wait for their next attempt."""
        return len(self._pauses)

    def attempts(self, key: Hashable, about: Hashable) -> int:
        """Failed attempts at *key*'s work as far as it was about the same thing."""
        known, failed = self._failed.get(key, (None, 0))
        return failed if known == about else 0

    def failed(self, key: Hashable, about: Hashable) -> int:
        """Count one more; how many there are."""
        number = self.attempts(key, about) + 1
        self._failed[key] = (about, number)
        return number

    def done(self, key: Hashable) -> None:
        """Begin to count anew."""
        self._failed.pop(key, None)

    def holds(self, key: Hashable) -> bool:
        """Whether *key*'s work waits for its next attempt."""
        return key in self._pauses

    def begin(self, key: Hashable, then: Callable[[], None]) -> None:
        """Wait as long as the attempts so far ask for, then call *then*."""
        self.end(key)
        _, failed = self._failed.get(key, (None, 1))
        pause = self._pauses[key] = _Pause()
        self._spawn(self._wait, key, pause, self._backoff_s * 2 ** (failed - 1), then)

    def end(self, key: Hashable) -> None:
        """Do not wait any longer; nothing is called."""
        pause = self._pauses.pop(key, None)
        if pause is not None:
            pause.over.set()

    async def over(self, key: Hashable) -> None:
        """Wait until *key*'s work does not wait any more. *Cancellation*: safe."""
        while pause := self._pauses.get(key):
            await pause.over.wait()

    async def _wait(
        self, key: Hashable, pause: _Pause, seconds: float, then: Callable[[], None]
    ) -> None:
        try:
            await self._sleep(seconds)
            if self._pauses.get(key) is pause:
                del self._pauses[key]
                then()
        finally:
            if self._pauses.get(key) is pause:
                del self._pauses[key]
            pause.over.set()

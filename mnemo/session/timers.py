"""
Timers that only ever move later, on the service's clock.

A timer is never restarted by cancelling a task: it sleeps to its deadline, looks
whether the deadline has moved meanwhile, and sleeps on. So an append costs one
assignment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mnemo.protocols import Clock
from mnemo.runtime.tasks import CancelHandle

__all__ = ["Timer"]


class Timer:
    """
    Fires *period_s* after it was last restarted, while it is armed.

    Args:
        period_s: Seconds; ``None`` never fires.
        fire: Awaited when due; the timer is disarmed before, and may be restarted by it.
        spawn: Starts a task that outlives the call.
    """

    __slots__ = ("_clock", "_due", "_fire", "_period_s", "_running", "_spawn")

    def __init__(
        self,
        period_s: float | None,
        fire: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        spawn: Callable[..., None],
    ) -> None:
        self._period_s = period_s
        self._fire = fire
        self._clock = clock
        self._spawn = spawn
        self._due: float | None = None
        self._running: CancelHandle | None = None

    @property
    def armed(self) -> bool:
        """Whether it will fire unless it is stopped."""
        return self._due is not None

    def restart(self) -> None:
        """(Re)arm it for its full length from now."""
        if self._period_s is None:
            return
        self._due = self._clock.monotonic() + self._period_s
        if self._running is None:
            self._running = CancelHandle()
            self._spawn(self._run, self._running)

    def stop(self) -> None:
        """Disarm it; a firing that has begun goes on."""
        self._due = None
        if self._running is not None:
            self._running.cancel()
            self._running = None

    async def _run(self, handle: CancelHandle) -> None:
        with handle:
            while self._running is handle and self._due is not None:
                left = self._due - self._clock.monotonic()
                if left > 0:
                    await self._clock.sleep(left)
                    continue
                self._due, self._running = None, None
                await self._fire()

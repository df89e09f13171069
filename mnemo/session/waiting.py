"""
Waiting without polling: for a condition, for a state, or for a deadline that moves.

A timer is never restarted by cancelling a task: it sleeps to its deadline, looks
whether the deadline has moved meanwhile, and sleeps on. So an append costs one
assignment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

import anyio

from mnemo.errors import SessionClosed
from mnemo.protocols import Clock
from mnemo.runtime.tasks import CancelHandle
from mnemo.values.journal import SessionState

__all__ = ["Pulse", "StateWaiters", "Timer"]


class Pulse:
    """Wakes the tasks that wait for a condition whenever something has changed."""

    def __init__(self) -> None:
        self._pulsed: anyio.Event | None = None

    def pulse(self) -> None:
        """Let every waiting task look at its condition again."""
        if self._pulsed is not None:
            self._pulsed.set()
            self._pulsed = None

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for *condition*, looked at after every pulse. *Cancellation*: safe."""
        while not condition():
            if self._pulsed is None:
                self._pulsed = anyio.Event()
            await self._pulsed.wait()


class StateWaiters:
    """The callers of ``wait_for``; resolved by the transition itself."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[tuple[Collection[SessionState], asyncio.Future[SessionState]]] = []

    async def wait(self, states: Collection[SessionState]) -> SessionState:
        """Wait for a transition into one of *states*. *Cancellation*: safe."""
        waiter: asyncio.Future[SessionState] = asyncio.get_running_loop().create_future()
        entry = (states, waiter)
        self._waiters.append(entry)
        try:
            return await waiter
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    def entered(self, state: SessionState) -> None:
        """Resolve the callers that wait for *state*, even if it is held for an instant only."""
        for states, waiter in self._waiters:
            if state in states and not waiter.done():
                waiter.set_result(state)

    def close(self, state: SessionState) -> None:
        """Fail every caller with ``SessionClosed``: the session has ended."""
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(SessionClosed(state=state, operation="wait_for"))


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

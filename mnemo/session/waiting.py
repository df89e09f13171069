"""Waiting without polling: for a state, resolved by the transition itself, or a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import anyio

from mnemo.episode.journal import SessionState
from mnemo.errors import SessionClosed

__all__ = ["Pulse", "StateWaiters"]


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
    """Who waits for which states."""

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
        """Resolve who waits for *state*, also if it is held for an instant only."""
        for states, waiter in self._waiters:
            if state in states and not waiter.done():
                waiter.set_result(state)

    def close(self, state: SessionState) -> None:
        """The session has ended: nobody's state will come."""
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(SessionClosed(state=state, operation="wait_for"))

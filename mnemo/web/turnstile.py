"""The turnstile: lets a few requests begin in each turn of the event loop, in their order."""

from __future__ import annotations

import asyncio
from collections import deque

MOST_PER_TURN = 8
"""Requests that begin in one turn of the loop, at most (S)."""


class Turnstile:
    """
    Lets requests begin in the order in which they came, a few in each turn of the loop.

    Many that arrive together would else all run before the loop looks at anything else:
    200 of them hold it for a tenth of a second, and the answers of others wait behind them.
    """

    __slots__ = ("_left", "_opens", "_waiting")

    def __init__(self) -> None:
        self._left = MOST_PER_TURN
        self._opens = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def passed(self) -> None:
        """Wait for a place in a turn. *Cancellation*: safe; the place goes to the next."""
        loop = asyncio.get_running_loop()
        if not self._opens:
            self._opens = True
            loop.call_soon(self._open)
        if self._left and not self._waiting:
            self._left -= 1
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _open(self) -> None:
        """Begin a turn: let those pass who wait, and rest once nobody has come in the last."""
        self._opens = bool(self._waiting) or self._left < MOST_PER_TURN
        self._left = MOST_PER_TURN
        while self._left and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._opens:
            asyncio.get_running_loop().call_soon(self._open)

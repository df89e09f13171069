"""How many bytes all that can be read again holds in memory together, and which of it goes."""

from __future__ import annotations

import math
from typing import Protocol


class Holder(Protocol):
    """Something that holds what it can read again."""

    def let_go(self) -> bool:
        """Drop what is held; False: it is in use now. A plain call."""


class MemoryBudget:
    """
    Holders, with the bytes of each: above *limit* bytes in all they let go.

    First those that nobody has used since they were read, then those that were used longest ago;
    not those in use, so that a single one may hold more than *limit* until another is read.
    For one event loop.
    """

    def __init__(self, limit: float = math.inf) -> None:
        self._limit = limit
        self._unused: dict[Holder, int] = {}
        self._used: dict[Holder, int] = {}
        self.bytes: int = 0

    def hold(self, holder: Holder, size: int) -> None:
        """Note that *holder* holds *size* bytes now; have others let go where that is too much."""
        sizes = self._used if holder in self._used else self._unused
        self.bytes += size - sizes.get(holder, 0)
        sizes[holder] = size
        if self.bytes > self._limit:
            self._make_room()

    def use(self, holder: Holder) -> None:
        """Note that *holder* was used just now."""
        size = self._unused.pop(holder, None) or self._used.pop(holder, None)
        if size is not None:
            self._used[holder] = size

    def drop(self, holder: Holder) -> None:
        """Note that *holder* holds nothing any more. Idempotent."""
        self.bytes -= self._unused.pop(holder, 0) + self._used.pop(holder, 0)

    def _make_room(self) -> None:
        for holder in (*self._unused, *self._used):
            if holder.let_go():
                self.drop(holder)
                if self.bytes <= self._limit:
                    return

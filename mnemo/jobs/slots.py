"""Places for jobs: how many a service works on at once, over all its repositories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

from mnemo.errors import UsageError
from mnemo.values.jobs import JobKind


class Wakeful(Protocol):
    """Something that looks for jobs from time to time."""

    def wake(self) -> None:
        """Look for jobs now; a plain call."""


class JobSlots:
    """
    Places for jobs that a service runs at once; *most* ``None``: as each repository says.

    *running* hold a place, *busy* of them per repository; *done* ended, *failed* tries did not.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.kinds: Collection[JobKind] | None = None
        self.running = 0
        self.done = 0
        self.failed = 0
        self.busy: Counter[str] = Counter()
        self._works = False
        self._pokes: set[Callable[[], None]] = set()
        self.wakeful: WeakSet[Wakeful] = WeakSet()
        """What is woken when another process may have written jobs."""

    def wake(self) -> None:
        """Have all look for jobs now; a plain call."""
        for one in tuple(self.wakeful):
            one.wake()

    @contextmanager
    def working(self, kinds: Collection[JobKind] | None) -> Iterator[None]:
        """Claim jobs of *kinds* alone while the block runs. *Raises* ``UsageError``."""
        if self.most == 0:
            raise UsageError("this service was made with workers=0, which leaves jobs to others")
        if self._works:
            raise UsageError("this service works already")
        self._works, self.kinds = True, kinds
        try:
            yield
        finally:
            self._works, self.kinds = False, None

    def take(self, wanted: int) -> int:
        """Take up to *wanted* places; how many it got."""
        got = wanted if self.most is None else max(0, min(wanted, self.most - self.running))
        self.running += got
        return got

    def give_back(self, places: int) -> None:
        """Free *places*; whoever waits for one looks for jobs again."""
        self.running -= places
        if places and self.most is not None:
            for poke in tuple(self._pokes):
                poke()

    @contextmanager
    def poking(self, poke: Callable[[], None]) -> Iterator[None]:
        """Call *poke* while the block runs, whenever a place was freed."""
        self._pokes.add(poke)
        try:
            yield
        finally:
            self._pokes.discard(poke)

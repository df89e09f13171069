"""Access counts of recalled nodes, gathered and written behind the answers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

import anyio

from mnemo.errors import MnemoError
from mnemo.protocols import Clock, GraphStore

__all__ = ["AccessLog"]

log = logging.getLogger("mnemo")

MERGE_S = 1.0
"""Seconds over which accesses are gathered into one write."""


class AccessLog:
    """
    Gathers which nodes recalls returned, and adds it to their counts in the store.

    What was noted is durable after ``flush``. The number of entries is bounded by that
    of the repository's nodes.
    """

    def __init__(self, graph: GraphStore, clock: Clock) -> None:
        self._graph = graph
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._noted = anyio.Event()

    @property
    def waiting(self) -> int:
        """Nodes whose counts are not written yet."""
        return len(self._counts)

    def note(self, ids: Iterable[str]) -> None:
        """Count one access of each of *ids*; a plain call."""
        self._counts.update(ids)
        self._noted.set()

    async def run(self) -> None:
        """
        Write what was noted, at most once a second, until cancelled.

        *Cancellation*: safe; what is not written is still there for ``flush``.
        """
        while True:
            await self._noted.wait()
            await self._clock.sleep(MERGE_S)
            await self.try_to_flush()

    async def try_to_flush(self) -> None:
        """``flush`` where the store lets it; a failure is logged. *Cancellation*: as there."""
        try:
            await self.flush()
        except MnemoError as error:
            # Counts nudge, nothing depends on them; they are tried again with the next.
            log.info("access counts could not be written: %s", error)

    async def flush(self) -> None:
        """
        Write what was noted.

        Raises:
            StoreError: Nothing was written; the counts are kept. *Cancellation*: the
                counts are written or kept, and counted twice at worst.
        """
        counts, self._counts = self._counts, Counter()
        self._noted = anyio.Event()
        if not counts:
            return
        try:
            await self._graph.touch(counts, self._clock.now())
        except BaseException:
            self._counts.update(counts)
            raise

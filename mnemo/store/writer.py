"""
The writer of an engine: one thread, one writing connection, one commit for all that wait.

Units of work enter from the event loop and wait in a queue. The thread takes all
that wait, runs each in a savepoint of one transaction, commits once, and only then
wakes the callers, a few in each turn of the loop. A unit that fails is rolled back
alone; if the commit fails, every unit of the batch has failed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from mnemo.errors import StoreError
from mnemo.store.engine import Bulk, Locks
from mnemo.store.tx import Tx

log = logging.getLogger("mnemo")

T = TypeVar("T")

# Bounds how long the first caller of a batch waits for the last one's work.
_MOST_PER_BATCH = 512
# Callers go on in the turn in which they are woken; in between, the loop does other things.
_MOST_PER_TURN = 16
_LONG_COMMIT_S = 0.001
"""A commit that takes longer is worth waiting for more units (S)."""


@dataclass(slots=True, eq=False)
class Unit:
    """*run* is shared by units that may run as one; consecutive ones with the same do."""

    run: Bulk
    payload: Any
    done: Callable[[Any], None]
    locks: Locks = ()
    result: Any = None


class GroupWriter(ABC):
    """
    Owns the writing connection from ``start`` to ``aclose``.

    Args:
        limit: Units that may wait before awaited callers are held back. Plain
            ``post`` always enters: whoever uses it bounds itself.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._queue: SimpleQueue[Unit | None] = SimpleQueue()
        self._done: deque[Unit] = deque()
        self._delivered = threading.Event()
        self._commit_s = 0.0
        self._thread = threading.Thread(target=self._serve, name="mnemo-writer", daemon=True)
        self._waiting = 0
        self.posted = 0
        """Units handed over so far."""
        self._room: list[anyio.Event] = []
        self._closing = False

    def start(self) -> None:
        """Begin to serve the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Units that were handed over and whose callers are not told yet."""
        return self._waiting

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be handed over any more."""
        return self._closing

    # ── On the event loop ────────────────────────────────────────────────────────────

    def post(self, run: Bulk, payload: Any, done: Callable[[Any], None], locks: Locks = ()) -> None:
        """
        Hand over a unit, in this turn of the loop; *done* gets its result or exception.

        Raises:
            StoreError: The writer is closed.
        """
        if self._closing:
            raise StoreError("the store is closed: open the service again")
        self._waiting += 1
        self.posted += 1
        self._queue.put(Unit(run, payload, done, locks))

    async def run(self, work: Callable[[Tx], T], locks: Locks = ()) -> T:
        """
        Run *work* in the writer, in a savepoint of its own, and give its result once durable.

        *Cancellation*: completes; the result comes back even so, the cancellation is
        met at the caller's next await.
        """
        result: T = await self.merge(_run_alone, work, locks)
        return result

    async def run_outside(self, work: Callable[[Tx], T]) -> T:
        """
        Run *work* in the writer outside of any transaction, as a checkpoint must be.

        *Cancellation*: completes, as ``run``.
        """
        result: T = await self.merge(outside, work)
        return result

    async def merge(self, run: Bulk, payload: Any, locks: Locks = ()) -> Any:
        """
        ``post`` once there is room, and give the result.

        *Cancellation*: completes, as ``run``.
        """
        while self._waiting >= self._limit and not self._closing:
            event = anyio.Event()
            self._room.append(event)
            await event.wait()
        outcome: asyncio.Future[Any] = self._loop.create_future()
        self.post(run, payload, partial(_settle, outcome), locks)
        with anyio.CancelScope(shield=True):
            result = await outcome
        if isinstance(result, BaseException):
            raise result
        return result

    async def aclose(self) -> None:
        """Run what waits, checkpoint, close the connection, end the thread. Idempotent."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)
            while self._waiting:
                await anyio.lowlevel.checkpoint()

    def _deliver(self) -> None:
        units = [self._done.popleft() for _ in range(min(len(self._done), _MOST_PER_TURN))]
        self._waiting -= len(units)
        for unit in units:
            try:
                unit.done(unit.result)
            except Exception:
                log.exception("a caller of the writer failed on its own result")
        # Callers go on in the next turn, before what is scheduled behind them.
        if self._done:
            self._loop.call_soon(self._deliver)
        elif not self._delivered.is_set():
            self._loop.call_soon(self._delivered.set)
        room, self._room = self._room, []
        for event in room:
            event.set()

    # ── In the writer's thread ───────────────────────────────────────────────────────

    def _serve(self) -> None:
        open = True
        while open:
            batch, open = self._take()
            for is_outside, part in groupby(batch, key=lambda unit: unit.run is outside):
                units = list(part)
                if is_outside:
                    for unit in units:
                        self._run_outside(unit)
                else:
                    self._write(units)
                self._wake(units)
            # Let the callers of this batch hand over what they do next, if others wait already:
            # else the two groups commit in turns, and half of all callers share a commit.
            if self._commit_s > _LONG_COMMIT_S and not self._queue.empty():
                self._delivered.wait(self._commit_s / 2)
        self._close()

    def _take(self) -> tuple[list[Unit], bool]:
        unit = self._queue.get()
        batch: list[Unit] = []
        while unit is not None:
            batch.append(unit)
            if len(batch) == _MOST_PER_BATCH:
                return batch, True
            try:
                unit = self._queue.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    @abstractmethod
    def _write(self, batch: list[Unit]) -> None:
        """Run *batch* in one transaction; each unit has its result or exception then."""

    @abstractmethod
    def _run_in_savepoint(self, units: list[Unit]) -> bool:
        """Run *units*, which share ``run``; without a trace of them if it raises, then False."""

    @abstractmethod
    def _run_outside(self, unit: Unit) -> None:
        """Run *unit* outside of any transaction."""

    @abstractmethod
    def _close(self) -> None:
        """Close the connection."""

    def _run_batch(self, batch: list[Unit]) -> None:
        """Run consecutive units of one kind together; where that fails, each alone."""
        for run, part in groupby(batch, key=lambda unit: unit.run):
            units = list(part)
            one_by_one = run is _run_alone or len(units) == 1
            if one_by_one or not self._run_in_savepoint(units):
                for unit in units:
                    self._run_in_savepoint([unit])

    def _wake(self, batch: list[Unit]) -> None:
        if self._commit_s > _LONG_COMMIT_S:
            self._delivered.clear()
        self._done.extend(batch)
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            log.warning("the event loop ended before %d durable results", len(batch))


def _settle(outcome: asyncio.Future[Any], result: Any) -> None:
    """Hand *result* to the caller, unless asyncio has cancelled its wait."""
    if not outcome.done():
        outcome.set_result(result)


def outside(tx: Tx, works: Sequence[Any]) -> Sequence[Any]:
    """The ``run`` of a unit that runs outside of any transaction."""
    return [work(tx) for work in works]


def _run_alone(tx: Tx, works: Sequence[Any]) -> Sequence[Any]:
    return [work(tx) for work in works]

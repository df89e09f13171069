"""
The writer: one thread, one writing connection, one commit for all that wait.

Units of work enter from the event loop and wait in a queue. The thread takes all
that wait, runs each in a savepoint of one transaction, commits once, and only then
wakes every caller, with one call into the loop. A unit that fails is rolled back
alone; if the commit fails, every unit of the batch has failed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from mnemo.errors import StoreError
from mnemo.store.engine import Bulk
from mnemo.store.sqlite.connection import SqliteTx, translated
from mnemo.store.tx import Tx

__all__ = ["Writer"]

log = logging.getLogger("mnemo")

T = TypeVar("T")

# Bounds how long the first caller of a batch waits for the last one's work.
_MOST_PER_BATCH = 512
_NAME = "SELECT file FROM pragma_database_list WHERE name = 'main'"
# Any read opens the write-ahead log, and creates it where there is none.
_READ = "SELECT count(*) FROM sqlite_master"


@dataclass(slots=True, eq=False)
class _Unit:
    """*run* is shared by units that may run as one; consecutive ones with the same do."""

    run: Bulk
    payload: Any
    done: Callable[[Any], None]
    result: Any = None


class _TransactionLost(Exception):
    """SQLite rolled the whole transaction back by itself, as it does on a full disk."""


class Writer:
    """
    Owns the writing connection from ``start`` to ``aclose``.

    Args:
        connection: Opened for writing; used by the writer's thread alone.
        limit: Units that may wait before awaited callers are held back. Plain
            ``post`` always enters: whoever uses it bounds itself.
    """

    def __init__(self, connection: sqlite3.Connection, *, limit: int) -> None:
        self._connection = connection
        self._tx = SqliteTx(connection)
        self._limit = limit
        self._queue: SimpleQueue[_Unit | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="mnemo-writer", daemon=True)
        self._waiting = 0
        self.posted = 0
        """Units handed over so far."""
        self._room: list[anyio.Event] = []
        self._closing = False
        self._lost: StoreError | None = None
        self.identity = Identity(connection)
        """The files that it writes to."""

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

    def post(self, run: Bulk, payload: Any, done: Callable[[Any], None]) -> None:
        """
        Hand over a unit, in this turn of the loop; *done* gets its result or exception.

        Raises:
            StoreError: The writer is closed.
        """
        if self._closing:
            raise StoreError("the store is closed: open the service again")
        self._waiting += 1
        self.posted += 1
        self._queue.put(_Unit(run, payload, done))

    async def run(self, work: Callable[[Tx], T]) -> T:
        """
        Run *work* in the writer, in a savepoint of its own, and give its result once durable.

        *Cancellation*: completes; the result comes back even so, the cancellation is
        met at the caller's next await.
        """
        result: T = await self._result_of(_run_alone, work)
        return result

    async def run_outside(self, work: Callable[[Tx], T]) -> T:
        """
        Run *work* in the writer outside of any transaction, as a checkpoint must be.

        *Cancellation*: completes, as ``run``.
        """
        result: T = await self._result_of(_run_outside, work)
        return result

    async def _result_of(self, run: Bulk, work: Callable[[Tx], Any]) -> Any:
        await self._wait_for_room()
        outcome = _Outcome()
        self.post(run, work, outcome.set)
        with anyio.CancelScope(shield=True):
            await outcome.there.wait()
        if isinstance(outcome.value, BaseException):
            raise outcome.value
        return outcome.value

    async def _wait_for_room(self) -> None:
        while self._waiting >= self._limit and not self._closing:
            event = anyio.Event()
            self._room.append(event)
            await event.wait()

    async def aclose(self) -> None:
        """Run what waits, checkpoint, close the connection, end the thread. Idempotent."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)
            while self._waiting:
                await anyio.lowlevel.checkpoint()

    def _deliver(self, units: Sequence[_Unit]) -> None:
        self._waiting -= len(units)
        for unit in units:
            try:
                unit.done(unit.result)
            except Exception:
                log.exception("a caller of the writer failed on its own result")
        room, self._room = self._room, []
        for event in room:
            event.set()

    # ── In the writer's thread ───────────────────────────────────────────────────────

    def _serve(self) -> None:
        open = True
        while open:
            batch, open = self._take()
            for part in _cut(batch):
                if part[0].run is _run_outside:
                    self._run_outside(part[0])
                else:
                    self._write(part)
                self._wake(part)
        self._close()

    def _take(self) -> tuple[list[_Unit], bool]:
        unit = self._queue.get()
        batch: list[_Unit] = []
        while unit is not None:
            batch.append(unit)
            if len(batch) == _MOST_PER_BATCH:
                return batch, True
            try:
                unit = self._queue.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    def _write(self, batch: list[_Unit]) -> None:
        try:
            self.refuse_lost()
            with translated("writing to the store"):
                self._connection.execute("BEGIN IMMEDIATE")
                self._run_batch(batch)
                self._connection.execute("COMMIT")
            self._check_files()
        except Exception as error:
            self._roll_back()
            lost = error.__cause__ if isinstance(error, _TransactionLost) else error
            for unit in batch:
                unit.result = lost

    def _check_files(self) -> None:
        """Fail the batch, and every later write, if what it went to is not at the path any more."""
        try:
            self.identity.check()
        except StoreError as error:
            self._lost = error
            raise

    def refuse_lost(self) -> None:
        """
        Do nothing as long as the store's files are there.

        Raises:
            StoreError: A commit found them deleted or replaced.
        """
        if self._lost is not None:
            raise StoreError(str(self._lost))

    def copy(self) -> sqlite3.Connection:
        """A database in memory with what is committed; in the writer's thread."""
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        copy.text_factory = self._connection.text_factory
        self._connection.backup(copy)
        return copy

    def _run_outside(self, unit: _Unit) -> None:
        try:
            self.refuse_lost()
            with translated("tending the store's file"):
                (unit.result,) = unit.run(self._tx, [unit.payload])
        except Exception as error:
            unit.result = error

    def _run_batch(self, batch: list[_Unit]) -> None:
        start = 0
        while start < len(batch):
            stop = start + 1
            run = batch[start].run
            while stop < len(batch) and run is not _run_alone and batch[stop].run is run:
                stop += 1
            self._run_units(batch[start:stop])
            start = stop

    def _run_units(self, units: list[_Unit]) -> None:
        """Run units of one kind together; if that fails, each alone."""
        error = self._run_in_savepoint(units)
        if error is None:
            return
        if len(units) == 1:
            units[0].result = error
            return
        for unit in units:
            self._run_units([unit])

    def _run_in_savepoint(self, units: list[_Unit]) -> Exception | None:
        self._connection.execute("SAVEPOINT unit")
        try:
            with translated("writing to the store"):
                results = units[0].run(self._tx, [unit.payload for unit in units])
        except Exception as error:
            self._roll_back_unit(error)
            return error
        self._connection.execute("RELEASE unit")
        for unit, result in zip(units, results, strict=True):
            unit.result = result
        return None

    def _roll_back_unit(self, error: Exception) -> None:
        if not self._connection.in_transaction:
            raise _TransactionLost from error
        # A full-text table that is made and filled in one unit must write out what it holds
        # before it vanishes, which a savepoint makes it do; else the commit fails on it.
        self._connection.execute("SAVEPOINT written_out")
        self._connection.execute("RELEASE written_out")
        self._connection.execute("ROLLBACK TO unit")
        self._connection.execute("RELEASE unit")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                log.exception("rolling back failed; the next open recovers the file")

    def _wake(self, batch: list[_Unit]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._deliver, batch)
        except RuntimeError:
            log.warning("the event loop ended before %d durable results", len(batch))

    def _close(self) -> None:
        try:
            # Best effort: another process that reads keeps the log, which is no harm.
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            log.info("the write-ahead log was left for the next open: %s", error)
        finally:
            self._connection.close()


class _Outcome:
    """Where one awaited unit's result arrives."""

    __slots__ = ("there", "value")

    def __init__(self) -> None:
        self.there = anyio.Event()
        self.value: Any = None

    def set(self, value: Any) -> None:
        self.value = value
        self.there.set()


def _cut(batch: list[_Unit]) -> Iterator[list[_Unit]]:
    """*batch* in order, cut where a unit wants no transaction around it."""
    part: list[_Unit] = []
    for unit in batch:
        if unit.run is not _run_outside:
            part.append(unit)
            continue
        if part:
            yield part
        yield [unit]
        part = []
    if part:
        yield part


def _run_outside(tx: Tx, works: Sequence[Any]) -> Sequence[Any]:
    return [work(tx) for work in works]


def _run_alone(tx: Tx, works: Sequence[Any]) -> Sequence[Any]:
    return [work(tx) for work in works]


# ── The files ────────────────────────────────────────────────────────────────────────


class Identity:
    """
    Device and inode of a database file and of its write-ahead log, as a connection opened them.

    SQLite keeps both open: after they are unlinked or replaced, commits succeed and
    are lost. A checkpoint truncates the log and ``VACUUM`` rewrites the database in
    place, so neither changes while the connection lasts. A database in memory has no
    files, and nothing is compared.

    Args:
        connection: Already in WAL mode.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        (self._path,) = connection.execute(_NAME).fetchone()
        connection.execute(_READ).fetchone()
        self._opened = _look(self._path)

    def check(self) -> None:
        """
        Compare with what the path names now: two calls of ``os.stat``.

        Raises:
            StoreError: Another file is there, or none.
        """
        if self._path and _look(self._path) != self._opened:
            raise StoreError(
                f"the files of the store {self._path!r} were deleted or replaced while it was "
                "open, so nothing can be written: close the service and restore the files"
            )


def _look(path: str) -> tuple[tuple[int, int] | None, ...]:
    return tuple(map(_inode, (path, f"{path}-wal"))) if path else ()


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino

"""
Readers: where reads of a store run.

A file is read by a few read-only connections in worker threads, which never wait for
the writer. A database in memory has one connection, the writer's: its reads are units
of the writer's thread, and a snapshot is a copy.
"""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import anyio
import anyio.to_thread

from mnemo.errors import StoreError, UsageError
from mnemo.store.engine import GroupWriter
from mnemo.store.sqlite.connection import SqliteTx, ours, translated
from mnemo.store.tx import Tx

T = TypeVar("T")

# Reads are short; more threads than this only wait for the interpreter.
_CONNECTIONS = 4
_READING = "reading the store"


class Readers(ABC):
    """Runs the reads of one open database off the event loop."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(_CONNECTIONS)
        self.closed = False

    @abstractmethod
    async def read(self, work: Callable[[Tx], T]) -> T:
        """
        Run *work* off the event loop, on one revision of the store.

        Raises:
            StoreError: One of its kinds. *Cancellation*: safe; met after the read.
        """

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[SqliteSnapshot]:
        """
        Hold one revision, to be read from again and again until the context ends.

        The write-ahead log of a file cannot be cut meanwhile.

        Raises:
            StoreError: One of its kinds. *Cancellation*: safe.
        """
        with anyio.CancelScope(shield=True):
            connection = await self._snapshot()
        try:
            yield SqliteSnapshot(connection, self._limiter)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(connection.close, limiter=self._limiter)

    def close(self) -> None:
        """Take it for closed; reads that run end. Idempotent."""
        self.closed = True

    @abstractmethod
    async def _snapshot(self) -> sqlite3.Connection: ...


class FileReaders(Readers):
    """
    A pool of read-only connections to a file.

    Args:
        connect: Opens one more connection.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__()
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run *work* in a worker thread; see ``Readers``."""
        return await anyio.to_thread.run_sync(self._run, work, limiter=self._limiter)

    async def _snapshot(self) -> sqlite3.Connection:
        return await anyio.to_thread.run_sync(self._begun, limiter=self._limiter)

    def _begun(self) -> sqlite3.Connection:
        with translated(_READING):
            connection = self._open()
            connection.execute("BEGIN")
            # Only a read takes the revision that is seen from then on.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection

    def _run(self, work: Callable[[Tx], T]) -> T:
        connection: sqlite3.Connection | None = None
        try:
            connection = self._idle.pop() if self._idle else self._open()
            connection.execute("BEGIN")
            result = work(SqliteTx(connection))
            connection.execute("ROLLBACK")
        except BaseException as error:
            # The traceback may hold a cursor, which would hold the revision it reads.
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error):
                raise ours(error, _READING) from error
            raise
        if self.closed:
            connection.close()
        else:
            self._idle.append(connection)
        return result

    def _open(self) -> sqlite3.Connection:
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    def close(self) -> None:
        """Close what is idle; a read that runs closes its own. Idempotent."""
        super().close()
        while self._idle:
            self._idle.pop().close()


class MemoryReaders(Readers):
    """Reads of a database in memory, in the thread of the writer that owns its connection."""

    def __init__(self, writer: GroupWriter, copy: Callable[[], sqlite3.Connection]) -> None:
        super().__init__()
        self._writer = writer
        self._copy = copy

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run *work* between two writes; see ``Readers``."""
        return await self._writer.run_outside(partial(_read_only, work=work))

    async def _snapshot(self) -> sqlite3.Connection:
        return await self._writer.run_outside(lambda _: self._copy())


def _read_only(tx: Tx, work: Callable[[Tx], T]) -> T:
    with translated(_READING):
        tx.run("PRAGMA query_only = ON")
        try:
            return work(tx)
        finally:
            tx.run("PRAGMA query_only = OFF")


class SqliteSnapshot:
    """``Snapshot``: a connection that holds one revision."""

    def __init__(self, connection: sqlite3.Connection, limiter: anyio.CapacityLimiter) -> None:
        self._connection = connection
        self._limiter = limiter

    async def reading(self, work: Callable[[Tx], T]) -> T:
        """Run *work* in a worker thread. *Cancellation*: safe; met after the read."""
        return await anyio.to_thread.run_sync(self._run, work, limiter=self._limiter)

    def _run(self, work: Callable[[Tx], T]) -> T:
        with translated(_READING):
            return work(SqliteTx(self._connection))

    async def copy(self, path: Path) -> None:
        """Write the revision to a new file; see ``copied``. *Cancellation*: completes."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(copied, self._connection, path, limiter=self._limiter)


def copied(connection: sqlite3.Connection, path: Path) -> None:
    """
    Write what *connection* sees to a file that is there when it is complete, or not at all.

    Raises:
        UsageError: Something is at *path*, or its folder is not there.
        StoreError: It could not be written.
    """
    if not path.parent.is_dir():
        raise UsageError(f"the folder {str(path.parent)!r} does not exist: create it first")
    part = path.with_name(f"{path.name}.{token_hex(4)}.partial")
    taken = UsageError(f"{str(path)!r} exists already: name a new file for the backup")
    try:
        if os.path.lexists(path):
            raise taken
        with translated(f"backing up to {str(path)!r}"):
            _fill(connection, part)
        _publish(part, path)
    except FileExistsError:
        raise taken from None
    except OSError as error:
        raise StoreError(f"backing up to {str(path)!r} failed: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def _fill(connection: sqlite3.Connection, part: Path) -> None:
    with closing(sqlite3.connect(part, isolation_level=None)) as copy:
        # Nobody sees it before it is complete: what fails is deleted, not rolled back.
        copy.execute("PRAGMA journal_mode = OFF")
        connection.backup(copy)
    with part.open("rb+") as file:
        os.fsync(file.fileno())


def _publish(part: Path, path: Path) -> None:
    """Give the copy its name. *Raises* ``FileExistsError`` if somebody took it meanwhile."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        # Not every file system has links.
        if os.path.lexists(path):
            raise FileExistsError from None
        part.rename(path)

"""Readers: a few read-only connections in worker threads; they never wait for the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import anyio.to_thread

from mnemo.errors import StoreError
from mnemo.store.sqlite.connection import translated

__all__ = ["Readers", "Snapshot"]

T = TypeVar("T")

# Reads are short; more threads than this only wait for the interpreter.
_CONNECTIONS = 4


class Readers:
    """
    A pool of connections for reading.

    Args:
        connect: Opens one more connection.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []
        self._limiter = anyio.CapacityLimiter(_CONNECTIONS)
        # Pure Python: a second thread would only make the event loop wait twice as long.
        self._computing = anyio.CapacityLimiter(1)
        self._closed = False

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """
        Run *work* in a worker thread, on one revision of the store.

        Raises:
            StoreError: One of its kinds. *Cancellation*: safe; met after the read.
        """
        if self._closed:
            raise StoreError("the store is closed: open the service again")
        return await anyio.to_thread.run_sync(self._run, work, limiter=self._limiter)

    async def compute(self, work: Callable[[], T]) -> T:
        """Run *work*, which needs no connection, in a worker thread. *Cancellation*: safe."""
        return await anyio.to_thread.run_sync(work, limiter=self._computing)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        """
        One revision, to be read from again and again until the context ends.

        The write-ahead log cannot be cut while it is held.

        Raises:
            StoreError: One of its kinds. *Cancellation*: safe.
        """
        if self._closed:
            raise StoreError("the store is closed: open the service again")
        with anyio.CancelScope(shield=True):
            connection = await anyio.to_thread.run_sync(self._begun, limiter=self._limiter)
        try:
            yield Snapshot(connection, self._limiter)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(connection.close, limiter=self._limiter)

    def _begun(self) -> sqlite3.Connection:
        with translated("reading the store"):
            connection = self._open()
            connection.execute("BEGIN")
            # Only a read takes the revision that is seen from then on.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated("reading the store"):
            connection = self._idle.pop() if self._idle else self._open()
            try:
                connection.execute("BEGIN")
                return work(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._give_back(connection)

    def _open(self) -> sqlite3.Connection:
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close what is idle; a read that runs closes its own. Idempotent."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class Snapshot:
    """One revision of the store; one read at a time."""

    def __init__(self, connection: sqlite3.Connection, limiter: anyio.CapacityLimiter) -> None:
        self._connection = connection
        self._limiter = limiter

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run *work* in a worker thread. *Cancellation*: safe; met after the read."""
        return await anyio.to_thread.run_sync(self._run, work, limiter=self._limiter)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with translated("reading the store"):
            return work(self._connection)

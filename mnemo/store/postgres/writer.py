"""The writer over PostgreSQL: locks, group commit, retries, and commits in doubt."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Iterable

import psycopg
from psycopg import errors

from mnemo.errors import StoreError, StoreUnavailable
from mnemo.store.postgres.connection import Connection, PostgresTx, translated
from mnemo.store.postgres.schema import LOCKS
from mnemo.store.writer import GroupWriter, Unit

__all__ = ["LOCK_ALL", "Writer"]

log = logging.getLogger("mnemo")

_MOST_TRIES = 5
# A server that restarts refuses connections for some seconds.
_IN_DOUBT_S = 30.0
_BETWEEN_LOOKS_S = 0.2
_LOCK = "SELECT no FROM locks WHERE no = ANY (%s) ORDER BY no FOR UPDATE"
LOCK_ALL = "LOCK TABLE locks IN EXCLUSIVE MODE"
"""Keeps out every writer: those that lock rows, too, lock the table in a weaker mode."""
_NUMBER = "SELECT pg_current_xact_id_if_assigned()::text"
_STATUS = "SELECT pg_xact_status(%s::xid8)"
_REPEATED = (errors.SerializationFailure, errors.DeadlockDetected)


class _InDoubt(Exception):
    """The connection was lost while a transaction committed; *number* is the transaction's."""

    def __init__(self, number: str) -> None:
        super().__init__(number)
        self.number = number


class Writer(GroupWriter):
    """
    ``GroupWriter`` over a PostgreSQL connection.

    Args:
        connect: Opens the writing connection, and another one when that is lost.
        begin: The statement that begins a transaction in the schema.
        limit: As of ``GroupWriter``.
    """

    def __init__(self, connect: Callable[[], Connection], begin: str, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._connect = connect
        self._begin = begin
        self._use(connect())

    def _use(self, connection: Connection) -> None:
        self._connection = connection
        self._tx = PostgresTx(connection)

    def _write(self, batch: list[Unit]) -> None:
        error: Exception | None = None
        for _ in range(_MOST_TRIES):
            error = self._refusal()
            if error is not None:
                break
            error = self._tried(batch)
            if error is None:
                return
            if not self._may_be_repeated(error):
                break
            log.info("a batch of %d writes is repeated: %s", len(batch), error)
        for unit in batch:
            unit.result = error

    def _refusal(self) -> StoreError | None:
        """Connect anew if need be; give what the server says against it."""
        try:
            with translated("writing to the store"):
                if self._connection.closed:
                    self._use(self._connect())
        except StoreError as error:
            return error
        return None

    def _may_be_repeated(self, error: Exception) -> bool:
        """Whether the transaction was rolled back by what another try may not meet."""
        lost = isinstance(error, StoreUnavailable) and self._connection.closed
        return lost or isinstance(error.__cause__, _REPEATED)

    def _tried(self, batch: list[Unit]) -> Exception | None:
        """What one try to write *batch* raised; ``None``: it is committed."""
        try:
            with translated("writing to the store"):
                self._transact(batch)
        except _InDoubt as doubt:
            return self._looked_up(doubt.number)
        except Exception as error:
            self._abandon()
            return error
        return None

    def _transact(self, batch: list[Unit]) -> None:
        self._connection.execute(self._begin)
        self._lock(batch)
        self._run_batch(batch)
        row = self._connection.execute(_NUMBER).fetchone()
        try:
            self._connection.execute("COMMIT")
        except psycopg.OperationalError as error:
            if self._connection.closed and row is not None and row[0] is not None:
                raise _InDoubt(row[0]) from error
            raise

    def _lock(self, batch: list[Unit]) -> None:
        if all(unit.locks for unit in batch):
            keys = _keys(lock for unit in batch for lock in unit.locks)
            self._connection.execute(_LOCK, (keys,))
        else:
            self._connection.execute(LOCK_ALL)

    def _looked_up(self, number: str) -> Exception | None:
        """What became of a transaction; ``None``: it is committed."""
        stop = time.monotonic() + _IN_DOUBT_S
        while time.monotonic() < stop:
            try:
                self._use(self._connect())
                row = self._connection.execute(_STATUS, (number,)).fetchone()
            except psycopg.Error as error:
                log.info("the outcome of a commit cannot be looked up yet: %s", error)
                row = None
            status = row[0] if row is not None else "in progress"
            if status == "committed":
                return None
            if status == "aborted":
                self._connection.close()
                return StoreUnavailable("the server ended while it wrote; nothing was written")
            time.sleep(_BETWEEN_LOOKS_S)
        return StoreError("the server ended while it committed: read again what is stored")

    def _run_in_savepoint(self, units: list[Unit]) -> Exception | None:
        self._connection.execute("SAVEPOINT unit")
        try:
            with translated("writing to the store"):
                results = units[0].run(self._tx, [unit.payload for unit in units])
        except Exception as error:
            if isinstance(error.__cause__, _REPEATED) or self._connection.closed:
                raise
            self._connection.execute("ROLLBACK TO unit; RELEASE unit")
            return error
        self._connection.execute("RELEASE unit")
        for unit, result in zip(units, results, strict=True):
            unit.result = result
        return None

    def _abandon(self) -> None:
        try:
            self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self._connection.close()

    def _run_outside(self, unit: Unit) -> None:
        unit.result = self._refusal()
        if unit.result is not None:
            return
        try:
            with translated("tending the store"):
                (unit.result,) = unit.run(self._tx, [unit.payload])
        except Exception as error:
            unit.result = error

    def _close(self) -> None:
        self._connection.close()


def _keys(locks: Iterable[tuple[str, str]]) -> list[int]:
    """The rows to lock, each once, in the order in which everybody locks them."""
    return sorted({zlib.crc32(f"{kind}\0{id}".encode()) % LOCKS for kind, id in locks})

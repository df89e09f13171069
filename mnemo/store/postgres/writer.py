"""The writer over PostgreSQL: locks, group commit, retries, and commits in doubt."""

from __future__ import annotations

import logging
import secrets
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing

import psycopg
from psycopg import errors

from mnemo.errors import StoreError, StoreUnavailable
from mnemo.store.engine import GroupWriter, Locks, Unit, outside
from mnemo.store.postgres.connection import Connection, PostgresTx, closed_on_error, translated
from mnemo.store.postgres.schema import LOCKS

log = logging.getLogger("mnemo")

# A server that restarts refuses connections for some seconds.
_IN_DOUBT_S = 30.0
_BETWEEN_LOOKS_S = 0.2
_COUNT = (
    "INSERT INTO commits (writer, batch, at) VALUES ('{0}', {1}, now()) "
    "ON CONFLICT (writer) DO UPDATE SET batch = {1}, at = now()"
)
# Waits for the transaction of the lost connection, where the server has not ended it yet.
_LAST = "SELECT batch FROM commits WHERE writer = %s FOR UPDATE"
_SWEEP = "DELETE FROM commits WHERE at < now() - interval '1 day'"


class CommitInDoubt(Exception):
    """The connection was lost while a transaction committed."""


class Commits:
    """Counts the transactions of one writer in ``commits``; *connect* opens one to look."""

    def __init__(self, connect: Callable[[], Connection], begin: str) -> None:
        self.connect = connect
        self._begin = begin
        self._id = secrets.token_hex(8)
        self._number = 0

    def enter(self, connection: Connection) -> None:
        """Store the row that transactions count in: a look-up waits for its lock."""
        noted = _COUNT.format(self._id, self._number)
        connection.execute(f"{self._begin}; {_SWEEP}; {noted}; COMMIT")

    def next(self) -> str:
        """The statement by which the next transaction counts itself."""
        self._number += 1
        return _COUNT.format(self._id, self._number)

    def commit(self, connection: Connection) -> None:
        """Commit. *Raises* ``CommitInDoubt``, or what the server says against it."""
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            if connection.closed:
                raise CommitInDoubt from error
            raise

    def looked_up(self) -> Exception | None:
        """What became of the last transaction; ``None``: it is committed."""
        stop = time.monotonic() + _IN_DOUBT_S
        while time.monotonic() < stop:
            try:
                last = self._last_committed()
            except psycopg.Error as error:
                log.info("the outcome of a commit cannot be looked up yet: %s", error)
                time.sleep(_BETWEEN_LOOKS_S)
                continue
            if last is None:
                break
            if last < self._number:
                return StoreUnavailable("the server ended while it wrote; nothing was written")
            return None
        return StoreError("the server ended while it committed: read again what is stored")

    def _last_committed(self) -> int | None:
        """The last one that was committed; ``None``: its row was swept, a day after it."""
        with closing(self.connect()) as connection:
            connection.execute(self._begin)
            row = connection.execute(_LAST, (self._id,)).fetchone()
            connection.execute("ROLLBACK")
        return None if row is None else int(row[0])


_MOST_TRIES = 5
# In each commit, notifying would take nine tenths of the throughput.
_BETWEEN_NOTICES_S = 0.02
_LOCK = "SELECT no FROM locks WHERE no = ANY ('{{{}}}') ORDER BY no FOR UPDATE"
_LOCK_ALL = "LOCK TABLE locks IN EXCLUSIVE MODE"
"""Keeps out every writer: those that lock rows, too, lock the table in a weaker mode."""
_REPEATED = (errors.SerializationFailure, errors.DeadlockDetected)


class _Refused(Exception):
    """A unit of a batch raised *error*: without savepoints, none of it is kept."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Writer(GroupWriter):
    """
    ``GroupWriter`` over a PostgreSQL connection, which *connect* opens anew when it is lost.
    *begin* begins a transaction in the schema; *channel* is notified when jobs were written.
    """

    def __init__(
        self, connect: Callable[[], Connection], begin: str, *, channel: str, limit: int
    ) -> None:
        super().__init__(limit=limit)
        self._connect = connect
        self._begin = begin
        self._has_savepoints = False
        self._notice = f'NOTIFY "{channel}"'
        self._wrote_jobs = False
        self._notified_at: float | None = None
        self._is_notifying = False
        self._commits = Commits(connect, begin)
        with closed_on_error(connect()) as connection:
            self._commits.enter(connection)
        self._use(connection)

    def _use(self, connection: Connection) -> None:
        self._connection = connection
        self._tx = PostgresTx(connection)
        self._process = connection.info.backend_pid

    def is_own(self, process: int) -> bool:
        """Whether it is the server process that this writer is, or was last, connected to."""
        return process == self._process

    # ── Notices of jobs, on the event loop ───────────────────────────────────────────

    def _deliver(self) -> None:
        if self._wrote_jobs and not self._is_notifying and not self.is_closed:
            self._is_notifying, self._wrote_jobs = True, False
            last = self._notified_at
            pause = 0.0 if last is None else last + _BETWEEN_NOTICES_S - self._loop.time()
            self._loop.call_later(max(0.0, pause), self._notify)
        super()._deliver()

    def _notify(self) -> None:
        if self.is_closed or not self._is_notifying:
            return
        self._is_notifying, self._notified_at = False, self._loop.time()
        self.post(outside, lambda tx: tx.run(self._notice), _log_unsent)

    async def aclose(self) -> None:
        """Notify what was not, then close."""
        self._notify()
        await super().aclose()

    # ── In the writer's thread ───────────────────────────────────────────────────────

    def _write(self, batch: list[Unit]) -> None:
        error: Exception | None = None
        for _ in range(_MOST_TRIES):
            error = self._refusal()
            if error is not None:
                break
            error = self._tried(batch)
            if error is None:
                return
            if not isinstance(error, StoreUnavailable) and not _is_repeated(error):
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

    def _tried(self, batch: list[Unit]) -> Exception | None:
        """What one try to write *batch* raised; ``None``: it is committed."""
        for self._has_savepoints in (False, True):
            try:
                with translated("writing to the store"):
                    self._transact(batch)
            except _Refused as refused:
                self._abandon()
                if len(batch) == 1:
                    batch[0].result = refused.error
                    break
            except CommitInDoubt:
                error = self._commits.looked_up()
                self._wrote_jobs |= self._tx.wrote_jobs and error is None
                return error
            except Exception as error:
                self._abandon()
                return error
            else:
                self._wrote_jobs |= self._tx.wrote_jobs
                break
        return None

    def _transact(self, batch: list[Unit]) -> None:
        self._tx.wrote_jobs = False
        locks = locking([unit.locks for unit in batch])
        self._connection.execute(f"{self._begin}; {locks}; {self._commits.next()}")
        self._run_batch(batch)
        self._commits.commit(self._connection)

    def _run_in_savepoint(self, units: list[Unit]) -> bool:
        if self._has_savepoints:
            self._connection.execute("SAVEPOINT unit")
        try:
            with translated("writing to the store"):
                results = units[0].run(self._tx, [unit.payload for unit in units])
        except Exception as error:
            if _is_repeated(error) or self._connection.closed:
                raise
            if not self._has_savepoints:
                raise _Refused(error) from error
            self._connection.execute("ROLLBACK TO unit; RELEASE unit")
            for unit in units:
                unit.result = error
            return False
        if self._has_savepoints:
            self._connection.execute("RELEASE unit")
        for unit, result in zip(units, results, strict=True):
            unit.result = result
        return True

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


def _is_repeated(error: Exception) -> bool:
    """Whether another transaction was in the way, which the next try may not meet."""
    return isinstance(error.__cause__, _REPEATED)


def _log_unsent(result: object) -> None:
    if isinstance(result, Exception):
        log.info("other processes will find new jobs when they look next: %s", result)


def locking(named: Sequence[Locks]) -> str:
    """The statement that locks what writers have named, in the order in which everybody does."""
    if not all(named):
        return _LOCK_ALL
    names = {f"{kind}\0{id}" for locks in named for kind, id in locks}
    rows = {zlib.crc32(name.encode()) % LOCKS for name in names}
    return _LOCK.format(",".join(map(str, rows)))

"""The writer over SQLite: its transactions, and the files that it writes to."""

from __future__ import annotations

import logging
import os
import sqlite3
from time import perf_counter

from mnemo.errors import StoreError
from mnemo.store.engine import GroupWriter, Unit
from mnemo.store.sqlite.connection import SqliteTx, ours

log = logging.getLogger("mnemo")

_NAME = "SELECT file FROM pragma_database_list WHERE name = 'main'"
# Any read opens the write-ahead log, and creates it where there is none.
_READ = "SELECT count(*) FROM sqlite_master"
_WRITING = "writing to the store"


class Writer(GroupWriter):
    """
    ``GroupWriter`` over a SQLite connection.

    Args:
        connection: Opened for writing; used by the writer's thread alone.
        limit: As of ``GroupWriter``.
    """

    def __init__(self, connection: sqlite3.Connection, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._connection = connection
        self._tx = SqliteTx(connection)
        self._lost: StoreError | None = None
        self.identity = Identity(connection)
        """The files that it writes to."""

    def _write(self, batch: list[Unit]) -> None:
        try:
            self.refuse_lost()
            self._connection.execute("BEGIN IMMEDIATE")
            self._run_batch(batch)
            began = perf_counter()
            self._connection.execute("COMMIT")
            self._commit_s = perf_counter() - began
            try:
                self.identity.check()
            except StoreError as error:
                self._lost = error  # every later write is refused, too
                raise
        except Exception as error:
            self._roll_back()
            failed = ours(error, _WRITING)
            for unit in batch:
                unit.result = failed

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

    def _run_outside(self, unit: Unit) -> None:
        try:
            self.refuse_lost()
            (unit.result,) = unit.run(self._tx, [unit.payload])
        except Exception as error:
            unit.result = ours(error, "tending the store's file")

    def _run_in_savepoint(self, units: list[Unit]) -> bool:
        self._connection.execute("SAVEPOINT unit")
        try:
            results = units[0].run(self._tx, [unit.payload for unit in units])
        except Exception as error:
            self._roll_back_unit(error)
            failed = ours(error, _WRITING)
            for unit in units:
                unit.result = failed
            return False
        self._connection.execute("RELEASE unit")
        for unit, result in zip(units, results, strict=True):
            unit.result = result
        return True

    def _roll_back_unit(self, error: Exception) -> None:
        if not self._connection.in_transaction:
            raise error  # SQLite rolled all of it back by itself, as it does on a full disk
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

    def _close(self) -> None:
        try:
            # Best effort: another process that reads keeps the log, which is no harm.
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            log.info("the write-ahead log was left for the next open: %s", error)
        finally:
            self._connection.close()


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
        self._opened = _look(self._path) if self._path else None

    def check(self) -> None:
        """
        Compare with what the path names now: two calls of ``os.stat``.

        Raises:
            StoreError: Another file is there, or none.
        """
        if self._path and (self._opened is None or _look(self._path) != self._opened):
            raise StoreError(
                f"the files of the store {self._path!r} were deleted or replaced while it was "
                "open, so nothing can be written: close the service and restore the files"
            )


def _look(path: str) -> tuple[int, int, int, int] | None:
    """``None``: one of the two files is not there."""
    try:
        database, log = os.stat(path), os.stat(f"{path}-wal")
    except OSError:
        return None
    return database.st_dev, database.st_ino, log.st_dev, log.st_ino

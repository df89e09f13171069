"""The SQLite engine: one database, one writer thread, group commit, readers that never wait."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from socket import gethostname
from time import perf_counter
from typing import Never, TypeVar

import anyio
import anyio.to_thread

from mnemo.config import StoreConfig
from mnemo.errors import StoreCorrupt, StoreError, StoreReadOnly
from mnemo.protocols import Clock
from mnemo.store.engine import Engine, GroupWriter, Snapshot, Unit, closed_on_error, connected
from mnemo.store.rows import digests
from mnemo.store.schema import VERSION
from mnemo.store.sqlite.connection import (
    FileReaders,
    Location,
    MemoryReaders,
    Readers,
    SqliteTx,
    connect,
    connect_in_memory,
    copied,
    is_unwritable,
    locate,
    ours,
    translated,
)
from mnemo.store.sqlite.schema import migrate, stored_version
from mnemo.store.sqlite.scrub import Scrubber
from mnemo.store.tx import Tx

log = logging.getLogger("mnemo")

T = TypeVar("T")

# Files up to this size are read whole at open (some 100 ms); ``check`` does it for any size.
_CHECKED_AT_OPEN_BYTES = 64 * 1024 * 1024


_GIVEN = "SELECT coalesce(sum(seq), 0) FROM sqlite_sequence"


class SqliteEngine(Engine):
    """
    ``Engine`` over one SQLite database; nothing touches the disk before ``open``.

    *path*: The file, made if it is not there, its folder is not. ``None``: in memory, over one
    connection; it ends with ``aclose``.
    """

    def __init__(self, path: Path | None, *, config: StoreConfig, clock: Clock) -> None:
        self._path = path
        self.place: str = "memory:" if path is None else str(path)
        self._config = config
        self._writing: Writer | None = None
        self._reading: Readers | None = None
        self._scrubber = Scrubber(self._path, self._writer, self._written, clock, self.unswept)
        self._importing = anyio.Lock()
        self.sweep: Callable[[Collection[str]], bool] | None = None
        """Removes all copies of segments but those with these digests; False: some are left."""
        self.synchronous: str = "none" if path is None else config.synchronous

    async def reading(self, work: Callable[[Tx], T]) -> T:
        return await self._readers().read(work)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        readers = self._readers()
        async with connected(readers.held) as connection:
            yield Snapshot(SqliteTx(connection), translated, readers.limiter)

    @asynccontextmanager
    async def staging(self, tables: dict[str, str]) -> AsyncIterator[_Staging]:
        """Attach a database to the writer's connection alone: only ``writing`` locks the file."""
        async with self._importing:
            writer = self._writer()
            await writer.run_outside(partial(_attach, tables))
            try:
                yield _Staging(writer)
            finally:
                with anyio.CancelScope(shield=True):
                    await writer.run_outside(_detach)

    @property
    def is_read_only(self) -> bool:
        return self._reading is not None and self._writing is None

    async def open(self, enter: Callable[[Tx], None]) -> None:
        if self._reading is not None:
            raise StoreError("the store is open already")
        location = None
        if self._path is None:
            writer = self._begin(await anyio.to_thread.run_sync(self._create))
            self._reading = MemoryReaders(writer, writer.copy)
        else:
            location, connection = await anyio.to_thread.run_sync(self._prepare, self._path)
            self._reading = FileReaders(lambda: self._open_reader(location))
            if connection is None:
                return
            self._begin(connection)
        try:
            await self._enter(enter, location)
            if self._writing is not None:
                await self._scrubber.scrub(at_once=False)
        except BaseException:
            await self.aclose()
            raise

    def _begin(self, connection: sqlite3.Connection) -> Writer:
        self._writing = Writer(connection, limit=self._config.max_queued_writes)
        self._writing.start()
        return self._writing

    async def _enter(self, enter: Callable[[Tx], None], location: Location | None) -> None:
        """Run *enter*; if there is no room for what it writes, the store is for reading."""
        try:
            await self._writer().run(enter)
        except StoreError as error:
            if location is None:
                raise
            writing, self._writing = self._writer(), None
            await writing.aclose()
            await anyio.to_thread.run_sync(self._settle_for_reading, location, error)

    async def aclose(self) -> None:
        writing, reading = self._writing, self._reading
        if reading is not None:
            # First: the last connection to close is the one that may remove the log.
            reading.close()
        if writing is not None:
            if not writing.is_closed:
                # What expired, and what a foreign reader held up; else the next open does it.
                with anyio.CancelScope(shield=True):
                    await self._scrubber.scrub(at_once=self._scrubber.is_held_up)
                    with suppress(StoreError):
                        await self.unswept()
            await writing.aclose()

    async def backup(self, path: Path) -> None:
        async with connected(self._readers().held) as connection:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(copied, connection, path)

    async def unswept(self) -> tuple[str, ...]:
        """This machine, if copies of segments beside the file could not be removed."""
        # Readers are closed first, and those for reading alone have no writer.
        read = self.reading if self._writing is None else self._writing.run
        if self.sweep is None or await self.swept(self.sweep, partial(read, digests)):
            return ()
        return (gethostname(),)

    async def scrub(self, *, at_once: bool = False) -> bool:
        self._writer()
        return await self._scrubber.scrub(at_once=at_once)

    async def tend(self, woken: Callable[[], None]) -> Never:
        await self._scrubber.run()

    async def _written(self) -> tuple[int, int]:
        """
        Writes so far, and the numbers that were given, which others that write take from as well.
        """
        (given,) = await self.reading(lambda tx: tx.run(_GIVEN).fetchone())
        return self._writer().posted, given

    def _writer(self) -> Writer:
        if self._writing is None:
            if self._reading is not None:
                raise StoreReadOnly(f"the store {self.place!r} cannot be written to")
            raise StoreError(f"the store {self.place!r} is not open")
        return self._writing

    def _readers(self) -> Readers:
        if self._reading is None:
            raise StoreError(f"the store {self.place!r} is not open")
        if self._reading.closed:
            raise StoreError("the store is closed: open the service again")
        if self._writing is not None:
            # Open connections still read the deleted file, and in it what was refused.
            self._writing.refuse_lost()
        return self._reading

    # ── Opening, in a worker thread ──────────────────────────────────────────────────

    def _create(self) -> sqlite3.Connection:
        with translated("opening a database in memory"):
            connection = connect_in_memory(self._config)
            migrate(connection, None)
            return connection

    def _prepare(self, path: Path) -> tuple[Location, sqlite3.Connection | None]:
        location = locate(path)
        if location.exists and not location.writable:
            self._inspect(location)
            return location, None
        try:
            with translated(f"opening {self.place!r}"):
                return location, self._open_for_writing(location)
        except StoreError as error:
            if not location.exists:
                raise
            self._settle_for_reading(location, error)
            return location, None

    def _settle_for_reading(self, location: Location, error: StoreError) -> None:
        """Go on without writing after *error*. *Raises* it if that was not for lack of room."""
        if not is_unwritable(error):
            raise error
        self._inspect(location)
        log.warning("%r is opened for reading only: %s", self.place, error)

    def _open_reader(self, location: Location) -> sqlite3.Connection:
        if self._writing is not None:
            self._writing.identity.check()
        return connect(location, "ro", self._config)

    def _inspect(self, location: Location) -> None:
        with translated(f"opening {self.place!r}"):
            try:
                found = self._version_read(location)
            except sqlite3.OperationalError:
                if location.frozen:
                    raise
                # There is no room for side files; nobody writes, or they would be there.
                location.alone = location.has_log()
                location.frozen = not location.alone
                found = self._version_read(location)
        if found != VERSION:
            raise StoreError(
                f"the store has schema version {found}, this mnemo needs {VERSION}: "
                "open it once where it can be written"
            )

    def _version_read(self, location: Location) -> int:
        with closing(connect(location, "ro", self._config)) as connection:
            return stored_version(connection)

    def _open_for_writing(self, location: Location) -> sqlite3.Connection:
        with closed_on_error(connect(location, "rwc", self._config)) as connection:
            stored_version(connection)
            _refuse_damage(connection, location)
            _use_write_ahead_log(connection)
            migrate(connection, location.path if self._config.backup_on_migrate else None)
            return connection


def _refuse_damage(connection: sqlite3.Connection, location: Location) -> None:
    if location.path.stat().st_size > _CHECKED_AT_OPEN_BYTES:
        return
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreCorrupt(f"{str(location.path)!r} is damaged ({found}); restore a backup")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError("the file system cannot hold a write-ahead log; use a local disk")


# ── Staging ──────────────────────────────────────────────────────────────────────────


class _Staging:
    """``Staging`` in an attached database."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.writing = writer.run

    async def staging(self, work: Callable[[Tx], T]) -> T:
        return await self._writer.run_outside(partial(_staged, work))


def _attach(tables: dict[str, str], tx: Tx) -> None:
    tx.run("ATTACH '' AS staging")
    # Nothing of it outlives the connection, so nothing is to be rolled back or flushed.
    tx.run("PRAGMA staging.journal_mode = OFF")
    tx.run("PRAGMA staging.synchronous = OFF")
    for table, columns in tables.items():
        tx.run(f"CREATE TABLE staging.{table} ({columns})")


def _detach(tx: Tx) -> None:
    tx.run("DETACH staging")


def _staged(work: Callable[[Tx], T], tx: Tx) -> T:
    tx.run("BEGIN")
    try:
        return work(tx)
    finally:
        tx.run("COMMIT")


# ── The writer ───────────────────────────────────────────────────────────────────────


_NAME = "SELECT file FROM pragma_database_list WHERE name = 'main'"
# Any read opens the write-ahead log, and creates it where there is none.
_READ = "SELECT count(*) FROM sqlite_master"
_WRITING = "writing to the store"


class Writer(GroupWriter):
    """``GroupWriter`` over a SQLite connection, opened for writing."""

    def __init__(self, connection: sqlite3.Connection, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._connection = connection
        self._tx = SqliteTx(connection)
        self._lost: StoreError | None = None
        self.identity: Identity = Identity(connection)
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
            self.refuse(batch, ours(error, _WRITING))

    def refuse_lost(self) -> None:
        """*Raises* ``StoreError``: a commit found the store's files deleted or replaced."""
        if self._lost is not None:
            raise StoreError(str(self._lost))

    def copy(self) -> sqlite3.Connection:
        """A database in memory with what is committed; in the writer's thread."""
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        copy.text_factory = self._connection.text_factory
        self._connection.backup(copy)
        return copy

    def _run_outside(self, units: list[Unit]) -> None:
        with translated("tending the store's file"):
            self.refuse_lost()
            self._run(units)

    def _run_in_savepoint(self, units: list[Unit]) -> bool:
        self._connection.execute("SAVEPOINT unit")
        try:
            self._run(units)
        except Exception as error:
            self._roll_back_unit(error)
            self.refuse(units, ours(error, _WRITING))
            return False
        self._connection.execute("RELEASE unit")
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

    SQLite keeps both open: after they are unlinked or replaced, commits succeed and are lost. A
    checkpoint truncates the log and ``VACUUM`` rewrites the database in place, so neither changes
    while the connection lasts. A database in memory has no files, and nothing is compared.

    *connection*: Already in WAL mode.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        (self._path,) = connection.execute(_NAME).fetchone()
        connection.execute(_READ).fetchone()
        self._opened = _look(self._path) if self._path else None

    def check(self) -> None:
        """*Raises* ``StoreError``: the path names other files now, or none (two ``os.stat``)."""
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

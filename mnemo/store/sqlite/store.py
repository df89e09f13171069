"""The embedded store: opening, closing, and what it hands out."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Never

import anyio
import anyio.to_thread

from mnemo.config import StoreConfig
from mnemo.errors import StoreCorrupt, StoreError, StoreReadOnly
from mnemo.protocols import Clock, StoreReport
from mnemo.store.archive import StoredArchive
from mnemo.store.check import check_full_text, check_store
from mnemo.store.feed import StoredFeed
from mnemo.store.graph import StoredGraph
from mnemo.store.notes import StoredNotes
from mnemo.store.overhaul import StoredOverhaul
from mnemo.store.owners import forget_the_dead, register
from mnemo.store.processes import new_owner
from mnemo.store.records import StoredRecords
from mnemo.store.sessions import StoredSessions
from mnemo.store.sqlite.connection import (
    Location,
    connect,
    connect_in_memory,
    is_unwritable,
    locate,
    translated,
)
from mnemo.store.sqlite.readers import FileReaders, MemoryReaders, Readers
from mnemo.store.sqlite.schema import VERSION, migrate, stored_version
from mnemo.store.sqlite.scrub import Scrubber
from mnemo.store.sqlite.writer import Writer
from mnemo.store.transcript import StoredTranscript
from mnemo.store.tx import Tx
from mnemo.values.journal import Owner

__all__ = ["SqliteStore"]

logger = logging.getLogger(__name__)

# Files up to this size are read whole at open (some 100 ms); ``check`` does it for any size.
_CHECKED_AT_OPEN_BYTES = 64 * 1024 * 1024


class SqliteStore:
    """
    One SQLite database, one writer thread, group commit.

    Nothing touches the disk before ``open``.

    Args:
        path: The file; made if it is not there, its folder is not. Readers of a file never
            wait for the writer. ``None`` is a database in memory with one connection,
            which ends with ``aclose``.
        lease_s: Seconds that this service's ownership of sessions outlives its last
            ``renew``, as seen by other machines.
    """

    def __init__(
        self, path: str | Path | None, *, config: StoreConfig, clock: Clock, lease_s: float
    ) -> None:
        self._path = None if path is None else Path(path)
        self._config = config
        self._clock = clock
        self._lease_s = lease_s
        self._writing: Writer | None = None
        self._reading: Readers | None = None
        self._renewals = 0
        self._scrubber = Scrubber(self._path, self._writer, self._writes, clock)
        self._importing = anyio.Lock()
        self._sessions = StoredSessions(self._writer, self._readers, clock)

    @property
    def sessions(self) -> StoredSessions:
        """The journal of all sessions."""
        return self._sessions

    def graph(self, repo_id: str) -> StoredGraph:
        """The graph of one repository."""
        return StoredGraph(repo_id, self._writer, self._readers, self._clock)

    def feed(self, repo_id: str) -> StoredFeed:
        """What one repository's indexes follow."""
        return StoredFeed(repo_id, self._writer, self._readers)

    def records(self, repo_id: str) -> StoredRecords:
        """Every single thing said or observed in one repository."""
        return StoredRecords(repo_id, self._readers, self._clock)

    def overhaul(self, repo_id: str) -> StoredOverhaul:
        """What is rarely done to one repository as a whole."""
        return StoredOverhaul(repo_id, self._writer, self._readers, self._scrubber)

    def archive(self, repo_id: str) -> StoredArchive:
        """One repository as records, out and in."""
        return StoredArchive(repo_id, self._writer, self._readers, self._importing)

    def notes(self, repo_id: str) -> StoredNotes:
        """The notes of one repository."""
        return StoredNotes(repo_id, self._writer, self._readers, self._clock)

    def transcript(self, repo_id: str) -> StoredTranscript:
        """The conversations of one repository."""
        return StoredTranscript(repo_id, self._writer, self._readers, self._clock)

    @property
    def queued_writes(self) -> int:
        """Units of work that wait for the writer or for its commit."""
        return self._writing.waiting if self._writing is not None else 0

    async def open(self) -> Owner:
        """
        Open (creating or migrating) the file and register a new owner.

        A file that may not be written, or lies on a full disk, is opened for reading:
        nobody is registered, and writing calls raise ``StoreReadOnly``.

        Raises:
            StoreError: One of its kinds; the file was not touched. *Cancellation*: safe.
        """
        if self._reading is not None:
            raise StoreError("the store is open already")
        owner, location = new_owner(), None
        if self._path is None:
            self._begin(await anyio.to_thread.run_sync(self._create))
            self._reading = MemoryReaders(self._writer())
        else:
            location, connection = await anyio.to_thread.run_sync(self._prepare, self._path)
            self._reading = FileReaders(lambda: self._open_reader(location))
            if connection is None:
                return owner
            self._begin(connection)
        try:
            await self._enter(owner, location)
            if self._writing is not None:
                await self._scrubber.scrub(at_once=False)
        except BaseException:
            await self.aclose()
            raise
        return owner

    def _begin(self, connection: sqlite3.Connection) -> None:
        self._writing = Writer(connection, limit=self._config.max_queued_writes)
        self._writing.start()

    async def _enter(self, owner: Owner, location: Location | None) -> None:
        """Register *owner*; if there is no room for that, the store is for reading."""
        try:
            await self._register(owner)
        except StoreError as error:
            if location is None:
                raise
            writing, self._writing = self._writer(), None
            await writing.aclose()
            await anyio.to_thread.run_sync(self._settle_for_reading, location, error)

    async def _register(self, owner: Owner) -> None:
        now = self._clock.now()

        def enter(tx: Tx) -> None:
            register(tx, owner, now=now, lease_s=self._lease_s)
            forget_the_dead(tx, owner)

        await self._writer().run(enter)

    async def aclose(self) -> None:
        """Let queued units finish, checkpoint, close. Idempotent. *Cancellation*: completes."""
        writing, reading = self._writing, self._reading
        if reading is not None:
            # First: the last connection to close is the one that may remove the log.
            reading.close()
        if writing is not None:
            await self._scrub_once_more(writing)
            await writing.aclose()

    async def _scrub_once_more(self, writing: Writer) -> None:
        """What expired, and what a foreign reader held up; else the next open does it."""
        if not writing.is_closed:
            with anyio.CancelScope(shield=True):
                await self._scrubber.scrub(at_once=self._scrubber.is_held_up)

    async def renew(self, owner: Owner, lease_s: float) -> None:
        """Prolong the lease of *owner* on all its sessions. *Cancellation*: completes."""
        if self._opened_for_reading:
            return
        now = self._clock.now()
        self._renewals += 1
        await self._writer().run(lambda tx: register(tx, owner, now=now, lease_s=lease_s))

    async def scrub(self, *, at_once: bool = False) -> bool:
        """
        Rid the files of what was erased; give whether nothing of it is left.

        Args:
            at_once: Rewrite a file above 64 MB, too; otherwise that is left to ``tend``.

        Raises:
            StoreReadOnly: The store was opened for reading. *Cancellation*: safe.
        """
        self._writer()
        return await self._scrubber.scrub(at_once=at_once)

    async def tend(self) -> Never:
        """
        Rewrite a large file that something was erased from, after 5 s without writes.

        *Cancellation*: safe.
        """
        await self._scrubber.run()

    async def check(self) -> StoreReport:
        """Check the file, full text against records, vectors against their owners, edges' ends."""
        problems, counts = await self._readers().read(check_store)
        if self._writing is not None:
            problems += await self._writing.run(check_full_text)
        return StoreReport(
            problems=tuple(problems),
            counts=counts,
            schema_version=VERSION,
            synchronous="none" if self._path is None else self._config.synchronous,
        )

    @property
    def _opened_for_reading(self) -> bool:
        """Whether it may not be written, so that nobody is registered in it."""
        return self._reading is not None and self._writing is None

    def _writes(self) -> int:
        """Writes so far, renewals of the lease aside: they say nothing about idleness."""
        return self._writer().posted - self._renewals

    def _writer(self) -> Writer:
        if self._writing is None:
            if self._reading is not None:
                raise StoreReadOnly(f"the store {self._name!r} cannot be written to")
            raise StoreError(f"the store {self._name!r} is not open")
        return self._writing

    def _readers(self) -> Readers:
        if self._reading is None:
            raise StoreError(f"the store {self._name!r} is not open")
        if self._writing is not None:
            # Open connections still read the deleted file, and in it what was refused.
            self._writing.refuse_lost()
        return self._reading

    @property
    def _name(self) -> str:
        return "memory:" if self._path is None else str(self._path)

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
            with translated(f"opening {self._name!r}"):
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
        logger.warning("%r is opened for reading only: %s", self._name, error)

    def _open_reader(self, location: Location) -> sqlite3.Connection:
        if self._writing is not None:
            self._writing.identity.check()
        return connect(location, "ro", self._config)

    def _inspect(self, location: Location) -> None:
        with translated(f"opening {self._name!r}"):
            try:
                found = self._version_read(location)
            except sqlite3.OperationalError:
                if location.frozen or location.has_log():
                    raise
                # There is no room for side files; nobody writes, or they would be there.
                location.frozen = True
                found = self._version_read(location)
        if found != VERSION:
            raise StoreError(
                f"the store has schema version {found}, this mnemo needs {VERSION}: "
                "open it once where it can be written"
            )

    def _version_read(self, location: Location) -> int:
        connection = connect(location, "ro", self._config)
        try:
            return stored_version(connection)
        finally:
            connection.close()

    def _open_for_writing(self, location: Location) -> sqlite3.Connection:
        connection = connect(location, "rwc", self._config)
        try:
            stored_version(connection)
            _refuse_damage(connection, location)
            _use_write_ahead_log(connection)
            migrate(connection, location.path if self._config.backup_on_migrate else None)
        except BaseException:
            connection.close()
            raise
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

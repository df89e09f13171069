"""
Connections: how they are opened, where reads run, and the edge where SQLite's errors become ours.

A file is read by a few read-only connections in worker threads. A database in memory has one
connection, the writer's: its reads are units of the writer's thread, and a snapshot is a copy.
"""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar, Literal, TypeVar
from urllib.parse import quote

import anyio
import anyio.to_thread

from mnemo.config import StoreConfig
from mnemo.errors import MnemoError, StoreCorrupt, StoreError, StoreLocked, UsageError
from mnemo.store.engine import GroupWriter, closed_on_error
from mnemo.store.sqlite import dialect
from mnemo.store.tx import Dialect, Tx, Values

T = TypeVar("T")

_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNWRITABLE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# A page cache of 16 MiB: the hot index pages of some 100,000 steps.
_CACHE_KIB = 16_384
# Rows per statement. SQLite lets go of the interpreter lock once per statement run: in
# big batches the event loop and the writer get in each other's way 32 times less often.
_BATCH = 32
# Pages between checkpoints. SQLite's 1,000 make the writer stop for the disk four times as often.
_CHECKPOINT_PAGES = 4_000
_LOG_LIMIT_BYTES = 64 * 1024 * 1024


class Location:
    """
    Where the store's file is, and what may be done with it.

    Attributes:
        path: The file.
        exists: Whether there is a file with something in it.
        writable: Whether file and folder may be written.
        frozen: Whether SQLite could not make its side files, and needs none to read.
        alone: Whether readers keep the index of the log in memory, where there is no room
            for its file. Other processes are kept out meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.exists: bool = path.exists() and path.stat().st_size > 0
        self.writable: bool = _writable(path)
        self.frozen: bool = not _writable(self.path.parent) and not self.has_log()
        self.alone = False

    def uri(self, mode: Literal["ro", "rw", "rwc"]) -> str:
        """The file's URI; ``immutable`` for reading where it is frozen."""
        options = f"mode={mode}"
        if mode == "ro" and self.frozen:
            options = "mode=ro&immutable=1"
        elif mode == "ro" and self.alone:
            # Its lock on the file needs the right to write.
            options = "mode=rw&vfs=unix-excl"
        return f"file:{quote(str(self.path.absolute()))}?{options}"

    def has_log(self) -> bool:
        """Whether something is in the write-ahead log, which reading needs side files for."""
        log = self.path.with_name(self.path.name + "-wal")
        return log.exists() and log.stat().st_size > 0


def _writable(path: Path) -> bool:
    if not path.exists():
        return os.access(path.parent, os.W_OK | os.X_OK)
    if path.is_dir():
        return os.access(path, os.W_OK | os.X_OK)
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)


def locate(path: Path) -> Location:
    """Look at *path* before SQLite does. *Raises* ``StoreError``, which says what is wrong."""
    try:
        if path.is_dir():
            raise StoreError(
                f"{str(path)!r} is a directory: name a file, e.g. {str(path / 'mnemo.db')!r}"
            )
        if not path.parent.is_dir():
            raise StoreError(f"the folder {str(path.parent)!r} does not exist: create it first")
        location = Location(path)
    except OSError as error:
        raise StoreError(f"cannot open the store {str(path)!r}: {error.strerror}") from error
    if not location.exists and not location.writable:
        raise StoreError(f"cannot create {str(path)!r}: the folder is not writable")
    return location


def connect(
    location: Location, mode: Literal["ro", "rw", "rwc"], config: StoreConfig
) -> sqlite3.Connection:
    """A connection in explicit transaction mode, for any one thread at a time; changes nothing."""
    with closed_on_error(_open(location.uri(mode), config)) as connection:
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA synchronous = {config.synchronous.upper()}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT_BYTES}")
        # Of some builds it is the default, of most not: what is deleted is overwritten.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA query_only = {mode == 'ro'}")
        return connection


def connect_in_memory(config: StoreConfig) -> sqlite3.Connection:
    """A connection to a new database in memory, which lives as long as it."""
    connection = _open("file::memory:", config)
    # A backup copies it page by page.
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def _open(uri: str, config: StoreConfig) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=config.busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.text_factory = _lenient_text
    # Else the view of the full text may not call its function.
    connection.execute("PRAGMA trusted_schema = ON")
    connection.create_function("mnemo_tokens", 3, dialect.tokens, deterministic=True)
    connection.create_function("mnemo_occurrences", 2, dialect.count_of, deterministic=True)
    return connection


def _lenient_text(raw: bytes) -> str | bytes:
    """Text of a column; bytes that are no UTF-8 stay bytes, to be met by ``Rows``."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


# A class, since a generator takes three times as many calls.
class translated:  # noqa: N801 - used as a function is
    """Turn SQLite's errors within the block into ours; *what* was being done."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise ours(error, self._what) from error


class SqliteTx:
    """``Tx`` over a connection, whose transaction is the engine's."""

    __slots__ = ("_connection", "_execute")

    dialect: ClassVar[Dialect] = dialect

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._execute: Callable[..., sqlite3.Cursor] = connection.execute

    def run(self, statement: str, *values: Values) -> sqlite3.Cursor:
        return self._execute(dialect.spelled(statement), *values)

    def run_many(self, statement: str, rows: Iterable[Values], /) -> int:
        return self._connection.executemany(dialect.spelled(statement), rows).rowcount

    @contextmanager
    def refusing(self, refusal: MnemoError) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
                raise refusal from error
            raise

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], /) -> None:
        """Insert in two statements at most."""
        names, count = tuple(columns), len(rows)
        whole = count - count % _BATCH
        if whole:
            starts = range(0, whole, _BATCH)
            batches = [list(chain(*rows[start : start + _BATCH])) for start in starts]
            self._connection.executemany(_insertion(table, names, _BATCH), batches)
        if rest := count - whole:
            self._execute(_insertion(table, names, rest), list(chain(*rows[whole:])))


@lru_cache(maxsize=128)
def _insertion(table: str, columns: tuple[str, ...], rows: int) -> str:
    places = ",".join([f"({','.join('?' * len(columns))})"] * rows)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {places}"


def ours(error: Exception, what: str) -> Exception:
    """*error*, one of SQLite as ``translated`` raises it."""
    if not isinstance(error, sqlite3.Error):
        return error
    found = _translation(error, what)
    found.__cause__ = error
    return found


def _translation(error: sqlite3.Error, what: str) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _LOCKED:
        return StoreLocked(f"{what}: another process held the write lock too long; try again")
    if code in _DAMAGED:
        return StoreCorrupt(
            f"{what}: the file is damaged or no mnemo store; restore a backup, or name another file"
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreError(f"{what}: the disk is full; free some space, nothing was half-written")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreError(
            f"{what}: the file cannot be written; check the rights of it and its folder"
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(f"{what}: the disk reported an error ({error}); nothing was half-written")
    return StoreError(f"{what}: {error}")


def is_unwritable(error: StoreError) -> bool:
    """Whether SQLite found no room, or was refused, where it had to write."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    return code in _UNWRITABLE


# ── Reading ──────────────────────────────────────────────────────────────────────────

# Reads are short; more threads than this only wait for the interpreter.
_CONNECTIONS = 4
_READING = "reading the store"


class Readers(ABC):
    """Runs the reads of one open database, as ``Engine`` says."""

    def __init__(self) -> None:
        self.limiter: anyio.CapacityLimiter = anyio.CapacityLimiter(_CONNECTIONS)
        self.closed: bool = False

    @abstractmethod
    async def read(self, work: Callable[[Tx], T]) -> T:
        """See ``Engine.reading``."""

    @abstractmethod
    async def held(self) -> sqlite3.Connection:
        """A new connection that holds one revision."""

    def close(self) -> None:
        """Take it for closed; reads that run end. Idempotent."""
        self.closed = True


class FileReaders(Readers):
    """A pool of connections to a file; *connect* opens one more, for reading."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__()
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await anyio.to_thread.run_sync(self._run, work, limiter=self.limiter)

    async def held(self) -> sqlite3.Connection:
        return await anyio.to_thread.run_sync(self._begun, limiter=self.limiter)

    def _begun(self) -> sqlite3.Connection:
        with translated(_READING):
            connection = self._connect()
            connection.execute("BEGIN")
            # Only a read takes the revision that is seen from then on.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection

    def _run(self, work: Callable[[Tx], T]) -> T:
        connection: sqlite3.Connection | None = None
        try:
            connection = self._idle.pop() if self._idle else self._connect()
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

    def close(self) -> None:
        """Close what is idle, too; a read that runs closes its own."""
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
        return await self._writer.run_outside(partial(_read_only, work=work))

    async def held(self) -> sqlite3.Connection:
        return await self._writer.run_outside(lambda _: self._copy())


def _read_only(tx: Tx, work: Callable[[Tx], T]) -> T:
    with translated(_READING):
        tx.run("PRAGMA query_only = ON")
        try:
            return work(tx)
        finally:
            tx.run("PRAGMA query_only = OFF")


def copied(connection: sqlite3.Connection, path: Path) -> None:
    """Write what *connection* sees to a file that is there when it is complete, or not at all."""
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

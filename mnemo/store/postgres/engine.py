"""The PostgreSQL engine: one writer, a pool for reads; many processes share the server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Never, TypeVar

import anyio
import anyio.to_thread
import psycopg
from psycopg_pool import ConnectionPool

from mnemo.config import StoreConfig
from mnemo.errors import StoreError, UsageError
from mnemo.store.engine import OWNERS, Engine, Locks, Snapshot, closed_on_error, connected, pay_off
from mnemo.store.postgres.connection import Address, Connection, PostgresTx, adapt, translated
from mnemo.store.postgres.planner import analyse
from mnemo.store.postgres.schema import PARTED, PARTITIONS, migrate
from mnemo.store.postgres.scrub import is_clean, scrub
from mnemo.store.postgres.writer import CommitInDoubt, Commits, Writer, locking
from mnemo.store.tx import Tx


async def listen(
    connect: Callable[[], Connection],
    channel: str,
    is_own: Callable[[int], bool],
    woken: Callable[[], None],
) -> None:
    """
    Call *woken* for what others write, until the connection is lost, which is ``StoreError``.
    *Cancellation*: safe.
    """
    connection = await anyio.to_thread.run_sync(partial(_listening, connect, channel))
    try:
        woken()  # Something may have been written before.
        while True:
            await anyio.wait_readable(connection.fileno())
            with translated("listening for jobs"):
                connection.pgconn.consume_input()
            notices = list(iter(connection.pgconn.notifies, None))
            if not all(is_own(notice.be_pid) for notice in notices):
                woken()
                await anyio.sleep(_BETWEEN_WAKINGS_S)
    finally:
        connection.close()


def _listening(connect: Callable[[], Connection], channel: str) -> Connection:
    with translated("listening for jobs"), closed_on_error(connect()) as connection:
        connection.execute(f'LISTEN "{channel}"')
        return connection


log = logging.getLogger("mnemo")

T = TypeVar("T")

# Reads are short; more threads than this only wait for the interpreter.
_READERS = 4
_LISTEN_AGAIN_S = 5.0
_LOOK_S, _MOST_LOOK_S, _AFTER_ERROR_S = 10.0, 60.0, 600.0
"""Between looks for tables that have grown: twice as long after each one that finds none."""
# What many others write is looked for as often as what one does.
_BETWEEN_WAKINGS_S = 0.02
_MOST_IDLE_MS = 180_000
"""The server ends a writer that is paused within a transaction, whose locks others wait for; to
read the words of the longest text takes half a minute."""
_MAY_BE_IDLE = "SET LOCAL idle_in_transaction_session_timeout = 0"


class PostgresEngine(Engine):
    """``Engine`` over a schema of a database; nothing connects before ``open``."""

    synchronous = "full"

    def __init__(self, url: str, *, config: StoreConfig) -> None:
        self._address = Address.of(url)
        self.place: str = self._address.shown
        self.name: str = self._address.name
        """Tells it from other stores, also of one database."""
        self._config = config
        self._writing: Writer | None = None
        self._pool: ConnectionPool[Connection] | None = None
        self._limiter = anyio.CapacityLimiter(_READERS)
        self._closed = False
        self._is_pooled = False
        self._woken: Callable[[], None] = lambda: None
        self.sweep: Callable[[Callable[[], None]], Awaitable[tuple[str, ...]]] | None = None
        """Does what ``unswept`` says; it calls what it is given, as ``tend`` is given it."""
        path = f'SET LOCAL search_path = "{self._address.schema}", pg_temp'
        patience = f"SET LOCAL lock_timeout = {round(config.busy_timeout_s * 1_000)}"
        self._begin_read = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {path}; {patience}"
        self._begin_write = (
            f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {path}; {patience}; "
            f"SET LOCAL synchronous_commit = on; "
            f"SET LOCAL idle_in_transaction_session_timeout = {_MOST_IDLE_MS}"
        )

    async def reading(self, work: Callable[[Tx], T]) -> T:
        return await anyio.to_thread.run_sync(self._read, work, limiter=self._limiter)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        self._writer()
        async with connected(partial(anyio.to_thread.run_sync, self._begun)) as connection:
            yield Snapshot(PostgresTx(connection), translated, self._limiter)

    @asynccontextmanager
    async def staging(self, tables: dict[str, str]) -> AsyncIterator[_Staging]:
        """Make temporary tables on a connection of its own, which ends with the context."""
        self._writer()
        staged = partial(anyio.to_thread.run_sync, self._staged, tables)
        async with connected(staged) as connection:
            commits = Commits(self._connect, self._begin_write)
            yield _Staging(connection, commits, "" if self._is_pooled else self._begin_write)

    async def open(self, enter: Callable[[Tx], None]) -> None:
        if self._writing is not None:
            raise StoreError("the store is open already")
        await anyio.to_thread.run_sync(self._prepare)
        try:
            self._writing = await anyio.to_thread.run_sync(self._make_writer)
            self._writing.start()
            await self._writing.run(enter, OWNERS)
        except BaseException:
            await self.aclose()
            raise

    def _make_writer(self) -> Writer:
        with translated(f"opening {self.place}"):
            return Writer(
                self._connect,
                self._begin_write,
                channel=self._address.schema,
                limit=self._config.max_queued_writes,
                splits=self._address.splits,
            )

    def _prepare(self) -> None:
        with translated(f"opening {self.place}"):
            with closing(self._connect()) as connection:
                _refuse_unfit(connection)
                self._is_pooled = _is_pooled(connection)
                parts = 0 if self._address.splits else PARTITIONS
                migrate(connection, self._address.schema, parts=parts)
            self._pool = ConnectionPool(
                self._address.conninfo,
                min_size=0,
                max_size=_READERS,
                kwargs=self._options(),
                configure=adapt,
                open=True,
                timeout=self._config.busy_timeout_s,
                # It tries again at longer and longer intervals: a call after that begins anew.
                reconnect_timeout=self._config.busy_timeout_s,
                name="mnemo",
            )

    def _connect(self) -> Connection:
        connection = psycopg.connect(self._address.conninfo, **self._options())
        adapt(connection)
        return connection

    def _options(self) -> dict[str, Any]:
        # What is prepared in one transaction is not there for the next one of a pooler.
        return {"autocommit": True} | ({"prepare_threshold": None} if self._is_pooled else {})

    async def aclose(self) -> None:
        writing, pool = self._writing, self._pool
        self._closed = True
        with anyio.CancelScope(shield=True):
            if writing is not None:
                await writing.aclose()
            if pool is not None:
                await anyio.to_thread.run_sync(pool.close)

    def _writer(self) -> Writer:
        if self._writing is None:
            raise StoreError(f"the store {self.place} is not open")
        if self._closed:
            raise StoreError("the store is closed: open the service again")
        return self._writing

    def _read(self, work: Callable[[Tx], T]) -> T:
        with translated("reading the store"):
            connection = self._begun_in_pool()
            assert self._pool is not None
            try:
                with closed_on_error(connection):
                    result = work(PostgresTx(connection))
                    connection.execute("ROLLBACK")
                    return result
            finally:
                self._pool.putconn(connection)

    def _begun_in_pool(self) -> Connection:
        """A connection that reads one revision; those that the server has ended are left out."""
        self._writer()
        assert self._pool is not None
        while True:
            connection = self._pool.getconn()
            try:
                connection.execute(self._begin_read)
            except psycopg.OperationalError:
                lost = connection.closed
                connection.close()
                self._pool.putconn(connection)
                if not lost:
                    raise
            else:
                return connection

    def _begun(self) -> Connection:
        with translated("reading the store"), closed_on_error(self._connect()) as connection:
            connection.execute(self._begin_read)
            connection.execute("SELECT 1 FROM meta LIMIT 1")
            return connection

    def _staged(self, tables: dict[str, str]) -> Connection:
        with translated("preparing an import"), closed_on_error(self._connect()) as connection:
            lasting = ""
            if self._is_pooled:
                # Temporary tables are there for one transaction, so that all is done in one.
                connection.execute(f"{self._begin_write}; {_MAY_BE_IDLE}")
                lasting = " ON COMMIT DROP"
            for table, columns in tables.items():
                PostgresTx(connection).run(f"CREATE TABLE staging.{table} ({columns}){lasting}")
            return connection

    async def backup(self, path: Path) -> None:
        """*Raises* ``UsageError``: a server is backed up with ``pg_dump``."""
        raise UsageError("a PostgreSQL store is backed up by its operator: use pg_dump")

    async def scrub(self, *, at_once: bool = False) -> bool:
        """Rewrite all tables, if *at_once*; else look whether nothing erased is left."""
        self._writer()
        if not at_once:
            return await self.reading(is_clean)
        await pay_off(self.writing)
        # Not at the same time: the caches' machines read and write tables that are rewritten.
        left = await self.unswept()
        return await anyio.to_thread.run_sync(self._scrub) and not left

    async def unswept(self) -> tuple[str, ...]:
        return await self.sweep(self._woken) if self.sweep else ()

    def _scrub(self) -> bool:
        with translated("scrubbing the store"), closing(self._connect()) as connection:
            return scrub(connection, self._address.schema, is_pooled=self._is_pooled)

    async def tend(self, woken: Callable[[], None]) -> Never:
        """Listen for jobs and have grown tables analysed; the server vacuums by itself."""
        writer, self._woken = self._writer(), woken
        while True:  # mypy takes the group for one that may end.
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen, writer, woken)
                tasks.start_soon(self._keep_analysed)

    async def _listen(self, writer: Writer, woken: Callable[[], None]) -> None:
        def told() -> None:
            self.is_told = True
            woken()

        while not self._is_pooled:  # No pooler lets notices through.
            try:
                await listen(self._connect, self._address.schema, writer.is_own, told)
            except StoreError as error:
                self.is_told = False
                log.info("jobs of other processes are found by looking for them: %s", error)
            await anyio.sleep(_LISTEN_AGAIN_S)

    async def _keep_analysed(self) -> None:
        pause = _LOOK_S
        while True:
            await anyio.sleep(pause)
            pause = min(2 * pause, _MOST_LOOK_S)
            try:
                for _ in PARTED:
                    if not await anyio.to_thread.run_sync(
                        self._analyse, limiter=self._limiter, abandon_on_cancel=True
                    ):
                        break
                    pause = _LOOK_S
            except StoreError as error:
                pause = _AFTER_ERROR_S
                log.info("tables are analysed at the next look: %s", error)

    def _analyse(self) -> bool:
        assert self._pool is not None
        with translated("analysing tables"), self._pool.connection() as connection:
            return analyse(connection, self._address.schema)


def _refuse_unfit(connection: Connection) -> None:
    if connection.info.server_version < 150_000:
        raise StoreError(
            f"the server is PostgreSQL {connection.info.server_version // 10_000}: "
            "mnemo needs 15 or newer"
        )
    row = connection.execute("SHOW server_encoding").fetchone()
    if row is None or row[0] != "UTF8":
        raise StoreError(f"the database is encoded as {row and row[0]}: make one with UTF8")


def _is_pooled(connection: Connection) -> bool:
    """Whether it leads to a pooler, such as PgBouncer: that of the server changes behind it."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row is None or row[0] != connection.info.backend_pid


@dataclass(frozen=True, slots=True)
class _Staging:
    """``Staging`` in temporary tables; *begin* begins a transaction, or is empty: one holds all."""

    _connection: Connection
    _commits: Commits
    _begin: str

    async def staging(self, work: Callable[[Tx], T]) -> T:
        return await anyio.to_thread.run_sync(self._stage, work)

    async def writing(self, work: Callable[[Tx], T], *, locks: Locks = ()) -> T:
        return await anyio.to_thread.run_sync(self._write, work, locking([locks]))

    def _stage(self, work: Callable[[Tx], T]) -> T:
        with translated("importing"):
            self._connection.execute(self._begin)
            try:
                return work(PostgresTx(self._connection))
            finally:
                self._connection.execute("COMMIT" if self._begin else "")

    def _write(self, work: Callable[[Tx], T], lock: str) -> T:
        with translated("importing"):
            with closing(self._commits.connect()) as apart:  # no transaction is open there
                self._commits.enter(apart)
            self._connection.execute(f"{self._begin}; {lock}; {self._commits.next()}")
            result = work(PostgresTx(self._connection))  # what fails ends with the connection
            try:
                self._commits.commit(self._connection)
            except CommitInDoubt:
                if error := self._commits.looked_up():
                    raise error from None
            return result


def server_time(tx: Tx) -> datetime:
    """The server's time, for leases and due times: the clocks of its clients may be wrong."""
    (seconds,) = tx.run("SELECT extract(epoch FROM clock_timestamp())").fetchone()
    return datetime.fromtimestamp(float(seconds), UTC)

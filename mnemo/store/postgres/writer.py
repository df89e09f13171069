"""The writer over PostgreSQL: locks, group commit, retries, and commits in doubt."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import groupby
from typing import Any

import psycopg
from psycopg import errors

from mnemo.errors import StoreError, StoreUnavailable
from mnemo.store.engine import WHOLE, GroupWriter, Locks, Unit, closed_on_error, outside, repos_of
from mnemo.store.postgres.connection import Connection, PostgresTx, translated
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


_WRITING = "writing to the store"
_MOST_TRIES = 5
_MOST_ASIDE = 4
"""Repositories that are erased at once, by one service, without waiting for each other (S)."""
# In each commit, notifying would take nine tenths of the throughput.
_BETWEEN_NOTICES_S = 0.02
_LOCK = "SELECT no FROM locks WHERE no = ANY ('{{{}}}') ORDER BY no FOR UPDATE"
_LOCK_NONE = "LOCK TABLE locks IN ROW SHARE MODE"
_LOCK_ALL = "LOCK TABLE locks IN EXCLUSIVE MODE"
"""Keeps out every writer: those that lock rows, too, lock the table in a weaker mode."""
# Advisory locks have a queue: who shuts a gate waits for those before it alone, and nobody passes
# it meanwhile, so that neither starves. Rows that are locked in two modes have none.
_GATES = """
SELECT CASE WHEN shuts THEN pg_advisory_xact_lock(hashtext(current_schema()), gate)
       ELSE pg_advisory_xact_lock_shared(hashtext(current_schema()), gate) END
FROM (VALUES {}) v (gate, shuts)"""
_TRY_GATES = """
SELECT gate AS shut FROM (VALUES {}) v (gate, shuts)
WHERE NOT pg_try_advisory_xact_lock_shared(hashtext(current_schema()), gate)"""
_REPEATED = (errors.SerializationFailure, errors.DeadlockDetected)


class _Refused(Exception):
    """A unit of a batch raised the error given: without savepoints, none of it is kept."""


class _Shut(Exception):
    """Repositories of a batch are shut, by the gates given."""


class Writer(GroupWriter):
    """
    ``GroupWriter`` over a PostgreSQL connection, which *connect* opens anew when it is lost.
    *begin* begins a transaction in the schema; *channel* is notified when jobs were written.
    *splits*: Whether units of different repositories have transactions of their own.

    Writes of all of a repository, and what would wait for one, go to a writer *aside*, which is of
    that repository until it is through: what is of others goes on.
    """

    _tx: PostgresTx
    waits = False
    """Whether gates are waited for."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        begin: str,
        *,
        channel: str,
        limit: int,
        splits: bool = False,
    ) -> None:
        super().__init__(limit=limit)
        self._connect = connect
        self._begin = begin
        self._splits = splits
        self._asides: list[_Aside] = []
        self._make_aside = partial(_Aside, self, connect, begin, channel=channel, limit=limit)
        self._behind: dict[str, _Aside] = {}
        """The repositories that have units aside: others of theirs go behind them."""
        self._counting = threading.Lock()
        self._has_savepoints = False
        self._notice = f'NOTIFY "{channel}"'
        self._wrote_jobs = False
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
        return process == self._process or any(one.is_own(process) for one in self._asides)

    # ── Notices of jobs, on the event loop ───────────────────────────────────────────

    def _deliver(self) -> None:
        if self._wrote_jobs and not self._is_notifying and not self.is_closed:
            self._is_notifying, self._wrote_jobs = True, False
            self._loop.call_later(_BETWEEN_NOTICES_S, self._notify)
        super()._deliver()

    def _notify(self) -> None:
        if self.is_closed or not self._is_notifying:
            return
        self._is_notifying = False
        self.post(outside, lambda tx: tx.run(self._notice), _log_unsent)

    async def aclose(self) -> None:
        """Notify what was not, then close."""
        self._notify()
        await super().aclose()
        for aside in self._asides:
            await aside.aclose()

    # ── In the writer's thread ───────────────────────────────────────────────────────

    def _write(self, batch: list[Unit]) -> None:
        # Everybody counts on in repositories (``reserve``) in this order.
        batch[:] = sorted(self._kept(batch), key=lambda unit: sorted(repos_of(unit.locks)))
        for part in self._parts(batch):
            while part:
                try:
                    self._write_at_once(part)
                    break
                except _Shut as found:
                    kept = self._kept(part, *found.args)
                    aside = {*part} - {*kept}
                    batch[:] = [unit for unit in batch if unit not in aside]
                    part = kept

    def _parts(self, batch: list[Unit]) -> Collection[list[Unit]]:
        """What has a transaction of its own each."""
        parts: dict[object, list[Unit]] = {}
        for unit in batch:
            place = repos_of(unit.locks) if self._splits else None
            parts.setdefault(place, []).append(unit)
        return parts.values()

    def _kept(self, units: list[Unit], shut: Collection[int] = ()) -> list[Unit]:
        """Those of *units* that wait for no repository; the others go aside."""
        kept: list[Unit] = []
        for unit in units:
            repos = repos_of(unit.locks)
            is_whole = any(kind == WHOLE for kind, _ in unit.locks)
            if is_whole or any(id in self._behind or _gate(id) in shut for id in repos):
                self._put_aside(unit, repos)
            else:
                kept.append(unit)
        return kept

    def _put_aside(self, unit: Unit, repos: Collection[str]) -> None:
        try:
            with translated(_WRITING):
                aside = self._aside_of(repos)
        except Exception as error:
            unit.result = error
            self._wake([unit])
            return
        with self._counting:
            aside.behind.update(repos)
            self._behind.update(dict.fromkeys(repos, aside))
        with suppress(RuntimeError):  # the loop has ended, and waits for nothing
            self._loop.call_soon_threadsafe(self._moved, aside)
        aside.take(unit)

    def _aside_of(self, repos: Collection[str]) -> _Aside:
        """Where the repositories wait already; else one where none does, or the fewest do."""
        behind = self._behind  # ``through`` puts another one there
        found = next(filter(None, map(behind.get, repos)), None)
        found = found or min(self._asides, key=lambda one: len(one.behind), default=None)
        if found is None or (found.behind.keys() - repos and len(self._asides) < _MOST_ASIDE):
            found = self._make_aside()
            found.start_for(self._loop)
            self._asides.append(found)
        return found

    def _moved(self, aside: _Aside) -> None:
        self.waiting -= 1
        aside.waiting += 1

    def through(self, aside: _Aside, units: Sequence[Unit]) -> None:
        """Units that were aside are written, or refused."""
        with self._counting:
            for unit in units:
                aside.behind.subtract(repos_of(unit.locks))
            aside.behind = +aside.behind
            self._behind = {
                id: one for id, one in self._behind.items() if one is not aside or id in one.behind
            }

    def _write_at_once(self, batch: list[Unit]) -> None:
        error: Exception | None = None
        for _ in range(_MOST_TRIES):
            try:
                self._reconnect()
            except StoreError as refusal:
                error = refusal
                break
            error = self._tried(batch)
            if error is None:
                return
            if not isinstance(error, StoreUnavailable) and not _is_repeated(error):
                break
            log.info("a batch of %d writes is repeated: %s", len(batch), error)
        self.refuse(batch, error)

    def _reconnect(self) -> None:
        """Connect anew if need be. *Raises* ``StoreError``."""
        with translated(_WRITING):
            if self._connection.closed:
                self._use(self._connect())

    def _tried(self, batch: list[Unit]) -> Exception | None:
        """What one try to write *batch* raised; ``None``: it is committed."""
        for self._has_savepoints in (False, True):
            try:
                with translated(_WRITING):
                    self._transact(batch)
            except _Refused as refused:
                self._abandon()
                if len(batch) == 1:
                    (batch[0].result,) = refused.args
                    break
            except _Shut:
                self._abandon()
                raise
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
        locks = locking([unit.locks for unit in batch], waits=self.waits)
        begun = self._connection.execute(f"{self._begin}; {locks}; {self._commits.next()}")
        if shut := _shut(begun):
            raise _Shut(shut)
        self._run_batch(batch)
        self._commits.commit(self._connection)

    def _run_in_savepoint(self, units: list[Unit]) -> bool:
        if self._has_savepoints:
            self._connection.execute("SAVEPOINT unit")
        try:
            with translated(_WRITING):
                self._run(units)
        except Exception as error:
            if _is_repeated(error) or self._connection.closed:
                raise
            if not self._has_savepoints:
                raise _Refused(error) from error
            self._connection.execute("ROLLBACK TO unit; RELEASE unit")
            self.refuse(units, error)
            return False
        if self._has_savepoints:
            self._connection.execute("RELEASE unit")
        return True

    def _abandon(self) -> None:
        try:
            self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self._connection.close()

    def _run_outside(self, units: list[Unit]) -> None:
        self._reconnect()
        with translated("tending the store"):
            self._run(units)

    def _close(self) -> None:
        self._connection.close()


class _Aside(Writer):
    """The writer aside of *main*: each repository after the other, gates included."""

    waits = True

    def __init__(self, main: Writer, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._main = main
        self.behind: Counter[str] = Counter()
        """How many units wait here, by repository."""

    def start_for(self, loop: asyncio.AbstractEventLoop) -> None:
        """``start`` in another thread than that of *loop*."""
        self._loop = loop
        self._thread.start()

    def take(self, unit: Unit) -> None:
        """Take over *unit* from the thread of *main*."""
        self._queue.put(unit)

    def _write(self, batch: list[Unit]) -> None:
        for _, part in groupby(batch, key=lambda unit: frozenset(unit.locks)):
            units = list(part)
            try:
                self._write_at_once(units)
            except Exception as error:
                self.refuse(units, error)
            self._main.through(self, units)


def _shut(cursor: psycopg.Cursor[tuple[Any, ...]]) -> set[int]:
    """The gates that one of the results of *cursor* names."""
    shut: set[int] = set()
    while True:
        if cursor.description and cursor.description[0].name == "shut":
            shut.update(gate for (gate,) in cursor)
        if not cursor.nextset():
            return shut


def _is_repeated(error: Exception) -> bool:
    """Whether another transaction was in the way, which the next try may not meet."""
    return isinstance(error.__cause__, _REPEATED)


def _log_unsent(result: object) -> None:
    if isinstance(result, Exception):
        log.info("other processes will find new jobs when they look next: %s", result)


def locking(named: Sequence[Locks], *, waits: bool = True) -> str:
    """
    The statements that lock what writers have named, in the order in which everybody does: first
    the gates of their repositories, which a writer of all of one shuts, then rows. *waits*: For
    gates; else the first statement gives those that are shut.
    """
    if not all(named):
        return _LOCK_ALL
    locks = {lock for some in named for lock in some}
    shut = {_gate(id) for kind, id in locks if kind == WHOLE}
    gates = {_gate(id) for some in named for id in repos_of(some)}
    names = {f"{kind}\0{id}" for kind, id in locks if kind != WHOLE}
    rows = {zlib.crc32(name.encode()) % LOCKS for name in names}
    lock = _LOCK.format(",".join(map(str, rows))) if rows else _LOCK_NONE
    if not gates:
        return lock
    given = ", ".join(f"({gate}, {gate in shut})" for gate in sorted(gates))
    return f"{(_GATES if waits else _TRY_GATES).format(given)}; {lock}"


def _gate(repo_id: str) -> int:
    return zlib.crc32(repo_id.encode()) - 2**31

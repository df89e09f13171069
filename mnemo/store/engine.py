"""Engines run the rules of the store, each over one transaction; ``GroupWriter`` is shared."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Never, Protocol, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from mnemo.errors import StoreError
from mnemo.protocols import Clock
from mnemo.runtime.tasks import shared_threads
from mnemo.store.tx import Tx

log = logging.getLogger("mnemo")


class _Closing(Protocol):
    def close(self) -> None: ...


T = TypeVar("T")
C = TypeVar("C", bound=_Closing)

Bulk: TypeAlias = Callable[[Tx, Sequence[Any]], Sequence[Any]]
"""Runs payloads in order; gives a result or an exception for each, or raises for all."""
Locks: TypeAlias = Sequence[tuple[str, str]]
"""
Kind and id of what a writer reads and then changes (a session, the graph of a repository).
An engine with one writer at a time needs none; any other takes them first, sorted, and keeps
out all others from a writer that names none.
"""


OWNERS: Locks = [("owner", "")]
"""
What a writer names that only changes who owns sessions: claims check that by themselves, and
``tend`` does not wait for idleness anew.
"""


def session_lock(repo_id: str, session_id: str) -> tuple[str, str]:
    """What a writer of a session names; another repository may have one of the same id."""
    # No id holds U+0000.
    return ("session", f"{repo_id}\0{session_id}")


def thread_lock(repo_id: str, thread_id: str) -> tuple[str, str]:
    """What a writer names that adds or erases a thread's messages, or makes steps of them."""
    return ("thread", f"{repo_id}\0{thread_id}")


WHOLE = "repository"
"""The kind of lock that keeps out all other writers of a repository, and none of another one."""


def repository_locks(repo_id: str) -> Locks:
    """What a writer names that may change anything of a repository; such a write may take long."""
    return [(WHOLE, repo_id)]


def repos_of(locks: Locks) -> frozenset[str]:
    """The ids of the repositories that *locks* are of."""
    return frozenset(id.partition("\0")[0] for kind, id in locks if kind != "owner")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One revision of the store, which the connection of *tx* holds; one read at a time."""

    tx: Tx
    translated: Callable[[str], Any]
    limiter: anyio.CapacityLimiter

    async def reading(self, work: Callable[[Tx], T]) -> T:
        """Run *work* on that revision. *Cancellation*: safe; met after the read."""
        return await anyio.to_thread.run_sync(self._run, work, limiter=self.limiter)

    def _run(self, work: Callable[[Tx], T]) -> T:
        with self.translated("reading the store"):
            return work(self.tx)


class Staging(Protocol):
    """Tables beside those of the store, in the schema ``staging``, for one import."""

    async def staging(self, work: Callable[[Tx], T]) -> T:
        """Run *work* on staged tables; writes stay, raise or not. *Cancellation*: completes."""

    async def writing(self, work: Callable[[Tx], T], *, locks: Locks = ()) -> T:
        """Run *work* as ``Engine.writing`` does, with the staged tables in sight."""


PUT_OFF: list[tuple[Callable[[Tx], Sequence[str]], Callable[[Tx, str], None]]] = []
"""
What rooms above this one do not erase at once, but before a scrub: what gives the ids of the
repositories that have some, and what erases that of one of them.
"""


async def pay_off(writing: Callable[..., Awaitable[Any]]) -> None:
    """Erase what was put off, by ``Engine.writing``: each repository by itself."""
    for owing, pay in PUT_OFF:
        while ids := await writing(owing, locks=OWNERS):
            for id in ids:
                await writing(lambda tx, pay=pay, id=id: pay(tx, id), locks=repository_locks(id))


_SWEEPS, _BETWEEN_SWEEPS_S = 5, 0.05
"""Tries to remove files in which other processes write, and the pauses between them."""


class Engine(Protocol):
    """
    Runs *work*, which is plain code and may run twice: it changes nothing but its ``Tx``.

    Its owner opens it, looks after it and closes it.
    """

    synchronous: str
    """How durable a write is when it returns, as in ``StoreConfig``; ``none`` in memory."""
    is_told: bool = False
    """Whether ``tend`` hears of jobs that other processes write."""
    place: str
    """Where it keeps things, for messages; holds no password."""

    @property
    def is_read_only(self) -> bool:
        """Whether it was opened, but may not be written."""
        return False

    def _writer(self) -> GroupWriter:
        """The writer. *Raises* ``StoreError``: there is none, now or at all."""

    async def reading(self, work: Callable[[Tx], T]) -> T:
        """
        Run *work* off the event loop, on one revision of the store.

        *Raises* ``StoreError``: one of its kinds. *Cancellation*: safe; met after the read.
        """

    async def writing(self, work: Callable[[Tx], T], *, locks: Locks = ()) -> T:
        """
        Run *work* in one transaction and give its result once that is durable.

        *Raises* ``Exception``: what *work* raised; nothing was written; ``StoreError``: likewise.
        *Cancellation*: completes; the result comes back even so, the cancellation is met at the
        caller's next await.
        """
        return await self._writer().run(work, locks)

    async def merging(self, work: Bulk, payload: Any, *, locks: Locks = ()) -> Any:
        """
        Do as ``writing``, with the payloads of all calls of the same *work* that wait, in order.

        If *work* raises, it runs once for each payload: one that fails fails alone.
        """
        return await self._writer().merge(work, payload, locks)

    def post(
        self, work: Bulk, payload: Any, done: Callable[[Any], None], *, locks: Locks = ()
    ) -> None:
        """
        Hand over a write in this turn of the loop; it shares a commit with others that wait.

        *done* gets its result or exception, on the loop, once it is durable or refused. It always
        enters: whoever posts bounds himself.

        *Raises* ``StoreError``: the store is closed, or opened for reading.
        """
        self._writer().post(work, payload, done, locks)

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """
        Hold one revision, to be read again and again; writers go on. *Raises* ``StoreError``: one
        of its kinds. *Cancellation*: safe.
        """

    def staging(self, tables: dict[str, str]) -> AbstractAsyncContextManager[Staging]:
        """
        Make room for one import; the next one waits until the context ends. *tables* are
        definitions of columns; nothing of them outlives the context.
        """

    async def open(self, enter: Callable[[Tx], None]) -> None:
        """
        Open, creating or migrating, and run *enter* as the first write.

        What cannot be written is opened for reading, without *enter*.

        *Raises* ``StoreError``: one of its kinds; nothing was changed. *Cancellation*: safe.
        """

    async def aclose(self) -> None:
        """Let what was handed over finish, then close. Idempotent. *Cancellation*: completes."""

    async def backup(self, path: Path) -> None:
        """Write a copy of one revision to a new file, while others write; see ``Mnemo.backup``."""

    async def scrub(self, *, at_once: bool = False) -> bool:
        """
        Rid the storage of what was erased; give whether nothing of it is left.

        *at_once*: Rewrite a file above 64 MB, too; otherwise that is left to ``tend``.
        *Raises* ``StoreReadOnly``: it was opened for reading. *Cancellation*: safe.
        """

    async def swept(
        self,
        sweep: Callable[[Collection[str]], bool],
        listed: Callable[[], Awaitable[Collection[str]]],
    ) -> bool:
        """Have *sweep* remove copies of segments that are not *listed*; whether none is left."""
        for tried in range(_SWEEPS):
            await anyio.sleep(_BETWEEN_SWEEPS_S * tried)
            if await anyio.to_thread.run_sync(sweep, await listed()):
                return True
        return False

    async def tend(self, woken: Callable[[], None]) -> Never:
        """
        Do what ``scrub`` left, whenever the store is idle. *Cancellation*: safe.

        *woken* is called, on the loop, when another process may have written jobs; where
        none tells, they are found by looking for them.
        """

    async def unswept(self) -> tuple[str, ...]:
        """
        Have all machines that keep copies of it drop what was erased; those that may hold it still.

        Waits some seconds for them. *Raises* ``StoreError``. *Cancellation*: safe.
        """


@contextmanager
def closed_on_error(connection: C) -> Iterator[C]:
    """Close a new *connection* where the block, which prepares it, fails."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


@asynccontextmanager
async def connected(connect: Callable[[], Awaitable[C]]) -> AsyncIterator[C]:
    """A connection of its own until the context ends. *Cancellation*: safe."""
    with anyio.CancelScope(shield=True):
        connection = await connect()
    try:
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(connection.close)


@dataclass(eq=False)
class OfRepository:
    """What is kept of one repository; *_lease_time* is what leases are compared with."""

    _repo_id: str
    _engine: Engine
    _clock: Clock
    _lease_time: Callable[[Tx], datetime]


async def compute(work: Callable[[], T]) -> T:
    """
    Run *work*, which needs no transaction, in a worker thread. *Cancellation*: safe. One at a time:
    it is pure Python, and a second thread would only make the event loop wait.
    """
    return await shared_threads("mnemo.store").run(work)


# ── The writer ───────────────────────────────────────────────────────────────────────

# Bounds how long the first caller of a batch waits for the last one's work.
_MOST_PER_BATCH = 512
# Callers go on in the turn in which they are woken; in between, the loop does other things.
_MOST_PER_TURN = 16
_LONG_COMMIT_S = 0.001
"""A commit that takes longer is worth waiting for more units (S)."""


@dataclass(slots=True, eq=False)
class Unit:
    """*run* is shared by units that may run as one; consecutive ones with the same do."""

    run: Bulk
    payload: Any
    done: Callable[[Any], None]
    locks: Locks = ()
    result: Any = None


class GroupWriter(ABC):
    """
    One thread, one writing connection (from ``start`` to ``aclose``), one commit for all that wait.

    The thread takes all units of work that wait, runs each in a savepoint of one transaction,
    commits once, and only then wakes the callers, a few in each turn of the loop. A unit that fails
    is rolled back alone; if the commit fails, every unit of the batch has failed.

    *limit*: Units that may wait before awaited callers are held back. Plain ``post`` always enters:
    whoever uses it bounds itself.
    """

    _tx: Tx
    """That of the connection."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._queue: SimpleQueue[Unit | None] = SimpleQueue()
        self._done: deque[Unit] = deque()
        self._delivered = threading.Event()
        self._commit_s = 0.0
        self._thread = threading.Thread(target=self._serve, name="mnemo-writer", daemon=True)
        self.waiting: int = 0
        """Units handed over whose callers are not told yet."""
        self.posted: int = 0
        """Units handed over so far, but for those of ``OWNERS``."""
        self._room: list[anyio.Event] = []
        self.is_closed: bool = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    # ── On the event loop ────────────────────────────────────────────────────────────

    def post(self, run: Bulk, payload: Any, done: Callable[[Any], None], locks: Locks = ()) -> None:
        """See ``Engine.post``."""
        if self.is_closed:
            raise StoreError("the store is closed: open the service again")
        self.waiting += 1
        self.posted += locks is not OWNERS
        self._queue.put(Unit(run, payload, done, locks))

    async def run(self, work: Callable[[Tx], T], locks: Locks = ()) -> T:
        """Run *work* in a savepoint of its own; see ``Engine.writing``."""
        result: T = await self.merge(_run_alone, work, locks)
        return result

    async def run_outside(self, work: Callable[[Tx], T]) -> T:
        """Run *work* outside of any transaction, as a checkpoint must be; else as ``run``."""
        result: T = await self.merge(outside, work)
        return result

    async def merge(self, run: Bulk, payload: Any, locks: Locks = ()) -> Any:
        """``post`` once there is room, and give the result. *Cancellation*: completes."""
        while self.waiting >= self._limit and not self.is_closed:
            event = anyio.Event()
            self._room.append(event)
            await event.wait()
        outcome: asyncio.Future[Any] = self._loop.create_future()
        self.post(run, payload, partial(_settle, outcome), locks)
        with anyio.CancelScope(shield=True):
            result = await outcome
        if isinstance(result, BaseException):
            raise result
        return result

    async def aclose(self) -> None:
        """Run what waits, checkpoint, close the connection, end the thread. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self._queue.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)
            while self.waiting:
                await anyio.lowlevel.checkpoint()

    def _deliver(self) -> None:
        units = [self._done.popleft() for _ in range(min(len(self._done), _MOST_PER_TURN))]
        self.waiting -= len(units)
        for unit in units:
            try:
                unit.done(unit.result)
            except Exception:
                log.exception("a caller of the writer failed on its own result")
        # Callers go on in the next turn, before what is scheduled behind them.
        if self._done:
            self._loop.call_soon(self._deliver)
        elif not self._delivered.is_set():
            self._loop.call_soon(self._delivered.set)
        room, self._room = self._room, []
        for event in room:
            event.set()

    # ── In the writer's thread ───────────────────────────────────────────────────────

    def _serve(self) -> None:
        open = True
        while open:
            batch, open = self._take()
            for is_outside, part in groupby(batch, key=lambda unit: unit.run is outside):
                units = list(part)
                for some in [[unit] for unit in units] if is_outside else [units]:
                    try:
                        self._run_outside(some) if is_outside else self._write(some)
                    except Exception as error:  # whoever waits for the thread is told
                        self.refuse(some, error)
                self._wake(units)
            # Let the callers of this batch hand over what they do next, if others wait already:
            # else the two groups commit in turns, and half of all callers share a commit.
            if self._commit_s > _LONG_COMMIT_S and not self._queue.empty():
                self._delivered.wait(self._commit_s / 2)
        self._close()

    def _take(self) -> tuple[list[Unit], bool]:
        unit = self._queue.get()
        batch: list[Unit] = []
        while unit is not None:
            batch.append(unit)
            if len(batch) == _MOST_PER_BATCH:
                return batch, True
            try:
                unit = self._queue.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    @abstractmethod
    def _write(self, batch: list[Unit]) -> None:
        """
        Run *batch* in one transaction; each unit has its result or exception then, or all have what
        it raises. A unit whose caller somebody else will wake leaves *batch*.
        """

    @abstractmethod
    def _run_in_savepoint(self, units: list[Unit]) -> bool:
        """Run *units*, which share ``run``; without a trace of them if it raises, then False."""

    @abstractmethod
    def _run_outside(self, units: list[Unit]) -> None:
        """Run *units* outside of any transaction."""

    @abstractmethod
    def _close(self) -> None:
        """Close the connection."""

    @staticmethod
    def refuse(units: Sequence[Unit], error: Exception | None) -> None:
        """Have *units* failed with *error*."""
        for unit in units:
            unit.result = error

    def _run(self, units: list[Unit]) -> None:
        """Run *units*, which share ``run``; each has its result then, unless it raises."""
        results = units[0].run(self._tx, [unit.payload for unit in units])
        for unit, result in zip(units, results, strict=True):
            unit.result = result

    def _run_batch(self, batch: list[Unit]) -> None:
        """Run consecutive units of one kind together; where that fails, each alone."""
        for run, part in groupby(batch, key=lambda unit: unit.run):
            units = list(part)
            one_by_one = run is _run_alone or len(units) == 1
            if one_by_one or not self._run_in_savepoint(units):
                for unit in units:
                    self._run_in_savepoint([unit])

    def _wake(self, batch: list[Unit]) -> None:
        if self._commit_s > _LONG_COMMIT_S:
            self._delivered.clear()
        self._done.extend(batch)
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            log.warning("the event loop ended before %d durable results", len(batch))


def _settle(outcome: asyncio.Future[Any], result: Any) -> None:
    """Hand *result* to the caller, unless asyncio has cancelled its wait."""
    if not outcome.done():
        outcome.set_result(result)


def outside(tx: Tx, works: Sequence[Any]) -> Sequence[Any]:
    """The ``run`` of a unit that runs outside of any transaction."""
    return [work(tx) for work in works]


def _run_alone(tx: Tx, works: Sequence[Any]) -> Sequence[Any]:
    return [work(tx) for work in works]

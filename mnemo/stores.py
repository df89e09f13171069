"""The store: the facades of all rooms over one engine, and the register of its owners."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any, Generic, TypeVar

import anyio

from mnemo.config import IndexConfig, StoreConfig
from mnemo.erasure.erase import scrubbed
from mnemo.erasure.repositories import delete_repository, repository_records, what_is_in
from mnemo.errors import StoreError
from mnemo.graph import graph_checks
from mnemo.graph.graph import StoredGraph
from mnemo.index.erased import leave_put_off, leave_segments, owing_segments
from mnemo.index.files import SegmentFolder
from mnemo.index.stored import StoredSegments
from mnemo.items import item_rows
from mnemo.items.item_rows import EXPIRING, StoredItems
from mnemo.jobs import job_rows
from mnemo.jobs.caches import CacheLease, unswept
from mnemo.jobs.calls import LongCalls, leave_calls
from mnemo.jobs.job_rows import PENDING, Owing, backlog, owing
from mnemo.log import log_checks, staged
from mnemo.log.feed import LEAVING, StoredFeed, owes_vectors
from mnemo.log.records import StoredRecords
from mnemo.log.sessions import StoredSessions, append_steps
from mnemo.log.text_check import check_texts
from mnemo.log.transcript import TENDED, StoredTranscript
from mnemo.log.vectors import stamp
from mnemo.maintenance.reembed import StoredOverhaul
from mnemo.notes import note_rows
from mnemo.notes.note_rows import StoredNotes
from mnemo.protocols import Clock, StoreReport
from mnemo.recall.recall_log import StoredRecalls, leave_recalls
from mnemo.repository import checkpoints as checkpoint_rows
from mnemo.repository.checkpoints import StoredCheckpoints
from mnemo.runtime.clock import SystemClock
from mnemo.runtime.extras import refuse
from mnemo.runtime.tasks import from_thread
from mnemo.runtime.text import clean
from mnemo.runtime.validation import MOST_NAMED, known_ids, page_of_ids
from mnemo.store.archive import Fit, StoredArchive
from mnemo.store.check import check_store
from mnemo.store.engine import (
    OWNERS,
    PUT_OFF,
    Engine,
    OfRepository,
    repository_locks,
)
from mnemo.store.rows import digests, repo_row
from mnemo.store.schema import VERSION
from mnemo.store.tx import Tx
from mnemo.values.erasure import ErasureReport
from mnemo.values.jobs import JobKind, JobLevels
from mnemo.values.journal import Opening, Owner, RepositoryRecord

P = TypeVar("P", bound=OfRepository)
_RULES = (
    *(*graph_checks.RULES, *item_rows.RULES, *note_rows.RULES),
    *(*log_checks.RULES, *checkpoint_rows.RULES),
)
KINDS = {
    kind.name: kind
    for kind in (
        *(*staged.JOURNAL, *graph_checks.KINDS, *staged.TALK),
        *(*note_rows.KINDS, *checkpoint_rows.KINDS, item_rows.KIND),
    )
}
"""The kinds of record of an archive by their names, in its order."""
_FIT = Fit(
    kinds=KINDS,
    rules=(*staged.RULES, *graph_checks.STAGED, *note_rows.STAGED, *checkpoint_rows.STAGED),
    indexes=(*staged.INDEXES, graph_checks.INDEX, *note_rows.INDEXES, checkpoint_rows.INDEX),
    settle=staged.SETTLE,
    refuse=staged.refuse_staged,
    further=staged.FURTHER,
    moves=(graph_checks.MOVE, *staged.MOVES, note_rows.MOVE, item_rows.MOVE),
    put_texts=staged.index_staged,
)
LEAVING.extend((leave_segments, leave_recalls, leave_calls))
PUT_OFF.append((owing_segments, leave_put_off))


class Part(Generic[P]):
    """What a store gives of the repository of an id, as *kind* has it."""

    def __init__(self, kind: Callable[..., P]) -> None:
        self._kind = kind

    def __get__(self, store: EngineStore, owner: type) -> Callable[[str], P]:
        return lambda repo_id: self._kind(repo_id, *store._given)


class EngineStore:
    """
    What is kept, over an *engine* that is not open yet, and closed with the store.

    Args:
        lease_s: Seconds that this service's ownership of sessions outlives its last
            ``renew``, as seen by other machines.
        lease_time: Default: that of *clock*. Where machines share a store, its own.
    """

    graph: Part[StoredGraph] = Part(StoredGraph)
    feed: Part[StoredFeed] = Part(StoredFeed)
    records: Part[StoredRecords] = Part(StoredRecords)
    overhaul: Part[StoredOverhaul] = Part(StoredOverhaul)
    archive: Part[StoredArchive] = Part(partial(StoredArchive, _FIT))
    notes: Part[StoredNotes] = Part(StoredNotes)
    items: Part[StoredItems] = Part(StoredItems)
    transcript: Part[StoredTranscript] = Part(StoredTranscript)
    checkpoints: Part[StoredCheckpoints] = Part(StoredCheckpoints)
    recalls: Part[StoredRecalls] = Part(StoredRecalls)

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock,
        lease_s: float,
        lease_time: job_rows.LeaseTime | None = None,
    ) -> None:
        self.engine = engine
        self._lease_time: job_rows.LeaseTime = lease_time or (lambda tx: clock.now())
        self._clock = clock
        self._given = engine, clock, self._lease_time
        self._lease_s = lease_s
        self._opened: job_rows.OpenService | None = None
        self.folder: SegmentFolder | None = None
        """Where large segments are mapped from."""
        self.cache: CacheLease | None = None
        """Of the folder with copies of what is stored, where machines share the store."""
        # One object: the writer runs consecutive units of the same function together.
        self._append_steps = partial(append_steps, clock=clock)

    def segments(self, repo_id: str) -> StoredSegments:
        """What is kept of one repository's index."""
        stored = StoredSegments(repo_id, *self._given)
        if self.folder is not None:
            stored.mapped, stored.discard = self.folder.mapped, self.folder.discard
        return stored

    def sessions(self, repo_id: str) -> StoredSessions:
        """The journal of one repository's sessions."""
        return StoredSessions(repo_id, self.engine, self._append_steps, self._lease_time)

    async def open(self) -> Owner:
        """
        Open (creating or migrating) the store and register a new owner.

        What may not be written, or lies on a full disk, is opened for reading: nobody is
        registered, and writing calls raise ``StoreReadOnly``.

        *Raises* ``StoreError``: nothing was changed. *Cancellation*: safe.
        """
        owner = job_rows.new_owner()

        def enter(tx: Tx) -> None:
            job_rows.register(tx, owner, now=self._lease_time(tx), lease_s=self._lease_s)
            job_rows.forget_the_dead(tx, owner)

        await self.engine.open(enter)
        self._opened = job_rows.OpenService(owner, self.engine.place, self._clock.now())
        return owner

    async def aclose(self) -> None:
        """Let queued units finish, checkpoint, close. Idempotent. *Cancellation*: completes."""
        await self.engine.aclose()

    async def has_repository(self, repo_id: str) -> bool:
        """Whether a repository is stored, at the cost of its row. *Cancellation*: safe."""
        if not isinstance(repo_id, str) or clean(repo_id) != repo_id:
            return False  # none can have such an id
        return await self.engine.reading(lambda tx: bool(repo_row(tx, repo_id)[0]))

    async def repositories(
        self,
        limit: object = None,
        after: object = None,
        ids: Iterable[str] | None = None,
        prefixes: Iterable[str] = (),
    ) -> list[RepositoryRecord]:
        """A page of stored repositories, see ``Mnemo.repos``. *Cancellation*: safe."""
        asked: dict[str, Any] = page_of_ids(limit, after) | {
            "ids": None if ids is None else known_ids(ids, MOST_NAMED),
            "prefixes": known_ids(prefixes, MOST_NAMED),
        }
        return await self.engine.reading(lambda tx: repository_records(tx, **asked))

    async def backlog(self) -> dict[str, JobLevels]:
        """What repositories owe, by id. *Cancellation*: safe."""
        return await self.engine.reading(backlog)

    async def opening(self, repo_id: str) -> Opening:
        """What a repository finds that opens, of one moment. *Cancellation*: safe."""

        def look(tx: Tx) -> Opening:
            row = repo_row(tx, repo_id)
            found = (tx.run(query, row[:1]).fetchone() for query in (PENDING, TENDED, EXPIRING))
            return Opening(
                stamp(row), owes_vectors(tx, row[0]), *(one is not None for one in found)
            )

        return await self.engine.reading(look)

    async def owing(self, me: Owner, kinds: Collection[JobKind] | None) -> Owing:
        """Which repositories have a job that *me* could claim now. *Cancellation*: safe."""
        cache = self.cache

        def look(tx: Tx) -> tuple[Owing, int | None]:
            found = owing(tx, me, kinds=kinds, now=self._lease_time(tx))
            return found, cache.asked(tx) if cache else None

        found, asked = await self.engine.reading(look)
        if cache and asked is not None:
            await cache.confirm(asked)
        return found

    async def what_is_in(self, repo_id: str) -> ErasureReport:
        """What ``delete_repository`` would delete. *Raises* ``NotFound``. *Cancellation*: safe."""
        return await self.engine.reading(partial(what_is_in, repo_id=repo_id))

    async def delete_repository(self, repo_id: str) -> ErasureReport:
        """
        Delete a repository with everything in it, and the bytes as after any erasure.

        *Raises* ``NotFound``. *Cancellation*: the transaction completes.
        """
        report = await self.engine.writing(
            partial(delete_repository, repo_id=repo_id), locks=repository_locks(repo_id)
        )
        return await scrubbed(self.engine, report)

    def long_calls(self, owner: Owner, spawn: Callable[..., Any]) -> LongCalls:
        """The calls that go on after they were answered; arguments as of ``LongCalls``."""
        return LongCalls(self.engine, owner, spawn, self._clock, self._lease_time)

    async def renew(self, owner: Owner, lease_s: float) -> None:
        """Prolong the lease of *owner* on all its sessions. *Cancellation*: completes."""
        if not self.engine.is_read_only:
            time = self._lease_time
            await self.engine.writing(
                lambda tx: job_rows.register(tx, owner, now=time(tx), lease_s=lease_s), locks=OWNERS
            )
        if self.cache:
            await self.cache.renew()

    async def release(self, owner: Owner) -> None:
        """Give up all sessions of *owner*, and the ownership itself. *Cancellation*: completes."""
        await self.engine.writing(lambda tx: job_rows.unregister(tx, owner.token), locks=OWNERS)

    async def check(self, *, repair: bool = False) -> StoreReport:
        """Check all that is kept; see ``Mnemo.check``. *Cancellation*: the repair completes."""
        repaired: list[str] = []
        if repair:
            time = self._lease_time
            repaired = await self.engine.writing(
                lambda tx: [
                    *log_checks.advance_threads(tx, time(tx)),
                    *graph_checks.drop_dangling(tx),
                ]
            )
        problems, counts = await self.engine.reading(
            partial(check_store, rules=_RULES, more=(log_checks.unknown_calls, check_texts))
        )
        if not self.engine.is_read_only:
            problems += await self.engine.writing(
                lambda tx: tx.dialect.text_damage(tx), locks=OWNERS
            )
        return StoreReport(
            problems=tuple(problems),
            counts=counts,
            schema_version=VERSION,
            synchronous=self.engine.synchronous,
            repaired=tuple(repaired),
        )


class SqliteStore(EngineStore):
    """A store in one SQLite database; *path* is as of ``SqliteEngine``."""

    def __init__(
        self,
        path: str | Path | None,
        *,
        config: StoreConfig,
        clock: Clock,
        lease_s: float,
        index: IndexConfig | None = None,
    ) -> None:
        from mnemo.store.sqlite.engine import SqliteEngine

        found = None if path is None else Path(path)
        engine = SqliteEngine(found, config=config, clock=clock)
        super().__init__(engine, clock=clock, lease_s=lease_s)
        if found is not None:
            self.folder = folder = SegmentFolder.of(found, index or IndexConfig())
            engine.sweep = folder.sweep

    async def open(self) -> Owner:
        """As of every store; files that nothing lists were left by a process that died."""
        owner = await super().open()
        if self.folder is not None and self.folder.path.is_dir():
            await self.engine.unswept()
        return owner


class PostgresStore(EngineStore):
    """
    A store in a schema of a PostgreSQL database; *url* is as of ``PostgresEngine``.

    *Raises* ``ImportError``: the extra ``[postgres]`` is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        config: StoreConfig,
        clock: Clock,
        lease_s: float,
        index: IndexConfig | None = None,
    ) -> None:
        try:
            from mnemo.store.postgres.engine import PostgresEngine, server_time
        except ImportError as error:
            refuse("PostgreSQL", "postgres", error)
        engine = PostgresEngine(url, config=config)
        # A clock that a test moves goes before that of the server.
        lease_time = server_time if isinstance(clock, SystemClock) else None
        super().__init__(engine, clock=clock, lease_s=lease_s, lease_time=lease_time)
        self.folder = folder = SegmentFolder.of(engine.name, index or IndexConfig())
        self.cache = CacheLease(
            engine,
            clock,
            identity=folder.identity,
            sweep=folder.sweep,
            listed=digests,
            machine=gethostname(),
            lease_s=lease_s,
        )
        folder.may_serve = partial(from_thread, self.cache.ready)
        engine.sweep = partial(unswept, engine)


@asynccontextmanager
async def opened_store(store: EngineStore) -> AsyncIterator[EngineStore]:
    """Open *store* beside that of a service, and close it at the end."""
    owner = await store.open()
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(StoreError):  # an owner that has ended gives way
                await store.release(owner)
            await store.aclose()

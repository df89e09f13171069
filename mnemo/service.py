"""
The service: opens repositories in one store, and closes everything in order.

The composition root: the only place that knows which store, index and models there are.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import anyio
import anyio.to_thread

from mnemo.config import Config, TelemetryConfig
from mnemo.errors import (
    ConfigError,
    MnemoError,
    NotFound,
    RepositoryAlreadyOpen,
    StoreError,
    UsageError,
)
from mnemo.events import EmbedderUnfit, Event, EventsDropped
from mnemo.jobs.slots import JobSlots
from mnemo.models import named
from mnemo.protocols import ChatModel, Clock, Embedder, EmbeddingSpace, StoreReport
from mnemo.runtime.budget import MemoryBudget
from mnemo.runtime.bus import EventBus, Subscription
from mnemo.runtime.clock import SystemClock
from mnemo.runtime.spans import NO_SPANS, Spans, find_spans
from mnemo.runtime.tasks import Home, Places, TaskRoot, completed, detached
from mnemo.runtime.text import clean, is_blank
from mnemo.runtime.user_code import close_all, reported
from mnemo.runtime.validation import checked_path, checked_repo_id, whole_number
from mnemo.values.archive import ArchiveHead
from mnemo.values.erasure import ErasureReport
from mnemo.values.jobs import JobKind, JobLevels, WorkerStatistics
from mnemo.values.journal import Owner, RepositoryRecord

if TYPE_CHECKING:  # loaded in a thread, for the first repository
    from mnemo.jobs.workers import Poller
    from mnemo.maintenance.copying import RepositoryCopy
    from mnemo.maintenance.reembed import ReembeddingProgress, ReembeddingReport
    from mnemo.repository.repository import Repository
    from mnemo.session.session import Session
    from mnemo.stores import EngineStore

log = logging.getLogger("mnemo")
_CLOSED = "the service is closed; make a new Mnemo"
_PLAIN_WITH = "write `async with Mnemo(…)`, or in blocking code `with mnemo.sync.Mnemo(…)`"
_LAZY = "index.follower repository.repository"


class Mnemo:
    """
    A memory service over one store.

    Nothing touches disk or network here; ``async with`` (or ``open``) does.

    Args:
        store: A path, ``"memory:"`` (nothing is kept), ``"sqlite:///path"``, or a store.
        config: Overrides the defaults, field by field.
        chat_model: Asked by every stage that can; ``None``: the embedded stages. If it has
            an ``aclose``, it is closed with the service, and so are those given to
            ``open_repo`` and the embedders; a model given to one session is its caller's.
        embedder: ``"minilm"``, ``"multilingual"`` or ``"static"`` (the last two are extras), or
            another one. Default: that of a repository's stored vectors, if it has a name
            here and is installed; else ``"minilm"``. None of them downloads anything.
        clock: Default: the machine's.
        workers: Jobs that this service runs at once, over all its repositories; 0: none, they
            are left to other processes, such as ``mnemo worker``. ``None``: up to
            ``config.extraction.max_parallel`` in each repository.

    Raises:
        ConfigError: *store* is no place that this version can keep things in, a model or clock is
            something else, or there is no embedder of that name.
        ModelUnavailable: The embedder that is named is not installed; the message says how.
        ValueError: *workers* is no whole number from 0.
    """

    def __init__(
        self,
        store: str | Path | EngineStore = "mnemo.db",
        *,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | str | None = None,
        clock: Clock | None = None,
        workers: int | None = None,
    ) -> None:
        self._slots = JobSlots(None if workers is None else whole_number("workers", workers, 0))
        self._config = Config().overlaid(config)
        self._clock: Clock = clock or SystemClock()
        self._make_store = store_maker(store, self._config, self._clock)
        self._embedder = named.checked_models(chat_model, embedder, clock)
        self._chat_model = chat_model
        self._budget = MemoryBudget(1_000_000 * self._config.index.memory_mb)
        self._by_default = named.DefaultEmbedders()
        self._adopted: dict[int, Any] = {}
        self._adopt(chat_model, self._embedder)
        self._spans: Spans = NO_SPANS
        self._store: EngineStore | None = None
        self._owner: Owner | None = None
        self._poller: Poller | None = None
        self._home: Home | None = None
        self._root = TaskRoot()
        self._bus: EventBus[Event] = EventBus(self._root.spawn, EventsDropped.after)
        self._repos: dict[str, Repository] = {}
        self._locks: dict[tuple[str, str], Places] = {}
        self._opening: dict[str, anyio.Event] = {}
        self._closing: set[Repository] = set()
        self._closed = self._has_imported = False
        self._shutting_down: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        if self._home is None or self._closed:
            return f"<Mnemo {'closed' if self._closed else 'not open'}>"
        return f"<Mnemo open, {len(self._repos)} repositories>"

    # ── In and out ───────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """
        Open the store and start the service's tasks.

        Raises:
            StoreError: One of its kinds; the file was not touched.
            UsageError: It was opened or closed before. *Cancellation*: safe.
        """
        if self._home is not None or self._closed:
            raise UsageError("this service was opened or closed before; make a new Mnemo")
        self._home = Home("the service")
        store = self._make_store()
        from mnemo.jobs.workers import Poller

        try:
            self._spans = await _found_spans(self._config.telemetry)
            self._owner = await store.open()
        except BaseException:
            self._home = None
            with anyio.CancelScope(shield=True):
                await store.aclose()
            raise
        self._store = store
        self._root.open()
        self._long_calls = store.long_calls(self._owner, self._root.spawn)
        self._root.spawn(self._renew_lease, store, self._owner)
        self._root.spawn(store.engine.tend, self._slots.notice)
        owing = partial(store.owing, self._owner)
        self._poller = Poller(
            clock=self._clock, slots=self._slots, owing=owing, is_told=lambda: store.engine.is_told
        )
        if store.cache is not None:
            store.cache.begun = partial(self._slots.pace, self._config.jobs.poll_s)
        self._root.spawn(self._poller.run)

    async def aclose(self) -> None:
        """
        Close everything in order; idempotent, may be called concurrently.

        New work is refused at once; running extraction and commits get
        ``config.shutdown_grace_s`` seconds, then they are stopped with nothing lost:
        what was unfinished is found again at the next start. Called from inside an
        observer or a callback it does not wait, for that would be for itself.

        Raises:
            UsageError: Another event loop or process opened it; nothing was closed.
                *Cancellation*: completes; only the wait ends.
        """
        if self._home is not None:
            self._home.check()
        self._closed = True
        if self._store is None:
            return
        if self._shutting_down is None:
            self._shutting_down = detached(partial(self._shut_down, self._store))
        if not self._root.hosts_caller:
            await completed(self._shutting_down)

    async def _shut_down(self, store: EngineStore) -> None:
        try:
            grace_s = self._config.shutdown_grace_s
            async with anyio.create_task_group() as group:
                for repo in (*self._repos.values(), *self._closing):
                    group.start_soon(repo._aclose, grace_s, _CLOSED)
            await self._bus.aclose(grace_s)
            if self._owner is not None:
                await store.release(self._owner)
        except StoreError as error:
            # Nothing is lost: an owner that has ended, or whose lease has, gives way.
            log.info("sessions could not be released: %s", error)
        finally:
            self._repos.clear()
            await self._root.aclose()
            await store.aclose()
            await close_all(self._adopted.values())

    def __enter__(self) -> NoReturn:
        raise UsageError(_PLAIN_WITH)

    __exit__ = __enter__  # ``with`` looks for both first

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        # A forked process that leaves the block has nothing to close; its parent has.
        if self._home is None or not self._home.is_forked:
            await self.aclose()

    def __del__(self) -> None:
        if getattr(self, "_store", None) is None or self._closed:
            return
        if self._home is not None and not self._home.is_forked:
            said = "a Mnemo service was never closed: use `async with`, or await its aclose()"
            warnings.warn(said, ResourceWarning, stacklevel=2, source=self)

    def _adopt(self, *models: object) -> None:
        """Remember *models* that can be closed, to close them with the service."""
        self._adopted |= {id(model): model for model in models if hasattr(model, "aclose")}

    async def _renew_lease(self, store: EngineStore, owner: Owner) -> None:
        lease_s = self._config.session.lease_s
        while True:
            await self._clock.sleep(lease_s / 3)
            try:
                await store.renew(owner, lease_s)
            except MnemoError:
                log.exception("the lease could not be renewed; trying again")

    def _usable(self) -> tuple[EngineStore, Owner]:
        if self._closed:
            raise UsageError(_CLOSED)
        if self._store is None or self._owner is None or self._home is None:
            raise UsageError("the service is not open; use `async with Mnemo(…) as memory:`")
        self._home.check()
        return self._store, self._owner

    # ── Repositories ─────────────────────────────────────────────────────────────────

    async def open_repo(
        self,
        repo_id: str = "default",
        *,
        exist_ok: bool = False,
        config: Config | None = None,
        chat_model: ChatModel | None = None,
        embedder: Embedder | str | None = None,
    ) -> Repository:
        """
        Open one isolated memory, making it if it is new.

        Args:
            repo_id: Any text of 1 to 200 characters that is not blank, taken literally.
            exist_ok: Give the open one if there is one, unless another config, chat model or
                embedding space is asked for than it has.
            config: Overrides the service's, field by field.
            embedder: As of ``Mnemo``; default: the service's.

        Raises:
            ValueError: *repo_id* is blank, too long or cannot be stored.
            ConfigError: A model is something else, or there is no embedder of that name.
            ModelUnavailable: The embedder that is named is not installed; or the repository is
                new, none is named, and the default one has no wheels for this machine. The
                message says what to install.
            RepositoryAlreadyOpen: Use ``repo(repo_id)``, or *exist_ok*.
            EmbeddingSpaceMismatch: It was made with another embedder; nothing was written.
                *Cancellation*: safe.
        """
        store, owner = self._usable()
        checked_repo_id(repo_id)
        embedder = named.checked_models(chat_model, embedder)
        effective = self._config.overlaid(config)
        while exist_ok and repo_id in self._opening:
            await self._opening[repo_id].wait()
            self._usable()
        if exist_ok and repo_id in self._repos:
            repo = self._repos[repo_id]
            wanted = effective if config else repo.config
            other = repo._parts.difference(wanted, chat_model, embedder)
            if other is None:
                return repo
            raise RepositoryAlreadyOpen(
                f"repository {repo_id!r} is open with another {other}; close it first"
            )
        with self._claimed(repo_id, f"use memory.repo({repo_id!r}) or exist_ok=True"):
            self._adopt(chat_model, embedder)
            async with self._alone("open", repo_id):
                return await self._opened(repo_id, store, owner, effective, chat_model, embedder)

    @contextmanager
    def _claimed(self, repo_id: str, instead: str) -> Iterator[None]:
        """Nobody else opens or imports the repository. *Raises* ``RepositoryAlreadyOpen``."""
        if repo_id in self._repos or repo_id in self._opening:
            raise RepositoryAlreadyOpen(f"repository {repo_id!r} is open; {instead}")
        self._opening[repo_id] = anyio.Event()
        try:
            yield
        finally:
            self._opening.pop(repo_id).set()

    async def _opened(
        self,
        repo_id: str,
        store: EngineStore,
        owner: Owner,
        config: Config,
        chat_model: ChatModel | None,
        embedder: Embedder | None,
    ) -> Repository:
        # Off the event loop: the first repository imports a great deal.
        for name in () if self._has_imported else _LAZY.split():
            await anyio.to_thread.run_sync(import_module, f"mnemo.{name}")
        self._has_imported = True
        self._usable()
        from mnemo.index.follower import RepositoryIndex
        from mnemo.repository.parts import RepositoryParts
        from mnemo.repository.repository import Repository

        same = config.telemetry == self._config.telemetry
        spans = self._spans if same else await _found_spans(config.telemetry)
        feed = store.feed(repo_id)
        found = await store.opening(repo_id)
        own = named.traced(embedder or self._own(found.space), spans)
        movable = named.MovableEmbedder(own, lambda space: named.traced(self._own(space), spans))
        index = RepositoryIndex(
            feed=feed,
            segments=store.segments(repo_id),
            embedder=movable,
            agent_name=config.extraction.agent_name,
            default_actor=config.extraction.default_actor,
            owed_s=config.recall.embed_owed_ms / 1_000,
            advise=partial(self._advised, repo_id),
            budget=self._budget,
        )
        repo = Repository(
            RepositoryParts(
                repo_id=repo_id,
                sessions=store.sessions(repo_id),
                graph=store.graph(repo_id),
                feed=feed,
                records=store.records(repo_id),
                transcript=store.transcript(repo_id),
                notes=store.notes(repo_id),
                checkpoints=store.checkpoints(repo_id),
                items=store.items(repo_id),
                recalls=store.recalls(repo_id),
                scrub=store.engine.scrub,
                overhaul=store.overhaul(repo_id),
                index=index,
                embedder=movable,
                chat_model=chat_model or self._chat_model,
                owner=owner,
                clock=self._clock,
                config=config,
                root=self._root,
                bus=self._bus,
                slots=self._slots,
                spans=spans,
                checked_models=named.checked_models,
                way_to=named.way_to,
                traced=named.traced,
                follow=movable.follow,
            )
        )
        repo._open(found)
        if self._closed:
            await repo._aclose(0, _CLOSED)
        self._usable()
        self._repos[repo_id] = repo
        return repo

    def _own(self, space: EmbeddingSpace | None) -> Embedder:
        return self._embedder or self._by_default.of(space)

    def _advised(self, repo_id: str, advice: str) -> None:
        self._bus.publish(EmbedderUnfit(repo_id=repo_id, at=self._clock.now(), advice=advice))

    def repo(self, repo_id: str) -> Repository:
        """The open repository. *Raises* ``NotFound`` if it is not open."""
        self._usable()
        if repo_id not in self._repos:
            raise NotFound("repository", repo_id, "it is not open, `await open_repo(…)` opens it")
        return self._repos[repo_id]

    def session(self, session_id: str, *, repo_id: str | None = None) -> Session:
        """
        The open session of this id.

        Args:
            repo_id: Of this repository; default: of whichever has it open.

        Raises:
            NotFound: It is not open, or the repository is not.
            UsageError: Several open repositories have one of this id; the message names them.
        """
        self._usable()
        repos = self._repos.values() if repo_id is None else [self.repo(repo_id)]
        known = ((repo.id, repo._parts.open_sessions.get(session_id)) for repo in repos)
        found = {id: session for id, session in known if session is not None}
        if not found:
            raise NotFound("session", session_id)
        if len(found) > 1:
            names = ", ".join(map(repr, sorted(found)))
            raise UsageError(f"session {session_id!r} is open in {names}: say which by repo_id")
        return found.popitem()[1]

    def list_repos(self) -> list[str]:
        """Ids of the open repositories, sorted."""
        self._usable()
        return sorted(self._repos)

    async def close_repo(self, repo_id: str) -> None:
        """
        Close a repository; its sessions stay resumable, other repositories do not notice.

        Raises:
            NotFound: It is not open. *Cancellation*: completes.
        """
        repo = self.repo(repo_id)
        del self._repos[repo_id]
        self._closing.add(repo)
        try:
            await completed(self._root.own(partial(repo._aclose, self._config.shutdown_grace_s)))
        finally:
            self._closing.discard(repo)

    async def work(
        self,
        repos: str = "*",
        *,
        kinds: Sequence[JobKind] | None = None,
        on_look: Callable[[WorkerStatistics], Any] | None = None,
        release: Callable[[str], Any] | None = None,
    ) -> None:
        """
        Work off the jobs of all stored repositories, until it is cancelled.

        Repositories are opened as they have jobs, with the service's models, and closed when
        they have none; one that cannot be opened, such as one of another embedding space, is
        logged and left to others. ``workers`` bounds the jobs that run at once. When the
        service closes, what runs gets ``config.shutdown_grace_s`` seconds; the rest is given
        back to the other processes.

        Args:
            repos: A pattern of ids, with ``*``, ``?`` and ``[…]``, case-sensitive.
            kinds: Of jobs; ``None``: all.
            on_look: Called after each look for jobs, every ``config.jobs.poll_s`` seconds;
                what it raises is logged.
            release: Awaited with the id of each repository that was opened here and has no more
                jobs, in place of ``close_repo``: where others use it, too, they know when.

        Raises:
            ValueError: *repos* is blank, or there is no such kind of job.
            UsageError: This service works already, or was made with ``workers=0``.
                *Cancellation*: safe.
        """
        from mnemo.jobs.workers import Worker

        self._usable()
        assert self._poller is not None
        await Worker(
            clock=self._clock,
            poll_s=self._config.jobs.poll_s,
            slots=self._slots,
            poller=self._poller,
            open_repo=self._opened_for_work,
            close_repo=release or self.close_repo,
        ).run(repos, kinds, on_look)

    async def _opened_for_work(self, repo_id: str) -> bool:
        """Open a repository for its jobs; False: it is open, and works them off."""
        if repo_id in self._repos or repo_id in self._opening:
            return False
        await self.open_repo(repo_id)
        return True

    # ── Moving to another embedding space ────────────────────────────────────────────

    async def reembed(
        self,
        repo_id: str,
        *,
        embedder: Embedder | str | None = None,
        on_progress: Callable[[ReembeddingProgress], Any] | None = None,
    ) -> ReembeddingReport:
        """
        Move a repository to the space of another embedder, from the stored texts.

        It may be open or not. Open, it goes on: until the switch in the old space, during
        it by keywords, then in the new one. What is written meanwhile gets its vector as
        well. After a crash the old space is in force; called again, it goes on where it was.

        Args:
            embedder: As of ``Mnemo``. Default: the service's, or ``"minilm"``. Later opens must
                bring it, too, unless it has a name.
            on_progress: Called after each batch of texts; what it raises is logged.

        Raises:
            ValueError: *repo_id* is blank, too long or cannot be stored.
            ConfigError: *embedder* is no model, or there is no embedder of that name.
            ModelError: The embedder failed; what it did is kept for the next call.
            Conflict: Somebody else moves the repository to a third space.
            StoreError: The store could not be read or written.
                *Cancellation*: safe; the switch completes or does not begin.
        """
        from mnemo.index.documents import passages_of, steps_in
        from mnemo.maintenance.reembed import Reembedding

        store, _ = self._usable()
        checked_repo_id(repo_id)
        embedder = named.checked_models(None, embedder)
        self._adopt(embedder)
        target = named.traced(embedder or self._own(None), self._spans)
        open_here = self._repos.get(repo_id)
        extraction = (open_here.config if open_here else self._config).extraction
        moving = Reembedding(
            feed=store.feed(repo_id),
            overhaul=store.overhaul(repo_id),
            embedder=target,
            texts=lambda changes: passages_of(
                steps_in(changes, default_actor=extraction.default_actor),
                changes.nodes,
                agent_name=extraction.agent_name,
                passage_tokens=target.space.passage_tokens,
            ),
            switching=partial(self._switching, repo_id, target),
            tell=partial(reported, on_progress),
        )
        async with self._alone("move", repo_id):
            return await moving.run()

    @asynccontextmanager
    async def _switching(self, repo_id: str, target: Embedder) -> AsyncIterator[None]:
        """Nobody opens the repository; if it is open, it leaves its space and enters the next."""
        async with self._alone("open", repo_id):
            repo = self._repos.get(repo_id)
            if repo is None:
                yield
                return
            embedder: Any = repo._parts.embedder
            try:
                await repo._leave_space(embedder.hold)
                yield
                embedder.move_to(target)
                await repo._enter_space()
            finally:
                embedder.release()

    @asynccontextmanager
    async def _alone(self, what: str, repo_id: str) -> AsyncIterator[None]:
        lock = self._locks.setdefault((what, repo_id), Places())
        async with lock:
            try:
                yield
            finally:
                if not lock.waiting:
                    self._locks.pop((what, repo_id), None)

    # ── The whole of a repository, or of the store ───────────────────────────────────

    def export_repo(self, repo_id: str) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """
        Everything of a repository, open or not, as lines of JSON (each with its end).

        ``async with memory.export_repo("r") as lines: async for line in lines: …``; all
        lines are of the moment at which the context was entered, whatever is written
        meanwhile. Text in ASCII, in bounded memory, read off the event loop. It holds the
        raw steps, the whole graph with vectors, what is staged, which changesets were
        applied, the conversations with all that is derived from them, the notes with their
        versions and what is remembered of updates, the checkpoints of graphs, and the keyed
        items; not the repository's id, nor who owns its sessions, nor the ids of erased
        messages, nor what notes have cost. Jobs are derived again by ``import_repo``.

        Entering raises:
            ValueError: *repo_id* is blank, too long or cannot be stored.
            NotFound: There is nothing in it, and it is not open.
            StoreError: It could not be read. *Cancellation*: safe.
        """
        store, _ = self._usable()
        checked_repo_id(repo_id)
        return self._exported(store.archive(repo_id), repo_id)

    @asynccontextmanager
    async def _exported(self, archive: Any, repo_id: str) -> AsyncIterator[AsyncIterator[str]]:
        async with archive.read() as (head, lines):
            if head.is_empty and repo_id not in self._repos:
                raise NotFound("repository", repo_id)
            yield lines

    async def import_repo(
        self,
        repo_id: str,
        lines: AsyncIterable[str] | Iterable[str],
        *,
        exist_ok: bool = False,
    ) -> ArchiveHead:
        """
        Make *repo_id* what another repository was when *lines* were exported; all or nothing.

        Its sessions can be resumed, what was recalled is recalled, and an export of it
        gives the same lines. While it runs the repository cannot be opened.

        Args:
            repo_id: Not open here, and empty.
            lines: As ``export_repo`` gives them; also an open text file, which is read
                off the event loop.
            exist_ok: A repository that holds just what the archive says, as after an import
                whose answer was lost, is left as it is, open or not.

        Returns:
            What the archive says of itself: ``revision``, ``space``, ``counts``.

        Raises:
            ValueError: *repo_id* is blank, too long or cannot be stored.
            RepositoryAlreadyOpen: It is open in this service.
            UsageError: It is not empty.
            Conflict: A session of the archive was forgotten in a repository of this id.
            InvalidArchive: A line is broken (``.line``, ``.reason``), or it is an archive of
                another format version.
            StoreError: It could not be written. *Cancellation*: safe; all or nothing.
        """
        store, _ = self._usable()
        checked_repo_id(repo_id)
        archive = store.archive(repo_id)
        if exist_ok and (found := await archive.matched(lines)) is not None:
            return found
        with self._claimed(repo_id, "import before opening it"):
            return await archive.write(lines)

    async def copy_to(
        self,
        target: str | Path | EngineStore,
        *,
        repos: str = "*",
        skip_damaged: bool = False,
        on_copied: Callable[[RepositoryCopy], Any] | None = None,
    ) -> list[RepositoryCopy]:
        """
        Copy repositories into another store, each as of one moment, under the same id.

        A repository is there whole, or not at all: it is staged in chunks beside the tables of
        the target and linked by the last transaction. Then it is read again, and counts and
        digest are compared. A call that was stopped or killed can be made again: what is there
        already is compared and not copied. Let nobody use the target meanwhile.

        Args:
            target: As *store* of ``Mnemo``; made if it is new.
            repos: A pattern of ids, with ``*``, ``?`` and ``[…]``, case-sensitive.
            skip_damaged: Leave out what cannot be read and what hangs on it; else such a
                repository is not copied.
            on_copied: Called after each repository; what it raises is logged.

        Returns:
            What was copied, or was there already, by id.

        Raises:
            ConfigError: *target* is no place that this version can keep things in.
            UsageError: No repository matches, or the target holds another one of that id.
            Conflict: A session of it was forgotten in the target, in a repository of this id.
            StoreCorrupt: A record is damaged; the repositories before it are copied.
            StoreError: A store failed. *Cancellation*: safe; repositories are whole or not there.
        """
        from mnemo.maintenance.copying import copied
        from mnemo.stores import opened_store

        store, _ = self._usable()
        make = store_maker(target, self._config, self._clock)
        ids = [one.id for one in await store.repositories() if fnmatchcase(one.id, repos)]
        if not ids:
            raise UsageError(f"no repository of this store matches {repos!r}")
        async with opened_store(make()) as other:
            archives = {id: (store.archive(id), other.archive(id)) for id in ids}
            return await copied(archives, skip_damaged, partial(reported, on_copied))

    async def has_repo(self, repo_id: str) -> bool:
        """
        Whether ``repos`` would list this one, at the cost of looking up one row.

        *Raises* ``StoreError``: the store could not be read. *Cancellation*: safe.
        """
        return await self._usable()[0].has_repository(repo_id)

    async def repos(
        self,
        *,
        limit: int | None = None,
        after: str | None = None,
        ids: Sequence[str] | None = None,
        prefixes: Sequence[str] = (),
    ) -> list[RepositoryRecord]:
        """
        List stored repositories by id, open or not; one never written to is in no store.

        The cost is that of what is given: a page of many repositories costs no more than of few.

        Args:
            limit: Repositories, 1 to 1,000; ``None``: all. Fewer than that are the last ones.
            after: Only those behind this id, such as the last one that was read.
            ids: Only these, at most 100,000; with *prefixes*, those whose ids begin so, too.
            prefixes: Beginnings of ids, compared character by character; as many.

        Raises:
            ValueError: *limit* is out of range, or *after* can be no id.
            StoreError: The store could not be read. *Cancellation*: safe.
        """
        return await self._usable()[0].repositories(limit, after, ids, prefixes)

    async def backlog(self) -> dict[str, JobLevels]:
        """
        What waits for extraction, runs or was given up: of every repository that has any, by id.

        Open or not, and by whatever process. Its cost is of what it counts; ``errors`` are left to
        ``Repository.statistics``.

        Raises:
            StoreError: The store could not be read. *Cancellation*: safe.
        """
        return await self._usable()[0].backlog()

    async def delete_repo(self, repo_id: str, *, dry_run: bool = False) -> ErasureReport:
        """
        Delete a repository with everything in it, for good.

        Under this id, its ids of sessions are not used again, nor is an archive of them imported.
        Close it in other processes first: their sessions take no more, but what they hold in memory
        may be found until they open it anew.

        Args:
            repo_id: Not open here, but for a dry run.
            dry_run: Report what would go; nothing is deleted.

        Returns:
            The counts; ``scrubbed`` says whether the bytes are gone from the files, too.

        Raises:
            ValueError: *repo_id* is blank, too long or cannot be stored.
            NotFound: There is none of that id.
            RepositoryAlreadyOpen: It is open in this service: close it first.
            StoreError: Nothing was deleted. *Cancellation*: completes.
        """
        store, _ = self._usable()
        checked_repo_id(repo_id)
        if dry_run:
            return await store.what_is_in(repo_id)
        with self._claimed(repo_id, f"close_repo({repo_id!r}) first"):
            return await completed(self._root.own(partial(store.delete_repository, repo_id)))

    async def backup(self, path: str | Path) -> None:
        """
        Write a consistent copy of the whole store to a new file, while it is used.

        The copy is of one moment and complete, or not there: it gets its name at the end. It
        is a store like others, to be opened by its path. What is erased later stays in it.

        Raises:
            ValueError: *path* is no path.
            UsageError: Something is at *path*, such as the store itself, or its folder is
                not there.
            StoreError: The disk is full or refused; nothing is left behind.
                *Cancellation*: completes.
        """
        store, _ = self._usable()
        target = checked_path("path", path)
        await completed(self._root.own(partial(store.engine.backup, target)))

    async def scrub(self) -> bool:
        """
        Rewrite the file now if erased bytes may be left in it (``ErasureReport.scrubbed``).

        Returns whether none are left: another process may be reading an older state.

        Raises:
            StoreReadOnly: The file cannot be written. *Cancellation*: safe.
        """
        store, _ = self._usable()
        return await store.engine.scrub(at_once=True)

    async def check(self, *, repair: bool = False) -> StoreReport:
        """
        Check the whole store: file, rows, full text, vectors.

        Args:
            repair: First put right what follows from the other rows: a thread whose next seq
                is behind its messages takes messages again, and what of it no job had left is
                extracted; vectors of what is gone are deleted. ``StoreReport.repaired`` says
                what was done.

        Raises:
            StoreReadOnly: *repair* of a store that cannot be written. *Cancellation*: safe;
                a repair completes.
        """
        return await self._usable()[0].check(repair=repair)

    # ── Events ───────────────────────────────────────────────────────────────────────

    def subscribe(self, observer: Callable[[Event], Any]) -> Subscription:
        """
        Call *observer* with every event from now on, in order.

        A function is called at once and must not block; a coroutine function gets a
        queue of its own (1,024 events; on overflow it loses the oldest and is told how
        many by an ``EventsDropped``). What an observer raises is logged.
        """
        self._usable()
        if not callable(observer):
            raise ValueError(f"observer must be a function, not {type(observer).__name__}")
        return self._bus.subscribe(observer)

    def events(self, *, buffer: int = 1_024) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """
        A stream of events: ``async with memory.events() as events: async for event in events``.

        Args:
            buffer: Events that the reader may lag behind; beyond it the oldest are lost to
                it and an ``EventsDropped`` stands in their place; at least 1.

        Raises:
            ValueError: *buffer* is no whole number from 1.
        """
        self._usable()
        return self._bus.stream(whole_number("buffer", buffer, 1))


async def _found_spans(wanted: TelemetryConfig) -> Spans:
    find = partial(find_spans, enabled=wanted.enabled, capture_content=wanted.capture_content)
    # The first time, this imports.
    return await anyio.to_thread.run_sync(find) if wanted.enabled else NO_SPANS


def store_maker(
    store: str | Path | EngineStore, config: Config, clock: Clock
) -> Callable[[], EngineStore]:
    """Give what makes the store that *store* names or is. *Raises* ``ConfigError``."""
    if not isinstance(store, str | Path):
        if not hasattr(store, "sessions"):
            kind = type(store).__name__
            raise ConfigError(f"store must be a path, 'memory:' or a Store, not {kind}")
        return lambda: store
    name = str(store)
    if is_blank(name):
        raise ConfigError("store cannot be blank: give a path, or 'memory:'")
    if clean(name) != name:
        raise ConfigError("the store's path cannot hold U+0000 or half a surrogate pair")
    if name.startswith(("postgres://", "postgresql://")):
        return partial(_store_at, name, config, clock)
    if name.removeprefix("sqlite:").lstrip("/") == ":memory:":
        raise ConfigError("a store that nothing is kept of is 'memory:', without the first colon")
    if "://" in name.removeprefix("sqlite:///"):
        kind = name.partition("://")[0]  # what follows may hold a password
        raise ConfigError(f"no {kind}:// store: give a path, memory:, sqlite:/// or postgresql://")
    path = None if name == "memory:" else Path(name.removeprefix("sqlite:///"))
    return partial(_store_at, path, config, clock)


def _store_at(place: str | Path | None, config: Config, clock: Clock) -> EngineStore:
    """Of a URL, a file, or in memory."""
    from mnemo.stores import PostgresStore, SqliteStore

    make: Callable[..., EngineStore] = PostgresStore if isinstance(place, str) else SqliteStore
    lease_s, index = config.session.lease_s, config.index
    return make(place, config=config.store, clock=clock, lease_s=lease_s, index=index)

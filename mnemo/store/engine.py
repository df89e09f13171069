"""
Engines: what runs the rules of the store, each over one transaction.

An engine knows a database and its driver; rooms know the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Never, Protocol, TypeAlias, TypeVar

from mnemo.runtime.tasks import shared_threads
from mnemo.store.tx import Tx

T = TypeVar("T")

Bulk: TypeAlias = Callable[[Tx, Sequence[Any]], Sequence[Any]]
"""Runs payloads in order; gives a result or an exception for each, or raises for all."""
Locks: TypeAlias = Sequence[tuple[str, str]]
"""
Kind and id of what a writer reads and then changes (a session, the graph of a repository).
An engine with one writer at a time needs none; any other takes them first, sorted, and keeps
out all others from a writer that names none.
"""


GUARDS: Mapping[str, Sequence[str]] = {
    "session": ("sessions", "episodes", "steps", "staged"),
    "graph": ("nodes", "node_keys", "edges", "vectors", "changesets", "moving"),
    "transcript": (
        *("threads", "messages", "message_calls", "compactions", "snapshots"),
        *("outcomes", "goals", "pins", "surfaced", "surfaced_records", "jobs"),
    ),
    "notes": (
        *("notes", "note_versions", "note_vectors", "note_journal", "note_marks"),
        *("note_requests", "note_tasks", "note_conversations", "note_usage"),
    ),
    "items": ("items", "item_vectors"),
    "checkpoints": ("checkpoints", "checkpoint_values", "checkpoint_writes"),
    "owner": ("owners",),
}
"""
Which lock guards the rows of which tables; its id is the repository's, or
``session_lock``'s.

A row is written whole only under the lock that guards it: the writer has read it there, and
nobody else has changed it since. Without that lock, columns that no whole row has are set by
themselves, with their condition in the statement (``sessions.owner``), or added to. ``repos``
is written in this way alone.
"""
OWNERS: Locks = [("owner", "")]
"""What a writer names that only changes who owns sessions: claims check that by themselves."""


def session_lock(repo_id: str, session_id: str) -> tuple[str, str]:
    """What a writer of a session names; another repository may have a session of the same id."""
    # No id holds U+0000.
    return ("session", f"{repo_id}\0{session_id}")


def thread_lock(repo_id: str, thread_id: str) -> tuple[str, str]:
    """What a writer names that adds or erases messages of a thread, or makes steps of them."""
    return ("thread", f"{repo_id}\0{thread_id}")


def repository_locks(repo_id: str) -> Locks:
    """What a writer names that changes all of a repository but its sessions."""
    return [(kind, repo_id) for kind in GUARDS if kind not in ("session", "owner")]


class Snapshot(Protocol):
    """One revision of the store; one read at a time."""

    async def reading(self, work: Callable[[Tx], T]) -> T:
        """Run *work* on that revision. *Cancellation*: safe; met after the read."""


class Staging(Protocol):
    """Tables beside those of the store, in the schema ``staging``, for one import."""

    async def staging(self, work: Callable[[Tx], T]) -> T:
        """
        Run *work*, which reads and writes staged tables alone.

        What it wrote stays if it raises. *Cancellation*: completes.
        """

    async def writing(self, work: Callable[[Tx], T], *, locks: Locks = ()) -> T:
        """Run *work* as ``Engine.writing`` does, with the staged tables in sight."""


class Engine(Protocol):
    """Runs *work*, which is plain code and may run twice: it changes nothing but its ``Tx``."""

    async def reading(self, work: Callable[[Tx], T]) -> T:
        """
        Run *work* off the event loop, on one revision of the store.

        Raises:
            StoreError: One of its kinds. *Cancellation*: safe; met after the read.
        """

    async def writing(self, work: Callable[[Tx], T], *, locks: Locks = ()) -> T:
        """
        Run *work* in one transaction and give its result once that is durable.

        Raises:
            Exception: What *work* raised; nothing was written.
            StoreError: Likewise.

        *Cancellation*: completes; the result comes back even so, the cancellation is met at
        the caller's next await.
        """

    async def merging(self, work: Bulk, payload: Any, *, locks: Locks = ()) -> Any:
        """
        Do as ``writing``, with the payloads of all calls of the same *work* that wait, in order.

        If *work* raises, it runs once for each payload: one that fails fails alone.
        """

    def post(
        self, work: Bulk, payload: Any, done: Callable[[Any], None], *, locks: Locks = ()
    ) -> None:
        """
        Hand over a write in this turn of the loop; it shares a commit with others that wait.

        *done* gets its result or exception, on the loop, once it is durable or refused. It
        always enters: whoever posts bounds himself.

        Raises:
            StoreError: The store is closed, or opened for reading.
        """

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """
        Hold one revision, to be read from again and again; writers go on.

        Raises:
            StoreError: One of its kinds. *Cancellation*: safe.
        """

    def staging(self, tables: Mapping[str, str]) -> AbstractAsyncContextManager[Staging]:
        """
        Make room for one import; the next one waits until the context ends.

        Args:
            tables: The definition of the columns of each table. Nothing of them outlives
                the context.
        """


class ManagedEngine(Engine, Protocol):
    """An engine as its owner sees it: opened, looked after and closed."""

    version: int
    """The schema version that it reads and writes."""
    synchronous: str
    """How durable a write is when it returns, as in ``StoreConfig``; ``none`` in memory."""

    @property
    def place(self) -> str:
        """Where it keeps things, for messages; holds no password."""

    @property
    def waiting(self) -> int:
        """Writes that were handed over and whose callers are not told yet."""

    @property
    def is_read_only(self) -> bool:
        """Whether it was opened, but may not be written."""

    async def open(self, enter: Callable[[Tx], None]) -> None:
        """
        Open, creating or migrating, and run *enter* as the first write.

        What cannot be written is opened for reading, without *enter*.

        Raises:
            StoreError: One of its kinds; nothing was changed. *Cancellation*: safe.
        """

    async def aclose(self) -> None:
        """Let what was handed over finish, then close. Idempotent. *Cancellation*: completes."""

    async def renewing(self, work: Callable[[Tx], T]) -> T:
        """Run *work* as ``writing`` does, but keep ``tend`` from waiting for idleness anew."""

    async def backup(self, path: Path) -> None:
        """Write a copy of one revision to a new file, while others write; see ``Store.backup``."""

    async def scrub(self, *, at_once: bool) -> bool:
        """Rid the storage of what was erased; see ``Store.scrub``."""

    async def tend(self, woken: Callable[[], None]) -> Never:
        """
        Do what ``scrub`` left, whenever the store is idle. *Cancellation*: safe.

        *woken* is called, on the loop, when another process may have written jobs; where
        none tells, they are found by looking for them.
        """


async def compute(work: Callable[[], T]) -> T:
    """
    Run *work*, which needs no transaction, in a worker thread. *Cancellation*: safe.

    One at a time: it is pure Python, and a second thread would only make the event loop wait
    twice as long.
    """
    return await shared_threads("mnemo.store").run(work)

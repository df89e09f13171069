"""Inspection of a repository: what was written since a cursor, and a session without opening it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mnemo.errors import NotFound
from mnemo.repository.names import Named, NameIndex, Names
from mnemo.repository.parts import RepositoryParts
from mnemo.runtime.validation import known_id, stored_text, whole_number
from mnemo.values.changeset import Changeset, Revision
from mnemo.values.feed import NO_VECTORS, FeedCursor
from mnemo.values.jobs import Job, JobState
from mnemo.values.journal import SessionRecord
from mnemo.values.steps import Step

MOST_CHANGES = 5_000
"""Of each kind in one answer of ``changes``, at most."""
MOST_JOBS = 1_000
"""In each state in one answer of ``jobs``, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """
    What was written to a repository between two cursors, by whatever process: ids, no texts.

    Attributes:
        cursor: Give it as ``after=`` for what comes next.
        revision: Of the graph.
        messages: Thread and seq of each new message that is searchable.
        steps: Session, episode and index of each new step.
        nodes: Id and type of each node that is new or has changed, ``episodic`` and
            ``source`` aside, which come with their step.
        removed: Ids of nodes and messages that were erased or deleted.
        missed: Whether more was erased than *removed* lists, for the cursor is more than 10,000
            removals old: look up anew whatever is kept of the repository.
        more: Whether there is more behind *cursor* already.
    """

    cursor: str
    revision: Revision
    messages: tuple[tuple[str, int], ...] = ()
    steps: tuple[tuple[str, str, int], ...] = ()
    nodes: tuple[tuple[str, str], ...] = ()
    removed: tuple[str, ...] = ()
    missed: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLook:
    """
    A session as its last durable act left it.

    Attributes:
        steps: Those of its present episode, ascending; none when it is idle.
        committed: Indexes of the steps that are committed already.
        changeset: What waits for ``commit`` in ``ready``.
        error: Why extraction gave up, in ``failed``.
    """

    record: SessionRecord
    steps: tuple[Step, ...]
    committed: frozenset[int]
    changeset: Changeset | None
    error: str | None


class Inspection:
    """Looks into one repository; made by ``Repository.inspection``. Nothing here writes."""

    def __init__(
        self, parts: RepositoryParts, check_usable: Callable[[], None], names: NameIndex
    ) -> None:
        self._parts = parts
        self._check_usable = check_usable
        self._names = names

    async def changes(self, after: str | None = None, *, limit: int = 1_000) -> Changes:
        """
        List what was written since a cursor, in the order in which it was.

        Followed from cursor to cursor, nothing is left out, whichever process wrote it and
        however often the reader was restarted, or ``missed`` says so. What was erased meanwhile
        is not listed as new.

        Args:
            after: ``Changes.cursor`` of the call before; ``None``: now, so that nothing is
                listed and following begins.
            limit: Changes of each kind, 1 to 5,000.

        Raises:
            ValueError: *after* is no cursor, or *limit* is out of range.
            StoreError: The store could not be read. *Cancellation*: safe.
        """
        self._check_usable()
        whole_number("limit", limit, 1, MOST_CHANGES)
        if after is None:
            revision = await self._parts.index.catch_up()
            return Changes(
                cursor=_written(self._parts.index.statistics().cursor), revision=revision
            )
        found = await self._parts.feed.changes(_read(after), limit=limit)
        return Changes(
            cursor=_written(found.cursor),
            revision=found.revision,
            messages=tuple((m.thread_id, m.seq) for m in found.messages.values()),
            steps=tuple((s.session_id, s.episode_id, s.index) for s in found.steps),
            nodes=tuple((node.id, node.type) for node in found.nodes),
            removed=found.removed,
            missed=found.missed,
            more=found.more,
        )

    async def session(self, session_id: str) -> SessionLook:
        """
        Look at a session, open or not, also one that another process has open.

        Raises:
            NotFound: There is none of that id in this repository.
            StoreError: The store could not be read. *Cancellation*: safe.
        """
        self._check_usable()
        journal = await self._parts.sessions.load(known_id("session_id", session_id))
        if journal is None:
            raise NotFound("session", session_id)
        return SessionLook(
            record=journal.record,
            steps=journal.steps,
            committed=journal.committed,
            changeset=journal.changeset,
            error=journal.error,
        )

    async def jobs(self, *, limit: int = 100) -> list[Job]:
        """
        List the background work that is owed: what was given up, what runs, what waits.

        Args:
            limit: Jobs in each of these states, 1 to 1,000; those due first come first.

        Raises:
            ValueError: *limit* is out of range.
            StoreError: The store could not be read. *Cancellation*: safe.
        """
        self._check_usable()
        whole_number("limit", limit, 1, MOST_JOBS)
        owed = (JobState.DEAD, JobState.RUNNING, JobState.WAITING)
        return await self._parts.transcript.reading(
            lambda tx: [job for state in owed for job in tx.jobs(state, limit=limit)]
        )

    async def names(self) -> Names:
        """
        List who speaks, and what at least two facts name, with the number of facts.

        A fact names what is among its words, in whatever form, or its tags; a speaker also what
        was said by them, as far as it is held in memory. Where counting takes more than 0.2 s,
        the list stands for ten times as long. *Raises* as ``jobs``. *Cancellation*: safe.
        """
        self._check_usable()
        return (await self._names.listed()).found

    async def named(self, name: str) -> Named:
        """
        Give the facts that have a name in them, the latest first, and the names beside it.

        Args:
            name: One of ``names``, or any words.

        Raises:
            ValueError: *name* is no text.
            StoreError: The store could not be read. *Cancellation*: safe.
        """
        self._check_usable()
        return await self._names.named(stored_text("name", name))


def _written(cursor: FeedCursor) -> str:
    return f"{cursor.step}.{cursor.revision}.{cursor.removal}.{cursor.message}"


def _read(text: object) -> FeedCursor:
    parts = text.split(".") if isinstance(text, str) else []
    if len(parts) != 4 or not all(p.isascii() and p.isdigit() and len(p) < 19 for p in parts):
        raise ValueError("after must be what Changes.cursor says")
    step, revision, removal, message = map(int, parts)
    return FeedCursor(step, revision, removal, NO_VECTORS, message)

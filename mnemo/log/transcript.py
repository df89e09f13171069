"""
The conversations of one repository: what work on them reads and writes, in one transaction.

The store runs such work in the thread where its connection lives. What the rows mean is
decided by that work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import Conflict
from mnemo.jobs import job_rows as jobs
from mnemo.jobs.job_rows import LeaseTime
from mnemo.log.erase_messages import erase_messages
from mnemo.log.messages import (
    insert_messages,
    messages_by_id,
    messages_in,
    messages_of_calls,
    span_of,
    vectors_of,
)
from mnemo.log.surfaced import index_shown, unindex_shown
from mnemo.log.threads import put_threads, read_threads, thread_rows
from mnemo.protocols import Clock
from mnemo.store.engine import Engine, thread_lock
from mnemo.store.rows import repo_number, repo_row, snapshot_row
from mnemo.store.tables import JOBS, THREADS, table_of
from mnemo.store.tombstones import erased_messages
from mnemo.store.tx import Tx
from mnemo.values.derived import Derived, ErasedRows, Snapshot, Surfaced, Thread
from mnemo.values.jobs import Job, JobKind, JobState
from mnemo.values.journal import Owner
from mnemo.values.messages import Role, StoredMessage, searchable_text

T = TypeVar("T")
D = TypeVar("D", bound=Derived)

# What no thread has: everything is looked up under it in vain.
_NOBODY = 0


class TranscriptReader:
    """
    Messages and what was derived from them, as of one moment: rows out, plain calls.

    Args:
        repo: The repository's row number; 0: there is none yet.
        lease_time: Default: always *now*.
    """

    def __init__(
        self,
        tx: Tx,
        repo_id: str,
        repo: int,
        now: datetime,
        lease_time: LeaseTime | None = None,
    ) -> None:
        self._tx = tx
        self._repo_id = repo_id
        self._repo = repo
        self._now = now
        self._lease_time = lease_time
        self._lease_now: datetime | None = None
        self._rows: dict[str, Sequence[Any] | None] = {}
        self._threads: dict[str, Thread] = {}

    @property
    def now(self) -> datetime:
        """The store's time of this transaction."""
        return self._now

    @property
    def lease_now(self) -> datetime:
        """The time that leases and due times are measured by, the same for all of it."""
        if self._lease_now is None:
            self._lease_now = self._lease_time(self._tx) if self._lease_time else self._now
        return self._lease_now

    def _number(self, thread_id: str) -> int:
        row = self._row(thread_id)
        return _NOBODY if row is None else int(row[0])

    def _row(self, thread_id: str) -> Sequence[Any] | None:
        """Number and columns of the thread; ``None``: nobody wrote to it yet."""
        if thread_id not in self._rows:
            self.look_up([thread_id])
        return self._rows[thread_id]

    def look_up(self, thread_ids: Sequence[str]) -> None:
        """Read the rows of threads that are asked for next, all at once."""
        found = thread_rows(self._tx, self._repo, thread_ids)
        self._rows.update((id, found.get(id)) for id in thread_ids)

    # ── Messages ─────────────────────────────────────────────────────────────────────

    def messages(
        self,
        thread_id: str,
        *,
        from_seq: int = 0,
        to_seq: int | None = None,
        newest: int | None = None,
        role: Role | None = None,
        since: datetime | None = None,
    ) -> list[StoredMessage]:
        """
        Messages of the range (both ends inclusive), ascending; fresh copies.

        Args:
            newest: Only so many, the last ones.
            since: Only those recorded then or later: what was before is expired.
        """
        return messages_in(
            self._tx,
            self._number(thread_id),
            from_seq=from_seq,
            to_seq=to_seq,
            newest=newest,
            role=role,
            since=since,
        )

    def by_id(self, thread_id: str, ids: Sequence[str]) -> dict[str, StoredMessage]:
        """Those of *ids* that the thread holds, expired ones included."""
        return messages_by_id(self._tx, self._number(thread_id), ids)

    def of_calls(self, thread_id: str, call_ids: Sequence[str]) -> list[StoredMessage]:
        """The messages that make these calls, and those that answer them, ascending."""
        return messages_of_calls(self._tx, self._number(thread_id), call_ids)

    def span(
        self, thread_id: str, *, from_seq: int, since: datetime | None = None
    ) -> tuple[int, int]:
        """How many messages there are from *from_seq* on, and their tokens together."""
        return span_of(self._tx, self._number(thread_id), from_seq, since)

    def erased_ids(self, thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        """Those of *ids* that were erased from the thread, by whatever."""
        return erased_messages(self._tx, self._number(thread_id), ids)

    def vectors(
        self,
        thread_id: str,
        *,
        from_seq: int = 0,
        since: datetime | None = None,
        newest: int | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """
        The vectors of messages as recall has them, shape ``(n, d)``, and the seq of each.

        A long message has several. The last messages come first.

        Args:
            newest: Only so many vectors.
        """
        return vectors_of(
            self._tx,
            self._number(thread_id),
            repo_row(self._tx, self._repo_id)[3] or 0,
            from_seq=from_seq,
            since=since,
            newest=newest,
        )

    # ── Jobs ─────────────────────────────────────────────────────────────────────────

    def job(self, kind: JobKind, subject: str) -> Job | None:
        """The job of this kind and subject; ``None``: there never was one."""
        return JOBS.get(self._tx, self._repo, kind, subject)

    def jobs(
        self, state: JobState, *, due: datetime | None = None, limit: int | None = None
    ) -> list[Job]:
        """
        Jobs in *state*, by the time when they are due.

        Args:
            due: Only those that are due then.
            limit: Only so many, the first ones.
        """
        return jobs.find_jobs(self._tx, self._repo, state, due=due, limit=limit)

    def job_counts(self) -> dict[JobState, int]:
        """How many jobs there are in each state; those that are done aside."""
        return jobs.job_counts(self._tx, self._repo)

    def is_owned_elsewhere(self, owner: str | None, me: Owner) -> bool:
        """Whether *owner*, the token of a service, keeps what it has claimed from *me*."""
        if owner is None or owner == me.token:
            return False
        return jobs.is_held_by(self._tx, owner, me=me, now=self.lease_now)

    def extracting(self, thread_id: str) -> list[str]:
        """Ids of the sessions of the thread's job that are not idle."""
        return jobs.extracting(self._tx, self._repo, thread_id)

    def fed(self, thread_id: str, ids: Sequence[str], *, by_job: bool = False) -> frozenset[str]:
        """Those of the messages *ids* that are steps of a session by hand, or of the job's."""
        messages = ((thread_id, id) for id in ids)
        found = jobs.stepped_messages(self._tx, self._repo, messages, by_job=by_job)
        return frozenset(id for _, id in found)

    def made_of(self, thread_id: str, ids: Sequence[str]) -> list[str]:
        """Ids of the nodes that the job's commits of these messages left."""
        return jobs.made_of(self._tx, self._repo, thread_id, ids)

    # ── What was derived ─────────────────────────────────────────────────────────────

    def thread(self, thread_id: str) -> Thread:
        """Its row; of a thread that nobody wrote to, the one it would begin with."""
        if thread_id not in self._threads:
            row = self._row(thread_id)
            stored = Thread(id=thread_id) if row is None else THREADS.rows.one(row[1:])
            self._threads[thread_id] = stored
        return self._threads[thread_id]

    def threads(self, *, watched: bool = False) -> list[Thread]:
        """All threads by id, or those that have a viewport's budget."""
        return read_threads(self._tx, self._repo, watched=watched)

    def all(
        self,
        kind: type[D],
        thread_id: str,
        *,
        epoch: int | None = None,
        live: bool = False,
        newest: int | None = None,
    ) -> list[D]:
        """
        What of *kind* was derived from the thread, ascending by range, seq or goal id.

        Args:
            epoch: Only of this one.
            live: Only what ``is_live``; found by an index, at a cost that does not grow
                with what is not.
            newest: Only so many, the last ones.
        """
        return table_of(kind).all(
            self._tx,
            self._number(thread_id),
            thread_id,
            epoch=epoch,
            live=live,
            newest=newest,
        )


_FIND_SNAPSHOT = "SELECT no, text, at FROM snapshots WHERE thread = ? AND id = ?"


class TranscriptWriter(TranscriptReader):
    """
    One transaction on the threads of a repository, for the works of several callers in turn.

    Rows of threads and new messages are kept until ``flush``; whatever else reads or writes
    what they are part of calls it first.
    """

    def __init__(
        self, tx: Tx, repo_id: str, now: datetime, lease_time: LeaseTime | None = None
    ) -> None:
        repo = repo_row(tx, repo_id)[0]
        super().__init__(tx, repo_id, repo or repo_number(tx, repo_id), now, lease_time)
        self._is_new = not repo
        self._has_written = False
        self._kept: dict[str, None] = {}
        self._added: list[tuple[StoredMessage, str]] = []

    @property
    def _out(self) -> Tx:
        """The transaction, to write over."""
        self._has_written = True
        return self._tx

    def run(self, work: Callable[[TranscriptWriter], T]) -> T | Conflict:
        """Do *work*; what it refuses before it has written anything, it refuses for itself."""
        self._has_written = self._is_new
        try:
            return work(self)
        except Conflict as refusal:
            if self._has_written:
                raise
            return refusal

    def flush(self) -> None:
        """Write what is kept. *Raises* ``Conflict`` for a seq or id that a thread has."""
        if not self._kept:
            return
        kept, self._kept, added, self._added = self._kept, {}, self._added, []
        has_written, self._has_written = self._has_written, True
        numbers = put_threads(self._tx, self._repo, [self._threads[id] for id in kept])
        self._rows.update((id, (number,)) for id, number in numbers.items())
        messages = [(numbers[message.thread_id], message, text) for message, text in added]
        insert_messages(self._tx, self._repo, messages)
        self._has_written = has_written

    def _number(self, thread_id: str) -> int:
        if thread_id in self._kept:
            self.flush()
        return super()._number(thread_id)

    def threads(self, *, watched: bool = False) -> list[Thread]:
        """All threads by id, or those that have a viewport's budget."""
        self.flush()
        return super().threads(watched=watched)

    def keep(self, thread: Thread) -> None:
        """Write the thread's row."""
        self._has_written = True
        self._threads[thread.id] = thread
        self._kept[thread.id] = None

    def put_job(self, job: Job) -> None:
        """Insert, or replace by kind and subject."""
        JOBS.put(self._out, self._repo, job)

    def _begun(self, thread_id: str) -> int:
        if not self._number(thread_id):
            self.keep(self.thread(thread_id))
        return self._number(thread_id)

    def add(self, messages: Sequence[StoredMessage], *, search_tools: bool = False) -> None:
        """Insert messages, once the work is done: a seq or id that the thread has fails it."""
        for message in messages:
            self.keep(self.thread(message.thread_id))
            self._added.append((message, searchable_text(message, tools=search_tools)))

    def put(self, *values: Derived) -> None:
        """Insert or replace by id (or place); a snapshot with its row in the full text."""
        for value in values:
            thread = self._begun(value.thread_id)
            if isinstance(value, Snapshot):
                _put_snapshot(self._out, self._repo, thread, value)
                continue
            if isinstance(value, Surfaced):
                index_shown(self._out, self._repo, thread, value)
            table_of(type(value)).put(self._out, thread, value)

    def drop(self, *values: Derived) -> None:
        """Delete; what is not there is skipped."""
        for value in values:
            thread = self._number(value.thread_id)
            if isinstance(value, Snapshot):
                _drop_snapshot(self._out, self._repo, thread, value)
            if isinstance(value, Surfaced):
                unindex_shown(self._out, self._repo, thread, value)
            table_of(type(value)).drop(self._out, thread, value)

    def erase(self, thread_id: str, seqs: Sequence[int]) -> ErasedRows:
        """
        Delete messages with full text, vectors and pins, and every compaction and snapshot
        whose range held one of them; their ids are remembered as erased.
        """
        places = [(self._number(thread_id), seq) for seq in seqs]
        erased = erase_messages(self._out, self._repo, places)
        if erased.messages:
            self._out.dialect.note_expired(self._out, self._repo)
        return erased


# ── Snapshots and their rows in the full text ────────────────────────────────────────


def _put_snapshot(tx: Tx, repo: int, thread: int, snapshot: Snapshot) -> None:
    """Insert it, or replace the one of its id."""
    before = tx.run(_FIND_SNAPSHOT, (thread, snapshot.id)).fetchone()
    table_of(Snapshot).put(tx, thread, snapshot)
    now = tx.run(_FIND_SNAPSHOT, (thread, snapshot.id)).fetchone()
    if before is not None and before == now:
        return
    no, text, _ = now
    tx.dialect.drop_texts(tx, repo, [snapshot_row(no)])
    tx.dialect.put_texts(tx, repo, [(snapshot_row(no), text, snapshot.at)])


def _drop_snapshot(tx: Tx, repo: int, thread: int, snapshot: Snapshot) -> None:
    """Take its text out of the index, if it is there."""
    row = tx.run(_FIND_SNAPSHOT, (thread, snapshot.id)).fetchone()
    if row is not None:
        tx.dialect.drop_texts(tx, repo, [snapshot_row(row[0])])


# ── The store of one repository ──────────────────────────────────────────────────────


class StoredTranscript:
    """The conversations of one repository."""

    def __init__(
        self,
        repo_id: str,
        engine: Engine,
        clock: Clock,
        lease_time: LeaseTime,
    ) -> None:
        self._repo_id = repo_id
        self._engine = engine
        self._clock = clock
        self._lease_time = lease_time

    async def reading(self, work: Callable[[TranscriptReader], T]) -> T:
        """
        Run *work*, plain code, in a worker thread, on one moment of the store.

        Raises:
            StoreError: It could not be read. *Cancellation*: safe.
        """

        def read(tx: Tx) -> T:
            repo = repo_row(tx, self._repo_id)[0]
            return work(
                TranscriptReader(tx, self._repo_id, repo, self._clock.now(), self._lease_time)
            )

        return await self._engine.reading(read)

    async def writing(
        self, work: Callable[[TranscriptWriter], T], *, thread_id: str | None = None
    ) -> T:
        """
        Run *work* in one transaction, with others that wait, and give its result once durable.

        Args:
            thread_id: The thread that *work* asks for first, read with those of the others. Whoever
                adds or erases messages names theirs: nobody makes steps of these meanwhile.

        Raises:
            Exception: What *work* raised; nothing was written.
            StoreError: Likewise. *Cancellation*: completes.
        """
        handed = HandedWork(self._repo_id, thread_id, work, self._clock, self._lease_time)
        locks = [("transcript", self._repo_id)]
        if thread_id is not None:
            locks.append(thread_lock(self._repo_id, thread_id))
        result: T = await self._engine.merging(write_together, handed, locks=locks)
        return result


class HandedWork(NamedTuple):
    """Work on its way to the writer, and the thread that it reads first."""

    repo_id: str
    thread_id: str | None
    work: Callable[[TranscriptWriter], Any]
    clock: Clock
    lease_time: LeaseTime


def write_together(tx: Tx, handed: Sequence[HandedWork]) -> list[Any]:
    """Do what was handed over, in order; what several callers append is written together."""
    read: dict[str, set[str]] = {}
    for one in handed:
        read.setdefault(one.repo_id, set()).update([one.thread_id] if one.thread_id else ())
    writers: dict[str, TranscriptWriter] = {}
    results = []
    for one in handed:
        if one.repo_id not in writers:
            writer = TranscriptWriter(tx, one.repo_id, one.clock.now(), one.lease_time)
            writer.look_up(sorted(read[one.repo_id]))
            writers[one.repo_id] = writer
        results.append(writers[one.repo_id].run(one.work))
    for writer in writers.values():
        writer.flush()
    return results

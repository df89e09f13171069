"""What was said and derived, as read in one transaction on the embedded store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.jobs import job_rows as jobs
from mnemo.jobs.owners import LeaseTime
from mnemo.log.messages import (
    messages_by_id,
    messages_in,
    messages_of_calls,
    owed_count,
    owed_messages,
    span_of,
    vectors_of,
)
from mnemo.log.threads import read_threads, thread_rows
from mnemo.store.rows import repo_row
from mnemo.store.tables import JOBS, THREADS, table_of
from mnemo.store.tombstones import erased_messages
from mnemo.store.tx import Tx
from mnemo.values.derived import Derived, Thread
from mnemo.values.jobs import Job, JobKind, JobState
from mnemo.values.journal import Owner
from mnemo.values.messages import Role, StoredMessage

D = TypeVar("D", bound=Derived)

# What no thread has: everything is looked up under it in vain.
_NOBODY = 0


class Reading:
    """
    ``TranscriptReader`` over a transaction.

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
        """Messages of the range, ascending; fresh copies."""
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
        """Those of *ids* that the thread holds."""
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
        """Those of *ids* that were erased from the thread."""
        return erased_messages(self._tx, self._number(thread_id), ids)

    def owed(self, *, limit: int, thread_id: str | None = None) -> list[StoredMessage]:
        """Messages that wait for their vector, oldest first."""
        number = None if thread_id is None else self._number(thread_id)
        return owed_messages(self._tx, self._repo, number, limit)

    def owed_count(self, *, limit: int) -> int:
        """How many ``owed`` gives with this *limit*."""
        return owed_count(self._tx, self._repo, limit)

    def vectors(
        self, thread_id: str, *, from_seq: int = 0, since: datetime | None = None
    ) -> tuple[list[int], NDArray[np.float32]]:
        """Seqs of messages that have a vector, ascending, and the vectors."""
        dimensions = repo_row(self._tx, self._repo_id)[3] or 0
        number = self._number(thread_id)
        return vectors_of(self._tx, number, dimensions, from_seq, since)

    # ── Jobs ─────────────────────────────────────────────────────────────────────────

    def job(self, kind: JobKind, subject: str) -> Job | None:
        """The job of this kind and subject; ``None``: there never was one."""
        return JOBS.get(self._tx, self._repo, kind, subject)

    def jobs(
        self, state: JobState, *, due: datetime | None = None, limit: int | None = None
    ) -> list[Job]:
        """Jobs in *state*, by the time when they are due."""
        return jobs.find_jobs(self._tx, self._repo, state, due=due, limit=limit)

    def job_counts(self) -> dict[JobState, int]:
        """How many jobs there are in each state; those that are done aside."""
        return jobs.job_counts(self._tx, self._repo)

    def is_owned_elsewhere(self, owner: str | None, me: Owner) -> bool:
        """Whether *owner* keeps what it has claimed from *me*."""
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
        """What of *kind* was derived from the thread, ascending."""
        return table_of(kind).all(
            self._tx,
            self._number(thread_id),
            thread_id,
            epoch=epoch,
            live=live,
            newest=newest,
        )

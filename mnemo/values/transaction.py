"""
One transaction on the conversations of a repository: rows in, rows out, plain calls.

A store gives these to the work that it is told to run, in whatever thread its
connection lives. What the rows mean is decided by that work, not by the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.values.chat import EmbeddingSpace
from mnemo.values.derived import Derived, ErasedRows, Thread
from mnemo.values.graph import Vector
from mnemo.values.jobs import Job, JobKind, JobState
from mnemo.values.journal import Owner
from mnemo.values.messages import Role, StoredMessage

D = TypeVar("D", bound=Derived)


class MessagesReader(Protocol):
    """The messages of one repository's threads, within one transaction; plain calls."""

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
        ...

    def by_id(self, thread_id: str, ids: Sequence[str]) -> dict[str, StoredMessage]:
        """Those of *ids* that the thread holds, expired ones included."""
        ...

    def of_calls(self, thread_id: str, call_ids: Sequence[str]) -> list[StoredMessage]:
        """The messages that make these calls, and those that answer them, ascending."""
        ...

    def span(
        self, thread_id: str, *, from_seq: int, since: datetime | None = None
    ) -> tuple[int, int]:
        """How many messages there are from *from_seq* on, and their tokens together."""
        ...

    def erased_ids(self, thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        """Those of *ids* that were erased from the thread, by whatever."""
        ...

    def owed(self, *, limit: int, thread_id: str | None = None) -> list[StoredMessage]:
        """Messages with ``embedded_text`` that wait for their vector, oldest first."""
        ...

    def owed_count(self, *, limit: int) -> int:
        """How many ``owed`` gives with this *limit*; reads none of them."""
        ...

    def vectors(
        self, thread_id: str, *, from_seq: int = 0, since: datetime | None = None
    ) -> tuple[list[int], NDArray[np.float32]]:
        """Seqs of messages that have a vector, ascending, and the vectors, shape ``(n, d)``."""
        ...


class JobReader(Protocol):
    """The jobs of one repository, within one transaction; plain calls."""

    @property
    def now(self) -> datetime:
        """The store's time of this transaction, aware."""
        ...

    @property
    def lease_now(self) -> datetime:
        """The time that leases and due times are measured by, on all machines, aware."""
        ...

    def job(self, kind: JobKind, subject: str) -> Job | None:
        """The job of this kind and subject; ``None``: there never was one."""
        ...

    def jobs(
        self, state: JobState, *, due: datetime | None = None, limit: int | None = None
    ) -> list[Job]:
        """
        Jobs in *state*, by the time when they are due.

        Args:
            due: Only those that are due then.
            limit: Only so many, the first ones.
        """
        ...

    def job_counts(self) -> Mapping[JobState, int]:
        """How many jobs there are in each state that has one; those that are done aside."""
        ...

    def is_owned_elsewhere(self, owner: str | None, me: Owner) -> bool:
        """Whether *owner*, the token of a service, keeps what it has claimed from *me*."""
        ...


class JobWriter(JobReader, Protocol):
    """One transaction on the jobs of a repository."""

    def put_job(self, job: Job) -> None:
        """Insert, or replace by kind and subject."""
        ...


class TranscriptReader(MessagesReader, JobReader, Protocol):
    """Messages and what was derived from them, as of one moment."""

    def thread(self, thread_id: str) -> Thread:
        """Its row; of a thread that nobody wrote to, the one it would begin with."""
        ...

    def threads(self, *, watched: bool = False) -> list[Thread]:
        """All threads of the repository by id, or those that have a viewport's budget."""
        ...

    def extracting(self, thread_id: str) -> list[str]:
        """Ids of the sessions of the thread's ``extract`` job that are not idle."""
        ...

    def fed(self, thread_id: str, ids: Sequence[str], *, by_job: bool = False) -> frozenset[str]:
        """
        Those of the messages *ids* that are steps.

        Args:
            by_job: Of a session of the thread's ``extract`` job; otherwise of one by hand.
        """
        ...

    def made_of(self, thread_id: str, ids: Sequence[str]) -> list[str]:
        """Ids of the nodes that the ``extract`` job's commits of these messages left."""
        ...

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
        ...


class TranscriptWriter(TranscriptReader, JobWriter, Protocol):
    """One transaction on the threads of a repository; an exception undoes all of it."""

    def keep(self, thread: Thread) -> None:
        """Write the thread's row."""
        ...

    def add(self, messages: Sequence[StoredMessage], *, search_tools: bool = False) -> None:
        """
        Insert messages with what they are searched by and, if they have an
        ``embedded_text``, as owed a vector.

        Args:
            search_tools: Whether calls and results are searched for as well.
        """
        ...

    def put(self, *values: Derived) -> None:
        """Insert or replace by id (or place); a snapshot with its row in the full text."""
        ...

    def drop(self, *values: Derived) -> None:
        """Delete; what is not there is skipped."""
        ...

    def erase(self, thread_id: str, seqs: Sequence[int]) -> ErasedRows:
        """
        Delete messages with full text, vectors and pins, and every compaction and snapshot
        whose range held one of them; their ids are remembered as erased.
        """
        ...

    def save_vectors(
        self, space: EmbeddingSpace, vectors: Mapping[tuple[str, int], Vector]
    ) -> None:
        """
        Keep the vectors of messages, by thread and seq, that are still there and owed one.

        Raises:
            EmbeddingSpaceMismatch: The repository is stamped with another space.
        """
        ...

    def drop_vectors(self, thread_id: str, *, keep_newest: int) -> int:
        """Delete all but the newest vectors of the thread; they are owed no more. How many."""
        ...

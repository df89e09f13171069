"""Writing the conversations of one repository, in a transaction on the embedded store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from mnemo.errors import Conflict
from mnemo.jobs.owners import LeaseTime
from mnemo.log.erase_messages import erase_messages
from mnemo.log.message_vectors import drop_old_vectors, save_vectors
from mnemo.log.messages import insert_messages
from mnemo.log.surfaced import index_shown, unindex_shown
from mnemo.log.threads import put_threads
from mnemo.log.transcript_reading import Reading
from mnemo.protocols import TranscriptWriter
from mnemo.store.codec import encode_vector
from mnemo.store.rows import repo_number, repo_row, snapshot_row
from mnemo.store.tables import JOBS, table_of
from mnemo.store.tx import Tx
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.derived import Derived, ErasedRows, Snapshot, Surfaced, Thread
from mnemo.values.graph import Vector
from mnemo.values.jobs import Job
from mnemo.values.messages import StoredMessage, searchable_text

T = TypeVar("T")

_FIND_SNAPSHOT = "SELECT no, text, at FROM snapshots WHERE thread = ? AND id = ?"


class Writing(Reading):
    """
    ``TranscriptWriter`` over a transaction, for the works of several callers, one after the other.

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

    def owed(self, *, limit: int, thread_id: str | None = None) -> list[StoredMessage]:
        """Messages that wait for their vector, oldest first."""
        self.flush()
        return super().owed(limit=limit, thread_id=thread_id)

    def owed_count(self, *, limit: int) -> int:
        """How many ``owed`` gives with this *limit*."""
        self.flush()
        return super().owed_count(limit=limit)

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
        """Insert or replace by id, or place."""
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
        """Delete messages and what was derived from ranges that held one of them."""
        places = [(self._number(thread_id), seq) for seq in seqs]
        erased = erase_messages(self._out, self._repo, places)
        if erased.messages:
            self._out.dialect.note_expired(self._out, self._repo)
        return erased

    def save_vectors(
        self, space: EmbeddingSpace, vectors: Mapping[tuple[str, int], Vector]
    ) -> None:
        """Keep the vectors of messages that are still there and owed one."""
        rows = [
            (self._number(thread_id), seq, encode_vector(vector))
            for (thread_id, seq), vector in vectors.items()
        ]
        save_vectors(self._out, self._repo_id, space, rows)

    def drop_vectors(self, thread_id: str, *, keep_newest: int) -> int:
        """Delete all but the newest vectors of the thread; how many."""
        return drop_old_vectors(self._out, self._number(thread_id), keep_newest)


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

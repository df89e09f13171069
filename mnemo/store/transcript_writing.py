"""Writing the conversations of one repository, in a transaction on the embedded store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mnemo.store.codec import encode_vector
from mnemo.store.erasure_messages import erase_messages
from mnemo.store.message_vectors import drop_old_vectors, save_vectors
from mnemo.store.messages import insert_messages
from mnemo.store.rows import snapshot_row
from mnemo.store.surfaced import index_shown, unindex_shown
from mnemo.store.tables import JOBS, THREADS, table_of
from mnemo.store.transcript_reading import Reading
from mnemo.store.tx import Tx
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.derived import Derived, ErasedRows, Snapshot, Surfaced, Thread
from mnemo.values.graph import Vector
from mnemo.values.jobs import Job
from mnemo.values.messages import StoredMessage

__all__ = ["Writing"]

_FIND_SNAPSHOT = "SELECT no, text FROM snapshots WHERE thread = ? AND id = ?"


class Writing(Reading):
    """``TranscriptWriter`` over a transaction of the writer."""

    def keep(self, thread: Thread) -> None:
        """Write the thread's row."""
        THREADS.put(self._tx, self._repo, thread)

    def put_job(self, job: Job) -> None:
        """Insert, or replace by kind and subject."""
        JOBS.put(self._tx, self._repo, job)

    def _begun(self, thread_id: str) -> int:
        number = self._number(thread_id)
        if not number:
            self.keep(Thread(id=thread_id))
            number = self._number(thread_id)
        return number

    def add(self, messages: Sequence[StoredMessage], *, search_tools: bool = False) -> None:
        """Insert messages. *Raises* ``Conflict`` for a seq or id that the thread has."""
        threads = [self._begun(message.thread_id) for message in messages]
        insert_messages(self._tx, self._repo, threads, messages, search_tools=search_tools)

    def put(self, *values: Derived) -> None:
        """Insert or replace by id, or place."""
        for value in values:
            thread = self._begun(value.thread_id)
            if isinstance(value, Snapshot):
                _put_snapshot(self._tx, self._repo, thread, value)
                continue
            if isinstance(value, Surfaced):
                index_shown(self._tx, self._repo, thread, value)
            table_of(type(value)).put(self._tx, thread, value)

    def drop(self, *values: Derived) -> None:
        """Delete; what is not there is skipped."""
        for value in values:
            thread = self._number(value.thread_id)
            if isinstance(value, Snapshot):
                _drop_snapshot(self._tx, self._repo, thread, value)
            if isinstance(value, Surfaced):
                unindex_shown(self._tx, self._repo, thread, value)
            table_of(type(value)).drop(self._tx, thread, value)

    def erase(self, thread_id: str, seqs: Sequence[int]) -> ErasedRows:
        """Delete messages and what was derived from ranges that held one of them."""
        places = [(self._number(thread_id), seq) for seq in seqs]
        erased = erase_messages(self._tx, self._repo, places)
        if erased.messages:
            self._tx.dialect.note_expired(self._tx, self._repo)
        return erased

    def save_vectors(
        self, space: EmbeddingSpace, vectors: Mapping[tuple[str, int], Vector]
    ) -> None:
        """Keep the vectors of messages that are still there and owed one."""
        rows = [
            (self._number(thread_id), seq, encode_vector(vector))
            for (thread_id, seq), vector in vectors.items()
        ]
        save_vectors(self._tx, self._repo_id, space, rows)

    def drop_vectors(self, thread_id: str, *, keep_newest: int) -> int:
        """Delete all but the newest vectors of the thread; how many."""
        return drop_old_vectors(self._tx, self._number(thread_id), keep_newest)


# ── Snapshots and their rows in the full text ────────────────────────────────────────


def _put_snapshot(tx: Tx, repo: int, thread: int, snapshot: Snapshot) -> None:
    """Insert it, or replace the one of its id."""
    before = tx.run(_FIND_SNAPSHOT, (thread, snapshot.id)).fetchone()
    table_of(Snapshot).put(tx, thread, snapshot)
    no, text = tx.run(_FIND_SNAPSHOT, (thread, snapshot.id)).fetchone()
    if before is not None and before[1] == text:
        return
    tx.dialect.drop_texts(tx, repo, [snapshot_row(no)])
    tx.dialect.put_texts(tx, repo, [(snapshot_row(no), text)])


def _drop_snapshot(tx: Tx, repo: int, thread: int, snapshot: Snapshot) -> None:
    """Take its text out of the index, if it is there."""
    row = tx.run(_FIND_SNAPSHOT, (thread, snapshot.id)).fetchone()
    if row is not None:
        tx.dialect.drop_texts(tx, repo, [snapshot_row(row[0])])

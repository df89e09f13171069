"""The notes of one repository: ``NoteStore`` over an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias, TypeVar

from mnemo.notes.note_rows import NoteReader
from mnemo.protocols import Clock, Transactions
from mnemo.runtime.text import terms
from mnemo.store.codec import encode_time, encode_vector
from mnemo.store.engine import Engine
from mnemo.store.rows import chunks, holes, repo_number, repo_row
from mnemo.store.tables import (
    NOTE_CHANGES,
    NOTE_CONVERSATIONS,
    NOTE_MARKS,
    NOTE_REQUESTS,
    NOTE_TASKS,
    NOTE_USAGE,
    NOTE_VERSIONS,
    NOTES,
)
from mnemo.store.tx import Tx
from mnemo.values.archive import (
    ArchivedNoteChange,
    ArchivedNoteMark,
    ArchivedNoteRequest,
    ArchivedNoteTask,
)
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.graph import Vector
from mnemo.values.notes import (
    ConversationRow,
    Covered,
    ErasedNoteRows,
    NoteChange,
    NoteRow,
    NoteVersion,
    UsageRow,
)

T = TypeVar("T")

_FIND = "SELECT no FROM notes WHERE repo = ? AND topic = ?"
_PRUNE = """
DELETE FROM note_versions WHERE note = :note AND version <=
    (SELECT version FROM note_versions WHERE note = :note
     ORDER BY version DESC LIMIT 1 OFFSET :keep)
"""
_DROP_VERSION = "DELETE FROM note_versions WHERE note = ? AND version = ?"
_PUT_CHANGE = NOTE_CHANGES.insert_with("repo")
_DROP_VECTOR = "DELETE FROM note_vectors WHERE note = ?"
_PUT_VECTOR = """
INSERT INTO note_vectors (note, version, space, dimensions, vector)
SELECT no, version, ?, ?, ? FROM notes
WHERE repo = ? AND topic = ? AND version = ? AND deleted_by IS NULL
ON CONFLICT (note) DO UPDATE SET version = excluded.version, space = excluded.space,
    dimensions = excluded.dimensions, vector = excluded.vector
"""
# A new row, not an update: the oldest are pruned by their numbers.
_UNMARK = "DELETE FROM note_marks WHERE repo = ? AND key = ?"
_PRUNE_MARKS = """
DELETE FROM note_marks WHERE repo = :repo AND seq <=
    (SELECT seq FROM note_marks WHERE repo = :repo ORDER BY seq DESC LIMIT 1 OFFSET :keep)
"""
_UNNAME = "UPDATE note_requests SET topic = NULL WHERE repo = ? AND topic = ?"


class StoredNotes:
    """``NoteStore`` over an engine."""

    def __init__(
        self,
        repo_id: str,
        engine: Engine,
        clock: Clock,
    ) -> None:
        self._repo_id = repo_id
        self._engine = engine
        self._clock = clock

    async def reading(self, work: Callable[[NoteReader], T]) -> T:
        """Run *work* on one revision of the file. *Cancellation*: safe."""
        now = self._clock.now()

        def read(tx: Tx) -> T:
            return work(NoteReader(tx, repo_row(tx, self._repo_id)[0], now))

        return await self._engine.reading(read)

    async def writing(self, work: Callable[[NoteWriter], T]) -> T:
        """Run *work* in one transaction of the writer. *Cancellation*: completes."""
        now = self._clock.now()

        def write(tx: Tx) -> T:
            return work(NoteWriter(tx, repo_number(tx, self._repo_id), now))

        return await self._engine.writing(write, locks=[("notes", self._repo_id)])


class NoteWriter(NoteReader):
    """``NoteWriter`` over a transaction."""

    def put(self, row: NoteRow, version: NoteVersion, *, keep: int) -> None:
        """
        Write a note with a version, its journal row and its full-text row; it is owed a vector.

        Args:
            keep: Versions that are kept of the topic, the latest ones.
        """
        execute = self._tx.run
        NOTES.put(self._tx, self._repo, row)
        ((number,),) = execute(_FIND, (self._repo, row.topic)).fetchall()
        NOTE_VERSIONS.put(self._tx, number, version)
        execute(_PRUNE, {"note": number, "keep": keep})
        change = NoteChange(
            topic=row.topic, action=version.action, version=version.version, by=version.by
        )
        entry = ArchivedNoteChange(update_id=version.update_id, change=change)
        execute(_PUT_CHANGE, (number, *NOTE_CHANGES.values(entry), self._repo))
        self._tx.dialect.drop_note_words(self._tx, number)
        execute(_DROP_VECTOR, (number,))
        if row.is_there:
            self._tx.dialect.put_note_words(self._tx, [(number, " ".join(terms(row.text)))])

    def touch(self, topics: Sequence[str], at: datetime) -> None:
        """Set when they were last read; no version."""
        for some in chunks(topics):
            self._tx.run(
                f"UPDATE notes SET last_read_at = ? WHERE repo = ? AND topic IN ({holes(some)})",
                (encode_time(at), self._repo, *some),
            )

    def erase(self, topic: str) -> ErasedNoteRows:
        """Delete a note with all its versions and rows."""
        execute = self._tx.run
        found = execute(_FIND, (self._repo, topic)).fetchone()
        if found is None:
            return ErasedNoteRows()
        self._tx.dialect.note_erased(self._tx)
        execute("DELETE FROM note_journal WHERE repo = ? AND note = ?", (self._repo, *found))
        execute("DELETE FROM notes WHERE no = ?", found)
        # The request stays covered; the topic may be made of its words.
        execute(_UNNAME, (self._repo, topic))
        erased = ErasedNoteRows(
            versions=execute("DELETE FROM note_versions WHERE note = ?", found).rowcount,
            fulltext_rows=self._tx.dialect.drop_note_words(self._tx, *found),
            vectors=execute(_DROP_VECTOR, found).rowcount,
        )
        self._tx.dialect.merge_note_words(self._tx)
        return erased

    def rewrite(self, version: NoteVersion) -> None:
        """Replace a version by one with fewer words; for erasure."""
        found = self._tx.run(_FIND, (self._repo, version.topic)).fetchone()
        if found is not None:
            NOTE_VERSIONS.put(self._tx, found[0], version)
            self._tx.dialect.note_erased(self._tx)

    def drop(self, topic: str, version: int) -> None:
        """Delete one version; for erasure. Its number is not given again."""
        found = self._tx.run(_FIND, (self._repo, topic)).fetchone()
        if found is not None:
            self._tx.run(_DROP_VERSION, (*found, version))
            self._tx.dialect.note_erased(self._tx)

    def save_vectors(
        self, space: EmbeddingSpace, vectors: Mapping[str, tuple[int, Vector]]
    ) -> None:
        """Keep vectors by topic, of the versions that they name; others are skipped."""
        for topic, (version, vector) in vectors.items():
            made = (space.name, space.dimensions, encode_vector(vector))
            self._tx.run(_PUT_VECTOR, (*made, self._repo, topic, version))

    def mark(self, key: str, *, keep: int) -> None:
        """Remember a judged message; *keep* marks are kept, the latest ones."""
        self._tx.run(_UNMARK, (self._repo, key))
        NOTE_MARKS.add(self._tx, self._repo, ArchivedNoteMark(key=key))
        self._tx.run(_PRUNE_MARKS, {"repo": self._repo, "keep": keep})

    def cover(self, digest: str, covered: Covered) -> None:
        """Remember for good what became of a request; the first word about it stays."""
        request = ArchivedNoteRequest(digest=digest, covered=covered)
        NOTE_REQUESTS.add_once(self._tx, self._repo, request)

    def finish(self, task_id: str) -> None:
        """Remember that an update of this task has ended without error."""
        NOTE_TASKS.add_once(self._tx, self._repo, ArchivedNoteTask(task_id=task_id))

    def keep_conversation(self, row: ConversationRow) -> None:
        """Write what is known of a conversation's updates."""
        NOTE_CONVERSATIONS.put(self._tx, self._repo, row)

    def add_usage(self, row: UsageRow) -> None:
        """Write what a call cost."""
        NOTE_USAGE.add(self._tx, self._repo, row)


NoteStore: TypeAlias = Transactions[NoteReader, NoteWriter]
"""What ``StoredNotes`` is, and what a test puts in its place."""

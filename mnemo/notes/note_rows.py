"""NoteReader the notes of one repository within one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from mnemo.store import tables
from mnemo.store.codec import decode_vector
from mnemo.store.damage import Passed, Rows, log_passed
from mnemo.store.rows import chunks, holes
from mnemo.store.tx import Tx
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.graph import Vector
from mnemo.values.notes import ConversationRow, Covered, NoteChange, NoteRow, NoteVersion, UsageRow

T = TypeVar("T")

_NOTE = f"SELECT {tables.NOTES.of('n')} FROM notes n"
_THERE = f"{_NOTE} WHERE n.repo = ? AND n.deleted_by IS NULL ORDER BY n.topic"
_OWED = f"""
{_NOTE} LEFT JOIN note_vectors v ON v.note = n.no AND v.version = n.version
    AND v.space = ? AND v.dimensions = ?
WHERE n.repo = ? AND n.deleted_by IS NULL AND v.note IS NULL ORDER BY n.topic LIMIT ?
"""
_TOPICS = "SELECT topic FROM notes WHERE repo = ? AND deleted_by IS NULL ORDER BY topic"
_ALL_TOPICS = "SELECT topic FROM notes WHERE repo = ? ORDER BY topic"
_VERSIONS = f"""
SELECT n.topic, {tables.NOTE_VERSIONS.of("v")}
FROM notes n JOIN note_versions v ON v.note = n.no
WHERE n.repo = ? AND n.topic = ? ORDER BY v.version
"""
_CHANGES = f"""
SELECT n.topic, {tables.NOTE_CHANGES.of("j")} FROM note_journal j JOIN notes n ON n.no = j.note
WHERE j.repo = ? AND j.update_id = ? ORDER BY j.seq
"""
_COUNTS = """
SELECT (SELECT count(*) FROM notes WHERE repo = :repo AND deleted_by IS NULL),
       (SELECT count(*) FROM notes n JOIN note_versions v ON v.note = n.no WHERE n.repo = :repo)
"""
_VECTORS = """
SELECT n.topic, v.vector FROM notes n JOIN note_vectors v ON v.note = n.no
WHERE n.repo = ? AND n.deleted_by IS NULL AND v.version = n.version
  AND v.space = ? AND v.dimensions = ?
"""
_DONE = "SELECT 1 FROM note_tasks WHERE repo = ? AND task_id = ?"
_USAGE = f"{tables.NOTE_USAGE.select} AND update_id = ? ORDER BY seq"


class NoteReader:
    """``NoteReader`` over a transaction."""

    def __init__(self, tx: Tx, repo: int, now: datetime) -> None:
        self._tx = tx
        self._repo = repo
        self._now = now

    @property
    def now(self) -> datetime:
        """The store's time of this transaction, aware."""
        return self._now

    def _all(self, query: str, *values: object) -> list[Any]:
        return self._tx.run(query, values).fetchall()

    def _of_keys(self, query: str, keys: Sequence[str]) -> Iterator[Any]:
        """Rows of *query* with the repository and *keys* in its two holes."""
        for some in chunks(keys):
            yield from self._all(query.format(holes(some)), self._repo, *some)

    def rows(self, topics: Sequence[str] | None = None) -> list[NoteRow]:
        """
        The notes that are there, by topic; of *topics* also those that were deleted.

        Raises:
            StoreCorrupt: One of *topics* is damaged. Without topics it is left out, and logged.
        """
        passed: Passed = []
        found = self._rows(topics, passed if topics is None else None)
        log_passed(passed)
        return found

    def _rows(self, topics: Sequence[str] | None, passed: Passed | None) -> list[NoteRow]:
        if topics is None:
            return NOTES.all(self._all(_THERE, self._repo), passed)
        query = f"{_NOTE} WHERE n.repo = ? AND n.topic IN ({{}}) ORDER BY n.topic"
        return NOTES.all(self._of_keys(query, sorted(set(topics))), passed)

    def topics(self, *, deleted: bool = False) -> list[str]:
        """The topics of the notes that are there, sorted; with those that were, if asked."""
        query = _ALL_TOPICS if deleted else _TOPICS
        return [topic for (topic,) in self._all(query, self._repo)]

    def versions(self, topic: str, *, intact: bool = False) -> list[NoteVersion]:
        """What is kept of its versions, oldest first."""
        rows = self._all(_VERSIONS, self._repo, topic)
        return _passing(VERSIONS, rows) if intact else VERSIONS.all(rows)

    def changes(self, update_id: str) -> list[NoteChange]:
        """What an update did, in order."""
        rows = self._all(_CHANGES, self._repo, update_id)
        return [record.change for record in tables.NOTE_CHANGES.rows.all(rows)]

    def counts(self) -> tuple[int, int]:
        """Notes that are there, and versions kept of all."""
        notes, versions = self._tx.run(_COUNTS, {"repo": self._repo}).fetchone()
        return int(notes), int(versions)

    def matching(self, terms: Sequence[str]) -> dict[str, frozenset[str]]:
        """Term (as ``runtime.text.terms`` gives them) → topics of the notes that hold it."""
        found = {}
        for term in terms:
            rows = self._tx.dialect.notes_with(self._tx, self._repo, term)
            found[term] = frozenset(topic for (topic,) in rows)
        return found

    def vectors(self, space: EmbeddingSpace) -> dict[str, Vector]:
        """Topic → vector of its present version, where there is one of *space*."""
        rows = self._all(_VECTORS, self._repo, space.name, space.dimensions)
        read = Rows("note_vectors", "s b", lambda row: decode_vector(row[1], space.dimensions))
        return {row[0]: vector for row in rows for vector in _passing(read, [row])}

    def owed(self, space: EmbeddingSpace, *, limit: int) -> list[NoteRow]:
        """Notes that have no vector of *space*, by topic."""
        rows = self._all(_OWED, space.name, space.dimensions, self._repo, limit)
        return _passing(NOTES, rows)

    def marked(self, keys: Sequence[str]) -> frozenset[str]:
        """Those of *keys* that are marks."""
        query = "SELECT key FROM note_marks WHERE repo = ? AND key IN ({})"
        return frozenset(key for (key,) in self._of_keys(query, keys))

    def covered(self, digests: Sequence[str]) -> dict[str, Covered]:
        """What became of the requests with these digests, where that is settled."""
        query = f"{tables.NOTE_REQUESTS.select} AND digest IN ({{}})"
        found = tables.NOTE_REQUESTS.rows.all(self._of_keys(query, digests))
        return {request.digest: request.covered for request in found}

    def is_done(self, task_id: str) -> bool:
        """Whether an update of this task has ended without error."""
        return bool(self._all(_DONE, self._repo, task_id))

    def conversation(self, key: str) -> ConversationRow:
        """What is known of its updates; of an unknown one, nothing."""
        found = tables.NOTE_CONVERSATIONS.get(self._tx, self._repo, key)
        return found or ConversationRow(key=key)

    def usage(self, update_id: str) -> list[UsageRow]:
        """What its calls cost, in order."""
        return tables.NOTE_USAGE.rows.all(self._all(_USAGE, self._repo, update_id))


def _passing(read: Rows[T], rows: Iterable[Sequence[Any]]) -> list[T]:
    """The intact ones of *rows*; the others are logged."""
    passed: Passed = []
    found = read.all(rows, passed)
    log_passed(passed)
    return found


NOTES = tables.NOTES.rows
"""Notes of rows with the columns of ``notes`` from the topic on."""
VERSIONS = tables.NOTE_VERSIONS.rows
"""Versions of rows with ``VERSION_COLUMNS``, behind their note's topic."""
VERSION_COLUMNS = tables.NOTE_VERSIONS.columns

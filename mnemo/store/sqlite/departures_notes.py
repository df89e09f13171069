"""A repository's notes as records of an archive: what is read, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mnemo.episode.archive import Record
from mnemo.episode.archive_notes import (
    ArchivedNoteChange,
    ArchivedNoteMark,
    ArchivedNoteRequest,
    ArchivedNoteTask,
)
from mnemo.note.rows import Covered
from mnemo.store.sqlite.damage import Rows
from mnemo.store.sqlite.note_rows import CHANGES, NOTES, VERSIONS

__all__ = ["NOTE_COLUMNS", "NOTE_COUNTS", "NOTE_DEPARTURES", "VERSION_COLUMNS"]

NOTE_COLUMNS = (
    *("topic", "version", "description", "body", "created_at", "updated_at", "last_read_at"),
    *("trust", "deleted_by"),
)
VERSION_COLUMNS = (
    *("version", "action", "body", "description", "at", "by", "update_id", "task_id"),
    *("session_id", "thread_id", "message_ids", "evidence", "trust", "reason"),
)

_OF_NOTES = "SELECT '{}', count(*) FROM notes n JOIN {} d ON d.note = n.no WHERE n.repo = :repo"
_OF_REPO = "SELECT '{}', count(*) FROM {} WHERE repo = :repo"
NOTE_COUNTS = " UNION ALL ".join(
    [
        _OF_REPO.format("note", "notes"),
        _OF_NOTES.format("note_version", "note_versions"),
        _OF_NOTES.format("note_change", "note_journal"),
        _OF_REPO.format("note_mark", "note_marks"),
        _OF_REPO.format("note_request", "note_requests"),
        _OF_REPO.format("note_task", "note_tasks"),
    ]
)
"""Kind and number of records of the repository ``:repo``."""

_NOTES = f"SELECT {', '.join(NOTE_COLUMNS)} FROM notes WHERE repo = ? ORDER BY topic"
_VERSIONS = f"""
SELECT n.topic, {", ".join(f"v.{column}" for column in VERSION_COLUMNS)}
FROM notes n CROSS JOIN note_versions v ON v.note = n.no
WHERE n.repo = ? ORDER BY n.topic, v.version
"""
_CHANGES = """
SELECT n.topic, j.action, j.version, j.by, j.update_id
FROM note_journal j JOIN notes n ON n.no = j.note
WHERE n.repo = ? ORDER BY coalesce(j.update_id, ''), j.seq
"""
_MARKS = "SELECT key FROM note_marks WHERE repo = ? ORDER BY seq"
# The topic of a note that was purged would be a trace of it.
_REQUESTS = """
SELECT r.digest, n.topic, r.refused
FROM note_requests r LEFT JOIN notes n ON n.repo = r.repo AND n.topic = r.topic
WHERE r.repo = ? ORDER BY r.digest
"""
_TASKS = "SELECT task_id FROM note_tasks WHERE repo = ? ORDER BY task_id"


def _change(row: Sequence[Any]) -> Record:
    return ArchivedNoteChange(update_id=row[4], change=CHANGES.one(row[:4]))


def _mark(row: Sequence[Any]) -> Record:
    return ArchivedNoteMark(key=row[0])


def _request(row: Sequence[Any]) -> Record:
    return ArchivedNoteRequest(digest=row[0], covered=Covered(topic=row[1], refused=row[2]))


def _task(row: Sequence[Any]) -> Record:
    return ArchivedNoteTask(task_id=row[0])


NOTE_DEPARTURES: tuple[tuple[str, Rows[Any]], ...] = (
    (_NOTES, NOTES),
    (_VERSIONS, VERSIONS),
    (_CHANGES, Rows("note_journal", "s s i s s?", _change, key=(0, 2))),
    (_MARKS, Rows("note_marks", "s", _mark)),
    (_REQUESTS, Rows("note_requests", "s s? s?", _request)),
    (_TASKS, Rows("note_tasks", "s", _task)),
)
"""Query (of a repository's number) and reader of its rows, in the order of an archive."""

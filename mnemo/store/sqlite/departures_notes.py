"""A repository's notes as records of an archive: what is read, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

from mnemo._clock import Breather
from mnemo.episode.archive import Record
from mnemo.episode.archive_notes import (
    ArchivedNoteChange,
    ArchivedNoteMark,
    ArchivedNoteRequest,
    ArchivedNoteTask,
)
from mnemo.note.rows import Covered
from mnemo.note.values import NoteChange
from mnemo.store.sqlite.note_rows import read_note, read_version

__all__ = ["NOTE_COLUMNS", "NOTE_COUNTS", "NOTE_DEPARTURES", "VERSION_COLUMNS"]

Rows: TypeAlias = Iterable[tuple[Any, ...]]
ReadRows: TypeAlias = Callable[[Rows], Sequence[Record]]

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
SELECT j.update_id, n.topic, j.action, j.version, j.by
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


def _all(read: Callable[..., Record], rows: Rows) -> Sequence[Record]:
    breather, records = Breather(), []
    for row in rows:
        records.append(read(*row))
        breather.breathe()
    return records


def _change(update_id: str | None, topic: str, action: Any, version: int, by: Any) -> Record:
    change = NoteChange(topic=topic, action=action, version=version, by=by)
    return ArchivedNoteChange(update_id=update_id, change=change)


def _mark(key: str) -> Record:
    return ArchivedNoteMark(key=key)


def _request(digest: str, topic: str | None, refused: str | None) -> Record:
    return ArchivedNoteRequest(digest=digest, covered=Covered(topic=topic, refused=refused))


def _task(task_id: str) -> Record:
    return ArchivedNoteTask(task_id=task_id)


NOTE_DEPARTURES: tuple[tuple[str, ReadRows], ...] = (
    (_NOTES, partial(_all, read_note)),
    (_VERSIONS, partial(_all, read_version)),
    (_CHANGES, partial(_all, _change)),
    (_MARKS, partial(_all, _mark)),
    (_REQUESTS, partial(_all, _request)),
    (_TASKS, partial(_all, _task)),
)
"""Query (of a repository's number) and reader of its rows, in the order of an archive."""

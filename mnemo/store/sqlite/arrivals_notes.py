"""Notes of an archive on their way in: their rows, whether they fit, where they go."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mnemo.episode.archive import Record
from mnemo.episode.archive_notes import (
    ArchivedNoteChange,
    ArchivedNoteMark,
    ArchivedNoteRequest,
    ArchivedNoteTask,
    NoteRecord,
)
from mnemo.note.rows import NoteRow
from mnemo.note.values import NoteVersion
from mnemo.runtime.text import terms
from mnemo.store.sqlite.codec import encode_json, encode_time
from mnemo.store.sqlite.departures_notes import NOTE_COLUMNS, VERSION_COLUMNS

__all__ = [
    "NOTE_CHECKS",
    "NOTE_FILLED",
    "NOTE_INDEXES",
    "NOTE_MOVES",
    "NOTE_TABLES",
    "NOTE_TABLE_OF",
    "NOTE_UNIQUE",
    "note_row",
]

_NOTE, _VERSION = ", ".join(NOTE_COLUMNS), ", ".join(VERSION_COLUMNS)

NOTE_TABLES = {
    "notes": f"{_NOTE}, terms",
    "note_versions": f"topic, {_VERSION}",
    "note_journal": "topic, update_id, action, version, by",
    "note_marks": "key",
    "note_requests": "digest, topic, refused",
    "note_tasks": "task_id",
}
"""Columns of the tables that records wait in; *terms* are what a note is found by."""
NOTE_TABLE_OF: dict[type[Record], str] = {
    NoteRow: "notes",
    NoteVersion: "note_versions",
    ArchivedNoteChange: "note_journal",
    ArchivedNoteMark: "note_marks",
    ArchivedNoteRequest: "note_requests",
    ArchivedNoteTask: "note_tasks",
}


def note_row(record: NoteRecord) -> tuple[Any, ...]:
    """The row of a record of notes."""
    match record:
        case NoteRow():
            values = (_plain(record, name) for name in NOTE_COLUMNS)
            return (*values, " ".join(terms(record.text)))
        case NoteVersion():
            return (record.topic, *(_plain(record, name) for name in VERSION_COLUMNS))
        case ArchivedNoteChange(update_id=update_id, change=c):
            return (c.topic, update_id, c.action, c.version, c.by)
        case ArchivedNoteMark(key=key):
            return (key,)
        case ArchivedNoteRequest(digest=digest, covered=covered):
            return (digest, covered.topic, covered.refused)
        case ArchivedNoteTask(task_id=task_id):
            return (task_id,)


def _plain(record: NoteRow | NoteVersion, name: str) -> Any:
    value = getattr(record, name)
    if isinstance(value, datetime):
        return encode_time(value)
    return encode_json(value) if name == "message_ids" else value


# ── Checking ─────────────────────────────────────────────────────────────────────────

NOTE_INDEXES = (
    "CREATE INDEX arriving.notes_topic ON notes (topic)",
    "CREATE INDEX arriving.note_versions_number ON note_versions (topic, version)",
)
NOTE_UNIQUE = (
    ("notes", "topic"),
    ("note_versions", "topic, version"),
    ("note_marks", "key"),
    ("note_requests", "digest"),
    ("note_tasks", "task_id"),
)
"""What must not be there twice."""
_NO_NOTE = """
SELECT a.line FROM arriving.{} a WHERE NOT EXISTS
(SELECT 1 FROM arriving.notes n WHERE n.topic = a.topic AND n.version >= a.version) ORDER BY a.n
"""
NOTE_CHECKS: tuple[tuple[str, str], ...] = (
    *(
        ("its note is not in the archive, or has not come to that version", _NO_NOTE.format(table))
        for table in ("note_versions", "note_journal")
    ),
    (
        "the note is not as its latest version says",
        """SELECT n.line FROM arriving.notes n WHERE NOT EXISTS
           (SELECT 1 FROM arriving.note_versions v WHERE v.topic = n.topic
            AND v.version = n.version AND v.body = n.body AND v.description = n.description
            AND (v.action = 'deleted') = (n.deleted_by IS NOT NULL)) ORDER BY n.n""",
    ),
    (
        "the note that it names is not in the archive",
        """SELECT line FROM arriving.note_requests WHERE topic IS NOT NULL
           AND topic NOT IN (SELECT topic FROM arriving.notes) ORDER BY n""",
    ),
)
"""What is wrong, and the query for the lines where it is."""

# ── Moving ───────────────────────────────────────────────────────────────────────────

NOTE_FILLED = "\n    OR ".join(
    f"EXISTS (SELECT 1 FROM {table} WHERE repo = :repo)"
    for table in ("notes", "note_marks", "note_requests", "note_tasks")
)
"""Whether anything of notes is in the repository ``:repo``."""
_OF_NOTE = "FROM arriving.{} a CROSS JOIN arriving.notes t ON t.topic = a.topic ORDER BY a.n"
_VERSION_OF = ", ".join(f"a.{column}" for column in VERSION_COLUMNS)


def _kept(table: str, columns: str) -> str:
    return (
        f"INSERT INTO {table} (repo, {columns}) "
        f"SELECT :repo, {columns} FROM arriving.{table} ORDER BY n"
    )


NOTE_MOVES = (
    f"INSERT INTO notes (no, repo, {_NOTE}) "
    f"SELECT :notes + n, :repo, {_NOTE} FROM arriving.notes ORDER BY n",
    "INSERT INTO note_words (rowid, terms) SELECT :notes + n, terms FROM arriving.notes "
    "WHERE deleted_by IS NULL ORDER BY n",
    f"INSERT INTO note_versions (note, {_VERSION}) SELECT :notes + t.n, {_VERSION_OF} "
    + _OF_NOTE.format("note_versions"),
    "INSERT INTO note_journal (repo, update_id, note, action, version, by) "
    "SELECT :repo, a.update_id, :notes + t.n, a.action, a.version, a.by "
    + _OF_NOTE.format("note_journal"),
    *(_kept(table, NOTE_TABLES[table]) for table in ("note_marks", "note_requests", "note_tasks")),
)

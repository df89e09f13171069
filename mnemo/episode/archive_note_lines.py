"""What the lines of notes say."""

from __future__ import annotations

from typing import Any

from mnemo.episode.archive_notes import (
    ArchivedNoteChange,
    ArchivedNoteMark,
    ArchivedNoteRequest,
    ArchivedNoteTask,
    NoteRecord,
)
from mnemo.episode.archive_values import time_text
from mnemo.note.rows import NoteRow
from mnemo.note.values import NoteVersion

__all__ = ["note_data"]


def note_data(record: NoteRecord) -> dict[str, Any]:
    """The fields of a record of notes."""
    match record:
        case NoteRow():
            return {"kind": "note"} | _note(record)
        case NoteVersion():
            return {"kind": "note_version"} | _version(record)
        case ArchivedNoteChange():
            return {"kind": "note_change"} | _change(record)
        case ArchivedNoteMark(key=key):
            return {"kind": "note_mark", "key": key}
        case ArchivedNoteRequest(digest=digest, covered=covered):
            said = {"topic": covered.topic, "refused": covered.refused}
            return {"kind": "note_request", "digest": digest} | said
        case ArchivedNoteTask(task_id=task_id):
            return {"kind": "note_task", "id": task_id}


def _note(row: NoteRow) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "version": row.version,
        "description": row.description,
        "body": row.body,
        "created_at": time_text(row.created_at),
        "updated_at": time_text(row.updated_at),
        "last_read_at": None if row.last_read_at is None else time_text(row.last_read_at),
        "trust": row.trust,
        "deleted_by": row.deleted_by,
    }


def _version(version: NoteVersion) -> dict[str, Any]:
    return {
        "topic": version.topic,
        "version": version.version,
        "action": version.action,
        "body": version.body,
        "description": version.description,
        "at": time_text(version.at),
        "by": version.by,
        "update": version.update_id,
        "task": version.task_id,
        "session": version.session_id,
        "thread": version.thread_id,
        "messages": version.message_ids,
        "evidence": version.evidence,
        "trust": version.trust,
        "reason": version.reason,
    }


def _change(record: ArchivedNoteChange) -> dict[str, Any]:
    change = record.change
    return {
        "update": record.update_id,
        "topic": change.topic,
        "action": change.action,
        "version": change.version,
        "by": change.by,
    }

"""
Notes as records of an archive: beside the note's row and versions, what is known of updates.

What calls of models cost stays at home, and when an update of a conversation last ended,
which only the present needs. So do vectors, which are owed after an import.
Marks and requests are known by digests of the words themselves, the same in every store:
so after an import nothing is judged or written twice. One of a message that was erased may
be among them; it tells nobody what was said who does not know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from mnemo.note.rows import Covered, NoteRow
from mnemo.note.values import NoteChange, NoteVersion

__all__ = [
    "NOTE_KINDS",
    "ArchivedNoteChange",
    "ArchivedNoteMark",
    "ArchivedNoteRequest",
    "ArchivedNoteTask",
    "NoteRecord",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedNoteChange:
    """What was done to a note; *update_id*: by which update, if by any."""

    update_id: str | None
    change: NoteChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedNoteMark:
    """The mark of a message that an update has judged."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedNoteRequest:
    """What became of an explicit request; it names no note that was erased."""

    digest: str
    covered: Covered


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedNoteTask:
    """A task that was looked back over."""

    task_id: str


NoteRecord: TypeAlias = (
    NoteRow
    | NoteVersion
    | ArchivedNoteChange
    | ArchivedNoteMark
    | ArchivedNoteRequest
    | ArchivedNoteTask
)
NOTE_KINDS: dict[str, type[NoteRecord]] = {
    "note": NoteRow,
    "note_version": NoteVersion,
    "note_change": ArchivedNoteChange,
    "note_mark": ArchivedNoteMark,
    "note_request": ArchivedNoteRequest,
    "note_task": ArchivedNoteTask,
}
"""
The kinds of record, in the order of an archive.

Notes by topic, deleted ones too; versions by topic and number; changes by update and then
as they were made; marks as they were set; the others by what they are known by.
"""

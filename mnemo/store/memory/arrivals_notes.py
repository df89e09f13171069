"""Notes of an archive becoming those of a repository, apart from all others."""

from __future__ import annotations

from typing import TypeVar

from mnemo._text import terms
from mnemo.episode.archive_notes import (
    ArchivedNoteChange,
    ArchivedNoteMark,
    ArchivedNoteRequest,
    ArchivedNoteTask,
    NoteRecord,
)
from mnemo.errors import InvalidArchive
from mnemo.note.rows import NoteRow
from mnemo.note.values import NoteVersion
from mnemo.store.memory.note_state import NotesState

__all__ = ["ArrivingNotes"]

T = TypeVar("T")


class ArrivingNotes:
    """What has arrived of an archive's notes; it goes into *state*."""

    def __init__(self, state: NotesState) -> None:
        self._state = state
        self._lines: dict[str, int] = {}
        self._line = 0

    def add(self, record: NoteRecord, line: int) -> None:
        """Take a record. *Raises* ``InvalidArchive`` if it does not fit those before."""
        self._line, state = line, self._state
        match record:
            case NoteRow():
                self._put(state.rows, record.topic, record)
                self._lines[record.topic] = line
                if record.is_there:
                    state.terms[record.topic] = frozenset(terms(record.text))
            case NoteVersion():
                self._add_version(record)
            case ArchivedNoteChange(update_id=update_id, change=change):
                self._insist_on_note(change.topic, change.version)
                update = update_id or ""
                state.journal[update] = (*state.journal.get(update, ()), change)
            case ArchivedNoteMark(key=key):
                self._put(state.marks, key, None)
            case ArchivedNoteRequest(digest=digest, covered=covered):
                there = covered.topic is None or covered.topic in state.rows
                self._insist(there, "the note that it names is not in the archive")
                self._put(state.covered, digest, covered)
            case ArchivedNoteTask(task_id=task_id):
                self._put(state.done, task_id, None)

    def settle(self) -> None:
        """When all are there. *Raises* ``InvalidArchive``: a note has another latest version."""
        versions = self._state.versions
        for topic, found in versions.items():
            versions[topic] = tuple(sorted(found, key=lambda version: version.version))
        for topic, row in self._state.rows.items():
            self._line = self._lines[topic]
            latest = versions.get(topic, ())[-1:]
            fits = any(_is_of(version, row) for version in latest)
            self._insist(fits, "the note is not as its latest version says")

    def _add_version(self, version: NoteVersion) -> None:
        self._insist_on_note(version.topic, version.version)
        before = self._state.versions.get(version.topic, ())
        double = any(old.version == version.version for old in before)
        self._insist(not double, "it is there twice")
        self._state.versions[version.topic] = (*before, version)

    def _insist_on_note(self, topic: str, version: int) -> None:
        row = self._state.rows.get(topic)
        reason = "its note is not in the archive, or has not come to that version"
        self._insist(row is not None and version <= row.version, reason)

    def _put(self, where: dict[str, T], key: str, value: T) -> None:
        self._insist(key not in where, "it is there twice")
        where[key] = value

    def _insist(self, fits: bool, reason: str) -> None:
        if not fits:
            raise InvalidArchive(self._line, reason)


def _is_of(version: NoteVersion, row: NoteRow) -> bool:
    texts = (version.version, version.body, version.description, version.action == "deleted")
    return texts == (row.version, row.body, row.description, not row.is_there)

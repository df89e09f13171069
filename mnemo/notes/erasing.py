"""What of notes goes with an erasure: versions that rest on what is erased."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from mnemo.log.threads import thread_number
from mnemo.notes.note_rows import VERSION_COLUMNS, VERSIONS
from mnemo.notes.note_writing import NoteWriting
from mnemo.store.damage import Passed
from mnemo.store.tombstones import erased_messages
from mnemo.store.tx import Tx
from mnemo.values.erasure import Selection
from mnemo.values.note_erasure import ForgottenNotes, forget_sources
from mnemo.values.notes import NoteRow

_VERSIONS_OF = f"""
SELECT v.note, n.topic, {", ".join(f"v.{column}" for column in VERSION_COLUMNS)}
FROM notes n $join note_versions v ON v.note = n.no
WHERE n.repo = ? AND v.action <> 'deleted'
AND (v.thread_id = ? OR (v.thread_id IS NULL AND v.session_id = ?) OR ? = 1)
"""
_NO_TIME = datetime.min.replace(tzinfo=UTC)
_LEFT = "SELECT 1 FROM note_versions WHERE note = ?"


class _IntactNotes(NoteWriting):
    """Writes to notes; damaged ones are passed by, and told to *unreadable*."""

    def __init__(self, tx: Tx, repo: int, unreadable: Passed) -> None:
        # Erasing notes writes no time.
        super().__init__(tx, repo, _NO_TIME)
        self._unreadable = unreadable

    def rows(self, topics: Sequence[str] | None = None) -> list[NoteRow]:
        """The intact ones."""
        return self._rows(topics, self._unreadable)


def erase_notes(tx: Tx, repo: int, selection: Selection, unreadable: Passed) -> ForgottenNotes:
    """What notes rest on the erased; after it was erased, and its ids remembered."""

    def erased(thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        thread = thread_number(tx, repo, thread_id)
        return erased_messages(tx, thread, ids) if thread else frozenset()

    intact = _IntactNotes(tx, repo, unreadable)
    notes, versions = _erase_damaged(tx, intact, repo, selection, unreadable)
    after = forget_sources(
        intact,
        thread_id=selection.whole_thread,
        session_id=selection.whole_session,
        erased=erased,
    )
    return replace(after, notes=after.notes + notes, versions=after.versions + versions)


def _erase_damaged(
    tx: Tx,
    shelf: NoteWriting,
    repo: int,
    selection: Selection,
    unreadable: Passed,
) -> tuple[int, int]:
    """
    Delete versions that cannot be decoded; give how many notes and versions went.

    Those go that stem from the erased alone, by their columns. What stems from a thread or
    session of which a part is erased is *unreadable*.
    """
    notes, versions = 0, 0
    stems = (repo, selection.thread_id, selection.session_id, selection.before is not None)
    for note, *row in tx.run(_VERSIONS_OF, stems).fetchall():
        damaged: Passed = []
        VERSIONS.all([row], damaged)
        if not damaged:
            continue
        if selection.whole_thread is None and selection.whole_session is None:
            unreadable += damaged
            continue
        shelf.drop(row[0], row[1])
        versions += 1
        if tx.run(_LEFT, (note,)).fetchone() is None:
            shelf.erase(row[0])
            notes += 1
    return notes, versions

"""
What forgetting conversations does to notes that were written from them.

A version names the thread and messages that its words were found in. One that rests on
nothing else goes; a note that rests on other sources as well stays, without the quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mnemo.log.threads import thread_number
from mnemo.notes.note_rows import VERSION_COLUMNS, VERSIONS
from mnemo.notes.note_writing import NoteWriter
from mnemo.store.damage import Passed
from mnemo.store.tombstones import erased_messages
from mnemo.store.tx import Tx
from mnemo.values.erasure import Selection
from mnemo.values.note_rules import absorbed_by
from mnemo.values.notes import ErasedNoteRows, NoteRow, NoteVersion

_VERSIONS_OF = f"""
SELECT v.note, n.topic, {", ".join(f"v.{column}" for column in VERSION_COLUMNS)}
FROM notes n $join note_versions v ON v.note = n.no
WHERE n.repo = ? AND v.action <> 'deleted'
AND (v.thread_id = ? OR (v.thread_id IS NULL AND v.session_id = ?) OR ? = 1)
"""
_NO_TIME = datetime.min.replace(tzinfo=UTC)
_LEFT = "SELECT 1 FROM note_versions WHERE note = ?"


class _IntactNotes(NoteWriter):
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
    shelf: NoteWriter,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenNotes:
    """
    What an erasure did to notes.

    Attributes:
        notes: Of which nothing is left.
        versions: Deleted, those of these notes included.
        mixed: Topics of notes that rest on other sources, too: what was said in the erased
            ones may still stand in their text.
    """

    notes: int = 0
    versions: int = 0
    mixed: tuple[str, ...] = ()
    fulltext_rows: int = 0
    vectors: int = 0


def forget_sources(
    tx: NoteWriter,
    *,
    thread_id: str | None = None,
    session_id: str | None = None,
    erased: Callable[[str, Sequence[str]], frozenset[str]],
) -> ForgottenNotes:
    """
    Forget what rests on erased messages, in the transaction that erases them.

    Args:
        thread_id: A thread that is erased whole, whether or not its messages were kept.
        session_id: A session that is erased whole; of versions that name no thread.
        erased: Those of a thread's message ids that are erased, by whatever.
    """

    def is_gone(version: NoteVersion) -> bool:
        if version.thread_id is None:
            return session_id is not None and version.session_id == session_id
        ids = version.message_ids
        if version.thread_id == thread_id:
            return True
        return bool(ids) and len(erased(version.thread_id, ids)) == len(set(ids))

    done = ForgottenNotes()
    for topic in tx.topics(deleted=True):
        versions = tx.versions(topic, intact=True)
        gone = [v for v in versions if v.action != "deleted" and is_gone(v)]
        kept = [v for v in versions if v.action != "deleted" and not is_gone(v)]
        if gone and not kept:
            done = _erased(tx, topic, done)
        elif gone or any(_touched(v, erased) for v in kept):
            done = _thinned(tx, topic, gone, kept, erased, done)
    return done


def erase_note(tx: NoteWriter, topic: str) -> ErasedNoteRows:
    """Delete a note with all its versions, and its name where others were absorbed by it."""
    erased = tx.erase(topic)
    for other in tx.topics(deleted=True):
        for version in tx.versions(other, intact=True):
            if version.reason == absorbed_by(topic):
                tx.rewrite(replace(version, reason=""))
    return erased


def _erased(tx: NoteWriter, topic: str, done: ForgottenNotes) -> ForgottenNotes:
    rows = erase_note(tx, topic)
    return replace(
        done,
        notes=done.notes + 1,
        versions=done.versions + rows.versions,
        fulltext_rows=done.fulltext_rows + rows.fulltext_rows,
        vectors=done.vectors + rows.vectors,
    )


def _touched(version: NoteVersion, erased: Callable[[str, Sequence[str]], frozenset[str]]) -> bool:
    thread, ids = version.thread_id, version.message_ids
    return thread is not None and bool(ids) and bool(erased(thread, ids))


def _thinned(
    tx: NoteWriter,
    topic: str,
    gone: Sequence[NoteVersion],
    kept: Sequence[NoteVersion],
    erased: Callable[[str, Sequence[str]], frozenset[str]],
    done: ForgottenNotes,
) -> ForgottenNotes:
    """Drop what rests on the erased alone, but for the present text; blank the quotes."""
    row = next(iter(tx.rows([topic])), None)
    dropped = [version for version in gone if not _is_present(row, version)]
    for version in dropped:
        tx.drop(topic, version.version)
    for version in gone:
        if _is_present(row, version):
            tx.rewrite(replace(version, evidence="", message_ids=()))
    for version in kept:
        if version.thread_id is not None and _touched(version, erased):
            left = set(version.message_ids) - erased(version.thread_id, version.message_ids)
            ids = tuple(id for id in version.message_ids if id in left)
            tx.rewrite(replace(version, evidence="", message_ids=ids))
    return replace(
        done,
        versions=done.versions + len(dropped),
        mixed=(*done.mixed, topic) if row is not None and row.is_there else done.mixed,
    )


def _is_present(row: NoteRow | None, version: NoteVersion) -> bool:
    return row is not None and row.is_there and version.version == row.version

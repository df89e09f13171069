"""All that one selection takes, of steps and of threads; one transaction, in the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from mnemo.episode.erasure import Erased, Selection
from mnemo.note.forgetting import ForgottenNotes, forget_sources
from mnemo.note.rows import NoteRow
from mnemo.runtime.clock import Breather
from mnemo.store.sqlite.damage import Passed, Rows
from mnemo.store.sqlite.erase import erase, taken
from mnemo.store.sqlite.erase_messages import erase_messages, erase_thread
from mnemo.store.sqlite.note_rows import VERSION_COLUMNS, VERSIONS
from mnemo.store.sqlite.notes import NoteWriting
from mnemo.store.sqlite.rows import repo_row
from mnemo.store.sqlite.texts import merge_texts
from mnemo.store.sqlite.threads import thread_number
from mnemo.store.sqlite.tombs import erased_messages
from mnemo.store.sqlite.traces import Traces
from mnemo.transcript.derived import ErasedRows

__all__ = ["forget"]

_SAID = """
SELECT m.thread, m.seq, coalesce(m.at, m.recorded_at), t.id, m.id
FROM threads t CROSS JOIN messages m ON m.thread = t.no
WHERE t.repo = ? AND (? IS NULL OR t.id = ?) ORDER BY t.no, m.seq
"""

_STEMMING = f"""
SELECT v.note, n.topic, {", ".join(f"v.{column}" for column in VERSION_COLUMNS)}
FROM notes n CROSS JOIN note_versions v ON v.note = n.no
WHERE n.repo = ?1 AND v.action <> 'deleted'
AND (v.thread_id = ?2 OR (v.thread_id IS NULL AND v.session_id = ?3) OR ?4)
"""
_LEFT = "SELECT 1 FROM note_versions WHERE note = ?"

# Erasing notes writes no time.
_NO_TIME = datetime.min.replace(tzinfo=UTC)


def forget(
    connection: sqlite3.Connection, repo_id: str, selection: Selection
) -> tuple[Erased, Traces]:
    """Erase what is selected; give what was done and by what its traces would be known."""
    unreadable: Passed = []
    erased, traces = erase(connection, repo_id, selection, unreadable)
    repo = repo_row(connection, repo_id)[0]
    rows = _erase_said(connection, repo, selection, traces, unreadable)
    notes = _forget_notes(connection, repo, selection, unreadable)
    report = replace(
        erased.report,
        notes=notes.notes,
        note_versions=notes.versions,
        mixed_notes=notes.mixed,
        unreadable=tuple(dict.fromkeys(f"{one.table} {one.key}" for one in unreadable)),
        messages=rows.messages,
        compactions=rows.compactions,
        snapshots=rows.snapshots,
        pins=rows.pins,
        goals=rows.goals,
        vectors=erased.report.vectors + rows.vectors + notes.vectors,
        fulltext_rows=erased.report.fulltext_rows + rows.fulltext_rows + notes.fulltext_rows,
    )
    if report.fulltext_rows:
        merge_texts(connection, repo)
    return replace(erased, report=report), traces


class _Around(NoteWriting):
    """Writes to notes; damaged ones are passed by, and told to *unreadable*."""

    def __init__(self, connection: sqlite3.Connection, repo: int, unreadable: Passed) -> None:
        super().__init__(connection, repo, _NO_TIME)
        self._unreadable = unreadable

    def rows(self, topics: Sequence[str] | None = None) -> list[NoteRow]:
        """The intact ones."""
        return self._rows(topics, self._unreadable)


def _forget_notes(
    connection: sqlite3.Connection, repo: int, selection: Selection, unreadable: Passed
) -> ForgottenNotes:
    """What notes rest on the erased; after it was erased, and its ids remembered."""

    def erased(thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        thread = thread_number(connection, repo, thread_id)
        return erased_messages(connection, thread, ids) if thread else frozenset()

    tx = _Around(connection, repo, unreadable)
    notes, versions = _forget_damaged(tx, connection, repo, selection, unreadable)
    after = forget_sources(
        tx,
        thread_id=selection.whole_thread,
        session_id=selection.whole_session,
        erased=erased,
    )
    return replace(after, notes=after.notes + notes, versions=after.versions + versions)


def _forget_damaged(
    tx: _Around, connection: sqlite3.Connection, repo: int, selection: Selection, unreadable: Passed
) -> tuple[int, int]:
    """
    Delete versions that cannot be decoded; give how many notes and versions went.

    Those go that stem from the erased alone, by their columns. What stems from a thread or
    session of which a part is erased is *unreadable*.
    """
    notes, versions = 0, 0
    stems = (repo, selection.thread_id, selection.session_id, selection.before is not None)
    for note, *row in connection.execute(_STEMMING, stems).fetchall():
        damaged: Passed = []
        VERSIONS.all([row], damaged)
        if not damaged:
            continue
        if selection.whole_thread is None and selection.whole_session is None:
            unreadable += damaged
            continue
        tx.drop(row[0], row[1])
        versions += 1
        if connection.execute(_LEFT, (note,)).fetchone() is None:
            tx.erase(row[0])
            notes += 1
    return notes, versions


def _erase_said(
    connection: sqlite3.Connection,
    repo: int,
    selection: Selection,
    traces: Traces,
    unreadable: Passed,
) -> ErasedRows:
    if not selection.takes_messages:
        return ErasedRows()
    if selection.whole_thread is not None:
        thread = thread_number(connection, repo, selection.whole_thread)
        return erase_thread(connection, repo, thread, traces) if thread else ErasedRows()
    places = _selected(connection, repo, selection, unreadable)
    return erase_messages(connection, repo, places, traces) if places else ErasedRows()


def _selected(
    connection: sqlite3.Connection, repo: int, selection: Selection, unreadable: Passed
) -> list[tuple[int, int]]:
    breather = Breather()
    places = []
    id = selection.thread_id
    read = Rows("messages", "i i s s s", partial(taken, selection, 2), key=(3, 4))
    for row in connection.execute(_SAID, (repo, id, id)):
        if any(read.all([row], unreadable)):
            places.append(row[:2])
        breather.breathe()
    return places

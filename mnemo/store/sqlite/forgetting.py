"""All that one selection takes, of steps and of threads; one transaction, in the writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from mnemo._clock import Breather
from mnemo.episode.erasure import Erased, Selection
from mnemo.note.forgetting import ForgottenNotes, forget_sources
from mnemo.store.sqlite.erase import erase
from mnemo.store.sqlite.erase_messages import erase_messages, erase_thread
from mnemo.store.sqlite.notes import NoteWriting
from mnemo.store.sqlite.rows import repo_row
from mnemo.store.sqlite.texts import merge_texts
from mnemo.store.sqlite.threads import thread_number
from mnemo.store.sqlite.tombs import erased_messages
from mnemo.store.sqlite.traces import Traces
from mnemo.transcript.derived import ErasedRows

__all__ = ["forget"]

_SAID = """
SELECT m.thread, m.seq, coalesce(m.at, m.recorded_at), t.id
FROM threads t CROSS JOIN messages m ON m.thread = t.no
WHERE t.repo = ? AND (? IS NULL OR t.id = ?) ORDER BY t.no, m.seq
"""

# Erasing notes writes no time.
_NO_TIME = datetime.min.replace(tzinfo=UTC)


def forget(
    connection: sqlite3.Connection, repo_id: str, selection: Selection
) -> tuple[Erased, Traces]:
    """Erase what is selected; give what was done and by what its traces would be known."""
    erased, traces = erase(connection, repo_id, selection)
    repo = repo_row(connection, repo_id)[0]
    rows = _erase_said(connection, repo, selection, traces)
    notes = _forget_notes(connection, repo, selection)
    report = replace(
        erased.report,
        notes=notes.notes,
        note_versions=notes.versions,
        mixed_notes=notes.mixed,
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


def _forget_notes(
    connection: sqlite3.Connection, repo: int, selection: Selection
) -> ForgottenNotes:
    """What notes rest on the erased; after it was erased, and its ids remembered."""

    def erased(thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        thread = thread_number(connection, repo, thread_id)
        return erased_messages(connection, thread, ids) if thread else frozenset()

    return forget_sources(
        NoteWriting(connection, repo, _NO_TIME),
        thread_id=selection.whole_thread,
        session_id=selection.whole_session,
        erased=erased,
    )


def _erase_said(
    connection: sqlite3.Connection, repo: int, selection: Selection, traces: Traces
) -> ErasedRows:
    if not selection.takes_messages:
        return ErasedRows()
    if selection.whole_thread is not None:
        thread = thread_number(connection, repo, selection.whole_thread)
        return erase_thread(connection, repo, thread, traces) if thread else ErasedRows()
    places = _selected(connection, repo, selection)
    return erase_messages(connection, repo, places, traces) if places else ErasedRows()


def _selected(
    connection: sqlite3.Connection, repo: int, selection: Selection
) -> list[tuple[int, int]]:
    takes, breather = selection.takes(), Breather()
    places = []
    id = selection.thread_id
    for thread, seq, at, thread_id in connection.execute(_SAID, (repo, id, id)):
        if takes(datetime.fromisoformat(at), thread_id):
            places.append((thread, seq))
        breather.breathe()
    return places

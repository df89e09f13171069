"""Erasing messages in memory, with what was derived from their ranges, or whole threads."""

from __future__ import annotations

from dataclasses import fields, replace

from mnemo.episode.erasure import Selection
from mnemo.store.memory.threads import ThreadState
from mnemo.store.memory.writing import Writing
from mnemo.transcript.derived import Compaction, ErasedRows, Goal, Pin, Snapshot

__all__ = ["erase_messages"]


def erase_messages(writing: Writing, selection: Selection) -> ErasedRows:
    """Erase the messages that *selection* takes; a thread that it takes whole begins anew."""
    if not selection.takes_messages:
        return ErasedRows()
    if selection.whole_thread is not None:
        return _purge(writing, selection.whole_thread)
    ids = list(writing.repo.threads) if selection.thread_id is None else [selection.thread_id]
    return _sum([writing.erase(id, _selected(writing.state_of(id), selection)) for id in ids])


def _selected(state: ThreadState, selection: Selection) -> list[int]:
    takes = selection.takes()
    messages = (entry.message for entry in state.messages.values())
    return [m.seq for m in messages if takes(m.at or m.recorded_at, m.thread_id)]


def _purge(writing: Writing, thread_id: str) -> ErasedRows:
    state = writing.state_of(thread_id)
    snapshots = [s for s in state.shelf(Snapshot).values.values() if isinstance(s, Snapshot)]
    counts = {kind: len(state.shelf(kind).values) for kind in (Compaction, Pin, Goal)}
    rest = [value for shelf in state.shelves.values() for value in shelf.values.values()]
    writing.unshow({(thread_id, snapshot.id) for snapshot in snapshots})
    texts = sum(bool(snapshot.text) for snapshot in snapshots)
    writing.drop(*rest)
    erased = writing.erase(thread_id, list(state.messages))
    if thread_id in writing.repo.threads:
        row, start = state.row, state.row.next_seq
        writing.keep(replace(row, epoch=row.epoch + 1, epoch_start=start, boundary=start))
    return replace(
        erased,
        compactions=counts[Compaction],
        snapshots=len(snapshots),
        pins=counts[Pin],
        goals=counts[Goal],
        fulltext_rows=erased.fulltext_rows + texts,
    )


def _sum(rows: list[ErasedRows]) -> ErasedRows:
    names = [f.name for f in fields(ErasedRows)]
    return ErasedRows(**{name: sum(getattr(one, name) for one in rows) for name in names})

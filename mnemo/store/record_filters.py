"""Filters of keyword search: which of the rows that match by their words are let through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from mnemo.store.codec import decode_object, decode_time
from mnemo.store.damage import Passed, Rows, log_passed
from mnemo.store.record_rows import PARTS, Lean
from mnemo.store.rows import chunks, holes
from mnemo.store.tx import Tx
from mnemo.values.records import RecordQuery

__all__ = ["let_through"]

BATCH = 256
"""Rows whose evidence is read at once."""
_STEPS = """
SELECT t.ordinal, s.id, t.thread, t.actor, t.at, t.metadata
FROM steps t JOIN sessions s ON s.no = t.session WHERE t.ordinal IN ({})
"""
_MESSAGES = """
SELECT m.no, t.id, m.kind, m.role, coalesce(m.actor, m.name), coalesce(m.at, m.recorded_at),
       m.metadata
FROM messages m JOIN threads t ON t.no = m.thread WHERE m.no IN ({})
"""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What a row is filtered by; see ``Filters.holds``."""

    kind: str
    at: datetime | None
    actors: Sequence[str]
    session_ids: Sequence[str]
    thread_id: str | None
    metadata: Mapping[str, Any]


_STEP_ROWS = Rows(
    "steps",
    "i s s? s s s?",
    lambda row: (*row[:4], decode_time(row[4]), decode_object(row[5] or "{}")),
)
_MESSAGE_ROWS = Rows(
    "messages",
    "i s s s s? s s?",
    lambda row: (*row[:5], decode_time(row[5]), decode_object(row[6] or "{}")),
)


def let_through(tx: Tx, leans: Iterable[Lean], wanted: RecordQuery) -> Iterator[Lean]:
    """The rows among *leans* that match the filters and kinds of *wanted*, in their order."""
    rows = iter(leans)
    if wanted.filters.is_open and wanted.kinds is None:
        yield from rows
        return
    while batch := list(islice(rows, BATCH)):
        evidence = _evidence(tx, batch, wanted)
        yield from (lean for lean in batch if _matches(evidence.get(lean.row), wanted))


def _matches(evidence: _Evidence | None, wanted: RecordQuery) -> bool:
    if evidence is None or (wanted.kinds is not None and evidence.kind not in wanted.kinds):
        return False
    return wanted.filters.holds(
        at=evidence.at,
        actors=evidence.actors,
        session_ids=evidence.session_ids,
        thread_id=evidence.thread_id,
        metadata=evidence.metadata,
    )


def _evidence(tx: Tx, batch: Sequence[Lean], wanted: RecordQuery) -> dict[int, _Evidence]:
    """By row of the full text: what it is filtered by; damaged rows are passed by."""
    passed: Passed = []
    found = {
        lean.row: _Evidence("snapshot", lean.at, (), (), lean.stream, {})
        for lean in batch
        if lean.row & 3 == 3
    }
    for ordinal, session, thread, actor, at, metadata in _read(
        tx, _STEPS, _STEP_ROWS, {lean.row >> 2 for lean in batch if lean.row & 3 < 2}, passed
    ):
        for side, kind in enumerate(PARTS):
            actors = (actor, wanted.agent_name) if side else (actor,)
            found[4 * ordinal + side] = _Evidence(kind, at, actors, (session,), thread, metadata)
    for no, thread, kind, role, named, at, metadata in _read(
        tx, _MESSAGES, _MESSAGE_ROWS, {lean.row >> 2 for lean in batch if lean.row & 3 == 2}, passed
    ):
        own = named or (wanted.default_actor if role == "user" else role)
        actors = (own, wanted.agent_name) if role == "assistant" else (own,)
        found[4 * no + 2] = _Evidence(kind, at, actors, (), thread, metadata)
    log_passed(passed)
    return found


def _read(
    tx: Tx, statement: str, rows: Rows[Any], numbers: Iterable[int], passed: Passed
) -> Iterator[Any]:
    for some in chunks(sorted(numbers)):
        yield from rows.all(tx.run(statement.format(holes(some)), some), passed)

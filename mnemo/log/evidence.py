"""Filters of keyword search and of listings, checked on the evidence as it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from mnemo.log.record_rows import PARTS, Lean
from mnemo.runtime.clock import moved
from mnemo.store.codec import decode_object, decode_time, encode_json, utc_text
from mnemo.store.damage import Passed, Rows, log_passed
from mnemo.store.rows import chunks, holes, listed
from mnemo.store.tx import Tx
from mnemo.values.filters import Filters
from mnemo.values.records import RecordQuery

MOST_NARROWED = 64
"""Texts of a condition that a statement looks for; with more, rows are looked at instead (S)."""
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
# What a fact or an instruction rests on. Without a step, or worded by hand, it is also its own
# evidence, which is in its body.
_BEHIND = """
SELECT x.value, CASE WHEN {own} THEN NULL ELSE t.ordinal END,
       s.id, t.thread, t.actor, t.at, t.metadata
FROM $numbers x $join nodes n ON n.no = x.value
LEFT JOIN edges e ON e.source = n.no AND e.kind = 'provenance'
LEFT JOIN nodes p ON p.no = e.target
LEFT JOIN steps t ON t.repo = p.repo AND t.node_id = p.id
LEFT JOIN sessions s ON s.no = t.session
WHERE {own} OR ({condition})
"""
# The claims that rest on the steps ``t``, or on what was applied as said in a session.
_RESTING = """
SELECT e.source FROM {steps} $join nodes p ON p.repo = t.repo AND p.id = t.node_id
$join edges e ON e.target = p.no AND e.kind = 'provenance' WHERE {of}
"""
_OF_SESSION = _RESTING.format(
    steps="""sessions s $join episodes x ON x.session = s.no $join steps t ON t.episode = x.no""",
    of="s.repo = ? AND s.id = ?",
)
_OF_THREAD = _RESTING.format(steps="steps t", of="t.repo = ? AND t.thread = ?")
_APPLIED = """
SELECT e.source FROM nodes p $join edges e ON e.target = p.no AND e.kind = 'provenance'
WHERE p.repo = ? AND p.type = 'episodic' AND replace(p.body, ?, '') <> p.body
"""
_OWN = "(t.ordinal IS NULL OR n.body LIKE '%\"edits\"%')"
# A time is stored with its offset, by which it differs from UTC by less than a day.
_OFFSET = timedelta(days=1)


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
_BEHIND_ROWS: Rows[tuple[int, Sequence[Any] | None]] = Rows(
    "steps", "i i? s? s? s? s? s?", lambda row: (row[0], None if row[1] is None else row[2:])
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


def resting_on(tx: Tx, repo: int, filters: Filters) -> set[int] | None:
    """The numbers of all claims of the session or thread of *filters*; ``None``: of any."""
    if filters.session_id is None and filters.thread_id is None:
        return None
    found: list[set[int]] = []
    if (thread := filters.thread_id) is not None:
        found.append({no for (no,) in tx.run(_OF_THREAD, (repo, thread))})
    if (session := filters.session_id) is not None:
        either = ((_OF_SESSION, session), (_OF_THREAD, session), (_APPLIED, encode_json(session)))
        found.append({no for statement, id in either for (no,) in tx.run(statement, (repo, id))})
    return set.intersection(*found)


def may_match(tx: Tx, claims: Sequence[int], filters: Filters) -> list[int]:
    """
    Those of *claims*, by number, whose evidence matches *filters*, in their order.

    Those that are evidence of their own are among them.
    """
    if filters.is_open:
        return list(claims)
    conditions, values = _narrowing(filters)
    statement = _BEHIND.format(own=_OWN, condition=" AND ".join(conditions))
    found = {
        claim
        for claim, step in _BEHIND_ROWS.all(tx.run(statement, [listed(claims), *values]))
        if step is None or _step_matches(filters, step)
    }
    return [claim for claim in claims if claim in found]


def _narrowing(filters: Filters) -> tuple[list[str], list[str]]:
    """Conditions that every step fulfils that matches *filters*, and their values."""
    conditions, values = ["t.ordinal IS NOT NULL"], []
    for one in filters.where.conditions:
        texts = [encode_json(value) for value in one.any_of or () if isinstance(value, str)]
        if 0 < len(texts) <= MOST_NARROWED and len(texts) == len(one.any_of or ()):
            holds = ["replace(t.metadata, ?, '') <> t.metadata"] * len(texts)
            conditions.append(f"({' OR '.join(holds)})")
            values += texts
    if filters.thread_id is not None:
        conditions.append("t.thread = ?")
        values.append(filters.thread_id)
    if filters.session_id is not None:
        conditions.append("(s.id = ? OR t.thread = ?)")
        values += [filters.session_id] * 2
    bounds = ((">=", filters.window.since, -_OFFSET), ("<=", filters.window.until, _OFFSET))
    for compared, bound, offset in bounds:
        if bound is not None:
            conditions.append(f"t.at {compared} ?")
            values.append(utc_text(moved(bound, offset)))
    return conditions, values


def _step_matches(filters: Filters, step: Sequence[Any]) -> bool:
    session, thread, actor, at, metadata = step
    return filters.holds(
        at=None if filters.window.is_open else decode_time(at),
        actors=(actor,) if actor else (),
        session_ids=(session,),
        thread_id=thread,
        metadata=decode_object(metadata or "{}") if filters.where.conditions else {},
    )


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

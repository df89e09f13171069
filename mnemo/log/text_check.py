"""The check that the full text agrees with the records that it is the text of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from mnemo.errors import StoreCorrupt
from mnemo.runtime.clock import Breather
from mnemo.store.tables import MESSAGE_COLUMNS, MESSAGES
from mnemo.store.texts import analysed
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_time
from mnemo.values.messages import SAID, searchable_text

_Told: TypeAlias = tuple[str, str, datetime, bool]
"""What a record is named, its text, when it was said, and whether it has to be in the full text."""

_STEPS = """
SELECT {columns}, t.repo, 4 * t.ordinal + x.side, t.node_id,
       CASE x.side WHEN 0 THEN t.observation ELSE t.action END, t.at
FROM steps t CROSS JOIN (SELECT 0 AS side UNION ALL SELECT 1) x
LEFT JOIN texts f ON f.no = 4 * t.ordinal + x.side AND $also f.repo = t.repo
"""
_SNAPSHOTS = """
SELECT {columns}, t.repo, 4 * s.no + 3, s.id, s.text, s.at
FROM snapshots s $join threads t ON t.no = s.thread AND $also t.repo = s.repo
LEFT JOIN texts f ON f.no = 4 * s.no + 3 AND $also f.repo = s.repo
"""
_MESSAGES = f"""
SELECT {{columns}}, m.repo, 4 * m.no + 2, {MESSAGE_COLUMNS}
FROM messages m $join threads t ON t.no = m.thread AND $also t.repo = m.repo
LEFT JOIN texts f ON f.no = 4 * m.no + 2 AND $also f.repo = m.repo
"""
# A CASE, so that each row is looked for in one table.
_LOST = """
SELECT count(*), min(f.no) FROM texts f WHERE NOT EXISTS (SELECT 1 FROM repos r WHERE r.no = f.repo)
OR 1 <> CASE f.no % 4
    WHEN 2 THEN (SELECT count(*) FROM messages m WHERE m.no = f.no / 4 AND $also m.repo = f.repo)
    WHEN 3 THEN (SELECT count(*) FROM snapshots s $join threads t ON t.no = s.thread
                 AND $also t.repo = s.repo WHERE s.no = f.no / 4 AND $also s.repo = f.repo)
    ELSE (SELECT count(*) FROM steps t WHERE t.ordinal = f.no / 4 AND $also t.repo = f.repo) END
"""
_MISCOUNTED = """
SELECT count(*), min(r.id) FROM repos r LEFT JOIN (
    SELECT repo, count(*) AS texts, sum(length) AS words, count(lowered) AS unspaced,
           sum($greatest(length(lowered) - 2, 0)) AS triples
    FROM texts GROUP BY repo) f ON f.repo = r.no
WHERE r.text_count <> coalesce(f.texts, 0) OR r.text_words <> coalesce(f.words, 0)
OR r.unspaced_count <> coalesce(f.unspaced, 0) OR r.unspaced_triples <> coalesce(f.triples, 0)
"""
_MISFIT = "texts whose words or triples do not fit"


def check_texts(tx: Tx) -> Iterator[str]:
    yield from _differing(tx, _STEPS, _told, "steps without their full-text row")
    yield from _differing(tx, _SNAPSHOTS, _told, "snapshots without their full-text row")
    unfit = "messages whose full-text row does not fit"
    yield from _differing(tx, _MESSAGES, _said, unfit, unfit)
    for what, query in (
        ("full-text rows without their record", _LOST),
        ("repositories whose texts are not counted right", _MISCOUNTED),
    ):
        count, example = tx.run(query).fetchone()
        if count:
            yield f"{count} {what}, e.g. {example}"


def _told(row: Sequence[Any]) -> _Told:
    return row[0], row[1], decode_time(row[2]), True


def _said(row: Sequence[Any]) -> _Told:
    """What a tool was asked or answered may be in the full text, or not."""
    message = MESSAGES.rows.one(row)
    text = searchable_text(message, tools=True)
    return str(message.id), text, message.said_at, message.kind in SAID


def _differing(
    tx: Tx,
    query: str,
    read: Callable[[Sequence[Any]], _Told],
    missing: str,
    misfit: str = _MISFIT,
) -> Iterator[str]:
    """The problems of the records of *query*; what *read* refuses is named by the check of rows."""
    names = tx.dialect.text_columns
    at, width, breather = names.index("at"), len(names), Breather()
    found: dict[str, list[str]] = {}
    for row in tx.run(query.format(columns=", ".join(f"f.{name}" for name in names))):
        breather.breathe()
        stored, (repo, number) = list(row[:width]), row[width : width + 2]
        try:
            name, text, said_at, is_searched = read(row[width + 2 :])
            (expected,) = tx.dialect.text_rows([analysed(repo, (number, text, said_at))])
        except (StoreCorrupt, ValueError, TypeError):
            continue
        if stored[0] is None:
            problem = missing if text and is_searched else None
        elif not text or [*stored[:at], *stored[at + 1 :]] != [*expected[:at], *expected[at + 1 :]]:
            problem = misfit
        else:
            problem = (
                None if stored[at] == expected[at] else "texts of another time than their record"
            )
        if problem:
            found.setdefault(problem, []).append(name)
    yield from (f"{len(names)} {problem}, e.g. {names[0]}" for problem, names in found.items())

"""The full text of records: what its rows are the text of, and a check that they agree."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mnemo.errors import StoreCorrupt
from mnemo.runtime.clock import Breather
from mnemo.store.tables import MESSAGE_COLUMNS, MESSAGES
from mnemo.store.tx import Tx
from mnemo.values.messages import SAID, searchable_text

LEAN = """
    coalesce(p.at, m.at, n.at), coalesce(s.id, t.id), coalesce(2 * p.ordinal + ($row & 1),
    m.seq, n.from_seq), coalesce(t.ttl_s, q.ttl_s), coalesce(m.recorded_at, o.recorded_at, (
        SELECT o.recorded_at FROM messages o WHERE o.thread = n.thread
        AND o.seq BETWEEN n.from_seq AND n.to_seq ORDER BY o.seq LIMIT 1)),
    coalesce(q.id, ''), coalesce(o.seq, -1), o.no
"""
"""What ``Lean`` has behind row and relevance: enough to rank a row, and to see if it lives."""
BASE = """
LEFT JOIN steps p ON p.ordinal = CASE WHEN $row & 3 < 2 THEN $row >> 2 END
LEFT JOIN sessions s ON s.no = p.session
LEFT JOIN messages m ON m.no = CASE $row & 3 WHEN 2 THEN $row >> 2 END
LEFT JOIN snapshots n ON n.no = CASE $row & 3 WHEN 3 THEN $row >> 2 END
LEFT JOIN threads t ON t.no = coalesce(m.thread, n.thread)
LEFT JOIN threads q ON q.repo = p.repo AND q.id = p.thread
LEFT JOIN messages o ON o.thread = q.no AND o.id = p.message
"""
"""What the rows of a full text *f* are the text of; *o* is the message that a step repeats."""


def scanned(count: int, limit: int) -> Sequence[str]:
    """Conditions for the rows of *count* texts; of steps, messages and snapshots, if too many."""
    return ("TRUE",) if count <= limit else ("$row & 3 < 2", "$row & 3 = 2", "$row & 3 = 3")


_STEPS = """
SELECT count(*), min(t.node_id) FROM repos r $join steps t ON t.repo = r.no
WHERE {of} AND
((t.observation <> '' AND NOT EXISTS
    (SELECT 1 FROM {words} f WHERE $row = 4 * t.ordinal AND f.text = t.observation))
OR (t.action <> '' AND NOT EXISTS
    (SELECT 1 FROM {words} f WHERE $row = 4 * t.ordinal + 1 AND f.text = t.action)))
"""
_SNAPSHOTS = """
SELECT count(*), min(s.id) FROM repos r $join threads t ON t.repo = r.no
$join snapshots s ON s.thread = t.no WHERE {of} AND NOT EXISTS
    (SELECT 1 FROM {words} f WHERE $row = 4 * s.no + 3 AND f.text = s.text)
"""
# A CASE, so that each row is looked for in one table.
_LOST = """
SELECT count(*), min($row) FROM {words} f WHERE NOT EXISTS
(SELECT 1 FROM repos r WHERE {of_text} AND r.no = CASE $row % 4
    WHEN 2 THEN (SELECT repo FROM messages WHERE no = $row / 4)
    WHEN 3 THEN (SELECT t.repo FROM snapshots s $join threads t ON t.no = s.thread
                 WHERE s.no = $row / 4)
    ELSE (SELECT repo FROM steps WHERE ordinal = $row / 4) END)
"""
_MESSAGES = f"""
SELECT {MESSAGE_COLUMNS}, f.text FROM repos r $join messages m ON m.repo = r.no
$join threads t ON t.no = m.thread LEFT JOIN {{words}} f ON $row = 4 * m.no + 2
WHERE {{of}}
"""


def misfits(tx: Tx, words: str, of: str, of_text: str) -> Iterator[str]:
    """
    Records without their row in the table *words*, and rows without their record.

    *of* and *of_text* are conditions for the repository ``r`` of *words*, or of the text ``f``.
    """

    def rows(query: str) -> Iterable[Sequence[Any]]:
        return tx.run(query.format(words=words, of=of, of_text=of_text))

    yield from told("steps without their full-text row", rows(_STEPS))
    yield from told("snapshots without their full-text row", rows(_SNAPSHOTS))
    yield from told("full-text rows without their record", rows(_LOST))
    yield from counted("messages whose full-text row does not fit", rows(_MESSAGES), _misfit)


def told(what: str, rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The problem of *rows* with a count and an example, if there is one."""
    for count, example in rows:
        if count:
            yield f"{count} {what}, e.g. {example}"


def counted(
    what: str,
    rows: Iterable[Sequence[Any]],
    wrong: Callable[[Sequence[Any]], str | int | None],
) -> Iterator[str]:
    """The problem of those *rows* that *wrong* names, if there are any."""
    breather, found = Breather(), []
    for row in rows:
        breather.breathe()
        if (example := wrong(row)) is not None:
            found.append(example)
    if found:
        yield f"{len(found)} {what}, e.g. {found[0]}"


def _misfit(row: Sequence[Any]) -> str | None:
    """The id of a message that is not searched by what it should be."""
    try:
        message, indexed = MESSAGES.rows.one(row), row[-1]
    except StoreCorrupt:
        return None  # the check of rows names it
    is_said = message.kind in SAID
    text = searchable_text(message, tools=True)
    fits = indexed == (text or None)
    return None if fits or (not is_said and indexed is None) else message.id

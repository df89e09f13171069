"""What ``check`` asks of SQLite itself: its file, its catalogue, and the full text by its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mnemo.errors import StoreCorrupt
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import composed, has_unspaced
from mnemo.store.messages import COLUMNS, MESSAGES
from mnemo.store.sqlite.texts import TextTables, all_text_tables
from mnemo.store.tx import Column, Tx
from mnemo.values.messages import SAID, searchable_text

__all__ = ["check_texts", "columns", "damage"]

# The full text has its own check, and its shadow tables are not ours to read.
_COLUMNS = """
SELECT t.name, c.name, c.type, c."notnull", c.pk
FROM pragma_table_list t CROSS JOIN pragma_table_info(t.name) c
WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%'
ORDER BY t.name, c.cid
"""
_LETTERS = {"INTEGER": "i", "REAL": "f", "FLOAT": "f", "TEXT": "s", "BLOB": "b"}


def damage(tx: Tx) -> list[str]:
    """What SQLite finds wrong with its file."""
    return [found for (found,) in tx.run("PRAGMA integrity_check(20)") if found != "ok"]


def columns(tx: Tx) -> dict[str, list[Column]]:
    """The columns of the tables that the schema makes, full text aside."""
    found: dict[str, list[Column]] = {}
    for table, name, type, required, pk in tx.run(_COLUMNS):
        column = Column(name, _LETTERS[type], bool(required), bool(pk))
        found.setdefault(table, []).append(column)
    return found


# ── Full text ────────────────────────────────────────────────────────────────────────

_UNINDEXED = """
SELECT count(*), min(t.node_id) FROM steps t JOIN repos r ON r.no = t.repo
WHERE r.texts IS NULL AND (t.observation <> '' OR t.action <> '')
"""
_STEPS_INDEXED = """
SELECT count(*), min(t.node_id) FROM repos r CROSS JOIN steps t ON t.repo = r.no
WHERE r.texts = ? AND
((t.observation <> '' AND NOT EXISTS
    (SELECT 1 FROM {words} f WHERE f.rowid = 4 * t.ordinal AND f.text = t.observation))
OR (t.action <> '' AND NOT EXISTS
    (SELECT 1 FROM {words} f WHERE f.rowid = 4 * t.ordinal + 1 AND f.text = t.action)))
"""
_SNAPSHOTS = """
SELECT count(*), min(s.id) FROM repos r CROSS JOIN threads t ON t.repo = r.no
CROSS JOIN snapshots s ON s.thread = t.no WHERE r.texts = ? AND NOT EXISTS
    (SELECT 1 FROM {words} f WHERE f.rowid = 4 * s.no + 3 AND f.text = s.text)
"""
# A CASE, so that each row is looked for in one table.
_LOST = """
SELECT count(*), min(f.rowid) FROM {words} f WHERE NOT EXISTS
(SELECT 1 FROM repos r WHERE r.texts = ? AND r.no = CASE f.rowid % 4
    WHEN 2 THEN (SELECT repo FROM messages WHERE no = f.rowid / 4)
    WHEN 3 THEN (SELECT t.repo FROM snapshots s CROSS JOIN threads t ON t.no = s.thread
                 WHERE s.no = f.rowid / 4)
    ELSE (SELECT repo FROM steps WHERE ordinal = f.rowid / 4) END)
"""
_MESSAGES = f"""
SELECT {COLUMNS}, f.text FROM repos r CROSS JOIN messages m ON m.repo = r.no
CROSS JOIN threads t ON t.no = m.thread LEFT JOIN {{words}} f ON f.rowid = 4 * m.no + 2
WHERE r.texts = ?
"""
_TRIPLES = """
SELECT f.rowid, f.text, g.text FROM {words} f LEFT JOIN {grams} g ON g.rowid = f.rowid
"""
_ONLY_WORDS = "SELECT f.rowid, f.text, NULL FROM {words} f"
_LOST_TRIPLES = """
SELECT count(*), min(g.rowid) FROM {grams} g
WHERE NOT EXISTS (SELECT 1 FROM {words} f WHERE f.rowid = g.rowid)
"""


def check_texts(tx: Tx) -> list[str]:
    """Where the full text of a repository is not that of its records."""
    problems = [*_told("steps without their full-text row", tx.run(_UNINDEXED))]
    for pair in all_text_tables(tx):
        problems += _check_pair(tx, pair)
    return problems


def _check_pair(tx: Tx, pair: TextTables) -> Iterator[str]:
    words, grams = pair.words, pair.grams
    number = str(words).rpartition("_")[2]

    def rows(query: str) -> Iterable[tuple[Any, ...]]:
        values = (int(number),) if "?" in query else ()
        return tx.run(query.format(words=words, grams=grams), values)

    yield from _told("steps without their full-text row", rows(_STEPS_INDEXED))
    yield from _told("snapshots without their full-text row", rows(_SNAPSHOTS))
    yield from _told("full-text rows without their record", rows(_LOST))
    yield from _counted("messages whose full-text row does not fit", rows(_MESSAGES), _misfit)
    triples = rows(_TRIPLES if grams else _ONLY_WORDS)
    yield from _counted("texts whose triples do not fit", triples, _untold)
    if grams:
        yield from _told("triples without their text", rows(_LOST_TRIPLES))


def _told(what: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    for count, example in rows:
        if count:
            yield f"{count} {what}, e.g. {example}"


def _counted(
    what: str,
    rows: Iterable[tuple[Any, ...]],
    wrong: Callable[[tuple[Any, ...]], str | int | None],
) -> Iterator[str]:
    breather, found = Breather(), []
    for row in rows:
        breather.breathe()
        if (example := wrong(row)) is not None:
            found.append(example)
    if found:
        yield f"{len(found)} {what}, e.g. {found[0]}"


def _misfit(row: tuple[Any, ...]) -> str | None:
    """The id of a message that is not searched by what it should be."""
    try:
        message, indexed = MESSAGES.one(row), row[-1]
    except StoreCorrupt:
        return None  # the check of rows names it
    told = message.kind in SAID
    text = searchable_text(message, tools=True)
    fits = indexed == (text or None)
    return None if fits or (not told and indexed is None) else message.id


def _untold(row: tuple[Any, ...]) -> int | None:
    """The number of a row that has no triples and needs them, or other ones than its own."""
    number, text, triples = row
    return None if triples == (composed(text) if has_unspaced(text) else None) else number

"""What ``check`` asks of SQLite itself: its file, its catalogue, and the full text by its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mnemo.runtime.text import composed, has_unspaced
from mnemo.store.check_texts import counted, misfits, told
from mnemo.store.sqlite.texts import TextTables, all_text_tables
from mnemo.store.tx import Column, Tx

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
    problems = [*told("steps without their full-text row", tx.run(_UNINDEXED))]
    for pair in all_text_tables(tx):
        problems += _check_pair(tx, pair)
    return problems


def _check_pair(tx: Tx, pair: TextTables) -> Iterator[str]:
    words, grams = pair.words, pair.grams
    of = f"r.texts = {str(words).rpartition('_')[2]}"
    yield from misfits(tx, str(words), of, of)
    triples = tx.run((_TRIPLES if grams else _ONLY_WORDS).format(words=words, grams=grams))
    yield from counted("texts whose triples do not fit", triples, _untold)
    if grams:
        lost = tx.run(_LOST_TRIPLES.format(words=words, grams=grams))
        yield from told("triples without their text", lost)


def _untold(row: Sequence[Any]) -> int | None:
    """The number of a row that has no triples and needs them, or other ones than its own."""
    number, text, triples = row
    return None if triples == (composed(text) if has_unspaced(text) else None) else number

"""SQLite's ``Dialect``: this module itself, made of the functions that it imports and defines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from mnemo.store.sqlite.check import check_texts, columns, damage
from mnemo.store.sqlite.matching import contains, notes_with, texts
from mnemo.store.sqlite.texts import (
    count_texts,
    drop_texts,
    has_text,
    merge_index,
    merge_texts,
    put_texts,
    text_damage,
)
from mnemo.store.tx import Tx

__all__ = [
    "check_texts",
    "columns",
    "contains",
    "count_texts",
    "damage",
    "drop_note_words",
    "drop_texts",
    "has_text",
    "last_number",
    "make_scratch",
    "merge_note_words",
    "merge_texts",
    "note_erased",
    "note_expired",
    "notes_with",
    "put_note_words",
    "put_texts",
    "reserve",
    "spelled",
    "text_damage",
    "texts",
]

_SPELLINGS = {
    "numbers": "(SELECT value FROM json_each(?))",
    "texts": "(SELECT value FROM json_each(?))",
    "pairs": "json_each(?)",
    "entries": "json_each(iif(json_valid({0}), {0}, '{{}}'))",
    "firsts": "(SELECT value ->> '$[0]' FROM json_each(iif(json_valid({0}), {0}, '[]')))",
    "join": "CROSS JOIN",
    "by": "INDEXED BY {0}",
    "greatest": "max",
    "least": "min",
    "field": "iif(json_valid({0}), {0} ->> '$.{1}', NULL)",
    "row": "f.rowid",
    "number": "INTEGER PRIMARY KEY",
    "lasting": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "clustered": "WITHOUT ROWID",
}
"""What the words of ``store.tx`` are in SQLite."""
_WORD = re.compile(r"\$(?:(by|entries|firsts|field)\(([\w.]+)(?:, (\w+))?\)|(\w+))")
_LARGEST = "SELECT coalesce(max({}), 0) FROM {}"
_GIVEN_AGAIN = ("sessions", "episodes", "nodes", "notes", "items")
_LAST_NUMBER = "SELECT seq FROM sqlite_sequence WHERE name = ?"
_DROP_WORDS = "DELETE FROM note_words WHERE rowid = ?"
_PUT_WORDS = "INSERT INTO note_words (rowid, terms) VALUES (?, ?)"
# Each note differs from the one before: a scrub that began earlier cannot remove it.
_NOTE = "INSERT OR REPLACE INTO meta (name, value) VALUES ('scrub', 'erased ' || random())"
_NOTE_EXPIRED = """
INSERT INTO meta (name, value) VALUES ('scrub', 'expired ' || random())
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value LIKE 'expired %'
"""
_NOTE_UNMERGED = "INSERT OR IGNORE INTO meta (name, value) VALUES ('unmerged ' || ?1, ?1)"


@lru_cache(maxsize=1_024)
def spelled(statement: str) -> str:
    """*statement* as SQLite reads it."""
    if "$" not in statement:
        return statement
    return _WORD.sub(lambda f: _SPELLINGS[f[1] or f[4]].format(f[2], f[3]), statement)


def make_scratch(tx: Tx, table: str, columns: str) -> None:
    """Make a table of the connection, if it is not there yet."""
    tx.run(f"CREATE TEMP TABLE IF NOT EXISTS {table} (seq $number, {columns})")


def reserve(tx: Tx, table: str, count: int, repos: Sequence[int]) -> int:
    """The number before the next *count* numbers of *table*; see ``Dialect``."""
    if table in _GIVEN_AGAIN:
        (last,) = tx.run(_LARGEST.format("no", table)).fetchone()
        return int(last)
    row = tx.run(_LAST_NUMBER, (table,)).fetchone()
    return 0 if row is None else int(row[0])


def last_number(tx: Tx, table: str, repo: int) -> int:
    """The last number of *table*, of whatever repository: writers come one after the other."""
    column = "ordinal" if table == "steps" else "no"
    return int(tx.run(_LARGEST.format(column, table)).fetchone()[0])


def put_note_words(tx: Tx, rows: Sequence[tuple[int, str]]) -> None:
    """Insert the words of notes, folded and stemmed, by the notes' numbers."""
    tx.run_many(_PUT_WORDS, rows)


def drop_note_words(tx: Tx, note: int) -> int:
    """Delete them; give how many rows there were."""
    return tx.run(_DROP_WORDS, (note,)).rowcount


def merge_note_words(tx: Tx) -> None:
    """Merge the segments of the index: words that are deleted stay in them until then."""
    merge_index(tx, "note_words")


def note_erased(tx: Tx) -> None:
    """Note, in the transaction that erases, that the files have to be scrubbed."""
    tx.run(_NOTE)


def note_expired(tx: Tx, repo: int) -> None:
    """
    Note that messages of the repository were deleted because of their age.

    That happens at any append, and merging a full text takes as long as it is large: it
    is left for the next scrub. Nor is it worth the rewriting of a large file.
    """
    tx.run(_NOTE_EXPIRED)
    tx.run(_NOTE_UNMERGED, (repo,))

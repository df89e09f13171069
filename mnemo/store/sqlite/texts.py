"""
The full text of records: for each repository a table of words, and one of triples if need be.

A table of its own keeps a repository's scores free of what others say. Words are stemmed
and folded the same way in every query; of scripts written without blanks, where a word
index sees one long word, every three characters are found.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mnemo.runtime.text import composed, has_unspaced
from mnemo.store.sqlite.rows import insert_rows

__all__ = [
    "TextTables",
    "all_text_tables",
    "count_texts",
    "drop_texts",
    "merge_texts",
    "message_row",
    "put_texts",
    "snapshot_row",
    "step_row",
    "text_tables",
]

# Every connection reads the definition of every virtual table when it is opened: with
# 1,000 of them in the file that takes 34 ms, with 5,000 it takes 1.2 s.
_OWN_TABLES = 200
_SHARED = 0
"""The table of all repositories that came after; its users join on the repository."""

_SYMBOLS = (
    (0x20BA, 0x20C0),
    (0x218A, 0x218B),
    (0x23F4, 0x23FF),
    (0x2700, 0x2700),
    (0x2B4D, 0x2BFF),
    (0x1F321, 0x1F6FF),
    (0x1F774, 0x1FAFF),
)
"""First and last of runs of symbols that are younger than what ``unicode61`` knows, Unicode 6.1."""
# Unknown, they would be letters: the word before a smile could not be found.
_SEPARATORS = "".join(chr(c) for first, last in _SYMBOLS for c in range(first, last + 1))
_WORDS = f"""
fts5(text, tokenize = "porter unicode61 remove_diacritics 2 separators '{_SEPARATORS}'")
"""
_GRAMS = "fts5(text, tokenize = 'trigram')"
_OF_REPO = "SELECT texts, grams FROM repos WHERE no = ?"
_TAKEN = "SELECT coalesce(max(texts), 0) FROM repos"
_SET_WORDS = "UPDATE repos SET texts = ? WHERE no = ?"
_SET_GRAMS = "UPDATE repos SET grams = 1 WHERE no = ?"
_OF_FILE = "SELECT DISTINCT texts, max(grams) FROM repos WHERE texts IS NOT NULL GROUP BY texts"
_CREATE = "CREATE VIRTUAL TABLE IF NOT EXISTS {} USING {}"
_INSERT = "INSERT INTO {} (rowid, text) VALUES "
_DELETE = "DELETE FROM {} WHERE rowid = ?"
# A deleted word stays in its segment until that is merged into another one.
_MERGE = "INSERT INTO {0} ({0}) VALUES ('optimize')"


@dataclass(frozen=True, slots=True)
class TextTables:
    """
    Where a repository's texts are; names of tables.

    Attributes:
        words: ``None``: it has no text yet.
        grams: Of those with a character of a script written without blanks, again;
            ``None``: it has none of them.
    """

    words: str | None
    grams: str | None

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in (self.words, self.grams) if name is not None])


def step_row(ordinal: int, side: int) -> int:
    """The row of a step's half: *side* 0 is the observation, 1 the action."""
    return 4 * ordinal + side


def message_row(no: int) -> int:
    """The row of a message."""
    return 4 * no + 2


def snapshot_row(no: int) -> int:
    """The row of a snapshot."""
    return 4 * no + 3


def text_tables(connection: sqlite3.Connection, repo: int) -> TextTables:
    """The tables of the repository of this number."""
    number, grams = connection.execute(_OF_REPO, (repo,)).fetchone() or (None, 0)
    return _named(number, bool(grams))


def all_text_tables(connection: sqlite3.Connection) -> list[TextTables]:
    """Those of all repositories, each pair once."""
    return [_named(number, bool(grams)) for number, grams in connection.execute(_OF_FILE)]


def _named(number: int | None, grams: bool) -> TextTables:
    if number is None:
        return TextTables(None, None)
    return TextTables(f"words_{number}", f"grams_{number}" if grams else None)


def put_texts(connection: sqlite3.Connection, repo: int, rows: Sequence[tuple[int, str]]) -> None:
    """Insert texts by row; empty ones have none. The first makes the repository's table."""
    filled = [row for row in rows if row[1]]
    if not filled:
        return
    number, grams = connection.execute(_OF_REPO, (repo,)).fetchone()
    if number is None:
        number = _take_table(connection, repo)
    insert_rows(connection, _INSERT.format(f"words_{number}"), filled)
    unspaced = [(row, composed(text)) for row, text in filled if has_unspaced(text)]
    if unspaced:
        if not grams:
            connection.execute(_CREATE.format(f"grams_{number}", _GRAMS))
            connection.execute(_SET_GRAMS, (repo,))
        insert_rows(connection, _INSERT.format(f"grams_{number}"), unspaced)


def _take_table(connection: sqlite3.Connection, repo: int) -> int:
    (last,) = connection.execute(_TAKEN).fetchone()
    number: int = last + 1 if last < _OWN_TABLES else _SHARED
    connection.execute(_CREATE.format(f"words_{number}", _WORDS))
    connection.execute(_SET_WORDS, (number, repo))
    return number


def drop_texts(connection: sqlite3.Connection, repo: int, rowids: Sequence[int]) -> int:
    """
    Delete texts; give how many there were.

    Their words are gone from the file only after ``merge_texts``.
    """
    tables = text_tables(connection, repo)
    rows = [(rowid,) for rowid in rowids]
    dropped = [connection.executemany(_DELETE.format(table), rows).rowcount for table in tables]
    return max(dropped[0], 0) if dropped else 0


def merge_texts(connection: sqlite3.Connection, repo: int) -> None:
    """Write the repository's index anew, so that nothing deleted is left in it."""
    for table in text_tables(connection, repo):
        connection.execute(_MERGE.format(table))


def count_texts(connection: sqlite3.Connection) -> int:
    """How many texts there are of all repositories."""
    return sum(
        connection.execute(f"SELECT count(*) FROM {tables.words}").fetchone()[0]
        for tables in all_text_tables(connection)
    )

"""
The full text of records: for each repository a table of words, and one of triples if need be.

A table of its own keeps a repository's scores free of what others say. Words are stemmed
and folded the same way in every query; of scripts written without blanks, where a word
index sees one long word, every three characters are found.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from mnemo.runtime.text import composed, has_unspaced
from mnemo.store.damage import Rows
from mnemo.store.tx import Text, Tx

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
_OF_REPO = "SELECT id, texts, grams FROM repos WHERE no = ?"
_TAKEN = "SELECT coalesce(max(texts), 0) FROM repos"
_REPOS: Rows[tuple[int | None, int]] = Rows("repos", "s i? i", lambda row: (row[1], row[2]))
_SET_WORDS = "UPDATE repos SET texts = ? WHERE no = ?"
_SET_GRAMS = "UPDATE repos SET grams = 1 WHERE no = ?"
_OF_FILE = "SELECT DISTINCT texts, max(grams) FROM repos WHERE texts IS NOT NULL GROUP BY texts"
_CREATE = "CREATE VIRTUAL TABLE IF NOT EXISTS {} USING {}"
_COLUMNS = ("rowid", "text")
_DELETE = "DELETE FROM {} WHERE rowid = ?"
# A deleted word stays in its segment until that is merged into another one.
_MERGE = "INSERT INTO {0} ({0}) VALUES ('optimize')"
_REBUILD = "INSERT INTO {0} ({0}) VALUES ('rebuild')"
_STRUCTURE = "SELECT coalesce(max(length(block)), 0) FROM {}_data WHERE id = 10"
# Each merge may leave a level empty, of two bytes; SQLite 3.40 never removes one, and
# takes a table of more than 2,000 for damaged.
_MOST_STRUCTURE_BYTES = 500
_INDEXES = """
SELECT name FROM sqlite_master WHERE type = 'table' AND
(name GLOB 'words_*_data' OR name GLOB 'grams_*_data' OR name = 'note_words_data')
"""
_LATER_STRUCTURE = b"\xff\x00\x00\x01"


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


def text_tables(tx: Tx, repo: int) -> TextTables:
    """The tables of the repository of this number."""
    return _named(*_numbered(tx, repo))


def all_text_tables(tx: Tx) -> list[TextTables]:
    """Those of all repositories, each pair once."""
    return [_named(number, grams) for number, grams in tx.run(_OF_FILE) if type(number) is int]


def _numbered(tx: Tx, repo: int) -> tuple[int | None, int]:
    """The number of the repository's tables, and whether it has one of triples."""
    row = tx.run(_OF_REPO, (repo,)).fetchone()
    return _REPOS.one(row) if row is not None else (None, 0)


def _named(number: int | None, grams: int) -> TextTables:
    if number is None:
        return TextTables(None, None)
    return TextTables(f"words_{number}", f"grams_{number}" if grams else None)


def put_texts(tx: Tx, repo: int, rows: Sequence[Text]) -> None:
    """Insert texts; empty ones have no row. The first makes the repository's table."""
    filled = [(row, text) for row, text, _ in rows if text]
    if not filled:
        return
    number, grams = _numbered(tx, repo)
    if number is None:
        number = _take_table(tx, repo)
    tx.insert(f"words_{number}", _COLUMNS, filled)
    unspaced = [(row, composed(text)) for row, text in filled if has_unspaced(text)]
    if unspaced:
        if not grams:
            tx.run(_CREATE.format(f"grams_{number}", _GRAMS))
            tx.run(_SET_GRAMS, (repo,))
        tx.insert(f"grams_{number}", _COLUMNS, unspaced)


def _take_table(tx: Tx, repo: int) -> int:
    (last,) = tx.run(_TAKEN).fetchone()
    # A damaged number sorts behind all others; which table was that repository's is not known.
    own = isinstance(last, int) and last < _OWN_TABLES
    number: int = last + 1 if own else _SHARED
    tx.run(_CREATE.format(f"words_{number}", _WORDS))
    tx.run(_SET_WORDS, (number, repo))
    return number


def drop_texts(tx: Tx, repo: int, rowids: Sequence[int]) -> int:
    """
    Delete texts; give how many there were.

    Their words are gone from the file only after ``merge_texts``.
    """
    tables = text_tables(tx, repo)
    rows = [(rowid,) for rowid in rowids]
    dropped = [tx.run_many(_DELETE.format(table), rows) for table in tables]
    return max(dropped[0], 0) if dropped else 0


def merge_texts(tx: Tx, repo: int) -> None:
    """Write the repository's index anew, so that nothing deleted is left in it."""
    for table in text_tables(tx, repo):
        merge_index(tx, table)


def merge_index(tx: Tx, table: str) -> None:
    """Merge the segments of a table of FTS5, or build its index anew where levels pile up."""
    (size,) = tx.run(_STRUCTURE.format(table)).fetchone()
    tx.run((_MERGE if size <= _MOST_STRUCTURE_BYTES else _REBUILD).format(table))


def crowded_indexes(tx: Tx) -> list[str]:
    """Tables of indexes whose levels have piled up, as earlier versions of mnemo let them."""
    sized = "SELECT 1 FROM {} WHERE id = 10 AND length(block) > ?"
    names = [name for (name,) in tx.run(_INDEXES).fetchall()]
    bound = (2 * _MOST_STRUCTURE_BYTES,)
    return [name for name in names if tx.run(sized.format(name), bound).fetchone()]


def fold_levels(tx: Tx) -> None:
    """
    Take the empty levels out of indexes that FTS5 refuses, or soon will, for their number.

    For the writer, before it has read one of them.
    """
    for table in crowded_indexes(tx):
        (block,) = tx.run(f"SELECT block FROM {table} WHERE id = 10").fetchone()
        tx.run(f"UPDATE {table} SET block = ? WHERE id = 10", (_folded(bytes(block)),))


def _folded(structure: bytes) -> bytes:
    """
    The record without empty levels: a cookie, three counts, and the segments of each level.

    Source:
        SQLite's ``ext/fts5/fts5_index.c``, "structure record".
    """
    cookie, rest = structure[:4], structure[4:]
    if rest.startswith(_LATER_STRUCTURE):
        return structure
    numbers = _varints(rest)
    levels, segments, writes = next(numbers), next(numbers), next(numbers)
    kept: list[int] = []
    filled = 0
    for _ in range(levels):
        merging, count = next(numbers), next(numbers)
        of_level = [next(numbers) for _ in range(3 * count)]
        if count:
            filled += 1
            kept += [merging, count, *of_level]
    return cookie + b"".join(map(_varint, (filled, segments, writes, *kept)))


def _varints(data: bytes) -> Iterator[int]:
    """SQLite's numbers of 1 to 9 bytes, the first bits first."""
    number = place = 0
    for byte in data:
        place += 1
        if place == 9:
            yield number << 8 | byte
        elif byte < 128:
            yield number << 7 | byte
        else:
            number = number << 7 | byte & 127
            continue
        number = place = 0


def _varint(number: int) -> bytes:
    """Below 2**56, as all of a structure are."""
    digits = [number & 127]
    while number := number >> 7:
        digits.append(number & 127 | 128)
    return bytes(reversed(digits))


def has_text(tx: Tx, repo: int, row: str) -> str:
    """The condition that there is a text of the number that *row* is."""
    table = text_tables(tx, repo).words
    return f"EXISTS (SELECT 1 FROM {table} WHERE rowid = {row})" if table else "0"


def count_texts(tx: Tx) -> int:
    """How many texts there are of all repositories."""
    return sum(
        tx.run(f"SELECT count(*) FROM {tables.words}").fetchone()[0]
        for tables in all_text_tables(tx)
    )


@contextmanager
def refusing_expression(expression: str) -> Iterator[None]:
    """
    Read rows that match *expression* within the block.

    Raises:
        ValueError: It is no expression of the full text.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise ValueError(f"not a search expression: {expression!r}: {error}") from error


def text_damage(tx: Tx) -> list[str]:
    """What FTS5 says of its own structure; for the writer, since it is asked by an ``INSERT``."""
    try:
        for table in chain.from_iterable(all_text_tables(tx)):
            tx.run(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        return [f"damaged full text: {error}"]
    return []

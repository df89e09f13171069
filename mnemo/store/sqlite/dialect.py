"""
The dialect of SQLite, this module itself: what ``Dialect`` says, over FTS5.

A table of texts of its own keeps a repository's scores free of what others say. Words are stemmed
and folded the same way in every query; of scripts written without blanks, where a word index sees
one long word, every three characters are found.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar

from mnemo.runtime.text import composed, has_unspaced
from mnemo.store.rows import Rows
from mnemo.store.text_rows import BASE, LEAN, counted, misfits, scanned, told
from mnemo.store.tx import Column, Text, Tx
from mnemo.values.records import Group, Query, Ranking

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
_TEXT_COLUMNS = ("rowid", "text")
_DELETE = "DELETE FROM {} WHERE rowid = ?"
# A deleted word stays in its segment until that is merged into another one.
_MERGE = "INSERT INTO {0} ({0}) VALUES ('optimize')"
_REBUILD = "INSERT INTO {0} ({0}) VALUES ('rebuild')"
_STRUCTURE = "SELECT coalesce(max(length(block)), 0) FROM {}_data WHERE id = 10"
# Each merge may leave a level empty, of two bytes; SQLite 3.40 never removes one, and
# takes a table of more than 2,000 for damaged.
_MOST_STRUCTURE_BYTES = 500


@dataclass(frozen=True, slots=True)
class TextTables:
    """
    Names of the tables of a repository's texts, ``None`` where it has none; *grams* holds the texts
    with characters of scripts written without blanks again.
    """

    words: str | None
    grams: str | None

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in (self.words, self.grams) if name is not None])


def text_tables(tx: Tx, repo: int) -> TextTables:
    row = tx.run(_OF_REPO, (repo,)).fetchone()
    return TextTables(None, None) if row is None else _named(*_REPOS.one(row))


def all_text_tables(tx: Tx) -> list[TextTables]:
    """Those of all repositories, each pair once."""
    return [_named(number, grams) for number, grams in tx.run(_OF_FILE) if type(number) is int]


def _named(number: int | None, grams: int) -> TextTables:
    if number is None:
        return TextTables(None, None)
    return TextTables(f"words_{number}", f"grams_{number}" if grams else None)


def put_texts(tx: Tx, repo: int, rows: Sequence[Text]) -> None:
    filled = [(row, text) for row, text, _ in rows if text]
    if not filled:
        return
    tables = text_tables(tx, repo)
    words = tables.words or _take_table(tx, repo)
    tx.insert(words, _TEXT_COLUMNS, filled)
    unspaced = [(row, composed(text)) for row, text in filled if has_unspaced(text)]
    if unspaced:
        grams = words.replace("words", "grams")
        if tables.grams is None:
            tx.run(_CREATE.format(grams, _GRAMS))
            tx.run(_SET_GRAMS, (repo,))
        tx.insert(grams, _TEXT_COLUMNS, unspaced)


def _take_table(tx: Tx, repo: int) -> str:
    (last,) = tx.run(_TAKEN).fetchone()
    # A damaged number sorts behind all others; which table was that repository's is not known.
    own = isinstance(last, int) and last < _OWN_TABLES
    number: int = last + 1 if own else _SHARED
    tx.run(_CREATE.format(f"words_{number}", _WORDS))
    tx.run(_SET_WORDS, (number, repo))
    return f"words_{number}"


def drop_texts(tx: Tx, repo: int, rowids: Sequence[int]) -> int:
    """Their words are gone from the file only after ``merge_texts``."""
    tables = text_tables(tx, repo)
    rows = [(rowid,) for rowid in rowids]
    dropped = [tx.run_many(_DELETE.format(table), rows) for table in tables]
    return max(dropped[0], 0) if dropped else 0


def merge_texts(tx: Tx, repo: int) -> None:
    for table in text_tables(tx, repo):
        merge_index(tx, table)


def merge_index(tx: Tx, table: str) -> None:
    """Merge the segments of a table of FTS5, or build its index anew where levels pile up."""
    (size,) = tx.run(_STRUCTURE.format(table)).fetchone()
    tx.run((_MERGE if size <= _MOST_STRUCTURE_BYTES else _REBUILD).format(table))


def has_text(tx: Tx, repo: int, row: str) -> str:
    table = text_tables(tx, repo).words
    return f"EXISTS (SELECT 1 FROM {table} WHERE rowid = {row})" if table else "0"


def count_texts(tx: Tx) -> int:
    return sum(
        tx.run(f"SELECT count(*) FROM {tables.words}").fetchone()[0]
        for tables in all_text_tables(tx)
    )


@contextmanager
def refusing_expression(expression: str) -> Iterator[None]:
    """*Raises* ``ValueError`` if what the block reads rows by is no expression of the full text."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise ValueError(f"not a search expression: {expression!r}: {error}") from error


def text_damage(tx: Tx) -> list[str]:
    """What FTS5 says of its own structure; for the writer, since an ``INSERT`` asks it."""
    try:
        for table in chain.from_iterable(all_text_tables(tx)):
            tx.run(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        return [f"damaged full text: {error}"]
    return []


# Ordered by the full text itself, so that the rest is read only of rows that are taken.
_BY_RELEVANCE = f"""
SELECT f.rowid, -f.rank, {LEAN} FROM {{table}} f {BASE}
WHERE {{table}} MATCH ? AND {{condition}} ORDER BY f.rank
"""
_SCAN = f"""
SELECT f.rowid, 1.0, {LEAN}
FROM (SELECT rowid, text FROM {{table}} f WHERE {{sort}} ORDER BY rowid DESC LIMIT ?) f {BASE}
WHERE {{condition}}
"""
# One small row per text; to count the full text itself reads all of it.
_COUNT = "SELECT count(*) FROM {table}_docsize"
_HOLDING = "SELECT count(*) FROM {table} WHERE {table} MATCH ?"
# Of the table that many small repositories share only one's own rows count.
_OWN = f" f {BASE} WHERE coalesce(p.repo, t.repo) = ?"
_OWN_HOLDING = f"SELECT count(*) FROM {{table}}{_OWN} AND {{table}} MATCH ?"
_OWN_RECORDS = f"SELECT count(*) FROM {{table}}{_OWN}"
_OF_TERM = "SELECT rowid AS row, ? AS weight, ? AS bit FROM {table} WHERE {table} MATCH ?"
_CANDIDATES = f"""
SELECT f.rowid, f.weight, {LEAN}, f.bits
FROM (SELECT row AS rowid, sum(weight) AS weight, sum(bit) AS bits FROM ({{terms}}) of_terms
      GROUP BY row HAVING count(*) >= ?) f {BASE}
WHERE {{condition}} ORDER BY f.weight DESC, f.rowid DESC
"""
_HOLDS = "SELECT 1 FROM {table} WHERE {table} MATCH ? AND rowid = ?"
_NOTES = """
SELECT n.topic FROM note_words w JOIN notes n ON n.no = w.rowid
WHERE note_words MATCH ? AND n.repo = ?
"""


@dataclass(frozen=True, slots=True)
class SqliteTexts:
    """``Texts`` over a repository's tables of words and of triples."""

    tx: Tx
    repo: int
    tables: TextTables

    is_ranked: ClassVar[bool] = False

    def matching(
        self,
        query: Query,
        condition: str,
        values: Sequence[Any],
        ranking: Ranking,
        *,
        unspaced: bool,
    ) -> Iterator[Sequence[Any]]:
        table = self.tables.grams if unspaced else self.tables.words
        if table is None:
            return
        statement = _BY_RELEVANCE.format(table=table, condition=condition)
        with refusing_expression(query.expression):
            yield from self.tx.run(statement, (query.expression, *values))

    def newest(self, limit: int, condition: str, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
        table = self.tables.grams
        if table is None:
            return
        (count,) = self.tx.run(_COUNT.format(table=table)).fetchone()
        for sort in scanned(count, limit):
            statement = _SCAN.format(table=table, sort=sort, condition=condition)
            yield from self.tx.run(statement, (limit, *values))

    def candidates(
        self,
        weights: Sequence[tuple[str, float]],
        least: int,
        condition: str,
        values: Sequence[Any],
    ) -> Iterator[Sequence[Any]]:
        each = [_OF_TERM.format(table=self._table(term)) for term, _ in weights]
        statement = _CANDIDATES.format(terms=" UNION ALL ".join(each), condition=condition)
        terms = [v for at, (t, weight) in enumerate(weights) for v in (weight, 1 << at, _quoted(t))]
        yield from self.tx.run(statement, (*terms, least, *values))

    def count(self, term: str | None = None) -> int:
        if term is None:
            return self._counted(_COUNT, _OWN_RECORDS, self.tables.words)
        return self._counted(_HOLDING, _OWN_HOLDING, self._table(term), _quoted(term))

    def _counted(self, all_: str, own: str, table: str | None, *values: str) -> int:
        if table is None:
            return 0
        shared = self.tables.words == f"words_{_SHARED}"
        given = (self.repo, *values) if shared else values
        statement = (own if shared else all_).format(table=table)
        return int(self.tx.run(statement, given).fetchone()[0])

    def holds(self, row: int, term: str) -> bool:
        statement = _HOLDS.format(table=self._table(term))
        return self.tx.run(statement, (_quoted(term), row)).fetchone() is not None

    def _table(self, term: str) -> str | None:
        return self.tables.grams if has_unspaced(term) else self.tables.words


def _quoted(term: str) -> str:
    return Group((term,)).expression


def texts(tx: Tx, repo: int) -> SqliteTexts:
    return SqliteTexts(tx, repo, text_tables(tx, repo))


def notes_with(tx: Tx, repo: int, term: str) -> list[Sequence[Any]]:
    quoted = '"' + term.replace('"', '""') + '"'
    return tx.run(_NOTES, (quoted, repo)).fetchall()


def contains(lowered: str) -> str:
    """SQLite itself knows the case of ASCII alone."""
    ascii = lowered.isascii() or not any(c.upper() != c for c in lowered if not c.isascii())
    return f"instr({'lower' if ascii else 'mnemo_lower'}(f.text), ?)"


# The full text has its own check, and its shadow tables are not ours to read.
_COLUMNS = """
SELECT t.name, c.name, c.type, c."notnull", c.pk
FROM pragma_table_list t CROSS JOIN pragma_table_info(t.name) c
WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite_%'
ORDER BY t.name, c.cid
"""
_LETTERS = {"INTEGER": "i", "REAL": "f", "FLOAT": "f", "TEXT": "s", "BLOB": "b"}


def damage(tx: Tx) -> list[str]:
    return [found for (found,) in tx.run("PRAGMA integrity_check(20)") if found != "ok"]


def columns(tx: Tx) -> dict[str, list[Column]]:
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
    """Make it for the connection, if it is not there yet."""
    tx.run(f"CREATE TEMP TABLE IF NOT EXISTS {table} (seq $number, {columns})")


def reserve(tx: Tx, table: str, count: int, repos: Sequence[int]) -> int:
    if table in _GIVEN_AGAIN:
        (last,) = tx.run(_LARGEST.format("no", table)).fetchone()
        return int(last)
    row = tx.run(_LAST_NUMBER, (table,)).fetchone()
    return 0 if row is None else int(row[0])


def last_number(tx: Tx, table: str, repo: int) -> int:
    """Of whatever repository: writers come one after the other."""
    column = "ordinal" if table == "steps" else "no"
    return int(tx.run(_LARGEST.format(column, table)).fetchone()[0])


def put_note_words(tx: Tx, rows: Sequence[tuple[int, str]]) -> None:
    tx.run_many(_PUT_WORDS, rows)


def merge_note_words(tx: Tx) -> None:
    merge_index(tx, "note_words")


def note_erased(tx: Tx) -> None:
    tx.run(_NOTE)


def note_expired(tx: Tx, repo: int) -> None:
    """Leave the merging of the full text, which takes as long as it is large, to the next scrub."""
    tx.run(_NOTE_EXPIRED)
    tx.run(_NOTE_UNMERGED, (repo,))

"""
The dialect of SQLite, this module itself: what ``Dialect`` says, over FTS5.

One index holds the texts of all repositories, but for the last few of each: to index many at once
takes a fraction of the time. Each of its tokens begins with the repository's number, so that
whoever reads one reads rows of that repository alone.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mnemo.store.texts import WORDS, triples
from mnemo.store.tx import Analysed, Tx

TEXTS = (
    """CREATE TABLE texts (
       no INTEGER PRIMARY KEY, repo INTEGER NOT NULL, at REAL NOT NULL,
       length INTEGER NOT NULL, words TEXT NOT NULL, lowered TEXT)""",
    "CREATE INDEX texts_unspaced ON texts (repo, no) WHERE lowered IS NOT NULL",
    # Those that are not in the index yet.
    """CREATE TABLE text_tail (repo INTEGER NOT NULL, text INTEGER NOT NULL,
       PRIMARY KEY (repo, text)) WITHOUT ROWID""",
    """CREATE VIEW text_tokens AS
       SELECT no, mnemo_tokens(repo, CAST(words AS BLOB), CAST(lowered AS BLOB)) AS tokens
       FROM texts f
       WHERE NOT EXISTS (SELECT 1 FROM text_tail x WHERE x.repo = f.repo AND x.text = f.no)""",
    # Where a word is in a text is not kept: phrases are looked for in the words themselves.
    """CREATE VIRTUAL TABLE text_words USING fts5(
       tokens, content = 'text_tokens', content_rowid = 'no', detail = none, columnsize = 0,
       tokenize = "ascii tokenchars '_~'")""",
    """CREATE TRIGGER texts_put AFTER INSERT ON texts BEGIN
       INSERT INTO text_tail VALUES (new.repo, new.no); END""",
    """CREATE TRIGGER texts_dropped BEFORE DELETE ON texts BEGIN
       INSERT INTO text_words (text_words, rowid, tokens)
       SELECT 'delete', no, tokens FROM text_tokens WHERE no = old.no;
       DELETE FROM text_tail WHERE repo = old.repo AND text = old.no; END""",
)
"""The words and triples of texts, and the index of them."""
text_columns = ("no", "repo", "at", "length", "words", "lowered")
_MARKS = {"words": "_", "triples": "~"}
"""What stands behind the repository's number in a token; no word holds it."""
# What would part a token is moved to where no text has characters.
_CODED = {c: 0x10FF00 + c for c in range(128) if not chr(c).isalnum()}
_INDEX = """
INSERT INTO text_words (rowid, tokens)
SELECT f.no, mnemo_tokens(f.repo, CAST(f.words AS BLOB), CAST(f.lowered AS BLOB))
FROM text_tail x CROSS JOIN texts f ON f.no = x.text WHERE x.repo = ? ORDER BY x.text
"""
_INDEXED = "DELETE FROM text_tail WHERE repo = ?"
_FOUND = """
(SELECT rowid FROM text_words WHERE text_words MATCH ?
 UNION ALL SELECT text FROM text_tail WHERE repo = ?) i
CROSS JOIN texts f ON f.no = i.rowid WHERE TRUE
"""
_HOLDING = """
(SELECT rowid AS no FROM text_words WHERE text_words MATCH ?
 UNION ALL SELECT x.text FROM text_tail x CROSS JOIN texts t ON t.no = x.text
 WHERE x.repo = ? AND instr(t.words, ?) > 0) f WHERE TRUE
"""
# A deleted word stays in its segment until that is merged into another one.
_MERGE = "INSERT INTO text_words (text_words) VALUES ('optimize')"
_REBUILD = "INSERT INTO text_words (text_words) VALUES ('rebuild')"
_STRUCTURE = "SELECT coalesce(max(length(block)), 0) FROM text_words_data WHERE id = 10"
# Each merge may leave a level empty, of two bytes; SQLite 3.40 never removes one, and
# takes a table of more than 2,000 for damaged.
_MOST_STRUCTURE_BYTES = 500
# With a rank it is compared with what it is the index of, too.
_COMPARE = "INSERT INTO text_words (text_words, rank) VALUES ('integrity-check', 1)"


def text_rows(texts: Sequence[Analysed]) -> list[tuple[Any, ...]]:
    lengths = map(len, map(WORDS, texts))
    return [
        (no, repo, at, length, f" {'  '.join(words)} " if length else "", lowered)
        for (no, repo, at, words, lowered), length in zip(texts, lengths, strict=True)
    ]


def _phrase(words: Sequence[str]) -> str:
    """*words* as they are in a text: each between blanks of its own."""
    return f" {'  '.join(words)} "


# Bytes, since of text that is no UTF-8, in a damaged row, Python makes no argument.
def tokens(repo: int, words: bytes, lowered: bytes | None) -> str:
    """What the text of a row of ``texts`` is found by; damaged words are none."""
    made = _decoded(words).replace("  ", f" {repo}_").replace(" ", f"{repo}_", 1)
    if lowered is None:
        return made
    coded = _decoded(lowered).translate(_CODED)
    return " ".join([made, *(f"{repo}~{triple}" for triple in triples(coded))])


def _decoded(stored: bytes | str | None) -> str:
    """What is stored as text, as far as it is."""
    return stored.decode(errors="replace") if isinstance(stored, bytes) else ""


def index_texts(tx: Tx, repo: int) -> None:
    tx.run(_INDEX, (repo,))
    tx.run(_INDEXED, (repo,))


def occurrences(words: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
    phrase = _phrase(words)
    if any(words[:size] == words[-size:] for size in range(1, len(words))):
        # It may begin within itself.
        return "mnemo_occurrences(CAST(f.words AS BLOB), ?)", (phrase,)
    count = f"(length(f.words) - length(replace(f.words, ?, ''))) / {len(phrase)}"
    # To see that there is none takes a quarter of the time.
    return f"CASE instr(f.words, ?) WHEN 0 THEN 0 ELSE {count} END", (phrase, phrase)


def count_of(words: bytes, phrase: str) -> int:
    """How often *phrase* is in *words*, also within itself."""
    text = _decoded(words)
    return sum(text.startswith(phrase, at) for at, c in enumerate(text) if c == " ")


def found(
    index: str, repo: int, groups: Sequence[Sequence[str]], *, bare: bool
) -> tuple[str, tuple[Any, ...]]:
    begin = f'"{repo}{_MARKS[index]}'
    each = (" AND ".join(f'{begin}{token.translate(_CODED)}"' for token in g) for g in groups)
    expression = " OR ".join(f"({group})" for group in each)
    if bare:
        return _HOLDING, (expression, repo, _phrase(groups[0]))
    return _FOUND, (expression, repo)


def merge_words(tx: Tx, *, compare: bool = True) -> None:
    """Leave nothing of deleted words in the index; *compare* it, too, with the texts."""
    # Of a text that was damaged once it was indexed, other words are deleted than it had.
    is_unfit = compare and bool(text_damage(tx))
    (size,) = tx.run(_STRUCTURE).fetchone()
    # Where levels pile up, the index is built anew.
    tx.run(_REBUILD if is_unfit or size > _MOST_STRUCTURE_BYTES else _MERGE)


def text_damage(tx: Tx) -> list[str]:
    """What FTS5 says of its own structure; for the writer, since an ``INSERT`` asks it."""
    try:
        tx.run(_COMPARE)
    except sqlite3.DatabaseError as error:
        return [f"damaged full text: {error}"]
    return []


def damage(tx: Tx) -> list[str]:
    return [found for (found,) in tx.run("PRAGMA integrity_check(20)") if found != "ok"]


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
    "position": "instr",
    "number": "INTEGER PRIMARY KEY",
    "lasting": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "followed": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "place": "INTEGER PRIMARY KEY",
    "repo": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "keyed": "",
    "clustered": "WITHOUT ROWID",
    "also": "+",
    "names": "repos",
}
"""What the words of ``store.tx`` are in SQLite."""
_WORD = re.compile(r"\$(?:(by|entries|firsts|field|keyed)\(([\w.]+)(?:, (\w+))?\)|(\w+))")
_LARGEST = "SELECT coalesce(max(no), 0) FROM {}"
_GIVEN_AGAIN = ("sessions", "episodes", "nodes", "notes", "items")
_LAST_NUMBER = "SELECT seq FROM sqlite_sequence WHERE name = ?"
# Each note differs from the one before: a scrub that began earlier cannot remove it.
_NOTE = "INSERT OR REPLACE INTO meta (name, value) VALUES ('scrub', 'erased ' || random())"
_NOTE_EXPIRED = """
INSERT INTO meta (name, value) VALUES ('scrub', 'expired ' || random())
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value LIKE 'expired%'
"""


@lru_cache(maxsize=1_024)
def spelled(statement: str) -> str:
    """*statement* as SQLite reads it."""
    if "$" not in statement:
        return statement
    return _WORD.sub(lambda f: _SPELLINGS[f[1] or f[4]].format(f[2], f[3]), statement)


def reserve(tx: Tx, table: str, counts: Mapping[int, int]) -> dict[int, int]:
    if table in _GIVEN_AGAIN:
        row = tx.run(_LARGEST.format(table)).fetchone()
        last = int(row[0])
    else:
        last = last_number(tx, table, 0)
    taken = {}
    for repo, count in counts.items():
        taken[repo] = last
        last += count
    return taken


def last_number(tx: Tx, table: str, repo: int) -> int:
    """Of whatever repository: writers come one after the other."""
    row = tx.run(_LAST_NUMBER, (table,)).fetchone()
    return 0 if row is None else int(row[0])


def note_erased(tx: Tx) -> None:
    tx.run(_NOTE)


def note_expired(tx: Tx) -> None:
    tx.run(_NOTE_EXPIRED)

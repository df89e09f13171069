"""PostgreSQL's ``Dialect``: this module itself, made of functions that it imports and defines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mnemo.store.postgres.matching import contains, texts
from mnemo.store.postgres.texts import (
    check_texts,
    count_texts,
    drop_texts,
    has_text,
    merge_texts,
    put_texts,
    tokens,
)
from mnemo.store.tx import Column, Tx

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
    "text_damage",
    "texts",
]

_IDENTITIES = {"steps": "ordinal", "vectors": "seq"}
_FOLLOWED = ("steps", "messages", "vectors", "snapshots")
"""Tables whose numbers followers read by."""
_LAST = "SELECT coalesce(max({}), 0) FROM {} WHERE repo = ?"
# How many numbers are taken depends on the rows held, so that they are held first.
_TAKE = """
WITH held AS MATERIALIZED (
    SELECT no FROM repos WHERE no = ANY (?::bigint[]) ORDER BY no FOR NO KEY UPDATE
)
SELECT min(n), max(n) FROM (
    SELECT nextval('{}_{}_seq') AS n
    FROM generate_series(1, ?::bigint + 0 * (SELECT count(*) FROM held))
) t
"""
_DROP_WORDS = "DELETE FROM note_words WHERE rowid = ?"
_PUT_WORDS = "INSERT INTO note_words (rowid, words) VALUES (?, ?)"
_NOTES = """
SELECT n.topic FROM note_words w JOIN notes n ON n.no = w.rowid
WHERE w.words @> ?::text[] AND occurrences(w.words, ?::text[]) > 0 AND n.repo = ?
"""
_COLUMNS = """
SELECT c.table_name, c.column_name, c.data_type, c.is_nullable = 'NO',
       EXISTS (SELECT 1 FROM pg_index i
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
               WHERE i.indisprimary AND a.attname = c.column_name
               AND i.indrelid = format('%I.%I', c.table_schema, c.table_name)::regclass)
FROM information_schema.columns c
WHERE c.table_schema = current_schema() AND c.table_name <> ALL (?::text[])
ORDER BY c.table_name, c.ordinal_position
"""
_ENGINES = ["texts", "note_words", "locks", "commits"]
_LETTERS = {"bigint": "i", "double precision": "f", "text": "s", "bytea": "b"}


def reserve(tx: Tx, table: str, count: int, repos: Sequence[int]) -> int:
    """
    The number before the next *count* numbers of *table*; see ``Dialect``.

    Other transactions wait for those that hold the rows of *repos*, so that in each of them
    numbers are taken in the order of commits.
    """
    if not count:
        return 0
    held = sorted(set(repos)) if table in _FOLLOWED else []
    statement = _TAKE.format(table, _IDENTITIES.get(table, "no"))
    while True:
        first, last = tx.run(statement, (held, count)).fetchone()
        # Others took some in between; theirs and these would not be apart.
        if last - first + 1 == count:
            return int(first) - 1


def last_number(tx: Tx, table: str, repo: int) -> int:
    """The last number of the repository in *table*; see ``Dialect``."""
    statement = _LAST.format(_IDENTITIES.get(table, "no"), table)
    return int(tx.run(statement, (repo,)).fetchone()[0])


def put_note_words(tx: Tx, rows: Sequence[tuple[int, str]]) -> None:
    """Insert the words of notes, folded and stemmed, by the notes' numbers."""
    tx.run_many(_PUT_WORDS, [(note, tokens(words)) for note, words in rows])


def drop_note_words(tx: Tx, note: int) -> int:
    """Delete them; give how many rows there were."""
    return int(tx.run(_DROP_WORDS, (note,)).rowcount)


def merge_note_words(tx: Tx) -> None:
    """Nothing: no deleted word is found, and bytes go with ``VACUUM``."""


def notes_with(tx: Tx, repo: int, term: str) -> list[Sequence[Any]]:
    """Rows with the topics of the notes that hold *term*."""
    phrase = tokens(term)
    return list(tx.run(_NOTES, (phrase, phrase, repo)).fetchall()) if phrase else []


def note_erased(tx: Tx) -> None:
    """Note, in the transaction that erases, that the tables have to be rewritten."""
    tx.run("INSERT INTO meta (name, value) VALUES ('scrub', '1') ON CONFLICT DO NOTHING")


def note_expired(tx: Tx, repo: int) -> None:
    """Note it as an erasure: a scrub is made at the operator's call alone."""
    note_erased(tx)


def make_scratch(tx: Tx, table: str, columns: str) -> None:
    """Make a table of the transaction."""
    tx.run(f"CREATE TABLE pg_temp.{table} (seq $number, {columns}) ON COMMIT DROP")


def columns(tx: Tx) -> dict[str, list[Column]]:
    """The columns of the tables that the schema makes, full text aside."""
    found: dict[str, list[Column]] = {}
    for table, name, type, required, key in tx.run(_COLUMNS, (_ENGINES,)):
        # Others' tables may have been put beside ours, of any type.
        if type in _LETTERS:
            column = Column(name, _LETTERS[type], bool(required), bool(key))
            found.setdefault(table, []).append(column)
    return found


def damage(tx: Tx) -> list[str]:
    """Nothing: the server looks after its own storage (``amcheck`` is the operator's)."""
    return []


def text_damage(tx: Tx) -> list[str]:
    """Nothing that the server does not find by itself."""
    return []

"""
Full text in PostgreSQL: a row per text, with its stems and triples in arrays.

No extension and no text-search configuration: the words are those of the library's own
analyser. ``matching`` finds and ranks them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from mnemo.runtime.clock import as_utc
from mnemo.runtime.text import composed, has_unspaced, index_words, lower_each
from mnemo.store.check_texts import counted, misfits, told
from mnemo.store.codec import decode_time
from mnemo.store.text_rows import BASE
from mnemo.store.tx import Text, Tx

_LONGEST_WORD = 500
"""Characters of a word; an entry of a GIN index has at most 2,700 bytes."""
_KEPT_OF_LONGER = 64


def stems(text: str) -> list[str]:
    """The words of *text*, folded and stemmed, in order."""
    return [_entry(word) for word, _, _ in index_words(text)]


def tokens(text: str) -> list[str]:
    """The words of *text* as they stand, in order."""
    return [_entry(text[start:end]) for _, start, end in index_words(text)]


def _entry(word: str) -> str:
    """*word*, or for a longer one its beginning and digest, joined by what no word holds."""
    if len(word) <= _LONGEST_WORD:
        return word
    digest = hashlib.sha256(word.encode()).hexdigest()
    return f"{word[:_KEPT_OF_LONGER]}…{digest}"


def triples(lowered: str) -> list[str]:
    """Every three characters, once."""
    # Not sorted: that would hold the interpreter for as long as it takes.
    return list(dict.fromkeys(lowered[at : at + 3] for at in range(len(lowered) - 2)))


def put_texts(tx: Tx, repo: int, rows: Sequence[Text]) -> None:
    """Insert texts; empty ones have no row."""
    made = [(*_row(repo, no, text), as_utc(at).timestamp()) for no, text, at in rows if text]
    if not made:
        return
    tx.insert("texts", _COLUMNS, made)
    words = sum(length for *_, length, _, _, _ in made)
    parts = [max(len(lowered) - 2, 0) for *_, lowered, _, _ in made if lowered is not None]
    tx.run(_ADD.format("+"), (len(made), words, len(parts), sum(parts), repo))


def _row(repo: int, number: int, text: str) -> tuple[Any, ...]:
    words = stems(text)
    if not has_unspaced(text):
        return (number, repo, text, words, len(words), None, None)
    lowered = lower_each(composed(text))
    return (number, repo, text, words, len(words), lowered, triples(lowered))


def drop_texts(tx: Tx, repo: int, rowids: Sequence[int]) -> int:
    """Delete texts; give how many there were."""
    sums = tx.run(_DROP, (repo, list(rowids))).fetchone()
    if sums[0]:
        tx.run(_ADD.format("-"), (*sums, repo))
    return int(sums[0])


def merge_texts(tx: Tx, repo: int) -> None:
    """Nothing: no deleted text is found, and bytes go with ``VACUUM``."""


def has_text(tx: Tx, repo: int, row: str) -> str:
    """The condition that there is a text of the number that *row* is."""
    return f"EXISTS (SELECT 1 FROM texts WHERE rowid = {row})"


def count_texts(tx: Tx) -> int:
    """How many texts there are of all repositories."""
    return int(tx.run("SELECT count(*) FROM texts").fetchone()[0])


def check_texts(tx: Tx) -> list[str]:
    """Where the full text does not agree with what it is the text of."""
    return [
        *misfits(tx, "texts", "TRUE", "r.no = f.repo"),
        *counted("texts whose words or triples do not fit", tx.run(_ALL), _misfit),
        *counted("texts of another time than their record", tx.run(_TIMES), _mistimed),
        *told("repositories whose texts are not counted right", tx.run(_MISCOUNTED)),
    ]


def _misfit(row: Sequence[Any]) -> int | None:
    repo, number, text, *derived, its_triples = row
    *expected, wanted = _row(repo, number, text)
    fits = [number, repo, text, *derived] == expected
    fits = fits and set(its_triples or ()) == set(wanted or ())
    return None if fits else int(number)


def _mistimed(row: Sequence[Any]) -> int | None:
    number, at, said_at = row
    try:
        return None if decode_time(said_at).timestamp() == at else int(number)
    except ValueError:
        return None  # the check of rows names it


_COLUMNS = ("rowid", "repo", "text", "words", "length", "lowered", "triples", "at")
# Who inserts a text holds the repository's row already, which has these.
_SUMS = ("text_count", "text_words", "unspaced_count", "unspaced_triples")
_SUMMED = """
count(*), coalesce(sum(length), 0),
count(lowered), coalesce(sum(greatest(length(lowered) - 2, 0)), 0)
"""
_SUMS_OF = f"(SELECT {_SUMMED} FROM texts f WHERE f.repo = r.no)"
_DROP = f"""
WITH dropped AS (DELETE FROM texts WHERE repo = ? AND rowid = ANY (?) RETURNING length, lowered)
SELECT {_SUMMED} FROM dropped
"""
_ADD = f"UPDATE repos SET {', '.join(f'{name} = {name} {{0}} ?' for name in _SUMS)} WHERE no = ?"
_SAID_AT = "coalesce(p.at, m.at, m.recorded_at, n.at)"
_ALL = "SELECT repo, rowid, text, words, length, lowered, triples FROM texts"
_TIMES = f"SELECT f.rowid, f.at, {_SAID_AT} FROM texts f {BASE} WHERE {_SAID_AT} IS NOT NULL"
_MISCOUNTED = f"""
SELECT count(*), min(r.id) FROM repos r CROSS JOIN LATERAL {_SUMS_OF} s({", ".join(_SUMS)})
WHERE ({", ".join(f"r.{name}" for name in _SUMS)}) <> ({", ".join(f"s.{name}" for name in _SUMS)})
"""

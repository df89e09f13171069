"""
Full text in PostgreSQL: stems and triples in arrays, found by GIN, scored by BM25 in SQL.

No extension and no text-search configuration: the words are those of the library's own
analyser, and the formula is that of FTS5.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mnemo.runtime.text import composed, has_unspaced, index_words, lower_each
from mnemo.store.check_texts import counted, misfits, told
from mnemo.store.record_rows import BASE, LEAN
from mnemo.store.tx import Tx
from mnemo.values.records import Group, Query

__all__ = ["PostgresTexts", "stems", "tokens"]

# BM25's usual constants, and the least weight of a term, as FTS5 has them.
_K1 = 1.2
_B = 0.75
_LEAST_IDF = 1e-6
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


def put_texts(tx: Tx, repo: int, rows: Sequence[tuple[int, str]]) -> None:
    """Insert texts by number; empty ones have none."""
    made = [_row(repo, number, text) for number, text in rows if text]
    if not made:
        return
    tx.insert("texts", _COLUMNS, made)
    parts = [max(len(lowered) - 2, 0) for *_, lowered, _ in made if lowered is not None]
    words = sum(length for *_, length, _, _ in made)
    tx.run(_ADD.format("+"), (len(made), words, len(parts), sum(parts), repo))


def _row(repo: int, number: int, text: str) -> tuple[Any, ...]:
    words = stems(text)
    if not has_unspaced(text):
        return (number, repo, text, words, len(words), None, None)
    lowered = lower_each(composed(text))
    return (number, repo, text, words, len(words), lowered, _triples(lowered))


def _triples(lowered: str) -> list[str]:
    # Not sorted: that would hold the interpreter for as long as it takes.
    return list(dict.fromkeys(lowered[at : at + 3] for at in range(len(lowered) - 2)))


def drop_texts(tx: Tx, repo: int, rowids: Sequence[int]) -> int:
    """Delete texts; give how many there were."""
    sums = tx.run(_DROP, (repo, list(rowids))).fetchone()
    if sums[0]:
        tx.run(_ADD.format("-"), (*sums, repo))
    return int(sums[0])


def sum_texts(tx: Tx) -> None:
    """Let each repository have the sums of its texts."""
    for statement in _SUM:
        tx.run(statement)


def merge_texts(tx: Tx, repo: int) -> None:
    """Nothing: no deleted text is found, and bytes go with ``VACUUM``."""


def has_text(tx: Tx, repo: int, row: str) -> str:
    """The condition that there is a text of the number that *row* is."""
    return f"EXISTS (SELECT 1 FROM texts WHERE rowid = {row})"


def count_texts(tx: Tx) -> int:
    """How many texts there are of all repositories."""
    return int(tx.run("SELECT count(*) FROM texts").fetchone()[0])


def texts(tx: Tx, repo: int) -> PostgresTexts:
    """The full text of the repository of this number."""
    return PostgresTexts(tx, repo)


def check_texts(tx: Tx) -> list[str]:
    """Where the full text does not agree with what it is the text of."""
    rows = tx.run("SELECT repo, rowid, text, words, length, lowered, triples FROM texts")
    return [
        *misfits(tx, "texts", "TRUE", "r.no = f.repo"),
        *counted("texts whose words or triples do not fit", rows, _misfit),
        *told("repositories whose texts are not counted right", tx.run(_MISCOUNTED)),
    ]


def _misfit(row: Sequence[Any]) -> int | None:
    repo, number, text, *derived, triples = row
    *expected, wanted = _row(repo, number, text)
    fits = [number, repo, text, *derived] == expected and set(triples or ()) == set(wanted or ())
    return None if fits else int(number)


def contains(lowered: str) -> str:
    """The condition that a text of a script without blanks, case aside, has a part ``?``."""
    return "strpos(f.lowered, ?) > 0"


_COLUMNS = ("rowid", "repo", "text", "words", "length", "lowered", "triples")
# What BM25 weighs by, as FTS5 keeps it too. Who inserts a text holds the repository's row already.
_SUMS = ("text_count", "text_words", "unspaced_count", "unspaced_triples")
_SUMMED = """
count(*), coalesce(sum(length), 0),
count(lowered), coalesce(sum(greatest(length(lowered) - 2, 0)), 0)
"""
_DROP = f"""
WITH dropped AS (DELETE FROM texts WHERE repo = ? AND rowid = ANY (?) RETURNING length, lowered)
SELECT {_SUMMED} FROM dropped
"""
_ADD = f"UPDATE repos SET {', '.join(f'{name} = {name} {{0}} ?' for name in _SUMS)} WHERE no = ?"
_SUM = (
    "DROP INDEX IF EXISTS texts_repo",
    "CREATE INDEX texts_repo ON texts (repo)",
    f"ALTER TABLE repos {', '.join(f'ADD {name} BIGINT NOT NULL DEFAULT 0' for name in _SUMS)}",
    "ALTER TABLE repos SET (fillfactor = 50)",
    f"""
    UPDATE repos SET ({", ".join(_SUMS)}) = (SELECT {_SUMMED} FROM texts f WHERE f.repo = repos.no)
    """,
)
_MISCOUNTED = f"""
SELECT count(*), min(r.id) FROM repos r CROSS JOIN LATERAL (
    SELECT {_SUMMED} FROM texts f WHERE f.repo = r.no) s({", ".join(_SUMS)})
WHERE ({", ".join(f"r.{name}" for name in _SUMS)}) <> ({", ".join(f"s.{name}" for name in _SUMS)})
"""
_RANKED = f"""
SELECT f.rowid, {{score}}, {LEAN} FROM texts f {BASE}
WHERE f.repo = ? AND ({{match}}) AND {{condition}} ORDER BY 2 DESC, f.rowid
"""
_SCAN = f"""
SELECT f.rowid, 1.0::float8, {LEAN} FROM (
    SELECT rowid, text, lowered FROM texts WHERE repo = ? AND lowered IS NOT NULL AND {{sort}}
    ORDER BY rowid DESC LIMIT ?) f {BASE}
WHERE {{condition}}
"""
_ALL_SORTS = ("TRUE",)
_EACH_SORT = ("rowid & 3 < 2", "rowid & 3 = 2", "rowid & 3 = 3")
_COUNTED = {
    "words": "SELECT text_count, text_words FROM repos WHERE no = ?",
    "triples": "SELECT unspaced_count, unspaced_triples FROM repos WHERE no = ?",
}
_HOLDING = "SELECT count(*) FROM texts f WHERE f.repo = ? AND {condition}"
_OF_TERM = """
SELECT f.rowid AS row, ?::float8 AS weight, ?::bigint AS bit FROM texts f
WHERE f.repo = ? AND {condition}
"""
_CANDIDATES = f"""
SELECT f.rowid, f.weight, {LEAN}, f.bits
FROM (SELECT row AS rowid, sum(weight) AS weight, sum(bit) AS bits FROM ({{terms}}) of_terms
      GROUP BY row HAVING count(*) >= ?) f {BASE}
WHERE {{condition}} ORDER BY f.weight DESC, f.rowid DESC
"""
_HOLDS = "SELECT 1 FROM texts f WHERE f.rowid = ? AND {condition}"


@dataclass(frozen=True, slots=True)
class _Operand:
    """
    What a row must hold.

    Attributes:
        condition: On ``texts f``; *values* are its.
        count: How often the row holds it, as an expression; *counted* are its values.
    """

    condition: str
    values: tuple[Any, ...]
    count: str
    counted: tuple[Any, ...]


def _words_operand(operand: str) -> _Operand | None:
    """``None``: nothing in it is a word, so nothing holds it."""
    phrase = stems(operand)
    if not phrase:
        return None
    holds = "f.words @> ?::text[]"
    if len(phrase) == 1:
        word = phrase[0]
        count = "coalesce(cardinality(array_positions(f.words, ?)), 0)"
        return _Operand(holds, (phrase,), count, (word,))
    count = "occurrences(f.words, ?::text[])"
    return _Operand(f"({holds} AND {count} > 0)", (phrase, phrase), count, (phrase,))


def _triples_operand(operand: str) -> _Operand | None:
    lowered = lower_each(composed(operand))
    holds = "(f.triples @> ?::text[] AND strpos(f.lowered, ?) > 0)"
    count = "(length(f.lowered) - length(replace(f.lowered, ?, ''))) / length(?::text)"
    return _Operand(holds, (_triples(lowered), lowered), count, (lowered, lowered))


_OPERANDS = {"words": _words_operand, "triples": _triples_operand}
_LENGTHS = {"words": "f.length", "triples": "greatest(length(f.lowered) - 2, 0)"}


class PostgresTexts:
    """``Texts`` over the rows of a repository in ``texts``."""

    def __init__(self, tx: Tx, repo: int) -> None:
        self._tx = tx
        self._repo = repo

    def matching(
        self, query: Query, condition: str, values: Sequence[Any], *, unspaced: bool
    ) -> Iterator[Sequence[Any]]:
        """Rows that match, by falling BM25; see ``Texts``."""
        index = "triples" if unspaced else "words"
        match, given = _any_group(query, index)
        score, weighed = self._score(query, index)
        statement = _RANKED.format(score=score, match=match, condition=condition)
        yield from self._tx.run(statement, (*weighed, self._repo, *given, *values))

    def _score(self, query: Query, index: str) -> tuple[str, tuple[Any, ...]]:
        """BM25 of a row as an expression, and its values."""
        count, total = self._counted(index)
        average = total / count if total else 1.0
        norm = f"({_K1} * ({1 - _B} + {_B} * {_LENGTHS[index]} / {average!r}))"
        parts: list[str] = []
        values: list[Any] = []
        for wanted in query.wanted:
            operand = _OPERANDS[index](wanted)
            if operand is None:
                continue
            idf = _idf(count, self._holding(operand))
            parts.append(f"{idf!r} * {operand.count} * {_K1 + 1} / ({operand.count} + {norm})")
            values += (*operand.counted, *operand.counted)
        return " + ".join(f"({part})::float8" for part in parts) or "0::float8", tuple(values)

    def _counted(self, index: str) -> tuple[int, int]:
        """How many texts there are, and how many words or triples in them."""
        row = self._tx.run(_COUNTED[index], (self._repo,)).fetchone()
        return row or (0, 0)

    def _holding(self, operand: _Operand) -> int:
        statement = _HOLDING.format(condition=operand.condition)
        return int(self._tx.run(statement, (self._repo, *operand.values)).fetchone()[0])

    def newest(self, limit: int, condition: str, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """The newest texts of each kind, if they are not all looked at; see ``Texts``."""
        count, _ = self._counted("triples")
        for sort in _ALL_SORTS if count <= limit else _EACH_SORT:
            statement = _SCAN.format(sort=sort, condition=condition)
            yield from self._tx.run(statement, (self._repo, limit, *values))

    def candidates(
        self,
        weights: Sequence[tuple[str, float]],
        least: int,
        condition: str,
        values: Sequence[Any],
    ) -> Iterator[Sequence[Any]]:
        """Rows that hold *least* of the terms; see ``Texts``."""
        parts: list[str] = []
        given: list[Any] = []
        for place, (term, weight) in enumerate(weights):
            operand = _operand(term)
            if operand is not None:
                parts.append(_OF_TERM.format(condition=operand.condition))
                given += (weight, 1 << place, self._repo, *operand.values)
        if parts:
            statement = _CANDIDATES.format(terms=" UNION ALL ".join(parts), condition=condition)
            yield from self._tx.run(statement, (*given, least, *values))

    def count(self, term: str | None = None) -> int:
        """How many texts hold *term*; how many there are."""
        if term is None:
            return self._counted("words")[0]
        operand = _operand(term)
        return 0 if operand is None else self._holding(operand)

    def holds(self, row: int, term: str) -> bool:
        """Whether the text of this number holds *term*."""
        operand = _operand(term)
        if operand is None:
            return False
        statement = _HOLDS.format(condition=operand.condition)
        return self._tx.run(statement, (row, *operand.values)).fetchone() is not None


def _operand(term: str) -> _Operand | None:
    return _OPERANDS["triples" if has_unspaced(term) else "words"](term)


def _any_group(query: Query, index: str) -> tuple[str, tuple[Any, ...]]:
    """The condition that a row matches one of the groups, and its values."""
    conditions: list[str] = []
    values: list[Any] = []
    for group in query.groups:
        condition, given = _group(group, index)
        conditions.append(condition)
        values += given
    return " OR ".join(conditions) or "FALSE", tuple(values)


def _group(group: Group, index: str) -> tuple[str, list[Any]]:
    wanted = [_OPERANDS[index](operand) for operand in group.wanted]
    unwanted = [_OPERANDS[index](operand) for operand in group.unwanted]
    if any(operand is None for operand in wanted):
        return "FALSE", []
    held = [operand for operand in wanted if operand is not None]
    barred = [operand for operand in unwanted if operand is not None]
    conditions = [o.condition for o in held] + [f"NOT {o.condition}" for o in barred]
    values = [value for operand in (*held, *barred) for value in operand.values]
    return f"({' AND '.join(conditions)})", values


def _idf(count: int, holding: int) -> float:
    return max(math.log((count - holding + 0.5) / (holding + 0.5)), _LEAST_IDF)

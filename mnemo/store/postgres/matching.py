"""Queries of the full text in PostgreSQL: found by GIN, weighed by BM25 as FTS5 has it, in SQL."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mnemo.runtime.text import composed, has_unspaced, lower_each
from mnemo.store.postgres.texts import stems, triples
from mnemo.store.text_rows import BASE, LEAN
from mnemo.store.tx import Tx
from mnemo.values.records import DAYS_OF_A_YEAR, Group, Query, Ranking

# BM25's usual constants, and the least weight of a term, as FTS5 has them.
_K1 = 1.2
_B = 0.75
_LEAST_IDF = 1e-6
_DAY_S = 86_400
_PAGE = 256
"""Rows whose records are looked up first; mostly the best are among them."""


def contains(lowered: str) -> str:
    """The condition that a text of a script without blanks, case aside, has a part ``?``."""
    return "strpos(f.lowered, ?) > 0"


def texts(tx: Tx, repo: int) -> PostgresTexts:
    """The full text of the repository of this number."""
    return PostgresTexts(tx, repo)


# How often each operand is in a text is counted once, and without looking at its record.
_RANKED = f"""
SELECT f.rowid, c.score, {LEAN}, {{condition}} FROM (
    SELECT rowid, score, score / ({{aging}}) AS aged FROM (
        SELECT rowid, at, {{score}} AS score FROM (
            SELECT f.rowid, f.at, {{length}}::float8 AS length, {{counts}}
            FROM texts f WHERE f.repo = ? AND ({{found}}) OFFSET 0) f
        WHERE {{match}}) f
    ORDER BY aged DESC, rowid {{page}}) c
JOIN texts f ON f.rowid = c.rowid {BASE} ORDER BY c.aged DESC, f.rowid
"""
_PAGES = (f"LIMIT {_PAGE}", f"OFFSET {_PAGE}")
_PART = "{idf} * {n} * {more} / ({n} + {least} + {each} * length)"
_AGING = "1::float8 + {decay} * greatest(0::float8, {now} - at)"
# Of what is a group of its own, every text that holds it is among those that match.
_IDF = f"greatest(ln(({{count}} - {{holding}} + 0.5) / ({{holding}} + 0.5)), {_LEAST_IDF})"
_HOLDING_IT = "(count(*) FILTER (WHERE {n} > 0) OVER ())::float8"
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
    What a text may hold.

    Attributes:
        found: The condition on ``texts f`` by which it is looked up; *given* are its values.
        count: How often the text holds it, as an expression; *counted* are its values.
        is_sure: Whether what is looked up holds it.
    """

    found: str
    given: tuple[Any, ...]
    count: str
    counted: tuple[Any, ...]
    is_sure: bool = False

    @property
    def condition(self) -> str:
        """The condition that a text holds it."""
        return self.found if self.is_sure else f"({self.found} AND {self.count} > 0)"

    @property
    def values(self) -> tuple[Any, ...]:
        """Those of ``condition``."""
        return self.given if self.is_sure else (*self.given, *self.counted)


def _words_operand(operand: str) -> _Operand | None:
    """``None``: nothing in it is a word, so nothing holds it."""
    phrase = stems(operand)
    if not phrase:
        return None
    found = "f.words @> ?::text[]"
    if len(phrase) == 1:
        count = "cardinality(array_positions(f.words, ?))"
        return _Operand(found, (phrase,), count, (phrase[0],), is_sure=True)
    if any(phrase[:size] == phrase[-size:] for size in range(1, len(phrase))):
        # It may begin within itself.
        return _Operand(found, (phrase,), "occurrences(f.words, ?::text[])", (phrase,))
    parted = "string_to_array(' ' || array_to_string(f.words, '  ') || ' ', ?::text)"
    return _Operand(found, (phrase,), f"(cardinality({parted}) - 1)", (f" {'  '.join(phrase)} ",))


def _triples_operand(operand: str) -> _Operand | None:
    lowered = lower_each(composed(operand))
    count = "(length(f.lowered) - length(replace(f.lowered, ?, ''))) / length(?::text)"
    found = "f.triples @> ?::text[]"
    return _Operand(found, (triples(lowered),), f"({count})", (lowered, lowered))


_OPERANDS = {"words": _words_operand, "triples": _triples_operand}
_LENGTHS = {"words": "f.length", "triples": "greatest(length(f.lowered) - 2, 0)"}


class PostgresTexts:
    """``Texts`` over the rows of a repository in ``texts``."""

    is_ranked: ClassVar[bool] = True

    def __init__(self, tx: Tx, repo: int) -> None:
        self._tx = tx
        self._repo = repo

    def matching(
        self,
        query: Query,
        condition: str,
        values: Sequence[Any],
        ranking: Ranking,
        *,
        unspaced: bool,
    ) -> Iterator[Sequence[Any]]:
        """Rows that match, by falling score; see ``Texts``."""
        index = "triples" if unspaced else "words"
        made = {
            text: _OPERANDS[index](text) for g in query.groups for text in g.wanted + g.unwanted
        }
        operands = {text: operand for text, operand in made.items() if operand is not None}
        groups = [group for group in query.groups if operands.keys() >= {*group.wanted}]
        if not groups:
            return
        found = [operands[text] for group in groups for text in group.wanted]
        given = (
            *(value for operand in operands.values() for value in operand.counted),
            self._repo,
            *(value for operand in found for value in operand.given),
        )
        columns = {text: f"n{place}" for place, text in enumerate(operands)}
        statement = _RANKED.format(
            condition=condition,
            aging=_aging(ranking),
            score=self._score(groups, operands, columns, index),
            length=_LENGTHS[index],
            counts=", ".join(f"({operands[t].count})::float8 AS {n}" for t, n in columns.items()),
            found=" OR ".join(
                " AND ".join(operands[text].found for text in group.wanted) for group in groups
            ),
            match=" OR ".join(f"({_group(group, columns)})" for group in groups),
            page="{page}",
        )
        for page in _PAGES:
            rows = self._tx.run(statement.format(page=page), (*values, *given)).fetchall()
            yield from (row for row in rows if row[-1])
            if len(rows) < _PAGE:
                break

    def _score(
        self,
        groups: Sequence[Group],
        operands: Mapping[str, _Operand],
        columns: Mapping[str, str],
        index: str,
    ) -> str:
        """BM25, on the counts of the operands of those groups that match, as FTS5 has it."""
        count, total = self._counted(index)
        average = total / count if total else 1.0
        alone = {g.wanted[0] for g in groups if len(g.wanted) == 1 and not g.unwanted}
        parts: dict[str, str] = {}
        for text in dict.fromkeys(text for group in groups for text in group.wanted):
            n = columns[text]
            if text in alone:
                idf = _IDF.format(count=_real(count), holding=_HOLDING_IT.format(n=n))
            else:
                idf = _real(_idf(count, self._holding(operands[text])))
            more, least, each = map(_real, (_K1 + 1, _K1 * (1 - _B), _K1 * _B / average))
            parts[text] = _PART.format(idf=idf, n=n, more=more, least=least, each=each)
        return " + ".join(
            f"CASE WHEN {_group(group, columns)} THEN {' + '.join(parts[t] for t in group.wanted)} "
            "ELSE 0 END"
            for group in groups
        )

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


def _group(group: Group, columns: Mapping[str, str]) -> str:
    """The condition that a text matches the group, on the counts of its operands."""
    held = [f"{columns[text]} > 0" for text in group.wanted]
    barred = [f"{columns[text]} = 0" for text in group.unwanted if text in columns]
    return " AND ".join([*held, *barred])


def _aging(ranking: Ranking) -> str:
    """What a score is divided by; see ``Ranking.score``."""
    decay = ranking.decay / (DAYS_OF_A_YEAR * _DAY_S)
    return _AGING.format(decay=_real(decay), now=_real(ranking.now.timestamp()))


def _idf(count: int, holding: int) -> float:
    return max(math.log((count - holding + 0.5) / (holding + 0.5)), _LEAST_IDF)


def _real(value: float) -> str:
    return f"'{float(value)!r}'::float8"

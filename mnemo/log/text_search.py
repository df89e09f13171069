"""
What texts of a repository hold the words of a query, best first.

Words are weighed by BM25 as in FTS5. Scores come from a repository's own counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mnemo.runtime.text import composed, has_unspaced, lower_each
from mnemo.store.rows import Rows
from mnemo.store.texts import stems, triples
from mnemo.store.tx import Tx
from mnemo.values.records import DAYS_OF_A_YEAR, Group, Query, Ranking

LEAN = """
    coalesce(p.at, m.at, n.at), coalesce(s.id, t.id), coalesce(2 * p.ordinal + (f.no & 1),
    m.seq, n.from_seq), coalesce(t.ttl_s, q.ttl_s), coalesce(m.recorded_at, o.recorded_at, (
        SELECT o.recorded_at FROM messages o WHERE o.repo = n.repo AND o.thread = n.thread
        AND o.seq BETWEEN n.from_seq AND n.to_seq ORDER BY o.seq LIMIT 1)),
    coalesce(q.id, ''), coalesce(o.seq, -1), o.no
"""
"""What ``Lean`` has behind row and relevance: enough to rank a row, and to see if it lives."""
BASE = """
LEFT JOIN steps p ON p.ordinal = CASE WHEN f.no & 3 < 2 THEN f.no >> 2 END AND $also p.repo = ?
LEFT JOIN sessions s ON s.no = p.session AND $also s.repo = p.repo
LEFT JOIN messages m ON m.no = CASE f.no & 3 WHEN 2 THEN f.no >> 2 END AND $also m.repo = ?
LEFT JOIN snapshots n ON n.no = CASE f.no & 3 WHEN 3 THEN f.no >> 2 END AND $also n.repo = ?
LEFT JOIN threads t ON t.no = coalesce(m.thread, n.thread) AND $also t.repo = ?
LEFT JOIN threads q ON q.repo = p.repo AND q.id = p.thread
LEFT JOIN messages o ON o.repo = ? AND o.thread = q.no AND o.id = p.message
"""
"""
What the rows of a full text *f* are the text of; *o* is the message that a step repeats. Its values
are ``_BASES`` times the number of the repository.
"""
_BASES = 5

# BM25's usual constants, and the least weight of a term, as FTS5 has them.
_K1 = 1.2
_B = 0.75
_LEAST_IDF = 1e-6
_DAY_S = 86_400
_ALL = 1 << 62
_PAGE, _MORE = 256, 16
"""
Rows that match whose records are looked up first: mostly the best are among them. Then so many
times more, or all others, if hardly any of them was one that is looked for.
"""

# See ``Ranking.score``.
_AGING = "1 + ? * $greatest(0, ? - at)"
_PART = f"? * {{n}} * {_K1 + 1} / ({{n}} + {_K1 * (1 - _B)} + ? * length)"
# How often each operand is in a text is counted once, and without looking at its record: a
# limit keeps a query from being merged into the one around it.
_RANKED = f"""
SELECT f.no, c.score, {LEAN}, {{shown}} FROM (
    SELECT no, score, score / ({_AGING}) AS aged FROM (
        SELECT no, at, {{score}} AS score FROM (
            SELECT f.no, f.at, CAST({{length}} AS DOUBLE PRECISION) AS length, {{counts}}
            FROM {{found}} LIMIT {_ALL}) f
        WHERE {{match}} LIMIT {_ALL}) f
    ORDER BY aged DESC, no LIMIT ? OFFSET ?) c
$join texts f ON f.no = c.no AND $also f.repo = ? {BASE} WHERE {{read}} ORDER BY c.aged DESC, f.no
"""
_COUNT = "CAST({} AS DOUBLE PRECISION) AS {}"
_SCAN = f"""
SELECT f.no, CAST(1 AS DOUBLE PRECISION), {LEAN} FROM (
    SELECT no, lowered FROM texts f WHERE repo = ? AND lowered IS NOT NULL AND {{sort}}
    ORDER BY no DESC LIMIT ?) f {BASE}
WHERE {{condition}}
"""
_COUNTED = {
    "words": "SELECT id, text_count, text_words FROM repos WHERE no = ?",
    "triples": "SELECT id, unspaced_count, unspaced_triples FROM repos WHERE no = ?",
}
_REPOS: Rows[tuple[int, int]] = Rows("repos", "s i i", lambda row: (row[1], row[2]))
_LENGTHS = {"words": "f.length", "triples": "$greatest(length(f.lowered) - 2, 0)"}
_OF_TERM = "SELECT f.no, {weight} AS weight, {bit} AS bit FROM {found}"
_CANDIDATES = f"""
SELECT f.no, f.weight, {LEAN}, f.bits
FROM (SELECT no, CAST(sum(weight) AS DOUBLE PRECISION) AS weight,
             CAST(sum(bit) AS BIGINT) AS bits
      FROM ({{terms}}) of_terms GROUP BY no HAVING count(*) >= ?) f {BASE}
WHERE {{condition}} ORDER BY f.weight DESC, f.no DESC
"""


class _Operand(NamedTuple):
    """
    What a text may hold: it is looked up by *tokens*, and held *times*, in SQL, with values
    *counted*. *is_sure*: Whatever is looked up holds it, so that nothing is checked again.
    """

    tokens: Sequence[str]
    times: str
    counted: tuple[Any, ...]
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Texts:
    """
    The full text of one repository. A condition is one on ``BASE``, and rows are of
    number, relevance and ``LEAN``. Texts of scripts without blanks are found by every
    part of them, *unspaced*; others by their words.
    """

    tx: Tx
    repo: int

    def matching(
        self,
        query: Query,
        condition: str,
        values: Sequence[Any],
        ranking: Ranking,
        *,
        unspaced: bool,
    ) -> Iterator[Sequence[Any]]:
        """Rows that match by falling score, age included, read as they are asked for."""
        index = "triples" if unspaced else "words"
        made = {
            text: self._operand(index, text)
            for group in query.groups
            for text in group.wanted + group.unwanted
        }
        operands = {text: operand for text, operand in made.items() if operand is not None}
        groups = [group for group in query.groups if operands.keys() >= {*group.wanted}]
        if not groups:
            return
        columns = {text: f"n{place}" for place, text in enumerate(operands)}
        looked_up = [[t for text in g.wanted for t in operands[text].tokens] for g in groups]
        found, given = self.tx.dialect.found(index, self.repo, looked_up, bare=False)
        counted = [value for operand in operands.values() for value in operand.counted]
        score, weights = self._score(groups, operands, columns, index)
        aging = (ranking.decay / (DAYS_OF_A_YEAR * _DAY_S), ranking.now.timestamp())
        given = (*aging, *weights, *counted, *given)
        statement = _RANKED.format(
            score=score,
            length=_LENGTHS[index],
            counts=", ".join(_COUNT.format(operands[t].times, n) for t, n in columns.items()),
            found=found,
            match=" OR ".join(f"({_match(group, columns)})" for group in groups),
            **{name: f"{{{name}}}" for name in ("shown", "read")},
        )
        limit, offset, of_repo = _PAGE, 0, [self.repo] * (1 + _BASES)
        while limit < _ALL:
            page = statement.format(shown=condition, read="TRUE")
            rows = self.tx.run(page, (*values, *given, limit, offset, *of_repo)).fetchall()
            wanted = [row for row in rows if row[-1]]
            yield from wanted
            if len(rows) < limit:
                return
            offset += limit
            limit = _MORE * limit if _MORE * len(wanted) > limit else _ALL
        page = statement.format(shown="TRUE", read=condition)
        yield from self.tx.run(page, (*given, limit, offset, *of_repo, *values)).fetchall()

    def _score(
        self,
        groups: Sequence[Group],
        operands: Mapping[str, _Operand],
        columns: Mapping[str, str],
        index: str,
    ) -> tuple[str, list[float]]:
        """BM25, on the counts of the operands of those groups that match, as FTS5 has it."""
        count, total = self._counted(index)
        each = _K1 * _B * (count / total if total else 1.0)
        weights: dict[str, float] = {}
        for text in dict.fromkeys(text for group in groups for text in group.wanted):
            holding = self._holding(index, operands[text])
            others = max(count - holding, 0)
            weights[text] = max(math.log((others + 0.5) / (holding + 0.5)), _LEAST_IDF)
        cases, values = [], []
        for group in groups:
            parts = " + ".join(_PART.format(n=columns[text]) for text in group.wanted)
            cases.append(f"CASE WHEN {_match(group, columns)} THEN {parts} ELSE 0 END")
            values += [value for text in group.wanted for value in (weights[text], each)]
        return " + ".join(cases), values

    def newest(self, limit: int, condition: str, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Of steps, messages and snapshots the newest *limit* each, of those *unspaced*."""
        count, _ = self._counted("triples")
        kinds = ("f.no & 3 < 2", "f.no & 3 = 2", "f.no & 3 = 3")
        for sort in ("TRUE",) if count <= limit else kinds:
            statement = _SCAN.format(sort=sort, condition=condition)
            base = [self.repo] * _BASES
            yield from self.tx.run(statement, (self.repo, limit, *base, *values))

    def candidates(
        self,
        weights: Sequence[tuple[str, float]],
        least: int,
        condition: str,
        values: Sequence[Any],
    ) -> Iterator[Sequence[Any]]:
        """
        Rows that hold *least* of the terms, by the falling sum of their weights. Behind ``LEAN`` is
        the sum of ``1 << place`` of the terms that the row holds.
        """
        parts: list[str] = []
        given: list[Any] = []
        for place, (term, weight) in enumerate(weights):
            if (one := self._term(term)) is not None:
                found, held = self._held(*one)
                parts.append(_OF_TERM.format(weight=float(weight), bit=1 << place, found=found))
                given += held
        if parts:
            statement = _CANDIDATES.format(terms=" UNION ALL ".join(parts), condition=condition)
            yield from self.tx.run(statement, (*given, least, *[self.repo] * _BASES, *values))

    def count(self, term: str | None = None) -> int:
        """How many texts hold *term*; how many there are."""
        if term is None:
            return self._counted("words")[0]
        one = self._term(term)
        return 0 if one is None else self._holding(*one)

    def holds(self, row: int, term: str) -> bool:
        """Whether the text of this number holds *term*."""
        if (one := self._term(term)) is None:
            return False
        statement = (
            f"SELECT 1 FROM texts f WHERE f.no = ? AND $also f.repo = ? AND {one[1].times} > 0"
        )
        return self.tx.run(statement, (row, self.repo, *one[1].counted)).fetchone() is not None

    def _counted(self, index: str) -> tuple[int, int]:
        """How many texts there are, and how many words or triples in them."""
        row = self.tx.run(_COUNTED[index], (self.repo,)).fetchone()
        return (0, 0) if row is None else _REPOS.one(row)

    def _holding(self, index: str, operand: _Operand) -> int:
        found, values = self._held(index, operand)
        return int(self.tx.run(f"SELECT count(*) FROM {found}", values).fetchone()[0])

    def _held(self, index: str, operand: _Operand) -> tuple[str, tuple[Any, ...]]:
        """What holds *operand*, rows *f* behind ``FROM``, with its values."""
        found, values = self.tx.dialect.found(
            index, self.repo, [operand.tokens], bare=operand.is_sure
        )
        if operand.is_sure:
            return found, values
        return f"{found} AND {operand.times} > 0", (*values, *operand.counted)

    def _term(self, term: str) -> tuple[str, _Operand] | None:
        index = "triples" if has_unspaced(term) else "words"
        operand = self._operand(index, term)
        return None if operand is None else (index, operand)

    def _operand(self, index: str, operand: str) -> _Operand | None:
        """``None``: nothing in it can be looked up, so nothing holds it."""
        if index == "words":
            words = stems(operand)
            if not words:
                return None
            return _Operand(words, *self.tx.dialect.occurrences(words), len(words) == 1)
        lowered = lower_each(composed(operand))
        if not (parts := triples(lowered)):
            return None
        times = f"(length(f.lowered) - length(replace(f.lowered, ?, ''))) / {len(lowered)}"
        return _Operand(parts, times, (lowered,), False)


def _match(group: Group, columns: Mapping[str, str]) -> str:
    """The condition that a text matches the group, on the counts of its operands."""
    held = [f"{columns[text]} > 0" for text in group.wanted]
    barred = [f"{columns[text]} = 0" for text in group.unwanted if text in columns]
    return " AND ".join([*held, *barred])

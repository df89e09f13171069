"""Every single thing said or observed in one repository, found by its words, on SQLite."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mnemo.protocols import Clock
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import has_unspaced, lower_each
from mnemo.store.damage import Passed, log_passed
from mnemo.store.engine import Engine
from mnemo.store.record_rows import BASE, LEAN, LEANS, Expiry, Lean, Scope, read_records
from mnemo.store.record_views import around
from mnemo.store.rows import repo_row
from mnemo.store.sqlite.texts import refusing_expression, text_tables
from mnemo.store.surfacing import surfacing
from mnemo.store.tx import Tx
from mnemo.values.records import (
    Group,
    Query,
    Ranking,
    RecordHit,
    RecordQuery,
    Surfacing,
    SurfacingQuery,
    Surroundings,
    ViewQuery,
)

__all__ = ["StoredRecords"]

SHORTEST_TRIPLE = 3
"""Characters of an operand that the table of triples can look up."""

# Ordered by the full text itself, so that the rest is read only of rows that are taken.
_BY_RELEVANCE = f"""
SELECT f.rowid, -f.rank, {LEAN} FROM {{table}} f {BASE}
WHERE {{table}} MATCH ? AND {{condition}} ORDER BY f.rank
"""
_SCAN = f"""
SELECT f.rowid, 1.0, {LEAN}
FROM (SELECT rowid, text FROM {{table}} WHERE {{sort}} ORDER BY rowid DESC LIMIT ?) f {BASE}
WHERE {{condition}}
"""
# One small row per text; to count the full text itself reads all of it.
_COUNT = "SELECT count(*) FROM {table}_docsize"
_ALL_SORTS = ("1",)
_EACH_SORT = ("rowid & 3 < 2", "rowid & 3 = 2", "rowid & 3 = 3")


class StoredRecords:
    """``RecordStore`` over an engine."""

    def __init__(self, repo_id: str, engine: Engine, clock: Clock) -> None:
        self._repo_id = repo_id
        self._engine = engine
        self._clock = clock

    async def search(self, wanted: RecordQuery) -> list[RecordHit]:
        """
        Find records, best first; every filter of *wanted* applies before its limit.

        Raises:
            ValueError: The full text refuses the expression. *Cancellation*: safe.
        """
        return await self._engine.reading(partial(_search, repo_id=self._repo_id, wanted=wanted))

    async def around(self, wanted: ViewQuery) -> Surroundings:
        """
        A record with its nearest neighbours, and the snapshots around them.

        Raises:
            NotFound: There is no such record.
            Conflict: Several threads have a record of this id. *Cancellation*: safe.
        """
        expiry = Expiry(self._clock.now(), wanted.default_ttl_s)
        return await self._engine.reading(
            partial(around, repo_id=self._repo_id, wanted=wanted, expiry=expiry)
        )

    async def surfacing(self, wanted: SurfacingQuery) -> Surfacing:
        """Records that match any of some terms, best first. *Cancellation*: safe."""
        return await self._engine.reading(partial(surfacing, repo_id=self._repo_id, wanted=wanted))


@dataclass(slots=True)
class _Best:
    """
    The best rows so far, at most *limit*; rows must come by falling relevance.

    Age only lowers a score, so what is to come is worth its relevance at most.
    """

    ranking: Ranking
    limit: int
    rows: list[tuple[tuple[float, float, str, int], Lean]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def take(self, lean: Lean) -> None:
        """Keep it if it is among the best, once: a message and its step are one record."""
        if lean.row in self.seen:
            return
        self.seen.add(lean.row)
        insort(self.rows, (lean.order(self.ranking), lean))
        del self.rows[self.limit :]

    def is_settled(self, relevance: float) -> bool:
        """Whether no row of this relevance, or less, could be among them any more."""
        return len(self.rows) == self.limit and round(relevance, 9) < -self.rows[-1][0][0]


def _search(tx: Tx, repo_id: str, wanted: RecordQuery) -> list[RecordHit]:
    repo = repo_row(tx, repo_id)[0]
    tables = text_tables(tx, repo)
    scope = Scope.of(repo, stream=wanted.session_id, hidden=wanted.hidden)
    if _in_triples(wanted.query):
        found = _by_triples(tx, tables.grams, scope, wanted) if tables.grams else []
    else:
        found = _by_words(tx, tables.words, scope, wanted) if tables.words else []
    records = read_records(tx, [lean.row for lean in found])
    return [
        RecordHit(record=records[lean.row], relevance=lean.relevance)
        for lean in found
        if lean.row in records
    ]


def _in_triples(query: Query) -> bool:
    operands = (o for group in query.groups for o in (*group.wanted, *group.unwanted))
    return any(map(has_unspaced, operands))


def _by_words(tx: Tx, table: str, scope: Scope, wanted: RecordQuery) -> list[Lean]:
    statement = _BY_RELEVANCE.format(table=table, condition=scope.condition)
    expression = wanted.query.expression
    best = _Best(wanted.ranking, wanted.limit)
    _take(best, _matching(tx, statement, (expression, *scope.values)), wanted)
    return [lean for _, lean in best.rows]


def _take(best: _Best, rows: Iterable[Lean], wanted: RecordQuery) -> None:
    """Take the best of *rows*, which come by falling relevance, and read no further."""
    breather = Breather()
    expiry = Expiry(wanted.ranking.now, wanted.default_ttl_s)
    for lean in rows:
        breather.breathe()
        if best.is_settled(lean.relevance):
            break
        if shown := expiry.living(lean):
            best.take(shown)


def _matching(tx: Tx, statement: str, values: Sequence[Any]) -> Iterator[Lean]:
    """
    The rows of a statement whose first value is an expression of the full text.

    Raises:
        ValueError: It is refused.
    """
    with refusing_expression(values[0]):
        yield from _leans(tx.run(statement, values))


def _leans(rows: Iterable[Sequence[Any]]) -> Iterator[Lean]:
    """*rows* one by one, since few of many may be taken; damaged ones are passed by."""
    passed: Passed = []
    for row in rows:
        yield from LEANS.all([row], passed)
    log_passed(passed)


# ── Parts of words ───────────────────────────────────────────────────────────────────


def _by_triples(tx: Tx, table: str, scope: Scope, wanted: RecordQuery) -> list[Lean]:
    """The best of what each group finds; of a row that several find the most relevant."""
    found: dict[int, tuple[tuple[float, float, str, int], Lean]] = {}
    for group in wanted.query.groups:
        best = _Best(wanted.ranking, wanted.limit)
        _take(best, _of_group(tx, table, scope, group, wanted.scan_limit), wanted)
        for entry in best.rows:
            row = entry[1].row
            found[row] = min(entry, found.get(row, entry))
    return [lean for _, lean in sorted(found.values())[: wanted.limit]]


def _of_group(tx: Tx, table: str, scope: Scope, group: Group, scan_limit: int) -> Iterator[Lean]:
    long = Group(
        tuple(o for o in group.wanted if len(o) >= SHORTEST_TRIPLE),
        tuple(o for o in group.unwanted if len(o) >= SHORTEST_TRIPLE),
    )
    if long.wanted:
        held = _holding(tx, group, "f.text", longest=SHORTEST_TRIPLE - 1)
        condition = f"{scope.condition} AND {held.condition}"
        statement = _BY_RELEVANCE.format(table=table, condition=condition)
        values = (long.expression, *scope.values, *held.values)
        return _matching(tx, statement, values)
    held = _holding(tx, group, "f.text")
    condition = f"{held.condition} AND {scope.condition}"
    return _scanned(tx, table, Scope(condition, (*held.values, *scope.values)), scan_limit)


def _scanned(tx: Tx, table: str, scope: Scope, scan_limit: int) -> Iterator[Lean]:
    """Of steps, messages and snapshots the newest *scan_limit* each, if that is not all."""
    (count,) = tx.run(_COUNT.format(table=table)).fetchone()
    for sort in _ALL_SORTS if count <= scan_limit else _EACH_SORT:
        statement = _SCAN.format(table=table, sort=sort, condition=scope.condition)
        yield from _leans(tx.run(statement, (scan_limit, *scope.values)))


def _holding(tx: Tx, group: Group, text: str, *, longest: int | None = None) -> Scope:
    """That *text* holds the operands (those of at most *longest* characters), case aside."""
    conditions: list[str] = ["1"]
    values: list[str] = []
    for operands, no in ((group.wanted, ""), (group.unwanted, "NOT ")):
        for operand in operands:
            if longest is not None and len(operand) > longest:
                continue
            lowered = lower_each(operand)
            conditions.append(f"{no}instr({_lower(tx, lowered)}({text}), ?)")
            values.append(lowered)
    return Scope(" AND ".join(conditions), tuple(values))


def _lower(tx: Tx, lowered: str) -> str:
    """What lowers a text for looking up *lowered*: SQLite itself knows the case of ASCII alone."""
    if lowered.isascii() or not any(c.upper() != c for c in lowered if not c.isascii()):
        return "lower"
    return "mnemo_lower"

"""Every single thing said or observed in one repository, found by its words."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from mnemo.log.evidence import let_through
from mnemo.log.record_rows import LEANS, Expiry, Lean, Scope, read_records
from mnemo.log.record_views import around
from mnemo.log.surfacing import surfacing
from mnemo.protocols import Clock
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import has_unspaced, lower_each
from mnemo.store.damage import Passed, log_passed
from mnemo.store.engine import Engine
from mnemo.store.rows import repo_row
from mnemo.store.tx import Texts, Tx
from mnemo.values.records import (
    DAYS_OF_A_YEAR,
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

_LOOKED_AT = 64
"""Rows for which one age is worked out; by those before it is greater, so none is missed."""
_LONG_AGO = 300_000
"""Days, about as many as there have been years."""
SHORTEST_TRIPLE = 3
"""Characters of an operand that an index of parts, *unspaced*, can look up."""


class StoredRecords:
    """Every single thing said or observed in one repository, found by its words."""

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
    The best rows so far, at most *limit*; rows come by falling score if *is_ranked*.

    Otherwise by falling relevance: age only lowers a score, so what is to come is worth its
    relevance at most.
    """

    ranking: Ranking
    limit: int
    is_ranked: bool
    rows: list[tuple[tuple[float, float, str, int], Lean]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def take(self, lean: Lean) -> None:
        """Keep it if it is among the best, once: a message and its step are one record."""
        if lean.row in self.seen:
            return
        self.seen.add(lean.row)
        insort(self.rows, (lean.order(self.ranking), lean))
        del self.rows[self.limit :]

    def hopeful(self, rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """
        Those of *rows* that may be among the best.

        Of a common word most are too old, which their raw times tell: to read one further takes
        longer than to find it.
        """
        if self.is_ranked:
            yield from rows
            return
        oldest, breather = "", Breather()
        for place, row in enumerate(rows):
            if place % _LOOKED_AT == 0 and len(self.rows) == self.limit:
                if round(row[1], 9) < -self.rows[-1][0][0]:
                    return
                oldest = self._oldest(row[1])
                breather.breathe()
            if not isinstance(row[2], str) or row[2] >= oldest:
                yield row

    def _oldest(self, relevance: float) -> str:
        """The day before which what has at most this relevance is not among the best."""
        ranking, least = self.ranking, -self.rows[-1][0][0]
        if not ranking.decay or least <= 0:
            return ""
        days = (relevance / least - 1) / ranking.decay * DAYS_OF_A_YEAR
        if days > _LONG_AGO:
            return ""
        # A time is stored with its offset, which is less than a day; another is for rounding.
        return (ranking.now - timedelta(days=days + 2)).date().isoformat()

    def is_settled(self, lean: Lean) -> bool:
        """Whether neither *lean* nor what comes behind it could be among them any more."""
        if len(self.rows) < self.limit:
            return False
        worth = -lean.order(self.ranking)[0] if self.is_ranked else round(lean.relevance, 9)
        return worth < -self.rows[-1][0][0]


def _search(tx: Tx, repo_id: str, wanted: RecordQuery) -> list[RecordHit]:
    repo = repo_row(tx, repo_id)[0]
    texts = tx.dialect.texts(tx, repo)
    scope = Scope.of(repo, stream=wanted.session_id, hidden=wanted.hidden)
    by = _by_parts if _is_unspaced(wanted.query) else _by_words
    found = by(tx, texts, scope, wanted)
    records = read_records(tx, [lean.row for lean in found])
    return [
        RecordHit(record=records[lean.row], relevance=lean.relevance)
        for lean in found
        if lean.row in records
    ]


def _is_unspaced(query: Query) -> bool:
    operands = (o for group in query.groups for o in (*group.wanted, *group.unwanted))
    return any(map(has_unspaced, operands))


def _by_words(tx: Tx, texts: Texts, scope: Scope, wanted: RecordQuery) -> list[Lean]:
    best = _Best(wanted.ranking, wanted.limit, texts.is_ranked)
    rows = texts.matching(
        wanted.query, scope.condition, scope.values, wanted.ranking, unspaced=False
    )
    _take(best, let_through(tx, _leans(best.hopeful(rows)), wanted), wanted)
    return [lean for _, lean in best.rows]


def _take(best: _Best, rows: Iterable[Lean], wanted: RecordQuery) -> None:
    """Take the best of *rows*, and read no further."""
    breather = Breather()
    expiry = Expiry(wanted.ranking.now, wanted.default_ttl_s)
    for lean in rows:
        breather.breathe()
        if best.is_settled(lean):
            break
        if shown := expiry.living(lean):
            best.take(shown)


def _leans(rows: Iterable[Sequence[Any]]) -> Iterator[Lean]:
    """*rows* one by one, since few of many may be taken; damaged ones are passed by."""
    passed: Passed = []
    for row in rows:
        yield from LEANS.all([row], passed)
    log_passed(passed)


# ── Parts of words ───────────────────────────────────────────────────────────────────


def _by_parts(tx: Tx, texts: Texts, scope: Scope, wanted: RecordQuery) -> list[Lean]:
    """The best of what each group finds; of a row that several find the most relevant."""
    found: dict[int, tuple[tuple[float, float, str, int], Lean]] = {}
    for group in wanted.query.groups:
        rows, is_ranked = _of_group(tx, texts, scope, group, wanted)
        best = _Best(wanted.ranking, wanted.limit, is_ranked)
        _take(best, let_through(tx, _leans(best.hopeful(rows)), wanted), wanted)
        for entry in best.rows:
            row = entry[1].row
            found[row] = min(entry, found.get(row, entry))
    return [lean for _, lean in sorted(found.values())[: wanted.limit]]


def _of_group(
    tx: Tx, texts: Texts, scope: Scope, group: Group, wanted: RecordQuery
) -> tuple[Iterator[Sequence[Any]], bool]:
    """What matches the group, and whether it comes by falling score."""
    long = Group(
        tuple(o for o in group.wanted if len(o) >= SHORTEST_TRIPLE),
        tuple(o for o in group.unwanted if len(o) >= SHORTEST_TRIPLE),
    )
    held = _holding(tx, group, longest=SHORTEST_TRIPLE - 1 if long.wanted else None)
    if long.wanted:
        condition = f"{scope.condition} AND {held.condition}"
        values = (*scope.values, *held.values)
        rows = texts.matching(Query((long,)), condition, values, wanted.ranking, unspaced=True)
        return rows, texts.is_ranked
    condition = f"{held.condition} AND {scope.condition}"
    return texts.newest(wanted.scan_limit, condition, (*held.values, *scope.values)), False


def _holding(tx: Tx, group: Group, *, longest: int | None) -> Scope:
    """That the text holds the operands (those of at most *longest* characters), case aside."""
    conditions: list[str] = ["TRUE"]
    values: list[str] = []
    for operands, no in ((group.wanted, ""), (group.unwanted, "NOT ")):
        for operand in operands:
            if longest is not None and len(operand) > longest:
                continue
            lowered = lower_each(operand)
            conditions.append(no + tx.dialect.contains(lowered))
            values.append(lowered)
    return Scope(" AND ".join(conditions), tuple(values))

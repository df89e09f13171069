"""Every single thing said or observed in one repository, found by its words."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from mnemo.log.record_rows import LEANS, PARTS, Expiry, Lean, Scope, around, read_records
from mnemo.log.text_search import Texts
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import has_unspaced, lower_each
from mnemo.store.engine import OfRepository
from mnemo.store.rows import Passed, Rows, listed, log_passed, repo_row
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_object, decode_time
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
    telling_terms,
    term_weight,
)

SHORTEST_TRIPLE = 3
"""Characters of an operand that an index of parts, *unspaced*, can look up."""


class StoredRecords(OfRepository):
    """Every single thing said or observed in one repository, found by its words."""

    async def search(self, wanted: RecordQuery) -> list[RecordHit]:
        """
        Find records, best first; every filter of *wanted* applies before its limit.

        *Raises* ``ValueError``: the full text refuses the expression. *Cancellation*: safe.
        """
        return await self._engine.reading(partial(_search, repo_id=self._repo_id, wanted=wanted))

    async def around(self, wanted: ViewQuery) -> Surroundings:
        """As of ``record_rows.around``. *Cancellation*: safe."""
        expiry = Expiry(self._clock.now(), wanted.default_ttl_s)
        return await self._engine.reading(
            partial(around, repo_id=self._repo_id, wanted=wanted, expiry=expiry)
        )

    async def surfacing(self, wanted: SurfacingQuery) -> Surfacing:
        """Records that match any of some terms, best first. *Cancellation*: safe."""
        return await self._engine.reading(partial(surfacing, repo_id=self._repo_id, wanted=wanted))


@dataclass(slots=True)
class _Best:
    """The best rows so far, at most *limit*."""

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

    def is_settled(self, lean: Lean) -> bool:
        """Whether neither *lean* nor what has a lower score could be among them any more."""
        worst = self.rows[-1][0][0] if len(self.rows) == self.limit else math.inf
        return lean.order(self.ranking)[0] > worst


def _search(tx: Tx, repo_id: str, wanted: RecordQuery) -> list[RecordHit]:
    repo = repo_row(tx, repo_id)[0]
    texts = Texts(tx, repo)
    scope = Scope.of(repo, stream=wanted.session_id, hidden=wanted.hidden)
    by = _by_parts if _is_unspaced(wanted.query) else _by_words
    found = by(texts, scope, wanted)
    records = read_records(tx, repo, [lean.row for lean in found])
    return [
        RecordHit(record=records[lean.row], relevance=lean.relevance)
        for lean in found
        if lean.row in records
    ]


def _is_unspaced(query: Query) -> bool:
    operands = (o for group in query.groups for o in (*group.wanted, *group.unwanted))
    return any(map(has_unspaced, operands))


def _by_words(texts: Texts, scope: Scope, wanted: RecordQuery) -> list[Lean]:
    rows = texts.matching(
        wanted.query, scope.condition, scope.values, wanted.ranking, unspaced=False
    )
    return [lean for _, lean in _best(texts, rows, wanted)]


def _best(
    texts: Texts, rows: Iterable[Sequence[Any]], wanted: RecordQuery, *, in_order: bool = True
) -> list[tuple[tuple[float, float, str, int], Lean]]:
    """The best of *rows*, with their order; if they are *in_order*, no more of them are read."""
    best, breather = _Best(wanted.ranking, wanted.limit), Breather()
    expiry = Expiry(wanted.ranking.now, wanted.default_ttl_s)
    for lean in let_through(texts.tx, texts.repo, _leans(rows), wanted):
        breather.breathe()
        if in_order and best.is_settled(lean):
            break
        if shown := expiry.living(lean):
            best.take(shown)
    return best.rows


def _leans(rows: Iterable[Sequence[Any]]) -> Iterator[Lean]:
    """*rows* one by one, since few of many may be taken; damaged ones are passed by."""
    passed: Passed = []
    for row in rows:
        yield from LEANS.all([row], passed)
    log_passed(passed)


# ── Parts of words ───────────────────────────────────────────────────────────────────


def _by_parts(texts: Texts, scope: Scope, wanted: RecordQuery) -> list[Lean]:
    """The best of what each group finds; of a row that several find the most relevant."""
    found: dict[int, tuple[tuple[float, float, str, int], Lean]] = {}
    for group in wanted.query.groups:
        rows, in_order = _of_group(texts, scope, group, wanted)
        for entry in _best(texts, rows, wanted, in_order=in_order):
            row = entry[1].row
            found[row] = min(entry, found.get(row, entry))
    return [lean for _, lean in sorted(found.values())[: wanted.limit]]


def _of_group(
    texts: Texts, scope: Scope, group: Group, wanted: RecordQuery
) -> tuple[Iterator[Sequence[Any]], bool]:
    """What matches the group, and whether it comes by falling score."""
    long = Group(
        tuple(o for o in group.wanted if len(o) >= SHORTEST_TRIPLE),
        tuple(o for o in group.unwanted if len(o) >= SHORTEST_TRIPLE),
    )
    held = _holding(group, longest=SHORTEST_TRIPLE - 1 if long.wanted else None)
    if long.wanted:
        condition = f"{scope.condition} AND {held.condition}"
        values = (*scope.values, *held.values)
        rows = texts.matching(Query((long,)), condition, values, wanted.ranking, unspaced=True)
        return rows, True
    condition = f"{held.condition} AND {scope.condition}"
    return texts.newest(wanted.scan_limit, condition, (*held.values, *scope.values)), False


def _holding(group: Group, *, longest: int | None) -> Scope:
    """That the text holds the operands (those of at most *longest* characters), case aside."""
    conditions: list[str] = ["TRUE"]
    values: list[str] = []
    for operands, no in ((group.wanted, ""), (group.unwanted, "NOT ")):
        for operand in operands:
            if longest is not None and len(operand) > longest:
                continue
            lowered = lower_each(operand)
            conditions.append(f"{no}$position(f.lowered, ?) > 0")
            values.append(lowered)
    return Scope(" AND ".join(conditions), tuple(values))


# ── Surfacing ────────────────────────────────────────────────────────────────────────


# Rows of the index that candidates are drawn from, about 1 µs each: of the rarest terms
# first. What the others add is looked up for the best of them alone.
_DRAWN = 20_000
_LOOKED_UP = 100


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A record (*lean*) that the text of *row* brought: its own, or that of a step made of it."""

    row: int
    lean: Lean
    terms: frozenset[str]


def surfacing(tx: Tx, repo_id: str, wanted: SurfacingQuery) -> Surfacing:
    """Records that match enough of the terms, best first, and how common each term is."""
    repo = repo_row(tx, repo_id)[0]
    texts = Texts(tx, repo)
    records = texts.count()
    if not records:
        return Surfacing(records=0, counts=dict.fromkeys(wanted.terms, 0))
    counts = {term: texts.count(term) for term in wanted.terms}
    drawn = _drawn(telling_terms(counts, records), counts)
    looked_up = [term for term in wanted.terms if counts[term] and term not in drawn]
    weights = {term: term_weight(counts[term], records) for term in wanted.terms}
    found: Iterable[_Candidate] = _candidates(texts, repo, wanted, drawn, weights, len(looked_up))
    if looked_up:
        found = [_completed(texts, one, looked_up, weights) for one in islice(found, _LOOKED_UP)]
    enough = [one for one in found if len(one.terms) >= wanted.min_terms]
    return Surfacing(records=records, counts=counts, hits=_hits(tx, repo, enough, wanted))


def _drawn(telling: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    """The terms that candidates are drawn by: the rarest, and at least one."""
    drawn: list[str] = []
    rows = 0
    for term in telling:
        rows += counts[term]
        if drawn and rows > _DRAWN:
            break
        drawn.append(term)
    return drawn


def _hits(
    tx: Tx, repo: int, candidates: Sequence[_Candidate], wanted: SurfacingQuery
) -> tuple[tuple[RecordHit, frozenset[str]], ...]:
    """The best of *candidates*; what is excluded is known by its id, so only once it is read."""
    ordered = sorted(candidates, key=lambda one: one.lean.order(wanted.ranking))
    ordered = ordered[: wanted.limit + len(wanted.excluded)]
    records = read_records(tx, repo, [one.lean.row for one in ordered])
    hits = (
        (RecordHit(record=records[one.lean.row], relevance=one.lean.relevance), one.terms)
        for one in ordered
        if one.lean.row in records
    )
    kept = (
        h for h in hits if (h[0].record.session_id, h[0].record.message_id) not in wanted.excluded
    )
    return tuple(islice(kept, wanted.limit))


def _completed(
    texts: Texts, one: _Candidate, terms: Sequence[str], weights: Mapping[str, float]
) -> _Candidate:
    """*one* with those of *terms* that it holds as well."""
    also = frozenset(term for term in terms if texts.holds(one.row, term))
    weight = one.lean.relevance + sum(weights[term] for term in sorted(also))
    return replace(one, lean=one.lean._replace(relevance=weight), terms=one.terms | also)


def _candidates(
    texts: Texts,
    repo: int,
    wanted: SurfacingQuery,
    drawn: Sequence[str],
    weights: Mapping[str, float],
    others: int,
) -> Iterator[_Candidate]:
    """What holds *drawn* terms, and enough of them unless *others* may add to it."""
    if not drawn:
        return
    scope = Scope.of(repo, stream=None, hidden=wanted.hidden, this_epoch=True)
    weighed = [(term, weights[term]) for term in drawn]
    least = max(1, wanted.min_terms - others)
    expiry = Expiry(wanted.ranking.now, wanted.default_ttl_s)
    breather = Breather()
    seen: set[int] = set()
    passed: Passed = []
    for row in texts.candidates(weighed, least, scope.condition, scope.values):
        breather.breathe()
        for lean in LEANS.all([row], passed):
            shown = expiry.living(lean)
            if shown is not None and shown.row not in seen:
                seen.add(shown.row)
                terms = frozenset(term for bit, term in enumerate(drawn) if row[-1] >> bit & 1)
                yield _Candidate(lean.row, shown, terms)
    log_passed(passed)


# ── Filters ──────────────────────────────────────────────────────────────────────────


_BATCH = 256
"""Rows whose evidence is read at once."""
_STEPS = """
SELECT t.ordinal, s.id, t.thread, t.actor, t.at, t.metadata
FROM steps t JOIN sessions s ON s.no = t.session AND $also s.repo = t.repo
WHERE $also t.repo = ? AND t.ordinal IN $numbers
"""
_MESSAGES = """
SELECT m.no, t.id, m.kind, m.role, coalesce(m.actor, m.name), coalesce(m.at, m.recorded_at),
       m.metadata
FROM messages m JOIN threads t ON t.no = m.thread AND $also t.repo = m.repo
WHERE $also m.repo = ? AND m.no IN $numbers
"""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What a row is filtered by; see ``Filters.holds``."""

    kind: str
    at: datetime | None
    actors: Sequence[str]
    session_ids: Sequence[str]
    thread_id: str | None
    metadata: Mapping[str, Any]


_STEP_ROWS = Rows(
    "steps",
    "i s s? s s s?",
    lambda row: (*row[:4], decode_time(row[4]), decode_object(row[5] or "{}")),
)
_MESSAGE_ROWS = Rows(
    "messages",
    "i s s s s? s s?",
    lambda row: (*row[:5], decode_time(row[5]), decode_object(row[6] or "{}")),
)


def let_through(tx: Tx, repo: int, leans: Iterable[Lean], wanted: RecordQuery) -> Iterator[Lean]:
    """The rows among *leans* that match the filters and kinds of *wanted*, in their order."""
    rows = iter(leans)
    if wanted.filters.is_open and wanted.kinds is None:
        yield from rows
        return
    while batch := list(islice(rows, _BATCH)):
        evidence = _evidence(tx, repo, batch, wanted)
        yield from (lean for lean in batch if _matches(evidence.get(lean.row), wanted))


def _matches(evidence: _Evidence | None, wanted: RecordQuery) -> bool:
    if evidence is None or (wanted.kinds is not None and evidence.kind not in wanted.kinds):
        return False
    return wanted.filters.holds(
        at=evidence.at,
        actors=evidence.actors,
        session_ids=evidence.session_ids,
        thread_id=evidence.thread_id,
        metadata=evidence.metadata,
    )


def _evidence(
    tx: Tx, repo: int, batch: Sequence[Lean], wanted: RecordQuery
) -> dict[int, _Evidence]:
    """By row of the full text: what it is filtered by; damaged rows are passed by."""
    found = {
        lean.row: _Evidence("snapshot", lean.at, (), (), lean.stream, {})
        for lean in batch
        if lean.row & 3 == 3
    }
    for ordinal, session, thread, actor, at, metadata in _read(
        tx, repo, _STEPS, _STEP_ROWS, {lean.row >> 2 for lean in batch if lean.row & 3 < 2}
    ):
        for side, kind in enumerate(PARTS):
            actors = (actor, wanted.agent_name) if side else (actor,)
            found[4 * ordinal + side] = _Evidence(kind, at, actors, (session,), thread, metadata)
    for no, thread, kind, role, named, at, metadata in _read(
        tx, repo, _MESSAGES, _MESSAGE_ROWS, {lean.row >> 2 for lean in batch if lean.row & 3 == 2}
    ):
        own = named or (wanted.default_actor if role == "user" else role)
        actors = (own, wanted.agent_name) if role == "assistant" else (own,)
        found[4 * no + 2] = _Evidence(kind, at, actors, (), thread, metadata)
    return found


def _read(
    tx: Tx, repo: int, statement: str, rows: Rows[Any], numbers: Collection[int]
) -> Iterator[Any]:
    if numbers:
        yield from rows.intact(tx.run(statement, (repo, listed(numbers))))

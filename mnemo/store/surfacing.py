"""Records that share words with a text, without being asked for, on SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from mnemo.runtime.clock import Breather
from mnemo.runtime.text import has_unspaced
from mnemo.store.damage import Passed, log_passed
from mnemo.store.record_rows import BASE, LEAN, LEANS, Expiry, Lean, Scope, read_records
from mnemo.store.rows import repo_row
from mnemo.store.sqlite.texts import TextTables, text_tables
from mnemo.store.tx import Tx
from mnemo.values.records import (
    Group,
    RecordHit,
    Surfacing,
    SurfacingQuery,
    telling_terms,
    term_weight,
)

__all__ = ["surfacing"]

# Rows of the index that candidates are drawn from, about 1 µs each: of the rarest terms
# first. What the others add is looked up for the best of them alone.
_DRAWN = 20_000
_LOOKED_UP = 100

_HOLDING = "SELECT count(*) FROM {table} WHERE {table} MATCH ?"
# One small row per text; to count the full text itself reads all of it.
_RECORDS = "SELECT count(*) FROM {table}_docsize"
# Of the table that many small repositories share only one's own rows count.
_SHARED = "words_0"
_OWN = f" f {BASE} WHERE coalesce(p.repo, t.repo) = ?"
_OWN_HOLDING = f"SELECT count(*) FROM {{table}}{_OWN} AND {{table}} MATCH ?"
_OWN_RECORDS = f"SELECT count(*) FROM {{table}}{_OWN}"
_OF_TERM = "SELECT rowid AS row, ? AS weight, ? AS bit FROM {table} WHERE {table} MATCH ?"
_CANDIDATES = f"""
SELECT f.rowid, f.weight, {LEAN}, f.bits
FROM (SELECT row AS rowid, sum(weight) AS weight, sum(bit) AS bits FROM ({{terms}})
      GROUP BY row HAVING count(*) >= ?) f {BASE}
WHERE {{condition}} ORDER BY f.weight DESC, f.rowid DESC
"""
_HOLDS = "SELECT 1 FROM {table} WHERE {table} MATCH ? AND rowid = ?"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A record (*lean*) that the text of *row* brought: its own, or that of a step made of it."""

    row: int
    lean: Lean
    terms: frozenset[str]


def surfacing(tx: Tx, repo_id: str, wanted: SurfacingQuery) -> Surfacing:
    """Records that match enough of the terms, best first, and how common each term is."""
    repo = repo_row(tx, repo_id)[0]
    tables = text_tables(tx, repo)
    if tables.words is None:
        return Surfacing(records=0, counts=dict.fromkeys(wanted.terms, 0))
    index = _Index(tx, tables, repo)
    records = index.records()
    counts = {term: index.count(term) for term in wanted.terms}
    drawn = _drawn(telling_terms(counts, records), counts)
    looked_up = [term for term in wanted.terms if counts[term] and term not in drawn]
    weights = {term: term_weight(counts[term], records) for term in wanted.terms}
    found: Iterable[_Candidate] = _candidates(index, repo, wanted, drawn, weights, len(looked_up))
    if looked_up:
        found = [index.completed(one, looked_up, weights) for one in islice(found, _LOOKED_UP)]
    enough = [one for one in found if len(one.terms) >= wanted.min_terms]
    return Surfacing(records=records, counts=counts, hits=_hits(tx, enough, wanted))


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
    tx: Tx, candidates: Sequence[_Candidate], wanted: SurfacingQuery
) -> tuple[tuple[RecordHit, frozenset[str]], ...]:
    """The best of *candidates*; what is excluded is known by its id, so only once it is read."""
    ordered = sorted(candidates, key=lambda one: one.lean.order(wanted.ranking))
    ordered = ordered[: wanted.limit + len(wanted.excluded)]
    records = read_records(tx, [one.lean.row for one in ordered])
    hits = (
        (RecordHit(record=records[one.lean.row], relevance=one.lean.relevance), one.terms)
        for one in ordered
        if one.lean.row in records
    )
    kept = (
        h for h in hits if (h[0].record.session_id, h[0].record.message_id) not in wanted.excluded
    )
    return tuple(islice(kept, wanted.limit))


@dataclass(frozen=True, slots=True)
class _Index:
    """The full text of one repository, asked for single terms."""

    tx: Tx
    tables: TextTables
    repo: int

    def table(self, term: str) -> str | None:
        """Where *term* is looked up."""
        return self.tables.grams if has_unspaced(term) else self.tables.words

    def records(self) -> int:
        """How many texts there are."""
        return self._counted(_RECORDS, _OWN_RECORDS, self.tables.words)

    def count(self, term: str) -> int:
        """How many texts hold *term*."""
        table = self.table(term)
        return self._counted(_HOLDING, _OWN_HOLDING, table, _matching(term)) if table else 0

    def _counted(self, all_: str, own: str, table: str | None, *values: str) -> int:
        shared = self.tables.words == _SHARED
        given = (self.repo, *values) if shared else values
        statement = (own if shared else all_).format(table=table)
        return int(self.tx.run(statement, given).fetchone()[0])

    def completed(
        self, one: _Candidate, terms: Sequence[str], weights: Mapping[str, float]
    ) -> _Candidate:
        """*one* with those of *terms* that it holds as well."""
        also = frozenset(term for term in terms if self._holds(one.row, term))
        weight = one.lean.relevance + sum(weights[term] for term in sorted(also))
        return replace(one, lean=one.lean._replace(relevance=weight), terms=one.terms | also)

    def _holds(self, row: int, term: str) -> bool:
        statement = _HOLDS.format(table=self.table(term))
        return self.tx.run(statement, (_matching(term), row)).fetchone() is not None


def _matching(term: str) -> str:
    return Group((term,)).expression


def _candidates(
    index: _Index,
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
    each = [_OF_TERM.format(table=index.table(term)) for term in drawn]
    statement = _CANDIDATES.format(terms=" UNION ALL ".join(each), condition=scope.condition)
    values = [v for bit, t in enumerate(drawn) for v in (weights[t], 1 << bit, _matching(t))]
    least = max(1, wanted.min_terms - others)
    expiry = Expiry(wanted.ranking.now, wanted.default_ttl_s)
    breather = Breather()
    seen: set[int] = set()
    passed: Passed = []
    for row in index.tx.run(statement, (*values, least, *scope.values)):
        breather.breathe()
        for lean in LEANS.all([row], passed):
            shown = expiry.living(lean)
            if shown is not None and shown.row not in seen:
                seen.add(shown.row)
                terms = frozenset(term for bit, term in enumerate(drawn) if row[-1] >> bit & 1)
                yield _Candidate(lean.row, shown, terms)
    log_passed(passed)

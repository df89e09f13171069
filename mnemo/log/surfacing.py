"""Records that share words with a text, without being asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from mnemo.log.record_rows import LEANS, Expiry, Lean, Scope, read_records
from mnemo.runtime.clock import Breather
from mnemo.store.damage import Passed, log_passed
from mnemo.store.rows import repo_row
from mnemo.store.tx import Texts, Tx
from mnemo.values.records import (
    RecordHit,
    Surfacing,
    SurfacingQuery,
    telling_terms,
    term_weight,
)

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
    texts = tx.dialect.texts(tx, repo)
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

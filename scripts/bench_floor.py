"""The floor under recall: plain rankings of the same texts, and the law that compares with them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mnemo.protocols import Embedder, EmbeddingSpace
from mnemo.runtime.text import terms

K1, B = 1.2, 0.75
"""Of BM25: how soon a word's repeats stop counting, and how much length counts against."""
RRF_K = 60
"""What reciprocal rank fusion adds to a rank (Cormack, Clarke and Büttcher 2009)."""
POINT = 0.01
"""How far below the best baseline a file may be, as a share; one question is free as well."""
_ROUNDING = 1e-9

# ── Scores and their intervals ───────────────────────────────────────────────────────


@dataclass
class Scores:
    """One method's measures, question by question."""

    rows: list[dict[str, float]] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)

    def add(self, row: dict[str, float], category: str) -> None:
        """Add one question."""
        self.rows.append(row)
        self.categories.append(category)

    def extend(self, other: Scores) -> None:
        """Add the questions of *other*."""
        self.rows += other.rows
        self.categories += other.categories

    def of(self, category: str) -> Scores:
        """Those of one category."""
        own = [place for place, name in enumerate(self.categories) if name == category]
        return Scores([self.rows[place] for place in own], [category] * len(own))

    def column(self, name: str) -> NDArray[np.float64]:
        """One measure of every question."""
        return np.asarray([row[name] for row in self.rows])

    def means(self, category: str | None = None) -> dict[str, float]:
        """Means over questions, of one category or all."""
        rows = self.rows if category is None else self.of(category).rows
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def interval(values: NDArray[np.float64], rounds: int = 2_000) -> tuple[float, float]:
    """The middle 95 % of the mean of *values*, questions drawn with replacement."""
    drawn = np.random.default_rng(0).integers(0, len(values), (rounds, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), (2.5, 97.5))
    return float(low), float(high)


def difference(mine: Scores, theirs: Scores, name: str) -> dict[str, float]:
    """Mean and middle 95 % of the difference in one measure, question by question."""
    gains = mine.column(name) - theirs.column(name)
    low, high = interval(gains)
    return {"mean": float(gains.mean()), "low": low, "high": high}


# ── The law ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Floor:
    """
    Recall beside the best baseline of one file.

    Attributes:
        measure: What is compared, a mean over questions in [0, 1].
        mine: Of recall.
        best: Name of the best baseline.
        mean: *mine* less that of the best baseline, with its paired interval *low* to *high*.
    """

    measure: str
    mine: float
    best: str
    mean: float
    low: float
    high: float
    questions: int

    @property
    def is_broken(self) -> bool:
        """Whether recall is below by more than a point and a question, outside the interval."""
        allowed = max(POINT, 1 / self.questions) + _ROUNDING
        return self.mean < -allowed and self.high < 0

    def as_json(self) -> dict[str, Any]:
        """All of it, and whether the law is broken."""
        return asdict(self) | {"is_broken": self.is_broken}

    def __str__(self) -> str:
        numbers = f"{100 * self.mean:+.1f} ({100 * self.low:+.1f} to {100 * self.high:+.1f})"
        verdict = "BELOW THE FLOOR" if self.is_broken else "floor held"
        return (
            f"{verdict}: {self.measure} {100 * self.mine:.1f}, {numbers} against the best "
            f"baseline, {self.best}, over {self.questions} questions"
        )


def floor_under(mine: Scores, baselines: Mapping[str, Scores], measure: str) -> Floor:
    """
    Compare *mine* with the best of *baselines* by the mean of *measure*.

    Args:
        baselines: By name; the same questions in the same order.
    """
    best = max(baselines, key=lambda name: baselines[name].column(measure).mean())
    return Floor(
        measure,
        float(mine.column(measure).mean()),
        best,
        questions=len(mine.rows),
        **difference(mine, baselines[best], measure),
    )


# ── Baselines ────────────────────────────────────────────────────────────────────────

Ranking = list[int]
"""Numbers of documents, best first."""


class PlainBm25:
    """Okapi BM25 over documents, by mnemo's index terms."""

    def __init__(self, documents: Sequence[str]) -> None:
        read = [Counter(terms(document)) for document in documents]
        lengths = np.asarray([counts.total() for counts in read], np.float64)
        self._norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1))
        self._postings: dict[str, dict[int, int]] = {}
        for number, counts in enumerate(read):
            for term, count in counts.items():
                self._postings.setdefault(term, {})[number] = count

    def rank(self, query: str) -> Ranking:
        """The documents that share a word with *query*, best first."""
        scores = np.zeros(len(self._norms))
        for term in dict.fromkeys(terms(query)):
            held = self._postings.get(term, {})
            numbers = np.fromiter(held.keys(), np.int64)
            counts = np.fromiter(held.values(), np.float64)
            idf = math.log(1 + (len(scores) - len(held) + 0.5) / (len(held) + 0.5))
            scores[numbers] += idf * counts * (K1 + 1) / (counts + self._norms[numbers])
        return [int(n) for n in np.argsort(-scores, kind="stable") if scores[n] > 0]


def by_cosine(cosines: NDArray[np.float32]) -> Ranking:
    """All documents, the nearest first."""
    return [int(number) for number in np.argsort(-cosines, kind="stable")]


def fused(*rankings: Ranking) -> Ranking:
    """Reciprocal rank fusion."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for place, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (RRF_K + place)
    return sorted(scores, key=lambda number: (-scores[number], number))


class OnceEmbedder:
    """
    An embedder that embeds no document twice: the methods of one run read the same ones.

    Queries are embedded each time, for that is a part of how long a recall takes.
    """

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._known: dict[str, NDArray[np.float32]] = {}

    @property
    def space(self) -> EmbeddingSpace:
        """That of the embedder behind it."""
        return self._inner.space

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """Unit rows; of documents only what is new is embedded."""
        if kind == "query":
            return await self._inner.embed(texts, kind=kind)
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            self._known.update(zip(fresh, await self._inner.embed(fresh), strict=True))
        found = [self._known[text] for text in texts]
        return np.asarray(found, np.float32).reshape(-1, self.space.dimensions)

"""Dialogues with labelled evidence, how a ranking of their turns is measured, and baselines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mnemo.english.words import date_in_words
from mnemo.models.minilm import MiniLMEmbedder
from mnemo.models.wordllama import WordLlamaEmbedder
from mnemo.protocols import Embedder, EmbeddingSpace
from mnemo.runtime.text import count_tokens, one_line, terms
from mnemo.values.postings import Bm25
from mnemo.values.steps import when_and_who

BUDGETS = (512, 1024, 2048, 4096)
DEPTH = 50
RRF_K = 60
"""What reciprocal rank fusion adds to a rank (Cormack, Clarke and Büttcher 2009)."""


class BadInput(Exception):
    """The file is no dialogue file; the message says where."""


# ── Input ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Turn:
    """One thing that was said."""

    id: str
    session: str
    at: datetime
    speaker: str
    text: str

    @property
    def document(self) -> str:
        """What the baselines read."""
        return f"{when_and_who(self.at, self.speaker)} {self.text}"

    @property
    def line(self) -> str:
        """What the baselines print, in the form that ``as_text`` has, without the citation."""
        return f"- {one_line(self.text)} [{one_line(self.speaker)}, {date_in_words(self.at)}]"


@dataclass(frozen=True)
class Question:
    """A question and the ids of the turns that answer it."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Dialogue:
    """Turns in order, and questions about them."""

    id: str
    turns: list[Turn]
    questions: list[Question]

    @cached_property
    def session_of(self) -> dict[str, str]:
        """Turn id → session."""
        return {turn.id: turn.session for turn in self.turns}

    @cached_property
    def turn(self) -> dict[str, Turn]:
        """Turn id → turn."""
        return {turn.id: turn for turn in self.turns}


def read_dialogues(path: Path) -> list[Dialogue]:
    """
    Read FILE.

    Raises:
        BadInput: It cannot be read, or a field is missing.
    """
    try:
        return [_dialogue(raw) for raw in json.loads(path.read_text("utf-8"))]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: not a dialogue file ({error!r})") from error


def _dialogue(raw: dict[str, Any]) -> Dialogue:
    turns = [
        Turn(str(t["id"]), str(t["session"]), _time(t["at"]), t["speaker"], t["text"])
        for t in raw["turns"]
    ]
    questions = [
        Question(q["question"], str(q["category"]), frozenset(map(str, q["evidence"])))
        for q in raw["questions"]
    ]
    return Dialogue(str(raw["id"]), turns, questions)


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


# ── Measures ─────────────────────────────────────────────────────────────────────────


def measures(ranking: Sequence[str], evidence: frozenset[str]) -> dict[str, float]:
    """Recall, any, all, NDCG and reciprocal rank of one ranking of ids without repeats."""
    hits = [id in evidence for id in ranking]
    gains = [1 / math.log2(place + 2) for place, hit in enumerate(hits[:10]) if hit]
    ideal = [1 / math.log2(place + 2) for place in range(min(len(evidence), 10))]
    found = {f"recall@{k}": sum(hits[:k]) / len(evidence) for k in (5, 10, 20)}
    return found | {
        "any@10": float(any(hits[:10])),
        "all@10": float(sum(hits[:10]) == len(evidence)),
        "ndcg@10": sum(gains) / sum(ideal),
        "mrr": next((1 / place for place, hit in enumerate(hits, 1) if hit), 0.0),
    }


def turn_and_session_measures(
    ranking: Sequence[str], question: Question, dialogue: Dialogue
) -> dict[str, float]:
    """Of turns, and the same of their sessions, in order of first appearance."""
    session_of = dialogue.session_of
    sessions = list(dict.fromkeys(session_of[id] for id in ranking if id in session_of))
    wanted = frozenset(session_of[id] for id in question.evidence if id in session_of)
    row = measures(ranking, question.evidence)
    return row | {f"session {name}": value for name, value in measures(sessions, wanted).items()}


def within_budgets(
    shown: Callable[[int], tuple[str, Iterable[str]]], evidence: frozenset[str]
) -> dict[str, float]:
    """
    How much of *evidence* is printed within each budget, and in how many tokens.

    Args:
        shown: Gives what is printed within a budget, and the ids of the turns it tells of.
    """
    row: dict[str, float] = {}
    for budget in BUDGETS:
        text, told = shown(budget)
        row[f"within {budget}"] = len(evidence.intersection(told)) / len(evidence)
        row[f"tokens of {budget}"] = float(count_tokens(text))
    return row


@dataclass
class Scores:
    """One method's measures, question by question."""

    rows: list[dict[str, float]] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)

    def add(self, row: dict[str, float], category: str) -> None:
        """Add one question."""
        self.rows.append(row)
        self.categories.append(category)

    def of(self, category: str) -> Scores:
        """Those of one category."""
        own = [place for place, name in enumerate(self.categories) if name == category]
        return Scores([self.rows[place] for place in own], [category] * len(own))

    def column(self, name: str) -> NDArray[np.float64]:
        """One measure of every question."""
        return np.asarray([row[name] for row in self.rows])

    def means(self, category: str | None = None) -> dict[str, float]:
        """
        Means over questions, of one category or all.

        ``per 1000 of B`` is the mean recall within B tokens over the mean thousands of
        tokens that were returned.
        """
        rows = [
            row
            for row, own in zip(self.rows, self.categories, strict=True)
            if category in (None, own)
        ]
        means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
        for budget in BUDGETS:
            if used := means.get(f"tokens of {budget}"):
                means[f"per 1000 of {budget}"] = 1_000 * means[f"within {budget}"] / used
        return means


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


# ── Baselines ────────────────────────────────────────────────────────────────────────

Ranking = list[int]
"""Numbers of documents, best first."""


class PlainBm25:
    """Okapi BM25 over documents."""

    def __init__(self, documents: Sequence[str]) -> None:
        read = [list(terms(document)) for document in documents]
        self._bm25 = Bm25.over(np.asarray([len(document) for document in read], np.float32))
        self._postings: dict[str, dict[int, int]] = {}
        for number, document in enumerate(read):
            for term in document:
                counts = self._postings.setdefault(term, {})
                counts[number] = counts.get(number, 0) + 1

    def rank(self, query: str) -> Ranking:
        """The documents that share a word with *query*, best first."""
        scores = np.zeros(self._bm25.documents, np.float32)
        for term in dict.fromkeys(terms(query)):
            if counts := self._postings.get(term):
                holding = np.fromiter(counts.keys(), np.int64)
                self._bm25.add(scores, 1.0, holding, np.fromiter(counts.values(), np.float32))
        return [int(n) for n in np.argsort(-scores, kind="stable") if scores[n] > 0]


def fused(*rankings: Ranking) -> Ranking:
    """Reciprocal rank fusion."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for place, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (RRF_K + place)
    return sorted(scores, key=lambda number: (-scores[number], number))


EMBEDDERS: dict[str, Callable[[], Embedder]] = {
    "wordllama": WordLlamaEmbedder,
    "minilm": MiniLMEmbedder,
}


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


async def baselines(dialogues: Iterable[Dialogue], embedder: Embedder) -> dict[str, Scores]:
    """Every question, answered from the turns alone by BM25, by cosine, and by both fused."""
    names = ("BM25", "dense", f"RRF {RRF_K} of both")
    scores = {name: Scores() for name in names}
    for dialogue in dialogues:
        documents = [turn.document for turn in dialogue.turns]
        bm25 = PlainBm25(documents)
        vectors = await embedder.embed(documents)
        asked = await embedder.embed([q.text for q in dialogue.questions], kind="query")
        for question, cosines in zip(dialogue.questions, asked @ vectors.T, strict=True):
            by_words = bm25.rank(question.text)
            by_meaning = [int(n) for n in np.argsort(-cosines, kind="stable")]
            found = (by_words, by_meaning, fused(by_words, by_meaning))
            for name, ranking in zip(names, found, strict=True):
                ids = [dialogue.turns[number].id for number in ranking[:DEPTH]]
                scores[name].add(_row(ids, question, dialogue), question.category)
    return scores


def session_baseline(dialogues: Iterable[Dialogue]) -> Scores:
    """Every question, answered by BM25 over whole sessions; session measures alone."""
    scores = Scores()
    for dialogue in dialogues:
        sessions = list(dict.fromkeys(dialogue.session_of.values()))
        said = [
            "\n".join(t.document for t in dialogue.turns if t.session == session)
            for session in sessions
        ]
        bm25 = PlainBm25(said)
        for question in dialogue.questions:
            ranking = [sessions[number] for number in bm25.rank(question.text)]
            wanted = frozenset(dialogue.session_of[id] for id in question.evidence)
            row = measures(ranking, wanted)
            scores.add({f"session {name}": v for name, v in row.items()}, question.category)
    return scores


def _row(ids: Sequence[str], question: Question, dialogue: Dialogue) -> dict[str, float]:
    def shown(budget: int) -> tuple[str, Sequence[str]]:
        lines: list[str] = []
        for number, id in enumerate(ids, 1):
            line = f"{dialogue.turn[id].line} [{number}]"
            if count_tokens("\n".join((*lines, line))) > budget:
                break
            lines.append(line)
        if not lines and ids:  # as ``as_text`` does: only the first line may be cut
            cut = dialogue.turn[ids[0]].line.encode()[: 4 * budget].decode("utf-8", "ignore")
            return cut, ids[:1]
        return "\n".join(lines), ids[: len(lines)]

    row = turn_and_session_measures(ids, question, dialogue)
    return row | within_budgets(shown, question.evidence)

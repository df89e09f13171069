"""
Measure recall on dialogues whose questions name the turns that answer them.

FILE is a JSON list of dialogues ``{"id", "turns": [{"id", "session", "at", "speaker",
"text"}], "questions": [{"question", "category", "evidence": [turn id, …]}]}``. Each
dialogue becomes a repository, each of its sessions a session, each turn a step with its
id as key, its text as observation and its speaker as actor. A ranking is the order of
the keys of ``RecallResult.sources``. BM25 ranks the same turns in the same run.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import numpy as np

from mnemo import Config, Mnemo
from mnemo._text import count_tokens, terms
from mnemo.episode.step import when_and_who
from mnemo.graph.postings import Bm25

BUDGETS = (512, 1024, 2048, 4096)
DEPTH = 50
_PLACE = re.compile(r"\(([^()#]+)#(\d+)\)")


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
        """What BM25 reads."""
        return f"{when_and_who(self.at, self.speaker)} {self.text}"


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

    @property
    def session_of(self) -> dict[str, str]:
        """Turn id → session."""
        return {turn.id: turn.session for turn in self.turns}


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


def session_measures(
    ranking: Sequence[str], evidence: frozenset[str], session_of: dict[str, str]
) -> dict[str, float]:
    """The same of sessions, in order of first appearance."""
    sessions = list(dict.fromkeys(session_of[id] for id in ranking if id in session_of))
    wanted = frozenset(session_of[id] for id in evidence if id in session_of)
    found = measures(sessions, wanted)
    return {f"session {name}": found[name] for name in ("recall@5", "recall@10", "mrr")}


def bootstrap(differences: Sequence[float], rounds: int = 1_000) -> tuple[float, float]:
    """The middle 95 % of the mean difference, questions drawn with replacement."""
    chance = random.Random(0)
    size = len(differences)
    means = sorted(sum(chance.choices(differences, k=size)) / size for _ in range(rounds))
    return means[int(0.025 * rounds)], means[int(0.975 * rounds) - 1]


@dataclass
class Scores:
    """One method's measures, question by question."""

    rows: list[dict[str, float]] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)

    def add(self, row: dict[str, float], category: str) -> None:
        """Add one question."""
        self.rows.append(row)
        self.categories.append(category)

    def means(self, category: str | None = None) -> dict[str, float]:
        """Means over questions, of one category or all."""
        rows = [
            row
            for row, own in zip(self.rows, self.categories, strict=True)
            if category in (None, own)
        ]
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


# ── BM25 ─────────────────────────────────────────────────────────────────────────────


class PlainBm25:
    """Okapi BM25 over the turns, each a document ``[date] speaker: text``."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._ids = [turn.id for turn in turns]
        documents = [list(terms(turn.document)) for turn in turns]
        lengths = np.asarray([len(document) for document in documents], np.float32)
        self._bm25 = Bm25.over(lengths)
        self._postings: dict[str, dict[int, int]] = {}
        for number, document in enumerate(documents):
            for term in document:
                counts = self._postings.setdefault(term, {})
                counts[number] = counts.get(number, 0) + 1

    def rank(self, query: str) -> list[str]:
        """The best turns' ids."""
        scores = np.zeros(len(self._ids), np.float32)
        for term in dict.fromkeys(terms(query)):
            if counts := self._postings.get(term):
                holding = np.fromiter(counts.keys(), np.int64)
                self._bm25.add(scores, 1.0, holding, np.fromiter(counts.values(), np.float32))
        best = np.argsort(-scores, kind="stable")[:DEPTH]
        return [self._ids[number] for number in best if scores[number] > 0]


def bm25_scores(dialogues: Iterable[Dialogue]) -> Scores:
    """Rank every question's turns by BM25 alone."""
    scores = Scores()
    for dialogue in dialogues:
        bm25 = PlainBm25(dialogue.turns)
        for question in dialogue.questions:
            ranking = bm25.rank(question.text)
            row = measures(ranking, question.evidence)
            row |= session_measures(ranking, question.evidence, dialogue.session_of)
            scores.add(row, question.category)
    return scores


# ── mnemo ────────────────────────────────────────────────────────────────────────────


async def ingest(memory: Mnemo, dialogue: Dialogue, *, commit: bool) -> None:
    """One repository per dialogue, one session per session, one step per turn."""
    repo = await memory.open_repo(dialogue.id)
    for number in dict.fromkeys(turn.session for turn in dialogue.turns):
        session = await repo.start_session(f"Talk {number}", session_id=f"{dialogue.id}/{number}")
        for turn in (turn for turn in dialogue.turns if turn.session == number):
            await session.append(turn.text, "", at=turn.at, actor=turn.speaker, key=turn.id)
        if commit:
            await session.close_and_commit()
        await session.aclose()
    # A recall makes the index read everything, so that it counts what has no vector yet.
    await repo.recall("warm up")
    while (await repo.statistics()).index.waiting:  # noqa: ASYNC110 - it is only counted
        await anyio.sleep(0.02)
    await memory.close_repo(dialogue.id)


async def ask_all(
    memory: Mnemo, dialogues: Iterable[Dialogue], *, prior: bool
) -> tuple[Scores, list[float]]:
    """Every question, its measures and its seconds."""
    scores, seconds = Scores(), []
    recall: dict[str, Any] = {"record_access": False}
    if not prior:
        recall["observation_prior"] = 0.0
    for dialogue in dialogues:
        repo = await memory.open_repo(dialogue.id, config=Config(recall=recall))
        await repo.recall("warm up", k=DEPTH)
        for question in dialogue.questions:
            began = perf_counter()
            result = await repo.recall(question.text, k=DEPTH, reason=False)
            seconds.append(perf_counter() - began)
            scores.add(_row(result, question, dialogue), question.category)
        await memory.close_repo(dialogue.id)
    return scores, seconds


def _row(result: Any, question: Question, dialogue: Dialogue) -> dict[str, float]:
    ranking = [source.key for source in result.sources if source.key is not None]
    row = measures(ranking, question.evidence)
    row |= session_measures(ranking, question.evidence, dialogue.session_of)
    row["tokens"] = float(count_tokens(result.as_text()))
    keys = {(s.session_id, str(s.step_index)): s.key for s in result.sources}
    for budget in BUDGETS:
        printed = {keys.get(place) for place in _PLACE.findall(result.as_text(budget))}
        row[f"within {budget} tokens"] = len(printed & question.evidence) / len(question.evidence)
    return row


async def measure(dialogues: list[Dialogue], *, commit: bool) -> dict[str, Any]:
    """Ingest and ask, with and without the role prior, beside BM25."""
    with tempfile.TemporaryDirectory() as folder:
        async with Mnemo(Path(folder) / "bench.db") as memory:
            began = perf_counter()
            for dialogue in dialogues:
                await ingest(memory, dialogue, commit=commit)
            ingest_s = perf_counter() - began
            with_prior, seconds = await ask_all(memory, dialogues, prior=True)
            without_prior, _ = await ask_all(memory, dialogues, prior=False)
    bm25 = bm25_scores(dialogues)
    return {
        "embedder": "wordllama-l2-supercat-256",
        "documents": "steps and facts" if commit else "steps only",
        "questions": len(bm25.rows),
        "turns": sum(len(dialogue.turns) for dialogue in dialogues),
        "ingest_s": round(ingest_s, 2),
        "recall_p50_ms": round(float(np.percentile(seconds, 50)) * 1e3, 2),
        "recall_p95_ms": round(float(np.percentile(seconds, 95)) * 1e3, 2),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "methods": {
            "BM25": _summary(bm25, None),
            "mnemo, role prior on": _summary(with_prior, bm25),
            "mnemo, role prior off": _summary(without_prior, bm25),
        },
    }


def _summary(scores: Scores, baseline: Scores | None) -> dict[str, Any]:
    names = sorted(set(scores.categories))
    summary: dict[str, Any] = {
        "overall": scores.means(),
        "categories": {name: scores.means(name) for name in names},
        "asked": {name: scores.categories.count(name) for name in names},
    }
    if baseline is not None:
        pairs = zip(scores.rows, baseline.rows, strict=True)
        gains = [mine["recall@10"] - theirs["recall@10"] for mine, theirs in pairs]
        summary["recall@10 above BM25, 95 %"] = bootstrap(gains)
    return summary


# ── Output ───────────────────────────────────────────────────────────────────────────

_SHOWN = ("recall@5", "recall@10", "recall@20", "any@10", "ndcg@10", "mrr")


def show(report: dict[str, Any]) -> None:
    """Print *report* as a table."""
    print(
        f"{report['questions']} questions over {report['turns']} turns; {report['documents']}; "
        f"{report['embedder']}; ingest {report['ingest_s']} s; recall p50 "
        f"{report['recall_p50_ms']} ms, p95 {report['recall_p95_ms']} ms"
    )
    print(f"{'':<36}" + "".join(f"{name:>11}" for name in _SHOWN) + f"{'tokens':>9}")
    for method, summary in report["methods"].items():
        _show_line(method, summary["overall"])
        for category, means in summary["categories"].items():
            _show_line(f"  {category} ({summary['asked'][category]})", means)
        if interval := summary.get("recall@10 above BM25, 95 %"):
            low, high = (100 * end for end in interval)
            print(f"  recall@10 above BM25: {low:+.1f} to {high:+.1f} (95 %, paired bootstrap)")
        _show_more(summary["overall"])


def _show_line(name: str, means: dict[str, float]) -> None:
    numbers = "".join(f"{100 * means[measure]:>11.1f}" for measure in _SHOWN)
    print(f"{name:<36}{numbers}{means.get('tokens', math.nan):>9.0f}")


def _show_more(means: dict[str, float]) -> None:
    more = [name for name in means if name.startswith(("session", "within"))]
    print("  " + "; ".join(f"{name} {100 * means[name]:.1f}" for name in more))


def main() -> int:
    """Run the bench; exit code 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser(prog="bench_recall", description=__doc__.split("\n\n")[0])
    parser.add_argument("file", type=Path, help="dialogues with labelled evidence, JSON")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--steps-only", action="store_true", help="append, but do not commit")
    arguments = parser.parse_args()
    try:
        dialogues = read_dialogues(arguments.file)
    except BadInput as error:
        print(f"bench_recall: {error}", file=sys.stderr)
        return 2
    report = anyio.run(lambda: measure(dialogues, commit=not arguments.steps_only))
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Dialogues with labelled evidence, how a ranking of their turns is measured, and baselines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from bench_floor import RRF_K, PlainBm25, Scores, by_cosine, fused

from mnemo.english.words import date_in_words
from mnemo.protocols import Embedder
from mnemo.runtime.text import count_tokens, one_line
from mnemo.values.steps import when_and_who

T = TypeVar("T")
BUDGETS = (512, 1024, 2048, 4096)
DEPTH = 50
MOST_NOISE = 2_000
"""Turns of other people that lie beside those that are asked about, at most."""
NOBODY = "user"
"""The speaker of what is stored without one."""


class BadInput(Exception):
    """A file is not what it should be; the message says where."""


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
    return read_json(path, _dialogue, "a dialogue file")


def read_json(path: Path, made: Callable[[dict[str, Any]], T], what: str) -> list[T]:
    """
    What *made* makes of each object of a JSON list.

    Raises:
        BadInput: The file cannot be read, or *made* misses a field; it is not *what* it should be.
    """
    try:
        return [made(raw) for raw in json.loads(path.read_text("utf-8"))]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: not {what} ({error!r})") from error


def read_noise(path: Path | None, *, unnamed: bool) -> list[Turn]:
    """
    Read the first turns of a file of dialogues, with or without their speakers; of none, none.

    Raises:
        BadInput: As ``read_dialogues``.
    """
    if path is None:
        return []
    turns = [
        Turn(
            f"{dialogue.id}:{turn.id}",
            f"{dialogue.id}:{turn.session}",
            turn.at,
            NOBODY if unnamed else turn.speaker,
            turn.text,
        )
        for dialogue in read_dialogues(path)
        for turn in dialogue.turns
        if turn.text.strip()
    ]
    return turns[:MOST_NOISE]


def beside(noise: Sequence[Turn], dialogue: Dialogue) -> Dialogue:
    """*dialogue* with *noise* before its turns, but for what is of a dialogue of the same id."""
    others = [turn for turn in noise if not turn.id.startswith(f"{dialogue.id}:")]
    return replace(dialogue, turns=[*others, *dialogue.turns])


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


def per_thousand(means: Mapping[str, float]) -> dict[str, float]:
    """*means*, and ``per 1000 of B``: the mean recall within B tokens per 1,000 returned tokens."""
    return dict(means) | {
        f"per 1000 of {budget}": 1_000 * means[f"within {budget}"] / means[f"tokens of {budget}"]
        for budget in BUDGETS
        if means.get(f"tokens of {budget}")
    }


# ── Baselines ────────────────────────────────────────────────────────────────────────

BASELINES = ("BM25", "dense", f"RRF {RRF_K} of both")


async def baselines(dialogues: Iterable[Dialogue], embedder: Embedder) -> dict[str, Scores]:
    """Every question, answered from the turns alone by BM25, by cosine, and by both fused."""
    scores = {name: Scores() for name in BASELINES}
    for dialogue in dialogues:
        documents = [turn.document for turn in dialogue.turns]
        bm25 = PlainBm25(documents)
        vectors = await embedder.embed(documents)
        asked = await embedder.embed([q.text for q in dialogue.questions], kind="query")
        for question, cosines in zip(dialogue.questions, asked @ vectors.T, strict=True):
            by_words, by_meaning = bm25.rank(question.text), by_cosine(cosines)
            found = (by_words, by_meaning, fused(by_words, by_meaning))
            for name, ranking in zip(BASELINES, found, strict=True):
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

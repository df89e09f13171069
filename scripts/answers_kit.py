"""Files of questions with known answers, how what is found is measured, and the floor under it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mnemo.english.words import date_in_words
from mnemo.protocols import Embedder, EmbeddingSpace
from mnemo.recall.score import GROUPS, WEIGHTS
from mnemo.runtime.text import count_tokens, one_line, terms
from mnemo.values.steps import when_and_who

BUDGETS = (512, 1024, 2048, 4096)
MOST_NOISE = 2_000
"""Turns of other people that lie beside those that are asked about, at most."""
NOBODY = "user"
"""The speaker of what is stored without one."""
K1, B = 1.2, 0.75
"""Of BM25: how soon a word's repeats stop counting, and how much length counts against."""
RRF_K = 60
"""What reciprocal rank fusion adds to a rank (Cormack, Clarke and Büttcher 2009)."""
POINT, _ROUNDING = 0.01, 1e-9
"""How far below the best baseline a file may be, as a share; one question is free as well."""

# ── Input ────────────────────────────────────────────────────────────────────────────


class BadInput(Exception):
    """A file is not what it should be; the message says where."""


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
    """A question, and the ids of the turns that hold its answer, or held it once."""

    text: str
    category: str
    evidence: frozenset[str]
    outdated: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Talk:
    """
    Turns in order, and questions about them: a dialogue, or a person's single messages.

    Attributes:
        nothing: Questions that nothing answers.
    """

    id: str
    turns: list[Turn]
    questions: list[Question]
    nothing: list[str] = field(default_factory=list)
    is_person: bool = False

    @cached_property
    def turn(self) -> dict[str, Turn]:
        """Turn id → turn."""
        return {turn.id: turn for turn in self.turns}

    @cached_property
    def outdated(self) -> frozenset[str]:
        """Ids of the turns that are outdated for any question."""
        return frozenset().union(*(question.outdated for question in self.questions))

    def sessions(self) -> Iterator[tuple[str, list[Turn]]]:
        """The turns by session, in the order in which the sessions began."""
        order = {name: n for n, name in enumerate(dict.fromkeys(t.session for t in self.turns))}
        for name, turns in groupby(
            sorted(self.turns, key=lambda turn: order[turn.session]), lambda turn: turn.session
        ):
            yield name, list(turns)


def read_talks(path: Path, *, minutes: bool = False) -> list[Talk]:
    """
    Read FILE, of dialogues or of people.

    Args:
        minutes: Put a person's messages a minute apart instead of ``step_days`` days.

    Raises:
        BadInput: It cannot be read, or a field is missing.
    """

    def talk(raw: dict[str, Any]) -> Talk:
        return _person(raw, minutes) if "messages" in raw else _dialogue(raw)

    return read_json(path, talk, "a dialogue file or a file of people")


def read_json(path: Path, made: Callable[[dict[str, Any]], Any], what: str) -> list[Any]:
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


def _dialogue(raw: dict[str, Any]) -> Talk:
    turns = [
        Turn(str(t["id"]), str(t["session"]), _time(t["at"]), t["speaker"], t["text"])
        for t in raw["turns"]
    ]
    questions = [
        Question(q["question"], str(q["category"]), frozenset(map(str, q["evidence"])))
        for q in raw["questions"]
    ]
    return Talk(str(raw["id"]), turns, questions)


def _person(raw: dict[str, Any], minutes: bool) -> Talk:
    id = str(raw["id"])
    step = timedelta(minutes=1) if minutes else timedelta(days=raw["step_days"])
    turns = [
        Turn(f"{id}:{n}", "default", _time(raw["start"]) + n * step, NOBODY, text)
        for n, text in enumerate(raw["messages"])
    ]

    def named(numbers: Iterable[int]) -> frozenset[str]:
        return frozenset(turns[number].id for number in numbers)

    questions = [Question(text, id, named(new), named(old)) for text, new, old in raw["questions"]]
    return Talk(id, turns, questions, raw.get("nothing", []), is_person=True)


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def read_noise(path: Path | None, *, unnamed: bool) -> list[Turn]:
    """
    Read the first turns of a file of dialogues, with or without their speakers; of none, none.

    Raises:
        BadInput: As ``read_talks``.
    """
    turns = [
        replace(
            turn,
            id=f"{talk.id}:{turn.id}",
            session=f"{talk.id}:{turn.session}",
            speaker=NOBODY if unnamed else turn.speaker,
        )
        for talk in (read_talks(path) if path else [])
        for turn in talk.turns
        if turn.text.strip()
    ]
    return turns[:MOST_NOISE]


def beside(noise: Sequence[Turn], talk: Talk) -> Talk:
    """*talk* with *noise* before its turns, but for what is of a dialogue of the same id."""
    others = [turn for turn in noise if not turn.id.startswith(f"{talk.id}:")]
    return replace(talk, turns=[*others, *talk.turns])


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
    ranking: Sequence[str], question: Question, talk: Talk
) -> dict[str, float]:
    """Of turns, and the same of their sessions, in order of first appearance."""
    sessions = dict.fromkeys(talk.turn[id].session for id in ranking if id in talk.turn)
    wanted = frozenset(talk.turn[id].session for id in question.evidence if id in talk.turn)
    of_sessions = measures(list(sessions), wanted)
    row = measures(ranking, question.evidence)
    return row | {f"session {name}": value for name, value in of_sessions.items()}


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


@dataclass(frozen=True)
class Line:
    """One candidate: the messages behind it, and whether it is marked as outdated."""

    ids: frozenset[str]
    is_marked: bool = False


def line_measures(lines: Sequence[Line], asked: Question, person: Talk) -> dict[str, float]:
    """
    Measure what one question was given, best first.

    A line answers if it comes from a message that holds the answer; another one is outdated
    if it comes from an outdated message. The current statement is above the outdated ones if
    it is there and none of them stands before it. A mark is right on what is outdated for
    any question of this person and does not answer this one.
    """

    def kind(line: Line) -> Literal["answer", "outdated", "other"]:
        if line.ids & asked.evidence:
            return "answer"
        return "outdated" if line.ids & asked.outdated else "other"

    judged = [(kind(line), line.is_marked) for line in lines]
    kinds = [kind for kind, _ in judged]
    first = kinds.index("answer") if "answer" in kinds else len(lines)
    marks = [line for line in lines if line.is_marked and line.ids & person.turn.keys()]
    right = [m for m in marks if m.ids & person.outdated and not m.ids & asked.evidence]
    is_above = first < len(lines) and "outdated" not in kinds[:first]
    is_lost = first > 0 and ("answer", True) in judged
    row = {f"answered@{k}": first < min(k, len(lines)) for k in (1, 3, 5)} | {
        "empty": not lines,
        "changed": bool(asked.outdated),
        "stable": not asked.outdated,
        "current above": bool(asked.outdated) and is_above,
        "outdated": kinds.count("outdated"),
        "unmarked": judged.count(("outdated", False)),
        "marks": len(marks),
        "right marks": len(right),
        "lost to a mark": not asked.outdated and is_lost,
        "lines": len(lines),
    }
    return {name: float(value) for name, value in row.items()}


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

    def column(self, name: str) -> NDArray[np.float64]:
        """One measure of every question."""
        return np.asarray([row[name] for row in self.rows])

    def means(self, category: str | None = None) -> dict[str, float]:
        """Means over questions, of one category or all."""
        pairs = zip(self.rows, self.categories, strict=True)
        rows = [row for row, own in pairs if category in (None, own)]
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


def in_points(d: Mapping[str, float]) -> str:
    """A difference in points, with its interval."""
    return f"{100 * d['mean']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"


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
        return (
            f"{'BELOW THE FLOOR' if self.is_broken else 'floor held'}: {self.measure} "
            f"{100 * self.mine:.1f}, {in_points(vars(self))} against the best baseline, "
            f"{self.best}, over {self.questions} questions"
        )


def floor_under(mine: Scores, baselines: Mapping[str, Scores], measure: str) -> Floor:
    """
    Compare *mine* with the best of *baselines* by the mean of *measure*.

    Args:
        baselines: By name; the same questions in the same order.
    """
    best = max(baselines, key=lambda name: baselines[name].column(measure).mean())
    told = difference(mine, baselines[best], measure)
    return Floor(
        measure, float(mine.column(measure).mean()), best, questions=len(mine.rows), **told
    )


# ── Baselines ────────────────────────────────────────────────────────────────────────

Ranking = list[int]
"""Numbers of documents, best first."""


class PlainBm25:
    """Okapi BM25 over documents, by mnemo's index terms."""

    def __init__(
        self, documents: Sequence[str], b: float = B, read: Callable[[str], Iterable[str]] = terms
    ) -> None:
        self._read = read
        bags = [Counter(read(document)) for document in documents]
        lengths = np.asarray([counts.total() for counts in bags], np.float64)
        self._norms = K1 * (1 - b + b * lengths / max(lengths.mean(), 1))
        self._postings: dict[str, dict[int, int]] = {}
        for number, counts in enumerate(bags):
            for term, count in counts.items():
                self._postings.setdefault(term, {})[number] = count

    def scores(self, query: str) -> tuple[NDArray[np.float64], float]:
        """Of every document; and the most that one could have."""
        scores, most = np.zeros(len(self._norms)), 0.0
        for term in dict.fromkeys(self._read(query)):
            held = self._postings.get(term, {})
            numbers = np.fromiter(held.keys(), np.int64)
            counts = np.fromiter(held.values(), np.float64)
            idf = math.log(1 + (len(scores) - len(held) + 0.5) / (len(held) + 0.5))
            scores[numbers] += idf * counts * (K1 + 1) / (counts + self._norms[numbers])
            most += idf * (K1 + 1)
        return scores, most

    def rank(self, query: str) -> Ranking:
        """The documents that share a word with *query*, best first."""
        scores, _ = self.scores(query)
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


# ── Ablation ─────────────────────────────────────────────────────────────────────────

CUT = "the cut"
LEFT_OUT: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    **{name: ((name,), {}) for name in WEIGHTS},
    **{f"all of {group}": (names, {}) for group, names in GROUPS.items()},
    "hops": ((), {"max_hops": 0}),
    "facts": ((), {"types": ("episodic",)}),
}
"""What can be left out, by name: signals that then weigh nothing, options of ``recall``."""
Gains = Mapping[str, Mapping[str, Mapping[str, float]]]


@contextmanager
def left_out(signals: Sequence[str]) -> Iterator[None]:
    """Within this block these signals weigh nothing."""
    shipped = {name: WEIGHTS[name] for name in signals if name in WEIGHTS}
    WEIGHTS.update({name: dict.fromkeys(weights, 0.0) for name, weights in shipped.items()})
    try:
        yield
    finally:
        WEIGHTS.update(shipped)


async def ablated(ask: Callable[..., Awaitable[Scores]]) -> dict[str, Scores]:
    """
    Ask without each thing in turn.

    Args:
        ask: Asks every question, with these options of ``Repository.recall``.
    """
    found = {}
    for name, (signals, options) in LEFT_OUT.items():
        with left_out(signals):
            found[name] = await ask(**options)
    return found


def gains(
    mine: Scores, ablations: Mapping[str, Scores], measures: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """What each thing gives: the measures with it, less those without it."""
    return {
        name: {measure: difference(mine, scores, measure) for measure in measures}
        for name, scores in ablations.items()
    }


def verdict(floor: Floor, found: Gains) -> str:
    """Say whether the floor held; where it did not, also what costs most of its measure."""
    if not floor.is_broken:
        return str(floor)
    costs = {name: -gain[floor.measure]["mean"] for name, gain in found.items()}
    worst = max(costs, key=lambda name: costs[name])
    if costs[worst] <= 0:
        return f"{floor}; leaving nothing out lifts it"
    return f"{floor}; without {worst} it is {100 * costs[worst]:.1f} higher"

"""
Fit the weights by which recall tells which statement replaced an older one.

Each FILE holds people with questions, and the messages that answer each or once did; of a
question about a change, an outdated message and a later one that answers are a change, all
other pairs among the best 20 are stable. The pairs of ``tests/data/rivals.json`` are added,
of which the numbers of a question are not known: they count as average, behind a constant
of their own. Candidates are ranked by cosine and words as notes are, the texts embedded with and
without their day. The table tells what each file gets from weights that were fitted
without it, and the area under the curve on pairs that no weight was fitted on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from answers_kit import Line, PlainBm25, Question, Talk, line_measures, read_json, read_talks
from bench_questions import area_under_curve
from numpy.typing import NDArray
from scipy.optimize import minimize

from mnemo.english.words import date_in_words, index_terms
from mnemo.models.local import MiniLMEmbedder
from mnemo.recall import rivals

PAIRS = Path(__file__).parents[1] / "tests" / "data" / "rivals.json"
TABLE = Path(rivals.__file__).with_name("rivals.json")
SHOWN = 5
L2 = 2.0
PAIR_WEIGHT = 0.3
"""Of one hand-written pair: the few questions decide, the many pairs hold the weights in place."""
CENTRE = 200
ORDERS = (0.15, 0.2, 0.25, 0.3)
COLUMNS = "   n answer% first%   above     marks unmarked   stable lost"
MARKS = (0.35, 0.4, 0.45, 0.6)

Floats = NDArray[np.float64]
Row = dict[str, float]


@dataclass
class Asked:
    """One question of a person: its best candidates, with the ids of their turns, and its pairs."""

    question: Question
    person: Talk
    given: rivals.Rivals
    ids: list[str]
    pairs: list[tuple[int, int]]
    rows: list[Row]

    @property
    def holds(self) -> frozenset[str]:
        return self.question.evidence

    @property
    def changed(self) -> list[bool]:
        old, ids = self.question.outdated, self.ids
        return [ids[a] in old and ids[b] in self.holds | old for a, b in self.pairs]


@dataclass
class Model:
    """A logistic over standardised numbers; what is not known counts as average."""

    names: list[str]
    mean: Floats
    deviation: Floats
    weights: Floats

    def logits(self, rows: Sequence[Row], asked: bool = True) -> Floats:
        z = np.nan_to_num((matrix(rows, self.names) - self.mean) / self.deviation)
        total: Floats = z @ self.weights[2:] + self.weights[0] + asked * self.weights[1]
        return total

    def table(self) -> Row:
        """The same in log odds per unit, for questions; under "" the constant."""
        per_unit = self.weights[2:] / self.deviation
        constant = float(self.weights[:2].sum() - per_unit @ self.mean)
        return {"": constant, **dict(zip(self.names, map(float, per_unit), strict=True))}


def matrix(rows: Sequence[Row], names: Sequence[str]) -> Floats:
    return np.array([[row.get(name, np.nan) for name in names] for row in rows], np.float64)


async def embed(texts: Sequence[str]) -> Floats:
    return np.asarray(await MiniLMEmbedder().embed(texts), np.float64)


def with_day(text: str, at: datetime) -> str:
    return f"[{date_in_words(at)}] {text}"


async def read_questions(path: Path, *, dated: bool) -> list[Asked]:
    found: list[Asked] = []
    for person in read_talks(path):
        said = [turn.text for turn in person.turns]
        texts = [with_day(turn.text, turn.at) for turn in person.turns]
        vectors = await embed(texts if dated else said)
        asked = await embed([question.text for question in person.questions])
        words = PlainBm25(texts, b=0.6, read=index_terms)
        for question, vector in zip(person.questions, asked, strict=True):
            scores = ranked(question.text, vector, words, vectors)
            best = np.argsort(-scores, kind="stable")[: rivals.BEST]
            turns = [person.turns[i] for i in best]
            given = rivals.Rivals(
                texts=[turn.text for turn in turns],
                times=[turn.at.timestamp() for turn in turns],
                numbers=list(map(int, best)),
                speakers=[None] * len(best),
                scores=[float(scores[i]) for i in best],
                near=vectors[best] @ vectors[best].T,
                cosines=vectors[best] @ vector,
            )
            pairs = rivals.candidate_pairs(given)
            rows = rivals.question_numbers(question.text, given, pairs)
            ids = [turn.id for turn in turns]
            found.append(Asked(question, person, given, ids, pairs, rows))
    return found


def ranked(question: str, vector: Floats, words: PlainBm25, vectors: Floats) -> Floats:
    """As notes are: 2.5 × centred cosine + 0.4 × the share of BM25 that all words would have."""
    mean = vectors.mean(axis=0) * len(vectors) / (len(vectors) + CENTRE)
    rows, asked = vectors - mean, vector - mean
    cosines = rows @ asked / np.linalg.norm(rows, axis=1) / np.linalg.norm(asked)
    scores, most = words.scores(question)
    total: Floats = 2.5 * cosines + 0.4 * scores / (most or 1.0)
    return total


async def read_pairs(path: Path, *, dated: bool) -> tuple[list[Row], list[bool]]:
    pairs = read_json(path, dict, "a file of pairs")
    days = [datetime(2025, 1, 1, tzinfo=UTC) + timedelta(i) for i in range(len(pairs))]
    older, newer = ([pair[key] for pair in pairs] for key in ("older", "newer"))
    if dated:
        older = [with_day(t, d) for t, d in zip(older, days, strict=True)]
        newer = [with_day(t, d + timedelta(40)) for t, d in zip(newer, days, strict=True)]
    near = np.einsum("nd,nd->n", await embed(older), await embed(newer))
    rows = [
        rivals.pair_numbers(pair["older"], pair["newer"], float(cosine))
        for pair, cosine in zip(pairs, near, strict=True)
    ]
    return rows, [pair["changed"] for pair in pairs]


def fit(questions: Sequence[Asked], rows: Sequence[Row], changed: Sequence[bool]) -> Model:
    """Of questions about the past no pair is told apart by time, so they are left out."""
    known = [q for q in questions if not is_past(q)]
    own = [row for q in known for row in q.rows]
    labels = np.array([*(c for q in known for c in q.changed), *changed], np.float64)
    names = list(own[0])
    raw = matrix([*own, *rows], names)
    mean, deviation = np.nanmean(raw, axis=0), np.nanstd(raw, axis=0) + 1e-9
    asked = np.repeat([1.0, 0.0], [len(own), len(rows)])
    columns = np.column_stack([np.ones(len(raw)), asked, np.nan_to_num((raw - mean) / deviation)])
    counted = np.where(asked > 0, 1.0, PAIR_WEIGHT)
    held = np.where(np.arange(columns.shape[1]) > 0, L2, 0.0)

    def loss(w: Floats) -> tuple[float, Floats]:
        z = columns @ w
        wrong = counted * (1 / (1 + np.exp(-z)) - labels)
        value = counted @ (np.logaddexp(0, z) - labels * z) + held @ w**2 / 2
        return float(value), columns.T @ wrong + held * w

    best = minimize(loss, np.zeros(columns.shape[1]), jac=True, method="L-BFGS-B")
    return Model(names, mean, deviation, best.x)


def is_past(asked: Asked) -> bool:
    return rivals.asked_moment(asked.question.text, asked.given.times) < math.inf


def counted(asked: Asked, ranking: rivals.Ranking) -> Counter[str]:
    """What one question adds to the table; *ranking* of places, which are best first."""
    lines = [
        Line(frozenset({asked.ids[place]}), ranking.outdated_by[place] is not None)
        for place in ranking.order[:SHOWN]
    ]
    row = line_measures(lines, asked.question, asked.person)
    was, is_first = (asked.ids[place] in asked.holds for place in (0, ranking.order[0]))
    row["lost"] = row["stable"] and was and not is_first
    return Counter(questions=1, **{name: int(value) for name, value in row.items()})


def line(name: str, found: Counter[str]) -> str:
    n = found["questions"] or 1
    return (
        f"{name:26} {found['questions']:4} {100 * found['answered@5'] / n:7.1f}"
        f" {100 * found['answered@1'] / n:6.1f} {found['current above']:5}/{found['changed']:<3}"
        f" {found['right marks']:5}/{found['marks']:<3}"
        f" {found['unmarked']:8} {found['lost']:4}/{found['stable']:<3}"
    )


def judged(
    questions: Sequence[Asked],
    table: Row | None,
    order: float = rivals.ORDER,
    mark: float = rivals.MARK,
) -> Counter[str]:
    """All questions; without a *table* as they were ranked."""
    total: Counter[str] = Counter()
    for asked in questions:
        n = len(asked.given.texts)
        ranking = rivals.Ranking(list(range(n)), [None] * n)
        if table is not None:
            ranking = rivals.outdated(
                asked.question.text, asked.given, table=table, order_from=order, mark_from=mark
            )
        total += counted(asked, ranking)
    return total


async def run(args: argparse.Namespace) -> None:
    both = {False: "without", True: "with"}
    asked = {
        dated: {f.name: await read_questions(f, dated=dated) for f in args.files} for dated in both
    }
    pairs = [await read_pairs(args.pairs, dated=dated) for dated in both]
    rows, changed = [[one for part in parts for one in part] for parts in zip(*pairs, strict=True)]

    def fitted(without: str | None = None) -> Model:
        files = [own for found in asked.values() for name, own in found.items() if name != without]
        return fit([question for own in files for question in own], rows, changed)

    left_out = {f.name: fitted(f.name).table() for f in args.files}
    for dated, found in asked.items():
        print(f"\ntexts {both[dated]} their day\n{'each file left out':26} {COLUMNS}")
        for name, own in found.items():
            print(line(f"{name}, before", judged(own, None)))
            print(line(" after", judged(own, left_out[name])))
        print(line("all, before", judged([q for own in found.values() for q in own], None)))
        for order, mark in product(ORDERS, MARKS):
            totals = (judged(own, left_out[name], order, mark) for name, own in found.items())
            print(line(f" order {order}, mark {mark}", sum(totals, Counter())))
    model, figures = fitted(), {}
    for path in args.check:
        for dated, with_day in both.items():
            told, truth = await read_pairs(path, dated=dated)
            logits, changed_at = model.logits(told, asked=False), np.asarray(truth, bool)
            area = area_under_curve(logits[changed_at], logits[~changed_at])
            figures[f"{path.name}, {with_day} day"] = round(area, 3)
    print("\narea under the curve, pairs alone:", figures)
    if args.write:
        write([args.pairs, *args.files], model.table(), figures)


def write(files: Sequence[Path], table: Row, figures: dict[str, float]) -> None:
    constant = table.pop("")
    content: dict[str, Any] = {
        "fitted": datetime.now(UTC).date().isoformat(),
        "files": {f.name: hashlib.sha256(f.read_bytes()).hexdigest()[:12] for f in files},
        "area under the curve of pairs": figures,
        "constant": round(constant, 4),
        "weights": {name: round(weight, 4) for name, weight in table.items()},
    }
    TABLE.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def existing(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"no file {name}")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=existing, help="people with questions")
    parser.add_argument("--pairs", type=existing, default=PAIRS, help="pairs to fit on")
    parser.add_argument("--check", nargs="*", type=existing, default=[], help="other pairs")
    parser.add_argument("--write", action="store_true", help="replace the table of the library")
    anyio.run(run, parser.parse_args())


if __name__ == "__main__":
    main()

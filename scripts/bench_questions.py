"""
Measure the answers to questions about single messages that were remembered over weeks.

FILE is a JSON list of people ``{"id", "start": date, "step_days": days between two messages,
"messages": [text], "questions": [[question, [messages that hold the answer as it is now],
[messages that are outdated]]], "nothing": [questions that nothing answers]}``, messages by
their 0-based number. Each person becomes a repository and each message one ``remember`` at its
date; then every question is asked with ``k=5``. BM25, the cosine of the same embedder, and both
fused rank the same texts in the same run: where recall is below the best of them on a file or on
all, by more than a point and a question and outside the paired interval, the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from time import process_time
from typing import Any, Literal

import anyio
import numpy as np
from bench_ablation import CUT, ablated, gains, verdict
from bench_ablation import show as show_ablation
from bench_dialogues import MOST_NOISE, NOBODY, BadInput, Turn, read_json, read_noise
from bench_floor import (
    Floor,
    OnceEmbedder,
    PlainBm25,
    Scores,
    by_cosine,
    floor_under,
    fused,
)

from mnemo import Config, Message, Mnemo
from mnemo.models.named import EMBEDDERS, named_embedder
from mnemo.protocols import Embedder
from mnemo.recall.result import RecallResult
from mnemo.repository import Repository

K = 5
BINS = 5
"""Groups of equal size over which the error of the confidence is averaged."""
MNEMO = "mnemo"
UNCUT = "mnemo, uncut"
REPOSITORY = "bench"
QUIET = Config(recall={"record_access": False})
_UNCUT = Config(recall={"record_access": False, "cut": 0.0})
COMPARED = ("answered@5", "answered@1", "current above")

# ── Input ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Asked:
    """A question, and the ids of the messages that hold its answer, or held it once."""

    text: str
    holding: frozenset[str]
    outdated: frozenset[str]


@dataclass(frozen=True)
class Person:
    """Messages in order, and questions about them."""

    id: str
    messages: list[Turn]
    questions: list[Asked]
    nothing: list[str]

    @cached_property
    def ids(self) -> frozenset[str]:
        """Of all messages."""
        return frozenset(message.id for message in self.messages)

    @cached_property
    def outdated(self) -> frozenset[str]:
        """Ids of the messages that are outdated for any question."""
        return frozenset().union(*(asked.outdated for asked in self.questions))


def read_people(path: Path, *, minutes: bool) -> list[Person]:
    """
    Read FILE.

    Args:
        minutes: Put the messages a minute apart instead of ``step_days`` days.

    Raises:
        BadInput: It cannot be read, or a field is missing.
    """
    return read_json(path, lambda raw: _person(raw, minutes=minutes), "a file of people")


def _person(raw: dict[str, Any], *, minutes: bool) -> Person:
    start = datetime.fromisoformat(raw["start"]).replace(tzinfo=UTC)
    step = timedelta(minutes=1) if minutes else timedelta(days=raw["step_days"])
    messages = [
        Turn(f"{raw['id']}:{n}", "default", start + n * step, NOBODY, text)
        for n, text in enumerate(raw["messages"])
    ]

    def named(numbers: Iterable[int]) -> frozenset[str]:
        return frozenset(messages[number].id for number in numbers)

    questions = [Asked(text, named(new), named(old)) for text, new, old in raw["questions"]]
    return Person(raw["id"], messages, questions, raw["nothing"])


# ── Measures ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Line:
    """One candidate: the messages behind it, and whether it is marked as outdated."""

    ids: frozenset[str]
    is_marked: bool = False


def measures(lines: Sequence[Line], asked: Asked, person: Person) -> dict[str, float]:
    """
    Measure what one question was given, best first.

    A line answers if it comes from a message that holds the answer; another one is outdated
    if it comes from an outdated message. The current statement is above the outdated ones if
    it is there and none of them stands before it. A mark is right on what is outdated for
    any question of this person and does not answer this one.
    """
    judged = [(_kind(line, asked), line.is_marked) for line in lines]
    kinds = [kind for kind, _ in judged]
    first = kinds.index("answer") if "answer" in kinds else len(lines)
    marks = [line for line in lines if line.is_marked and line.ids & person.ids]
    right = [m for m in marks if m.ids & person.outdated and not m.ids & asked.holding]
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


def _kind(line: Line, asked: Asked) -> Literal["answer", "outdated", "other"]:
    if line.ids & asked.holding:
        return "answer"
    return "outdated" if line.ids & asked.outdated else "other"


@dataclass
class Method:
    """
    What one way to rank gave.

    Attributes:
        scores: The measures of each question that has an answer, by person.
        nothing: The confidence in each question that has none.
    """

    scores: Scores = field(default_factory=Scores)
    nothing: list[float] = field(default_factory=list)

    def add(self, other: Method) -> None:
        """Add the questions of another file."""
        self.scores.extend(other.scores)
        self.nothing += other.nothing

    def as_json(self) -> dict[str, Any]:
        """Means and sums over questions, those of each person, and how good confidence is."""
        found: dict[str, Any] = dict(self.scores.means())
        found |= {name: int(self.scores.column(name).sum()) for name in _COUNTED}
        found["questions"] = len(self.scores.rows)
        found["people"] = {
            name: self.scores.means(name)["answered@5"]
            for name in dict.fromkeys(self.scores.categories)
        }
        if self.nothing and found["answered@5"]:
            found["calibration"] = self._calibration()
        return found

    def _calibration(self) -> dict[str, float]:
        sure, answered = self.scores.column("confidence"), self.scores.column("answered@5")
        unsure = np.asarray(self.nothing)
        return {
            "auc": area_under_curve(sure[answered > 0], unsure),
            "error": calibration_error(
                np.concatenate((sure, unsure)), np.concatenate((answered, np.zeros(len(unsure))))
            ),
            "answered": float(sure[answered > 0].mean()),
            "nothing": float(unsure.mean()),
        }


_COUNTED = (
    *("empty", "changed", "stable", "current above", "outdated", "unmarked"),
    *("marks", "right marks", "lost to a mark"),
)


def area_under_curve(above: np.ndarray, below: np.ndarray) -> float:
    """The share of pairs in which the number of *above* is the greater one; a tie is half."""
    pairs = above[:, None] - below[None, :]
    return float(((pairs > 0) + (pairs == 0) / 2).mean())


def calibration_error(predicted: np.ndarray, happened: np.ndarray) -> float:
    """The mean distance of what was predicted from what happened, over groups of equal size."""
    groups = np.array_split(np.argsort(predicted, kind="stable"), BINS)
    gaps = [len(g) * abs(predicted[g].mean() - happened[g].mean()) for g in groups if len(g)]
    return float(sum(gaps) / len(predicted))


# ── mnemo ────────────────────────────────────────────────────────────────────────────


async def store_noise(folder: Path, noise: Sequence[Turn], embedder: Embedder) -> None:
    """Make the store that every person's is a copy of: a thread for each session of *noise*."""
    async with Mnemo(folder / "mnemo.db", embedder=embedder) as memory:
        repo = await memory.open_repo(REPOSITORY, config=QUIET)
        for thread, turns in groupby(noise, key=lambda turn: turn.session):
            said = [
                Message("user", turn.text, id=turn.id, at=turn.at, actor=_actor(turn))
                for turn in turns
            ]
            await repo.remember(said, thread_id=thread)
        await repo.settle()


def _actor(turn: Turn) -> str | None:
    return None if turn.speaker == NOBODY else turn.speaker


async def ask(repo: Repository, person: Person, **options: Any) -> Scores:
    """Ask every question of *person*, with these options of ``Repository.recall``."""
    found = Scores()
    await repo.recall("warm up", k=K)
    for asked in person.questions:
        began = process_time()
        result = await repo.recall(asked.text, k=K, **options)
        spent = {"processor_ms": 1e3 * (process_time() - began)}
        row = measures(_lines(result), asked, person) | spent
        row["characters"] = float(len(result.as_text()))
        row["confidence"] = result.confidence
        found.add(row, person.id)
    return found


async def ask_nothing(repo: Repository, person: Person) -> list[float]:
    """The confidence in each question that nothing answers."""
    return [(await repo.recall(text, k=K)).confidence for text in person.nothing]


def _lines(result: RecallResult) -> list[Line]:
    return [
        Line(
            frozenset(source.key for source in candidate.sources if source.key is not None),
            candidate.outdated_by is not None,
        )
        for candidate in result.candidates
    ]


# ── Baselines ────────────────────────────────────────────────────────────────────────


async def baselines(person: Person, noise: Sequence[Turn], embedder: Embedder) -> dict[str, Method]:
    """BM25, the cosine of texts with and without day and speaker, and both fused with BM25."""
    turns = [*noise, *person.messages]
    texts = {"": [turn.text for turn in turns], ", dated": [turn.document for turn in turns]}
    bm25 = PlainBm25(texts[""])
    asked = await embedder.embed([asked.text for asked in person.questions], kind="query")
    cosines = {name: asked @ (await embedder.embed(said)).T for name, said in texts.items()}
    found: dict[str, Method] = {}
    for place, question in enumerate(person.questions):
        rankings = {"BM25": bm25.rank(question.text)}
        for name, rows in cosines.items():
            near = by_cosine(rows[place])
            rankings |= {f"cosine{name}": near, f"RRF{name}": fused(rankings["BM25"], near)}
        for name, ranking in rankings.items():
            lines = [Line(frozenset({turns[number].id})) for number in ranking[:K]]
            row = measures(lines, question, person)
            found.setdefault(name, Method()).scores.add(row, person.id)
    return found


# ── Measuring ────────────────────────────────────────────────────────────────────────


@dataclass
class Report:
    """What one file, or all of them, gave: by method, and by what was left out of mnemo."""

    methods: dict[str, Method] = field(default_factory=dict)
    ablations: dict[str, Scores] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        """Add a person, or another file."""
        for name, method in other.methods.items():
            self.methods.setdefault(name, Method()).add(method)
        for name, scores in other.ablations.items():
            self.ablations.setdefault(name, Scores()).extend(scores)

    @property
    def floor(self) -> Floor:
        """answered@5 beside the best baseline."""
        mine = self.methods[MNEMO].scores
        others = {n: m.scores for n, m in self.methods.items() if n not in (MNEMO, UNCUT)}
        return floor_under(mine, others, "answered@5")

    @property
    def gains(self) -> dict[str, dict[str, dict[str, float]]]:
        """What each thing that was left out gives."""
        return gains(self.methods[MNEMO].scores, self.ablations, COMPARED)

    def as_json(self) -> dict[str, Any]:
        """Everything that is printed."""
        methods = {name: method.as_json() for name, method in self.methods.items()}
        return {"methods": methods, "floor": self.floor.as_json(), "ablation": self.gains}


async def measure(
    files: Mapping[str, list[Person]], noise: Sequence[Turn], embedder: Embedder, ablate: bool
) -> dict[str, Report]:
    """Remember and ask, file by file; each text is embedded once."""
    reports = {name: Report() for name in files}
    with tempfile.TemporaryDirectory() as folder:
        beside = Path(folder) / "noise"
        beside.mkdir()
        if noise:
            await store_noise(beside, noise, embedder)
        for number, (name, person) in enumerate(_everybody(files)):
            own = Path(folder) / str(number)
            shutil.copytree(beside, own)
            reports[name].add(await remember_and_ask(own, person, embedder, ablate))
            reports[name].add(Report(await baselines(person, noise, embedder)))
            shutil.rmtree(own)
    return reports


async def remember_and_ask(
    folder: Path, person: Person, embedder: Embedder, ablate: bool
) -> Report:
    """Add *person* to the store in *folder*, and ask, also without the cut."""
    async with Mnemo(folder / "mnemo.db", embedder=embedder) as memory:
        repo = await memory.open_repo(REPOSITORY, config=QUIET)
        for message in person.messages:
            await repo.remember(message.text, at=message.at, key=message.id)
        await repo.settle()
        mine = Method(await ask(repo, person), await ask_nothing(repo, person))
        ablations = await ablated(partial(ask, repo, person)) if ablate else {}
        await memory.close_repo(REPOSITORY)
        repo = await memory.open_repo(REPOSITORY, config=_UNCUT)
        uncut = await ask(repo, person)
    if ablate:
        ablations = {CUT: uncut} | ablations
    return Report({MNEMO: mine, UNCUT: Method(uncut)}, ablations)


def _everybody(files: Mapping[str, list[Person]]) -> Iterator[tuple[str, Person]]:
    return ((name, person) for name, people in files.items() for person in people)


# ── Output ───────────────────────────────────────────────────────────────────────────

_PERCENT = ("answered@1", "answered@3", "answered@5")
_SHARES = (("current above", "changed"), ("unmarked", "outdated"), ("right marks", "marks"))
_MEANS = ("lines", "characters", "processor_ms")
_COLUMNS = (
    *("@1", "@3", "@5", "empty", "current", "unmarked", "marks", "lost first"),
    *("lines", "characters", "cpu ms"),
)


def show(title: str, report: Report) -> None:
    """
    Print *report* as a table, a method a row.

    Columns: ``current`` counts questions about a change whose current statement is above the
    outdated ones, ``unmarked`` outdated lines, ``marks`` those that are right, ``lost first``
    stable questions whose answer is marked and not first; ``of`` is how many there are.
    """
    questions = len(report.methods[MNEMO].scores.rows)
    print(f"\n{title}, {questions} questions, answered in %")
    print(f"{'':<14}" + "".join(f"{name:>11}" for name in _COLUMNS))
    for name, method in report.methods.items():
        print(f"{name:<14}" + "".join(f"{cell:>11}" for cell in _cells(method.as_json())))
    if sure := report.methods[MNEMO].as_json().get("calibration"):
        print(
            f"confidence: AUC {sure['auc']:.2f}, calibration error {sure['error']:.2f}, "
            f"mean {sure['answered']:.2f} of answered and {sure['nothing']:.2f} of unanswerable"
        )
    print(verdict(report.floor, report.gains))
    show_ablation(report.gains)


def _cells(found: dict[str, Any]) -> list[str]:
    return [
        *(f"{100 * found[name]:.1f}" for name in _PERCENT),
        str(found["empty"]),
        *(f"{found[part]} of {found[whole]}" for part, whole in _SHARES),
        f"{found['lost to a mark']} of {found['stable']}",
        *(f"{found[name]:.1f}" if name in found else "" for name in _MEANS),
    ]


def main(given: Sequence[str] | None = None) -> int:
    """Run the bench; exit code 1 where recall is below the floor, 2 for an unreadable file."""
    arguments = _parser().parse_args(given)
    try:
        read = partial(read_people, minutes=arguments.minutes)
        files = {path.name: read(path) for path in arguments.files}
        noise = read_noise(arguments.noise, unnamed=arguments.noise_unnamed)
    except BadInput as error:
        print(f"bench_questions: {error}", file=sys.stderr)
        return 2
    embedder = OnceEmbedder(named_embedder(arguments.embedder))
    work = partial(_reports, files, noise, embedder)
    reports = work(ablate=arguments.ablate)
    if _is_broken(reports) and not arguments.ablate:
        reports = work(ablate=True)
    if arguments.json:
        print(json.dumps({name: r.as_json() for name, r in reports.items()}, indent=2))
    else:
        print(f"{embedder.space.name}; {len(noise)} turns of others beside each person")
        for name, report in reports.items():
            show(name, report)
    return int(_is_broken(reports))


def _reports(
    files: Mapping[str, list[Person]], noise: Sequence[Turn], embedder: Embedder, *, ablate: bool
) -> dict[str, Report]:
    """Of each file, and of several together."""
    reports = anyio.run(measure, files, noise, embedder, ablate)
    total = Report()
    for report in reports.values():
        total.add(report)
    return reports if len(reports) == 1 else reports | {"total": total}


def _is_broken(reports: Mapping[str, Report]) -> bool:
    return any(report.floor.is_broken for report in reports.values())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench_questions", description=__doc__.split("\n\n")[0])
    add: Callable[..., Any] = parser.add_argument
    add("files", type=Path, nargs="+", help="people with messages and questions, JSON")
    add("--noise", type=Path, help=f"dialogues: their first {MOST_NOISE} turns lie beside")
    add("--noise-unnamed", action="store_true", help="without the names of their speakers")
    add("--minutes", action="store_true", help="messages a minute apart, not days")
    add("--ablate", action="store_true", help="also: each signal off in turn")
    add("--embedder", choices=EMBEDDERS, default="minilm")
    add("--json", action="store_true", help="print JSON instead of tables")
    return parser


if __name__ == "__main__":
    sys.exit(main())

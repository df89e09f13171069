"""
Measure the answers to questions whose evidence is known.

A FILE is a JSON list of dialogues ``{"id", "turns": [{"id", "session", "at", "speaker", "text"}],
"questions": [{"question", "category", "evidence": [turn id, …]}]}``: each becomes a repository,
each of its sessions a session, each turn a step. Or it is one of people ``{"id", "start": date,
"step_days": days between two messages, "messages": [text], "questions": [[question, [messages that
hold the answer as it is now], [messages that are outdated]]], "nothing": [questions that nothing
answers]}``, messages by their 0-based number: each message becomes one ``remember`` at its date,
and every question is asked with ``k=5``. BM25, the cosine of the same embedder and both fused rank
the same texts in the same run: where recall is below the best of them on a file or on all, by more
than a point and a question and outside the paired interval, the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from time import perf_counter, process_time
from typing import Any

import answers_kit as kit
import anyio
import numpy as np
from answers_kit import BUDGETS, MOST_NOISE, RRF_K, Line, Scores, Talk, Turn, in_points, verdict
from bench_kit import Figure, Figures, headline, keep, machine

from mnemo import Config, Message, Mnemo
from mnemo.models.named import EMBEDDERS, named_embedder
from mnemo.protocols import Embedder
from mnemo.recall.result import RecallResult
from mnemo.repository.repository import Repository
from mnemo.runtime.text import count_tokens

REPOSITORY = "bench"
MNEMO, UNCUT, STEPS_ONLY = "mnemo", "mnemo, uncut", "mnemo, raw steps only"
SESSIONS = "BM25 over whole sessions"
QUIET = Config(recall={"record_access": False})
NOTHING_CUT = Config(recall={"record_access": False, "cut": 0.0})
DEPTH, K = 50, 5
"""Candidates of a question about a dialogue, and about a person's messages."""
BINS = 5
"""Groups of equal size over which the error of the confidence is averaged."""
ASKED = 200
"""Questions about nothing, of each kind."""
_CITATION = re.compile(r" \[(\d+)\]$", re.MULTILINE)


# ── Storing ──────────────────────────────────────────────────────────────────────────


async def ingest(repo: Repository, talk: Talk) -> None:
    """Store a step for each turn, or remember each message of a person, and wait for vectors."""
    if talk.is_person:
        for turn in talk.turns:
            await repo.remember(turn.text, at=turn.at, key=turn.id)
        await repo.settle()
        return
    for name, turns in talk.sessions():
        session = await repo.start_session(f"Talk {name}", session_id=f"{talk.id}/{name}")
        for turn in turns:
            await session.append(turn.text, "", at=turn.at, actor=turn.speaker, key=turn.id)
        await session.close_and_commit()
        await session.aclose()
    # A recall makes the index read everything, so that it counts what has no vector yet.
    await repo.recall("warm up")
    while (await repo.statistics()).index.waiting:  # noqa: ASYNC110 - it is only counted
        await anyio.sleep(0.02)


async def remember_noise(path: Path, noise: Sequence[Turn], embedder: Embedder) -> None:
    """Make the store that every person's is a copy of: a thread for each session of *noise*."""
    async with Mnemo(path, embedder=embedder) as memory:
        repo = await memory.open_repo(REPOSITORY)
        for thread, turns in Talk("", list(noise), []).sessions():
            said = [
                Message("user", turn.text, id=turn.id, at=turn.at, actor=_actor(turn))
                for turn in turns
            ]
            await repo.remember(said, thread_id=thread)
        await repo.settle()


def _actor(turn: Turn) -> str | None:
    return None if turn.speaker == kit.NOBODY else turn.speaker


# ── Asking ───────────────────────────────────────────────────────────────────────────


async def ask(repo: Repository, talk: Talk, *, brief: bool = False, **options: Any) -> Scores:
    """Ask every question with these options of ``Repository.recall``; *brief*: of turns alone."""
    found, k = Scores(), K if talk.is_person else DEPTH
    await repo.recall("warm up", k=k)
    for question in talk.questions:
        began, used = perf_counter(), process_time()
        result = await repo.recall(question.text, k=k, **options)
        row = {"processor_ms": 1e3 * (process_time() - used), "seconds": perf_counter() - began}
        if talk.is_person:
            row |= kit.line_measures(_lines(result), question, talk)
            row |= {"characters": len(result.as_text()), "confidence": result.confidence}
        elif brief:
            row |= kit.measures(_ranking(result), question.evidence)
        else:
            row |= _full_row(result, question, talk)
        found.add(row, question.category)
    return found


def _lines(result: RecallResult) -> list[Line]:
    return [
        Line(
            frozenset(source.key for source in candidate.sources if source.key is not None),
            candidate.outdated_by is not None,
        )
        for candidate in result.candidates
    ]


def _ranking(result: RecallResult) -> list[str]:
    return [source.key for source in result.sources if source.key is not None]


def _full_row(result: RecallResult, question: kit.Question, talk: Talk) -> dict[str, float]:
    """Turns, sessions, and what is printed within each budget."""

    def shown(budget: int) -> tuple[str, list[str]]:
        text = result.as_text(budget, style="full")
        cited = (result.cited(int(number)).key for number in _CITATION.findall(text))
        return text, [key for key in cited if key is not None]

    row = kit.turn_and_session_measures(_ranking(result), question, talk)
    row["tokens"] = float(count_tokens(result.as_text(style="full")))
    return row | kit.within_budgets(shown, question.evidence)


# ── Baselines ────────────────────────────────────────────────────────────────────────


async def baselines(talk: Talk, noise: Sequence[Turn], embedder: Embedder) -> dict[str, Scores]:
    """Every question, answered from the turns alone by BM25, by cosine, and by both fused."""
    turns = [*noise, *talk.turns] if talk.is_person else talk.turns
    texts = {"": [turn.text for turn in turns], ", dated": [turn.document for turn in turns]}
    read = texts if talk.is_person else {"": texts[", dated"]}
    bm25 = kit.PlainBm25(read[""])
    asked = await embedder.embed([question.text for question in talk.questions], kind="query")
    cosines = {name: asked @ (await embedder.embed(said)).T for name, said in read.items()}
    found: dict[str, Scores] = {}
    for place, question in enumerate(talk.questions):
        rankings = {"BM25": bm25.rank(question.text)}
        for name, rows in cosines.items():
            near = kit.by_cosine(rows[place])
            both = kit.fused(rankings["BM25"], near)
            names = (f"cosine{name}", f"RRF{name}") if talk.is_person else _PLAIN[1:]
            rankings |= dict(zip(names, (near, both), strict=True))
        for name, ranking in rankings.items():
            ids = [turns[number].id for number in ranking[: K if talk.is_person else DEPTH]]
            lines = [Line(frozenset({id})) for id in ids]
            row = kit.line_measures(lines, question, talk) if talk.is_person else None
            row = row or baseline_row(ids, question, talk)
            found.setdefault(name, Scores()).add(row, question.category)
    return found


_PLAIN = ("BM25", "dense", f"RRF {RRF_K} of both")


def baseline_row(ids: Sequence[str], question: kit.Question, talk: Talk) -> dict[str, float]:
    """The measures of a plain ranking, whose lines are printed as ``as_text`` does."""

    def shown(budget: int) -> tuple[str, Sequence[str]]:
        lines: list[str] = []
        for number, id in enumerate(ids, 1):
            line = f"{talk.turn[id].line} [{number}]"
            if count_tokens("\n".join((*lines, line))) > budget:
                break
            lines.append(line)
        if not lines and ids:  # as ``as_text`` does: only the first line may be cut
            cut = talk.turn[ids[0]].line.encode()[: 4 * budget].decode("utf-8", "ignore")
            return cut, ids[:1]
        return "\n".join(lines), ids[: len(lines)]

    row = kit.turn_and_session_measures(ids, question, talk)
    return row | kit.within_budgets(shown, question.evidence)


def session_baseline(talk: Talk) -> Scores:
    """Every question, answered by BM25 over whole sessions; session measures alone."""
    scores, sessions = Scores(), dict(talk.sessions())
    bm25 = kit.PlainBm25(["\n".join(t.document for t in turns) for turns in sessions.values()])
    for question in talk.questions:
        ranking = [list(sessions)[number] for number in bm25.rank(question.text)]
        wanted = frozenset(talk.turn[id].session for id in question.evidence)
        row = kit.measures(ranking, wanted)
        scores.add({f"session {name}": v for name, v in row.items()}, question.category)
    return scores


# ── A report ─────────────────────────────────────────────────────────────────────────


@dataclass
class Report:
    """
    What one file, or all of them, gave.

    Attributes:
        methods: The measures of each question by method; *sessions* those of whole sessions.
        ablations: mnemo's, by what was left out.
        nothing: The confidence in each question that nothing answers.
    """

    methods: dict[str, Scores] = field(default_factory=dict)
    ablations: dict[str, Scores] = field(default_factory=dict)
    sessions: Scores = field(default_factory=Scores)
    nothing: list[float] = field(default_factory=list)
    turns: int = 0
    ingest_s: float = 0.0

    def add(self, other: Report) -> None:
        """Add a talk, or another file."""
        for name, scores in other.methods.items():
            self.methods.setdefault(name, Scores()).extend(scores)
        for name, scores in other.ablations.items():
            self.ablations.setdefault(name, Scores()).extend(scores)
        self.sessions.extend(other.sessions)
        self.nothing += other.nothing
        self.turns += other.turns
        self.ingest_s += other.ingest_s

    @property
    def mine(self) -> Scores:
        """What recall gave as it is."""
        return self.methods[MNEMO]

    @property
    def kind(self) -> str:
        """Whether the questions are those of ``people`` or about ``dialogues``."""
        return "people" if "answered@5" in self.mine.rows[0] else "dialogues"

    @property
    def compared(self) -> tuple[str, ...]:
        """What is compared; the first has a floor."""
        people = ("answered@5", "answered@1", "current above")
        return people if self.kind == "people" else ("recall@10", "ndcg@10")

    def figures(self) -> Figures:
        """What is compared, in percent, of each method."""
        asked = Figure("questions", len(self.mine.rows), "")
        return [asked] + [
            Figure(f"{measure}: {name}", 100 * scores.means()[measure], "%")
            for measure in self.compared
            for name, scores in self.methods.items()
        ]

    @property
    def floor(self) -> kit.Floor:
        """Recall beside the best baseline."""
        plain = {name: s for name, s in self.methods.items() if not name.startswith(MNEMO)}
        return kit.floor_under(self.mine, plain, self.compared[0])

    @property
    def gains(self) -> dict[str, dict[str, dict[str, float]]]:
        """What each thing that was left out gives."""
        return kit.gains(self.mine, self.ablations, self.compared)

    def differences(self) -> dict[str, dict[str, dict[str, float]]]:
        """mnemo against each other method, and its facts at equal tokens."""
        budgets = tuple(f"within {budget}" for budget in BUDGETS)
        return {
            name: {
                measure: kit.difference(self.mine, theirs, measure)
                for measure in self.compared + (budgets if name == STEPS_ONLY else ())
            }
            for name, theirs in self.methods.items()
            if name != MNEMO
        }

    def calibration(self) -> dict[str, float]:
        """How well the confidence tells answered questions from those that nothing answers."""
        if not self.nothing or not self.mine.column("answered@5").any():
            return {}
        sure, answered = self.mine.column("confidence"), self.mine.column("answered@5")
        unsure = np.asarray(self.nothing)
        happened = np.concatenate((answered, np.zeros(len(unsure))))
        return {
            "auc": area_under_curve(sure[answered > 0], unsure),
            "error": calibration_error(np.concatenate((sure, unsure)), happened),
            "answered": float(sure[answered > 0].mean()),
            "nothing": float(unsure.mean()),
        }

    def as_json(self, embedder: str = "") -> dict[str, Any]:
        """Everything that is printed."""
        seconds = self.mine.column("seconds")
        return {
            "embedder": embedder,
            "questions": len(self.mine.rows),
            "turns": self.turns,
            "ingest_s": round(self.ingest_s, 2),
            "recall_p50_ms": round(float(np.percentile(seconds, 50)) * 1e3, 2),
            "recall_p95_ms": round(float(np.percentile(seconds, 95)) * 1e3, 2),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "methods": {name: self._summary(scores) for name, scores in self.methods.items()},
            "sessions": {SESSIONS: self.sessions.means()} if self.sessions.rows else {},
            "calibration": self.calibration(),
            "floor": self.floor.as_json(),
            "differences": self.differences(),
            "ablation": self.gains,
        }

    def _summary(self, scores: Scores) -> dict[str, Any]:
        names = sorted(set(scores.categories))
        means = scores.means()
        return {
            "overall": means | _per_thousand(means),
            "sums": {name: float(scores.column(name).sum()) for name in means},
            "intervals": {name: kit.interval(scores.column(name)) for name in self.compared},
            "categories": {name: scores.means(name) for name in names},
            "asked": Counter(scores.categories),
        }


def _per_thousand(means: Mapping[str, float]) -> dict[str, float]:
    """Mean recall within B tokens per 1,000 returned tokens."""
    return {
        f"per 1000 of {b}": 1_000 * means[f"within {b}"] / means[f"tokens of {b}"]
        for b in BUDGETS
        if means.get(f"tokens of {b}")
    }


def area_under_curve(above: np.ndarray, below: np.ndarray) -> float:
    """The share of pairs in which the number of *above* is the greater one; a tie is half."""
    pairs = above[:, None] - below[None, :]
    return float(((pairs > 0) + (pairs == 0) / 2).mean())


def calibration_error(predicted: np.ndarray, happened: np.ndarray) -> float:
    """The mean distance of what was predicted from what happened, over groups of equal size."""
    groups = np.array_split(np.argsort(predicted, kind="stable"), BINS)
    gaps = [len(g) * abs(predicted[g].mean() - happened[g].mean()) for g in groups if len(g)]
    return float(sum(gaps) / len(predicted))


# ── Measuring ────────────────────────────────────────────────────────────────────────


async def measure(
    files: Mapping[str, list[Talk]], noise: Sequence[Turn], embedder: Embedder, ablate: bool
) -> dict[str, Report]:
    """Store and ask, talk by talk; each text is embedded once, without the time of ingest."""
    reports = {name: Report() for name in files}
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "noise.db"
        if noise and any(talk.is_person for talks in files.values() for talk in talks):
            await remember_noise(kept, noise, embedder)
        for name, talks in files.items():
            for talk in talks:
                with tempfile.TemporaryDirectory() as own:
                    path = Path(own) / "mnemo.db"
                    if talk.is_person and noise:
                        shutil.copy(kept, path)
                    reports[name].add(await store_and_ask(path, talk, noise, embedder, ablate))
    return reports


async def store_and_ask(
    path: Path, talk: Talk, noise: Sequence[Turn], embedder: Embedder, ablate: bool
) -> Report:
    """Store *talk* and ask, also without the facts and without the cut, and the baselines."""
    report = Report(turns=len(talk.turns), methods=await baselines(talk, noise, embedder))
    async with Mnemo(path, embedder=embedder) as memory:
        began = perf_counter()
        repo = await memory.open_repo(REPOSITORY, exist_ok=True)
        await ingest(repo, talk)
        report.ingest_s = perf_counter() - began
        await memory.close_repo(REPOSITORY)
        repo = await memory.open_repo(REPOSITORY, config=QUIET)
        if not talk.is_person:
            report.methods[STEPS_ONLY] = await ask(repo, talk, types=("episodic",))
            report.sessions = session_baseline(talk)
        report.methods[MNEMO] = await ask(repo, talk)
        for text in talk.nothing:
            report.nothing.append((await repo.recall(text, k=K)).confidence)
        if ablate:
            report.ablations = await kit.ablated(partial(ask, repo, talk, brief=True))
        await memory.close_repo(REPOSITORY)
        repo = await memory.open_repo(REPOSITORY, config=NOTHING_CUT)
        report.methods[UNCUT] = await ask(repo, talk)
    if ablate:
        report.ablations = {kit.CUT: report.methods[UNCUT]} | report.ablations
    return report


async def abstention(talks: Sequence[Talk], embedder: Embedder) -> dict[str, Any]:
    """
    Of questions about nothing that a dialogue holds, and some about it, how many find nothing.

    They are of random letters, about other dialogues of the file, and about the dialogue itself.
    """
    letters = random.Random(1)
    made = [
        " ".join("".join(letters.choices(ascii_lowercase, k=letters.randint(5, 9))) for _ in "abc")
        for _ in range(ASKED)
    ]
    asked, silent = Counter[str](), Counter[str]()
    for place, talk in enumerate(talks):
        chance, mine = random.Random(place), slice(place, ASKED, len(talks))
        others = [q.text for other in talks if other is not talk for q in other.questions]
        own, share = [question.text for question in talk.questions], len(made[mine])
        kinds = {
            "random letters": made[mine],
            "about other dialogues": chance.sample(others, min(share, len(others))),
            "about the dialogue itself": chance.sample(own, min(share, len(own))),
        }
        with tempfile.TemporaryDirectory() as folder:
            async with Mnemo(Path(folder) / "mnemo.db", embedder=embedder) as memory:
                repo = await memory.open_repo(REPOSITORY)
                await ingest(repo, talk)
                for kind, questions in kinds.items():
                    found = [await repo.recall(question) for question in questions]
                    asked[kind] += len(questions)
                    silent[kind] += sum(not result.candidates for result in found)
    return {"dialogues": len(talks), "asked": asked, "found nothing": silent}


# ── Output ───────────────────────────────────────────────────────────────────────────

_RANKED = ("recall@5", "recall@10", "recall@20", "any@10", "ndcg@10", "mrr")
_TABLES = {
    "turns": _RANKED,
    "sessions": [f"session {name}" for name in _RANKED],
    "evidence within tokens": [f"within {budget}" for budget in BUDGETS],
    "evidence per 1,000 tokens": [f"per 1000 of {budget}" for budget in BUDGETS],
    "answered": ("answered@1", "answered@3", "answered@5"),
}
_COUNTED = {
    "empty": "questions",
    "current above": "changed",
    "unmarked": "outdated",
    "right marks": "marks",
    "lost to a mark": "stable",
}
"""Column of people → what it is counted of: a mark is lost where the answer is not first."""
_MEANS = ("lines", "characters", "processor_ms")


def show(title: str, report: dict[str, Any], verdict: str) -> None:
    """Print *report* as tables, in percent."""
    print(
        f"\n{title}, {report['questions']} questions: over {report['turns']} turns; "
        f"{report['embedder']}; ingest {report['ingest_s']} s; recall p50 "
        f"{report['recall_p50_ms']} ms, p95 {report['recall_p95_ms']} ms"
    )
    methods = report["methods"]
    overall = {name: summary["overall"] for name, summary in methods.items()}
    for name, columns in _TABLES.items():
        rows = overall | (report["sessions"] if name == "sessions" else {})
        if columns[0] in overall[MNEMO]:
            _table(name, rows, columns)
    if "lines" in overall[MNEMO]:
        print(f"\n{'counted, and means':<34}" + "".join(f"{c:>16}" for c in (*_COUNTED, *_MEANS)))
        for name, summary in methods.items():
            sums = summary["sums"] | {"questions": report["questions"]}
            cells = [f"{sums[part]:.0f} of {sums[of]:.0f}" for part, of in _COUNTED.items()]
            mean = overall[name]
            cells += [f"{mean[what]:.1f}" if what in mean else "" for what in _MEANS]
            print(f"{name:<34}" + "".join(f"{cell:>16}" for cell in cells))
    if sure := report["calibration"]:
        print(
            f"confidence: AUC {sure['auc']:.2f}, calibration error {sure['error']:.2f}, "
            f"mean {sure['answered']:.2f} of answered and {sure['nothing']:.2f} of unanswerable"
        )
    by_category, compared = methods[MNEMO]["categories"], methods[MNEMO]["intervals"]
    _table("by category, mnemo", by_category, [name for name in compared if "@" in name])
    print(f"\n{verdict}\n\ndifferences, 95 % by a paired bootstrap over questions")
    for name, measured in report["differences"].items():
        _show_differences(f"mnemo less {name.removeprefix('mnemo, ')}", measured)
    if found := report["ablation"]:
        idle = [
            name for name, gain in found.items() if not any(any(d.values()) for d in gain.values())
        ]
        print("\nwhat each gives: with it, less without it")
        for name in (name for name in found if name not in idle):
            _show_differences(f"  {name}", found[name])
        print(f"  nothing changes without: {', '.join(idle) or 'none'}")


def _table(title: str, rows: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> None:
    heads = [column.removeprefix("session ").removeprefix("per 1000 of ") for column in columns]
    print(f"\n{title:<34}" + "".join(f"{head:>14}" for head in heads))
    for name, means in rows.items():
        print(f"{name:<34}" + "".join(f"{100 * means[column]:>14.1f}" for column in columns))


def _show_differences(name: str, measured: Mapping[str, Mapping[str, float]]) -> None:
    print(f"{name:<34}" + "; ".join(f"{what} {in_points(d)}" for what, d in measured.items()))


def main(given: Sequence[str] | None = None) -> int:
    """Run the bench; exit code 1 where recall is below the floor, 2 for an unreadable file."""
    arguments = _parser().parse_args(given)
    try:
        noise = kit.read_noise(arguments.noise, unnamed=arguments.noise_unnamed)
        files = {
            path.name: [
                talk if talk.is_person else kit.beside(noise, talk)
                for talk in kit.read_talks(path, minutes=arguments.minutes)
            ]
            for path in arguments.files
        }
    except kit.BadInput as error:
        print(f"bench_questions: {error}", file=sys.stderr)
        return 2
    embedder = kit.OnceEmbedder(named_embedder(arguments.embedder))
    if arguments.abstention:
        counts = {name: anyio.run(abstention, talks, embedder) for name, talks in files.items()}
        print(json.dumps(counts, indent=2))
        return 0
    reports = _reports(files, noise, embedder, arguments.ablate)
    is_broken = any(report.floor.is_broken for report in reports.values())
    if is_broken and not arguments.ablate:
        reports = _reports(files, noise, embedder, True)
    told = {name: report.as_json(embedder.space.name) for name, report in reports.items()}
    if arguments.keep:
        place = headline(machine())
        for name, report in reports.items():
            settings = {"file": name, "embedder": arguments.embedder}
            figures = [figure.as_json() for figure in report.figures()]
            keep(arguments.keep, f"questions-{report.kind}", settings, place, figures)
    if arguments.json:
        print(json.dumps(told, indent=2))
    else:
        print(f"{len(noise)} turns of others beside each person and dialogue")
        for name, report in reports.items():
            show(name, told[name], verdict(report.floor, report.gains))
    return int(is_broken)


def _reports(
    files: Mapping[str, list[Talk]], noise: Sequence[Turn], embedder: Embedder, ablate: bool
) -> dict[str, Report]:
    """Of each file, and of several of one kind together."""
    reports = anyio.run(measure, files, noise, embedder, ablate)
    if len(reports) == 1 or len({report.compared for report in reports.values()}) > 1:
        return reports
    total = Report()
    for report in reports.values():
        total.add(report)
    return reports | {"total": total}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench_questions", description=__doc__.split("\n\n")[0])
    add: Callable[..., Any] = parser.add_argument
    add("files", type=Path, nargs="+", help="dialogues or people with questions, JSON")
    add("--noise", type=Path, help=f"dialogues: their first {MOST_NOISE} turns lie beside each")
    add("--noise-unnamed", action="store_true", help="without the names of their speakers")
    add("--minutes", action="store_true", help="messages a minute apart, not days")
    add("--ablate", action="store_true", help="also: each signal off in turn")
    add("--abstention", action="store_true", help="instead: what finds nothing, as JSON")
    add("--embedder", choices=EMBEDDERS, default="minilm")
    add("--json", action="store_true", help="print JSON instead of tables")
    add("--keep", type=Path, metavar="FILE", help="add what is compared to a file, for the guide")
    return parser


if __name__ == "__main__":
    sys.exit(main())

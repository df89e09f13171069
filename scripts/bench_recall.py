"""
Measure recall on dialogues whose questions name the turns that answer them.

FILE is a JSON list of dialogues ``{"id", "turns": [{"id", "session", "at", "speaker",
"text"}], "questions": [{"question", "category", "evidence": [turn id, …]}]}``. Each
dialogue becomes a repository, each of its sessions a session, each turn a step with its
id as key, its text as observation and its speaker as actor. A ranking is the order of
the keys of ``RecallResult.sources``. BM25, dense and both fused rank the same turns in
the same run, and mnemo is asked without its facts, and without the cut, too. Where its
recall@10 is below the best of the plain rankings, by more than a point and a question and
outside the paired interval, the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import numpy as np
from bench_ablation import CUT, ablated, gains, verdict
from bench_ablation import show as show_ablation
from bench_abstention import abstention
from bench_dialogues import (
    BASELINES,
    BUDGETS,
    DEPTH,
    MOST_NOISE,
    BadInput,
    Dialogue,
    Question,
    baselines,
    beside,
    measures,
    per_thousand,
    read_dialogues,
    read_noise,
    session_baseline,
    turn_and_session_measures,
    within_budgets,
)
from bench_floor import (
    Floor,
    OnceEmbedder,
    Scores,
    difference,
    floor_under,
    interval,
)

from mnemo import Config, Mnemo
from mnemo.models.named import EMBEDDERS, named_embedder
from mnemo.protocols import Embedder
from mnemo.runtime.text import count_tokens

MNEMO = "mnemo"
UNCUT = "mnemo, nothing cut"
STEPS_ONLY = "mnemo, raw steps only"
COMPARED = ("recall@10", "ndcg@10")
QUIET = Config(recall={"record_access": False})
_UNCUT = Config(recall={"record_access": False, "cut": 0.0})
_CITATION = re.compile(r" \[(\d+)\]$", re.MULTILINE)

# ── mnemo ────────────────────────────────────────────────────────────────────────────


async def ingest(memory: Mnemo, dialogue: Dialogue) -> None:
    """One repository per dialogue, one session per session, one step per turn."""
    repo = await memory.open_repo(dialogue.id)
    for number in dict.fromkeys(turn.session for turn in dialogue.turns):
        session = await repo.start_session(f"Talk {number}", session_id=f"{dialogue.id}/{number}")
        for turn in (turn for turn in dialogue.turns if turn.session == number):
            await session.append(turn.text, "", at=turn.at, actor=turn.speaker, key=turn.id)
        await session.close_and_commit()
        await session.aclose()
    # A recall makes the index read everything, so that it counts what has no vector yet.
    await repo.recall("warm up")
    while (await repo.statistics()).index.waiting:  # noqa: ASYNC110 - it is only counted
        await anyio.sleep(0.02)
    await memory.close_repo(dialogue.id)


Row = Callable[[Any, Question, Dialogue], dict[str, float]]


async def ask_all(
    memory: Mnemo,
    dialogues: Iterable[Dialogue],
    *,
    config: Config = QUIET,
    row: Row | None = None,
    **options: Any,
) -> Scores:
    """
    Every question, its measures and its seconds.

    Args:
        row: What is measured; ``None``: everything.
        options: Of ``Repository.recall``.
    """
    scores = Scores()
    for dialogue in dialogues:
        repo = await memory.open_repo(dialogue.id, config=config)
        await repo.recall("warm up", k=DEPTH)
        for question in dialogue.questions:
            began = perf_counter()
            result = await repo.recall(question.text, k=DEPTH, **options)
            seconds = {"seconds": perf_counter() - began}
            measured = (row or full_row)(result, question, dialogue)
            scores.add(measured | seconds, question.category)
        await memory.close_repo(dialogue.id)
    return scores


def _ranking(result: Any) -> list[str]:
    return [source.key for source in result.sources if source.key is not None]


def short_row(result: Any, question: Question, dialogue: Dialogue) -> dict[str, float]:
    """The measures of the ranking of turns alone."""
    return measures(_ranking(result), question.evidence)


def full_row(result: Any, question: Question, dialogue: Dialogue) -> dict[str, float]:
    """Turns, sessions, and what is printed within each budget."""

    def shown(budget: int) -> tuple[str, list[str]]:
        text = result.as_text(budget, style="full")
        cited = (result.cited(int(number)).key for number in _CITATION.findall(text))
        return text, [key for key in cited if key is not None]

    row = turn_and_session_measures(_ranking(result), question, dialogue)
    row["tokens"] = float(count_tokens(result.as_text(style="full")))
    return row | within_budgets(shown, question.evidence)


# ── Measuring ────────────────────────────────────────────────────────────────────────


async def measure(dialogues: list[Dialogue], embedder: Embedder, *, ablate: bool) -> dict[str, Any]:
    """
    Ingest and ask, also without facts and without the cut, beside the baselines.

    Each signal is left out in turn if *ablate* says so, or if recall is below the floor. The
    time of ingest is without embedding what *embedder* knows already.
    """
    methods = await baselines(dialogues, embedder)
    ablations: dict[str, Scores] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with Mnemo(Path(folder) / "mnemo.db", embedder=embedder) as memory:
            began = perf_counter()
            for dialogue in dialogues:
                await ingest(memory, dialogue)
            ingest_s = perf_counter() - began
            ask = partial(ask_all, memory, dialogues)
            methods[STEPS_ONLY] = await ask(types=("episodic",))
            methods[UNCUT] = await ask(config=_UNCUT)
            methods[MNEMO] = await ask()
            plain = {name: methods[name] for name in BASELINES}
            floor = floor_under(methods[MNEMO], plain, "recall@10")
            if ablate or floor.is_broken:
                ablations = {CUT: methods[UNCUT]} | await ablated(partial(ask, row=short_row))
    seconds = methods[MNEMO].column("seconds")
    return {
        "embedder": embedder.space.name,
        "documents": "steps and facts",
        "questions": len(methods[MNEMO].rows),
        "turns": sum(len(dialogue.turns) for dialogue in dialogues),
        "ingest_s": round(ingest_s, 2),
        "recall_p50_ms": round(float(np.percentile(seconds, 50)) * 1e3, 2),
        "recall_p95_ms": round(float(np.percentile(seconds, 95)) * 1e3, 2),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "methods": {name: _summary(scores) for name, scores in methods.items()},
        "sessions": {"BM25 over whole sessions": session_baseline(dialogues).means()},
        "floor": floor,
        "differences": _differences(methods),
        "ablation": gains(methods[MNEMO], ablations, COMPARED),
    }


def _summary(scores: Scores) -> dict[str, Any]:
    names = sorted(set(scores.categories))
    return {
        "overall": per_thousand(scores.means()),
        "intervals": {name: interval(scores.column(name)) for name in COMPARED},
        "categories": {name: per_thousand(scores.means(name)) for name in names},
        "asked": {name: scores.categories.count(name) for name in names},
    }


def _differences(methods: dict[str, Scores]) -> dict[str, dict[str, dict[str, float]]]:
    """mnemo against each other method, and its facts at equal tokens."""
    mine = methods[MNEMO]
    budgets = [f"within {budget}" for budget in BUDGETS]
    return {
        name: {
            measure: difference(mine, theirs, measure)
            for measure in (
                *COMPARED,
                *(budgets if name == STEPS_ONLY else ()),
            )
        }
        for name, theirs in methods.items()
        if name != MNEMO
    }


# ── Output ───────────────────────────────────────────────────────────────────────────

_SHOWN = ("recall@5", "recall@10", "recall@20", "any@10", "ndcg@10", "mrr")
_WIDTH = 34


def show(report: dict[str, Any]) -> None:
    """Print *report* as tables."""
    print(
        f"{report['questions']} questions over {report['turns']} turns; {report['documents']}; "
        f"{report['embedder']}; ingest {report['ingest_s']} s; recall p50 "
        f"{report['recall_p50_ms']} ms, p95 {report['recall_p95_ms']} ms"
    )
    methods = report["methods"]
    overall = {name: summary["overall"] for name, summary in methods.items()}
    _table("turns", overall, _SHOWN, 100)
    _table("by category, mnemo", methods[MNEMO]["categories"], _SHOWN, 100)
    sessions = {**overall, **report["sessions"]}
    _table("sessions", sessions, [f"session {name}" for name in _SHOWN], 100)
    _table("evidence within tokens", overall, [f"within {b}" for b in BUDGETS], 100)
    _table("evidence per 1,000 tokens", overall, [f"per 1000 of {b}" for b in BUDGETS], 100)
    print(f"\n{verdict(report['floor'], report['ablation'])}")
    print("\ndifferences, 95 % by a paired bootstrap over questions")
    for name, measured in report["differences"].items():
        _show_differences(f"mnemo less {name.removeprefix('mnemo, ')}", measured)
    show_ablation(report["ablation"])


def show_together(reports: dict[str, dict[str, Any]]) -> None:
    """Print one table over several files."""
    print(f"recall@10, {next(iter(reports.values()))['embedder']}; differences with their 95 %")
    for file, report in reports.items():
        mine = 100 * report["methods"][MNEMO]["overall"]["recall@10"]
        print(f"\n{file}, {report['questions']} questions: {mine:.1f}")
        for name in BASELINES:
            print(f"  {name:<44}{100 * report['methods'][name]['overall']['recall@10']:.1f}")
        print(f"  {verdict(report['floor'], report['ablation'])}")
        for name, measured in report["differences"].items():
            _show_difference(f"  more than {name.removeprefix('mnemo, ')}", measured["recall@10"])
        for name, means in report["methods"][MNEMO]["categories"].items():
            print(f"  {'of ' + name:<44}{100 * means['recall@10']:.1f}")
        show_ablation(report["ablation"])


def show_abstention(reports: dict[str, dict[str, Any]]) -> None:
    """Print how many questions of each kind found nothing."""
    for file, report in reports.items():
        print(f"{file}, {report['dialogues']} dialogues")
        for kind, asked in report["asked"].items():
            print(f"  {kind:<32}{report['found nothing'][kind]:>5} of {asked} found nothing")


def _show_difference(name: str, d: dict[str, float]) -> None:
    numbers = f"{100 * d['mean']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"
    print(f"{name:<46}{numbers}")


def _table(
    title: str, rows: dict[str, dict[str, float]], columns: Sequence[str], scale: float
) -> None:
    heads = [column.removeprefix("session ").removeprefix("per 1000 of ") for column in columns]
    print(f"\n{title:<{_WIDTH}}" + "".join(f"{head:>14}" for head in heads))
    for name, means in rows.items():
        numbers = "".join(f"{scale * means[column]:>14.1f}" for column in columns)
        print(f"{name:<{_WIDTH}}{numbers}")


def _show_differences(name: str, measured: dict[str, dict[str, float]]) -> None:
    parts = (
        f"{measure} {100 * d['mean']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"
        for measure, d in measured.items()
    )
    print(f"{name:<{_WIDTH}}{'; '.join(parts)}")


def main() -> int:
    """Run the bench; exit code 1 where recall is below the floor, 2 for an unreadable file."""
    parser = argparse.ArgumentParser(prog="bench_recall", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "files", type=Path, nargs="+", help="dialogues with labelled evidence, JSON"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--ablate", action="store_true", help="also: each signal off in turn")
    parser.add_argument(
        "--abstention",
        action="store_true",
        help="instead: how many questions about nothing that is stored find nothing",
    )
    parser.add_argument(
        "--noise", type=Path, help=f"dialogues: their first {MOST_NOISE} turns lie beside each"
    )
    parser.add_argument("--noise-unnamed", action="store_true", help="without their speakers")
    parser.add_argument("--embedder", choices=EMBEDDERS, default="minilm")
    arguments = parser.parse_args()
    try:
        noise = read_noise(arguments.noise, unnamed=arguments.noise_unnamed)
        files = {
            path.name: [beside(noise, dialogue) for dialogue in read_dialogues(path)]
            for path in arguments.files
        }
    except BadInput as error:
        print(f"bench_recall: {error}", file=sys.stderr)
        return 2
    embedder = OnceEmbedder(named_embedder(arguments.embedder))
    work: Callable[[list[Dialogue]], Any] = partial(
        measure, embedder=embedder, ablate=arguments.ablate
    )
    if arguments.abstention:
        work = partial(abstention, embedder=embedder, ingest=ingest)
    reports = {name: anyio.run(work, dialogues) for name, dialogues in files.items()}
    (first, *others) = reports.values()
    if arguments.json:
        print(json.dumps(reports if others else first, indent=2, default=Floor.as_json))
    elif arguments.abstention:
        show_abstention(reports)
    elif others:
        show_together(reports)
    else:
        show(first)
    return int(not arguments.abstention and any(r["floor"].is_broken for r in reports.values()))


if __name__ == "__main__":
    sys.exit(main())

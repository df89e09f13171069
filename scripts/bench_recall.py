"""
Measure recall on dialogues whose questions name the turns that answer them.

FILE is a JSON list of dialogues ``{"id", "turns": [{"id", "session", "at", "speaker",
"text"}], "questions": [{"question", "category", "evidence": [turn id, …]}]}``. Each
dialogue becomes a repository, each of its sessions a session, each turn a step with its
id as key, its text as observation and its speaker as actor. A ranking is the order of
the keys of ``RecallResult.sources``. BM25, dense and both fused rank the same turns in
the same run, and mnemo is asked with and without its facts and its role prior.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import numpy as np
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
    EMBEDDERS,
    Floor,
    OnceEmbedder,
    Scores,
    difference,
    floor_under,
    interval,
)

from mnemo import Config, Mnemo
from mnemo.protocols import Embedder
from mnemo.recall import hop_zero, signals
from mnemo.recall.ranking import SIGNALS
from mnemo.recall.signals import StepWeights
from mnemo.runtime.text import count_tokens
from mnemo.values.corpus import StepsView
from mnemo.values.postings import B

MNEMO = "mnemo"
NO_PRIOR = "mnemo, role prior off"
NO_SIGNALS = "mnemo, fitted signals off"
STEPS_ONLY = "mnemo, raw steps only"
COMPARED = ("recall@10", "ndcg@10")
QUIET = Config(recall={"record_access": False})
_CITATION = re.compile(r" \[(\d+)\]$", re.MULTILINE)

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


Row = Callable[[Any, Question, Dialogue], dict[str, float]]


async def ask_all(
    memory: Mnemo,
    dialogues: Iterable[Dialogue],
    *,
    settings: dict[str, Any] | None = None,
    max_hops: int = 2,
    row: Row | None = None,
) -> tuple[Scores, list[float]]:
    """
    Every question, its measures and its seconds.

    Args:
        settings: Of ``config.recall``, beside those of the bench.
        row: What is measured; ``None``: everything.
    """
    scores, seconds = Scores(), []
    config = Config(recall={"record_access": False, **(settings or {})})
    for dialogue in dialogues:
        repo = await memory.open_repo(dialogue.id, config=config)
        await repo.recall("warm up", k=DEPTH)
        for question in dialogue.questions:
            began = perf_counter()
            result = await repo.recall(question.text, k=DEPTH, reason=False, max_hops=max_hops)
            seconds.append(perf_counter() - began)
            scores.add((row or full_row)(result, question, dialogue), question.category)
        await memory.close_repo(dialogue.id)
    return scores, seconds


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


# ── Ablation ─────────────────────────────────────────────────────────────────────────


Change = Callable[[StepWeights], StepWeights]


@contextmanager
def weights_changed(change: Change) -> Iterator[None]:
    """Within this block the steps' signals weigh what *change* makes of their weights."""
    shipped = hop_zero.step_weights

    def changed(steps: StepsView, config: Config, dense_weight: float) -> StepWeights:
        return change(shipped(steps, config, dense_weight))

    hop_zero.step_weights = changed
    try:
        yield
    finally:
        hop_zero.step_weights = shipped


def _without(signal: str) -> Change:
    if signal in SIGNALS:
        return lambda weights: replace(weights, fitted=_other_than({signal}, weights))
    value = B if signal == "b" else 0.0
    return lambda weights: replace(weights, **{signal: value})


def _without_group(group: str) -> Change:
    left_out = {name for name, signal in SIGNALS.items() if signal.group == group}
    return lambda weights: replace(weights, fitted=_other_than(left_out, weights))


def _other_than(left_out: Container[str], weights: StepWeights) -> dict[str, float]:
    return {name: w for name, w in weights.fitted.items() if name not in left_out}


def _no_signals(weights: StepWeights) -> StepWeights:
    return replace(weights, fitted={})


@contextmanager
def scored_once() -> Iterator[None]:
    """Within this block, which is of one question, steps are scored once for the same weights."""
    shipped = signals.scored_steps
    known: dict[tuple[Any, ...], signals.StepScores] = {}

    def remembered(
        view: StepsView, question: Any, ok: Any, weights: StepWeights, *given: Any, **options: Any
    ) -> signals.StepScores:
        plain = replace(weights, fitted={})
        key = (id(view), plain.b, *plain.shown().items())
        if key not in known:
            known[key] = shipped(view, question, ok, weights, *given, **options)
        return known[key]

    signals.scored_steps = remembered
    try:
        yield
    finally:
        signals.scored_steps = shipped


async def ask_with(
    memory: Mnemo,
    dialogues: Iterable[Dialogue],
    changes_of: Callable[[str], Mapping[str, Change]],
) -> dict[str, Scores]:
    """
    Every question with each change of the weights, by the change's name.

    Args:
        changes_of: Gives the changes by the id of a dialogue.
    """
    scores: defaultdict[str, Scores] = defaultdict(Scores)
    for dialogue in dialogues:
        changes = changes_of(dialogue.id)
        repo = await memory.open_repo(dialogue.id, config=QUIET)
        await repo.recall("warm up", k=DEPTH)
        for question in dialogue.questions:
            with scored_once():
                for name, change in changes.items():
                    with weights_changed(change):
                        result = await repo.recall(question.text, k=DEPTH, reason=False)
                    scores[name].add(short_row(result, question, dialogue), question.category)
        await memory.close_repo(dialogue.id)
    return scores


async def ablate(memory: Mnemo, dialogues: Sequence[Dialogue]) -> dict[str, Scores]:
    """What is left of the ranking with each signal off in turn, and without hops."""
    shipped: dict[str, float] = {}

    def note(weights: StepWeights) -> StepWeights:
        shipped.update(weights.shown() | ({"b": weights.b} if weights.b != B else {}))
        return weights

    found = await ask_with(memory, dialogues, lambda _: {"": note})
    groups = dict.fromkeys(SIGNALS[name].group for name in shipped if name in SIGNALS)
    changes = {f"{name} {weight:+.2f}": _without(name) for name, weight in shipped.items()}
    changes |= {f"all of {group}": _without_group(group) for group in groups}
    found |= await ask_with(memory, dialogues, lambda _: changes)
    found["hops"], _ = await ask_all(memory, dialogues, max_hops=0, row=short_row)
    return found


# ── Measuring ────────────────────────────────────────────────────────────────────────


async def measure(
    dialogues: list[Dialogue], embedder: Embedder, *, ablated: bool
) -> dict[str, Any]:
    """
    Ingest and ask, with and without facts and the role prior, beside the baselines.

    The time of ingest is without embedding what *embedder* knows already.
    """
    methods = await baselines(dialogues, embedder)
    ablations: dict[str, Scores] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with Mnemo(Path(folder) / "steps.db", embedder=embedder) as memory:
            for dialogue in dialogues:
                await ingest(memory, dialogue, commit=False)
            methods[STEPS_ONLY], _ = await ask_all(memory, dialogues)
        async with Mnemo(Path(folder) / "facts.db", embedder=embedder) as memory:
            began = perf_counter()
            for dialogue in dialogues:
                await ingest(memory, dialogue, commit=True)
            ingest_s = perf_counter() - began
            methods[NO_PRIOR], _ = await ask_all(
                memory, dialogues, settings={"observation_prior": 0.0}
            )
            with weights_changed(_no_signals):
                methods[NO_SIGNALS], _ = await ask_all(memory, dialogues)
            methods[MNEMO], seconds = await ask_all(memory, dialogues)
            if ablated:
                ablations = await ablate(memory, dialogues)
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
        "floor": floor_under(
            methods[MNEMO], {name: methods[name] for name in BASELINES}, "recall@10"
        ),
        "differences": _differences(methods),
        "by category": _by_category(methods),
        "ablation": _ablation(ablations),
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
                *(budgets if name in (STEPS_ONLY, NO_SIGNALS) else ()),
            )
        }
        for name, theirs in methods.items()
        if name != MNEMO
    }


def _by_category(methods: dict[str, Scores]) -> dict[str, dict[str, float]]:
    """recall@10 of each category, and what the fitted signals add to it."""
    names = dict.fromkeys(methods[MNEMO].categories)
    mine, plain = (methods[m] for m in (MNEMO, NO_SIGNALS))
    return {
        name: {"recall@10": mine.of(name).means()["recall@10"]}
        | difference(mine.of(name), plain.of(name), "recall@10")
        for name in sorted(names)
    }


def _ablation(found: dict[str, Scores]) -> dict[str, dict[str, dict[str, float]]]:
    """What each signal gives: the measure with it, less the measure without it."""
    return {
        name: {measure: difference(found[""], scores, measure) for measure in COMPARED}
        for name, scores in found.items()
        if name
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
    print(f"\n{report['floor']}")
    print("\ndifferences, 95 % by a paired bootstrap over questions")
    for name, measured in report["differences"].items():
        _show_differences(f"mnemo less {name.removeprefix('mnemo, ')}", measured)
    if report["ablation"]:
        print("\nwhat each signal gives: with it, less without it")
    for name, measured in report["ablation"].items():
        _show_differences(name, measured)


def show_together(reports: dict[str, dict[str, Any]]) -> None:
    """Print one table over several files."""
    print(f"recall@10, {next(iter(reports.values()))['embedder']}; differences with their 95 %")
    for file, report in reports.items():
        mine = 100 * report["methods"][MNEMO]["overall"]["recall@10"]
        print(f"\n{file}, {report['questions']} questions: {mine:.1f}")
        for name in BASELINES:
            print(f"  {name:<44}{100 * report['methods'][name]['overall']['recall@10']:.1f}")
        print(f"  {report['floor']}")
        for name, measured in report["differences"].items():
            _show_difference(f"  more than {name.removeprefix('mnemo, ')}", measured["recall@10"])
        print("  more than fitted signals off, by category")
        for name, d in report["by category"].items():
            _show_difference(f"    {name} ({100 * d['recall@10']:.1f})", d)
        for name, measured in report["ablation"].items():
            _show_difference(f"  what it gives: {name}", measured["recall@10"])


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
    embedder = OnceEmbedder(EMBEDDERS[arguments.embedder]())
    work: Callable[[list[Dialogue]], Any] = partial(
        measure, embedder=embedder, ablated=arguments.ablate
    )
    if arguments.abstention:
        work = partial(abstention, embedder=embedder, ingest=partial(ingest, commit=True))
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

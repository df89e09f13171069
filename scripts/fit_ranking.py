"""
Fit the weights of recall's signals on dialogues whose questions name their evidence.

Each FILE is one as ``scripts/bench_recall`` reads. For each question the softmax over the
200 steps of the best score, and the evidence, is brought near to 1/n on each of the n
steps of evidence (listwise cross-entropy, L-BFGS). A question weighs 1/√(questions of its
file); the weights of standardised signals are held back by an L2 penalty of 20. Weights
for short and for long documents are fitted apart. Recall is then asked with weights that
were fitted without the dialogue in question, and without its whole file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from bench_dialogues import BadInput, Dialogue, Question, read_dialogues
from bench_floor import EMBEDDERS, OnceEmbedder, difference
from bench_recall import QUIET, Change, ask_with, ingest
from numpy.typing import NDArray
from scipy.optimize import minimize

from mnemo import Config, Mnemo
from mnemo.recall import ranking, signals

BEST = 200
L2 = 20.0
GROUPS = {"short": ("topic", "who", "form", "answer"), "long": ("roles",)}
TABLE = Path(ranking.__file__).with_name("ranking.json")

Weights = dict[str, float]
Tables = dict[str, Weights]
"""Length → weights."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """
    One question over the steps that compete for it.

    Attributes:
        length: ``"short"`` or ``"long"``.
        score: What the signals are added to, in deviations, shape ``(steps,)``.
        values: Of each signal of that length, shape ``(steps, signals)``.
        wanted: Which steps are evidence.
    """

    file: str
    dialogue: str
    length: str
    score: Floats
    values: Floats
    wanted: NDArray[np.bool_]


def names_of(length: str) -> list[str]:
    """The signals that are fitted for documents of *length*."""
    return [name for name, signal in ranking.SIGNALS.items() if signal.group in GROUPS[length]]


# ── Cases ────────────────────────────────────────────────────────────────────────────


async def cases_of(memory: Mnemo, file: str, dialogue: Dialogue) -> list[Case]:
    """What the signals say of each question of *dialogue*."""
    sessions = dict.fromkeys(turn.session for turn in dialogue.turns)
    order = [t.id for s in sessions for t in dialogue.turns if t.session == s and t.text.strip()]
    repo = await memory.open_repo(dialogue.id, config=QUIET)
    await repo.recall("warm up")
    cases = []
    for question in dialogue.questions:
        with recorded() as seen:
            await repo.recall(question.text)
        if seen:
            if seen[0].view.count != len(order):
                raise BadInput(f"{file}: {dialogue.id}: turns and documents differ")
            cases.append(_case(file, dialogue, question, order, seen[0]))
    await memory.close_repo(dialogue.id)
    return cases


@contextmanager
def recorded() -> Any:
    """Within this block, what the signals look at is kept."""
    seen: list[ranking.SignalInput] = []
    shipped = signals.added_to

    def record(asked: ranking.SignalInput, weights: Any, *, explain: bool) -> Any:
        seen.append(asked)
        return shipped(asked, weights, explain=explain)

    signals.added_to = record
    try:
        yield seen
    finally:
        signals.added_to = shipped


def _case(
    file: str,
    dialogue: Dialogue,
    question: Question,
    order: Sequence[str],
    asked: ranking.SignalInput,
) -> Case:
    length = "short" if asked.view.median_words < Config().recall.short_document_words else "long"
    wanted = np.asarray([id in question.evidence for id in order])
    best = np.argsort(-asked.scores, kind="stable")[:BEST]
    chosen = np.union1d(best, np.flatnonzero(wanted))
    columns = [ranking.SIGNALS[name].values(asked) for name in names_of(length)]
    nothing = np.zeros(len(order))
    values = np.stack([nothing if v is None else v for v in columns], axis=1)
    return Case(
        file,
        dialogue.id,
        length,
        asked.scores[chosen].astype(np.float64),
        values[chosen].astype(np.float64),
        wanted[chosen],
    )


# ── The fit ──────────────────────────────────────────────────────────────────────────


def fit(cases: Sequence[Case]) -> Weights:
    """
    The weights that bring the evidence of *cases* to the top, relative to the score.

    The weight of the score itself is fitted too, without penalty, and all are divided by it.
    """
    if not cases:
        return {}
    asked = {file: sum(case.file == file for case in cases) for file in {c.file for c in cases}}
    share = np.asarray([asked[case.file] ** -0.5 for case in cases])
    share /= share.mean()
    sizes = [len(case.score) for case in cases]
    begin, owner = np.cumsum([0, *sizes[:-1]]), np.repeat(np.arange(len(cases)), sizes)
    score = np.concatenate([case.score for case in cases])
    values = np.concatenate([case.values for case in cases])
    target = np.concatenate([case.wanted / max(case.wanted.sum(), 1) for case in cases])
    deviation = values.std(axis=0)
    deviation[deviation < 1e-6] = np.inf
    design = np.column_stack((score, values / deviation))

    def loss(weights: Floats) -> tuple[float, Floats]:
        sums = design @ weights
        sums -= np.maximum.reduceat(sums, begin)[owner]
        logs = sums - np.log(np.add.reduceat(np.exp(sums), begin))[owner]
        held = np.concatenate(([0.0], L2 * weights[1:]))
        total = -float((target * logs * share[owner]).sum()) + float(held @ weights) / 2
        mass = np.add.reduceat(target, begin)[owner]
        return total, design.T @ ((np.exp(logs) * mass - target) * share[owner]) + held

    found = minimize(loss, np.eye(1, design.shape[1])[0], jac=True, method="L-BFGS-B").x
    relative = found[1:] / deviation / max(found[0], 0.05)
    return dict(zip(names_of(cases[0].length), relative.tolist(), strict=True))


def fit_all(cases: Iterable[Case]) -> Tables:
    """Length → weights; none for a length without any question."""
    known = list(cases)
    return {length: fit([c for c in known if c.length == length]) for length in GROUPS}


def rounded(weights: Weights) -> Weights:
    """To whole numbers (small ones to one decimal), without those that are nothing then."""
    near = {n: float(round(w)) if abs(w) >= 0.75 else round(w, 1) for n, w in weights.items()}
    return {name: weight for name, weight in near.items() if weight}


# ── Checking by recall ───────────────────────────────────────────────────────────────


def _fitted(tables: Tables) -> Change:
    """Weigh the fitted signals by *tables* in place of the shipped ones."""
    return lambda weights: replace(
        weights, fitted=tables["long" if weights.observation else "short"]
    )


async def check(
    memory: Mnemo,
    file: str,
    dialogues: Sequence[Dialogue],
    cases: Sequence[Case],
    shipped: Tables,
) -> dict[str, Any]:
    """recall@10 of *file* with no signals, and what each way to fit adds to it."""
    none: Tables = {length: {} for length in GROUPS}
    without_file = fit_all(c for c in cases if c.file != file)

    def changes_of(id: str) -> dict[str, Change]:
        others = (c for c in cases if (c.file, c.dialogue) != (file, id))
        tables = {
            "": none,
            "shipped weights": shipped,
            "fitted without the dialogue": fit_all(others),
            "fitted without the file": without_file,
        }
        return {way: _fitted(table) for way, table in tables.items()}

    found = await ask_with(memory, dialogues, changes_of)
    plain = found.pop("")
    gains = {way: difference(scores, plain, "recall@10") for way, scores in found.items()}
    return {
        "without signals": round(plain.means()["recall@10"], 4),
        **{way: {k: round(v, 4) for k, v in gain.items()} for way, gain in gains.items()},
    }


# ── Output ───────────────────────────────────────────────────────────────────────────


async def run(files: dict[str, list[Dialogue]], embedder: str) -> dict[str, Any]:
    """Ingest, fit on all files, and check."""
    figures, cases = {}, []
    with tempfile.TemporaryDirectory() as folder:
        reused = OnceEmbedder(EMBEDDERS[embedder]())
        for number, (file, dialogues) in enumerate(files.items()):
            async with Mnemo(Path(folder) / f"{number}.db", embedder=reused) as memory:
                for dialogue in dialogues:
                    await ingest(memory, dialogue, commit=True)
                    cases += await cases_of(memory, file, dialogue)
        shipped = {length: rounded(weights) for length, weights in fit_all(cases).items()}
        for number, (file, dialogues) in enumerate(files.items()):
            async with Mnemo(Path(folder) / f"{number}.db", embedder=reused) as memory:
                figures[file] = await check(memory, file, dialogues, cases, shipped)
    return {"weights": shipped, "recall@10": figures}


def described(path: Path, dialogues: Sequence[Dialogue]) -> dict[str, Any]:
    """What the table says of a file: enough to know it again."""
    return {
        "name": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest()[:16],
        "dialogues": len(dialogues),
        "questions": sum(len(dialogue.questions) for dialogue in dialogues),
    }


def show(found: dict[str, Any]) -> None:
    """Print weights and figures; a weight whose sign surprises is marked."""
    for length, weights in found["weights"].items():
        print(f"\nweights for {length} documents, 1 is a deviation of the score")
        for name, weight in weights.items():
            print(f"  {name:<20}{weight:>+7.2f}{'  surprising sign' if weight < 0 else ''}")
    print("\nrecall@10, and what is added to it, 95 % by a paired bootstrap over questions")
    for file, figures in found["recall@10"].items():
        print(f"{file}: without signals {100 * figures['without signals']:.1f}")
        for way, d in figures.items():
            if isinstance(d, dict):
                interval = f"({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"
                print(f"  {way:<30}{100 * d['mean']:+.1f} {interval}")


def main() -> int:
    """Fit and check; exit code 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser(prog="fit_ranking", description=__doc__.split("\n\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="dialogues with labelled evidence")
    parser.add_argument("--embedder", choices=EMBEDDERS, default="static")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name} of the package")
    arguments = parser.parse_args()
    try:
        files = {path.name: read_dialogues(path) for path in arguments.files}
    except BadInput as error:
        print(f"fit_ranking: {error}", file=sys.stderr)
        return 2
    found = anyio.run(run, files, arguments.embedder)
    show(found)
    if arguments.write:
        read = [described(path, files[path.name]) for path in arguments.files]
        about = {"fitted": datetime.now(UTC).date().isoformat(), "by": "scripts/fit_ranking"}
        written = {**about, "embedder": arguments.embedder, "files": read, **found}
        TABLE.write_text(json.dumps(written, indent=2) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

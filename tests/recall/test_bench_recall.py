"""The bench of recall, on a dialogue small enough for a test."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ran

SCRIPTS = Path(__file__).parents[2] / "scripts"

TURNS = [
    ("Ana", "I planted roses behind the shed"),
    ("Bo", "My boat needs new paint"),
    ("Ana", "The kettle broke this morning"),
    ("Bo", "Lunch was soup again"),
    ("Ana", "Which season suits the boat trip best?"),
    ("Bo", "Early June suits me, before the crowds"),
    *(("Ana", f"Nothing new on day {day} of the rain") for day in range(20)),
]
DIALOGUE = {
    "id": "d1",
    "turns": [
        {"id": f"t{n}", "session": n // 2, "at": f"2024-03-{n + 1:02}T10:00:00"}
        | {"speaker": speaker, "text": text}
        for n, (speaker, text) in enumerate(TURNS)
    ],
    "questions": [
        {"question": "Where are the roses?", "category": "single", "evidence": ["t0"]},
        {"question": "What does Bo's boat need?", "category": "single", "evidence": ["t1"]},
        {
            "question": "What broke, and what was lunch?",
            "category": "two",
            "evidence": ["t2", "t3"],
        },
        {"question": "Which season for the boat trip?", "category": "single", "evidence": ["t5"]},
    ],
}
BASELINES = {"BM25", "dense", "RRF 60 of both"}
METHODS = BASELINES | {
    "mnemo",
    "mnemo, uncut",
    "mnemo, raw steps only",
}
BUDGETS = (512, 1024, 2048, 4096)


bench = partial(ran, SCRIPTS / "bench_questions.py", "--embedder", "static")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dialogue file."""
    path = tmp_path_factory.mktemp("dialogues") / "dialogues.json"
    path.write_text(json.dumps([DIALOGUE]), "utf-8")
    return path


@pytest.fixture(scope="module")
def report(file: Path) -> dict[str, Any]:
    """What the bench says of it, with everything that can be asked for."""
    done = bench(str(file), "--json", "--ablate")
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)[file.name]
    return read


@pytest.mark.long
@pytest.mark.slow
def test_every_method_ranks_the_same_questions(report: dict[str, Any]) -> None:
    """BM25, dense, both fused and mnemo are compared in one run, turn by turn and by session."""
    assert (report["questions"], report["turns"]) == (4, len(TURNS))
    assert set(report["methods"]) == METHODS
    for method in report["methods"].values():
        assert method["overall"]["recall@10"] > 0
        assert 0 < method["overall"]["session mrr"] <= 1
        assert set(method["categories"]) == {"single", "two"}
        for budget in BUDGETS:
            assert 0 < method["overall"][f"tokens of {budget}"] <= budget
            assert method["overall"][f"per 1000 of {budget}"] > 0
    assert report["methods"]["BM25"]["overall"]["recall@5"] == 0.75
    assert report["methods"]["mnemo, uncut"]["overall"]["recall@5"] == 1.0
    assert 0 < report["sessions"]["BM25 over whole sessions"]["session recall@10"] <= 1


@pytest.mark.long
@pytest.mark.slow
def test_differences_come_with_their_intervals(report: dict[str, Any]) -> None:
    """mnemo against each other method, and its facts at equal tokens."""
    assert set(report["differences"]) == METHODS - {"mnemo"}
    for measured in report["differences"].values():
        assert {"recall@10", "ndcg@10"} <= measured.keys()
        assert all(d["low"] <= d["mean"] <= d["high"] for d in measured.values())
    assert report["floor"]["best"] in BASELINES
    assert not report["floor"]["is_broken"]
    facts = report["differences"]["mnemo, raw steps only"]
    assert {f"within {budget}" for budget in BUDGETS} <= facts.keys()


@pytest.mark.long
@pytest.mark.slow
def test_each_signal_is_left_out_in_turn(report: dict[str, Any]) -> None:
    """--ablate names every signal, every group of them, the hops and the facts."""
    assert {"cosine", "window", "words", "joined", "speaker"} <= report["ablation"].keys()
    assert {"all of meaning", "all of who", "hops", "facts"} <= report["ablation"].keys()
    differences = [d for found in report["ablation"].values() for d in found.values()]
    assert any(d["mean"] != 0 for d in differences)


@pytest.mark.long
@pytest.mark.slow
def test_the_tables_can_be_read(file: Path) -> None:
    """Without --json the same comes as tables, and no ablation unless asked for."""
    done = bench(str(file))
    assert done.returncode == 0, done.stderr
    for title in ("turns", "sessions", "evidence within tokens", "evidence per 1,000 tokens"):
        assert f"\n{title} " in done.stdout
    assert "mnemo less BM25" in done.stdout
    assert "\nfloor held: recall@10 " in done.stdout
    assert "\nwhat each gives" not in done.stdout


@pytest.mark.long
@pytest.mark.slow
def test_several_files_make_one_table(file: Path, tmp_path: Path) -> None:
    """Each file has its recall, differences and categories, under its name."""
    other = tmp_path / "others.json"
    other.write_text(json.dumps([DIALOGUE | {"id": "d2"}]), "utf-8")
    done = bench(str(file), str(other))
    assert done.returncode == 0, done.stderr
    for name in (file.name, other.name):
        assert f"\n{name}, 4 questions: " in done.stdout
    assert "\ntotal, 8 questions: " in done.stdout
    assert done.stdout.count("\nfloor held: recall@10 ") == 3
    assert done.stdout.count("\nmnemo less BM25 ") == done.stdout.count("\ntwo ") == 3


@pytest.mark.long
@pytest.mark.slow
def test_turns_of_others_lie_beside_a_dialogue(file: Path, tmp_path: Path) -> None:
    """They are stored and ranked with its own turns, and the questions stay those of the file."""
    noise = tmp_path / "noise.json"
    noise.write_text(json.dumps([DIALOGUE, DIALOGUE | {"id": "d2"}]), "utf-8")
    done = bench(str(file), "--noise", str(noise), "--noise-unnamed", "--json")
    report = json.loads(done.stdout)[file.name]
    assert (report["questions"], report["turns"]) == (4, 2 * len(TURNS))


def test_noise_is_of_other_dialogues_and_may_lose_its_names(dialogues: Any, file: Path) -> None:
    """A dialogue is no noise of its own; ids and sessions of two dialogues stay apart."""
    (own,) = dialogues.kit.read_talks(file)
    noise = dialogues.kit.read_noise(file, unnamed=True)
    assert {turn.speaker for turn in noise} == {"user"}
    assert dialogues.kit.beside(noise, own).turns == own.turns
    other = dialogues.kit.beside(noise, replace(own, id="d2"))
    assert [turn.text for turn in other.turns] == [text for _, text in 2 * TURNS]
    assert len(other.turn) == 2 * len(TURNS)
    assert len(dict(other.sessions())) == 2 * len(dict(own.sessions()))
    assert dialogues.kit.read_noise(None, unnamed=False) == []


@pytest.fixture
def dialogues(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of measures and baselines."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("bench_questions")


def test_measures_follow_their_formulas(dialogues: Any) -> None:
    """Two of three pieces of evidence at ranks 1 and 3."""
    found = dialogues.kit.measures(["a", "x", "b", "y"], frozenset("abc"))
    assert found["recall@5"] == pytest.approx(2 / 3)
    assert (found["any@10"], found["all@10"], found["mrr"]) == (1, 0, 1)
    ideal = 1 + 1 / np.log2(3) + 1 / np.log2(4)
    assert found["ndcg@10"] == pytest.approx((1 + 1 / np.log2(4)) / ideal)


@pytest.fixture
def floor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of plain rankings and intervals."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("answers_kit")


def test_fusion_adds_reciprocal_ranks(floor: Any) -> None:
    """Second in both beats first in one and absent from the other."""
    assert floor.fused([1, 2], [3, 2]) == [2, 1, 3]


def test_an_interval_holds_the_mean_and_shrinks_with_more(floor: Any) -> None:
    """The bootstrap over questions: the same twice, narrower for ten times as many."""
    few = np.asarray([0.0, 1.0] * 20)
    low, high = floor.interval(few)
    assert low < 0.5 < high
    assert floor.interval(few) == (low, high)
    narrow = floor.interval(np.tile(few, 10))
    assert narrow[1] - narrow[0] < (high - low) / 2


def test_a_baseline_prints_whole_lines_within_its_budget(dialogues: Any, file: Path) -> None:
    """What does not fit is not told; only a first line that is too long is cut."""
    (dialogue,) = dialogues.kit.read_talks(file)
    question = dialogue.questions[2]
    row = dialogues.baseline_row(["t2", "t3"], question, dialogue)
    line = dialogues.count_tokens(dialogue.turn["t2"].line)
    assert row["within 512"] == 1.0
    assert line < row["tokens of 512"] < 3 * line
    long = dialogues.Turn("long", "1", dialogue.turns[0].at, "Ana", "word " * 1_000)
    dialogue = dialogues.Talk("d2", [*dialogue.turns, long], [question])
    row = dialogues.baseline_row(["long", "t2"], question, dialogue)
    assert (row["tokens of 512"], row["within 512"], row["within 4096"]) == (512, 0, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["{", '{"id": 1}', '[{"id": "d", "turns": [{}]}]'])
@pytest.mark.long
def test_a_file_that_is_no_dialogue_is_refused(tmp_path: Path, content: str) -> None:
    """One clear line and exit code 2, no traceback."""
    file = tmp_path / "broken.json"
    file.write_text(content, "utf-8")
    done = bench(str(file))
    assert done.returncode == 2
    assert done.stderr.startswith("bench_questions: ")
    assert len(done.stderr.splitlines()) == 1

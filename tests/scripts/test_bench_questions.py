"""The bench of questions about remembered messages, and the floor under recall."""

import json
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ran

SCRIPTS = Path(__file__).parents[2] / "scripts"
ANA = {
    "id": "ana",
    "start": "2026-01-05",
    "step_days": 3,
    "messages": [
        "I live in Leeds, in a flat above a bakery.",
        "My sister Carla keeps bees.",
        "I bought a red bicycle.",
        "I moved to Bristol last week.",
        "The bicycle has a flat tyre.",
        "I read a book about whales.",
    ],
    "questions": [
        ["Which town is home, Leeds or Bristol?", [3], [0]],
        ["Who keeps bees?", [1], []],
        ["What was the book about?", [5], []],
    ],
    "nothing": ["Which car does the user drive?"],
}
TURNS = [f"We repainted boat number {n} this morning." for n in range(12)]
NOISE = {
    "id": "others",
    "turns": [
        {"id": f"t{n}", "session": n // 6, "at": f"2024-03-01T12:{n:02}:00"}
        | {"speaker": "Bo", "text": text}
        for n, text in enumerate(TURNS)
    ],
    "questions": [],
}
METHODS = {"mnemo", "mnemo, uncut", "BM25", "cosine", "RRF", "cosine, dated", "RRF, dated"}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the bench."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("bench_questions")


@pytest.fixture
def floor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of baselines and their law."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("answers_kit")


def written(path: Path, *objects: dict[str, Any]) -> Path:
    """A file of *objects*."""
    path.write_text(json.dumps(objects), "utf-8")
    return path


run = partial(ran, SCRIPTS / "bench_questions.py")


# ── The whole bench ──────────────────────────────────────────────────────────────────


@pytest.mark.long
@pytest.mark.slow
def test_every_method_answers_the_same_questions(tmp_path):
    """mnemo and the baselines have the measures of each file and of all."""
    first = written(tmp_path / "first.json", ANA)
    second = written(tmp_path / "second.json", ANA | {"id": "eva"})
    done = run(first, second, "--embedder", "static", "--ablate", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report) == {"first.json", "second.json", "total"}
    for found, times in ((report["first.json"], 1), (report["total"], 2)):
        assert set(found["methods"]) == METHODS
        for method in found["methods"].values():
            assert sum(method["asked"].values()) == 3 * times
            assert (method["sums"]["changed"], method["sums"]["stable"]) == (times, 2 * times)
            mean = method["overall"]
            assert 0 < mean["answered@1"] <= mean["answered@3"] <= mean["answered@5"] <= 1
        mine = found["methods"]["mnemo"]["overall"]
        assert mine["processor_ms"] > 0
        assert mine["characters"] > 0
        assert not found["floor"]["is_broken"]
        assert {"the cut", "words", "cosine", "all of meaning", "hops", "facts"} <= found[
            "ablation"
        ].keys()
        for gains in found["ablation"].values():
            assert set(gains) == {"answered@5", "answered@1", "current above"}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("names", [(), ("--noise-unnamed",)])
def test_turns_of_others_lie_beside_a_person(tmp_path, names):
    """The table says how many; a question is still answered from the person's own messages."""
    file = written(tmp_path / "people.json", ANA)
    noise = written(tmp_path / "noise.json", NOISE)
    done = run(file, "--noise", noise, *names, "--minutes", "--embedder", "static")
    assert done.returncode == 0, done.stderr
    assert f"{len(TURNS)} turns of others beside each person" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("mnemo "))
    assert row.split()[3] == "100.0"
    assert "floor held: answered@5 100.0" in done.stdout
    assert "\nconfidence: AUC " in done.stdout


@pytest.mark.slow
def test_recall_below_the_floor_ends_with_exit_code_1(bench, tmp_path, monkeypatch, capsys):
    """
    A recall that finds nothing is below every baseline.

    The bench names the best of them, and no signal, for none of them is the reason.
    """

    class Blind:
        """Asks about a thread that does not exist."""

        def __init__(self, repo: Any) -> None:
            self._repo = repo

        async def recall(self, question: str, **options: Any) -> Any:
            return await self._repo.recall(question, thread_id="elsewhere", **options)

    seeing = bench.ask
    monkeypatch.setattr(bench, "ask", lambda repo, *given, **o: seeing(Blind(repo), *given, **o))
    file = written(tmp_path / "people.json", ANA)
    assert bench.main([str(file), "--embedder", "static"]) == 1
    printed = capsys.readouterr().out
    assert "BELOW THE FLOOR: answered@5 0.0, -100.0 (-100.0 to -100.0)" in printed
    assert "; leaving nothing out lifts it" in printed


@pytest.mark.parametrize("content", ["{", '{"id": 1}', '[{"id": "a"}]', '[{"messages": 3}]'])
def test_a_file_without_people_is_refused(bench, tmp_path, content, capsys):
    """One line and exit code 2."""
    file = tmp_path / "broken.json"
    file.write_text(content, "utf-8")
    assert bench.main([str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bench_questions: ")


# ── Measures ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def ana(bench: Any, tmp_path: Path) -> Any:
    """The person of the file."""
    (person,) = bench.kit.read_talks(written(tmp_path / "ana.json", ANA), minutes=False)
    return person


def line(bench: Any, *numbers: int, is_marked: bool = False) -> Any:
    """A candidate that comes from these messages."""
    return bench.Line(frozenset(f"ana:{n}" for n in numbers), is_marked)


def test_messages_have_their_dates(bench, ana, tmp_path):
    """So many days apart, or a minute."""
    assert [m.at.date().isoformat() for m in ana.turns[:2]] == ["2026-01-05", "2026-01-08"]
    (close,) = bench.kit.read_talks(tmp_path / "ana.json", minutes=True)
    assert (close.turns[5].at - close.turns[0].at).seconds == 300


def test_an_answer_counts_from_its_place_on(bench, ana):
    """Third is answered among three and five; the outdated statement above it is seen."""
    lines = [line(bench, 2), line(bench, 0), line(bench, 3, 4), line(bench, 0)]
    found = bench.kit.line_measures(lines, ana.questions[0], ana)
    assert [found[f"answered@{k}"] for k in (1, 3, 5)] == [0, 1, 1]
    assert (found["current above"], found["outdated"], found["unmarked"]) == (0, 2, 2)
    found = bench.kit.line_measures(lines[2:], ana.questions[0], ana)
    assert (found["answered@1"], found["current above"]) == (1, 1)


def test_nothing_found_is_empty_and_answers_nothing(bench, ana):
    """No line: no answer among five either."""
    found = bench.kit.line_measures([], ana.questions[0], ana)
    assert (found["empty"], found["answered@5"], found["current above"]) == (1, 0, 0)


def test_a_mark_is_right_on_what_is_outdated(bench, ana):
    """A mark on the old home is right; one on the bees is wrong, and costs them the first place."""
    marked = [line(bench, 3), line(bench, 0, is_marked=True)]
    found = bench.kit.line_measures(marked, ana.questions[0], ana)
    assert (found["marks"], found["right marks"], found["unmarked"]) == (1, 1, 0)
    wrong = [line(bench, 2), line(bench, 1, is_marked=True)]
    found = bench.kit.line_measures(wrong, ana.questions[1], ana)
    assert (found["marks"], found["right marks"], found["lost to a mark"]) == (1, 0, 1)
    foreign = bench.Line(frozenset({"others:t1"}), is_marked=True)
    assert bench.kit.line_measures([foreign], ana.questions[1], ana)["marks"] == 0


def test_confidence_is_judged_by_order_and_by_value(bench):
    """Ties count half; a forecast that is a tenth too high everywhere is wrong by a tenth."""
    area = bench.area_under_curve(np.asarray([0.9, 0.5]), np.asarray([0.5, 0.1]))
    assert area == pytest.approx(3.5 / 4)
    predicted, happened = np.full(100, 0.6), np.tile([1.0, 0.0], 50)
    assert bench.calibration_error(predicted, happened) == pytest.approx(0.1)


# ── The law of the floor ─────────────────────────────────────────────────────────────


def scores(floor: Any, right: int, questions: int) -> Any:
    """So many of the questions are right, the first ones."""
    found = floor.Scores()
    for number in range(questions):
        found.add({"right": float(number < right)}, "")
    return found


@pytest.mark.parametrize(
    ("mine", "best", "questions", "is_broken"),
    [
        (80, 90, 100, True),
        (89, 90, 100, False),  # a question
        (1_980, 2_000, 2_000, False),  # a point
        (1_970, 2_000, 2_000, True),
        (28, 30, 30, False),  # within the interval
        (90, 80, 100, False),
    ],
)
def test_the_floor_is_a_point_and_a_question_outside_the_interval(
    floor, mine, best, questions, is_broken
):
    """All three must be exceeded; the best baseline counts, not the others."""
    baselines = {
        "worse": scores(floor, 0, questions),
        "best": scores(floor, best, questions),
    }
    found = floor.floor_under(scores(floor, mine, questions), baselines, "right")
    assert (found.best, found.is_broken) == ("best", is_broken)
    assert ("BELOW" in str(found)) == is_broken


def test_the_signal_that_costs_most_is_named(bench, floor):
    """Below the floor, what lifts recall most when it is left out; otherwise nothing."""
    mine, best = scores(floor, 50, 100), scores(floor, 90, 100)
    without = {"words": scores(floor, 80, 100), "cosine": scores(floor, 10, 100)}
    found = bench.kit.gains(mine, without, ["right"])
    broken = floor.floor_under(mine, {"best": best}, "right")
    assert bench.verdict(broken, found).endswith("; without words it is 30.0 higher")
    held = floor.floor_under(best, {"best": mine}, "right")
    assert "words" not in bench.verdict(held, found)


def test_a_signal_is_left_out_and_put_back(bench):
    """Also where what asks meanwhile fails."""
    ablation = import_module("answers_kit")
    shipped = dict(ablation.WEIGHTS)

    def fail() -> None:
        assert not any(ablation.WEIGHTS["words"].values())
        assert ablation.WEIGHTS["session"] == shipped["session"]
        raise KeyError

    with pytest.raises(KeyError), ablation.left_out(["words", "cosine"]):
        fail()
    assert shipped == ablation.WEIGHTS
    assert any(shipped["words"].values())

"""The bench of questions about dialogues and remembered messages, and the floor under recall."""

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


SAID = [
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
        for n, (speaker, text) in enumerate(SAID)
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
OF_TURNS = BASELINES | {
    "mnemo",
    "mnemo, uncut",
    "mnemo, raw steps only",
}
BUDGETS = (512, 1024, 2048, 4096)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the bench."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("bench_questions")


def written(path: Path, *objects: dict[str, Any]) -> Path:
    """A file of *objects*."""
    path.write_text(json.dumps(objects), "utf-8")
    return path


run = partial(ran, SCRIPTS / "bench_questions.py")
STATIC = ("--embedder", "static")


# ── The whole bench ──────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dialogue file."""
    path = tmp_path_factory.mktemp("dialogues") / "dialogues.json"
    written(path, DIALOGUE)
    return path


@pytest.fixture(scope="module")
def report(file: Path) -> dict[str, Any]:
    """What the bench says of it, with everything that can be asked for."""
    done = run(file, *STATIC, "--json", "--ablate")
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)[file.name]
    return read


@pytest.mark.long
@pytest.mark.slow
def test_every_method_ranks_the_same_questions(report):
    """BM25, dense, both fused and mnemo are compared in one run, turn by turn and by session."""
    assert (report["questions"], report["turns"]) == (4, len(SAID))
    assert set(report["methods"]) == OF_TURNS
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
def test_differences_come_with_their_intervals(report):
    """mnemo against each other method, and its facts at equal tokens."""
    assert set(report["differences"]) == OF_TURNS - {"mnemo"}
    for measured in report["differences"].values():
        assert {"recall@10", "ndcg@10"} <= measured.keys()
        assert all(d["low"] <= d["mean"] <= d["high"] for d in measured.values())
    assert report["floor"]["best"] in BASELINES
    assert not report["floor"]["is_broken"]
    facts = report["differences"]["mnemo, raw steps only"]
    assert {f"within {budget}" for budget in BUDGETS} <= facts.keys()


@pytest.mark.long
@pytest.mark.slow
def test_each_signal_is_left_out_in_turn(report):
    """--ablate names every signal, every group of them, the hops and the facts."""
    assert {"cosine", "window", "words", "joined", "speaker"} <= report["ablation"].keys()
    assert {"all of meaning", "all of who", "hops", "facts"} <= report["ablation"].keys()
    differences = [d for found in report["ablation"].values() for d in found.values()]
    assert any(d["mean"] != 0 for d in differences)


@pytest.mark.long
@pytest.mark.slow
def test_the_tables_can_be_read(file):
    """Without --json the same comes as tables, and no ablation unless asked for."""
    done = run(file, *STATIC)
    assert done.returncode == 0, done.stderr
    for title in ("turns", "sessions", "evidence within tokens", "evidence per 1,000 tokens"):
        assert f"\n{title} " in done.stdout
    assert "mnemo less BM25" in done.stdout
    assert "\nfloor held: recall@10 " in done.stdout
    assert "\nwhat each gives" not in done.stdout


@pytest.mark.long
@pytest.mark.slow
def test_several_files_make_one_table(file, tmp_path):
    """Each file has its recall, differences and categories, under its name."""
    other = tmp_path / "others.json"
    written(other, DIALOGUE | {"id": "d2"})
    done = run(file, other, *STATIC)
    assert done.returncode == 0, done.stderr
    for name in (file.name, other.name):
        assert f"\n{name}, 4 questions: " in done.stdout
    assert "\ntotal, 8 questions: " in done.stdout
    assert done.stdout.count("\nfloor held: recall@10 ") == 3
    assert done.stdout.count("\nmnemo less BM25 ") == done.stdout.count("\ntwo ") == 3


@pytest.mark.long
@pytest.mark.slow
def test_turns_of_others_lie_beside_a_dialogue(file, tmp_path):
    """They are stored and ranked with its own turns, and the questions stay those of the file."""
    noise = tmp_path / "noise.json"
    written(noise, DIALOGUE, DIALOGUE | {"id": "d2"})
    done = run(file, *STATIC, "--noise", noise, "--noise-unnamed", "--json")
    report = json.loads(done.stdout)[file.name]
    assert (report["questions"], report["turns"]) == (4, 2 * len(SAID))


@pytest.mark.long
@pytest.mark.slow
def test_every_method_answers_the_same_questions(tmp_path):
    """mnemo and the baselines have the measures of each file and of all."""
    first = written(tmp_path / "first.json", ANA)
    second = written(tmp_path / "second.json", ANA | {"id": "eva"})
    done = run(first, second, *STATIC, "--ablate", "--json")
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
    done = run(file, "--noise", noise, *names, "--minutes", *STATIC)
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
    assert bench.main([str(file), *STATIC]) == 1
    printed = capsys.readouterr().out
    assert "BELOW THE FLOOR: answered@5 0.0, -100.0 (-100.0 to -100.0)" in printed
    assert "; leaving nothing out lifts it" in printed


@pytest.mark.parametrize(
    "content",
    ["{", '{"id": 1}', '[{"id": "a"}]', '[{"messages": 3}]', '[{"id": "d", "turns": [{}]}]'],
)
def test_a_file_of_neither_people_nor_dialogues_is_refused(bench, tmp_path, content, capsys):
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


def test_noise_is_of_other_dialogues_and_may_lose_its_names(bench, file):
    """A dialogue is no noise of its own; ids and sessions of two dialogues stay apart."""
    (own,) = bench.kit.read_talks(file)
    noise = bench.kit.read_noise(file, unnamed=True)
    assert {turn.speaker for turn in noise} == {"user"}
    assert bench.kit.beside(noise, own).turns == own.turns
    other = bench.kit.beside(noise, replace(own, id="d2"))
    assert [turn.text for turn in other.turns] == [text for _, text in 2 * SAID]
    assert len(other.turn) == 2 * len(SAID)
    assert len(dict(other.sessions())) == 2 * len(dict(own.sessions()))
    assert bench.kit.read_noise(None, unnamed=False) == []


def test_measures_follow_their_formulas(bench):
    """Two of three pieces of evidence at ranks 1 and 3."""
    found = bench.kit.measures(["a", "x", "b", "y"], frozenset("abc"))
    assert found["recall@5"] == pytest.approx(2 / 3)
    assert (found["any@10"], found["all@10"], found["mrr"]) == (1, 0, 1)
    ideal = 1 + 1 / np.log2(3) + 1 / np.log2(4)
    assert found["ndcg@10"] == pytest.approx((1 + 1 / np.log2(4)) / ideal)


def test_fusion_adds_reciprocal_ranks(bench):
    """Second in both beats first in one and absent from the other."""
    assert bench.kit.fused([1, 2], [3, 2]) == [2, 1, 3]


def test_an_interval_holds_the_mean_and_shrinks_with_more(bench):
    """The bootstrap over questions: the same twice, narrower for ten times as many."""
    few = np.asarray([0.0, 1.0] * 20)
    low, high = bench.kit.interval(few)
    assert low < 0.5 < high
    assert bench.kit.interval(few) == (low, high)
    narrow = bench.kit.interval(np.tile(few, 10))
    assert narrow[1] - narrow[0] < (high - low) / 2


def test_a_baseline_prints_whole_lines_within_its_budget(bench, file):
    """What does not fit is not told; only a first line that is too long is cut."""
    (dialogue,) = bench.kit.read_talks(file)
    question = dialogue.questions[2]
    row = bench.baseline_row(["t2", "t3"], question, dialogue)
    line = bench.count_tokens(dialogue.turn["t2"].line)
    assert row["within 512"] == 1.0
    assert line < row["tokens of 512"] < 3 * line
    long = bench.Turn("long", "1", dialogue.turns[0].at, "Ana", "word " * 1_000)
    dialogue = bench.Talk("d2", [*dialogue.turns, long], [question])
    row = bench.baseline_row(["long", "t2"], question, dialogue)
    assert (row["tokens of 512"], row["within 512"], row["within 4096"]) == (512, 0, 0.5)


# ── The law of the floor ─────────────────────────────────────────────────────────────


def scores(bench: Any, right: int, questions: int) -> Any:
    """So many of the questions are right, the first ones."""
    found = bench.kit.Scores()
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
    bench, mine, best, questions, is_broken
):
    """All three must be exceeded; the best baseline counts, not the others."""
    baselines = {
        "worse": scores(bench, 0, questions),
        "best": scores(bench, best, questions),
    }
    found = bench.kit.floor_under(scores(bench, mine, questions), baselines, "right")
    assert (found.best, found.is_broken) == ("best", is_broken)
    assert ("BELOW" in str(found)) == is_broken


def test_the_signal_that_costs_most_is_named(bench):
    """Below the floor, what lifts recall most when it is left out; otherwise nothing."""
    mine, best = scores(bench, 50, 100), scores(bench, 90, 100)
    without = {"words": scores(bench, 80, 100), "cosine": scores(bench, 10, 100)}
    found = bench.kit.gains(mine, without, ["right"])
    broken = bench.kit.floor_under(mine, {"best": best}, "right")
    assert bench.verdict(broken, found).endswith("; without words it is 30.0 higher")
    held = bench.kit.floor_under(best, {"best": mine}, "right")
    assert "words" not in bench.verdict(held, found)


def test_a_signal_is_left_out_and_put_back(bench):
    """Also where what asks meanwhile fails."""
    ablation = bench.kit
    shipped = dict(ablation.WEIGHTS)

    def fail() -> None:
        assert not any(ablation.WEIGHTS["words"].values())
        assert ablation.WEIGHTS["session"] == shipped["session"]
        raise KeyError

    with pytest.raises(KeyError), ablation.left_out(["words", "cosine"]):
        fail()
    assert shipped == ablation.WEIGHTS
    assert any(shipped["words"].values())

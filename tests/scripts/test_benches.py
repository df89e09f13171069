"""The benches in ``scripts/`` run, and their output can be read by a machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import child_environment

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a bench to its end."""
    command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    environment = child_environment()
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def result_of(script: str, *arguments: object) -> dict[str, Any]:
    """What a bench printed as JSON, at sizes at which its figures say nothing."""
    done = run(script, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert {"cpu", "cores", "python", "sqlite"} <= result["machine"].keys()
    return result


def values_of(figures: list[dict[str, Any]]) -> dict[str, float]:
    """The figures of a phase by their names."""
    return {figure["name"]: figure["value"] for figure in figures}


# ── Appends, episodes, recall ────────────────────────────────────────────────────────


@pytest.mark.long
def test_every_phase_of_the_bench_gives_its_figures():
    """Every phase has figures that say whether their targets are met."""
    result = result_of("bench.py", "--size", "tiny")
    assert "packages" in result["machine"]
    once = {"idle-loop", "import", "first-use", "sessions", "episodes", "threads", "filters"}
    appends = {"appends-normal", "appends-full", "appends-beside-bare", "sustained"}
    assert set(result["phases"]) == once | appends | {"recall-200"}
    for figures in result["phases"].values():
        assert all(figure["value"] >= 0 for figure in figures)
    lags = [f["name"] for f in result["phases"]["appends-full"] if "lag max" in f["name"]]
    assert lags == [f"append, full, {n} in flight: loop lag max" for n in (1, 64)]


@pytest.mark.long
def test_threads_of_two_processes_are_settled_with_a_killed_one_between():
    """Every message is one step and one fact, whichever process lived to extract it."""
    (figures,) = result_of("bench.py", "--size", "tiny", "--only", "threads")["phases"].values()
    wrong, *others = figures
    assert (wrong["name"], wrong["value"]) == (
        "8 threads: messages or facts not there exactly once",
        0,
    )
    assert {figure["unit"] for figure in others} == {"s", "ms", "MB", "KB", ""}


@pytest.mark.long
def test_one_phase_can_be_chosen():
    """--only runs the phases that begin so and no other, and prints a table."""
    done = run("bench.py", "--size", "tiny", "--only", "idle")
    assert done.returncode == 0, done.stderr
    assert "idle loop: loop lag p99" in done.stdout
    assert "append" not in done.stdout


@pytest.mark.long
def test_an_unknown_phase_is_refused():
    """A phase that does not exist is an error with the names of those that do."""
    done = run("bench.py", "--size", "tiny", "--only", "nothing")
    assert done.returncode == 2
    assert "appends-normal" in done.stderr


@pytest.mark.long
@pytest.mark.postgres
def test_postgres_is_measured_beside_sqlite():
    """Appends give ratios; a follower of other processes misses nothing."""
    chosen = ["--only", "appends", "--only", "following"]
    phases = result_of("bench_postgres.py", "--size", "tiny", *chosen)["phases"]
    assert [f["unit"] for f in phases["appends"]].count("x") == 3
    appended, *missed = [figure["value"] for figure in phases["following"]]
    assert appended > 0
    assert missed == [0, 0]


@pytest.mark.long
def test_workers_killed_and_stopped_at_random_lose_and_double_nothing():
    """Each episode is committed once, no late write is taken, nothing stays claimed."""
    phases = result_of("bench_workers.py", "--threads", 0, "--rounds", 12, "--soak", 0)["phases"]
    wrong = {figure["name"]: figure["value"] for figure in phases["chaos"] if figure["value"]}
    assert len(phases["chaos"]) == 5
    assert wrong == {}


PHASES = ("event loop", "writer", "annotated", "embedded", "indexed", "other threads")


@pytest.mark.long
def test_processor_time_of_a_sustained_load_is_told_by_phase(tmp_path):
    """Turns of a file are appended, and every phase has its part of the whole."""
    said = ["I sold the red boat.", "Why? It was lovely.", "It leaked, and Ana wants a new one."]
    turns = [
        {
            "id": f"t{number}",
            "session": "1",
            "at": f"2024-03-01T12:{number:02}:00",
            "speaker": "Bo",
            "text": f"{said[number % 3]} That was number {number}.",
        }
        for number in range(60)
    ]
    path = tmp_path / "dialogues.json"
    path.write_text(json.dumps([{"id": "d", "turns": turns, "questions": []}]))
    result = result_of("bench.py", "--size", "tiny", path, "--only", "turns")
    (figures,) = result["phases"].values()
    used = {f["name"].rpartition(", ")[2]: f["value"] for f in figures if f["unit"] == "µs"}
    assert all(used[phase] > 0 for phase in PHASES)
    assert sum(used[phase] for phase in PHASES) <= used["all"] * 1.05
    rates = [figure["name"].rpartition(": ")[2] for figure in figures if figure["unit"] == "/s"]
    assert rates == ["durable", "annotated, embedded, indexed"]


@pytest.mark.long
def test_questions_about_nothing_stored_are_counted(tmp_path):
    """Random letters find nothing in a dialogue, and the other kinds are told beside them."""
    path = tmp_path / "dialogues.json"
    path.write_text(json.dumps([dialogue("a", "boat"), dialogue("b", "kite")]))
    done = run("bench_recall.py", path, "--abstention", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    kinds = report["asked"]
    assert kinds["random letters"] == report["found nothing"]["random letters"] == 200
    assert report["found nothing"]["about the dialogue itself"] == 0
    assert kinds["about other dialogues"] == 2


def dialogue(id: str, thing: str) -> dict[str, Any]:
    """Thirty turns about a *thing*, and a question about one of them."""
    turns = [
        {
            "id": f"{id}{n}",
            "session": "1",
            "at": f"2024-03-01T12:{n:02}:00",
            "speaker": "Bo",
            "text": f"I painted the {thing} for the {n}th time.",
        }
        for n in range(30)
    ]
    asked = {"question": f"Who painted the {thing}?", "category": "1", "evidence": [f"{id}3"]}
    return {"id": id, "turns": turns, "questions": [asked]}


# ── The other benches ────────────────────────────────────────────────────────────────


@pytest.mark.long
def test_every_cost_of_a_message_is_measured(tmp_path):
    """The machine's durability is named; each size has its figures, and then the ratios."""
    sizes = ("--sizes", "100,200", "--calls", 4, "--each", 2)
    result = result_of("bench_conversations.py", *sizes, "--dir", tmp_path)
    assert "synchronous" in result["machine"]
    *sized, ratio = result["phases"].values()
    assert len(sized) == 2
    for values in map(values_of, sized):
        for name in ("append alone", "append, everything on", "viewport.render", "search"):
            assert 0 < values[f"{name}: p50"] <= values[f"{name}: p95"]
        assert values["64 threads at once: durable appends"] > 0
    assert {figure["unit"] for figure in ratio} == {"×"}
    assert "append, everything on: p50" in values_of(ratio)


@pytest.mark.long
def test_every_sort_of_question_is_measured(tmp_path):
    """Searching, viewing and passive recall have their figures."""
    sizes = ("--messages", 300, "--calls", 3)
    phases = result_of("bench_search.py", *sizes, "--dir", tmp_path)["phases"]
    assert sum(name.startswith("search, ") for name in phases) >= 8
    assert {"view", "passive recall, with its write"} <= phases.keys()
    for name in phases.keys() - {"filling"}:
        values = values_of(phases[name])
        assert 0 < values[f"{name}: p50"] <= values[f"{name}: p95"]


@pytest.mark.long
def test_an_operation_is_measured_alone_and_beside_appends(tmp_path):
    """What ought to be merged is merged."""
    sizes = ("--facts", 60, "--only", "consolidate", "--before", 0.1)
    phases = result_of("bench_maintenance.py", *sizes, "--dir", tmp_path)["phases"]
    title = "60 facts, consolidate"
    assert set(phases) == {title, f"{title} beside appends"}
    for title, figures in phases.items():
        values = {figure["name"].partition(": ")[2]: figure["value"] for figure in figures}
        assert all(value >= 0 for value in values.values())
        assert values["merged"] > 0
        assert ("appends beside: p99" in values) == ("beside" in title)


@pytest.mark.long
def test_both_phases_over_a_model_server_give_their_figures():
    """Without faults every request is answered; with them some fail, and all is committed."""
    sizes = ("--sessions", 4, "--steps", 5, "--share", 0.15)
    well, failing = result_of("bench_models.py", *sizes)["phases"]
    assert set(well["faults"]) == {"none"}
    assert len(failing["faults"]) > 1
    for phase in (well, failing):
        figures = values_of(phase["figures"])
        assert figures["durable appends"] > 0
        assert figures["chat calls per session"] >= 4
        assert "everything: loop lag p99" in figures
        assert {"annotate", "semantic", "procedural", "returns", "embed"} <= set(phase["requests"])


# ── Adapters ─────────────────────────────────────────────────────────────────────────


@pytest.mark.long
def test_items_are_measured_beside_those_of_langgraph():
    """Puts and searches of both, and whether the targets are met."""
    figures = result_of("bench_adapters.py", "items", "--tiny")["phases"]["items"]
    assert all(value >= 0 for value in values_of(figures).values())
    targets = [figure["name"] for figure in figures if figure["met"] is not None]
    assert "items, 64 in flight: times as many" in targets
    assert "search of 200 items: share of its time" in targets


@pytest.mark.long
def test_checkpoints_are_measured_beside_those_of_langgraph():
    """Both savers have the same figures; only ours have targets. Another section is refused."""
    phases = result_of("bench_adapters.py", "checkpoints", "--tiny")["phases"]
    names = {"MnemoSaver": set(), "AsyncSqliteSaver": set()}
    for figure in phases["checkpoints"]:
        saver, _, name = figure["name"].partition(",")
        names[saver].add(name)
        assert figure["value"] >= 0
        assert saver == "MnemoSaver" or figure["met"] is None
    assert names["MnemoSaver"] == names["AsyncSqliteSaver"]
    assert "no section 'x'" in run("bench_adapters.py", "x").stderr


@pytest.mark.long
def test_sessions_are_measured_beside_those_of_the_agents_sdk():
    """Adds of both, how many times as many ours are, and the lag of the loop meanwhile."""
    figures = result_of("bench_adapters.py", "sessions", "--tiny")["phases"]["sessions"]
    named = {figure["name"].partition(": ")[2]: figure for figure in figures}
    ours, theirs = named["adds to MnemoSession"]["value"], named["adds to SQLiteSession"]["value"]
    assert min(ours, theirs) > 0
    assert named["times as many"]["value"] == pytest.approx(ours / theirs)
    assert named["times as many"]["least"] == 3.0
    assert "loop lag p99" in named

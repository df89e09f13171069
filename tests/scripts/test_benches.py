"""The benches in ``scripts/`` run, and their output can be read by a machine."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers import child_environment, ran

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a bench to its end."""
    return ran(SCRIPTS / script, *arguments, env=child_environment())


def measured(*rows: object) -> dict[str, Any]:
    """What the bench printed as JSON, at sizes at which its figures say nothing."""
    done = run("bench.py", *rows, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert {"cpu", "cores", "python", "sqlite"} <= result["machine"].keys()
    return result


def values_of(figures: list[dict[str, Any]]) -> dict[str, float]:
    """The figures of a phase by their names."""
    return {figure["name"]: figure["value"] for figure in figures}


# ── Appends, episodes, recall ────────────────────────────────────────────────────────


@pytest.mark.long
def test_every_row_that_needs_nothing_else_gives_its_figures():
    """Without a name; every row has figures that say whether their targets are met."""
    result = measured()
    assert {"packages", "synchronous"} <= result["machine"].keys()
    once = {"idle-loop", "import", "sessions", "episodes", "threads", "filters"}
    reads = {"sustained", "recall", "search", "conversation", "embed-minilm"}
    appends = {f"append-{mode} in_flight={n}" for mode in ("normal", "full") for n in (1, 64)}
    assert set(result["phases"]) == once | reads | appends
    for figures in result["phases"].values():
        assert all(figure["value"] >= 0 for figure in figures)
    for n in (1, 64):
        figures = result["phases"][f"append-full in_flight={n}"]
        lags = [f["name"] for f in figures if "lag max" in f["name"]]
        assert lags == [f"append, full, {n} in flight: loop lag max"]
    check_messages(result["phases"]["conversation"])
    check_questions(result["phases"]["search"])


@pytest.mark.long
def test_threads_of_two_processes_are_settled_with_a_killed_one_between():
    """Every message is one step and one fact, whichever process lived to extract it."""
    (figures,) = measured("threads")["phases"].values()
    wrong, *others = figures
    assert (wrong["name"], wrong["value"]) == (
        "8 threads: messages or facts not there exactly once",
        0,
    )
    assert {figure["unit"] for figure in others} == {"s", "ms", "MB", "KB", ""}


@pytest.mark.long
def test_one_row_can_be_chosen():
    """A word runs the rows that begin so and no other, and prints a table."""
    done = run("bench.py", "--quick", "idle")
    assert done.returncode == 0, done.stderr
    assert "idle loop: loop lag p99" in done.stdout
    assert "append" not in done.stdout


@pytest.mark.long
def test_an_unknown_row_or_setting_is_refused():
    """What does not exist is an error with the names of those that do."""
    done = run("bench.py", "--quick", "nothing")
    assert done.returncode == 2
    assert "append-normal" in done.stderr
    done = run("bench.py", "--quick", "recall", "edges=3")
    assert done.returncode == 2
    assert "nodes" in done.stderr


@pytest.mark.long
def test_the_rows_are_listed_with_their_settings():
    """--list measures nothing; a million nodes can be asked for."""
    done = run("bench.py", "--list")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert "nodes=1000,10000,100000" in rows["recall"]
    assert {"models", "maintenance", "postgres-following", "inspector"} <= rows.keys()


@pytest.mark.long
@pytest.mark.postgres
def test_postgres_is_measured_beside_sqlite():
    """Appends give ratios; a follower of other processes misses nothing."""
    phases = measured("postgres-appends", "postgres-following")["phases"]
    assert [f["unit"] for f in phases["postgres-appends"]].count("x") == 3
    appended, *missed = [figure["value"] for figure in phases["postgres-following"]]
    assert appended > 0
    assert missed == [0, 0]


@pytest.mark.long
def test_workers_killed_and_stopped_at_random_lose_and_double_nothing():
    """Each episode is committed once, no late write is taken, nothing stays claimed."""
    (figures,) = measured("workers-chaos")["phases"].values()
    wrong = {figure["name"]: figure["value"] for figure in figures if figure["value"]}
    assert len(figures) == 5
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
    (figures,) = measured("turns", f"file={path}")["phases"].values()
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
    done = run("bench_questions.py", path, "--abstention")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)[path.name]
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


def check_messages(figures: list[dict[str, Any]]) -> None:
    """Each length of a thread has its figures, and then come the ratios."""
    values = values_of(figures)
    for length in (100, 200):
        for name in ("append alone", "append, everything on", "viewport.render", "search"):
            title = f"{length} messages: {name}"
            assert 0 < values[f"{title}: p50"] <= values[f"{title}: p95"]
        assert values[f"{length} messages: 64 threads at once: durable appends"] > 0
    ratios = [figure["name"] for figure in figures if figure["unit"] == "×"]
    assert "200 to 100 messages: append, everything on: p50" in ratios
    assert all(name.startswith("200 to 100 messages: ") for name in ratios)


def check_questions(figures: list[dict[str, Any]]) -> None:
    """Searching, viewing and passive recall have their figures."""
    values = values_of(figures)
    asked = {name.removesuffix(": p50") for name in values if name.endswith(": p50")}
    assert sum(name.startswith("search, ") for name in asked) >= 8
    assert {"view", "passive recall, with its write"} <= asked
    for name in asked:
        assert 0 < values[f"{name}: p50"] <= values[f"{name}: p95"]


@pytest.mark.long
def test_an_operation_is_measured_alone_and_beside_appends():
    """What ought to be merged is merged."""
    (figures,) = measured("maintenance", "only=consolidate")["phases"].values()
    for name in ("60 facts, consolidate", "60 facts, consolidate beside appends"):
        mine = [f for f in figures if f["name"].startswith(f"{name}: ")]
        values = {figure["name"].partition(": ")[2]: figure["value"] for figure in mine}
        assert all(value >= 0 for value in values.values())
        assert values["merged"] > 0
        assert ("appends beside: p99" in values) == ("beside" in name)


@pytest.mark.long
def test_both_shares_of_failing_requests_over_a_model_server_give_their_figures():
    """Without faults every request is answered; with them some fail, and all is committed."""
    well, failing = map(values_of, measured("models")["phases"].values())
    fault, request = "requests with fault: ", "requests: "
    assert [name for name in well if name.startswith(fault)] == [f"{fault}none"]
    assert sum(name.startswith(fault) for name in failing) > 1
    for figures in (well, failing):
        assert figures["durable appends"] > 0
        assert figures["chat calls per session"] >= 4
        assert "everything: loop lag p99" in figures
        for purpose in ("annotate", "semantic", "procedural", "returns", "embed"):
            assert figures[request + purpose] > 0


# ── Adapters ─────────────────────────────────────────────────────────────────────────


@pytest.mark.long
def test_items_are_measured_beside_those_of_langgraph():
    """Puts and searches of both, and whether the targets are met."""
    (figures,) = measured("adapters-items")["phases"].values()
    assert all(value >= 0 for value in values_of(figures).values())
    targets = [figure["name"] for figure in figures if figure["met"] is not None]
    assert "items, 64 in flight: times as many" in targets
    assert "search of 200 items: share of its time" in targets


@pytest.mark.long
def test_checkpoints_are_measured_beside_those_of_langgraph():
    """Both savers have the same figures, in both modes; only ours have targets."""
    phases = measured("adapters-checkpoints")["phases"]
    assert set(phases) == {f"adapters-checkpoints mode={mode}" for mode in ("normal", "full")}
    for figures in phases.values():
        names = {"MnemoSaver": set(), "AsyncSqliteSaver": set()}
        for figure in figures:
            saver, _, name = figure["name"].partition(",")
            names[saver].add(name)
            assert figure["value"] >= 0
            assert saver == "MnemoSaver" or figure["met"] is None
        assert names["MnemoSaver"] == names["AsyncSqliteSaver"]


@pytest.mark.long
def test_sessions_are_measured_beside_those_of_the_agents_sdk():
    """Adds of both, how many times as many ours are, and the lag of the loop meanwhile."""
    (figures,) = measured("adapters-sessions")["phases"].values()
    named = {figure["name"].partition(": ")[2]: figure for figure in figures}
    ours, theirs = named["adds to MnemoSession"]["value"], named["adds to SQLiteSession"]["value"]
    assert min(ours, theirs) > 0
    assert named["times as many"]["value"] == pytest.approx(ours / theirs)
    assert named["times as many"]["least"] == 3.0
    assert "loop lag p99" in named

"""The bench runs, and its output can be read by a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench.py"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the bench with sizes at which its figures say nothing."""
    command = [sys.executable, str(BENCH), "--size", "tiny", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_phase_of_the_bench_gives_its_figures():
    """The JSON names the machine, and every phase has figures that say whether they are met."""
    done = bench("--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {"cpu", "cores", "python", "sqlite", "packages"} <= result["machine"].keys()
    once = {"idle-loop", "import", "first-use", "sessions", "episodes"}
    appends = {"appends-normal", "appends-full", "sustained"}
    assert set(result["phases"]) == once | appends | {"recall-200"}
    for figures in result["phases"].values():
        assert all(figure["value"] >= 0 for figure in figures)
    lags = [f["name"] for f in result["phases"]["appends-full"] if "lag max" in f["name"]]
    assert lags == [f"append, full, {n} in flight: loop lag max" for n in (1, 64)]


@pytest.mark.slow
def test_one_phase_can_be_chosen():
    """--only runs the phases that begin so and no other, and prints a table."""
    done = bench("--only", "idle")
    assert done.returncode == 0, done.stderr
    assert "idle loop: loop lag p99" in done.stdout
    assert "append" not in done.stdout


@pytest.mark.slow
def test_an_unknown_phase_is_refused():
    """A phase that does not exist is an error with the names of those that do."""
    done = bench("--only", "nothing")
    assert done.returncode == 2
    assert "appends-normal" in done.stderr


PHASES = ("event loop", "writer", "annotated", "embedded", "indexed", "other threads")


@pytest.mark.slow
def test_processor_time_of_a_sustained_load_is_told_by_phase(tmp_path: Path):
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
    done = bench(str(path), "--only", "turns", "--json")
    assert done.returncode == 0, done.stderr
    (figures,) = json.loads(done.stdout)["phases"].values()
    used = {f["name"].rpartition(", ")[2]: f["value"] for f in figures if f["unit"] == "µs"}
    assert all(used[phase] > 0 for phase in PHASES)
    assert sum(used[phase] for phase in PHASES) <= used["all"] * 1.05
    rates = [figure["name"] for figure in figures if figure["unit"] == "/s"]
    assert [name.rpartition(": ")[2] for name in rates] == [
        "durable",
        "annotated, embedded, indexed",
    ]

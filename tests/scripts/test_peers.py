"""``scripts/bench_peers`` makes one row of each peer, of one that fails as well."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import ran

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCRIPTS = Path(__file__).parents[2] / "scripts"


bench = partial(ran, SCRIPTS / "bench_peers.py", "--quick")
"""At sizes at which its figures say nothing, in this environment."""


def dialogues(path: Path) -> Path:
    """A file with a question that one of two turns answers."""
    said = [("t1", "Bo", "I sold the red boat."), ("t2", "Ana", "We went to Lisbon.")]
    turns = [
        {"id": id, "session": "1", "at": "2024-03-01T12:00:00", "speaker": who, "text": text}
        for id, who, text in said
    ]
    asked = {"question": "Who sold the red boat?", "category": "1", "evidence": ["t1"]}
    path.write_text(json.dumps([{"id": "d", "turns": turns, "questions": [asked]}]))
    return path


@pytest.mark.long
def test_mnemo_is_measured_by_its_own_driver(tmp_path):
    """Every figure is there, nothing is lost, and the evidence is found."""
    file = dialogues(tmp_path / "dialogues.json")
    done = bench(file, "--only", "mnemo", "--python", sys.executable, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert {"cpu", "date", "sqlite"} <= result["machine"].keys()
    row = result["peers"]["mnemo"]
    assert row["lost of 64"] == 0
    assert row["evidence recall@10"] == 1.0
    assert row["durability"] == "synchronous = FULL"
    assert "first error" not in row
    rates = ("adds/s, 1", "adds/s, 64", "findable/s", "search p95 ms, 200", "import s")
    assert all(row[name] > 0 for name in rates)


def test_a_peer_that_cannot_be_run_is_a_row_with_the_reason(tmp_path):
    """The others follow all the same, and the exit code is 0."""
    missing = tmp_path / "python"
    done = bench("--only", "mem0", "graphiti", "--python", missing)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "failed: " in line]
    assert [row.split()[0] for row in rows] == ["mem0", "graphiti"]
    assert all(str(missing) in row for row in rows)


def test_the_table_is_made_of_what_the_drivers_print(tmp_path):
    """A driver's last line is its row; a figure that it does not have is a dash."""
    driver = tmp_path / "python"
    driver.write_text(
        """#!/bin/sh
echo "a library says something"
case "$2" in
*agents*) echo '{"version": "b 2", "durability": "none", "lost of 64": 3}' ;;
*) echo '{"version": "a 1", "durability": "full", "lost of 64": 0, "import s": 0.25}' ;;
esac
"""
    )
    driver.chmod(0o755)
    done = bench("--only", "mnemo", "openai-agents", "--python", driver)
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")] for line in (head, *lines[:2])]
    assert cells == [
        ["peer", "lost of 64", "import s", "install MB"],
        ["mnemo", "0", "0.25", "-"],
        ["openai-agents", "3", "-", "-"],
    ]
    assert lines[-2:] == ["mnemo: a 1; full", "openai-agents: b 2; none"]


def test_an_unknown_peer_and_a_broken_file_are_refused(tmp_path):
    """Both are told in one message before anything is measured."""
    assert "langgraph-sqlite" in bench("--only", "nothing").stderr
    broken = tmp_path / "broken.json"
    broken.write_text("[{}]")
    done = bench(broken, "--only", "mnemo")
    assert done.returncode == 2
    assert "not a dialogue file" in done.stderr

"""The bench of search runs, and its output can be read by a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench_search.py"


@pytest.mark.slow
def test_every_sort_of_question_is_measured(tmp_path: Path) -> None:
    """The JSON names the machine; searching, viewing and passive recall have their figures."""
    options = ["--messages", "300", "--calls", "3", "--json", "--dir", str(tmp_path)]
    command = [sys.executable, str(BENCH), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {"cpu", "cores", "python", "sqlite"} <= result["machine"].keys()
    phases = result["phases"]
    assert sum(name.startswith("search, ") for name in phases) >= 8
    assert {"view", "passive recall, with its write"} <= phases.keys()
    for name, figures in phases.items():
        values = {figure["name"]: figure["value"] for figure in figures}
        if name != "filling":
            assert 0 < values[f"{name}: p50"] <= values[f"{name}: p95"]

"""The bench of maintenance runs, and its output can be read by a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench_maintenance.py"


@pytest.mark.slow
def test_an_operation_is_measured_alone_and_beside_appends(tmp_path: Path) -> None:
    """The JSON names the machine; what ought to be merged is."""
    options = ["--facts", "60", "--only", "consolidate", "--before", "0.1", "--json"]
    command = [sys.executable, str(BENCH), *options, "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {"cpu", "cores", "python", "sqlite"} <= result["machine"].keys()
    title = "60 facts, consolidate"
    assert set(result["phases"]) == {title, f"{title} beside appends"}
    for title, figures in result["phases"].items():
        values = {figure["name"].partition(": ")[2]: figure["value"] for figure in figures}
        assert all(value >= 0 for value in values.values())
        assert values["merged"] > 0
        assert ("appends beside: p99" in values) == ("beside" in title)

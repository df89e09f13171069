"""The bench of conversations runs, and its output can be read by a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench_conversations.py"


@pytest.mark.slow
def test_every_cost_of_a_message_is_measured(tmp_path: Path) -> None:
    """The JSON names machine and durability; each size has its figures, and then the ratios."""
    options = ["--sizes", "100,200", "--calls", "4", "--each", "2", "--json"]
    command = [sys.executable, str(BENCH), *options, "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {"cpu", "cores", "sqlite", "synchronous"} <= result["machine"].keys()
    *sizes, ratio = result["phases"].values()
    assert len(sizes) == 2
    for figures in sizes:
        values = {figure["name"]: figure["value"] for figure in figures}
        for name in ("append alone", "append, everything on", "viewport.render", "search"):
            assert 0 < values[f"{name}: p50"] <= values[f"{name}: p95"]
        assert values["64 threads at once: durable appends"] > 0
    assert {figure["unit"] for figure in ratio} == {"×"}
    assert "append, everything on: p50" in {figure["name"] for figure in ratio}

"""The bench over a model server runs, and its output can be read by a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench_models.py"


@pytest.mark.slow
def test_both_phases_give_their_figures():
    """Without faults every request is answered; with them some fail, and all is committed."""
    sizes = ["--sessions", "4", "--steps", "5", "--share", "0.15"]
    command = [sys.executable, str(BENCH), "--json", *sizes]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    well, failing = result["phases"]
    assert set(well["faults"]) == {"none"}
    assert len(failing["faults"]) > 1
    for phase in (well, failing):
        figures = {figure["name"]: figure["value"] for figure in phase["figures"]}
        assert figures["durable appends"] > 0
        assert figures["chat calls per session"] >= 4
        assert "everything: loop lag p99" in figures
        assert {"annotate", "semantic", "procedural", "returns", "embed"} <= set(phase["requests"])

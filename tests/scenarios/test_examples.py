"""The example programs, run as a reader would run them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"

pytestmark = pytest.mark.slow


def run(name: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an example to its end."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_coding_agent_goes_on_where_it_was_killed(tmp_path):
    """Killed after two steps, the next run has them, adds the rest, and commits once."""
    (tmp_path / "code").mkdir()
    for name in ("a", "b", "c", "d"):
        text = "def broken(:\n" if name == "c" else "x = 1\n"
        (tmp_path / "code" / f"{name}.py").write_text(text)
    killed = run("coding_agent.py", "code", "--die-after", "2", folder=tmp_path)
    assert killed.returncode == -signal.SIGKILL
    again = run("coding_agent.py", "code", folder=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert "after 2 steps" in again.stdout
    assert "2: `py_compile c.py` returned invalid syntax" in again.stdout
    assert again.stdout.count("left it as it is") == 3
    later = run("coding_agent.py", "code", folder=tmp_path)
    assert "resuming" not in later.stdout
    assert "seen before: " in later.stdout

"""Two processes keep facts in one note at once: no fact of either is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import child_environment
from world import store_at

from mnemo.testing import ManualClock

SCRIPT = Path(__file__).with_name("notes_updater.py")
FACTS = 12


def start(path: Path, name: str) -> subprocess.Popen[str]:
    """A process that waits for a line before it begins."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(path), name, str(FACTS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )


@pytest.mark.slow
@pytest.mark.long
async def test_two_processes_lose_no_fact(tmp_path):
    """Each change finds the other's, by the version check in its transaction."""
    path = tmp_path / "notes.db"
    store = store_at(path, ManualClock())
    await store.open()
    running = [start(path, name) for name in ("left", "right")]
    try:
        for process in running:
            assert process.stdout.readline() == "ready\n"
        for process in running:
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=300)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    reports = [json.loads(line) for text in said for line in text.splitlines()]
    assert reports == [{"wrote": True, "error": "None"}] * (2 * FACTS)
    (row,) = await store.notes("r").reading(lambda tx: tx.rows())
    wanted = {f"- {name} {number}" for name in ("left", "right") for number in range(FACTS)}
    assert set(row.body.splitlines()) == wanted
    assert row.version == 2 * FACTS
    kept = await store.notes("r").reading(lambda tx: tx.versions(row.topic))
    lines = [len(version.body.splitlines()) for version in kept]
    assert lines == [*range(1, 2 * FACTS + 1)]
    await store.aclose()

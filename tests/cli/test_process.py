"""The command as a process: the demo, a kill in the middle, a missing extra."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

MNEMO = (sys.executable, "-m", "mnemo")


def mnemo(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*MNEMO, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
@pytest.mark.long
def test_the_demo_shows_the_main_job_and_a_kill(tmp_path):
    """Two committed sessions, one of them resumed after its process was killed; recall."""
    ran = mnemo("demo", "--json", folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    shown = json.loads(ran.stdout)
    whole, killed = shown["sessions"]
    assert (whole["state"], killed["state"]) == ("idle", "idle")
    assert killed["killed_after_steps"] == killed["found_steps"] == 3
    assert [found["candidates"][0]["sources"][0]["key"] for found in shown["recalls"]][:2] == [
        "step-1",
        "step-2",
    ]
    assert not Path(shown["store"]).exists()


@pytest.mark.long
@pytest.mark.slow
def test_the_demo_for_a_person_keeps_a_named_store(tmp_path):
    """What it tells is there afterwards; run again, it works on the same store."""
    for _ in range(2):
        ran = mnemo("demo", "--store", "kept.db", folder=tmp_path)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "Recall: Where does the user's sister live?" in ran.stdout
        assert "killed: process" in ran.stdout
        numbers = [line[:2] for line in ran.stdout.splitlines() if line[:1].isdigit()]
        assert numbers == ["1.", "2.", "3.", "4.", "5."]
        assert re.search(r"committed: [1-9]\d* facts? ", ran.stdout)
    listed = mnemo("sessions", "--repo", "demo", "--store", "kept.db", "--json", folder=tmp_path)
    assert [s["state"] for s in json.loads(listed.stdout)["sessions"]] == ["idle"] * 4


def long_log(path: Path) -> int:
    """A log of 40 sessions. Returns how many steps it has."""
    lines = [
        {"role": "user", "content": f"I put {n} jars on shelf {s}.", "id": n, "session": s}
        for s in range(40)
        for n in range(12)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return len(lines)


def stopped_midway(folder: Path, stop: signal.Signals) -> tuple[int, str]:
    """Start an import, stop it when its store holds more than tables; its exit code and stderr."""
    journal = folder / "mnemo.db-wal"
    command = [*MNEMO, "import", "log.jsonl"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (journal.exists() and journal.stat().st_size > 1_200_000):
            assert process.poll() is None, "it ended before it could be stopped"
            assert time.monotonic() < deadline
            os.sched_yield()
        process.send_signal(stop)
        _, said = process.communicate(timeout=120)
    return process.returncode, said


def counted(folder: Path) -> dict[str, Any]:
    """What ``stats`` tells."""
    found: dict[str, Any] = json.loads(mnemo("stats", "--json", folder=folder).stdout)
    return found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_an_import_stopped_midway_is_completed_by_the_next(tmp_path, stop):
    """Killed or interrupted: run again, every step is there exactly once and committed."""
    count = long_log(tmp_path / "log.jsonl")
    code, said = stopped_midway(tmp_path, stop)
    if stop is signal.SIGINT:
        assert code == 130
        assert "run the same command again" in said
    else:
        assert code == -stop
    before = counted(tmp_path)
    assert 0 < before["steps"] < count
    again = mnemo("import", "log.jsonl", "--json", folder=tmp_path)
    told = json.loads(again.stdout)
    assert told["new_steps"] == count - before["steps"]
    assert told["known_steps"] == before["steps"]
    after = counted(tmp_path)
    assert (after["steps"], after["nodes"]["episodic"]) == (count, count)
    assert after["unfinished_sessions"] == 0
    assert mnemo("doctor", folder=tmp_path).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "command", "needs"),
    [
        ("typer", "demo", "the command line needs pip install 'mnemo-sessions[cli]'"),
        ("rich", "demo", "the command line needs pip install 'mnemo-sessions[cli]'"),
        ("mcp", "mcp", "the MCP server needs pip install 'mnemo-sessions[mcp]'"),
        ("fastapi", "serve", "the HTTP service needs pip install 'mnemo-sessions[serve]'"),
        *(
            (
                missing,
                f"{command} postgresql://127.0.0.1/m",
                "PostgreSQL needs pip install 'mnemo-sessions[postgres]'",
            )
            for missing in ("psycopg", "psycopg_pool")
            for command in ("serve --port 0 --store", "inspect", "worker")
        ),
    ],
)
def test_a_missing_extra_is_named(tmp_path, missing, command, needs):
    """Without one of its packages: one line that names what to install, exit code 2."""
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from mnemo.cli import main\n"
        f"sys.argv = ['mnemo', *{command.split()}]\n"
        "sys.exit(main())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"mnemo: {needs}\n"


@pytest.mark.parametrize("command", ["main", "mcp"])
def test_an_interrupt_while_modules_are_imported_ends_it_silently(command):
    """As one that comes later: exit code 130, and no traceback, also where no error gets out."""
    script = (
        "import signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'anyio': Interrupts()\n"
        "    def __del__(self): signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        f"from mnemo.cli import {command} as command\n"
        "sys.argv = ['mnemo']\n"
        "sys.exit(command())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.long
@pytest.mark.slow
def test_a_worker_ends_on_sigterm_and_its_jobs_are_done(tmp_path):
    """Its health file stands while it runs; what was remembered elsewhere is extracted."""
    said = mnemo("remember", "I play the cello.", "--no-wait", folder=tmp_path)
    assert said.returncode == 0, said.stderr
    health = tmp_path / "health.json"
    command = [*MNEMO, "worker", "mnemo.db", "--repo", "def*", "--health", health.name, "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 120
        done = 0
        while not done:
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline
            if health.exists():
                told = json.loads(health.read_text())
                assert told["pid"] == process.pid
                done = told["done"]
            os.sched_yield()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err, json.loads(out)["done"]) == (0, "", 1)
    assert not health.exists()
    listed = mnemo("memories", "--json", folder=tmp_path)
    assert "cello" in listed.stdout

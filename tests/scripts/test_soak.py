"""The soak runs for seconds, and finds what is wrong."""

import importlib
import json
from pathlib import Path

import pytest
from helpers import child_environment, ran

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_processes_that_are_killed_and_paused_lose_nothing(engine):
    """A short run: it has acknowledged and forgotten, and nothing is wrong."""
    short = ("--minutes", 0.3, "--live", 2, "--json")
    done = ran(SCRIPTS / "soak.py", engine, *short, env=child_environment())
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert figures[0]["name"].startswith("messages and steps acknowledged")
    assert figures[0]["value"] > 0
    assert [one["value"] for one in figures if one["most"] == 0] == [0] * 7


async def test_what_is_lost_or_left_is_found(tmp_path, monkeypatch, capsys):
    """A ledger that says more than the store has, and one forgotten thread that is there."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    soak = importlib.import_module("soak")
    store, ledger = str(tmp_path / "m.db"), soak.Ledger()
    async with soak.service(store, 2) as memory:
        repo = await memory.open_repo(soak.REPO)
        for thread in ("kept", "gone"):
            stored = await repo.remember(soak.said(thread, 0), thread_id=thread, key=thread)
            ledger.note("begun", "thread", thread)
            ledger.note("said", thread, thread, stored.messages[0].stored_id)
        await repo.settle()
    assert set((await soak.found_wrong(store, ledger)).values()) == {0}
    ledger.note("said", "kept", "lost", "never-stored")
    for what in ("forgetting", "forgot"):
        ledger.note(what, "gone")
    ledger.note("failed", "worker 0", "it ended by itself")
    found = await soak.found_wrong(store, ledger)
    assert {what: n for what, n in found.items() if n} == {
        "messages acknowledged and not there": 1,
        "messages and steps acknowledged and not extracted": 1,
        "messages and steps forgotten and there": 2,
        "failures of processes": 1,
    }
    assert capsys.readouterr().err == "worker 0: it ended by itself\n"

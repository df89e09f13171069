"""The soak runs for seconds, and finds what is wrong."""

import importlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from helpers import child_environment, ran

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"
WRONGS = 10
"""What the soak looks for in the end; five more where there were texts before."""


def soaked(engine: str, *options: object, wrongs: int = WRONGS) -> dict[str, float]:
    """The figures of a soak that found nothing wrong, by name."""
    done = ran(SCRIPTS / "soak.py", engine, *options, "--json", env=child_environment())
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["figures"]
    assert [one["value"] for one in figures if one["most"] == 0] == [0] * wrongs
    return {one["name"]: one["value"] for one in figures}


@pytest.mark.long
def test_processes_that_are_killed_and_paused_lose_nothing():
    """A short run: it has acknowledged and forgotten, and nothing is wrong."""
    values = soaked("sqlite", "--minutes", 0.3, "--live", 2)
    assert values["messages and steps acknowledged, live in the end"] > 0


@pytest.mark.long
def test_a_large_repository_loses_nothing_and_keeps_nothing_that_is_forgotten():
    """Of 30,000 texts some are forgotten, while processes are killed: their words are nowhere."""
    sized = {"--documents": 30_000, "--live": 2, "--minutes": 1}
    options = (word for pair in sized.items() for word in pair)
    values = soaked("sqlite", *options, wrongs=WRONGS + 5)
    assert values["texts from before forgotten"] > 0
    assert values["vectors of texts from before in the index"] > 0


async def test_words_in_rows_and_files_of_an_index_are_found(tmp_path, monkeypatch):
    """Wherever they stand, each once."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    soak = importlib.import_module("soak")
    store = tmp_path / "m.db"
    async with soak.service(str(store), 0):
        pass
    (tmp_path / "m.db.index").mkdir()
    (tmp_path / "m.db.index" / "a").write_bytes(b"...qwertyuiopqwertyuiop")
    words = [b"qwertyuiop", b"asdfghjkla", b"short"]
    assert soak.found_in_index(str(store), words) == 1
    with closing(sqlite3.connect(store)) as file, file:
        put = "INSERT INTO segments (repo, chain, no, part, documents, until, named, bytes) VALUES"
        file.execute(f"{put} (1, 'steps', 1, 0, 1, '', '', ?)", (b"an asdfgh",))
        file.execute(f"{put} (1, 'steps', 1, 1, 0, '', '', ?)", (b"jkla",))
    assert soak.found_in_index(str(store), words) == 2


@pytest.mark.postgres
@pytest.mark.long
def test_sessions_of_four_processes_on_postgres_survive_their_workers():
    """Every acknowledged step is there once, every episode committed once, nothing claimed."""
    sized = {"--applications": 4, "--steps": 20, "--live": 5, "--faults": 0.05, "--minutes": 0.4}
    values = soaked("postgres", *(word for pair in sized.items() for word in pair))
    assert values["messages and steps acknowledged, live in the end"] >= 20
    assert values["commits acknowledged"] >= 2


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
        ledger.note("begun", "session", "whole")
        session = await repo.start_session("Keep house", session_id="whole")
        await session.append(soak.said("whole", 0), "", key="whole 0")
        await session.close_and_commit()
        await session.aclose()
        for told in (("said", "whole", "whole 0", None), ("committed", "whole")):
            ledger.note(*told)
        await repo.settle()
    assert set((await soak.found_wrong(store, ledger)).values()) == {0}
    ledger.note("said", "whole", "whole 1", None)
    ledger.note("said", "kept", "lost", "never-stored")
    for what in ("forgetting", "forgot"):
        ledger.note(what, "gone")
    ledger.note("failed", "worker 0", "it ended by itself")
    found = await soak.found_wrong(store, ledger)
    assert {what: n for what, n in found.items() if n} == {
        "messages acknowledged and not there": 1,
        "messages and steps acknowledged and not extracted": 2,
        "sessions acknowledged and not committed whole": 1,
        "messages and steps forgotten and there": 2,
        "failures of processes": 1,
    }
    assert capsys.readouterr().err == "worker 0: it ended by itself\n"

"""``scripts/torture`` tells what was lost from what was refused and what a memory cannot do."""

import json
import re
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers import child_environment, ran

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"
PLANTED = """
import fcntl
from contextlib import asynccontextmanager
from peers import Cannot, Kind, Peer

@asynccontextmanager
async def lazy(folder, durable):
    "Writes what it was given when it is closed, and over what others wrote."
    file = folder / "texts"
    given = file.read_text().splitlines() if file.exists() else []

    async def add(id, text):
        if len(given) == 3 and len(text) > 500:
            raise OSError("it takes no fourth text that is so long")
        given.append(text)

    async def texts():
        return list(given)

    async def delete(id):
        (folder / "deleted").write_text(given.pop())

    yield Peer("when closed", add, texts, delete=delete)
    file.write_text("\\n".join(given))

@asynccontextmanager
async def locked(folder, durable):
    "Writes at once; lets nobody else open it."
    with open(folder / "texts", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

        async def add(id, text):
            file.write(text + "\\n")
            file.flush()

        async def texts():
            return (folder / "texts").read_text().splitlines()

        async def search(query):
            return []

        yield Peer("at once", add, texts, search)

PEERS = {"lazy": Kind(lazy, "json", []), "locked": Kind(locked, "json", [])}
def embed(texts): pass
"""


@pytest.fixture
def torture(tmp_path, monkeypatch) -> ModuleType:
    """``scripts/torture.py``, whose workers know two memories that were made to be caught."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    worker = (SCRIPTS / "torture_peer.py").read_text("utf-8").replace("from peers", "from planted")
    (tmp_path / "torture_peer.py").write_text(worker)
    (tmp_path / "planted.py").write_text(PLANTED)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{SCRIPTS}")
    kit = import_module("torture_kit")
    monkeypatch.setattr(kit, "WORKER", tmp_path / "torture_peer.py")
    return import_module("torture")


def told(torture: ModuleType, peer: str, *parts: str) -> list[Any]:
    """What parts of the script, in its quick size, come to."""
    with closing(torture.Nursery(peer, Path(sys.executable))) as nursery:
        subject = torture.Subject(nursery, "default")
        return [torture.outcome(getattr(torture, part), subject, torture.QUICK) for part in parts]


def test_an_interval_is_wilsons(torture):
    """None lost of 200 leaves room for 2 %; nothing tried says nothing."""
    wilson = import_module("torture_kit").wilson
    assert wilson(200, 200) == pytest.approx((0.9812, 1.0), abs=1e-4)
    assert wilson(0, 200) == pytest.approx((0.0, 0.0188), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def test_a_text_that_was_acknowledged_twice_is_missing_once(torture):
    """Each counts as often as it was acknowledged."""
    assert torture.missing(["a", "b", "b", "c"], ["b", "a", "other"]) == ["b", "c"]


def test_an_outcome_tells_shares_kinds_and_what_is_not_supported(torture):
    """Good of tries, the interval, and what was wrong, the most frequent first."""
    out = torture.Outcome()
    for wrong in (None, "lost", "lost", "told as an error"):
        out.count(wrong, wrong and ValueError(f"it was {wrong}"))
    assert str(out) == "**1/4** [5–70 %]; lost 2; told as an error 1; it was lost"
    assert str(torture.Outcome(supported=False)) == "not supported"
    assert str(torture.Outcome()) == "not run"


def test_what_is_written_late_is_lost_and_what_is_deleted_stays(torture):
    """A memory that acknowledges before it writes fails wherever it has the calls."""
    parts = ("kills", "two_processes", "reader", "full_disk", "erased", "twice", "at_once")
    killed, two, reader, full, erased, twice, at_once = told(torture, "lazy", *parts)
    assert killed.kinds["lost acknowledged adds"] == killed.tries == 3
    assert (two.kinds["lost"], two.good) == (12, 12)  # who closes last overwrites the other
    assert reader.kinds["a list lacked some"] == reader.tries > 0
    assert full.kinds == {"needs a restart": 1}
    assert "takes no fourth text" in full.note
    assert erased.kinds == {"bytes left": 1}
    assert "in deleted" in str(erased)
    assert twice.kinds == {"twice": 12}
    assert not at_once.supported


def test_who_refuses_a_second_process_loses_nothing(torture):
    """It is told apart; and what is not found is told, too."""
    parts = ("kills", "two_processes", "seen_by_other", "at_once", "erased", "many")
    killed, two, seen, at_once, erased, many = told(torture, "locked", *parts)
    assert (killed.good, killed.tries) == (3, 3)
    assert two.kinds == seen.kinds == {"refused to open": 1}
    assert "BlockingIOError" in two.note
    assert at_once.kinds == {"not found": 12}
    assert not erased.supported
    assert many.kinds == {"not found": many.tries}
    assert many.tries > 20
    assert re.match(r"40 adds at [\d,]+/s at load \d+\.\d, 0 MB", many.note)


def test_rows_are_kept_beside_those_of_other_runs(torture, tmp_path, monkeypatch):
    """A part that was run alone replaces itself, and leaves the others."""
    monkeypatch.setattr(torture, "KEPT", tmp_path / "torture.json")
    torture.keep({"a, default": {"day": "1", "parts": {"kills": "old", "twice": "kept"}}})
    torture.keep(
        {"a, default": {"day": "2", "parts": {"kills": "new"}}, "b, default": {"parts": {}}}
    )
    assert json.loads((tmp_path / "torture.json").read_text("utf-8")) == {
        "a, default": {"day": "2", "parts": {"kills": "new", "twice": "kept"}},
        "b, default": {"parts": {}},
    }


@pytest.mark.long
def test_mnemo_and_two_light_peers_go_through_the_script():
    """In this environment; mnemo loses nothing, and each has a row for every part."""
    peers = ("mnemo", "langgraph-sqlite", "openai-agents")
    command = (SCRIPTS / "torture.py", *peers, "--quick", "--python", sys.executable)
    done = ran(*command, env=child_environment())
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    names = ("mnemo, default", "mnemo, durable", "langgraph-sqlite, default")
    assert {*names, "openai-agents, default"} <= rows.keys()
    assert "openai-agents, durable" not in rows  # it has no such setting
    for name in names[:2]:
        shares = [outcome.split("**")[1].split("/") for outcome in rows[name]["parts"].values()]
        assert all(good == tries for good, tries in shares), rows[name]["parts"]
    agents = rows["openai-agents, default"]["parts"]
    assert "not supported" in agents.values()
    assert agents["the same add twice: stored once"].startswith("**0/12**")

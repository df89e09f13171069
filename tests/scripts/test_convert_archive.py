"""``scripts/convert_archive`` makes a present archive of the last development one."""

import importlib.util
import json
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from helpers import lines_of, ran

from mnemo import InvalidArchive, Mnemo
from mnemo.testing import HashingEmbedder

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "data" / "development_archive.jsonl"


convert = partial(ran, ROOT / "scripts" / "convert_archive.py")


@pytest.mark.slow
async def test_what_a_development_version_exported_is_imported(tmp_path):
    """All kinds of record are there again, and the next export gives the converted lines."""
    new = tmp_path / "new.jsonl"
    assert convert(OLD, new).returncode == 0
    lines = new.read_text().splitlines(keepends=True)
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        with pytest.raises(InvalidArchive, match=r"development version .*convert_archive"):
            await memory.import_repo("r", OLD.read_text().splitlines())
        head = await memory.import_repo("r", lines)
        assert all(head.counts.values())
        assert await lines_of(memory) == lines
        assert (await memory.check()).problems == ()


@pytest.mark.slow
def test_another_file_is_refused(tmp_path):
    """One of a former development version too: it says what to do."""
    first, *rest = OLD.read_text().splitlines(keepends=True)
    former = tmp_path / "former.jsonl"
    former.write_text("".join([json.dumps(json.loads(first) | {"version": 2}), "\n", *rest]))
    (other := tmp_path / "other.jsonl").write_text("{}\n")
    new = tmp_path / "new.jsonl"
    for old, reason in ((former, "export it with the last one"), (other, "no archive of a dev")):
        failed = convert(old, new)
        assert (failed.returncode, reason in failed.stderr) == (1, True)
        assert not new.exists()


# What ``scripts/test_bounds`` installs: lower bounds, and interpreters that are there.


SCRIPT = Path(__file__).parents[2] / "scripts" / "test_bounds.py"


@pytest.fixture(scope="module")
def bounds() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("bounds_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_requirement_of_a_case_is_pinned_to_its_lower_bound(bounds):
    """Without its extras, with its marker."""
    pinned = {line for case in bounds.CASES for line in bounds.lowest(case.lowest)}
    for one in ("anyio==4.10", "pydantic==2.10", "typer==0.19", "pydantic-ai-slim==2.66"):
        assert one in pinned
    assert "psycopg==3.2.1" in pinned
    assert "uvloop==0.19; sys_platform != 'win32'" in pinned


def test_a_base_installation_wants_no_compiler(bounds):
    """WordLlama, which has no wheels for every platform, is in an extra."""
    assert not any("wordllama" in line for line in bounds.lowest([""]))


def test_an_interpreter_that_is_not_there_is_skipped_and_told(bounds, monkeypatch, capsys):
    """It is no failure; an installation that fails is."""
    monkeypatch.setattr(bounds, "CASES", (bounds.Case("9.9", ("cli",)),))
    assert bounds.interpreter("9.9") is None
    assert bounds.main() == 0
    assert "skipped, there is no such interpreter" in capsys.readouterr().out
    monkeypatch.setattr(bounds, "interpreter", lambda version: sys.executable)
    monkeypatch.setattr(bounds, "passes", lambda case, python: False)
    assert bounds.main() == 1
    assert "FAILED" in capsys.readouterr().out


def test_a_command_that_fails_says_why(bounds, capsys, tmp_path):
    """The end of what it printed."""
    assert bounds._succeeds([sys.executable, "-c", "pass"], str(tmp_path))
    assert not bounds._succeeds([sys.executable, "-c", "raise SystemExit('no')"], str(tmp_path))
    assert capsys.readouterr().out == "no\n"

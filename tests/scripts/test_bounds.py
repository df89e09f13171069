"""What ``scripts/test_bounds`` installs: lower bounds, and interpreters that are there."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

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

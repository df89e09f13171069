"""Runs commands and writes files, for tests of the command line and of imports."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mnemo.cli.app import run


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Its stdout, which must be one JSON document and nothing else."""
        return json.loads(self.out)


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path) -> Cli:
    """Runs a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MNEMO_STORE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))

    def ran(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(arguments)
        return Ran(code, *capsys.readouterr())

    return ran


@pytest.fixture
def write(tmp_path) -> Callable[[str, Any], Path]:
    """Writes a file: bytes as they are, text in UTF-8, a list as JSON Lines."""

    def written(name: str, content: Any) -> Path:
        if isinstance(content, list):
            content = "".join(json.dumps(line) + "\n" for line in content)
        if isinstance(content, str):
            content = content.encode()
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return written

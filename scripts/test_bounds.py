"""Install the package with its lowest bounds, and on other interpreters; use it; see main."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parents[1]
IMPORTED = {
    "agents": "mnemo.adapters.openai_agents",
    "langgraph": "mnemo.adapters.langgraph",
    "mcp": "mnemo.mcp",
    "pydantic-ai": "mnemo.adapters.pydantic_ai",
    "postgres": "mnemo.store.postgres.engine",
    "serve": "mnemo.web",
}
"""Extra → the module that cannot be imported without it."""

_TOLD = 20
"""Lines of a failed command that are printed."""
_BOUND = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?>=(?P<version>[\d.]+)[^;]*(?P<marker>;.*)?")


@dataclass(frozen=True, slots=True)
class Case:
    """
    One installation.

    Attributes:
        lowest: The extras whose requirements are installed in the lowest version; ``""``: the
            base. Others have the version that the installer chooses.
    """

    python: str
    extras: Sequence[str]
    lowest: Sequence[str] = ()

    def __str__(self) -> str:
        what = ", ".join(part or "the base" for part in self.lowest)
        versions = f"lowest versions of {what}" if what else "newest versions"
        return f"Python {self.python}, [{','.join(self.extras)}], {versions}"


CASES = (
    Case("3.11", ("cli", "fast", "otel", "postgres"), ("", "cli", "fast", "otel", "postgres")),
    # Frameworks want newer versions of what the base needs, which is free here therefore.
    Case(
        "3.11",
        ("agents", "cli", "langgraph", "mcp", "pydantic-ai", "serve"),
        ("agents", "langgraph", "mcp", "pydantic-ai", "serve"),
    ),
    Case("3.12", ("cli", "mcp", "postgres", "serve")),
    Case("3.13", ("cli", "mcp", "postgres", "serve")),
)


def main() -> int:
    """Run every case whose interpreter is there; the exit code tells whether one failed."""
    failed = 0
    for case in CASES:
        python = interpreter(case.python)
        if python is None:
            print(f"{case}: skipped, there is no such interpreter", flush=True)
            continue
        print(f"{case} ...", flush=True)
        began = perf_counter()
        done = passes(case, python)
        failed += not done
        print(f"{case}: {'passed' if done else 'FAILED'} ({perf_counter() - began:.0f} s)")
    return int(failed > 0)


def passes(case: Case, python: str) -> bool:
    """Whether the package can be installed so, and used."""
    with tempfile.TemporaryDirectory(prefix="mnemo-bounds-") as folder:
        bounds = Path(folder) / "lowest.txt"
        bounds.write_text("\n".join(lowest(case.lowest)), encoding="utf-8")
        installed = str(Path(folder) / "venv" / "bin" / "python")
        modules = [IMPORTED[extra] for extra in case.extras if extra in IMPORTED]
        package = f"{ROOT}[{','.join(case.extras)}]"
        install = ("-m", "pip", "install", "--no-compile", "--constraint", str(bounds))
        return all(
            _succeeds(command, folder)
            for command in (
                [python, "-m", "venv", str(Path(folder) / "venv")],
                [installed, *install, package],
                [installed, str(ROOT / "scripts" / "smoke.py"), *modules],
            )
        )


def _succeeds(command: Sequence[str], folder: str) -> bool:
    """Run *command*; the end of what it says is printed where it fails."""
    ran = subprocess.run(
        command,
        cwd=folder,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if ran.returncode:
        print("\n".join(ran.stdout.splitlines()[-_TOLD:]))
    return ran.returncode == 0


def lowest(parts: Iterable[str]) -> Iterator[str]:
    """
    Pin the requirements of *parts*, extras or ``""`` for the base, to their lower bounds.

    Raises:
        ValueError: A requirement has none.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {"": project["dependencies"], **project["optional-dependencies"]}
    for part in parts:
        for requirement in required[part]:
            bound = _BOUND.fullmatch(requirement)
            if bound is None:
                raise ValueError(f"{requirement!r} has no lower bound")
            yield f"{bound['name']}=={bound['version']}{bound['marker'] or ''}"


def interpreter(version: str) -> str | None:
    """The command of Python *version*; ``None``: it is not there."""
    # pyenv's commands on the path are there for versions that are not chosen, and fail.
    chosen = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    beside = sorted(map(str, chosen.glob(f"{version}.*/bin/python")))
    for command in (f"python{version}", *beside):
        try:
            ran = subprocess.run([command, "-m", "venv", "-h"], capture_output=True, check=False)
        except OSError:
            continue
        if ran.returncode == 0:
            return command
    return None


if __name__ == "__main__":
    sys.exit(main())

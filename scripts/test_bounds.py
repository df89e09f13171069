"""Install the package with its lowest bounds, and on other interpreters; use it; see main."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parents[1]
IMPORTED = {
    "agent-framework": "mnemo.adapters.agent_framework",
    "agents": "mnemo.adapters.openai_agents",
    "anthropic": "mnemo.adapters.anthropic",
    "langgraph": "mnemo.adapters.langgraph",
    "llama-index": "mnemo.adapters.llama_index",
    "mcp": "mnemo.mcp",
    "pydantic-ai": "mnemo.adapters.pydantic_ai",
    "postgres": "mnemo.store.postgres.engine",
    "serve": "mnemo.web",
}
"""Extra → the module that cannot be imported without it."""

_TOLD = 20
"""Lines of a failed command that are printed."""


@dataclass(frozen=True, slots=True)
class Case:
    """
    One installation.

    Attributes:
        lowest: With the lowest versions of what is asked for that fit each other; else the newest.
        beside: Frameworks that are installed, too, and whose agents use the memory.
    """

    python: str
    extras: Sequence[str]
    lowest: bool = False
    beside: Sequence[str] = ()

    def __str__(self) -> str:
        versions = "lowest" if self.lowest else "newest"
        beside = f"{', '.join(self.beside)} beside, " if self.beside else ""
        return f"Python {self.python}, [{','.join(self.extras)}], {beside}{versions} versions"


CASES = (
    Case("3.11", ("cli", "fast", "otel", "postgres"), lowest=True),
    Case("3.11", ("agent-framework", "agents", "anthropic", "cli", "llama-index"), lowest=True),
    Case("3.11", ("langgraph", "mcp", "pydantic-ai", "serve"), lowest=True),
    Case("3.11", ("mcp",), beside=("haystack-ai>=3.4", "smolagents>=1.26", "strands-agents>=1.62")),
    Case("3.11", (), beside=("crewai>=1.15",)),  # it wants another version of MCP's SDK
    Case("3.12", ("mcp",)),  # as `uvx` installs mnemo-mcp
    Case("3.12", ("cli", "mcp", "postgres", "serve")),
    Case("3.13", ("cli", "mcp", "postgres", "serve")),
    Case("3.14", ("cli", "mcp", "postgres", "serve")),
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
        installed = str(Path(folder) / "venv" / "bin" / "python")
        modules = [IMPORTED[extra] for extra in case.extras if extra in IMPORTED]
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--python", installed]
        required = [word for extra in case.extras for word in ("--extra", extra)]
        required += case.beside
        resolution = "lowest-direct" if case.lowest else "highest"
        return all(
            _succeeds(command, folder)
            for command in (
                [python, "-m", "venv", "--without-pip", str(Path(folder) / "venv")],
                [*uv, "--resolution", resolution, *required, "-r", str(ROOT / "pyproject.toml")],
                [*uv, "--no-deps", str(ROOT)],
                [installed, str(ROOT / "scripts" / "smoke.py"), *modules],
                *([installed, str(ROOT / "scripts/use_by_agents.py"), one] for one in case.beside),
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

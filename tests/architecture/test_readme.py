"""
The README: its examples run, its diagram and its table are those of the code.

When the session table changes, write both anew: ``python tests/architecture/test_readme.py``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from scripted_server import ScriptedServer
from typer import Typer

from mnemo.cli.app import app
from mnemo.session.machine import Operation, destination, diagram, refusal
from mnemo.values.journal import SessionState

README = Path(__file__).parents[2] / "README.md"


def python_blocks(text: str) -> list[str]:
    """Every example."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def drawn() -> str:
    """The diagram as the README shows it."""
    return f"```mermaid\n{diagram()}\n```"


def tabulated() -> str:
    """Operations down, states across: where it leads, or why it is refused."""
    states = list(SessionState)
    lines = ["| | " + " | ".join(f"`{state}`" for state in states) + " |"]
    lines.append("|" + "---|" * (len(states) + 1))
    for operation in get_args(Operation):
        cells = " | ".join(_cell(state, operation) for state in states)
        lines.append(f"| `{operation}` | {cells} |")
    return "\n".join(lines)


def _cell(state: SessionState, operation: str) -> str:
    leads_to = destination(state, operation)
    return f"→ {leads_to}" if leads_to else f"`{refusal(state, operation).reason}`"


def with_part(text: str, name: str, part: str) -> str:
    """*text* with what stands between the marks of *name* replaced."""
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    found, count = marked.subn(lambda m: f"{m[1]}{part}\n{m[2]}", text)
    assert count == 1, f"the README has no part {name!r}"
    return found


def renewed(text: str) -> str:
    """*text* with the diagram and the table of the code."""
    return with_part(with_part(text, "diagram", drawn()), "operations", tabulated())


def test_the_diagram_and_the_table_are_those_of_the_code():
    """A table that has changed makes the README stale; see above how to renew it."""
    text = README.read_text(encoding="utf-8")
    assert renewed(text) == text


def test_a_stale_readme_would_be_found():
    """The check itself can fail."""
    text = README.read_text(encoding="utf-8")
    stale = text.replace("collecting --> extracting: close", "collecting --> ready: close")
    assert stale != text
    assert renewed(stale) == text


@pytest.fixture(scope="module")
def model_url():
    """Where the examples find a model server: a scripted one."""
    with ScriptedServer() as server:
        yield f"{server.url}/v1"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(python_blocks(README.read_text(encoding="utf-8")))))
def test_an_example_runs_as_it_stands(number, tmp_path, monkeypatch, capsys, model_url):
    """Each in a folder and an environment of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODEL_URL", model_url)
    monkeypatch.setenv("MNEMO_SESSION__AUTO_COMMIT", "false")
    block = python_blocks(README.read_text(encoding="utf-8"))[number]
    exec(compile(block, f"README.md, example {number + 1}", "exec"), {"__name__": "__main__"})
    capsys.readouterr()


def test_the_first_example_is_short():
    """Fifteen lines, blank ones aside."""
    first, *_ = python_blocks(README.read_text(encoding="utf-8"))
    assert len([line for line in first.splitlines() if line.strip()]) <= 15


def test_every_link_to_a_file_leads_somewhere():
    """Paths that the README names exist."""
    named = re.findall(
        r"`((?:mnemo|tests|scripts)/[\w./]+|\./scripts/\w+)", README.read_text(encoding="utf-8")
    )
    assert named
    assert [path for path in named if not (README.parent / path).exists()] == []


def names_of(group: Typer) -> set[str]:
    """Of the commands of *group* itself."""
    callbacks = [(c.name, c.callback) for c in group.registered_commands if c.callback]
    return {name or callback.__name__ for name, callback in callbacks}


def test_every_command_of_the_readme_exists_and_none_is_missing():
    """The commands that the README names are those of the command line, groups included."""
    blocks = re.findall(
        r"^```text\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    text = "\n".join(blocks)
    groups = {g.typer_instance.info.name: g.typer_instance for g in app.registered_groups}
    assert set(re.findall(r"^mnemo (\w+) ", text, re.MULTILINE)) == names_of(app) | set(groups)
    for name, group in groups.items():
        assert set(re.findall(rf"^mnemo {name} (\w+) ", text, re.MULTILINE)) == names_of(group)


def test_the_agents_loop_is_short_and_uses_all_three():
    """Twenty lines at most, with the window, recall and the search tools."""
    (example,) = [
        block for block in python_blocks(README.read_text("utf-8")) if "async def answer(" in block
    ]
    loop = example[example.index("async def answer(") :].split("\nasync def ", 2)[0]
    assert len([line for line in loop.splitlines() if line.strip()]) <= 20
    assert all(used in loop for used in (".viewport(", ".recall(", ".tools("))


if __name__ == "__main__":
    README.write_text(renewed(README.read_text(encoding="utf-8")), encoding="utf-8")

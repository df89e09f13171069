"""``mnemo-mcp``: the server as a command of its own, which needs the extra ``[mcp]`` alone."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from helpers import repository
from mcp import Client, StdioServerParameters, stdio_client

import mnemo

ROOT = Path(__file__).parents[2]
SERVER = json.loads((ROOT / "scripts/mcp/server.json").read_text())
WITHOUT = "import sys; sys.modules |= {{name: None for name in {names}}}; "
RUN = "from mnemo.cli import mcp; sys.exit(mcp())"


def code(*names: str) -> str:
    """The command's entry point, in an environment without these packages."""
    return WITHOUT.format(names=names) + RUN


def run(*arguments: str, missing: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """What the command says."""
    command = [sys.executable, "-c", code(*missing), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
async def test_a_client_remembers_and_recalls_over_it_without_the_command_lines_packages(tmp_path):
    """The SDK's client, over pipes; store, repository and thread are those of the arguments."""
    given = ["--store", "m.db", "--repo", "ada", "--thread", "desk", "--embedder", "static"]
    command = StdioServerParameters(
        command=sys.executable,
        args=["-c", code("typer", "rich"), *given],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )
    async with Client(stdio_client(command)) as client:
        assert "forget" not in {tool.name for tool in (await client.list_tools()).tools}
        await client.call_tool("remember", {"text": "Ada plays the cello."})
        found = await client.call_tool("recall", {"query": "What does Ada play?"})
        assert "cello" in found.content[1].text
    async with repository(tmp_path / "m.db", "ada", embedder="static") as repo:
        assert [one.thread_id for one in await repo.threads()] == ["desk"]


@pytest.mark.slow
def test_what_is_wrong_is_one_line_and_exit_code_2(tmp_path):
    """A missing extra, a store that is none, an embedder that there is not."""
    told = run(missing=("mcp",))
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "mnemo-sessions[mcp]" in told.stderr
    (tmp_path / "text.db").write_text("This is no database. " * 100)
    for arguments in (["--store", str(tmp_path / "text.db")], ["--embedder", "none"]):
        told = run("--store", str(tmp_path / "m.db"), *arguments)
        assert (told.returncode, told.stderr.count("\n")) == (2, 1), told.stderr
        assert told.stderr.startswith("mnemo-mcp: ")
        assert not told.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["text.db"]


@pytest.mark.slow
def test_the_registrys_entry_is_of_this_version_and_its_arguments_are_the_commands():
    """Clients put its arguments together without looking."""
    (package,) = SERVER["packages"]
    assert {SERVER["version"], package["version"]} == {mnemo.__version__}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert package["identifier"] == project["name"]
    assert project["scripts"][project["name"]] == project["scripts"]["mnemo-mcp"] == "mnemo.cli:mcp"
    (extra,) = package["runtimeArguments"]
    assert extra["value"] == f"{project['name']}[mcp]=={mnemo.__version__}"
    assert len(SERVER["description"]) <= 100
    help = run("--help").stdout
    assert all(one["name"] in help for one in package["packageArguments"])

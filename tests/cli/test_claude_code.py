"""The plugin in the real Claude Code, from npm, against a scripted server."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from messages_server import Blocks, MessagesServer, calls, messages_server, said

import mnemo.sync

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "scripts/plugins/claude-code"
PACKAGE = "@anthropic-ai/claude-code@latest"
MAY_ECHO = ("--allowedTools", "Bash(echo:*)")


@pytest.fixture(scope="session")
def claude(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program."""
    if (npm := shutil.which("npm")) is None:
        pytest.skip("needs npm")
    folder = tmp_path_factory.mktemp("npm")
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    program = folder / "node_modules/.bin/claude"
    if done.returncode or subprocess.run([program, "--version"], check=False).returncode:
        pytest.skip(f"{PACKAGE} cannot be installed here: {done.stderr[-200:]}")
    return str(program)


def answer(body: dict[str, Any]) -> Blocks:
    """Call a tool once, then answer; other questions of the program get a word."""
    blocks = [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    has_bash = any(tool["name"] == "Bash" for tool in body.get("tools", ()))
    if has_bash and not any(block["type"] == "tool_result" for block in blocks):
        return [*said("I look."), *calls("Bash", {"command": "echo heron", "description": "Look"})]
    return said("Noted.")


@pytest.fixture
def server() -> Iterator[MessagesServer]:
    """The model's server."""
    with messages_server(answer) as served:
        yield served


@pytest.fixture
def env(tmp_path: Path, server: MessagesServer) -> Iterator[dict[str, str]]:
    """A user with the plugin's package, and none of this machine's settings."""
    (tmp_path / "home").mkdir()
    ours = ("CLAUDE", "ANTHROPIC", "MNEMO")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "mnemo").write_text(f'#!/bin/sh\nexec {sys.executable} -m mnemo "$@"\n')
    (commands / "mnemo").chmod(0o755)
    with tempfile.TemporaryDirectory() as run:
        yield kept | {
            "HOME": str(tmp_path / "home"),
            "PATH": f"{commands}:{kept['PATH']}",
            "PYTHONPATH": str(ROOT),
            "XDG_RUNTIME_DIR": run,
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "test-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
            "MCP_CONNECTION_NONBLOCKING": "0",
            "MCP_CONNECT_TIMEOUT_MS": "100000",  # a busy machine needs more than its five seconds
        }
        for pid in pids(run):
            os.kill(pid, signal.SIGKILL)


def pids(run: str) -> list[int]:
    """The resident process, where it runs."""
    found = [int(one.read_text()) for one in Path(run).glob("*/*.lock") if one.read_text()]
    return [one for one in found if Path(f"/proc/{one}").exists()]


def ask(claude: str, env: dict[str, str], folder: Path, prompt: str) -> str:
    """What the program answers to one prompt, in a session of its own with the plugin."""
    return run(claude, env, folder, "-p", prompt, "--plugin-dir", str(PLUGIN), *MAY_ECHO)


def run(claude: str, env: dict[str, str], folder: Path, *arguments: str) -> str:
    """What the program prints."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [claude, *arguments], env=env, cwd=folder, capture_output=True, text=True, check=False,
        timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def stored(env: dict[str, str]) -> list[list[str]]:
    """What was said in each session."""
    with mnemo.sync.Mnemo(Path(env["HOME"], ".mnemo", "claude-code.db")) as memory:
        repo = memory.open_repo()
        return [
            [message.text for message in repo.conversation(one.thread_id).history()]
            for one in repo.threads()
        ]


def test_what_one_session_said_is_in_the_context_of_the_next(claude, env, server, tmp_path):
    """From nothing: the package, the plugin, two sessions; no tool's output, no injected text."""
    assert "Noted." in ask(claude, env, tmp_path / "a", "I play the cello in Bern.")
    talk = ["I play the cello in Bern.", "I look.", "Noted."]
    assert stored(env) == [talk]
    for _ in range(5):  # an answer that is late is empty: none is, by words, as the process starts
        for pid in pids(env["XDG_RUNTIME_DIR"]):
            os.kill(pid, signal.SIGKILL)
        before = len(server.requests)
        ask(claude, env, tmp_path / "b", "Which instrument do I play?")
        sent = json.dumps([one["messages"] for one in server.requests[before:]])
        tools = json.dumps([one.get("tools") for one in server.requests[before:]])
        has_tool = "mcp__plugin_mnemo_memory__recall" in tools + sent  # or it is told of there
        if has_tool and "I play the cello in Bern." in sent:
            break
    assert "I play the cello in Bern." in sent
    assert "<mnemo-memory trusted=" in sent
    assert has_tool
    for said_there in stored(env):
        assert said_there in (talk, ["Which instrument do I play?", "I look.", "Noted."])
    assert Path(env["HOME"], ".mnemo", "claude-code.db").stat().st_mode & 0o077 == 0


def test_a_marketplace_folder_installs_it_and_a_compaction_stores_what_it_replaces(
    claude, env, server, tmp_path
):
    """As the page says, without a network; here without the hook that stores at answers' ends."""
    market, folder = tmp_path / "market", tmp_path / "a"
    for part in (".claude-plugin", PLUGIN.relative_to(ROOT)):
        shutil.copytree(ROOT / part, market / part)
    hooks = market / PLUGIN.relative_to(ROOT) / "hooks/hooks.json"
    given = json.loads(hooks.read_text())
    del given["hooks"]["Stop"]
    hooks.write_text(json.dumps(given))
    run(claude, env, folder, "plugin", "marketplace", "add", str(market))
    run(claude, env, folder, "plugin", "install", "mnemo@mnemo")
    run(claude, env, folder, "-p", "I play the cello in Bern.", *MAY_ECHO)
    assert stored(env) == []
    run(claude, env, folder, "-p", "/compact", "--continue")
    assert stored(env) == [["I play the cello in Bern.", "I look.", "Noted."]]
    run(claude, env, folder, "plugin", "uninstall", "mnemo@mnemo")
    before = len(server.requests)
    run(claude, env, folder, "-p", "Hello.", *MAY_ECHO)
    assert "mnemo-memory" not in json.dumps(server.requests[before:])


def test_eight_sessions_at_once_lose_nothing_when_the_process_is_killed(
    claude, env, server, tmp_path
):
    """One file, one process behind the hooks, killed while they run; the next hook catches up."""
    prompts = [f"My number is {number}{number}{number}." for number in range(8)]
    ask(claude, env, tmp_path / "first", "Hello.")

    def one(number: int) -> None:
        ask(claude, env, tmp_path / f"p{number}", prompts[number])
        if number == 3:
            for pid in pids(env["XDG_RUNTIME_DIR"]):
                os.kill(pid, signal.SIGKILL)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))
    found = stored(env)
    assert sorted(one[0] for one in found) == sorted([*prompts, "Hello."])
    assert all(one[1:] == ["I look.", "Noted."] for one in found)
    assert len(pids(env["XDG_RUNTIME_DIR"])) <= 1

"""The example programs, run as a reader would run them."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"

pytestmark = [pytest.mark.slow, pytest.mark.long]


def run(
    name: str, *arguments: str, folder: Path, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run an example to its end."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class ChatServer(ThreadingHTTPServer):
    """Chat completions on 127.0.0.1: it repeats the last thing that was said to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Completions)
        self.requests: list[dict[str, Any]] = []


class _Completions(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, ChatServer)
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        said = request["messages"][-1]["content"]
        message = {"role": "assistant", "content": f"You said: {said}"}
        body = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep stderr for what goes wrong."""


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A running server, stopped after the test."""
    with ChatServer() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_the_chat_agent_remembers_across_two_runs(tmp_path, server):
    """The second run's request holds the thread so far and what was recalled of it."""
    given = ("--url", f"http://127.0.0.1:{server.server_port}/v1", "--model", "any")
    first = run("chat_agent.py", *given, folder=tmp_path, typed="I am allergic to peanuts.\nHi.\n")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == "You said: I am allergic to peanuts.\nYou said: Hi.\n"
    second = run("chat_agent.py", *given, folder=tmp_path, typed="What must I not eat?\n")
    assert (second.returncode, second.stderr) == (0, "")
    memory, *window = server.requests[-1]["messages"]
    assert memory["role"] == "system"
    assert "peanuts" in memory["content"]
    assert [m["content"] for m in window][:2] == [
        "I am allergic to peanuts.",
        "You said: I am allergic to peanuts.",
    ]
    assert window[-1] == {"role": "user", "content": "What must I not eat?"}


def test_the_coding_agent_goes_on_where_it_was_killed(tmp_path):
    """Killed after two steps, the next run has them, adds the rest, and commits once."""
    (tmp_path / "code").mkdir()
    for name in ("a", "b", "c", "d"):
        text = "def broken(:\n" if name == "c" else "x = 1\n"
        (tmp_path / "code" / f"{name}.py").write_text(text)
    killed = run("coding_agent.py", "code", "--die-after", "2", folder=tmp_path)
    assert killed.returncode == -signal.SIGKILL
    again = run("coding_agent.py", "code", folder=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert "after 2 steps" in again.stdout
    assert "2: `py_compile c.py` returned invalid syntax" in again.stdout
    lines = again.stdout.splitlines()
    assert sum(line.endswith("ok -> left it as it is") for line in lines) == 3
    later = run("coding_agent.py", "code", folder=tmp_path)
    assert "resuming" not in later.stdout
    assert "seen before: " in later.stdout


def test_the_openai_agent_goes_on_and_takes_back(tmp_path, server):
    """The second run is sent the thread of the first, without what was taken back in it."""
    url = f"http://127.0.0.1:{server.server_port}/v1"
    given = ("--url", url, "--model", "any")
    typed = "I live in Bern.\nI live in Rome.\nundo\n"
    first = run("openai_agents.py", *given, folder=tmp_path, typed=typed)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == (
        "You said: I live in Bern.\nYou said: I live in Rome.\nTaken back: I live in Rome.\n"
    )
    second = run("openai_agents.py", *given, folder=tmp_path, typed="Where do I live?\n")
    assert (second.returncode, second.stderr) == (0, "")
    system, *thread = server.requests[-1]["messages"]
    assert system["role"] == "system"
    assert [m["content"] for m in thread] == [
        "I live in Bern.",
        "You said: I live in Bern.",
        "Where do I live?",
    ]
    assert [tool["function"]["name"] for tool in server.requests[-1]["tools"]] == ["recall"]


def test_the_langgraph_agent_goes_on_and_finds_what_it_was_told_to_keep(tmp_path, server):
    """Another process has the thread's messages; another thread has the user's notes."""
    url = f"http://127.0.0.1:{server.server_port}/v1"
    given = ("--url", url, "--model", "any")
    typed = "keep: I eat no peanuts.\nHello.\n"
    first = run("langgraph_agent.py", *given, folder=tmp_path, typed=typed)
    assert (first.stdout, first.stderr) == ("Kept.\nYou said: Hello.\n", "")
    second = run("langgraph_agent.py", *given, folder=tmp_path, typed="And now?\n")
    assert (second.stdout, second.stderr) == ("You said: And now?\n", "")
    _, *thread = server.requests[-1]["messages"]
    assert [m["content"] for m in thread[1:]] == ["Kept.", "Hello.", "You said: Hello.", "And now?"]
    other = (*given, "--thread", "2")
    run("langgraph_agent.py", *other, folder=tmp_path, typed="What may I eat?\n")
    system, *thread = server.requests[-1]["messages"]
    assert "I eat no peanuts." in system["content"]
    assert [m["content"] for m in thread] == ["What may I eat?"]


@contextmanager
def web_app(folder: Path) -> Iterator[httpx.Client]:
    """The web application as a process, once it answers; ended as a platform ends it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    users = json.dumps({"ada-token": "ada", "bo-token": "bo"})
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "web_app.py"), "--port", str(port)],
        cwd=folder,
        env={**os.environ, "USERS": users, "MNEMO_JOBS__QUIET_S": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "Uvicorn running" in line:
                break
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode in (0, -signal.SIGTERM)


def test_the_web_app_keeps_its_users_apart_and_their_memories(tmp_path):
    """What Ada said is recalled after a restart, for her alone, until she erases it."""
    ada, bo = ({"Authorization": f"Bearer {name}-token"} for name in ("ada", "bo"))
    with web_app(tmp_path) as client:
        said = {"json": {"text": "I live in Oslo."}, "headers": {**ada, "Idempotency-Key": "1"}}
        first, again = client.post("/messages", **said), client.post("/messages", **said)
        assert (first.status_code, first.json()) == (201, again.json())
        assert client.post("/messages", json={"text": " "}, headers=ada).status_code == 422
        assert client.get("/recall", params={"q": "Oslo"}).status_code in (401, 403)
        assert client.get("/memories", headers={"Authorization": "Bearer x"}).status_code == 401
    with web_app(tmp_path) as client:
        asked = {"params": {"q": "Where does she live?"}}
        found = client.get("/recall", headers=ada, **asked).json()
        assert found["sources"] == ["I live in Oslo."]
        assert client.get("/recall", headers=bo, **asked).json() == {"text": "", "sources": []}
        while not (known := client.get("/memories", headers=ada).json()["memories"]):
            pass  # extracted behind the answer
        forgotten = [client.delete(f"/memories/{one['id']}", headers=ada) for one in known]
        assert forgotten[0].status_code == 204
        assert client.delete("/memories/none", headers=ada).status_code == 404
        assert client.get("/recall", headers=ada, **asked).json() == {"text": "", "sources": []}

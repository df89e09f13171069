"""What operators read of a service: access log, slow requests, metrics of recalls and backlogs."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from helpers import child_environment
from inspector_kit import LIMIT_S

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder
from mnemo.web import logs, new_token, token_of, web_app


def access(caplog):
    """The lines of the access log."""
    return [record.msg for record in caplog.records if record.name == "mnemo.access"]


async def test_each_answer_has_an_id_that_its_line_has_too(client, caplog):
    """Refused ones, too; no text of a request is in its line."""
    caplog.set_level("INFO", "mnemo.access")
    body = {"content": "Ada plays the cello."}
    answer = await client.post("/v1/remember?repo=a", json=body)
    refused = await client.get("/v1/caller", headers={"authorization": "Bearer wrong"})
    line, other = access(caplog)
    assert line["request"] == answer.headers["x-request-id"]
    assert other["request"] == refused.headers["x-request-id"] != line["request"]
    assert (line["method"], line["route"], line["status"]) == ("POST", "/v1/remember", 200)
    assert (line["token"], other["token"], other["status"]) == ("all", None, 401)
    assert line["bytes"] == len(answer.content)
    assert line["ms"] > 0
    assert "cello" not in str(line)


def test_an_application_without_logs_prints_none():
    """Python would print the warning of a slow request as a dictionary."""
    code = "from mnemo.web.logs import ACCESS; ACCESS.warning({'ms': 1000.0})"
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(), capture_output=True, check=True
    )
    assert done.stderr == b""


async def test_a_slow_recall_is_told_with_its_phases(caplog, monkeypatch):
    """As a warning; what is quick, or waits on purpose, is not told then."""
    monkeypatch.setattr(logs, "SLOW_S", 0.0)
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        app = web_app(memory, tokens=[token_of("s", "all")])
        async with (
            app.app.router.lifespan_context(app.app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app),
                base_url="http://localhost",
                headers={"authorization": "Bearer s"},
            ) as client,
        ):
            await anyio.sleep(0.1)  # until the lifespan listens
            await client.post("/v1/remember", json={"content": "Ada sails."})
            await client.post("/v1/recall", json={"query": "Who sails?"})
            await client.post("/v1/recall", json={"query": "xyzzy", "min_confidence": 1})
            await client.post("/v1/settle", json={})
            text = (await client.get("/metrics")).text
    told = {line["route"]: line for line in access(caplog)}
    assert "/v1/settle" not in told
    phases = told["/v1/recall"]["phases_ms"]
    assert {"turn"} < set(phases)
    assert all(ms >= 0 for ms in phases.values())
    assert re.search(r"^mnemo_recall_seconds_count 2$", text, re.M)
    assert re.search(r"^mnemo_recalls_empty_total 1$", text, re.M)
    assert 'mnemo_recall_seconds_bucket{le="+Inf"} 2' in text


@pytest.fixture
async def resting() -> AsyncIterator[Mnemo]:
    """An open service whose jobs nobody works off."""
    async with Mnemo("memory:", embedder=HashingEmbedder(), workers=0) as opened:
        yield opened


async def test_metrics_tell_what_waits_in_all_repositories_that_the_token_may_use(resting):
    """Messages, the age of the oldest, and jobs by state; also of those that are not open."""

    def connected(token):
        transport = httpx.ASGITransport(web_app(resting, tokens=[token]))
        headers = {"authorization": "Bearer s"}
        return httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8642", headers=headers
        )

    client = connected(token_of("s", "one", prefixes=["a/"]))
    full = connected(token_of("s", "all", rights="admin"))
    for repo in ("a/1", "a/2", "b/1"):
        answer = await full.post(f"/v1/remember?repo={repo}", json={"content": "Ada sails."})
        assert answer.is_success
    await resting.close_repo("a/2")

    async def levels(asking, path="/metrics"):
        text = (await asking.get(path)).text
        return {
            name: int(re.search(rf"^mnemo_{name}(?:{{.*}})? (\d+)$", text, re.M)[1])
            for name in ("messages_waiting", "jobs_waiting", "jobs_dead", "oldest_waiting_seconds")
        }

    found = await levels(full)
    assert (found["messages_waiting"], found["jobs_waiting"], found["jobs_dead"]) == (3, 3, 0)
    assert found["oldest_waiting_seconds"] < LIMIT_S
    assert (await levels(client))["messages_waiting"] == 2
    assert (await levels(client, "/metrics?repo=a/1"))["messages_waiting"] == 1


# ── Started by its command line ──────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_unix_socket_is_served_and_told_before_requests_are_answered(tmp_path):
    """It takes the place of one that nobody listens on, and is gone in the end; requests that
    come before the application is imported wait; the access log goes to stderr as JSON."""
    path, secret = tmp_path / "mnemo.sock", new_token()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    tokens = tmp_path / "tokens.toml"
    made = token_of(secret, "desk")
    tokens.write_text(f'[[tokens]]\nname = "desk"\nsha256 = "{made.sha256}"\n')
    command = [sys.executable, "-m", "mnemo", "serve", "--uds", str(path), "--log-level", "info"]
    command += ["--token-file", str(tokens)]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline().strip() == f"unix:{path}"
        second = subprocess.run(command, cwd=tmp_path, env=child_environment(), capture_output=True)
        assert second.returncode == 2
        assert b"another process listens there" in second.stderr
        with httpx.Client(
            transport=httpx.HTTPTransport(uds=str(path)),
            headers={"authorization": f"Bearer {secret}"},
            timeout=LIMIT_S,
        ) as client:
            answer = client.get("http://localhost/v1/caller")
            assert answer.json()["name"] == "desk"
        process.terminate()
        assert process.wait(LIMIT_S) in (0, -15)
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    (line,) = [line for line in lines if line["logger"] == "mnemo.access"]
    assert line["request"] == answer.headers["x-request-id"]
    assert not path.exists()


@pytest.mark.slow
def test_the_address_is_told_before_the_application_is_imported(tmp_path, monkeypatch):
    """And host and port may come from the environment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    code = (
        "import sys\n"
        "import mnemo.cli.stores as stores\n"
        "told = stores._tell\n"
        "def tell(*given, **more):\n"
        "    told(*given, **more)\n"
        "    print('fastapi' in sys.modules, 'uvicorn' in sys.modules, flush=True)\n"
        "    raise SystemExit\n"
        "stores._tell = tell\n"
        "from mnemo.cli.app import run\n"
        "run(['serve'])\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=child_environment() | {"MNEMO_HOST": "localhost", "MNEMO_PORT": str(port)},
        capture_output=True,
        text=True,
        check=False,
    )
    address, imported = found.stdout.splitlines()
    assert address.startswith(f"http://127.0.0.1:{port}/#token=")
    assert imported == "False False"


@pytest.mark.slow
def test_a_stop_by_sigterm_ends_streams_and_closes_the_store(tmp_path):
    """Nothing is complained of, and what the audit log was told is in its file."""
    secret = new_token()
    tokens, audit = tmp_path / "tokens.toml", tmp_path / "audit.jsonl"
    made = token_of(secret, "desk")
    tokens.write_text(f'[[tokens]]\nname = "desk"\nsha256 = "{made.sha256}"\nrights = "read"\n')
    command = [sys.executable, "-m", "mnemo", "serve", "--port", "0", "--audit-log", str(audit)]
    command += ["--token-file", str(tokens)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=child_environment(), **pipes) as process:
        url = process.stdout.readline().strip()
        headers = {"authorization": f"Bearer {secret}"}
        with (
            httpx.Client(base_url=url, headers=headers, timeout=LIMIT_S) as client,
            client.stream("GET", "/v1/events") as stream,
        ):
            assert stream.status_code == 200
            body = {"content": "Ada sails."}
            assert client.post("/v1/remember", json=body).status_code == 403
            process.terminate()
            for _ in stream.iter_bytes():
                pass  # until it ends, without an error
        assert process.wait(LIMIT_S) == 0
        assert process.stderr.read() == ""
    assert json.loads(audit.read_text())["what"] == "refused"

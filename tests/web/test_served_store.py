"""What a service can do, row by row, over HTTP at ``mnemo serve`` as a process of its own."""

import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anyio
import httpx
import pytest
from helpers import child_environment
from inspector_kit import LIMIT_S
from scripted_faults import Status
from scripted_server import ScriptedServer

from mnemo import SessionState
from mnemo.client import RemoteMnemo
from mnemo.protocols import ChatReply
from mnemo.web import new_token, token_of

pytestmark = [pytest.mark.slow, pytest.mark.long]

SAID = ("I play the cello.", "I live in Lund.", "My sister Eva lives in Oslo.")


@pytest.fixture
def models():
    """A server of a chat model and an embedder."""
    answers = {"update_notes": ChatReply(text="Nothing to note.")}
    with ScriptedServer(answers, dimensions=64) as found:
        yield found


@pytest.fixture
def served(serve, models, monkeypatch, tmp_path):
    """A service with models, a recall log and a folder for backups."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "mnemo").mkdir()
    (tmp_path / "mnemo" / "mnemo.toml").write_text("[recall]\nkeep_last = 3\n")
    (tmp_path / "kept").mkdir()
    url = f"{models.url}/v1"
    return serve(
        *("--model-url", url, "--model", "m", "--embedder", f"{url}?model=e&dimensions=64"),
        *("--backup-folder", "kept"),
    )


@pytest.fixture
async def remote(served):
    """A client of it."""
    async with RemoteMnemo(served.url, served.token, timeout_s=LIMIT_S) as opened:
        yield opened


async def test_the_life_of_a_repository(remote):
    """Exported, imported under another name, kept up, checked, moved, and deleted."""
    repo = remote.repo("ada")
    await repo.remember(SAID, actor="Ada", wait=True)
    async with remote.export_repo("ada") as lines:
        archive = [line async for line in lines]
    await remote.import_repo("copy", archive)
    copy = remote.repo("copy")
    assert [m.content for m in await copy.conversation("default").history()] == [*SAID]
    for call in (copy.consolidate, copy.decay, copy.validate):
        assert (await call()).operation == call.__name__
    assert (await remote.check()).problems == ()
    assert (await remote.reembed("copy")).after == (await remote.reembed("ada")).after
    assert not (await remote.delete_repo("copy", dry_run=True)).is_empty
    await remote.delete_repo("copy")
    assert [one.id for one in await remote.repos()] == ["ada"]


async def test_sessions_of_a_user(remote):
    """Collected, committed, discarded, begun anew, ended and resumed."""
    repo = remote.repo("ada")
    session = await repo.start_session("plan a trip", session_id="s")
    await session.append("Ada wants to see Tokyo.", "Asked for dates.", key="k")
    await session.append_messages([{"role": "user", "content": "In May."}])
    await session.close()
    assert await session.wait_for("ready", "failed", timeout_s=60) is SessionState.READY
    assert (await session.commit()).status == "committed"
    await session.start_episode("another")
    await session.append("Rain.", "")
    await session.close()
    assert await session.wait_for("ready", "failed", timeout_s=60) is SessionState.READY
    await session.discard()
    assert session.state is SessionState.IDLE
    await session.start_episode("a third")
    await session.append("Sun.", "")
    assert (await session.close_and_commit()).status == "committed"
    await session.aclose()
    assert (await repo.resume_session("s")).state is SessionState.IDLE
    assert [one.id for one in await repo.sessions()] == ["s"]


async def test_a_conversation_of_a_user(remote):
    """Its window, a summary, goals and pins, and what is taken back."""
    chat = remote.repo("ada").conversation("desk")
    await chat.append([{"role": "user", "content": text} for text in (*SAID, "Never mind.")])
    goal = await chat.goals.add("Find the cello")
    assert await chat.pins.attach([1], [goal.id]) == 1
    await chat.goals.update(goal.id, "Find the bow")
    assert (await chat.look()).messages == 4
    assert (await chat.goals.complete(goal.id)).released_pins == 1
    await chat.compact(0, 1, "Ada plays the cello in Lund.")
    assert "in Lund" in str((await chat.load())[0].content)
    assert len(await chat.withdraw(1)) == 1
    assert [one.content for one in await chat.recent(1)] == [SAID[2]]
    assert (await chat.purge()).messages
    assert await chat.history() == []


async def test_notes_and_items_of_a_user(remote, models):
    """Written, found, undone, restored; the model looks back over a task."""
    repo = remote.repo("ada")
    await repo.notes.write("ada", "- plays the cello", "About Ada")
    await repo.notes.write("ada", "- plays the viola", "About Ada")
    assert (await repo.notes.restore("ada", 1)).version == 3
    assert [hit.note.topic for hit in (await repo.notes.recall("cello")).hits] == ["ada"]
    task = [{"role": "user", "content": "Remember that Ada's bow is in the red case."}]
    update = await repo.notes.update_after_task(task, iterations=9, task_id="t")
    assert update.error is None
    assert [note.by for note in update.notes] == ["rule"]
    assert "update_notes" in {one.purpose for one in models.requests}
    assert len(await repo.notes.undo(update.id)) == len(update.notes)
    await repo.notes.purge("ada")
    await repo.items.put(("people",), "ada", {"plays": "cello"})
    assert (await repo.items.get(("people",), "ada")).value == {"plays": "cello"}
    assert await repo.items.list_namespaces() == [("people",)]
    assert await repo.items.delete(("people",), "ada")


async def test_recalls_their_text_their_log_and_what_was_expected(served, remote):
    """Up to 64 questions at once; the log keeps the last three, and loses what is erased."""
    repo = remote.repo("ada")
    await repo.remember(SAID, actor="Ada", key="m", wait=True)
    assert len(await repo.recall_many(["Where does Ada live?"] * 64)) == 64
    async with served.client() as client:

        async def asked(**body):
            return await client.post("/v1/recall?repo=ada", json=body)

        ask = {"query": "Where does Ada live?"}
        assert (
            await client.post("/v1/recall_many?repo=ada", json={"queries": ["x"] * 65})
        ).is_error
        whole = (await asked(**ask)).json()
        assert "Lund" in whole["text"]
        assert f"[{whole['citations'][-1]}]" in whole["text"]
        short = (await asked(**ask, budget_tokens=12, style="full", order="time")).json()
        assert len(short["text"]) < len(whole["text"])
        memory = next(one for one in await repo.memories() if "Lund" in one.text)
        expected = (await asked(**ask, expect=memory.id)).json()["expected"]
        assert whole["candidates"][expected["rank"] - 1]["node"]["id"] == memory.id
        left = (await asked(**ask, expect=memory.id, actor="Bo")).json()["expected"]
        assert (left["rank"], left["left_out_by"], left["detail"]) == (None, "filter", "actor")
        with anyio.fail_after(LIMIT_S):  # it is written behind the recalls
            while not (log := (await client.get("/v1/recalls?repo=ada")).json()["items"]):  # noqa: ASYNC110
                await anyio.sleep(0.05)
            while log[0]["query"] != ask["query"] or len(log) != 3:
                await anyio.sleep(0.05)
                log = (await client.get("/v1/recalls?repo=ada")).json()["items"]
        assert (log[0]["caller"], log[0]["milliseconds"] > 0) == ("local", True)
        await repo.forget(thread_id="default", dry_run=False)
        assert (await client.get("/v1/recalls?repo=ada")).json()["items"] == []


async def test_the_document_and_its_page(served):
    """Described without a token: names, security, problem documents; tried out at ``/docs``."""
    async with httpx.AsyncClient(base_url=served.url, timeout=LIMIT_S) as client:
        told = (await client.get("/openapi.json")).json()
        page = await client.get("/docs/")
    assert told["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    named = {one["operationId"] for path in told["paths"].values() for one in path.values()}
    assert {"recall_many", "notes.update_after_task", "memory.delete_repo"} <= named
    assert page.is_success
    assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_what_waits_is_told_while_the_model_is_away(served, models):
    """Messages, the oldest, and that it is not known how long; then nothing waits."""
    models.fail(Status(503), purpose="semantic", times=1_000_000)
    async with served.client() as client:
        said = {"content": SAID[0], "actor": "Ada"}
        assert (await client.post("/v1/remember?repo=ada", json=said)).is_success
        jobs = (await client.get("/v1/statistics?repo=ada")).json()["jobs"]
        assert (jobs["messages"], jobs["seconds_left"]) == (1, None)
        assert jobs["oldest_at"] is not None
        text = (await client.get("/metrics")).text
        assert "\nmnemo_messages_waiting 1\n" in text


async def test_a_token_has_a_budget_of_models(serve, models, tmp_path):
    """Without the right 403, beyond it 429; the others are answered without a model."""
    few, none = new_token(), new_token()
    entries = [
        ("few", few, "rights = 'write'\nmodel_tokens_per_day = 1\n"),
        ("none", none, "rights = 'write'\n"),
    ]
    (tmp_path / "tokens.toml").write_text(
        "".join(
            f"[[tokens]]\nname = '{name}'\nsha256 = '{token_of(secret, name).sha256}'\n{more}"
            for name, secret, more in entries
        )
    )
    url = f"{models.url}/v1"
    options = ("--model-url", url, "--model", "m", "--embedder", "static")
    server = serve(*options, "--token-file", "tokens.toml")
    async with httpx.AsyncClient(base_url=server.url, timeout=LIMIT_S) as client:

        async def asked(secret, **body):
            headers = {"authorization": f"Bearer {secret}"}
            body = {"query": "Who sails?"} | body
            return (await client.post("/v1/recall", json=body, headers=headers)).status_code

        headers = {"authorization": f"Bearer {none}"}
        said = {"content": "Ada sails."}
        assert (await client.post("/v1/remember", json=said, headers=headers)).is_success
        assert await asked(none, use_model=True) == await asked(none, reason=True) == 403
        assert [await asked(few, use_model=True) for _ in range(2)] == [200, 429]
        assert [await asked(one) for one in (few, none)] == [200, 200]


async def used(server):
    """Have a server remember, recall, search, take a step and a note, and end."""
    async with server.client() as client:
        for path, body in (
            ("remember", {"content": SAID[0], "wait": True}),
            ("recall", {"query": "What is played?"}),
            ("search", {"query": "cello"}),
            ("sessions", {"goal": "g", "session_id": "s"}),
            ("session/steps?session=s", {"observation": "Rain.", "action": ""}),
        ):
            assert (await client.post(f"/v1/{path}", json=body)).is_success
        note = {"body": "- sings", "description": "Ada"}
        assert (await client.put("/v1/note?topic=ada", json=note)).is_success
    server.process.send_signal(signal.SIGTERM)
    told, _ = await anyio.to_thread.run_sync(server.process.communicate, None, LIMIT_S)
    return told


SPANS = {"create_memory", "search_memory", "upsert_memory", "append", "job"}


async def test_spans_go_where_the_variables_of_opentelemetry_say(serve, monkeypatch):
    """Of each write and recall, by the names of its convention; all of them by the end."""
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "desk-memory")
    told = await used(serve("--embedder", "static"))
    assert set(re.findall(r'^    "name": "(\w+)', told, re.MULTILINE)) >= SPANS
    assert '"service.name": "desk-memory"' in told
    assert "cello" not in told


@pytest.fixture
def collector():
    """A collector of OpenTelemetry over HTTP: its address, and the bodies that it was sent."""
    bodies = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            assert self.path == "/v1/traces"
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


async def test_spans_arrive_at_a_collector_over_otlp(serve, collector, monkeypatch):
    """Named by its address alone; with the service's name and GenAI's attributes."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    url, bodies = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "desk-memory")
    await used(serve("--embedder", "static"))
    assert not any(b"cello" in body for body in bodies)
    found = [
        (group.resource, span)
        for body in bodies
        for group in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    assert {span.name.split()[0] for _, span in found} >= SPANS
    services = {
        one.key: one.value.string_value for resource, _ in found for one in resource.attributes
    }
    assert services["service.name"] == "desk-memory"
    operations = {
        one.value.string_value
        for _, span in found
        for one in span.attributes
        if one.key == "gen_ai.operation.name"
    }
    assert operations >= {"create_memory", "search_memory", "upsert_memory"}


def test_an_exporter_that_is_not_installed_is_told(tmp_path):
    """With what to install; the command ends."""
    environment = child_environment() | {"OTEL_TRACES_EXPORTER": "carrier-pigeon"}
    done = subprocess.run(
        [sys.executable, "-m", "mnemo", "serve", "--port", "0"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2
    assert "opentelemetry-exporter-carrier-pigeon" in done.stderr

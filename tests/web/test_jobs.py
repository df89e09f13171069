"""Upkeep over HTTP: at once where it is quick, else as a job that all processes of a store know."""

import json
import math
import signal
from datetime import timedelta

import anyio
import anyio.lowlevel
import httpx
import pytest
from helpers import lines_of
from inspector_kit import LIMIT_S
from postgres_server import ON_POSTGRES
from scripted_faults import Delay
from scripted_server import ScriptedServer

from mnemo import MaintenanceReport, Mnemo, ModelUnavailable, NotFound
from mnemo.client import RemoteMnemo
from mnemo.jobs import calls
from mnemo.protocols import StoreReport
from mnemo.testing import HashingEmbedder
from mnemo.web import new_token, token_of, web_app
from mnemo.web.routes import jobs

UPKEEP = ("consolidate", "decay", "validate", "check", "repository/reembed")


class Held(HashingEmbedder):
    """Embeds texts once *gate* is open, or fails."""

    def __init__(self) -> None:
        super().__init__(32)
        self.gate, self.asked, self.fails = anyio.Event(), anyio.Event(), False

    async def embed(self, texts, **more):
        """Wait, then embed."""
        self.asked.set()
        await self.gate.wait()
        if self.fails:
            raise ModelUnavailable("the model is away")
        return await super().embed(texts, **more)


async def archive(count: int = 3) -> list[str]:
    """A repository in another space than that of the service."""
    async with Mnemo("memory:", embedder=HashingEmbedder(16)) as memory:
        repo = await memory.open_repo("old")
        for number in range(count):
            await repo.add_memory(f"Ada saw {number} white swans on lake {number}.")
        return await lines_of(memory, "old")


@pytest.fixture
def at_once(monkeypatch):
    """Everything goes on as a job, and is looked at all the time."""
    monkeypatch.setattr(jobs, "PATIENCE_S", 0)
    monkeypatch.setattr(jobs, "LOOK_S", 0.005)
    monkeypatch.setattr(calls, "BEAT_S", 0.005)


@pytest.fixture
async def held(at_once, memory):
    """An embedder of the service that waits, and a repository to be moved to its space."""
    embedder = memory._embedder = Held()
    await memory.import_repo("old", await archive())
    yield embedder
    embedder.gate.set()


async def moved(client) -> str:
    """Begin to move the repository; the path of the job."""
    answer = await client.post("/v1/repository/reembed?repo=old")
    assert answer.status_code == 202, answer.text
    return answer.headers["location"]


async def ended(client, path):
    """The job, once it runs no more."""
    with anyio.fail_after(LIMIT_S):
        while (found := (await client.get(path)).json())["state"] == "running":  # noqa: ASYNC110
            await anyio.sleep(0.01)
    return found


async def events_of(client, path, last=None):
    """Name, id and job of each event, to the end of the stream."""
    headers = {"last-event-id": last} if last else {}
    answer = await client.get(f"{path}/events", headers=headers)
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in
              answer.text.replace("\r", "").strip().split("\n\n") if block]  # fmt: skip
    return answer.status_code, [(b["event"], b["id"], json.loads(b["data"])) for b in blocks]


# ── Calls ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", UPKEEP)
async def test_a_quick_call_is_answered_at_once(client, path, monkeypatch):
    """With what the library returns; no record is written."""
    monkeypatch.setattr(jobs, "PATIENCE_S", LIMIT_S)
    await client.post("/v1/memories", json={"text": "Ada plays the cello."})
    answer = await client.post(f"/v1/{path}")
    assert answer.status_code == 200
    assert {"operation", "problems", "embedded"} & {*answer.json()}


async def test_a_long_call_is_accepted_and_followed(client, at_once):
    """With its result in the end, the same for everybody who looks."""
    await client.post("/v1/memories", json={"text": "Ada plays the cello."})
    answer = await client.post("/v1/validate")
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/jobs/{answer.json()['id']}"
    found = await ended(client, answer.headers["location"])
    assert (found["operation"], found["repo_id"], found["by"]) == ("validate", "default", "all")
    assert (found["state"], found["result"]["checked"]) == ("done", 1)
    assert found["created_at"] <= found["ended_at"]


async def test_the_client_waits_for_the_end(memory, at_once):
    """And gives, or raises, what the library does."""
    secret = new_token()
    app = web_app(memory, tokens=[token_of(secret, "all", rights="admin")])
    transport = httpx.ASGITransport(app)
    async with RemoteMnemo("http://localhost", secret, transport=transport) as remote:
        repo = remote.repo("r")
        await repo.add_memory("Ada plays the cello.")
        assert isinstance(await repo.consolidate(threshold=0.9), MaintenanceReport)
        assert (await repo.decay(types=["semantic"])).checked == 1
        report = await remote.check(repair=True)
        assert isinstance(report, StoreReport)
        assert report.problems == ()
        assert (await remote.reembed("r")).before is not None
        with pytest.raises(ValueError, match="types"):
            await repo.decay(types=["nothing"])
        with pytest.raises(NotFound):
            await remote.repo("nobody").validate()


async def test_a_client_that_gives_up_cancels_the_job(client, memory, held):
    """What it waited for ends, and nothing was switched."""
    secret = new_token()
    app = web_app(memory, tokens=[token_of(secret, "all", rights="admin")])
    async with RemoteMnemo(
        "http://localhost", secret, transport=httpx.ASGITransport(app)
    ) as remote:
        async with anyio.create_task_group() as group:
            group.start_soon(remote.reembed, "old")
            await held.asked.wait()
            while not memory._long_calls.running:
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        with anyio.fail_after(LIMIT_S):
            while memory._long_calls.running:  # noqa: ASYNC110
                await anyio.sleep(0.005)
    assert json.loads((await lines_of(memory, "old"))[0])["space"]["dimensions"] == 16


# ── Following ────────────────────────────────────────────────────────────────────────────


async def test_progress_is_streamed_and_resumed(client, held):
    """Each version once; what was read is not told again, and after the end there is 204."""
    path = await moved(client)
    streams = []

    async def follow() -> None:
        streams.append(await events_of(client, path))

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await held.asked.wait()
        held.gate.set()
    ((status, events),) = streams
    assert status == 200
    assert [name for name, _, _ in events][-1] == "ended"
    assert {name for name, _, _ in events[:-1]} <= {"progress"}
    ids = [int(id) for _, id, _ in events]
    assert ids == sorted({*ids})
    job = events[-1][2]
    assert (job["state"], job["done"], job["total"]) == ("done", 3, 3)
    assert job["result"]["vectors"] == 3
    assert await events_of(client, path, "0") == (200, events[-1:])
    assert await events_of(client, path, str(ids[-1])) == (204, [])


async def test_a_job_is_cancelled(client, memory, held):
    """It ends at its pause; one that has ended is not changed by that."""
    path = await moved(client)
    await held.asked.wait()
    assert (await client.post(f"{path}/cancel")).status_code == 200
    found = await ended(client, path)
    assert (found["state"], found["problem"], found["result"]) == ("cancelled", None, None)
    assert (await client.post(f"{path}/cancel")).json() == found
    held.gate.set()
    again = await ended(client, await moved(client))
    assert (again["state"], again["result"]["vectors"]) == ("done", 3)


async def test_a_job_that_fails_says_why(client, held):
    """With the problem document that the call would have been answered with."""
    held.fails = True
    path = await moved(client)
    held.gate.set()
    found = await ended(client, path)
    assert found["state"] == "failed"
    assert (found["problem"]["status"], found["problem"]["reason"]) == (503, "model_unavailable")
    assert "away" in found["problem"]["detail"]


@pytest.mark.long
async def test_a_repository_is_kept_open_for_its_job(client, memory, at_once):
    """And is not deleted under it."""
    await client.post("/v1/memories?repo=r", json={"text": "Ada plays the cello."})
    async with memory.repo("r")._maintenance._turn:
        path = (await client.post("/v1/validate?repo=r")).headers["location"]
        assert (await client.delete("/v1/repository?repo=r&dry_run=false")).status_code == 503
    assert (await ended(client, path))["state"] == "done"
    assert (await client.delete("/v1/repository?repo=r&dry_run=false")).status_code == 200


# ── Rights ───────────────────────────────────────────────────────────────────────────────


async def test_upkeep_is_for_administrators(connect, memory, held):
    """Of their repositories; what is of the store, for those of all."""
    names = {"write": "write", "manage": "manage", "own": "admin", "all": "admin"}
    secrets = {name: new_token() for name in names}
    known = [
        token_of(secrets[name], name, rights=rights, **({} if name == "all" else OLD))
        for name, rights in names.items()
    ]
    clients = {name: connect(*known, secret=secret) for name, secret in secrets.items()}
    for name in ("write", "manage"):
        for path in UPKEEP:
            answer = await clients[name].post(f"/v1/{path}?repo=old")
            assert answer.status_code == 403, path
    assert (await clients["own"].post("/v1/validate?repo=other")).status_code == 404
    assert (await clients["own"].post("/v1/check")).status_code == 403
    for method in ("GET", "POST"):
        assert (await clients["own"].request(method, "/v1/backup")).status_code == 403
    path = await moved(clients["own"])
    assert (await clients["all"].get(path)).status_code == 200
    assert (await clients["manage"].get(path)).status_code == 403
    whole = (await clients["all"].post("/v1/check")).headers["location"]
    assert (await clients["own"].get(whole)).status_code == 403
    assert (await clients["all"].get("/v1/jobs/job-nobody")).status_code == 404


OLD = {"prefixes": ["ol"]}


# ── Records ──────────────────────────────────────────────────────────────────────────────


async def test_records_are_bounded(client, memory, at_once, monkeypatch):
    """In number and in age."""
    monkeypatch.setattr(calls, "_OLD", calls._OLD.replace(str(calls.MOST_KEPT - 1), "2"))
    await client.post("/v1/memories", json={"text": "Ada plays the cello."})
    paths = []
    for _ in range(5):
        paths.append((await client.post("/v1/validate")).headers["location"])
        await ended(client, paths[-1])
    assert [(await client.get(path)).status_code for path in paths] == [404, 404, 200, 200, 200]
    monkeypatch.setattr(calls, "KEPT_FOR", timedelta(0))
    paths.append((await client.post("/v1/validate")).headers["location"])
    assert [(await client.get(path)).status_code for path in paths][-2:] == [404, 200]


async def test_records_go_with_what_they_name(client, memory, at_once):
    """A repository's with it; those of a decay with what it has deleted and somebody erases."""
    await client.post("/v1/memories?repo=a", json={"text": "Ada plays the cello."})
    path = (await client.post("/v1/validate?repo=a")).headers["location"]
    other = (await client.post("/v1/check")).headers["location"]
    await ended(client, path)
    await ended(client, other)
    assert (await client.delete("/v1/repository?repo=a&dry_run=false")).is_success
    assert (await client.get(path)).status_code == 404
    assert (await client.get(other)).status_code == 200


# ── Servers of their own ─────────────────────────────────────────────────────────────────


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def store(request, tmp_path):
    """Where an empty store is; asked for before ``serve``, whose servers end first."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "memory.db")


@pytest.mark.long
@pytest.mark.slow
async def test_processes_share_jobs_and_survive_each_other(store, serve, tmp_path):
    """One sees what the other runs, can cancel it, and tells it failed when the other is killed."""
    with ScriptedServer(dimensions=32) as models:
        options = ("--store", store, "--embedder", f"{models.url}/v1?model=e&dimensions=32")
        first, second = serve(*options), serve(*options)
        async with RemoteMnemo(first.url, first.token) as memory, second.client() as other:
            await memory.import_repo("old", await archive(100))
            models.fail(Delay(), purpose="embed", times=math.inf, after=1)
            async with first.client() as here:
                path = await moved(here)
                with anyio.fail_after(LIMIT_S):
                    while not (found := (await other.get(path)).json())["done"]:  # noqa: ASYNC110
                        await anyio.sleep(0.05)
                assert (found["state"], found["done"], found["total"]) == ("running", 64, 100)
                assert (await other.post(f"{path}/cancel")).is_success
                assert (await ended(other, path))["state"] == "cancelled"
                path = await moved(here)
                assert first.stop(signal.SIGKILL) == -signal.SIGKILL
            found = await ended(other, path)
            assert (found["state"], found["problem"]["reason"]) == ("failed", "interrupted")
            _, events = await events_of(other, path)
            assert [name for name, _, _ in events] == ["ended"]
            models.heal()
        async with RemoteMnemo(second.url, second.token) as memory:
            assert (await memory.reembed("old")).embedded == 36


@pytest.mark.slow
async def test_a_backup_is_streamed_or_kept(serve, tmp_path):
    """A store like others, of one moment; the client gives no path."""
    (tmp_path / "kept").mkdir()
    server = serve("--store", "memory.db", "--backup-folder", "kept")
    async with RemoteMnemo(server.url, server.token) as memory, server.client() as http:
        await memory.repo("r").remember("Ada plays the cello.", key="m1")
        answer = await http.get("/v1/backup")
        assert answer.status_code == 200
        (tmp_path / "streamed.db").write_bytes(answer.content)
        kept = (await http.post("/v1/backup")).json()
        (file,) = (tmp_path / "kept").iterdir()
        assert (file.name, file.stat().st_size) == (kept["name"], kept["size"])
    for path in (file, tmp_path / "streamed.db"):
        async with Mnemo(path, embedder=HashingEmbedder(384)) as copy:
            assert [one.id for one in await copy.repos()] == ["r"]
            assert (await copy.check()).problems == ()


async def test_a_service_without_a_folder_keeps_no_backup(client):
    """It says so."""
    answer = await client.post("/v1/backup")
    assert (answer.status_code, answer.json()["reason"]) == (409, "usage_error")

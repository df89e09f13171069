"""Tokens of a served store: their file, ends, prefixes, budgets, and what is logged of them."""

import json
import os
import time
from datetime import UTC, datetime, timedelta

import anyio
import httpx
import pytest
from inspector_kit import LIMIT_S
from scripted_server import ScriptedServer

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder, ScriptedChatModel
from mnemo.web import Worker, new_token, token_of, web_app
from mnemo.web.access import Tokens


def entry(secret, name, **given):
    """An entry of a token file."""
    made = token_of(secret, name, **given).model_dump(mode="json", exclude_unset=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in made.items()]
    return "\n".join(["[[tokens]]", *lines, ""])


def reason(answer):
    """Status and reason of a refusal."""
    return answer.status_code, answer.json()["reason"]


def asking(server, secret):
    """A client with another token."""
    headers = {"authorization": f"Bearer {secret}"}
    return httpx.AsyncClient(base_url=server.url, headers=headers, timeout=LIMIT_S)


async def lines_of(path, count):
    """The lines of an audit log, once there are so many."""
    with anyio.fail_after(LIMIT_S):
        while len(path.read_text().splitlines()) < count:  # noqa: ASYNC110
            await anyio.sleep(0.02)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.long
@pytest.mark.slow
async def test_the_file_of_tokens_is_read_anew_and_the_audit_log_tells_what_they_did(
    serve, tmp_path
):
    """A new one is known within seconds, one that was taken out is not; a wrong file changes
    nothing. Prefixes are compared literally, an end is an end."""
    one, two, late = new_token(), new_token(), new_token()
    path, audit = tmp_path / "tokens.toml", tmp_path / "audit.jsonl"
    path.write_text(entry(one, "one"))
    server = serve("--token-file", str(path), "--audit-log", str(audit))
    async with asking(server, one) as first, asking(server, two) as second:
        assert reason(await second.get("/v1/caller")) == (401, "token_unknown")
        ended = datetime.now(UTC) - timedelta(seconds=1)
        path.write_text(
            entry(two, "two", prefixes=["tenant-*/"]) + entry(late, "late", expires=str(ended))
        )
        with anyio.fail_after(LIMIT_S):
            while (await second.get("/v1/caller")).status_code == 401:  # noqa: ASYNC110
                await anyio.sleep(0.1)
        assert reason(await first.get("/v1/caller")) == (401, "token_unknown")
        async with asking(server, late) as third:
            assert reason(await third.get("/v1/caller")) == (401, "token_expired")
        path.write_text("[[tokens]\n")
        await anyio.sleep(1.5)
        body = {"content": "Ada plays the cello."}
        assert (await second.post("/v1/remember?repo=tenant-*/a", json=body)).is_success
        refused = await second.post("/v1/remember?repo=tenant-b/a", json=body)
        assert reason(refused) == (404, "not_found")
        forget = {"thread_id": "default"}
        at = "/v1/forget?repo=tenant-*/a"
        assert (await second.post(at, json=forget)).is_success
        done = await second.post(at, json=forget | {"dry_run": False})
        assert done.is_success
        lines = await lines_of(audit, 2)
    assert [(line["what"], line["repo"], line["token"]) for line in lines] == [
        ("refused", "tenant-b/a", "two"),
        ("forget", "tenant-*/a", "two"),
    ]
    assert lines[0]["request"] == refused.headers["x-request-id"]
    assert lines[1]["request"] == done.headers["x-request-id"]
    assert lines[1]["thread_id"] == "default"
    assert "cello" not in audit.read_text()


async def test_corrections_by_tools_are_in_the_audit_log(connect, memory, caplog):
    """MCP's calls are told by the ids of their arguments."""
    caplog.set_level("INFO", "mnemo.audit")
    client = connect()
    node = (await client.post("/v1/memories?repo=a", json={"text": "Ada sails."})).json()
    assert (
        await client.patch(f"/v1/memory?repo=a&id={node['id']}", json={"text": "Ada rows."})
    ).is_success
    call = {"name": "forget", "arguments": {"memory_ids": [node["id"]], "dry_run": False}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {"accept": "application/json, text/event-stream"}
    assert (await client.post("/mcp?repo=a", json=message, headers=headers)).is_success
    told = [record.msg for record in caplog.records if record.name == "mnemo.audit"]
    assert [line["what"] for line in told] == ["update_memory", "forget"]
    assert told[0]["id"] == node["id"]
    assert told[1]["memory_ids"] == [node["id"]]
    assert "rows" not in str(told)


def test_what_a_token_has_used_outlives_a_change_of_the_file(tmp_path):
    """Unless its rate is another; what is taken out is forgotten."""
    path = tmp_path / "tokens.toml"
    path.write_text(entry("a", "a", rate_per_s=1) + entry("b", "b", rate_per_s=1))
    tokens = Tokens(path)
    assert [tokens.used["a"].taken(1.0) for _ in range(2)] == [0, 0]
    assert tokens.used["a"].taken(1.0) > 0
    path.write_text(entry("a", "a", rate_per_s=1, rights="read"))
    os.utime(path, (time.time(), time.time() + 1))
    tokens.look()
    assert tokens.find("a").rights == "read"
    assert tokens.used["a"].taken(1.0) > 0
    assert set(tokens.used) == {"a"}
    path.write_text(entry("a", "a", rate_per_s=2))
    os.utime(path, (time.time(), time.time() + 2))
    tokens.look()
    assert tokens.used["a"].taken(1.0) == 0


async def test_what_a_token_has_used_is_that_of_all_workers(memory, tmp_path):
    """Two applications on one board have one rate, one budget a day and one set of counts."""
    tokens = [token_of("s", "slow", rate_per_s=0.01), token_of("a", "all")]
    apps = [web_app(memory, tokens=tokens, worker=Worker(tmp_path, n)) for n in range(2)]
    first, second = (
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
        for app in apps
    )
    slow, full = ({"authorization": f"Bearer {secret}"} for secret in "sa")
    tokens_of = [app.app.state.tokens.used["all"] for app in apps]
    now = datetime(2026, 5, 5, tzinfo=UTC)
    assert [one.model_tokens(now, 5) for one in tokens_of] == [5, 10]
    assert tokens_of[0].model_tokens(now + timedelta(days=1), 1) == 1
    # Of 0.01 a second there are 0.02 in a burst, and one request is always let pass.
    answers = [await one.get("/v1/caller", headers=slow) for one in (first, second, first)]
    assert [one.status_code for one in answers] == [200, 429, 429]
    text = (await second.get("/metrics", headers=full)).text
    assert 'mnemo_http_requests_total{route="/v1/caller",status="200"} 1\n' in text
    for one in (first, second):
        await one.aclose()


async def test_a_token_s_last_use_is_told_to_tokens_of_all_repositories(connect):
    """With the metrics; another token is not told of any."""
    name = "mnemo_token_last_used_timestamp_seconds"
    assert f'{name}{{token="all"}} ' in (await connect().get("/metrics")).text
    limited = connect(token_of("s", "one", repositories=["a"]), secret="s")
    assert name not in (await limited.get("/metrics")).text


async def test_a_token_that_has_ended_says_so(connect):
    """Until then it holds; the document lists the reason."""
    now = datetime.now(UTC)
    ended = connect(token_of("e", "e", expires=now - timedelta(seconds=1)), secret="e")
    assert reason(await ended.get("/v1/caller")) == (401, "token_expired")
    later = connect(token_of("l", "l", expires=now + timedelta(hours=1)), secret="l")
    assert (await later.get("/v1/caller")).is_success


# ── The right to have a model asked ──────────────────────────────────────────────────


async def test_a_model_is_asked_for_tokens_with_a_budget_until_that_is_used_up():
    """Without the right it is 403, beyond the budget 429; plain recalls go on."""
    model = ScriptedChatModel.answering()
    async with Mnemo("memory:", embedder=HashingEmbedder(), chat_model=model) as memory:
        tokens = [token_of("s", "some", model_tokens_per_day=1), token_of("n", "none")]
        app = web_app(memory, tokens=tokens)
        transport = httpx.ASGITransport(app)
        async with (
            app.app.router.lifespan_context(app.app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            await anyio.sleep(0.1)  # until the lifespan listens
            some, none = ({"authorization": f"Bearer {secret}"} for secret in "sn")
            await client.post("/v1/remember", json={"content": "Ada sails."}, headers=some)
            ask = {"query": "Who sails?", "use_model": True}
            refused = await client.post("/v1/recall", json=ask, headers=none)
            assert reason(refused) == (403, "forbidden")
            assert (await client.post("/v1/recall", json=ask, headers=some)).is_success
            spent = await client.post("/v1/recall", json=ask, headers=some)
            assert reason(spent) == (429, "too_many_requests")
            assert 0 < int(spent.headers["retry-after"]) <= 86_400
            again = await client.post("/v1/recall", json=ask | {"use_model": None}, headers=some)
            assert again.is_success


@pytest.mark.parametrize("asked", ["use_model", "reason"])
async def test_without_a_model_the_answer_says_so(client, asked):
    """422, whatever the token may."""
    await client.post("/v1/remember", json={"content": "Ada sails."})
    answer = await client.post("/v1/recall", json={"query": "Who?", asked: True})
    assert answer.status_code == 422
    assert "chat model" in answer.json()["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "told",
    ["options", *(pytest.param(way, marks=pytest.mark.long) for way in ("file", "environment"))],
)
async def test_a_served_store_asks_the_model_of_its_command_line(
    serve, monkeypatch, tmp_path, told
):
    """Or of mnemo.toml, or the environment; the key comes from the variable that is named."""
    with ScriptedServer(dimensions=64) as models:
        models.keys = {"sesame"}
        monkeypatch.setenv("THE_KEY", "sesame")
        monkeypatch.delenv("MNEMO_EMBEDDER", raising=False)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        url = f"{models.url}/v1"
        embedder = f"{url}?model=e&dimensions=64"
        options = {"model_url": url, "model": "m", "api_key_env": "THE_KEY", "embedder": embedder}
        given = list[str]()
        if told == "options":
            for name, value in options.items():
                given += [f"--{name.replace('_', '-')}", value]
        elif told == "file":
            folder = tmp_path / "mnemo"
            folder.mkdir()
            lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
            (folder / "mnemo.toml").write_text("\n".join(lines))
        else:
            for name, value in options.items():
                monkeypatch.setenv(f"MNEMO_{name.upper()}", value)
        async with serve(*given).client() as client:
            assert (await client.post("/v1/remember", json={"content": "Ada sails."})).is_success
            ask = {"query": "Who sails?", "use_model": True}
            found = await client.post("/v1/recall", json=ask)
            assert found.is_success, found.text
            assert found.json()["candidates"]
        paths = {one.path for one in models.requests}
        assert any("chat" in path for path in paths)
        assert any("embed" in path for path in paths)

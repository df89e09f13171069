"""The HTTP service from the attacker's side: slow and wrong requests, flooding, markup."""

import anyio
import anyio.lowlevel
import httpx
import pytest
from inspector_kit import LIMIT_S

from mnemo.web import gate, new_token, token_of


async def test_a_body_that_never_ends_is_cut_off(client, monkeypatch):
    """A client that sends a body drop by drop gets 408; others are served meanwhile."""
    monkeypatch.setattr(gate, "BODY_S", 0.05)

    async def drops():
        yield b'{"content": "'
        await anyio.sleep_forever()

    kind = {"content-type": "application/json"}
    answer = await client.post("/v1/remember", content=drops(), headers=kind)
    assert (answer.status_code, answer.json()["reason"]) == (408, "request_timeout")
    assert answer.headers["connection"] == "close"


async def test_the_rate_of_a_token_is_bounded(connect):
    """A token that is used up gets 429 with the time to wait; another token is served."""
    mine, others = new_token(), new_token()
    slow = token_of(mine, "slow").model_copy(update={"rate_per_s": 1.0})
    tokens = [slow, token_of(others, "other")]
    me, other = connect(*tokens, secret=mine), connect(*tokens, secret=others)
    codes = [(await me.get("/v1/caller")).status_code for _ in range(5)]
    assert codes[:2] == [200, 200]
    assert codes[-1] == 429
    answer = await me.get("/v1/caller")
    assert (answer.json()["reason"], answer.headers["retry-after"]) == ("rate_limited", "1")
    assert (await other.get("/v1/caller")).status_code == 200


@pytest.mark.slow
@pytest.mark.long
async def test_ten_thousand_wrong_tokens_are_slowed_down(client):
    """After a few, answers wait and the rest is turned away; a known token is not held up."""
    app, codes = client._transport.app, []

    async def send(message):
        codes.extend([message["status"]] if "status" in message else [])

    async def guess(number: int) -> None:
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {number}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/v1/caller", "headers": headers}
        await app(scope, None, send)

    async with anyio.create_task_group() as group:
        for number in range(10_000):
            group.start_soon(guess, number)
        await anyio.lowlevel.checkpoint()
        assert (await client.get("/v1/caller")).status_code == 200
    assert len(codes) == 10_000
    assert set(codes) == {401, 429}
    assert codes.count(401) < 1_000


async def test_a_websocket_is_refused(client):
    """There is nothing to be upgraded to."""
    app, sent = client._transport.app, []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    await app({"type": "websocket", "path": "/v1/events", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    "field",
    ["content", "actor", "key", "thread_id", "metadata"],
)
async def test_markup_in_every_field_comes_back_as_json(client, field):
    """Markup is data wherever it stands, and is never sent as a page."""
    evil = "<script>alert(1)</script>"
    body = {"content": "Ada sings.", field: {"k": evil} if field == "metadata" else evil}
    for answer in (
        await client.post("/v1/remember", json=body),
        await client.get("/v1/conversations"),
        await client.post("/v1/recall", json={"query": evil}),
        await client.get("/v1/memory", params={"id": evil}),
        await client.get(f"/v1/{evil}"),
    ):
        assert answer.headers["content-type"] in ("application/json", "application/problem+json")
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_megabyte_of_text_is_kept_whole(client):
    """One memory of a megabyte is stored, listed and found."""
    text = "Ada sings. " + "la " * 350_000 + "la."
    stored = (await client.post("/v1/memories", json={"text": text})).json()
    assert stored["text"] == text
    assert (await client.get("/v1/memory", params={"id": stored["id"]})).json() == stored


@pytest.mark.parametrize("content", [b"", b"[]", b"nothing", b'{"content": "\xff"}', b"{" * 10_000])
async def test_a_body_that_is_no_json_object_is_refused(client, content):
    """What cannot be read is told as a wrong argument; the service goes on."""
    kind = {"content-type": "application/json"}
    answer = await client.post("/v1/remember", content=content, headers=kind)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_half_a_surrogate_pair_is_answered(client):
    """Text that UTF-8 has no form for is cleaned, or told in ASCII."""
    kind = {"content-type": "application/json"}
    for path, body in (
        ("/v1/remember", b'{"content": "a\\ud800b", "metadata": {"k": "\\udfff"}}'),
        ("/v1/remember", b'{"content": "a", "thread_id": "\\ud800"}'),
        ("/v1/recall", b'{"query": "\\ud800"}'),
        ("/v1/remember", b'{"content": {"role": "\\ud800", "content": "x"}}'),
        ("/v1/remember", b'{"\\ud800": 1}'),
    ):
        answer = await client.post(path, content=body, headers=kind)
        assert answer.status_code in (200, 422), answer.text


@pytest.mark.slow
@pytest.mark.long
async def test_a_page_of_another_origin_reads_nothing_from_a_real_server(serve):
    """What a browser would send for such a page is refused, with and without the token."""
    server = serve()
    async with httpx.AsyncClient(base_url=server.url, timeout=LIMIT_S) as browser:
        for headers in ({}, server.headers):
            foreign = headers | {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}
            for method in ("GET", "POST", "OPTIONS", "DELETE"):
                answer = await browser.request(method, "/v1/repositories", headers=foreign)
                assert answer.status_code == 403
        rebound = await browser.get("/", headers={"host": f"evil.example:{server.url[-5:]}"})
        assert rebound.status_code == 421
        assert (await browser.get("/v1/events")).status_code == 401

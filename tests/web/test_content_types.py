"""JSON is answered and refused alike, whether or not its charset is named."""

import json

import pytest

PLAIN = {"content-type": "application/json"}
NAMED = {"content-type": "application/json; charset=utf-8"}

TAKEN = [
    ("/v1/remember", "", {"content": "Ada sings.", "key": "1", "at": "2026-03-02T09:00:00Z"}),
    ("/v1/recall", "?repo=default", {"query": "Who sings?", "k": 3}),
    ("/v1/search", "", {"query": "sings"}),
    ("/v1/memories/list", "", {"types": ["semantic"]}),
    ("/v1/forget", "", {"thread_id": "silent"}),
]
REFUSED = [
    ("/v1/remember", "", b'{"content": '),
    ("/v1/remember", "", b""),
    ("/v1/remember", "", b"[" * 100_000),
    ("/v1/remember", "", b'{"content": "x", "unknown": 1}'),
    ("/v1/recall", "", b'{"query": " "}'),
    ("/v1/recall", "?repo=", b'{"query": "x"}'),
    ("/v1/recall", "?repo=missing", b'{"query": "x"}'),
    ("/v1/recall", "?repo=default&repo=default", b'{"query": "x"}'),
    ("/v1/recall", "?other=1", b'{"query": "x"}'),
    ("/v1/memories/list", "", b'{"limit": "many"}'),
]


async def answers(client, path, content):
    """The answers without a charset and with one."""
    await client.post("/v1/remember", json={"content": "Ada sings.", "key": "1"})
    return [await client.post(path, content=content, headers=kind) for kind in (PLAIN, NAMED)]


def comparable(answer):
    """The body of *answer* without what changes from one call to the next: times, and age."""
    return without(answer.json(), {"trace", "score"})


def without(found, names):
    """*found* without the members called *names*, at any depth."""
    if isinstance(found, dict):
        return {name: without(one, names) for name, one in found.items() if name not in names}
    return [without(one, names) for one in found] if isinstance(found, list) else found


@pytest.mark.parametrize(("path", "query", "body"), TAKEN)
async def test_a_charset_changes_no_answer(client, path, query, body):
    """A well-formed call is answered alike, headers included."""
    plain, named = await answers(client, path + query, json.dumps(body).encode())
    assert (plain.status_code, named.status_code) == (200, 200)
    assert comparable(plain) == comparable(named)
    assert {*plain.headers} == {*named.headers}


@pytest.mark.parametrize(("path", "query", "content"), REFUSED)
async def test_a_charset_changes_no_refusal(client, path, query, content):
    """What is refused without one is refused with one, with the same problem document."""
    plain, named = await answers(client, path + query, content)
    assert plain.status_code == named.status_code
    assert comparable(plain) == comparable(named)


async def test_a_call_is_counted_under_its_route(client):
    """The metrics name the route."""
    await client.post("/v1/remember", json={"content": "Ada sings."})
    text = (await client.get("/metrics")).text
    assert 'mnemo_http_requests_total{route="/v1/remember",status="200"} 1' in text

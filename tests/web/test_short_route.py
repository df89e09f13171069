"""The short way through the service answers and refuses as FastAPI's own does."""

import json

import pytest

SHORT = {"content-type": "application/json"}
FULL = {"content-type": "application/json; charset=utf-8"}

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
    """The answers of the short way and of the full one."""
    await client.post("/v1/remember", json={"content": "Ada sings.", "key": "1"})
    return [await client.post(path, content=content, headers=kind) for kind in (SHORT, FULL)]


def comparable(answer):
    """The body of *answer* without what changes from one call to the next: times, and age."""
    return without(answer.json(), {"trace", "score"})


def without(found, names):
    """*found* without the members called *names*, at any depth."""
    if isinstance(found, dict):
        return {name: without(one, names) for name, one in found.items() if name not in names}
    return [without(one, names) for one in found] if isinstance(found, list) else found


@pytest.mark.parametrize(("path", "query", "body"), TAKEN)
async def test_both_ways_give_the_same_answer(client, path, query, body):
    """A well-formed call is answered alike, headers included, whichever way it took."""
    short, full = await answers(client, path + query, json.dumps(body).encode())
    assert (short.status_code, full.status_code) == (200, 200)
    assert comparable(short) == comparable(full)
    assert {*short.headers} == {*full.headers}


@pytest.mark.parametrize(("path", "query", "content"), REFUSED)
async def test_both_ways_refuse_alike(client, path, query, content):
    """What one way refuses the other does too, with the same problem document."""
    short, full = await answers(client, path + query, content)
    assert short.status_code == full.status_code
    assert comparable(short) == comparable(full)


async def test_the_short_way_is_taken(client, monkeypatch):
    """A plain call does not reach FastAPI's resolution, one with a further parameter does."""
    from fastapi import routing

    resolved = []
    solve = routing.solve_dependencies

    async def counted(**arguments):
        resolved.append(arguments["request"].url.path)
        return await solve(**arguments)

    monkeypatch.setattr(routing, "solve_dependencies", counted)
    await client.post("/v1/remember", json={"content": "Ada sings."})
    await client.post("/v1/search", json={"query": "sings"}, params={"other": "1"})
    assert resolved == ["/v1/search"]


async def test_a_call_of_the_short_way_is_counted_under_its_route(client):
    """The metrics name the route, whichever way a request took."""
    await client.post("/v1/remember", json={"content": "Ada sings."})
    text = (await client.get("/metrics")).text
    assert 'mnemo_http_requests_total{route="/v1/remember",status="200"} 1' in text

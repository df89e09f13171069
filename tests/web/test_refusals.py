"""What the service answers to requests that it cannot carry out, and how answers are sent."""

import json
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from inspector_kit import LIMIT_S

from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.web.app import GZIPPED_BYTES

pytestmark = pytest.mark.slow


@asynccontextmanager
async def called(serving):
    """A client of a server behind a socket."""
    async with (
        serving() as server,
        httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=LIMIT_S) as client,
    ):
        yield client


def reason(answer):
    """Status and reason of the problem document that *answer* must be."""
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    return answer.status_code, answer.json()["reason"]


async def test_a_mistyped_path_is_not_found_by_any_method(serving):
    """Nothing is redirected, nothing is a method's fault; without a token no path is told apart."""
    async with called(serving) as real:
        for path in (
            "/v1",
            "/v1/rememberr",
            "/v1/remember/",
            "/v1/session/clos",
            "/v1/names/more",
        ):
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"):
                answer = await real.request(method, path)
                assert answer.status_code == 404
                assert method == "HEAD" or reason(answer) == (404, "not_found")
        token = real.headers.pop("authorization")
        seen = {(await real.post(path)).text for path in ("/v1/rememberr", "/v1/remember", "/v1")}
        assert len(seen) == 1
        assert json.loads(seen.pop())["reason"] == "token_missing"
        real.headers["authorization"] = token


async def test_a_wrong_method_is_told_the_right_ones(serving):
    """``Allow`` names all methods of the path, also where two routes share it."""
    async with called(serving) as real:
        for path, allowed in {
            "/v1/remember": "POST",
            "/v1/memory": "GET, PATCH",
            "/v1/session": "DELETE, GET",
            "/v1/session/close": "POST",
            "/v1/note": "DELETE, GET, PUT",
            "/healthz": "GET",
            "/": "GET, HEAD",
        }.items():
            answer = await real.request("TRACE", path)
            assert reason(answer) == (405, "method_not_allowed")
            assert answer.headers["allow"] == allowed


async def test_an_unknown_memory_is_not_found(serving):
    """Also in a repository that is there."""
    async with called(serving) as real:
        await real.post("/v1/remember", json={"content": "Ada sings."})
        answer = await real.get("/v1/memory", params={"id": "nothing"})
        assert reason(answer) == (404, "not_found")
        assert answer.json()["error"] == "NotFound"


async def test_a_body_that_does_not_say_that_it_is_json_is_told_to(serving):
    """What ``curl -d`` sends by itself gives the header that is missing; an empty body does not."""
    async with called(serving) as real:
        body = json.dumps({"content": "Ada sings."})
        for kind in ("application/x-www-form-urlencoded", "text/plain", ""):
            answer = await real.post("/v1/remember", content=body, headers={"content-type": kind})
            assert reason(answer) == (415, "unsupported_media_type")
            assert "application/json" in answer.json()["detail"]
        for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON"):
            answer = await real.post("/v1/remember", content=body, headers={"content-type": kind})
            assert answer.status_code == 200
        assert reason(await real.post("/v1/remember")) == (422, "invalid_argument")
        kind = {"content-type": "application/json"}
        assert reason(await real.post("/v1/remember", content="[]", headers=kind))[0] == 422


async def test_long_answers_are_compressed_and_streams_are_not(serving):
    """Where the client takes it; a stream's events arrive one by one."""
    async with called(serving) as real:
        said = [{"role": "user", "content": f"message {n}"} for n in range(300)]
        where = {"thread": "desk"}
        await real.post("/v1/conversation/messages", params=where, json={"messages": said})
        path = "/v1/conversation/messages?thread=desk&limit=300"
        packed = await real.get(path)
        plain = await real.get(path, headers={"accept-encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < len(packed.content) / 4
        assert "content-encoding" not in plain.headers
        assert len(plain.content) > GZIPPED_BYTES
        assert packed.json() == plain.json()
        for answer in (packed, plain):
            assert "accept-encoding" in answer.headers["vary"].lower()
        short = await real.get("/v1/caller")
        assert "content-encoding" not in short.headers
        with anyio.fail_after(LIMIT_S):
            async with real.stream("GET", "/v1/events?repo=default") as stream:
                assert "content-encoding" not in stream.headers
                assert (await anext(stream.aiter_lines())).startswith(("id:", "event: ready"))


async def test_answers_say_how_long_they_may_be_kept(serving):
    """Those of the API not at all; files of the page are asked for again, and then not sent."""
    async with called(serving) as real:
        for path in ("/v1/caller", "/v1/nothing", "/metrics", "/v1/recall"):
            assert (await real.get(path)).headers["cache-control"] == "no-store"
        for path in ("/", "/app.js", "/vendor/marked.js", "/missing.js"):
            assert (await real.get(path)).headers["cache-control"] == "no-cache"
        page = await real.get("/app.js")
        again = await real.get("/app.js", headers={"if-none-match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("remember", {"content": ["Ada sings."]}),
        ("recall", {"query": "cello", "types": ["semantic"]}),
        ("memories/list", {"types": ["semantic"]}),
        ("forget", {"memory_ids": ["a"]}),
        ("conversation/messages?thread=t", {"messages": [{"role": "user", "content": "Hello."}]}),
        ("jobs/retry", {"thread_ids": ["t"]}),
    ],
)
async def test_a_list_of_more_than_a_thousand_is_refused(serving, path, body):
    """The bound of the library, and nothing is stored."""
    long = {
        name: value * (MOST_AT_ONCE + 1) if isinstance(value, list) else value
        for name, value in body.items()
    }
    async with called(serving) as real:
        await real.post("/v1/memories", json={"text": "Ada plays the cello."})
        assert reason(await real.post(f"/v1/{path}", json=long)) == (422, "invalid_argument")
        assert (await real.get("/v1/statistics")).json()["messages"] == 0

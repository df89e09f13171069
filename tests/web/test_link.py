"""Connections of the server before a token is known: long heads, silence, too many of them."""

import json
import socket
from contextlib import suppress
from functools import partial

import anyio
import httpx
import pytest
from inspector_kit import LIMIT_S

from mnemo import Repository
from mnemo.web import Limits
from mnemo.web import serving as web_serving
from mnemo.web.gate import HEAD_BYTES
from mnemo.web.serving import MOST_DISCARDED, MOST_WAITING, Link

pytestmark = pytest.mark.slow

LINE = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n"
HEAD = LINE + b"\r\n"
READ_AT_ONCE = 256 * 2**10
"""Bytes that asyncio reads from a socket at once."""
QUICK = Limits(head_s=0.05)


def stream_of(server):
    """A request whose answer does not end."""
    start = f"GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {server.token}"
    return start.encode() + b"\r\n\r\n"


async def to_end(link):
    """All that is received until the other side closes, or resets what is still sent to it."""
    parts = []
    with anyio.fail_after(LIMIT_S), suppress(anyio.BrokenResourceError):
        async for part in link:
            parts.append(part)  # noqa: PERF401  # kept, however it ends
    return b"".join(parts)


async def pour(link, start, part, *, pause_s=0.0):
    """Send *start*, then *part* again and again until the other side closes."""
    await link.send(start)
    with suppress(anyio.BrokenResourceError):
        while True:
            await link.send(part)
            await anyio.sleep(pause_s)


async def answer(server, *sent):
    """What a new connection receives in the end; it reads something between two of *sent*."""
    async with await anyio.connect_tcp("127.0.0.1", server.port) as link:
        await link.send(sent[0])
        for part in sent[1:]:
            await link.receive()
            await link.send(part)
        return await to_end(link)


async def counted(client, route):
    """The statuses of the requests of *route*, as soon as there are some."""
    with anyio.fail_after(LIMIT_S):
        while True:
            lines = (await client.get("/metrics")).text.splitlines()
            start = f'mnemo_http_requests_total{{route="{route}",status="'
            if found := [line.removeprefix(start)[:3] for line in lines if line.startswith(start)]:
                return found


def told(received):
    """Status and reason of the problem document that a connection ended with."""
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert "content-type: application/problem+json" in lines
    assert "connection: close" in [line.lower() for line in lines]
    assert "x-content-type-options: nosniff" in lines
    found = json.loads(body)
    assert found["status"] == int(lines[0].split()[1])
    return found["status"], found["reason"]


@pytest.mark.parametrize(
    "sent",
    [
        LINE + b"x: " + b"a" * 2 * HEAD_BYTES,
        LINE + b"x: " + b"a" * HEAD_BYTES + b"\r\n\r\n",
        LINE + b"x: 1\r\n" * (HEAD_BYTES // 3),
        LINE + b"x: 1\r\n" * (HEAD_BYTES // 5) + b"\r\n",
        b"GET /" + b"a" * 2 * HEAD_BYTES,
        b"GET /" + b"a" * HEAD_BYTES + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET /?" + b"a" * HEAD_BYTES + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        LINE + b"x" * 2 * HEAD_BYTES,
    ],
    ids=["line", "whole line", "lines", "whole lines", "path", "whole path", "query", "name"],
)
async def test_a_head_of_more_than_64_kib_is_refused(serving, sent):
    """One endless line, many lines, an endless path: 431 before a token is looked at."""
    async with serving() as server:
        assert told(await answer(server, sent)) == (431, "request_header_fields_too_large")


async def test_a_head_of_nearly_64_kib_is_served(serving):
    """A head may be long, and each of a connection anew."""
    sent = LINE + b"x: " + b"a" * (HEAD_BYTES - len(LINE) - 100) + b"\r\n"
    async with serving() as server:
        received = await answer(server, 3 * (sent + b"\r\n") + sent + b"connection: close\r\n\r\n")
    assert received.count(b"HTTP/1.1 200 OK") == 4


async def test_a_head_in_drops_is_counted_and_timed(serving):
    """Neither bytes nor seconds begin anew with each part of a head."""
    async with serving() as server, await anyio.connect_tcp("127.0.0.1", server.port) as link:
        for part in (LINE, *(HEAD_BYTES // 1_024) * [b"x: " + b"a" * 1_024 + b"\r\n"]):
            await link.send(part)
        assert told(await to_end(link))[0] == 431
    async with (
        serving(limits=Limits(head_s=1)) as server,  # as long it may take until it is read
        await anyio.connect_tcp("127.0.0.1", server.port) as link,
        anyio.create_task_group() as group,
    ):
        # In drops, of which a head's bytes would take minutes.
        group.start_soon(partial(pour, link, LINE, b"x", pause_s=0.005))
        assert told(await to_end(link)) == (408, "request_timeout")


async def test_four_hostile_connections_are_read_to_a_bound(serving, monkeypatch):
    """Endless headers, trailers and extensions of chunks: the server reads a bounded part."""
    read, parsed = dict[Link, int](), dict[Link, int]()
    take = Link.data_received

    def counted(self, data):
        read[self] = read.get(self, 0) + len(data)
        parsed[self] = parsed.get(self, 0) + len(data) * (not self._refused)
        take(self, data)

    monkeypatch.setattr(Link, "data_received", counted)
    chunked = b"POST /v1/recall HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n"
    starts = [LINE, LINE + b"x: ", chunked + b"\r\n0\r\n", chunked + b"\r\n1;"]

    async def flood(start):
        async with await anyio.connect_tcp("127.0.0.1", server.port) as link:
            await pour(link, start, (b"x: 1\r\n" if start.endswith(b"\n") else b"xxxxxx") * 10_000)

    async with serving() as server:
        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as group:
                for start in starts:
                    group.start_soon(flood, start)
    assert len(read) == 4
    assert max(parsed.values()) <= HEAD_BYTES + 2 * READ_AT_ONCE
    assert max(read.values()) <= MOST_DISCARDED + 2 * READ_AT_ONCE


async def test_silence_and_half_a_head_are_ended(serving):
    """A connection that says nothing is closed, one with half a head told why."""
    async with serving(limits=QUICK) as server:
        assert await answer(server, b"") == b""
        assert told(await answer(server, LINE)) == (408, "request_timeout")
        assert told(await answer(server, HEAD, LINE)) == (408, "request_timeout")
        received = await answer(server, HEAD + LINE)  # at once
        whole, _, half = received.partition(b"ok\n")
        assert whole.startswith(b"HTTP/1.1 200")
        assert told(half) == (408, "request_timeout")


async def test_a_body_that_nobody_reads_is_ended(serving):
    """What follows a refused request keeps its connection open for no longer than a head may."""
    refused = b"POST /v1/recall HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n"
    async with serving(limits=QUICK) as server:
        assert await answer(server, refused, b"x") == b""


async def test_what_is_no_http_is_told_so(serving):
    """Also within a body; the answer of a request that has begun is not mixed with it."""
    broken = b"POST /v1/recall HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n"
    async with serving() as server:
        token = f"authorization: Bearer {server.token}\r\n\r\n".encode()
        for sent in (b"nonsense\r\n\r\n", broken + token + b"nonsense\r\n"):
            assert told(await answer(server, sent)) == (400, "bad_request")
        async with await anyio.connect_tcp("127.0.0.1", server.port) as link:
            await link.send(stream_of(server))
            begun = await link.receive()
            await link.send(b"nonsense\r\n\r\n")
            rest = await to_end(link)
        assert begun.startswith(b"HTTP/1.1 200")
        assert b"HTTP/1.1" not in rest


async def test_a_request_that_came_whole_is_answered_whatever_follows_it(serving, memory):
    """What it did is told, and no further request is read from the connection."""
    body = b'{"content": "Ada sings."}'
    call = b"POST /v1/remember HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    async with serving() as server:
        token = f"authorization: Bearer {server.token}\r\n".encode()
        whole = call + token + b"content-length: %d\r\n\r\n" % len(body) + body
        for count in (1, 2):
            received = await answer(server, count * whole + b"nonsense\r\n\r\n")
            assert received.count(b"HTTP/1.1 200 OK") == received.count(b"HTTP/1.1") == count
            assert received.count(b"connection: close") == 1
    assert len(await memory.repo("default").conversation("default").history()) == 3


async def test_requests_that_wait_behind_another_are_bounded(serving, monkeypatch):
    """A client that sends on and on without reading an answer has its connection closed."""
    waiting, take = list[int](), Link.data_received

    def counted(self, data):
        take(self, data)
        waiting.append(len(self.pipeline))

    monkeypatch.setattr(Link, "data_received", counted)
    async with serving() as server:
        received = await answer(server, HEAD * (MOST_WAITING + 3))
        assert received.count(b"HTTP/1.1 200 OK") == MOST_WAITING + 1
        assert received.endswith(b"ok\n")
    assert max(waiting) == MOST_WAITING


@pytest.mark.parametrize("ending", ["in an answer", "by the client's wish", "between requests"])
async def test_a_client_that_reads_nothing_is_cut_off(serving, monkeypatch, ending):
    """It holds neither a request in progress nor a connection that is closed."""
    lost, made, lose = anyio.Event(), Link.connection_made, Link.connection_lost

    def opened(self, transport):
        made(self, transport)
        if ending != "in an answer":  # all is taken from the application at once
            transport.set_write_buffer_limits(high=2**30)

    def ended(self, error):
        lose(self, error)
        lost.set()

    monkeypatch.setattr(Link, "connection_made", opened)
    monkeypatch.setattr(Link, "connection_lost", ended)
    monkeypatch.setattr(web_serving, "IDLE_S", 0.05)
    large = b"GET /vendor/uplot.js HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    last = b"connection: close\r\n\r\n" if ending == "by the client's wish" else b"\r\n"
    async with serving(limits=Limits(unread_s=0.1)) as server:
        with socket.socket() as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            link.connect(("127.0.0.1", server.port))
            link.sendall(20 * (large + b"\r\n") + large + last)
            with anyio.fail_after(LIMIT_S):
                await lost.wait()


async def test_two_hosts_are_a_bad_request(serving):
    """Which of them counts would be anybody's guess."""
    async with serving() as server:
        for host in (b"127.0.0.1", b"evil.example"):
            received = await answer(
                server, LINE + b"connection: close\r\nhost: " + host + b"\r\n\r\n"
            )
            assert told(received) == (400, "bad_request")


async def test_the_oldest_idle_connection_makes_room(serving):
    """At nine tenths the one that is idle the longest goes; a stream is not idle."""
    async with serving(limits=Limits(connections=10)) as server:
        links = [await anyio.connect_tcp("127.0.0.1", server.port) for _ in range(9)]
        await links[0].send(stream_of(server))
        assert (await links[0].receive()).startswith(b"HTTP/1.1 200")
        await links[1].send(HEAD)
        assert (await links[1].receive()).startswith(b"HTTP/1.1 200")
        links.append(await anyio.connect_tcp("127.0.0.1", server.port))
        with pytest.raises(anyio.EndOfStream), anyio.fail_after(LIMIT_S):
            await links[2].receive()
        for link in (links[1], *links[3:]):
            await link.send(HEAD)
            assert (await link.receive()).startswith(b"HTTP/1.1 200")
        for link in links:
            await link.aclose()


async def test_more_connections_than_there_may_be_get_503(serving):
    """When all are busy, a further one is told so in a problem document."""
    mine = "https://page.example"
    async with serving(limits=Limits(connections=2), origins=[mine]) as server:
        links = []
        for _ in range(2):
            links.append(await anyio.connect_tcp("127.0.0.1", server.port))
            await links[-1].send(stream_of(server))
            assert (await links[-1].receive()).startswith(b"HTTP/1.1 200")
        async with httpx.AsyncClient(base_url=server.url, timeout=LIMIT_S) as client:
            answer = await client.get("/healthz", headers={"origin": mine})
            assert answer.status_code == 503
            assert answer.json()["reason"] == "too_many_connections"
            assert answer.headers["retry-after"] == "1"
            assert answer.headers["access-control-allow-origin"] == mine
        for link in links:
            await link.aclose()


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("recall", {"query": "cello"}),
        ("search", {"query": "cello"}),
        ("remember", {"content": "Ada sings."}),
        ("statistics", None),
    ],
)
async def test_a_client_that_leaves_ends_its_work(serving, memory, monkeypatch, call, body):
    """Nobody would read the answer: the call is cancelled, and the service goes on."""
    begun, ended = anyio.Event(), anyio.Event()

    async def hang(self, *given, **named):
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    await memory.open_repo()
    monkeypatch.setattr(Repository, call, hang)
    async with (
        serving() as server,
        httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=LIMIT_S) as client,
    ):
        async with anyio.create_task_group() as group:
            asked = ("GET", f"/v1/{call}") if body is None else ("POST", f"/v1/{call}")
            group.start_soon(partial(client.request, *asked, json=body))
            with anyio.fail_after(LIMIT_S):
                await begun.wait()
                group.cancel_scope.cancel()
        with anyio.fail_after(LIMIT_S):
            await ended.wait()
        monkeypatch.undo()
        assert await counted(client, f"/v1/{call}") == ["499"]


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8"])
async def test_a_client_that_leaves_in_its_body_is_counted(serving, kind):
    """Before anything of the call has begun, on the short way and on the full one."""
    head = f"POST /v1/recall HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {kind}\r\n"
    async with (
        serving() as server,
        httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=LIMIT_S) as client,
    ):
        async with await anyio.connect_tcp("127.0.0.1", server.port) as link:
            head += f"authorization: Bearer {server.token}\r\ncontent-length: 100\r\n\r\n{{"
            await link.send(head.encode())
            for _ in range(3):  # meanwhile the server waits for the rest
                assert (await client.get("/v1/caller")).status_code == 200
        assert await counted(client, "/v1/recall") == ["499"]

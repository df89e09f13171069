"""One server over HTTP: what is tried again, how long it waits, and how failures are told."""

import asyncio
import inspect
import json
import logging
import socket
import ssl
import subprocess
import sys
import threading
import time
import traceback
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
import scripted_faults as faults
from helpers import until
from http_doubles import KEY, Answers, Gate, HastyClock, ok, status
from pydantic import SecretStr

from mnemo.errors import (
    ConfigError,
    InvalidReply,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    RateLimited,
)
from mnemo.models import AnthropicChatModel, OpenAIChatModel, OpenAIEmbedder
from mnemo.models.failures import PASSING, retry_after
from mnemo.models.transport import INLINE_BYTES, Transport
from mnemo.prompts.semantic import STANDING
from mnemo.testing import ManualClock

BODY = {"model": "m", "input": ["tea"]}
URL = "http://127.0.0.1:9/v1"
CUT = httpx.Response(200, headers={"content-type": "application/json"}, content=b'{"a": ')


def sending(*answers: Any, **arguments: Any) -> tuple[Transport, Answers, HastyClock]:
    """A transport whose server gives *answers*, and whose waits take no time."""
    server, clock = Answers(*answers), HastyClock()
    given = {"transport": server, "clock": clock, **arguments}
    return Transport(URL, KEY, **given), server, clock


async def post(
    transport: Transport, path: str, body: Any, *, purpose: Any = None, timeout_s: Any = None
) -> Any:
    """Send with retries, and give the parsed answer."""
    return await transport.patiently(
        lambda: transport.send(path, body, timeout_s=timeout_s), purpose=purpose
    )


async def failing(*answers: Any, **arguments: Any) -> tuple[ModelError, Answers, HastyClock]:
    """The error that a transport ends with, given *answers*."""
    transport, server, clock = sending(*answers, **arguments)
    with pytest.raises(ModelError) as caught:
        await post(transport, "/x", BODY, purpose="semantic")
    await transport.aclose()
    return caught.value, server, clock


# ── What is tried again ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "failed",
    [
        *map(status, sorted(PASSING)),
        httpx.ConnectError("refused"),
        httpx.ReadError("reset"),
        httpx.RemoteProtocolError("peer closed"),
        httpx.ReadTimeout("slow"),
        OSError("no buffer space"),
        CUT,
        httpx.Response(200, headers={"content-type": "application/json"}, content=b"[" * 99_999),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_a_try_that_says_nothing_about_the_next_is_repeated(failed):
    """Overload, conflicts and limits pass; so do broken connections and JSON that is cut off."""
    transport, server, _ = sending(failed, ok({"a": 1}))
    assert await post(transport, "/x", BODY) == {"a": 1}
    assert len(server.requests) == 2
    await transport.aclose()


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (301, "is base_url right"),
        (400, "refused the request (400)"),
        (401, "give api_key="),
        (403, "give api_key="),
        (404, "does http://127.0.0.1:9/v1 serve model 'm', and is base_url right"),
        (413, "413"),
        (422, "422"),
        (501, "501"),
    ],
)
async def test_a_lasting_status_ends_the_call(code, advice):
    """Wrong base URL, refused key, unknown model: one request, and what to do about it."""
    error, server, _ = await failing(status(code, "not like this"))
    assert type(error) is ModelUnavailable
    assert (error.retryable, error.purpose) == (False, "semantic")
    assert advice in str(error)
    assert "not like this" in str(error)
    assert len(server.requests) == 1


async def test_a_missing_key_is_told_from_a_refused_one():
    """Without a key the server's 401 says that it wants one."""
    transport = Transport(URL, transport=Answers(status(401)))
    with pytest.raises(ModelUnavailable, match="wants a key and none was given"):
        await post(transport, "/x", BODY)
    await transport.aclose()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (status(503), ModelUnavailable),
        (status(500), ModelUnavailable),
        (status(429), RateLimited),
        (httpx.ReadError("reset"), ModelUnavailable),
        (CUT, ModelUnavailable),
    ],
    ids=["503", "500", "429", "reset", "truncated"],
)
async def test_tries_are_counted(fault, kind):
    """One try and as many more as max_retries, then the last failure, which may pass later."""
    error, server, clock = await failing(fault, max_retries=2)
    assert type(error) is kind
    assert error.retryable
    assert len(server.requests) == 3
    assert len(clock.slept) == 2
    assert error.__notes__ == ["after 3 tries"]


async def test_no_retries_is_one_try():
    """max_retries=0 asks once."""
    error, server, clock = await failing(status(503), max_retries=0)
    assert (type(error), len(server.requests), clock.slept) == (ModelUnavailable, 1, [])


async def test_waits_double_and_have_jitter():
    """Half a second, one, two and four, each with up to half a second of chance on top."""
    _, _, clock = await failing(status(500), max_retries=4)
    for wait, least in zip(clock.slept, (0.5, 1, 2, 4), strict=True):
        assert least <= wait <= least + 0.5
    _, _, other = await failing(status(500), max_retries=4)
    assert other.slept != clock.slept


async def test_a_time_out_is_tried_once_more_only():
    """Each try has taken all the time that the caller allowed."""
    error, server, _ = await failing(httpx.ReadTimeout("slow"), max_retries=5)
    assert type(error) is ModelTimeout
    assert error.retryable
    assert len(server.requests) == 2


async def test_nothing_listens_is_told_as_such():
    """A refused connection asks whether the server is running."""
    with socket_without_listener() as url:
        transport = Transport(url, max_retries=0)
        with pytest.raises(ModelUnavailable, match=f"is the server running at {url}") as caught:
            await post(transport, "/x", BODY, purpose="plan")
        await transport.aclose()
    assert caught.value.retryable


def raised_for(cause: Exception) -> httpx.ConnectError:
    """The client's own error, as it is when *cause* is behind it."""
    error = httpx.ConnectError(str(cause))
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "advice", "retryable"),
    [
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), "is it https that this server", False),
        (ssl.SSLCertVerificationError(1, "self-signed"), "that this machine trusts", False),
        (ssl.SSLEOFError(8, "EOF occurred"), "no secure connection", True),
        (socket.gaierror(-2, "Name or service not known"), "is its name right", True),
        (OSError("refused"), "is the server running at", True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_what_keeps_from_connecting_is_told_apart(cause, advice, retryable):
    """https for http, a distrusted certificate, a misspelt host: none is a server that is down."""
    error, server, _ = await failing(*[raised_for(cause)] * 4)
    assert advice in str(error)
    assert error.retryable is retryable
    assert len(server.requests) == (4 if retryable else 1)


async def test_https_to_a_server_without_it_is_told_at_once(server):
    """A plain server's answer to the greeting is recognised on real sockets."""
    transport = Transport(server.url.replace("http://", "https://"))
    with pytest.raises(ModelUnavailable, match="is it https that this server speaks") as caught:
        await post(transport, "/x", BODY)
    await transport.aclose()
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("base_url", "hint"),
    [
        ("http://127.0.0.1:9", "With most servers it ends with /v1"),
        ("http://127.0.0.1:9/v1/chat/completions", "It ends before what each request adds"),
    ],
)
async def test_an_unknown_path_says_what_a_base_url_looks_like(base_url, hint):
    """A missing /v1 and a whole address of an endpoint are named where the server says 404."""
    transport = Transport(base_url, transport=Answers(status(404)))
    with pytest.raises(ModelUnavailable, match=hint):
        await post(transport, "/x", BODY)
    await transport.aclose()


def socket_without_listener() -> Any:
    import contextlib

    @contextlib.contextmanager
    def bound() -> Any:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"

    return bound()


# ── Retry-After ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["seconds", "date"])
@pytest.mark.parametrize("code", [429, 503])
async def test_retry_after_is_honoured(form, code):
    """The next try comes when the server said, in seconds or as a date, and not before."""
    clock = ManualClock()
    date = format_datetime(clock.now() + timedelta(seconds=20), usegmt=True)
    server = Answers(status(code, retry_after="20" if form == "seconds" else date), ok({"a": 1}))
    transport = Transport(URL, transport=server, clock=clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(post, transport, "/x", BODY)
        await until(lambda: len(server.requests) == 1)
        await clock.advance(0)
        await clock.advance(19)
        assert len(server.requests) == 1
        await clock.advance(1)
        await until(lambda: len(server.requests) == 2)
    await transport.aclose()


@pytest.mark.parametrize("code", [429, 503, 529])
async def test_too_long_a_retry_after_is_no_wait_at_all(code):
    """Asked for more than max_wait_s, the caller learns it at once, with the number."""
    error, server, clock = await failing(status(code, retry_after="61"), max_wait_s=60)
    assert type(error) is RateLimited
    assert error.retry_after_s == 61
    assert "max_wait_s" in str(error)
    assert (len(server.requests), clock.slept) == (1, [])


async def test_waits_add_up_to_max_wait():
    """What is left of max_wait_s counts, not the whole of it."""
    error, server, clock = await failing(status(503, retry_after="25"), max_wait_s=60)
    assert type(error) is RateLimited
    assert clock.slept == [25, 25]
    assert len(server.requests) == 3


async def test_a_last_rate_limit_tells_what_the_server_asked_for():
    """The tries are over, but not the patience: the error carries Retry-After."""
    error, _, clock = await failing(status(429, retry_after="2"), max_retries=1)
    assert isinstance(error, RateLimited)
    assert (error.retry_after_s, clock.slept) == (2, [2])


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 01 Jan 2024 00:00:09 GMT"}, 9),
        ({"retry-after": "Mon, 01 Jan 2024 01:00:00 +0100"}, 0),
        ({"retry-after": "Sun, 31 Dec 2023 00:00:00 GMT"}, 0),
        ({"retry-after": "Mon, 99 Jan 2024 00:00:00 GMT"}, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
    ],
)
def test_retry_after_is_read_or_ignored(headers, seconds):
    """Seconds, a date, or nothing that can be understood."""
    assert retry_after(headers, ManualClock().now()) == seconds


# ── Bounds ───────────────────────────────────────────────────────────────────────────


DRIPS_S = 10
"""Seconds that are longer than a try of a tenth, and shorter than the slow reply."""


@pytest.mark.parametrize("fault", [faults.NEVER_ANSWERS, faults.SLOW_DRIP], ids=lambda f: f.name)
async def test_a_try_is_bounded_as_a_whole(server, fault):
    """Bytes that drip in slowly do not keep a try alive; the connection is closed."""
    server.fail(fault)
    transport = Transport(f"{server.url}/v1", max_retries=0)
    began = time.perf_counter()
    with pytest.raises(ModelTimeout, match=r"within 0\.1 s"):
        await post(transport, "/embeddings", BODY, timeout_s=0.1)
    assert time.perf_counter() - began < DRIPS_S
    await server.until(lambda: server.connections == 0)
    await transport.aclose()


async def test_waiting_for_a_turn_is_no_part_of_a_try():
    """A request that waits its turn longer than timeout_s is not late."""
    gate = Gate({"a": 1})
    transport = Transport(URL, transport=gate, max_concurrency=1)
    answers = []

    async def ask(timeout_s: float) -> None:
        answers.append(await post(transport, "/x", BODY, timeout_s=timeout_s))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, 5.0)
        await until(lambda: gate.inside == 1)
        tasks.start_soon(ask, 0.01)
        await anyio.sleep(0.05)
        gate.opened.set()
    assert answers == [{"a": 1}] * 2
    await transport.aclose()


async def test_no_more_requests_than_allowed_at_once():
    """The limit of concurrency is met and kept."""
    gate = Gate({})
    transport = Transport(URL, transport=gate, max_concurrency=3)
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(post, transport, "/x", BODY)
        await until(lambda: gate.inside == 3)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert gate.inside == 3
        gate.opened.set()
    assert gate.most_inside == 3
    await transport.aclose()


async def test_a_wait_between_tries_leaves_its_turn_to_others():
    """A server that asks one caller for patience does not hold up the next one."""
    clock = ManualClock()
    server = Answers(status(429, retry_after="30"), ok({"a": 1}))
    transport = Transport(URL, transport=server, clock=clock, max_concurrency=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(post, transport, "/x", BODY)
        await until(lambda: len(server.requests) == 1)
        assert await post(transport, "/x", BODY) == {"a": 1}
        await clock.advance(30)
    assert len(server.requests) == 3
    await transport.aclose()


async def test_far_too_long_a_reply_is_not_read_to_its_end(server):
    """5 MB of text: an InvalidReply with its beginning, after one request."""
    server.script("semantic", {"facts": []})
    server.fail(faults.FIVE_MEGABYTES)
    transport = Transport(f"{server.url}/v1")
    body = {"model": "m", "messages": [{"role": "system", "content": STANDING}]}
    with pytest.raises(InvalidReply, match="longer than 786,432 bytes") as caught:
        await post(transport, "/chat/completions", body)
    assert 0 < len(caught.value.raw) <= 2_000
    assert len(server.requests) == 1
    await server.until(lambda: server.connections == 0)
    await transport.aclose()


async def test_a_page_instead_of_json_asks_for_the_base_url():
    """A wrong base URL often answers 200 with a web page; that is not tried again."""
    page = httpx.Response(200, html="<h1>Welcome</h1>")
    error, server, _ = await failing(page)
    assert type(error) is ModelUnavailable
    assert not error.retryable
    assert "is base_url right? it answered with text/html" in str(error)
    assert len(server.requests) == 1


async def test_an_error_page_is_not_quoted():
    """Markup says nothing to a reader of logs."""
    error, _, _ = await failing(httpx.Response(502, html="<h1>Bad gateway</h1>"), max_retries=0)
    assert "<" not in str(error)


async def test_long_json_is_read_in_another_thread(monkeypatch):
    """The event loop never parses more than 64 kB."""
    threads = {}
    loads = json.loads

    def noting(payload: Any, **rest: Any) -> Any:
        threads[len(payload) > INLINE_BYTES] = threading.get_ident()
        return loads(payload, **rest)

    transport, _, _ = sending(ok({"a": "x" * INLINE_BYTES}), ok({"a": 1}))
    monkeypatch.setattr(json, "loads", noting)
    await post(transport, "/x", BODY)
    await post(transport, "/x", BODY)
    assert threads[True] != threads[False] == threading.get_ident()
    await transport.aclose()


# ── Cancelling and closing ───────────────────────────────────────────────────────────


async def test_cancelling_at_every_turn_leaves_nothing_behind(server):
    """Whenever a call is given up, its slot is free again and its connection closed."""
    transport = Transport(f"{server.url}/v1", max_concurrency=1)
    await post(transport, "/embeddings", BODY)
    for turns in range(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post, transport, "/embeddings", BODY)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    with anyio.fail_after(120):
        await post(transport, "/embeddings", BODY)
    await transport.aclose()
    await server.until(lambda: server.connections == 0)


async def test_connections_are_kept_until_closed(server):
    """Calls one after the other share a connection; closing ends it, twice does no harm."""
    transport = Transport(f"{server.url}/v1")
    for _ in range(3):
        await post(transport, "/embeddings", BODY)
    assert server.connections == 1
    await transport.aclose()
    await transport.aclose()
    await server.until(lambda: server.connections == 0)


async def test_a_closed_transport_opens_again(server):
    """Closing says that nothing is wanted now, not that nothing ever will be."""
    transport = Transport(f"{server.url}/v1")
    await transport.aclose()
    for _ in range(2):
        assert (await post(transport, "/embeddings", BODY))["data"]
        await transport.aclose()
    await server.until(lambda: server.connections == 0)


async def test_closing_lets_requests_in_flight_end(server):
    """Another user's request is answered; its connection is closed afterwards."""
    server.fail(faults.delayed(0.05))
    transport = Transport(f"{server.url}/v1")
    answers = []

    async def ask() -> None:
        answers.append(await post(transport, "/embeddings", BODY))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await server.until(lambda: server.in_flight == 1)
        await transport.aclose()
        assert answers == []
    assert answers[0]["data"]
    await server.until(lambda: server.connections == 0)


def test_another_event_loop_gets_a_client_of_its_own(server):
    """A transport outlives the loop it was first used on."""
    transport = Transport(f"{server.url}/v1")

    async def use() -> None:
        await post(transport, "/embeddings", BODY)
        await transport.aclose()

    for _ in range(2):
        asyncio.run(use())
    assert len(server.requests) == 2


async def test_no_proxy_stands_before_this_machine(server, monkeypatch):
    """A proxy of the environment is not asked for a server on loopback."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    transport = Transport(f"{server.url}/v1", max_retries=0)
    assert (await post(transport, "/embeddings", BODY))["data"]
    await transport.aclose()


async def test_an_unusable_proxy_is_a_typed_error(monkeypatch):
    """What the environment says of proxies is read by the first request, and may be nonsense."""
    monkeypatch.setenv("ALL_PROXY", "gopher://me:hush-hush@127.0.0.1:9")
    transport = Transport("https://api.example.com/v1")
    with pytest.raises(ModelUnavailable, match="environment's proxies") as caught:
        await post(transport, "/x", BODY)
    assert not caught.value.retryable
    assert "hush" not in str(caught.value)
    await transport.aclose()


@pytest.mark.slow
def test_importing_models_brings_nothing_heavy():
    """httpx and tenacity are imported by the first request."""
    probe = (
        "import sys, mnemo.models; print([m for m in ('httpx', 'tenacity') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


# ── Secrets ──────────────────────────────────────────────────────────────────────────

LEAKS = [
    status(401, f"Incorrect API key provided: {KEY}."),
    status(401, f"Incorrect API key provided: {KEY[:8]}********{KEY[-4:]}."),
    status(400, f"what is {KEY[5:20]} meant to be"),
    status(500, "the header X-Team: team-secret-value is odd"),
    httpx.Response(200, text=f"key={KEY}", headers={"content-type": f"text/{KEY}"}),
    httpx.Response(400, text=json.dumps({"request": {"headers": {"authorization": KEY}}})),
    httpx.ConnectError(f"proxy http://me:{KEY}@proxy refused"),
    httpx.LocalProtocolError(f"Illegal header value b'Bearer {KEY}'"),
]


@pytest.mark.parametrize("leak", LEAKS, ids=range(len(LEAKS)))
async def test_no_secret_is_in_an_error(leak, caplog):
    """Not in its text, its traceback, its causes, nor in any log, whatever a server echoes."""
    caplog.set_level(logging.DEBUG)
    error, server, _ = await failing(leak, headers={"X-Team": SecretStr("team-secret-value")})
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].headers["x-team"] == "team-secret-value"
    frames = error.__traceback__ and error.__traceback__.tb_next
    told = traceback.TracebackException(type(error), error, frames, capture_locals=True).format()
    for text in (str(error), repr(error), repr(vars(error)), "".join(told), caplog.text):
        assert not shares(text)
    assert error.__cause__ is None
    assert error.__context__ is None


async def test_a_real_connection_logs_no_secret(server, caplog):
    """Nor do the packages underneath, on their most talkative level."""
    caplog.set_level(logging.DEBUG)
    server.keys = {"another"}
    transport = Transport(f"{server.url}/v1", KEY)
    with pytest.raises(ModelUnavailable):
        await post(transport, "/embeddings", BODY)
    assert "POST" in caplog.text
    assert not shares(caplog.text)
    assert not shares(f"{transport!r} {transport} {vars(transport)}")
    await transport.aclose()


def shares(text: str) -> bool:
    """Whether eight characters in a row of a secret are in *text*, or both ends of the key."""
    parts = [s[i : i + 8] for s in (KEY, "team-secret-value") for i in range(len(s) - 7)]
    return any(part in text for part in parts) or KEY[-4:] in text


async def test_an_invalid_reply_shows_no_secret():
    """The raw text of a reply is scrubbed, too."""
    long = httpx.Response(200, text=KEY * 200_000, headers={"content-type": "application/json"})
    error, _, _ = await failing(long)
    assert isinstance(error, InvalidReply)
    assert not shares(error.raw)


# ── Arguments ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base_url": ""}, "base_url is blank"),
        ({"base_url": " "}, "base_url is blank"),
        ({"base_url": None}, "base_url is blank"),
        ({"base_url": "localhost:8000"}, "must begin with http"),
        ({"base_url": "ftp://x/v1"}, "must begin with http"),
        ({"base_url": "http:///v1"}, "must begin with http"),
        ({"base_url": "http://x:99999/v1"}, "cannot be read"),
        ({"base_url": "http://me:hush-hush@x/v1"}, "must not carry a user or password"),
        ({"base_url": "http://x/v1?key=hush-hush"}, "must end with its path"),
        ({"api_key": "hush-hush\nX: y"}, "api_key"),
        ({"api_key": "hush-hush ü"}, "api_key"),
        ({"api_key": 7}, "api_key must be a text"),
        ({"headers": {"X Y": "hush-hush"}}, "headers: 'X Y'"),
        ({"headers": {"X": "hush-hush\r\nY: z"}}, "headers: the value of 'X'"),
        ({"timeout_s": 0}, "timeout_s must be a number above 0"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"timeout_s": "5"}, "timeout_s"),
        ({"max_retries": -1}, "max_retries must be a whole number at least 0"),
        ({"max_retries": 1.5}, "max_retries"),
        ({"max_wait_s": -1}, "max_wait_s"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_concurrency": True}, "max_concurrency"),
        ({"requests_per_minute": 0}, "requests_per_minute"),
        ({"tokens_per_minute": -5}, "tokens_per_minute"),
    ],
)
def test_a_bad_argument_is_refused(arguments, message):
    """Each is refused before anything is opened, by name and without a secret."""
    given = {"base_url": "http://x/v1", **arguments}
    with pytest.raises(ConfigError, match=message) as caught:
        Transport(given.pop("base_url"), given.pop("api_key", None), **given)
    assert "hush" not in str(caught.value)
    assert caught.value.__context__ is None or "hush" not in str(caught.value.__context__)


@pytest.mark.parametrize(
    ("base_url", "server"),
    [
        ("http://localhost:8000/v1/", ("localhost", 8000)),
        ("https://api.example.com/v1", ("api.example.com", 443)),
        (" http://[::1]/v1 ", ("::1", 80)),
    ],
)
def test_the_server_is_known_by_host_and_port(base_url, server):
    """Telemetry names it; the slash at the end of an address does not matter."""
    transport = Transport(base_url)
    assert transport.server == server
    assert transport.endpoint.url.endswith("/v1")


async def test_a_blank_key_is_none_and_blanks_around_one_are_cut():
    """Keys come from environments and files, which add line ends."""
    for given, sent in (("  ", None), (SecretStr(""), None), (f"{KEY}\n", f"Bearer {KEY}")):
        server = Answers(ok({}))
        transport = Transport(URL, given, transport=server)
        await post(transport, "/x", BODY)
        assert server.requests[0].headers.get("authorization") == sent
        await transport.aclose()


async def test_a_header_of_the_user_replaces_ours():
    """Gateways want their own authorization, once."""
    server = Answers(ok({}))
    transport = Transport(URL, KEY, headers={"authorization": "Basic abc"}, transport=server)
    await post(transport, "/x", BODY)
    assert server.requests[0].headers.get_list("authorization") == ["Basic abc"]
    await transport.aclose()


@pytest.mark.parametrize(
    ("kind", "own"),
    [(OpenAIChatModel, {}), (AnthropicChatModel, {}), (OpenAIEmbedder, {"dimensions": 2})],
)
def test_a_model_shows_its_settings_and_refuses_others(kind, own):
    """``help`` lists them with their defaults; a name that is none of them is told by the model."""
    shown = inspect.signature(kind).parameters
    assert "http" not in shown
    assert shown["max_retries"].default == 3
    with pytest.raises(TypeError, match=rf"^{kind.__name__}: .*'max_tries'"):
        kind(base_url=URL, model="m", api_key=KEY, **own, max_tries=1)

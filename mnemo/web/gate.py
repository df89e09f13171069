"""The gate before the application: Host, Origin, tokens, rates, slow bodies, headers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import anyio
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mnemo.recall.recall_log import CALLER
from mnemo.runtime.board import Board
from mnemo.runtime.clock import Bucket, SystemClock
from mnemo.web.access import Tokens, taken
from mnemo.web.logs import REQUEST, Request
from mnemo.web.metrics import Metrics
from mnemo.web.peers import INSIDE, Peers
from mnemo.web.problems import problem

MOST_PER_TURN = 8
"""Requests that begin in one turn of the loop, at most (S)."""


class Turnstile:
    """
    Lets requests begin in the order in which they came, a few in each turn of the loop.

    Many that arrive together would else all run before the loop looks at anything else:
    200 of them hold it for a tenth of a second, and the answers of others wait behind them.
    """

    def __init__(self) -> None:
        self._places = anyio.Semaphore(MOST_PER_TURN, fast_acquire=True)

    async def passed(self) -> None:
        """Wait for a place in a turn. *Cancellation*: safe; the place goes to the next."""
        await self._places.acquire()
        asyncio.get_running_loop().call_soon(self._places.release)


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Host names under which a service on this machine is called."""
GUARDED = ("/v1", "/metrics", "/mcp")
UNDER_GUARDED = tuple(f"{path}/" for path in GUARDED)
HEAD_BYTES = 64 * 2**10
"""Bytes of a request's first line and headers together, at most (S)."""
LINK = "mnemo.link"
"""Key of a request's scope: the ``serving.Link`` that it came by, in mnemo's own server."""
BODY_BYTES = 16 * 2**20
"""Bytes of a request's body, at most (S)."""
ARCHIVES = "/v1/repository/import"
"""The path whose bodies are streamed."""
ARCHIVE_BYTES = 16 * 2**30
"""Bytes of an archive that is imported, at most (S)."""
BODY_S = 20.0
"""Seconds within which the body of a request, or the next part of an archive, must arrive (S)."""
WRONG_PER_S = 10.0
"""Wrong tokens per second that are answered at once; the answers to others wait (S)."""
LONGEST_WAIT_S = 2.0
"""Seconds that such an answer waits, at most (S)."""
MOST_WAITING = 64
"""Such answers that may wait at once; further requests without a known token get 429 (S)."""

CORS_SENT = (
    "authorization",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
)
"""Headers that pages of the allowed origins may send."""
CORS_READ = ("allow", "mcp-session-id", "retry-after", "www-authenticate", "x-request-id")
"""Headers of answers that such pages may read, beside those that any may."""

ASK = {"WWW-Authenticate": 'Bearer realm="mnemo"'}
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_ADDED = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
ADDED_IN_PUBLIC = [*_ADDED, (b"cache-control", b"no-cache")]
ADDED_IN_PRIVATE = [*_ADDED, (b"cache-control", b"no-store")]
"""What the API answers is not kept; a file of the page is asked for again (ETag) each time."""


class Gate:
    """ASGI middleware that lets pass what may reach the application; arguments: as ``web_app``."""

    def __init__(
        self,
        app: FastAPI,
        *,
        hosts: Sequence[str] = LOOPBACK,
        origins: Sequence[str] = (),
    ) -> None:
        self.app = app
        self._tokens: Tokens = app.state.tokens
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)
        self._board: Board = app.state.board
        state = self._board.numbers("wrong tokens", 2)
        self._wrong = Bucket(60 * WRONG_PER_S, size=2 * WRONG_PER_S, state=state)
        self._waiting = 0
        self._turnstile = Turnstile()
        self._metrics: Metrics = app.state.metrics
        self._peers: Peers = app.state.peers
        self._behind: ASGIApp = self._admit
        if origins:  # outside of what refuses: a page can read why it was refused, too
            self._behind = CORSMiddleware(
                self._admit,
                allow_origins=origins,
                allow_methods=["*"],
                allow_headers=CORS_SENT,
                expose_headers=CORS_READ,
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        root = scope.get("root_path", "")
        if root and scope["path"].startswith(root):  # mounted: paths are told apart from here on
            scope = {**scope, "path": scope["path"].removeprefix(root) or "/", "root_path": ""}
        if self._peers.is_inside(scope):
            scope[INSIDE] = True
        link = scope.get(LINK)
        with anyio.CancelScope() as work:
            if link is not None:
                link.carries(work)
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, is_inside = Request(), INSIDE in scope
        if is_inside:
            request.id = Headers(scope=scope).get("x-request-id", request.id)
        REQUEST.set(request)
        try:
            with request.phase("turn"):
                await self._turnstile.passed()
            answer = _sender(send, request, private=is_guarded(scope["path"]))
            behind = self._foreign(Headers(scope=scope)) or self._behind
            await behind(scope, receive, answer)
        finally:
            if not is_inside:  # it is told where it came in, and counted there
                request.told(scope)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        refusal = _crowded(scope) or _too_long(scope) or _too_large(scope, headers)
        if refusal is None and is_guarded(scope["path"]):
            refusal = await self._unauthorized(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if INSIDE in scope:
            await self.app(scope, _bounded(scope, receive), send)
            return
        with self._metrics.timed(scope, send) as counted:
            await self.app(scope, _bounded(scope, receive), counted)

    def _foreign(self, headers: Headers) -> Response | None:
        """Refuse another name of this machine (DNS rebinding), and pages of other origins."""
        host = headers.get("host", "")
        if len(headers.getlist("host")) > 1:
            return problem(400, "bad_request", "a request has one Host header")
        if "*" not in self._hosts and _name_of(host) not in self._hosts:
            return problem(421, "wrong_host", "the service is not called by this name here")
        origin = headers.get("origin")
        if origin is None or origin in self._origins:
            return None
        if origin.partition("://")[2].lower() != host.lower():
            return problem(403, "foreign_origin", "pages of this origin may not call the service")
        return None

    async def _unauthorized(self, scope: Scope, headers: Headers) -> Response | None:
        """Find the token of the request and take from its rate; a problem where that fails."""
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        token = self._tokens.find(secret.strip()) if scheme.lower() == "bearer" else None
        if token is None:
            return await self._wrong_token(is_given=bool(scheme))
        now, use = self._tokens.now(), self._tokens.used[token.name]
        if token.expires is not None and token.expires <= now:
            return problem(
                401, "token_expired", f"this token ended at {token.expires}", headers=ASK
            )
        wait_s = 0.0 if INSIDE in scope else use.taken(now.timestamp())
        if wait_s:
            return _too_many("rate_limited", "this token's rate is used up", wait_s)
        scope.setdefault("state", {})["token"] = token
        CALLER.set(token.name)
        if request := REQUEST.get():
            request.token, request.use = token, use
        return None

    async def _wrong_token(self, *, is_given: bool) -> Response:
        if not is_given:
            return problem(401, "token_missing", "send Authorization: Bearer …", headers=ASK)
        with self._board:
            wait_s = taken(self._wrong)
        if wait_s and self._waiting >= MOST_WAITING:
            return _too_many("too_many_wrong_tokens", "too many wrong tokens", LONGEST_WAIT_S)
        if wait_s:
            self._waiting += 1
            try:
                await anyio.sleep(LONGEST_WAIT_S)
            finally:
                self._waiting -= 1
        return problem(401, "token_unknown", "this token is not known here", headers=ASK)


def _too_many(reason: str, detail: str, wait_s: float) -> Response:
    return problem(429, reason, detail, headers={"Retry-After": str(max(1, round(wait_s)))})


def is_guarded(path: str) -> bool:
    """Whether *path* needs a token, also where nothing is."""
    # The pattern of a route matches before a line end at the end of a path, too.
    return path.removesuffix("\n") in GUARDED or path.startswith(UNDER_GUARDED)


def _name_of(host: str) -> str:
    """The host without its port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _sender(send: Send, request: Request, *, private: bool) -> Send:
    """Add the security headers to every response, in place of what it has of them; and its id."""
    added = ADDED_IN_PRIVATE if private else ADDED_IN_PUBLIC
    replaced = {name for name, _ in added}
    own = (b"x-request-id", request.id.encode())

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message["headers"] if pair[0].lower() not in replaced]
            message["headers"] = [*kept, *added, own]
            request.status = message["status"]
        request.bytes += len(message.get("body", b""))
        await send(message)

    return sent


def _crowded(scope: Scope) -> Response | None:
    link = scope.get(LINK)
    if link is None or not link.is_crowded:
        return None
    return problem(
        503, "too_many_connections", "too many connections are open", headers={"Retry-After": "1"}
    )


def too_long_a_head() -> Response:
    """The refusal of a request whose head has more than ``HEAD_BYTES``."""
    detail = f"the first line and the headers have at most {HEAD_BYTES} bytes together"
    headers = {"Connection": "close"}
    return problem(431, "request_header_fields_too_large", detail, headers=headers)


def _too_long(scope: Scope) -> Response | None:
    sizes = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if sizes + len(scope["path"]) + len(scope.get("query_string", b"")) <= HEAD_BYTES:
        return None
    return too_long_a_head()


def _most_bytes(scope: Scope) -> int:
    return ARCHIVE_BYTES if scope["path"] == ARCHIVES else BODY_BYTES


def _too_large(scope: Scope, headers: Headers) -> Response | None:
    announced, most = headers.get("content-length", "0"), _most_bytes(scope)
    if announced.isdecimal() and int(announced[:20]) <= most:
        return None
    detail = f"a body has at most {most} bytes"
    return problem(413, "content_too_large", detail, headers={"Connection": "close"})


def _bounded(scope: Scope, receive: Receive) -> Receive:
    """Receive a bounded body within ``BODY_S``, an archive part by part; else end with 413, 408."""
    clock, most = SystemClock(), _most_bytes(scope)
    end, complete, arrived = clock.monotonic() + BODY_S, False, 0

    async def received() -> Any:
        nonlocal complete, arrived, end
        if complete:
            return await receive()
        if most == ARCHIVE_BYTES:
            end = clock.monotonic() + BODY_S
        with anyio.move_on_after(end - clock.monotonic()):
            message = await receive()
            arrived += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if arrived > most:
                detail = f"a body has at most {most} bytes"
                raise HTTPException(413, detail, {"Connection": "close"})
            return message
        raise HTTPException(408, "the body took too long", {"Connection": "close"})

    return received

"""The application of the HTTP service: its routes, a short way past FastAPI, MCP, files."""

from __future__ import annotations

import json
import typing
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mnemo import Mnemo, Repository, SessionBusy, __version__
from mnemo.exchange import adapter
from mnemo.runtime.board import Board
from mnemo.web import curves
from mnemo.web.access import (
    LONGEST_ID,
    OpenRepositories,
    Readable,
    Token,
    Tokens,
    Writable,
    visited,
)
from mnemo.web.curves import Recorder
from mnemo.web.document import completed
from mnemo.web.gate import LOOPBACK, Gate, is_guarded
from mnemo.web.live import Live
from mnemo.web.logs import audit_tool
from mnemo.web.metrics import Metrics
from mnemo.web.peers import Peers, Worker, held_elsewhere
from mnemo.web.problems import add_handlers
from mnemo.web.routes import ROUTERS
from mnemo.web.routes.archives import Streams

MOST_THREAD = 512
"""Characters of a thread's id."""


class McpEndpoint:
    """
    An ASGI application: ``/mcp?repo=R&thread=T`` is an MCP server of that repository. Each request
    has a server of its own, so nothing is kept between two of them, and no session can be taken
    over or run out. A token that may only read is offered the reading tools.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method != "POST":
            # Without sessions there is no stream of its own to open, and no session to end.
            raise HTTPException(405, "send MCP messages with POST", {"Allow": "POST"})
        thread_id = request.query_params.get("thread", "default")
        if not 0 < len(thread_id) <= MOST_THREAD:
            raise ValueError(f"thread must have 1 to {MOST_THREAD} characters")
        token: Token = request.state.token
        may_write = token.may("write")
        repo_id = request.query_params.get("repo", "default")
        async with visited(request, repo_id, make=may_write) as repo:
            try:
                memory_server, settings = await anyio.to_thread.run_sync(_imported)
            except ImportError as error:
                raise HTTPException(501, str(error)) from error
            content = await request.body()
            audit_tool(repo.id, content)
            receive = _again(content, receive)
            server = memory_server(
                repo, thread_id=thread_id, write=may_write, read_only=not may_write
            )
            app = server.streamable_http_app(stateless_http=True, transport_security=settings)
            async with server.session_manager.run():
                await app(scope, receive, send)


def _imported() -> tuple[Any, Any]:
    """What the extra ``[mcp]`` brings; Host and Origin were checked by the gate."""
    from mcp.server.transport_security import TransportSecuritySettings

    from mnemo.mcp import memory_server

    return memory_server, TransportSecuritySettings(enable_dns_rebinding_protection=False)


REFUSED = "mnemo.refused"
"""Key of a request's scope: the short way did not take it."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a route does, without what its parameters could be besides."""

    route: APIRoute
    opened: Callable[[Request, str], AbstractAsyncContextManager[Repository]]
    body: TypeAdapter[Any]
    answer: TypeAdapter[Any]

    @classmethod
    def of(cls, route: APIRoute) -> Call | None:
        """The call of *route*; ``None``: it takes more than a repository and a body."""
        hints = typing.get_type_hints(route.endpoint, include_extras=True)
        hints.pop("return", None)
        kind = hints.get("body")
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        short = is_model and [*hints] == ["repo", "body"] and hints["repo"] in (Readable, Writable)
        if not short or route.response_model is None:
            return None
        opened = asynccontextmanager(hints["repo"].__metadata__[0].dependency)
        return cls(route, opened, adapter(kind), adapter(route.response_model))


class ShortRoute(BaseRoute):
    """Answers well-formed requests as *routes*, without FastAPI's frames; others go to *full*."""

    def __init__(self, routes: Iterable[BaseRoute], full: ASGIApp) -> None:
        calls = [Call.of(route) for route in routes if isinstance(route, APIRoute)]
        self._calls = {
            (method, call.route.path): call
            for call in calls
            if call is not None
            for method in call.route.methods or ()
        }
        self._full = full

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether it is one of the calls, and has not been refused."""
        if scope["type"] != "http" or REFUSED in scope:
            return Match.NONE, {}
        call = self._calls.get((scope["method"], scope["path"]))
        if call is None or (b"content-type", b"application/json") not in scope["headers"]:
            return Match.NONE, {}
        return Match.FULL, {"route": call.route}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the call."""
        call, request = self._calls[scope["method"], scope["path"]], Request(scope, receive)
        try:
            content = await request.body()
        except ClientDisconnect:
            return
        try:
            repo_id = _repo_id(scope["query_string"])
            body = call.body.validate_python(json.loads(content))
        except (ValueError, RecursionError):
            scope[REFUSED] = True
            await self._full(scope, _again(content, receive), send)
            return
        async with call.opened(request, repo_id) as repo:
            found = await call.route.endpoint(repo=repo, body=body)
            told = call.answer.validate_python(found, from_attributes=True)
            answer = Response(call.answer.dump_json(told), media_type="application/json")
            await answer(scope, receive, send)


def _repo_id(query: bytes) -> str:
    """The only parameter. *Raises* ``ValueError``: there is another, or it is not valid."""
    given = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if not given:
        return "default"
    if len(given) > 1 or given[0][0] != "repo" or not 1 <= len(given[0][1]) <= LONGEST_ID:
        raise ValueError("not a plain call")
    return given[0][1]


def _again(content: bytes, receive: Receive) -> Receive:
    """Give *content* once more, then what comes behind it."""
    messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received


FILES = StaticFiles(directory=Path(__file__).parent / "static", html=True)
FILE_METHODS = ("GET", "HEAD")
GZIPPED_BYTES = 16 * 2**10
"""Bytes of an answer from which on it is compressed: a few pages, lists, scripts (S)."""
GZIP_LEVEL = 4
"""Of zlib: half the time of level 9 or less, for 5 % more bytes (S)."""


class Application(FastAPI):
    """FastAPI's, whose document is completed from the declarations of operations."""

    def openapi(self) -> dict[str, Any]:
        """Make the document, once."""
        return self.openapi_schema or completed(super().openapi())


def web_app(
    memory: Mnemo,
    *,
    tokens: Sequence[Token] | Path,
    hosts: Sequence[str] = LOOPBACK,
    origins: Sequence[str] = (),
    repositories: OpenRepositories | None = None,
    backup_folder: Path | None = None,
    worker: Worker | None = None,
) -> Gate:
    """
    Make the ASGI application that serves *memory*; its lifespan runs what feeds live streams.

    Args:
        memory: Open while it is served; its repositories are opened when they are asked for, and
            those that were may be closed again.
        tokens: Of whom every request to the API must bring one; or the file of them, which is
            read anew when it changes.
        hosts: Names that a request may call the service by, without port; ``*`` is any.
        origins: Further origins (``https://example.org``) whose pages may call it (CORS).
        repositories: Bounds how many are open; default: 1,000, of one token 750.
        backup_folder: Where backups are kept that clients ask for; ``None``: none are.
        worker: Which it is of the processes that serve the store, and share rates, what tokens
            have used, metrics, curves and sessions; default: it is alone.
    """
    board = Board(worker.board if worker else None)
    app = Application(
        title="mnemo",
        version=__version__,
        summary="Durable memory for agents",
        lifespan=_running,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.memory = memory
    app.state.board = board
    app.state.peers = Peers(worker)
    app.state.extracts = worker is not None and not worker.number
    app.state.live = Live(memory)
    app.state.metrics = Metrics(board)
    app.state.tokens = Tokens(tokens, board=board)
    app.state.curves = Recorder(memory, board=board)
    app.state.streams = Streams()
    app.state.backup_folder = backup_folder
    app.state.repositories = repositories or OpenRepositories(memory)
    routers = (*ROUTERS, curves.router)
    routes = [route for router in routers for route in router.routes]
    add_handlers(app, _methods(routes))
    app.add_exception_handler(SessionBusy, held_elsewhere)
    app.add_middleware(GZipMiddleware, minimum_size=GZIPPED_BYTES, compresslevel=GZIP_LEVEL)
    app.router.routes.append(ShortRoute(routes, app.router))
    # Included, each would be made once more, which takes a fifth of a second.
    app.router.routes.extend(routes)
    app.router.routes.append(Route("/openapi.json", _described, include_in_schema=False))
    app.router.routes.append(Route("/mcp", McpEndpoint(), include_in_schema=False))
    app.router.default = _elsewhere
    return Gate(app, hosts=hosts, origins=origins)


def _methods(routes: Iterable[BaseRoute]) -> dict[str, set[str]]:
    """The methods of every path of the API."""
    found: dict[str, set[str]] = {}
    for route in routes:
        if isinstance(route, APIRoute):
            found.setdefault(route.path, set()).update(route.methods or ())
    return found


async def _elsewhere(scope: Scope, receive: Receive, send: Send) -> None:
    """Give a file of the page; below the paths of the API there is none."""
    if is_guarded(scope["path"]):
        raise HTTPException(404, f"there is no {scope['path']}; /openapi.json lists what there is")
    if scope["method"] not in FILE_METHODS:
        raise HTTPException(405, headers={"Allow": ", ".join(FILE_METHODS)})
    await FILES(scope, receive, send)


async def _described(request: Request) -> JSONResponse:
    """Give the OpenAPI document; making it at the first call takes a third of a second."""
    return JSONResponse(await anyio.to_thread.run_sync(request.app.openapi))


@asynccontextmanager
async def _running(app: FastAPI) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(app.state.live.run)
        group.start_soon(app.state.metrics.watch, app.state.memory)
        group.start_soon(app.state.curves.run)
        group.start_soon(app.state.tokens.watch)
        if app.state.extracts:
            group.start_soon(partial(app.state.memory.work, release=app.state.repositories.adopt))
        yield
        group.cancel_scope.cancel()
    await app.state.peers.aclose()

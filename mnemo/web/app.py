"""The application of the HTTP service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from mnemo import Mnemo, __version__
from mnemo.web.gate import LOOPBACK, Gate, is_guarded
from mnemo.web.live import Live
from mnemo.web.mcp_endpoint import McpEndpoint
from mnemo.web.metrics import Metrics
from mnemo.web.open_repositories import OpenRepositories, Visits
from mnemo.web.pictures import Graphs
from mnemo.web.problems import Problem, add_handlers
from mnemo.web.routes import ROUTERS
from mnemo.web.short_route import ShortRoute
from mnemo.web.tokens import Token

FILES = StaticFiles(directory=Path(__file__).parent / "static", html=True)
FILE_METHODS = ("GET", "HEAD")
GZIPPED_BYTES = 16 * 2**10
"""Bytes of an answer from which on it is compressed: a few pages, lists, scripts (S)."""
GZIP_LEVEL = 4
"""Of zlib: half the time of level 9 or less, for 5 % more bytes (S)."""


def web_app(
    memory: Mnemo,
    *,
    tokens: Sequence[Token],
    hosts: Sequence[str] = LOOPBACK,
    origins: Sequence[str] = (),
    repositories: OpenRepositories | None = None,
) -> Gate:
    """
    Make the ASGI application that serves *memory*; its lifespan runs what feeds live streams.

    Args:
        memory: Open while it is served; its repositories are opened when they are asked for, and
            those that were may be closed again.
        tokens: Of whom every request to the API must bring one.
        hosts: Names that a request may call the service by, without port; ``*`` is any.
        origins: Further origins (``https://example.org``) whose pages may call it (CORS).
        repositories: Bounds how many are open; default: 1,000, of one token 750.
    """
    app = FastAPI(
        title="mnemo",
        version=__version__,
        summary="Durable memory for agents",
        lifespan=_running,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        responses={"4XX": {"model": Problem}, "5XX": {"model": Problem}},
    )
    app.state.memory = memory
    app.state.live = Live(memory)
    app.state.graphs = Graphs()
    app.state.metrics = Metrics()
    app.state.repositories = repositories or OpenRepositories(memory)
    add_handlers(app, _methods())
    app.add_middleware(Visits, repositories=app.state.repositories)
    app.add_middleware(GZipMiddleware, minimum_size=GZIPPED_BYTES, compresslevel=GZIP_LEVEL)
    plain = [route for router in ROUTERS for route in router.routes]
    app.router.routes.append(ShortRoute(plain, app.router))
    for router in ROUTERS:
        app.include_router(router)
    app.router.routes.append(Route("/openapi.json", _described, include_in_schema=False))
    app.router.routes.append(Route("/mcp", McpEndpoint(), include_in_schema=False))
    app.router.default = _elsewhere
    return Gate(app, tokens=tokens, hosts=hosts, origins=origins)


def _methods() -> dict[str, set[str]]:
    """The methods of every path of the API."""
    found: dict[str, set[str]] = {}
    for router in ROUTERS:
        for route in router.routes:
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
    _build_routes(app)
    async with anyio.create_task_group() as group:
        group.start_soon(app.state.live.run)
        group.start_soon(app.state.metrics.watch_loop)
        yield
        group.cancel_scope.cancel()


def _build_routes(app: FastAPI) -> None:
    """Have FastAPI build its routes, which the first request would else hold the loop for."""
    nowhere = {"type": "http", "method": "GET", "path": "", "headers": []}
    for route in app.routes:
        route.matches(nowhere)

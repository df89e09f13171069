"""Health, metrics, live events, and the repositories of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel
from sse_starlette import EventSourceResponse
from starlette.responses import JSONResponse, PlainTextResponse, Response

from mnemo import RepositoryRecord, __version__
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.web.access import ANY, LONGEST_ID, Memory_, Rights, Token_, visited
from mnemo.web.live import Live
from mnemo.web.metrics import Metrics, together, totals
from mnemo.web.peers import INSIDE
from mnemo.web.problems import routes

router = routes(tags=["operations"])

PING_S = 15
"""Seconds between two comments in a stream in which nothing happens (S)."""


class Caller(BaseModel):
    """What the token of the request permits."""

    name: str
    repositories: tuple[str, ...]
    rights: Rights
    version: str = __version__


@router.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    """The process answers."""
    return "ok\n"


@router.get("/readyz", response_class=PlainTextResponse)
async def readyz(memory: Memory_) -> str:
    """The store is open and can be read; 503 otherwise."""
    await memory.has_repo("default")
    return "ready\n"


@router.get("/v1/caller", response_model=Caller)
async def caller(token: Token_) -> Any:
    """Say what the token permits."""
    return Caller(name=token.name, repositories=token.repositories, rights=token.rights)


@router.get("/v1/repositories", response_model=list[RepositoryRecord])
async def repositories(
    memory: Memory_,
    token: Token_,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = MOST_AT_ONCE,
    after: Annotated[str | None, Query(min_length=1, max_length=LONGEST_ID)] = None,
) -> Any:
    """List the stored repositories that the token may use, by id: those behind *after*."""
    only = None if ANY in token.repositories else token.repositories
    return await memory.repos(limit=limit, after=after, ids=only, prefixes=token.prefixes)


async def _stream(
    request: Request,
    token: Token_,
    repo: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
    after: Annotated[str | None, Query(max_length=100)] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Make the stream that is asked for; what is wrong with it is an answer, not a broken one."""
    live: Live = request.app.state.live
    live.check_room()
    if repo is None:
        yield live.events(token.permits)
        return
    async with visited(request, repo, make=False) as found:
        cursor = last_event_id or after
        start = await found.inspection.changes(cursor)
        yield live.changes(found, cursor or start.cursor)


@router.get("/v1/events", response_class=EventSourceResponse)
async def events(stream: Annotated[AsyncIterator[bytes], Depends(_stream)]) -> Response:
    """
    Stream what happens, as server-sent events.

    With *repo* the stream begins with ``ready``; ``changes`` lists what was written, by ids, and
    its message id is where ``Last-Event-ID`` (or *after*) resumes without gaps. Other events have
    the names of ``mnemo.events``, are best effort and are not repeated.
    """
    return EventSourceResponse(stream, ping=PING_S)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(
    request: Request,
    memory: Memory_,
    token: Token_,
    repo: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
) -> Response:
    """
    Give counts of requests, and levels, as Prometheus reads them.

    The levels are added up over the open repositories that the token may use; with *repo* they
    are those of this repository alone, with its label.
    """
    found: Metrics = request.app.state.metrics
    levels: Mapping[str, Mapping[str, int]]
    async with AsyncExitStack() as stack:
        if repo is not None and INSIDE not in request.scope:
            await stack.enter_async_context(visited(request, repo, make=False))
        levels = await found.levels(memory, lambda id: token.permits(id) and repo in (None, id))
    if INSIDE in request.scope:
        return JSONResponse(levels)
    _, others = await request.app.state.peers.asked(request)
    told = [levels, *(one.json() for one in others if one)]
    levels = together(told)
    if repo is None:
        used = request.app.state.tokens.last_used(token)
        total = await totals(memory, levels, token.permits)
        text = found.text({"workers": len(told), **total}, used)
    else:
        text = found.text(levels.get(repo, {}), repo=repo)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

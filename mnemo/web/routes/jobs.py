"""Calls that take over a second: answered with 202, and followed as jobs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypeAlias

import anyio
from fastapi import Depends, Header, Request, Response
from fastapi import Path as InPath
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

import mnemo
from mnemo.exchange import adapter
from mnemo.operations import Operation
from mnemo.values.jobs import LongCall
from mnemo.web.access import ANY, RETRY_S, Memory_, Token, Token_, check_right
from mnemo.web.live import Live
from mnemo.web.logs import audit_call
from mnemo.web.problems import problem_of, routes

router = routes(prefix="/v1/jobs", tags=["jobs"])

PATIENCE_S = 1.0
"""Seconds after which a call goes on as a job (S)."""
MOST_RUNNING = 16
"""Jobs that a process runs at once; a further call gets 503 (S)."""
LOOK_S = 0.25
"""Seconds between two looks at a job that somebody follows (S)."""
ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": LongCall, "description": "It goes on as a job: see `Location`."}
}


async def carried_out(
    request: Request, operation: Operation, repo: Token | str, given: dict[str, Any]
) -> Any:
    """
    Call *operation* of a repository, or of all (a token); its result, or 202 with the job.

    *Raises* what the call raises within ``PATIENCE_S``; ``HTTPException``: 503, too many run.
    """
    state = request.app.state
    memory, token, repositories = state.memory, request.state.token, state.repositories
    repo_id = repo if isinstance(repo, str) else None

    async def work() -> Any:
        if operation.owner == "memory":
            return await operation.call(memory, given | ({"repo_id": repo_id} if repo_id else {}))
        async with repositories.visited(token, repo_id, make=False) as found:
            return await operation.call(found, given)

    return await followed(memory, token, operation.name, repo_id, work, operation.result)


async def followed(
    memory: mnemo.Mnemo, token: Token, name: str, repo_id: str | None, work: Any, kind: Any
) -> Any:
    """Run *work*, whose result is a *kind*: the result, or 202 with the job that goes on."""
    calls = memory._long_calls
    if calls.running >= MOST_RUNNING:
        raise HTTPException(503, f"{MOST_RUNNING} jobs run already", {"Retry-After": RETRY_S})
    audit_call(name, repo_id or ANY, {})
    found = await calls.run(
        calls.new(name, repo_id, token.name),
        work,
        lambda result: adapter(kind).dump_python(result, mode="json"),
        lambda error: problem_of(error).model_dump(mode="json", fallback=str),
        patience_s=PATIENCE_S,
    )
    if not isinstance(found, LongCall):
        return found
    location = {"Location": f"/v1/jobs/{found.id}"}
    return JSONResponse(adapter(LongCall).dump_python(found, mode="json"), 202, location)


JobId: TypeAlias = Annotated[str, InPath(pattern="^job", max_length=100, description="Its id.")]


async def _found(memory: Memory_, token: Token_, id: JobId) -> LongCall:
    """The job, if the token could have begun it; others are not told apart from what is not."""
    found = await memory._long_calls.find(id)
    try:
        check_right(token, "admin", found.repo_id or ANY)
    except mnemo.NotFound:
        raise mnemo.NotFound("job", id) from None
    return found


Found: TypeAlias = Annotated[LongCall, Depends(_found)]


@router.get("/{id}", response_model=LongCall, name="job")
async def job(found: Found) -> Any:
    """Say how far a job is, what it returned, or why it failed."""
    return found


@router.post("/{id}/cancel", response_model=LongCall, name="job.cancel")
async def cancel(memory: Memory_, found: Found) -> Any:
    """Have a job end at its next pause; what it has written stays."""
    return await memory._long_calls.cancel(found.id)


async def _stream(
    request: Request,
    memory: Memory_,
    found: Found,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> AsyncIterator[ServerSentEvent] | None:
    """The stream that is asked for; ``None``: all of it was read."""
    live: Live = request.app.state.live
    live.check_room()
    seen = int(last_event_id) if last_event_id and last_event_id.isdecimal() else 0
    if found.state != "running" and found.version <= seen:
        return None
    return _versions(memory, live, found, seen)


async def _versions(
    memory: mnemo.Mnemo, live: Live, found: LongCall, seen: int
) -> AsyncIterator[ServerSentEvent]:
    with live.counted():
        while not live.has_ended:
            if found.version > seen or found.state != "running":
                seen = found.version
                data = json.dumps(adapter(LongCall).dump_python(found, mode="json"))
                name = "progress" if found.state == "running" else "ended"
                yield ServerSentEvent(data, event=name, id=str(seen))
            if found.state != "running":
                return
            await anyio.sleep(LOOK_S)
            found = await memory._long_calls.find(found.id)


_MESSAGE = {
    "type": "object",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"enum": ["progress", "ended"], "description": "Its name."},
        "id": {"type": "string", "description": "Where Last-Event-ID resumes."},
        "data": {"$ref": "#/components/schemas/LongCall", "description": "The job."},
    },
}


@router.get(
    "/{id}/events",
    response_class=EventSourceResponse,
    name="job.events",
    responses={200: {"content": {"text/event-stream": {"schema": _MESSAGE}}}},
)
async def events(stream: Annotated[Any, Depends(_stream)]) -> Response:
    """
    Stream how far a job is, as server-sent events: ``progress``, and in the end ``ended``.

    Each holds the job, and its message id is the job's version: with ``Last-Event-ID`` only what
    came since is told, and 204 where it has ended and that was read.
    """
    return Response(status_code=204) if stream is None else EventSourceResponse(stream)

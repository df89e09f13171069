"""Sessions: a look at each, resumed on request, and ended."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, TypeAlias

import httpx
from fastapi import Depends, Query, Request
from pydantic import BaseModel

import mnemo
from mnemo.exchange import NodeShape, StepShape
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.web.access import Memory_, Readable, Writable
from mnemo.web.peers import passed_on
from mnemo.web.problems import routes

router = routes(prefix="/v1", tags=["session"])

SessionId: TypeAlias = Annotated[str, Query(alias="session", min_length=1, max_length=512)]


class Status(BaseModel):
    """
    Where a session stands.

    Attributes:
        error: Why extraction failed last, if it did.
        context: Goal and last steps, for a prompt; ``null``: it is idle, or not open here.
        statistics: Levels and costs; ``null``: it is not open in this process.
        is_partial: A worker that may have it open does not answer; the rest is what is stored.
    """

    id: str
    repo_id: str
    goal: str
    state: mnemo.SessionState
    steps: int
    episode_id: str | None
    updated_at: datetime
    thread_id: str | None
    busy: bool
    error: str | None
    context: mnemo.SessionContext | None
    statistics: mnemo.SessionStatistics | None
    is_partial: bool = False


class Episodes(BaseModel):
    """
    The steps of a session's present episode, and what waits for its commit.

    Attributes:
        committed: Indexes of the steps that are committed already.
        nodes, edges: Of the changeset that ``commit`` will write; ``null``: there is none.
    """

    steps: list[StepShape]  # type: ignore[valid-type]
    committed: list[int]
    nodes: list[NodeShape] | None
    edges: list[mnemo.Edge] | None


def _open_here(
    memory: mnemo.Mnemo, repo: mnemo.Repository, session_id: str
) -> mnemo.Session | None:
    try:
        return memory.session(session_id, repo_id=repo.id)
    except mnemo.NotFound:
        return None


async def _session(memory: Memory_, repo: Writable, session: SessionId) -> mnemo.Session:
    """The session, resumed if it is not open in this process."""
    return _open_here(memory, repo, session) or await repo.resume_session(session)


Opened: TypeAlias = Annotated[mnemo.Session, Depends(_session)]


async def status_of(memory: mnemo.Mnemo, repo: mnemo.Repository, session_id: str) -> Status:
    look = await repo.inspection.session(session_id)
    session, record = _open_here(memory, repo, session_id), look.record
    error = session.error if session else look.error
    now = {
        "state": session.state if session else record.state,
        "busy": session.busy if session else False,
        "error": str(error) if error else None,
        "context": session.context() if session else None,
        "statistics": session.statistics() if session else None,
    }
    return Status(**(asdict(record) | now))


@router.get("/session", response_model=Status, name="inspection.session")
async def status(memory: Memory_, repo: Readable, session: SessionId, request: Request) -> Any:
    """Say where a session stands."""
    others: list[Any] = []
    if _open_here(memory, repo, session) is None:
        there, others = await request.app.state.peers.asked(request, _has_it)
        if there:
            return passed_on(there)
    found = await status_of(memory, repo, session)
    return found.model_copy(update={"is_partial": None in others})


def _has_it(answer: httpx.Response) -> bool:
    return answer.is_success and answer.json()["statistics"] is not None


@router.get("/session/steps", response_model=Episodes, name="session.steps")
async def steps(
    repo: Readable,
    session: SessionId,
    from_index: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> Any:
    """Give the steps of the present episode, and the changeset that waits."""
    look = await repo.inspection.session(session)
    return {
        "steps": look.steps[from_index : from_index + limit],
        "committed": sorted(look.committed),
        "nodes": look.changeset.nodes if look.changeset else None,
        "edges": look.changeset.edges if look.changeset else None,
    }


@router.post("/session/retry", response_model=mnemo.CommitReceipt, name="session.retry")
async def retry(
    session: Opened,
    use_model: Annotated[
        bool | None, Query(description="False: what is left is extracted without the chat model.")
    ] = None,
) -> Any:
    """Try a failed extraction again, with the chat model or without it."""
    if session.state is not mnemo.SessionState.FAILED:
        raise mnemo.SessionError("not_failed", state=session.state, operation="retry")
    return await session.commit(use_model=use_model)


@router.delete("/session", status_code=204, response_model=None, name="session.aclose")
async def end(memory: Memory_, repo: Writable, session: SessionId, request: Request) -> None:
    """Close the session in this service; what it holds stays resumable."""
    if (opened := _open_here(memory, repo, session)) is not None:
        await opened.aclose()
        return
    _, others = await request.app.state.peers.asked(request)
    if None in others:
        raise mnemo.Unreachable("a worker hangs that may have it open: nothing was done there")

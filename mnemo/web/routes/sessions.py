"""Sessions: the write side step by step, and a look at each."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

import mnemo
from mnemo.exchange import NodeShape, StepShape
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.web.access import Body, JsonObject, Memory_, Readable, Time, Writable, given

router = APIRouter(prefix="/v1", tags=["sessions"])

SessionId: TypeAlias = Annotated[str, Query(alias="session", min_length=1, max_length=512)]
LONGEST_WAIT_S = 300.0


class Start(Body):
    """Arguments as of ``Repository.start_session``."""

    goal: str
    session_id: str | None = None
    auto_commit: bool | None = None


class Episode(Body):
    """Arguments as of ``Session.start_episode``."""

    goal: str


class Append(Body):
    """Arguments as of ``Session.append``."""

    observation: str
    action: str = ""
    at: Time | None = None
    actor: str | None = None
    key: str | None = None
    metadata: JsonObject | None = None


class Messages(Body):
    """Chat messages; arguments as of ``Session.append_messages``."""

    messages: list[JsonObject] = Field(max_length=MOST_AT_ONCE)


class CloseAndCommit(Body):
    """Arguments as of ``Session.close_and_commit``."""

    max_retries: int = Field(default=2, ge=0, le=10)
    timeout_s: float = Field(default=60.0, ge=0, le=LONGEST_WAIT_S)


class WaitFor(Body):
    """Arguments as of ``Session.wait_for``."""

    states: list[mnemo.SessionState] = Field(min_length=1, max_length=5)
    timeout_s: float = Field(default=60.0, ge=0, le=LONGEST_WAIT_S)


class Status(BaseModel):
    """
    Where a session stands.

    Attributes:
        error: Why extraction failed last, if it did.
        context: Goal and last steps, for a prompt; ``null``: it is idle, or not open here.
        statistics: Levels and costs; ``null``: it is not open in this process.
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


async def _status(memory: mnemo.Mnemo, repo: mnemo.Repository, session_id: str) -> Status:
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


@router.get("/sessions", response_model=list[mnemo.SessionRecord])
async def listed(
    repo: Readable,
    unfinished: bool = False,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> Any:
    """List sessions, newest act first."""
    return (await (repo.unfinished_sessions() if unfinished else repo.sessions()))[:limit]


@router.post("/sessions", response_model=Status)
async def start(memory: Memory_, repo: Writable, body: Start) -> Any:
    """Start a session that collects."""
    chosen = body.auto_commit
    config = None if chosen is None else mnemo.Config(session={"auto_commit": chosen})
    session = await repo.start_session(body.goal, session_id=body.session_id, config=config)
    return await _status(memory, repo, session.id)


@router.get("/session", response_model=Status)
async def status(memory: Memory_, repo: Readable, session: SessionId) -> Any:
    """Say where a session stands."""
    return await _status(memory, repo, session)


@router.get("/session/steps", response_model=Episodes)
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


@router.post("/session/steps", response_model=StepShape)
async def append(session: Opened, body: Append) -> Any:
    """Add a step; durable when the answer comes."""
    return await session.append(**given(body))


@router.post("/session/messages", response_model=list[StepShape])  # type: ignore[valid-type]
async def append_messages(session: Opened, body: Messages) -> Any:
    """Add chat messages as steps; each is durable before the next is written."""
    return await session.append_messages(body.messages)


@router.post("/session/resume", response_model=Status)
async def resume(memory: Memory_, repo: Writable, session: Opened) -> Any:
    """Open the session in this process as its last durable act left it."""
    return await _status(memory, repo, session.id)


@router.post("/session/start_episode", response_model=Status)
async def start_episode(memory: Memory_, repo: Writable, session: Opened, body: Episode) -> Any:
    """Collect for a new goal."""
    await session.start_episode(body.goal)
    return await _status(memory, repo, session.id)


@router.post("/session/commit", response_model=mnemo.CommitReceipt)
async def commit(session: Opened) -> Any:
    """Write what was extracted; in ``failed``, try the extraction again."""
    return await session.commit()


@router.post("/session/retry", response_model=mnemo.CommitReceipt)
async def retry(session: Opened) -> Any:
    """Try a failed extraction again."""
    if session.state is not mnemo.SessionState.FAILED:
        raise mnemo.SessionError("not_failed", state=session.state, operation="retry")
    return await session.commit()


@router.post("/session/close_and_commit", response_model=mnemo.CommitReceipt)
async def close_and_commit(session: Opened, body: CloseAndCommit) -> Any:
    """Close, wait for extraction, and commit."""
    return await session.close_and_commit(**given(body))


@router.post("/session/wait", response_model=mnemo.SessionState)
async def wait(session: Opened, body: WaitFor) -> Any:
    """Wait until the session is in one of some states."""
    return await session.wait_for(*body.states, timeout_s=body.timeout_s)


@router.post("/session/close", response_model=Status)
async def close(memory: Memory_, repo: Writable, session: Opened) -> Any:
    """Close the episode."""
    await session.close()
    return await _status(memory, repo, session.id)


@router.post("/session/discard", response_model=Status)
async def discard(memory: Memory_, repo: Writable, session: Opened) -> Any:
    """Discard the episode."""
    await session.discard()
    return await _status(memory, repo, session.id)


@router.delete("/session", status_code=204, response_model=None)
async def end(memory: Memory_, repo: Writable, session: SessionId) -> None:
    """Close the session in this process; what it holds stays resumable."""
    if (opened := _open_here(memory, repo, session)) is not None:
        await opened.aclose()

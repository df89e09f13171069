"""Notes: long-term topic files."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Query
from pydantic import Field

from mnemo import Note, NoteInfo, NoteVersion
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.web.access import Body, Readable, Writable

router = APIRouter(prefix="/v1", tags=["notes"])

Topic: TypeAlias = Annotated[str, Query(min_length=1, max_length=512)]
Version: TypeAlias = Annotated[int | None, Query(ge=0, le=2**53)]


class Text(Body):
    """A note's texts; arguments as of ``Notes.write``."""

    body: str
    description: str
    expected_version: int | None = Field(default=None, ge=0, le=2**53)


class Restore(Body):
    """Arguments as of ``Notes.restore``."""

    version: int = Field(ge=1, le=2**53)


@router.get("/notes", response_model=list[NoteInfo])
async def listed(
    repo: Readable,
    query: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> Any:
    """List notes: latest use first, or best for *query* first."""
    return await repo.notes.list(query=query, limit=limit)


@router.get("/note", response_model=Note)
async def read(repo: Readable, topic: Topic) -> Any:
    """Give a note."""
    return await repo.notes.read(topic)


@router.put("/note", response_model=Note)
async def write(repo: Writable, topic: Topic, body: Text) -> Any:
    """Create or replace a note."""
    return await repo.notes.write(
        topic, body.body, body.description, expected_version=body.expected_version
    )


@router.delete("/note", status_code=204, response_model=None)
async def delete(repo: Writable, topic: Topic, expected_version: Version = None) -> None:
    """Retire a note; its history stays."""
    await repo.notes.delete(topic, expected_version=expected_version)


@router.get("/note/history", response_model=list[NoteVersion])
async def history(repo: Readable, topic: Topic) -> Any:
    """List the versions of a note, oldest first."""
    return await repo.notes.history(topic)


@router.post("/note/restore", response_model=Note)
async def restore(repo: Writable, topic: Topic, body: Restore) -> Any:
    """Write an old version as a new one."""
    return await repo.notes.restore(topic, body.version)

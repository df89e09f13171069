"""Health, the caller's token, and the repositories of the store."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import PlainTextResponse

from mnemo import RepositoryRecord, RepositoryStatistics, __version__
from mnemo.web.access import Memory_, Readable, Token_
from mnemo.web.tokens import Rights

__all__ = ["router"]

router = APIRouter(tags=["operations"])


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
    await memory.repos()
    return "ready\n"


@router.get("/v1/caller", response_model=Caller)
async def caller(token: Token_) -> Any:
    """Say what the token permits."""
    return Caller(name=token.name, repositories=token.repositories, rights=token.rights)


@router.get("/v1/repositories", response_model=list[RepositoryRecord])
async def repositories(memory: Memory_, token: Token_) -> Any:
    """List the stored repositories that the token may use."""
    return [record for record in await memory.repos() if token.permits(record.id)]


@router.get("/v1/statistics", response_model=RepositoryStatistics)
async def statistics(repo: Readable) -> Any:
    """Count what a repository holds, and what is on its way."""
    return await repo.statistics()

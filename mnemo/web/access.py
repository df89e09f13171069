"""Dependencies of routes: the service, the token, and the repository that is asked for."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Depends, Query, Request
from starlette.exceptions import HTTPException

from mnemo import Mnemo, NotFound, Repository
from mnemo.web.tokens import Token

__all__ = ["LONGEST_ID", "Memory_", "Readable", "Token_", "Writable", "opened"]

MOST_OPEN = 1_000
"""Repositories that are open at once; a new one beyond it is refused (S)."""

LONGEST_ID = 200
"""Characters of a repository's id in a request, at most."""

RepoId: TypeAlias = Annotated[
    str,
    Query(alias="repo", min_length=1, max_length=LONGEST_ID, description="The repository's id."),
]


def _memory(request: Request) -> Mnemo:
    memory: Mnemo = request.app.state.memory
    return memory


def _token(request: Request) -> Token:
    token: Token = request.state.token
    return token


async def opened(memory: Mnemo, token: Token, repo_id: str, *, make: bool) -> Repository:
    """
    The repository, opened if it is not.

    Args:
        make: Whether one that holds nothing is made.

    Raises:
        NotFound: There is none, or *token* may not use it.
    """
    if not token.permits(repo_id):
        raise NotFound("repository", repo_id)
    try:
        return memory.repo(repo_id)
    except NotFound:
        if not make and all(record.id != repo_id for record in await memory.repos()):
            raise
    if len(memory.list_repos()) >= MOST_OPEN:
        raise HTTPException(503, "too many repositories are open", {"Retry-After": "60"})
    return await memory.open_repo(repo_id, exist_ok=True)


async def _readable(request: Request, repo: RepoId = "default") -> Repository:
    return await opened(_memory(request), _token(request), repo, make=False)


async def _writable(request: Request, repo: RepoId = "default") -> Repository:
    token = _token(request)
    if token.permits(repo) and token.rights != "write":
        raise HTTPException(403, "this token may only read")
    return await opened(_memory(request), token, repo, make=True)


Memory_: TypeAlias = Annotated[Mnemo, Depends(_memory)]
Token_: TypeAlias = Annotated[Token, Depends(_token)]
Readable: TypeAlias = Annotated[Repository, Depends(_readable)]
Writable: TypeAlias = Annotated[Repository, Depends(_writable)]

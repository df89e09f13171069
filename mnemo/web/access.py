"""Dependencies of routes: the service, the token, and the repository that is asked for."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Depends, Query, Request
from starlette.exceptions import HTTPException

from mnemo import Mnemo, Repository
from mnemo.web.open_repositories import OpenRepositories
from mnemo.web.tokens import Token

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


async def opened(request: Request, repo_id: str, *, make: bool) -> Repository:
    """The repository, for as long as *request* lasts; see ``OpenRepositories.visited``."""
    repositories: OpenRepositories = request.app.state.repositories
    visits: list[str] = request.state.visits
    return await repositories.visited(visits, _token(request), repo_id, make=make)


async def _readable(request: Request, repo: RepoId = "default") -> Repository:
    return await opened(request, repo, make=False)


async def _writable(request: Request, repo: RepoId = "default") -> Repository:
    token = _token(request)
    if token.permits(repo) and token.rights != "write":
        raise HTTPException(403, "this token may only read")
    return await opened(request, repo, make=True)


Memory_: TypeAlias = Annotated[Mnemo, Depends(_memory)]
Token_: TypeAlias = Annotated[Token, Depends(_token)]
Readable: TypeAlias = Annotated[Repository, Depends(_readable)]
Writable: TypeAlias = Annotated[Repository, Depends(_writable)]

"""What routes share: the service, the token, the repository asked for, kinds of parameters."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Query, Request
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, NaiveDatetime
from starlette.exceptions import HTTPException

from mnemo import Mnemo, Repository
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.web.open_repositories import OpenRepositories
from mnemo.web.tokens import Token

LONGEST_ID = 200
"""Characters of a repository's id in a request, at most."""

RepoId: TypeAlias = Annotated[
    str,
    Query(alias="repo", min_length=1, max_length=LONGEST_ID, description="The repository's id."),
]


def _memory(request: Request) -> Mnemo:
    return request.app.state.memory


def _token(request: Request) -> Token:
    return request.state.token


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


Id: TypeAlias = Annotated[str, Query(min_length=1, max_length=512)]
Time: TypeAlias = AwareDatetime | NaiveDatetime
JsonObject: TypeAlias = dict[str, JsonValue]
Types: TypeAlias = Annotated[list[str], Field(max_length=MOST_AT_ONCE)]


class Body(BaseModel):
    """The base of request bodies: an unknown key is refused."""

    model_config = ConfigDict(extra="forbid")


def given(body: BaseModel) -> dict[str, Any]:
    """The arguments of the call that *body* describes."""
    return {name: getattr(body, name) for name in type(body).model_fields}

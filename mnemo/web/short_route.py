"""A short way for calls with a repository and a JSON body, past FastAPI's resolution."""

from __future__ import annotations

import json
import typing
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mnemo import Repository
from mnemo.exchange import adapter
from mnemo.web.access import LONGEST_ID, Readable, Writable

REFUSED = "mnemo.refused"
"""Key of a request's scope: the short way did not take it."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a route does, without what its parameters could be besides."""

    route: APIRoute
    opened: Callable[[Request, str], Awaitable[Repository]]
    body: TypeAdapter[Any]
    answer: TypeAdapter[Any]

    @classmethod
    def of(cls, route: APIRoute) -> Call | None:
        """The call of *route*; ``None``: it takes more than a repository and a body."""
        hints = typing.get_type_hints(route.endpoint, include_extras=True)
        hints.pop("return", None)
        kind = hints.get("body")
        is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
        short = is_model and [*hints] == ["repo", "body"] and hints["repo"] in (Readable, Writable)
        if not short or route.response_model is None:
            return None
        opened = hints["repo"].__metadata__[0].dependency
        return cls(route, opened, adapter(kind), adapter(route.response_model))


class ShortRoute(BaseRoute):
    """
    Answers well-formed requests as *routes* do, without the frames of FastAPI between.

    What it does not understand goes to *full*: there is one place for refusals.
    """

    def __init__(self, routes: Iterable[BaseRoute], full: ASGIApp) -> None:
        calls = [Call.of(route) for route in routes if isinstance(route, APIRoute)]
        self._calls = {
            (method, call.route.path): call
            for call in calls
            if call is not None
            for method in call.route.methods or ()
        }
        self._full = full

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether it is one of the calls, and has not been refused."""
        if scope["type"] != "http" or REFUSED in scope:
            return Match.NONE, {}
        call = self._calls.get((scope["method"], scope["path"]))
        if call is None or (b"content-type", b"application/json") not in scope["headers"]:
            return Match.NONE, {}
        return Match.FULL, {"route": call.route}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the call."""
        call, request = self._calls[scope["method"], scope["path"]], Request(scope, receive)
        try:
            content = await request.body()
        except ClientDisconnect:
            return
        try:
            repo_id = _repo_id(scope["query_string"])
            body = call.body.validate_python(json.loads(content))
        except (ValueError, RecursionError):
            scope[REFUSED] = True
            await self._full(scope, _again(content, receive), send)
            return
        found = await call.route.endpoint(await call.opened(request, repo_id), body)
        told = call.answer.validate_python(found, from_attributes=True)
        answer = Response(call.answer.dump_json(told), media_type="application/json")
        await answer(scope, receive, send)


def _repo_id(query: bytes) -> str:
    """The only parameter. *Raises* ``ValueError``: there is another, or it is not valid."""
    given = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    if not given:
        return "default"
    if len(given) > 1 or given[0][0] != "repo" or not 1 <= len(given[0][1]) <= LONGEST_ID:
        raise ValueError("not a plain call")
    return given[0][1]


def _again(content: bytes, receive: Receive) -> Receive:
    """Give *content* once more, then what comes behind it."""
    messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def received() -> Message:
        return messages.pop() if messages else await receive()

    return received

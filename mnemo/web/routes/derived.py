"""The routes that are made from the declarations of operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import Body as Sent
from fastapi import Query, Request
from pydantic import BaseModel, Field, create_model

import mnemo
from mnemo.exchange import RecallShape, ViewShape
from mnemo.operations import LASTING, OPERATIONS, Operation, Parameter, Right
from mnemo.recall.result import cited_in
from mnemo.web.access import (
    ASKING,
    Administered,
    Body,
    Id,
    Managed,
    Memory_,
    OfAll,
    Readable,
    Writable,
    allow_model,
)
from mnemo.web.logs import audit_call
from mnemo.web.problems import routes
from mnemo.web.routes.archives import ENDPOINTS
from mnemo.web.routes.jobs import ACCEPTED, carried_out
from mnemo.web.routes.sessions import Opened, Status, status_of

router = routes(prefix="/v1")


def _started(given: dict[str, Any]) -> dict[str, Any]:
    """``auto_commit`` as the setting that it is."""
    chosen = given.pop("auto_commit")
    config = None if chosen is None else mnemo.Config(session={"auto_commit": chosen})
    return given | {"config": config}


def _prompted(given: dict[str, Any]) -> dict[str, Any]:
    """What only says how the answer is put into text is no argument of the call."""
    return {name: value for name, value in given.items() if name not in _TEXT}


def _with_text(found: mnemo.MessageView, _: Any) -> Any:
    return ViewShape.model_validate(found).model_copy(update={"text": found.as_text()})


def _with_prompt(found: mnemo.RecallResult, given: dict[str, Any]) -> Any:
    text = found.as_text(**{name: given[name] for name in _TEXT})
    told = {"text": text, "citations": cited_in(text)}
    return RecallShape.model_validate(found).model_copy(update=told)


def _with_prompts(found: list[mnemo.RecallResult], given: dict[str, Any]) -> Any:
    return [_with_prompt(one, given) for one in found]


REPOSITORIES: dict[Right, Any] = {
    "read": Readable,
    "write": Writable,
    "model": Writable,
    "manage": Managed,
    "admin": Administered,
}
"""What a route takes of the repository, by the right that it needs."""
_TEXT = ("budget_tokens", "style", "order")
_RECALLS = ("recall", "recall_in_context", "recall_many")
GIVEN: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "start_session": _started,
    **dict.fromkeys(_RECALLS, _prompted),
}
FOUND: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "view": _with_text,
    **dict.fromkeys(_RECALLS, _with_prompt),
    "recall_many": _with_prompts,
}


def _answer(operation: Operation) -> Any:
    """The type of the answer: that of the result, or where the session stands then."""
    of_session = operation.owner == "session" and operation.result is None
    return Status if of_session or operation.result is mnemo.Session else operation.result


def _body(operation: Operation) -> type[BaseModel] | None:
    """The model of the request's body, if it has one."""
    if operation.method in ("GET", "DELETE"):
        return None
    fields: dict[str, Any] = {
        one.name: (one.kind, Field(default=one.default, description=one.description))
        for one in operation.parameters
        if not one.address
    }
    name = operation.name.replace(".", "_").title().replace("_", "")
    return create_model(f"{name}Request", __base__=Body, **fields) if fields else None


def _asked(one: Parameter) -> inspect.Parameter:
    """A parameter of the query."""
    query = Query(
        alias=one.address or one.name,
        description=one.description,
        min_length=1 if one.address else None,
        max_length=512 if one.address else None,
    )
    return _parameter(one.name, Annotated[one.kind, query], one.default)


def _parameter(name: str, kind: Any, default: Any = ...) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is ... else default
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, annotation=kind, default=default)


def _taken(operation: Operation, body: type[BaseModel] | None) -> Iterator[inspect.Parameter]:
    """What the route takes, in the order of the document."""
    if operation.owner == "memory" or operation.right == "admin":
        yield _parameter("request", Request)
    is_of_all = operation.name == "memory.check"
    yield _parameter("repo", OfAll if is_of_all else REPOSITORIES[operation.right])
    if operation.owner == "session":
        yield _parameter("session", Opened)
    if operation.owner.startswith("conversation"):
        yield _parameter("thread", Annotated[Id, Query(description="The thread's id.")])
    if _answer(operation) is Status:
        yield _parameter("memory", Memory_)
    asked = (one for one in operation.parameters if one.name != "repo_id")
    yield from (_asked(one) for one in asked if one.address or body is None)
    if body is not None:
        is_optional = all(not one.is_required() for one in body.model_fields.values())
        yield _parameter("body", body, Sent(default_factory=body) if is_optional else ...)


def endpoint_of(operation: Operation) -> Callable[..., Any]:
    """A function that FastAPI makes a route of."""
    kind = _body(operation)
    names = list(kind.model_fields) if kind else []
    prepared, shown = GIVEN.get(operation.name, dict), FOUND.get(operation.name)
    answers_status = _answer(operation) is Status

    async def endpoint(
        *, repo: Any, session: Any = None, thread: Any = None, memory: Any = None,
        body: Any = None, request: Any = None, **asked: Any,
    ) -> Any:  # fmt: skip
        whole = asked | {name: getattr(body, name) for name in names}
        given = prepared({**whole})
        if request is not None:
            return await _of_the_service(request, operation, repo, given)
        target = session or repo
        for part in () if session else filter(None, operation.owner.split(".")):
            if part == "conversation":
                target = repo.conversation(thread, remember=given.pop("remember", False))
            else:
                target = getattr(target, part)
        if operation.right == "model":
            allow_model(repo, {"use_model": True})
        elif operation.name in ASKING:
            allow_model(repo, given)
        found = await operation.call(target, given)
        audit_call(operation.name, repo.id, given)
        if answers_status:
            return await status_of(memory, repo, (session or found).id)
        return shown(found, whole) if shown else found

    taken = list(_taken(operation, kind))
    endpoint.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    endpoint.__annotations__ = {one.name: one.annotation for one in taken}
    return endpoint


async def _of_the_service(
    request: Request, operation: Operation, repo_id: str, given: dict[str, Any]
) -> Any:
    """Call a method of ``Mnemo`` about a repository; nobody uses it while it is deleted."""
    if operation.name in LASTING:
        return await carried_out(request, operation, repo_id, given)
    async with AsyncExitStack() as stack:
        if not given.get("dry_run", True):
            request.app.state.live.end_of(repo_id)
            await stack.enter_async_context(request.app.state.repositories.vacated(repo_id))
        found = await operation.call(request.app.state.memory, given | {"repo_id": repo_id})
    audit_call(operation.name, repo_id, given)
    return found


for one in OPERATIONS.values():
    if one.path:
        answer = _answer(one)
        made = {"response_model": answer, "status_code": 200 if answer else 204}
        made |= {"responses": ACCEPTED} if one.name in LASTING else {}
        endpoint, kind = ENDPOINTS.get(one.name) or (endpoint_of(one), made)
        router.add_api_route(
            one.path,
            endpoint,
            methods=[one.method],
            name=one.name,
            **kind,
            tags=[one.owner.partition(".")[0] or "repository"],
            summary=one.summary,
            description=f"Needs the right `{one.right}`. Cancellation: {one.cancellation}",
        )

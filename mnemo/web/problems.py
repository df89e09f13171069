"""Errors as problem documents (RFC 9457), with the reasons and facts of the exceptions."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.responses import Response

import mnemo
from mnemo.operations import reason_of

log = logging.getLogger("mnemo")

STATUS: tuple[tuple[type[Exception], int], ...] = (
    (mnemo.NotFound, 404),
    (mnemo.PendingQueueFull, 503),
    (mnemo.ExtractionFailed, 409),
    (mnemo.SessionError, 409),
    (mnemo.Conflict, 409),
    (mnemo.RepositoryAlreadyOpen, 409),
    (mnemo.EmbeddingSpaceMismatch, 409),
    (ValueError, 422),
    (mnemo.UsageError, 409),
    (mnemo.ModelError, 503),
    (mnemo.RecallFailed, 503),
    (mnemo.StoreLocked, 503),
    (mnemo.StoreReadOnly, 503),
    (mnemo.StoreUnavailable, 503),
    (mnemo.Unreachable, 503),
    (mnemo.CommitFailed, 503),
    (TimeoutError, 504),
    (mnemo.MnemoError, 500),
)
"""The first class that an exception is of decides."""
_TOLD = (mnemo.MnemoError, ValueError, TimeoutError)
"""Whose classes' names are told; of others it is that of the one they are."""
_REASONS = {413: "content_too_large"}  # whose name differs between versions of Python
RETRY_S = 1
"""Seconds after which a 503 may be tried again, where nothing better is known (S)."""


class Problem(BaseModel):
    """
    A problem document.

    Attributes:
        type: ``urn:mnemo:`` and the reason.
        reason: What a program decides by: the exception's reason, or its class in snake case.
        error: The exception's class in ``mnemo``; ``null``: the service itself refused.
        facts: The exception's attributes.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(title="Problem")

    type: str
    title: str
    status: int
    detail: str
    reason: str
    error: str | None = None
    facts: dict[str, Any] = {}


def routes(**given: Any) -> APIRouter:
    """A router whose routes are described with problems, each by its own name."""
    answers: dict[int | str, dict[str, Any]] = {kind: {"model": Problem} for kind in ("4XX", "5XX")}
    return APIRouter(responses=answers, generate_unique_id_function=lambda one: one.name, **given)


def problem(
    status: int,
    reason: str,
    detail: str,
    *,
    error: str | None = None,
    facts: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response with a problem document, in ASCII."""
    return _answer(_document(status, reason, detail, error=error, facts=facts or {}), headers)


def _document(status: int, reason: str, detail: str, **rest: Any) -> Problem:
    head = {"type": f"urn:mnemo:{reason}", "title": HTTPStatus(status).phrase, "status": status}
    return Problem(**head, reason=reason, detail=detail, **rest)


def _answer(told: Problem, headers: Mapping[str, str] | None) -> Response:
    content = json.dumps(dict(told), default=str)
    return Response(content, told.status, dict(headers or {}), "application/problem+json")


def add_handlers(app: FastAPI, methods: Mapping[str, Collection[str]]) -> None:
    """Have errors answered by problem documents; a 405 tells the *methods* of its path."""
    app.state.methods = methods
    for kind in (*_TOLD, Exception):
        app.add_exception_handler(kind, refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


async def refused(request: Request, error: Exception) -> Response:
    """The problem document of an error."""
    told = problem_of(error)
    if told.status == 500:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    again = error.retry_after_s if isinstance(error, mnemo.RateLimited) else None
    headers = {"Retry-After": str(round(again or RETRY_S))} if told.status == 503 else {}
    return _answer(told, headers)


def problem_of(error: Exception) -> Problem:
    """The document of what a call raised."""
    if isinstance(error, HTTPException):
        code = error.status_code
        reason = _REASONS.get(code, HTTPStatus(code).name.lower())
        return _document(code, reason, str(error.detail))
    kind = next((one for one in _TOLD if isinstance(error, one)), None)
    if kind is None:
        return _document(500, "internal_error", "the service failed; its log says why")
    status = next(code for one, code in STATUS if isinstance(error, one))
    name = type(error).__name__ if kind is mnemo.MnemoError else kind.__name__
    facts = {k: v for k, v in vars(error).items() if not k.startswith("_")}
    # Where it is a sentence, as of an archive's line, it is a fact.
    is_code = re.fullmatch("[a-z_]+", str(facts.get("reason", "")))
    reason = str(facts.pop("reason")) if is_code else reason_of(name)
    detail = str(error) or type(error).__name__
    return _document(status, reason, detail, error=name, facts=facts)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if any(one["loc"] == ("body",) for one in error.errors()) and _is_no_json(request):
        return problem(
            415, "unsupported_media_type", "send the body with content-type: application/json"
        )
    found = [
        {"place": ".".join(map(str, one["loc"])), "message": one["msg"]} for one in error.errors()
    ]
    detail = "; ".join(f"{one['place']}: {one['message']}" for one in found[:3])
    return problem(
        422, "invalid_argument", detail, error="ValueError", facts={"errors": found[:20]}
    )


def _is_no_json(request: Request) -> bool:
    """Whether the request has a body that does not say that it is JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = (
        "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
    )
    return has_body and kind != "application/json" and not kind.endswith("+json")


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers, methods = error.headers, request.app.state.methods.get(request.scope["path"])
    if error.status_code == 405 and methods:  # Starlette names those of one route of the path
        headers = {"Allow": ", ".join(sorted(methods))}
    return _answer(problem_of(error), headers)

"""A whole repository as a stream, out and in: the lines of an archive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

import mnemo
from mnemo.web.access import RETRY_S, Managed, Memory_, OpenRepositories
from mnemo.web.logs import audit

LINES = "application/x-ndjson"
LINE_BYTES = 16 * 2**20
"""Bytes of a line of an archive, at most (S)."""
PART = 256 * 2**10
"""Characters from which on lines are sent (S)."""
MOST_STREAMS = 4
"""Archives and backups that are sent or received at once; a further one gets 503 (S)."""


class Streams:
    """Counts the long streams that are under way."""

    def __init__(self) -> None:
        self._count = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a stream inside. *Raises* ``HTTPException``: 503, there are too many."""
        if self._count >= MOST_STREAMS:
            detail = f"{MOST_STREAMS} archives are under way already"
            raise HTTPException(503, detail, {"Retry-After": RETRY_S})
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


class Stream(StreamingResponse):
    """An answer in *parts*, whose context is entered first: what that raises is an answer."""

    def __init__(
        self,
        parts: AbstractAsyncContextManager[AsyncIterator[bytes]],
        media_type: str,
        filename: str,
    ) -> None:
        disposition = {"content-disposition": f'attachment; filename="{filename}"'}
        super().__init__((), headers=disposition, media_type=media_type)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; a client that leaves ends the context."""
        async with self._parts as parts:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def export_repo(request: Request, memory: Memory_, repo: Managed) -> Response:
    @asynccontextmanager
    async def exported() -> AsyncIterator[AsyncIterator[bytes]]:
        with request.app.state.streams.one_more():
            async with memory.export_repo(repo) as lines:
                audit("memory.export_repo", repo)
                yield _joined(lines)

    return Stream(exported(), LINES, "repository.jsonl")


async def _joined(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    part, size = list[str](), 0
    async for line in lines:
        part.append(line)
        size += len(line)
        if size >= PART:
            yield "".join(part).encode()
            part, size = [], 0
    yield "".join(part).encode()


async def import_repo(
    request: Request,
    memory: Memory_,
    repo: Managed,
    exist_ok: Annotated[bool, Query(description="One that holds just that stays as it is.")] = True,
) -> Any:
    repositories: OpenRepositories = request.app.state.repositories
    async with AsyncExitStack() as stack:
        stack.enter_context(request.app.state.streams.one_more())
        if not await memory.has_repo(repo):
            await stack.enter_async_context(repositories.vacated(repo))
        try:
            head = await memory.import_repo(repo, _lines(request.stream()), exist_ok=exist_ok)
        except ClientDisconnect as error:
            raise HTTPException(400, "the archive was cut off; nothing was imported") from error
    audit("memory.import_repo", repo)
    return head


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The lines of a body. *Raises* ``InvalidArchive``: one is too long, or not in UTF-8."""
    rest, number = bytearray(), 0
    async for part in parts:
        rest += part
        if b"\n" in part:
            *whole, last = rest.split(b"\n")
            rest = bytearray(last)
            for line in whole:
                number += 1
                yield _text(line, number)
        if len(rest) > LINE_BYTES:
            raise mnemo.InvalidArchive(number + 1, f"a line has at most {LINE_BYTES} bytes")
    if rest:
        yield _text(rest, number + 1)


def _text(line: bytes | bytearray, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise mnemo.InvalidArchive(number, f"it is not in UTF-8: {error.reason}") from error


_SENT = {"schema": {"type": "string", "description": "A JSON object on each line."}}
ENDPOINTS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "memory.export_repo": (
        export_repo,
        {
            "response_class": StreamingResponse,
            "response_model": None,
            "responses": {200: {"content": {LINES: _SENT}}},
        },
    ),
    "memory.import_repo": (
        import_repo,
        {
            "response_model": mnemo.ArchiveHead,
            "openapi_extra": {"requestBody": {"required": True, "content": {LINES: _SENT}}},
        },
    ),
}
"""By the names of operations whose routes are not derived: the endpoint, and what else they say."""

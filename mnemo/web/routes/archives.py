"""A whole repository as a stream, out and in, as lines of an archive; and backups of the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from tempfile import mkdtemp
from typing import Annotated, Any

import anyio
import anyio.to_thread
from fastapi import Depends, Query, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

import mnemo
from mnemo.web.access import (
    ANY,
    RETRY_S,
    SYSTEM,
    Managed,
    Memory_,
    OfAll,
    OpenRepositories,
)
from mnemo.web.logs import audit
from mnemo.web.problems import routes
from mnemo.web.routes.jobs import ACCEPTED, followed

router = routes(prefix="/v1", tags=["memory"])

LINES, DATABASE = "application/x-ndjson", "application/vnd.sqlite3"
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


def _attached(parts: AsyncIterator[bytes], kind: str, filename: str) -> StreamingResponse:
    """An answer in *parts*, which a browser keeps as a file."""
    disposition = {"content-disposition": f'attachment; filename="{filename}"'}
    return StreamingResponse(parts, headers=disposition, media_type=kind)


async def _exported(
    request: Request, memory: Memory_, repo: Managed
) -> AsyncIterator[AsyncIterator[str]]:
    """The lines, until the answer has been sent; what this raises is an answer."""
    with request.app.state.streams.one_more():
        async with memory.export_repo(repo) as lines:
            audit("memory.export_repo", repo)
            yield lines


async def export_repo(lines: Annotated[AsyncIterator[str], Depends(_exported)]) -> Response:
    return _attached(_joined(lines), LINES, "repository.jsonl")


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


# ── Backups of the store ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Backup:
    """
    A copy of the store in the server's folder.

    Attributes:
        name: Of its file.
        size: Bytes.
    """

    name: str
    size: int


async def _copied(request: Request, memory: Memory_, token: OfAll) -> AsyncIterator[Path]:
    """A copy, until the answer has been sent."""
    with request.app.state.streams.one_more():
        make = partial(mkdtemp, prefix=".backup-", dir=request.app.state.backup_folder)
        folder = Path(await anyio.to_thread.run_sync(make))
        try:
            await memory.backup(folder / "store.db")
            audit("memory.backup", ANY)
            yield folder / "store.db"
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(rmtree, folder)


@router.get(
    "/backup",
    name="backup",
    response_class=StreamingResponse,
    responses={200: {"content": {DATABASE: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def backup(copy: Annotated[Path, Depends(_copied)]) -> Response:
    """Stream a copy of the whole store, as of one moment, which is a store like others."""
    return _attached(_parts(copy), DATABASE, "store.db")


async def _parts(path: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(path, "rb") as file:
        while part := await file.read(PART):
            yield part


@router.post("/backup", response_model=Backup, name="backup.keep", responses=ACCEPTED)
async def keep_backup(request: Request, memory: Memory_, token: OfAll) -> Any:
    """Copy the whole store into the server's backup folder, under a name of the service's own."""
    folder: Path | None = request.app.state.backup_folder
    if folder is None:
        raise mnemo.UsageError("the service has no folder for backups: start it with one")
    name = f"mnemo-{SYSTEM.now():%Y%m%dT%H%M%SZ}-{token_hex(4)}.db"

    async def copied() -> Backup:
        await memory.backup(folder / name)
        found = await anyio.to_thread.run_sync((folder / name).stat)
        return Backup(name, found.st_size)

    return await followed(memory, token, "memory.backup", None, copied, Backup)


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

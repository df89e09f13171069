"""The workers of a service: what they share, and how one asks the others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from mnemo import Unreachable
from mnemo.web.logs import REQUEST
from mnemo.web.problems import refused

INSIDE = "mnemo.inside"
"""Key of a request's scope: another worker has passed it on."""
HANGS_S = 5.0
"""Seconds within which a worker says that it is there; else it hangs (S)."""
_NOT_PASSED_ON = ("connection", "content-length", "transfer-encoding", "accept-encoding")


@dataclass(frozen=True, slots=True)
class Worker:
    """
    One of the processes that serve a store together.

    Attributes:
        folder: Of this user and these processes alone; holds their board and a socket of each.
        number: From 0; the worker 0 extracts.
    """

    folder: Path
    number: int

    @property
    def board(self) -> Path:
        """The file of the numbers that they share."""
        return self.folder / "board"

    @property
    def socket(self) -> Path:
        """Where the others ask this one."""
        return self.folder / f"{self.number}.sock"


class Peers:
    """Passes requests on to the other workers of *worker*, if that is one of several."""

    def __init__(self, worker: Worker | None) -> None:
        self._worker = worker
        self._clients: dict[Path, httpx.AsyncClient] = {}

    def is_inside(self, scope: Scope) -> bool:
        """Whether the request came from another worker."""
        return self._worker is not None and scope.get("server") == (str(self._worker.socket), None)

    async def asked(
        self, request: Request, is_it: Callable[[httpx.Response], bool] = lambda _: False
    ) -> tuple[httpx.Response | None, list[httpx.Response | None]]:
        """
        The answer of another to *request* that *is_it*, and those before it; of none to what one
        of them has passed on. All are asked at once whether they are there, and those that are do
        the request one after the other. One that has ended is left out; one that hangs is not
        asked, and ``None``, as is one that ends or hangs over a ``GET``.

        *Raises* ``Unreachable``: that one, of another request. *Cancellation*: as of the request.
        """
        if self._worker is None or request.scope.get(INSIDE):
            return None, []
        content, known = await request.body(), REQUEST.get()
        headers = [pair for pair in request.headers.items() if pair[0] not in _NOT_PASSED_ON]
        headers += [("x-request-id", known.id)] if known else []
        url = str(request.url.replace(scheme="http", netloc="localhost"))
        paths = sorted(self._worker.folder.glob("*.sock"))
        others, lost, turn = list[httpx.Response | None](), list[Unreachable](), anyio.Lock()
        found: httpx.Response | None = None

        async def ask(client: httpx.AsyncClient, asked: httpx.Request) -> None:
            nonlocal found
            try:
                if not await _is_there(client):
                    return others.append(None)
                async with turn:
                    answer = await _sent(client, asked)
                    if not is_it(answer):
                        return others.append(answer)
                    found = answer
                    group.cancel_scope.cancel()
            except httpx.ConnectError:
                pass
            except Unreachable as gone:
                if request.method == "GET":
                    return others.append(None)
                lost.append(gone)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for client in (self._client(path) for path in paths if path != self._worker.socket):
                asked = client.build_request(
                    request.method, url, headers=headers, content=content, timeout=None
                )
                group.start_soon(ask, client, asked)
        if lost:
            raise lost[0]
        return found, others

    def _client(self, path: Path) -> httpx.AsyncClient:
        if path not in self._clients:
            transport = httpx.AsyncHTTPTransport(uds=str(path), limits=httpx.Limits())
            self._clients[path] = httpx.AsyncClient(transport=transport)
        return self._clients[path]

    async def aclose(self) -> None:
        """Close the connections to the others. *Cancellation*: safe."""
        for client in self._clients.values():
            await client.aclose()


async def _is_there(client: httpx.AsyncClient) -> bool:
    """Whether the worker answers. *Raises* ``httpx.ConnectError``: it has ended."""
    try:
        await client.get("http://localhost/healthz", timeout=HANGS_S)
    except httpx.ConnectError:
        raise
    except httpx.TransportError:
        return False
    return True


async def _sent(client: httpx.AsyncClient, asked: httpx.Request) -> httpx.Response:
    """The answer, however long it takes, while the worker is there."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            with suppress(httpx.ConnectError):
                is_there = True
                while is_there:
                    await anyio.sleep(HANGS_S)
                    is_there = await _is_there(client)
            group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            return await client.send(asked)
        except httpx.TransportError:
            pass
        finally:
            group.cancel_scope.cancel()
    raise Unreachable("the worker that was asked has ended or hangs; what it did is not known")


def passed_on(answer: httpx.Response) -> Response:
    """The *answer* of another worker as one of this."""
    kept = {name: answer.headers[name] for name in ("retry-after",) if name in answer.headers}
    return Response(answer.content, answer.status_code, kept, answer.headers.get("content-type"))


async def held_elsewhere(request: Request, error: Exception) -> Response:
    """Answer for a session that is open in another process: in another worker, as that does."""
    if getattr(error, "reason", None) != "owned_elsewhere":
        return await refused(request, error)

    def has_it(answer: httpx.Response) -> bool:
        return answer.status_code != 409 or answer.json().get("reason") != "owned_elsewhere"

    try:
        found, _ = await request.app.state.peers.asked(request, has_it)
    except Unreachable as gone:
        return await refused(request, gone)
    return passed_on(found) if found else await refused(request, error)

"""Fixtures of the HTTP service's tests: the application in this process, and as a server."""

import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import anyio
import httpx
import pytest
import pytest_asyncio
from document_kit import has_a_declared_reason
from inspector_kit import LIMIT_S, Inspector, chromium, inspected, served

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder
from mnemo.web import Token, new_token, serve, token_of, web_app

Connect = Callable[..., httpx.AsyncClient]


@pytest.fixture
async def memory() -> AsyncIterator[Mnemo]:
    """An open service over an empty store in memory."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as opened:
        yield opened


@pytest.fixture
async def connect(memory: Mnemo) -> AsyncIterator[Connect]:
    """Makes clients of one application; each has a token of its own unless it is given one."""
    async with AsyncExitStack() as stack:

        def made(*tokens: Token, secret: str | None = None, **headers: str) -> httpx.AsyncClient:
            own = new_token() if secret is None else secret
            known: Sequence[Token] = tokens or [token_of(own, "all", rights="admin")]
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(web_app(memory, tokens=known)),
                base_url="http://127.0.0.1:8642",
                headers={"authorization": f"Bearer {own}", **headers},
                event_hooks={"response": [has_a_declared_reason]},
            )
            stack.push_async_callback(client.aclose)
            return client

        yield made


@pytest.fixture
def client(connect: Connect) -> httpx.AsyncClient:
    """A client that may do everything."""
    return connect()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    """One browser for all tests of a file; each test has a profile of its own."""
    async with chromium() as opened:
        yield opened


@dataclass
class Served:
    """``mnemo.web.serve`` on the event loop of the test."""

    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """What a request must bring."""
        return {"authorization": f"Bearer {self.token}"}

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        return int(self.url.rpartition(":")[2])


Serving = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def serving(memory: Mnemo) -> Serving:
    """Serves the store in memory over real sockets; arguments as of ``mnemo.web.serve``."""

    @asynccontextmanager
    async def served(**arguments: Any) -> AsyncIterator[Served]:
        secret, ready, urls = new_token(), anyio.Event(), list[str]()

        def listening(url: str) -> None:
            urls.append(url)
            ready.set()

        async def run() -> None:
            await serve(
                memory,
                tokens=[token_of(secret, "all", rights="admin")],
                ready=listening,
                **arguments,
            )

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await ready.wait()
            yield Served(urls[0], secret)
            group.cancel_scope.cancel()

    return served


@dataclass
class Server:
    """``mnemo serve`` as a process of its own."""

    process: subprocess.Popen[str]
    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        """What a request must bring."""
        return {"authorization": f"Bearer {self.token}"}

    def client(self) -> httpx.AsyncClient:
        """A client with the server's token."""
        return httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=LIMIT_S)

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        """Stop it, and wait; its exit code."""
        self.process.send_signal(how)
        return self.process.wait(LIMIT_S)


@pytest.fixture(name="serve")
def serve_command(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers of a store in an empty folder; those that still run are killed at the end."""
    servers: list[subprocess.Popen[str]] = []

    def started(*options: str, port: int = 0, what: str = "serve") -> Server:
        command = [sys.executable, "-m", "mnemo", what, "--port", str(port), *options]
        process: subprocess.Popen[str] = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        servers.append(process)
        found = re.match(r"(http://\S+?)/#token=(\S+)|(http://\S+)", _line(process.stdout))
        assert found is not None
        return Server(process, found[1] or found[3], found[2] or "")

    yield started
    for process in servers:
        if process.poll() is None:
            process.kill()
        process.wait(LIMIT_S)
        if process.stdout is not None:
            process.stdout.close()


def _line(stream: IO[Any] | None) -> str:
    assert stream is not None
    return str(stream.readline())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Any]:
    """One server for all tests of the inspector in a file; each has a repository of its own."""
    async with served() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def inspector(browser: Any, server: Any, repo: Any) -> AsyncIterator[Inspector]:
    """The inspector of that repository."""
    async with inspected(browser, server) as opened:
        yield opened

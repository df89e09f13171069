"""Fixtures of the HTTP service's tests: the application in this process, and as a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack

import httpx
import pytest

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder
from mnemo.web import Token, new_token, token_of, web_app

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
            known: Sequence[Token] = tokens or [token_of(own, "all")]
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(web_app(memory, tokens=known)),  # type: ignore[arg-type]
                base_url="http://127.0.0.1:8642",
                headers={"authorization": f"Bearer {own}", **headers},
            )
            stack.push_async_callback(client.aclose)
            return client

        yield made


@pytest.fixture
def client(connect: Connect) -> httpx.AsyncClient:
    """A client that may do everything."""
    return connect()

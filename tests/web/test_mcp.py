"""MCP over streamable HTTP, driven by the SDK's client against a real server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from inspector_kit import LIMIT_S
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mnemo.web import new_token, token_of

pytestmark = [pytest.mark.slow, pytest.mark.long]


@asynccontextmanager
async def connected(url: str, secret: str, **params: str) -> AsyncIterator[Client]:
    """A client of ``/mcp`` with a token."""
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx2.AsyncClient(headers=headers, timeout=LIMIT_S) as http:
        address = f"{url}/mcp?{httpx2.QueryParams(params)}"
        async with Client(streamable_http_client(address, http_client=http)) as client:
            yield client


async def test_an_mcp_client_remembers_and_recalls_behind_the_tokens(serve, tmp_path):
    """A writing token has all tools, a reading one only those that read, another none."""
    secrets = {name: new_token() for name in ("writer", "reader", "other")}
    entries = [
        token_of(secrets["writer"], "writer", repositories=["a"]),
        token_of(secrets["reader"], "reader", repositories=["a"], rights="read"),
        token_of(secrets["other"], "other", repositories=["b"]),
    ]
    (tmp_path / "tokens.toml").write_text(
        "".join(
            f"[[tokens]]\nname = '{e.name}'\nsha256 = '{e.sha256}'\nrights = '{e.rights}'\n"
            f"repositories = {list(e.repositories)}\n"
            for e in entries
        )
    )
    server = serve("--token-file", "tokens.toml")
    async with connected(server.url, secrets["writer"], repo="a", thread="desk") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"remember", "forget"} <= names
        await client.call_tool("remember", {"text": "Ada plays the cello."})
        found = await client.call_tool("recall", {"query": "What does Ada play?"})
        assert "cello" in found.content[1].text
    async with connected(server.url, secrets["reader"], repo="a") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "recall" in names
        assert not names & {"remember", "forget", "update_memory", "write_note"}
        hits = await client.call_tool("search_messages", {"query": "cello"})
        assert "cello" in hits.content[1].text
    async with httpx2.AsyncClient(base_url=server.url) as plain:
        sent = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for headers, status in (
            ({}, 401),
            ({"authorization": f"Bearer {secrets['other']}"}, 404),
            ({"authorization": f"Bearer {secrets['writer']}", "host": "evil.example"}, 421),
        ):
            answer = await plain.post("/mcp?repo=a", json=sent, headers=headers)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
    assert server.stop() == 130


async def test_a_page_of_an_allowed_origin_is_an_mcp_client(serving):
    """A browser asks first, sends the headers of the protocol, and reads the session's id."""
    mine = "https://page.example"
    client = {"name": "page", "version": "1"}
    asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    sent = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}
    preflight = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,last-event-id,"
        "mcp-protocol-version,mcp-session-id",
    }
    accepts = {"accept": "application/json, text/event-stream"}
    async with (
        serving(origins=[mine]) as server,
        httpx2.AsyncClient(base_url=server.url, headers={"origin": mine}) as page,
    ):
        for method in ("POST", "GET", "DELETE"):
            allowed = await page.options(
                "/mcp", headers=preflight | {"access-control-request-method": method}
            )
            assert allowed.status_code == 200
            assert allowed.headers["access-control-allow-origin"] == mine
        answer = await page.post("/mcp", json=sent, headers=accepts | server.headers)
        assert answer.status_code == 200
        assert "mcp-session-id" in answer.headers["access-control-expose-headers"]
        assert answer.headers["access-control-allow-origin"] == mine
        refused = await page.post("/mcp", json=sent, headers=accepts)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == mine

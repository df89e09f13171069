"""MCP over streamable HTTP at ``/mcp``, behind the tokens of the service."""

from __future__ import annotations

from typing import Any

import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from mnemo.web.access import opened
from mnemo.web.tokens import Token

MOST_THREAD = 512
"""Characters of a thread's id."""


class McpEndpoint:
    """
    An ASGI application: ``/mcp?repo=R&thread=T`` is an MCP server of that repository.

    Each request has a server of its own, so nothing is kept between two of them, and no session
    can be taken over or run out. A token that may only read is offered the reading tools.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if request.method != "POST":
            # Without sessions there is no stream of its own to open, and no session to end.
            raise HTTPException(405, "send MCP messages with POST", {"Allow": "POST"})
        thread_id = request.query_params.get("thread", "default")
        if not 0 < len(thread_id) <= MOST_THREAD:
            raise ValueError(f"thread must have 1 to {MOST_THREAD} characters")
        token: Token = request.state.token
        may_write = token.rights == "write"
        repo = await opened(request, request.query_params.get("repo", "default"), make=may_write)
        try:
            memory_server, settings = await anyio.to_thread.run_sync(_imported)
        except ImportError as error:
            raise HTTPException(501, str(error)) from error
        server = memory_server(repo, thread_id=thread_id, write=may_write, read_only=not may_write)
        app = server.streamable_http_app(stateless_http=True, transport_security=settings)
        async with server.session_manager.run():
            await app(scope, receive, send)


def _imported() -> tuple[Any, Any]:
    """What the extra ``[mcp]`` brings; Host and Origin were checked by the gate."""
    from mcp.server.transport_security import TransportSecuritySettings

    from mnemo.mcp import memory_server

    return memory_server, TransportSecuritySettings(enable_dns_rebinding_protection=False)

"""MCP over streamable HTTP at ``/mcp``, behind the tokens of the service."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from mnemo import Mnemo, Repository
from mnemo.web.access import opened
from mnemo.web.tokens import Token

__all__ = ["McpEndpoint"]

MOST_SERVERS = 100
"""Servers at once, one for each token, repository and thread; a further one is refused (S)."""
MOST_SESSIONS = 200
"""Sessions of MCP clients of one server, at most (S)."""
MOST_THREAD = 512
"""Characters of a thread's id."""


class McpEndpoint:
    """
    An ASGI application: ``/mcp?repo=R&thread=T`` is an MCP server of that repository.

    Each token has servers of its own, so no session can be taken over by another one. A token
    that may only read is offered the reading tools.
    """

    def __init__(self, memory: Mnemo) -> None:
        self._memory = memory
        self._servers: dict[tuple[str, str, str], ASGIApp] = {}
        self._starting = anyio.Lock()
        self._tasks: TaskGroup | None = None

    def open(self, tasks: TaskGroup) -> None:
        """Run servers in *tasks* from now on; a plain call."""
        self._tasks = tasks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        repo_id = request.query_params.get("repo", "default")
        thread_id = request.query_params.get("thread", "default")
        if not 0 < len(thread_id) <= MOST_THREAD:
            raise ValueError(f"thread must have 1 to {MOST_THREAD} characters")
        token: Token = request.state.token
        repo = await opened(self._memory, token, repo_id, make=token.rights == "write")
        server = await self._server(token, repo, thread_id)
        await server(scope, receive, send)

    async def _server(self, token: Token, repo: Repository, thread_id: str) -> ASGIApp:
        key = (token.name, repo.id, thread_id)
        async with self._starting:
            if key not in self._servers:
                if len(self._servers) >= MOST_SERVERS:
                    raise HTTPException(503, "too many MCP servers are open")
                if self._tasks is None:
                    raise HTTPException(503, "the application's lifespan has not begun")
                self._servers[key] = await self._tasks.start(self._run, token, repo, thread_id)
        return self._servers[key]

    async def _run(
        self, token: Token, repo: Repository, thread_id: str, *, task_status: TaskStatus[Any]
    ) -> None:
        """Run a server until cancelled; its application is what the task starts with."""
        may_write = token.rights == "write"
        try:
            memory_server, settings = await anyio.to_thread.run_sync(_imported)
        except ImportError as error:
            raise HTTPException(501, str(error)) from error
        server = memory_server(repo, thread_id=thread_id, write=may_write, read_only=not may_write)
        app = server.streamable_http_app(max_sessions=MOST_SESSIONS, transport_security=settings)
        async with server.session_manager.run():
            task_status.started(app)
            await anyio.sleep_forever()


def _imported() -> tuple[Any, Any]:
    """What the extra ``[mcp]`` brings; Host and Origin were checked by the gate."""
    from mcp.server.transport_security import TransportSecuritySettings

    from mnemo.mcp import memory_server

    return memory_server, TransportSecuritySettings(enable_dns_rebinding_protection=False)

"""Run the HTTP service with uvicorn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import cast

import anyio
import uvicorn

from mnemo import ConfigError, Mnemo
from mnemo.web.app import web_app
from mnemo.web.gate import LOOPBACK
from mnemo.web.link import Limits, Link
from mnemo.web.live import Live
from mnemo.web.tokens import Token

GRACE_S = 3
"""Seconds that open requests may still take when the service is stopped (S)."""
IDLE_S = 30
"""Seconds after which a connection without requests is closed (S)."""


async def serve(
    memory: Mnemo,
    *,
    tokens: Sequence[Token],
    host: str = "127.0.0.1",
    port: int = 0,
    hosts: Sequence[str] = LOOPBACK,
    origins: Sequence[str] = (),
    limits: Limits | None = None,
    ready: Callable[[str], object] = lambda url: None,
) -> None:
    """
    Serve *memory* until the process is interrupted or the call cancelled.

    Args:
        host, port: Where to listen; port 0 is a free one.
        hosts, origins: As of ``web_app``.
        limits: Of connections and of the heads of requests.
        ready: Called with the URL once connections are accepted.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    gate = web_app(memory, tokens=tokens, hosts=hosts, origins=origins)
    link = partial(Link, limits=limits or Limits(), idle={})
    config = uvicorn.Config(
        gate,
        http=cast(type[asyncio.Protocol], link),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    with listening(host, port) as listener:
        bound = listener.getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        ready(f"http://{name}:{bound}")
        await _Server(config, gate.app.state.live).run_until_stopped(listener)


class _Server(uvicorn.Server):
    """A server that ends its live streams when it is stopped, instead of waiting for them."""

    def __init__(self, config: uvicorn.Config, live: Live) -> None:
        super().__init__(config)
        self._live = live

    async def run_until_stopped(self, listener: socket.socket) -> None:
        """Serve until a signal; if the call is cancelled, stop as after one, and only then end."""
        ended = anyio.Event()

        async def run() -> None:
            with anyio.CancelScope(shield=True):
                await self.serve(sockets=[listener])
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            try:
                await ended.wait()
            finally:
                self._live.end()
                self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; what is under way may still end."""
        self._live.end()
        super().handle_exit(sig, frame)


def listening(host: str, port: int) -> socket.socket:
    """
    A socket that listens; its connections send at once.

    Raises:
        ConfigError: The address is in use, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        raise ConfigError(f"{host}:{port} cannot be listened on: {error.strerror}") from error
    # Connections inherit it. Without it an answer's body waits 40 ms for the client's delayed
    # acknowledgement: asyncio sets it only where a socket names its protocol, which this one
    # does not.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener

"""Run the HTTP service with uvicorn, each connection within bounds."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import anyio
import uvicorn
from starlette.responses import Response
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from mnemo import Mnemo
from mnemo.runtime.sockets import BACKLOG, address_of, listening, listening_at
from mnemo.web.access import Token
from mnemo.web.app import web_app
from mnemo.web.gate import ADDED_IN_PRIVATE, HEAD_BYTES, LINK, LOOPBACK, too_long_a_head
from mnemo.web.live import Live
from mnemo.web.peers import Worker
from mnemo.web.problems import problem

MOST_DISCARDED = 16 * HEAD_BYTES
"""Bytes that a refused client may still send until it reads why (S)."""
MOST_WAITING = 100
"""Requests of a connection that may wait behind the one that is answered (S)."""
CROWDED = 0.9
"""Part of the connections from which on idle ones are closed for new ones (S)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """
    What clients may take before their tokens are looked at.

    Attributes:
        connections: Open at once; the requests of further ones get 503. When nine tenths are
            taken, each new one closes the one that has been without a request the longest.
        head_s: Seconds from a new connection, or from the first byte of a further request, to
            the end of the request's head; then it is closed, half a head with 408.
        unread_s: Seconds for which a client may leave what is sent to it unread; then it is cut
            off. Some hundred kilobytes are sent ahead.
    """

    connections: int = 2_000
    head_s: float = 10.0
    unread_s: float = 30.0


class Link(HttpToolsProtocol):
    """
    uvicorn's protocol with bounds; how long a complete head is, is checked by the gate.

    *idle* are the server's connections without a request in progress, longest first.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: Limits,
        idle: dict[Link, None],
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._idle = idle
        self._unread = 0  # bytes since the last complete head or part of a body
        self._in_head = False
        self._refused = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._work: anyio.CancelScope | None = None

    @property
    def is_crowded(self) -> bool:
        """Whether there are more connections than the server takes."""
        return len(self.connections) > self._limits.connections

    def carries(self, work: anyio.CancelScope) -> None:
        """Cancel *work*, which makes an answer, when the client leaves; a plain call."""
        self._work = work
        if self.transport.is_closing():
            work.cancel()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head, and make room for the next connection."""
        super().connection_made(transport)
        oldest = next(iter(self._idle), None)
        if oldest is not None and len(self.connections) > CROWDED * self._limits.connections:
            del self._idle[oldest]
            oldest._close()
        self._idle[self] = None
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the work for a client that left before its answer was complete."""
        # First: a call that waits for the rest of its body would else take its end for a mistake.
        if self._is_busy and self._work is not None:
            self._work.cancel()
        super().connection_lost(exc)
        self._idle.pop(self, None)
        self._end_timer()
        self._end_unread()

    def data_received(self, data: bytes) -> None:
        """Parse *data*; refuse what goes on for more than ``HEAD_BYTES`` and says nothing."""
        self._unread += len(data)
        if self._refused:
            if self._unread > MOST_DISCARDED:
                self._close()
            return
        super().data_received(data)
        if self._unread > HEAD_BYTES and not self._refused:
            self._refuse(too_long_a_head())
        if not self._is_busy:
            self._expect_head()

    def on_message_begin(self) -> None:
        """A head has begun, of the next request perhaps while one is answered."""
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Hand the request over. *Raises* ``OverflowError``, which is no HTTP: too many wait."""
        if len(self.pipeline) >= MOST_WAITING:
            raise OverflowError("too many requests wait behind another")
        self.scope[LINK] = self  # type: ignore[literal-required]
        super().on_headers_complete()
        self._unread = 0
        self._in_head = False
        self._end_timer()
        self._idle.pop(self, None)

    def on_body(self, body: bytes) -> None:
        """Take a part of a body; the gate bounds it."""
        self._unread = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Be idle from now on, unless a further request waits."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._expect_reading()
        elif not self._is_busy:
            self._idle[self] = None
            if self._in_head:
                self._expect_head()

    def pause_writing(self) -> None:
        """Wait for a client that does not read, for a while."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Go on; the client has read."""
        super().resume_writing()
        self._end_unread()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been without a request for long."""
        self._close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or has an address that is too long to be read."""
        no_http = problem(400, "bad_request", "this is no HTTP request")
        self._refuse(too_long_a_head() if self._unread > HEAD_BYTES else no_http)

    @property
    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_s, self._head_is_late)

    def _end_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _expect_reading(self) -> None:
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(self._limits.unread_s, self.transport.abort)

    def _end_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _close(self) -> None:
        """Close the connection when the client has read what was sent, or after a while."""
        self.transport.close()
        self._expect_reading()

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._refused or not self._in_head:
            self._close()
        else:
            self._refuse(problem(408, "request_timeout", "the head of the request took too long"))

    def _refuse(self, answer: Response) -> None:
        """
        Send *answer* where it can be one, and close the connection.

        A client that is still sending would lose the answer if the socket were closed at once:
        what it sends is dropped until it closes, for a while.
        """
        self._refused = True
        if self._is_busy:
            if not (self.cycle.more_body or self.cycle.response_started):
                self.cycle.keep_alive = False  # it came whole: it is carried out, and told so
                return
            if self.cycle.response_started or self.pipeline:
                self._close()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(self._as_bytes(answer))
        self.transport.write_eof()
        self._idle[self] = None
        self._expect_head()

    def _as_bytes(self, answer: Response) -> bytes:
        first = STATUS_LINE[answer.status_code]
        headers = [
            *self.server_state.default_headers,
            *answer.raw_headers,
            *ADDED_IN_PRIVATE,
            (b"connection", b"close"),
        ]
        lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
        return first + lines + b"\r\n" + bytes(answer.body)


GRACE_S = 3
"""Seconds that open requests may still take when the service is stopped (S)."""
IDLE_S = 30
"""Seconds after which a connection without requests is closed (S)."""


async def serve(
    memory: Mnemo,
    *,
    tokens: Sequence[Token] | Path,
    host: str = "127.0.0.1",
    port: int = 0,
    listener: socket.socket | None = None,
    hosts: Sequence[str] = LOOPBACK,
    origins: Sequence[str] = (),
    limits: Limits | None = None,
    backup_folder: Path | None = None,
    worker: Worker | None = None,
    ready: Callable[[str], object] = lambda url: None,
) -> None:
    """
    Serve *memory* until the process is interrupted or the call cancelled.

    Args:
        host, port: Where to listen; port 0 is a free one.
        listener: Listens already, in place of *host* and *port*; it is closed at the end.
        hosts, origins, backup_folder: As of ``web_app``.
        limits: Of connections and of the heads of requests, in this process.
        worker: As of ``web_app``.
        ready: Called with the URL once connections are accepted.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    gate = web_app(
        memory,
        tokens=tokens,
        hosts=hosts,
        origins=origins,
        backup_folder=backup_folder,
        worker=worker,
    )
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
        # So many are accepted at once: what comes together is for all workers.
        backlog=BACKLOG if worker is None else 1,
    )
    with ExitStack() as stack:
        bound = stack.enter_context(listener or listening(host, port))
        beside = [stack.enter_context(listening_at(worker.socket))] if worker else []
        ready(address_of(bound))
        await _Server(config, gate.app.state.live).run_until_stopped([bound, *beside])


class _Server(uvicorn.Server):
    """A server that ends its live streams when it is stopped, instead of waiting for them."""

    def __init__(self, config: uvicorn.Config, live: Live) -> None:
        super().__init__(config)
        self._live = live

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept; whatever is accepted at once, as many may wait as before."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)

    async def run_until_stopped(self, listeners: list[socket.socket]) -> None:
        """Serve until a signal; if the call is cancelled, stop as after one, and only then end."""
        ended = anyio.Event()

        async def run() -> None:
            with anyio.CancelScope(shield=True):
                await self.serve(sockets=listeners)
            ended.set()

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            try:
                await ended.wait()
            finally:
                self._live.end()
                self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; what is under way may still end. After SIGTERM the call returns."""
        self._live.end()
        if sig == signal.SIGTERM:  # uvicorn would raise it again: nothing would be closed
            self.should_exit = True
        else:
            super().handle_exit(sig, frame)

"""Sockets that listen: bound before what answers on them is imported."""

from __future__ import annotations

import socket
from errno import EADDRINUSE
from pathlib import Path

from mnemo.errors import ConfigError

BACKLOG = 2_048
"""Connections that wait until they are accepted."""


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; its connections send at once. *Raises* ``ConfigError``: it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        what = f"{host}:{port} cannot be listened on: {error.strerror}"
        if error.errno == EADDRINUSE:
            what = f"{host}:{port} is in use: name another port, or 0 for a free one"
        raise ConfigError(what) from error
    # Connections inherit it. Without it an answer's body waits 40 ms for the client's delayed
    # acknowledgement: asyncio sets it only where a socket names its protocol, which this one
    # does not.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def listening_at(path: Path) -> socket.socket:
    """
    A Unix socket that listens at *path*, in place of one that nobody listens on any more.

    *Raises* ``ConfigError``: it cannot; another process listens there.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            if not caller.connect_ex(str(path)):
                raise ConfigError(f"{path}: another process listens there")
        if path.is_socket():
            path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        raise ConfigError(f"{path} cannot be listened on: {error.strerror or error}") from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Its URL."""
    bound = listener.getsockname()
    if isinstance(bound, str):
        return f"unix:{bound}"
    return f"http://[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"http://{bound[0]}:{bound[1]}"

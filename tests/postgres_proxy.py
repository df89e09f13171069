"""A proxy before a PostgreSQL server: it adds TLS, and may change what the server says."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

_TLS_REQUEST = bytes.fromhex("0000000804d2162f")
_ROOM = 65_536


def unchanged(data: bytes) -> bytes:
    """What the server says, as it is."""
    return data


@asynccontextmanager
async def proxied(
    server: str,
    *,
    tls: ssl.SSLContext | None = None,
    said: Callable[[bytes], bytes] = unchanged,
) -> AsyncIterator[str]:
    """A URL on 127.0.0.1 that leads to *server*, which listens at a socket."""
    (folder,) = parse_qs(urlsplit(server).query)["host"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(_ROOM)
        if first == _TLS_REQUEST:
            writer.write(b"S" if tls else b"N")
            if tls:
                try:
                    await writer.start_tls(tls)
                except ssl.SSLError:  # The client does not trust the certificate.
                    return
            first = b""
        inside, outside = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        outside.write(first)
        await asyncio.gather(_forward(reader, outside, unchanged), _forward(inside, writer, said))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield f"postgresql://postgres:secret@127.0.0.1:{port}/postgres?connect_timeout=5"


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: Callable[[bytes], bytes]
) -> None:
    try:
        while data := await reader.read(_ROOM):
            writer.write(said(data))
            await writer.drain()
    except OSError:
        pass  # Either side may end it.
    finally:
        writer.close()

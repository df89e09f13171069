"""A proxy before an HTTP server, which cuts or holds live streams, and loses answers."""

from __future__ import annotations

import asyncio
from types import TracebackType
from urllib.parse import urlsplit

ROOM = 65_536
STREAM = b"GET /v1/events"


class Link:
    """One connection; from the request of a stream on, what the server says is counted."""

    def __init__(self) -> None:
        self.is_stream = False
        self.is_held = False
        self.is_lost = False


class CutProxy:
    """
    Forwards the connections of a browser to the server at *url*.

    Attributes:
        url: Where it listens.
        has_cut: Set when a stream was cut, as ``cut_after`` asked for.
    """

    def __init__(self, url: str) -> None:
        self.url = ""
        self.has_cut = asyncio.Event()
        self._to = urlsplit(url)
        self._links: set[Link] = set()
        self._left: int | None = None
        self._losing: dict[bytes, int] = {}
        self._moved = asyncio.Event()

    async def __aenter__(self) -> CutProxy:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._listener.close()

    def cut_after(self, size: int) -> None:
        """End the stream that passes the next *size* bytes, and pass no more of it."""
        self._left = size
        self.has_cut.clear()

    def lose_answers(self, words: bytes, times: int) -> None:
        """End the connection in place of the answer to the next requests that have these words."""
        self._losing[words] = times

    def hold(self) -> None:
        """Pass nothing more to the streams that are open now, without ending them."""
        for link in self._links:
            link.is_held = link.is_stream

    async def moved(self) -> None:
        """Wait until a stream has passed something since the last call."""
        await self._moved.wait()
        self._moved.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link()
        self._links.add(link)
        inside, outside = await asyncio.open_connection(self._to.hostname, self._to.port)
        both = (self._asked(link, reader, outside), self._answered(link, inside, writer))
        try:
            await asyncio.wait(map(asyncio.ensure_future, both))
        finally:
            self._links.discard(link)

    async def _asked(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(ROOM):
                link.is_stream = link.is_stream or STREAM in data
                for words, times in self._losing.items():
                    if times and words in data:
                        self._losing[words], link.is_lost = times - 1, True
                writer.write(data)
        except OSError:
            pass  # Either side may end it.
        finally:
            writer.close()

    async def _answered(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(ROOM):
                passed = self._passed(link, data)
                writer.write(passed)
                await writer.drain()
                if link.is_stream:
                    self._moved.set()
                if len(passed) < len(data) and not link.is_held:
                    if not link.is_lost:
                        self._left = None
                        self.has_cut.set()
                    break
        except OSError:
            pass  # Either side may end it.
        finally:
            writer.close()

    def _passed(self, link: Link, data: bytes) -> bytes:
        """What of *data* the browser gets."""
        if link.is_held or link.is_lost:
            return b""
        if not link.is_stream or self._left is None:
            return data
        passed = data[: self._left]
        self._left -= len(passed)
        return passed

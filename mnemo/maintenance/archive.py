"""Export a repository to lines of text, and import it from them, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import islice

from mnemo.errors import NotFound
from mnemo.runtime.tasks import Threads
from mnemo.store.archive import StoredArchive
from mnemo.values.archive import ArchiveHead, NumberedRecord, Record
from mnemo.values.archive_lines import ArchiveReader, head_line, record_lines

_PAGE_LINES = 500


@asynccontextmanager
async def export_lines(
    archive: StoredArchive, *, repo_id: str, may_be_empty: bool
) -> AsyncIterator[AsyncIterator[str]]:
    """
    The lines of *archive* as of one moment, which is held until the context ends.

    Raises:
        NotFound: There is nothing in it, and that is not *may_be_empty*.
        StoreError: It could not be read. *Cancellation*: safe.
    """
    async with archive.read() as (head, pages):
        if head.is_empty and not may_be_empty:
            raise NotFound("repository", repo_id)
        async with aclosing(_lines(head, pages)) as lines:
            yield lines


async def _lines(
    head: ArchiveHead, pages: AsyncIterator[Sequence[Record]]
) -> AsyncGenerator[str, None]:
    threads = Threads()
    yield head_line(head)
    async for page in pages:
        for line in await threads.run(record_lines, page):
            yield line


async def import_lines(
    archive: StoredArchive, lines: AsyncIterable[str] | Iterable[str]
) -> ArchiveHead:
    """
    Fill *archive*'s repository with what *lines* say, all or nothing; give their head.

    Raises:
        UsageError, Conflict, InvalidArchive: As ``StoredArchive.write``.
        StoreError: It could not be written. *Cancellation*: safe.
    """
    threads, reader = Threads(), ArchiveReader()
    async with aclosing(_chunks(lines, threads)) as chunks:
        first: list[str] = await anext(chunks, [])
        head = reader.head(first[0] if first else None)
        async with aclosing(_pages(reader, first[1:], chunks, threads)) as pages:
            await archive.write(head, pages)
    return head


async def _pages(
    reader: ArchiveReader,
    first: list[str],
    chunks: AsyncIterator[list[str]],
    threads: Threads,
) -> AsyncGenerator[Sequence[NumberedRecord], None]:
    yield await threads.run(reader.records, first)
    async for chunk in chunks:
        yield await threads.run(reader.records, chunk)
    reader.finish()


async def _chunks(
    lines: AsyncIterable[str] | Iterable[str], threads: Threads
) -> AsyncGenerator[list[str], None]:
    if isinstance(lines, str | bytes):
        raise ValueError("lines must give one line after the other, not be one text")
    if isinstance(lines, AsyncIterable):
        chunk: list[str] = []
        async for line in lines:
            chunk.append(line)
            if len(chunk) == _PAGE_LINES:
                yield chunk
                chunk = []
        yield chunk
        return
    # A plain iterable may be a file: reading it is work for a thread.
    rest = iter(lines)
    while chunk := await threads.run(lambda: list(islice(rest, _PAGE_LINES))):
        yield chunk

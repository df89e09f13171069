"""
One repository as records and as lines of text, out and in: ``StoredArchive`` over an engine.

In bounded memory, whatever its size.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import islice

from mnemo.errors import NotFound
from mnemo.runtime.tasks import Threads
from mnemo.store.archive_checks import CHECKS, INDEXES, check, prune
from mnemo.store.archive_export import EXPORTS, head_of, opened
from mnemo.store.archive_import import STAGING, StagedRows, move, put, refuse_filled
from mnemo.store.engine import Engine, Snapshot, Staging, compute, repository_locks
from mnemo.store.rows import Passed, Rows, log_passed
from mnemo.store.tx import Result, Tx
from mnemo.values.archive import ArchiveHead, LeftOut, NumberedRecord, Record
from mnemo.values.archive_lines import ArchiveReader, head_line, record_lines
from mnemo.values.entities import KINDS

_PAGE_ROWS, _PAGE_LINES = 500, 500


class StoredArchive:
    """One repository as records, out and in: what ``values.archive`` names, in its order."""

    def __init__(self, repo_id: str, engine: Engine) -> None:
        self._repo_id = repo_id
        self._engine = engine

    @asynccontextmanager
    async def read(self) -> AsyncIterator[tuple[ArchiveHead, AsyncIterator[Sequence[Record]]]]:
        """Everything as of one moment, of one read transaction, until the context ends."""
        async with self._engine.snapshot() as snapshot:
            repo, head = await snapshot.reading(partial(head_of, repo_id=self._repo_id))
            yield head, _pages(snapshot, repo)

    async def write(
        self, head: ArchiveHead, pages: AsyncIterator[Sequence[NumberedRecord]]
    ) -> None:
        """
        Stage everything, check it, and move it over in one transaction; sessions have no owner.

        Other writers go on meanwhile; those of this repository wait for the last move.

        Raises:
            UsageError: The repository is not empty.
            Conflict: A session, episode or step of it was forgotten in this repository.
            InvalidArchive: Records do not fit each other. *Cancellation*: safe.
        """
        await self._engine.reading(partial(refuse_filled, repo_id=self._repo_id))
        async with self._engine.staging(STAGING) as staging:
            if await _receive(staging, pages):
                await staging.staging(prune)
            for reason, query in CHECKS:
                await staging.staging(partial(check, reason=reason, query=query))
            moved = partial(move, repo_id=self._repo_id, head=head)
            await staging.writing(moved, locks=repository_locks(self._repo_id))


async def _receive(staging: Staging, pages: AsyncIterator[Sequence[NumberedRecord]]) -> int:
    """Stage the records; give how many were left out of the archive."""
    staged = StagedRows()
    async for page in pages:
        batch = await compute(partial(staged.batch, page))
        await staging.staging(partial(put, batch=batch))
    for statement in INDEXES:
        await staging.staging(partial(_execute, statement))
    return staged.left_out


def _execute(statement: str, tx: Tx) -> None:
    tx.run(statement)


async def _pages(snapshot: Snapshot, repo: int) -> AsyncIterator[Sequence[Record]]:
    for kind in KINDS:
        query, read = EXPORTS[kind]
        rows = await snapshot.reading(partial(opened, query, repo))
        while page := await snapshot.reading(partial(_page, rows, kind, read)):
            yield page


def _page(rows: Result, kind: str, read: Rows[Record], _: Tx) -> Sequence[Record]:
    passed: Passed = []
    found = read.all(rows.fetchmany(_PAGE_ROWS), passed)
    log_passed(passed)
    left_out = [LeftOut(kind=kind, key=damage.key or "") for damage in passed]
    return [*found, *left_out]


# ── Lines ────────────────────────────────────────────────────────────────────────────


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
        async with aclosing(_numbered(reader, first[1:], chunks, threads)) as pages:
            await archive.write(head, pages)
    return head


async def _numbered(
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

"""
One repository as lines of text, out and in: ``StoredArchive`` over an engine.

In bounded memory, whatever its size. JSON Lines in ASCII: a head, then a record each, of the
kinds of ``archive_rows``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import islice

from mnemo.runtime.tasks import Threads
from mnemo.store.archive_checks import CHECKS, INDEXES, check, prune
from mnemo.store.archive_import import STAGING, Batch, LinesReader, move, put, refuse_filled
from mnemo.store.archive_rows import KINDS, Kind, head_of, line_of, opened
from mnemo.store.engine import Engine, Snapshot, repository_locks
from mnemo.store.rows import Passed, Rows, log_passed
from mnemo.store.tx import Result, Tx
from mnemo.values.archive import FORMAT, VERSION, ArchiveHead

_PAGE_ROWS, _PAGE_LINES = 500, 500


class StoredArchive:
    """One repository as lines, out and in."""

    def __init__(self, repo_id: str, engine: Engine) -> None:
        self._repo_id = repo_id
        self._engine = engine

    @asynccontextmanager
    async def read(self) -> AsyncIterator[tuple[ArchiveHead, AsyncIterator[str]]]:
        """Everything as of one moment, of one read transaction, until the context ends."""
        async with self._engine.snapshot() as snapshot:
            repo, head = await snapshot.reading(partial(head_of, repo_id=self._repo_id))
            async with aclosing(_lines(snapshot, repo, head)) as lines:
                yield head, lines

    async def write(self, lines: AsyncIterable[str] | Iterable[str]) -> ArchiveHead:
        """
        Stage what *lines* say, check it, and move it over in one transaction; give their head.

        Sessions have no owner then. Other writers go on meanwhile; those of this repository
        wait for the last move.

        Raises:
            UsageError: The repository is not empty.
            Conflict: A session, episode or step of it was forgotten in this repository.
            InvalidArchive: A line is broken, or does not fit the others. *Cancellation*: safe.
        """
        reader = LinesReader()
        async with aclosing(_batches(reader, lines)) as batches:
            batch = await anext(batches, None)
            await self._engine.reading(partial(refuse_filled, repo_id=self._repo_id))
            async with self._engine.staging(STAGING) as staging:
                while batch is not None:
                    await staging.staging(partial(put, batch=batch))
                    batch = await anext(batches, None)
                for statement in INDEXES:
                    await staging.staging(partial(_execute, statement))
                if reader.left_out:
                    await staging.staging(prune)
                for reason, query in CHECKS:
                    await staging.staging(partial(check, reason=reason, query=query))
                moved = partial(move, repo_id=self._repo_id, head=reader.head)
                await staging.writing(moved, locks=repository_locks(self._repo_id))
        return reader.head


def _execute(statement: str, tx: Tx) -> None:
    tx.run(statement)


async def _lines(snapshot: Snapshot, repo: int, head: ArchiveHead) -> AsyncGenerator[str, None]:
    space = head.space and {"name": head.space.name, "dimensions": head.space.dimensions}
    said = {"format": FORMAT, "version": VERSION, "revision": head.revision, "space": space}
    yield line_of({**said, "counts": {kind: head.counts[kind] for kind in KINDS}})
    for kind in KINDS.values():
        rows, read = await snapshot.reading(partial(opened, kind, repo)), kind.rows(head)
        while page := await snapshot.reading(partial(_page, kind, rows, read)):
            for line in page:
                yield line


def _page(kind: Kind, rows: Result, read: Rows[str], _: Tx) -> list[str]:
    passed: Passed = []
    found = read.all(rows.fetchmany(_PAGE_ROWS), passed)
    log_passed(passed)
    return [*found, *(kind.left_out(damage.key or "") for damage in passed)]


async def _batches(
    reader: LinesReader, lines: AsyncIterable[str] | Iterable[str]
) -> AsyncGenerator[Batch, None]:
    if isinstance(lines, str | bytes):
        raise ValueError("lines must give one line after the other, not be one text")
    threads = Threads()
    if isinstance(lines, AsyncIterable):
        page: list[str] = []
        async for line in lines:
            page.append(line)
            if len(page) == _PAGE_LINES:
                yield await threads.run(reader.batch, page)
                page = []
        yield await threads.run(reader.batch, page)
    else:
        # A plain iterable may be a file: reading it is work for a thread.
        rest = iter(lines)

        def read() -> Batch | None:
            page = list(islice(rest, _PAGE_LINES))
            return reader.batch(page) if page else None

        while (batch := await threads.run(read)) is not None:
            yield batch
    reader.finish()

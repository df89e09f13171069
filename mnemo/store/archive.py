"""One repository as records, out of the embedded store and into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio

from mnemo.store.archive_checks import CHECKS, INDEXES, check, prune
from mnemo.store.archive_export import EXPORTS, head_of, opened
from mnemo.store.archive_import import StagedRows, attach, detach, move, put, refuse_filled
from mnemo.store.damage import Passed, Rows, log_passed
from mnemo.store.sqlite.readers import Readers, Snapshot
from mnemo.store.sqlite.writer import Writer
from mnemo.store.tx import Result, Tx
from mnemo.values.archive import KINDS, ArchiveHead, LeftOut, NumberedRecord, Record

__all__ = ["StoredArchive"]

_PAGE_ROWS = 500


class StoredArchive:
    """
    ``Archive`` over one file; made by ``SqliteStore``.

    Args:
        importing: Held while an archive comes in; there is room for one at a time.
    """

    def __init__(
        self,
        repo_id: str,
        writer: Callable[[], Writer],
        readers: Callable[[], Readers],
        importing: anyio.Lock,
    ) -> None:
        self._repo_id = repo_id
        self._writer = writer
        self._readers = readers
        self._importing = importing

    @asynccontextmanager
    async def read(self) -> AsyncIterator[tuple[ArchiveHead, AsyncIterator[Sequence[Record]]]]:
        """Everything as of one moment, of one read transaction; see ``Archive``."""
        async with self._readers().snapshot() as snapshot:
            repo, head = await snapshot.read(partial(head_of, repo_id=self._repo_id))
            yield head, _pages(snapshot, repo)

    async def write(
        self, head: ArchiveHead, pages: AsyncIterator[Sequence[NumberedRecord]]
    ) -> None:
        """
        Stage everything, check it, and move it over in one transaction; see ``Archive``.

        Other writers go on meanwhile, and wait for the last move only.
        """
        await self._readers().read(partial(refuse_filled, repo_id=self._repo_id))
        async with self._importing:
            writer = self._writer()
            await writer.alone(attach)
            try:
                if await self._receive(writer, pages):
                    await writer.alone(prune)
                for reason, query in CHECKS:
                    await writer.alone(partial(check, reason=reason, query=query))
                await writer.run(partial(move, repo_id=self._repo_id, head=head))
            finally:
                with anyio.CancelScope(shield=True):
                    await writer.alone(detach)

    async def _receive(self, writer: Writer, pages: AsyncIterator[Sequence[NumberedRecord]]) -> int:
        """Stage the records; give how many were left out of the archive."""
        staged = StagedRows()
        async for page in pages:
            batch = await self._readers().compute(partial(staged.batch, page))
            await writer.alone(partial(put, batch=batch))
        for statement in INDEXES:
            await writer.alone(partial(_execute, statement))
        return staged.left_out


def _execute(statement: str, tx: Tx) -> None:
    tx.run(statement)


async def _pages(snapshot: Snapshot, repo: int) -> AsyncIterator[Sequence[Record]]:
    for kind in KINDS:
        query, read = EXPORTS[kind]
        rows = await snapshot.read(partial(opened, query, repo))
        while page := await snapshot.read(partial(_page, rows, kind, read)):
            yield page


def _page(rows: Result, kind: str, read: Rows[Record], _: Tx) -> Sequence[Record]:
    passed: Passed = []
    found = read.all(rows.fetchmany(_PAGE_ROWS), passed)
    log_passed(passed)
    left_out = [LeftOut(kind=kind, key=damage.key or "") for damage in passed]
    return [*found, *left_out]

"""One repository as records, out and in: ``Archive`` over an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from mnemo.store.archive_checks import CHECKS, INDEXES, check, prune
from mnemo.store.archive_export import EXPORTS, head_of, opened
from mnemo.store.archive_import import STAGING, StagedRows, move, put, refuse_filled
from mnemo.store.damage import Passed, Rows, log_passed
from mnemo.store.engine import Engine, Snapshot, Staging, compute, repository_locks
from mnemo.store.tx import Result, Tx
from mnemo.values.archive import KINDS, ArchiveHead, LeftOut, NumberedRecord, Record

_PAGE_ROWS = 500


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

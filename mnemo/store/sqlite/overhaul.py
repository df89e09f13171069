"""What is rarely done to one repository as a whole, on the embedded store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from mnemo.episode.erasure import Erased, Selection
from mnemo.store.sqlite.erase import erase, touched_sessions
from mnemo.store.sqlite.readers import Readers
from mnemo.store.sqlite.scrub import Scrubber, note_pending
from mnemo.store.sqlite.traces import Traces
from mnemo.store.sqlite.writer import Writer

__all__ = ["SqliteOverhaul"]


class SqliteOverhaul:
    """``Overhaul`` over one file; made by ``SqliteStore``."""

    def __init__(
        self,
        repo_id: str,
        writer: Callable[[], Writer],
        readers: Callable[[], Readers],
        scrubber: Scrubber,
    ) -> None:
        self._repo_id = repo_id
        self._writer = writer
        self._readers = readers
        self._scrubber = scrubber

    async def touched(self, selection: Selection) -> tuple[str, ...]:
        """The sessions that would lose steps, or go; changes nothing."""
        return await self._readers().read(
            partial(touched_sessions, repo_id=self._repo_id, selection=selection)
        )

    async def erase(self, selection: Selection) -> Erased:
        """
        Erase what is selected with all that was derived from it alone, in one transaction.

        Then the log is cut, the free space of the file looked through, and the file
        rewritten if there are traces of it: ``report.scrubbed``.

        Raises:
            StoreError: Nothing was erased. *Cancellation*: the transaction completes.
        """
        erased, traces = await self._writer().run(partial(self._erase, selection))
        scrubbed = await self._scrubber.scrub(self._writer(), traces)
        return replace(erased, report=replace(erased.report, scrubbed=scrubbed))

    def _erase(self, selection: Selection, connection: sqlite3.Connection) -> tuple[Erased, Traces]:
        erased, traces = erase(connection, self._repo_id, selection)
        if not erased.report.is_empty:
            note_pending(connection)
        return erased, traces

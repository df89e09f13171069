"""The conversations of one repository, on the embedded store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from mnemo.protocols import Clock, TranscriptReader, TranscriptWriter
from mnemo.store.sqlite.acts import repo_number
from mnemo.store.sqlite.readers import Readers
from mnemo.store.sqlite.reading import Reading
from mnemo.store.sqlite.rows import repo_row
from mnemo.store.sqlite.writer import Writer
from mnemo.store.sqlite.writing import Writing

__all__ = ["SqliteTranscript"]

T = TypeVar("T")


class SqliteTranscript:
    """``TranscriptStore`` over one file; made by ``SqliteStore``."""

    def __init__(
        self,
        repo_id: str,
        writer: Callable[[], Writer],
        readers: Callable[[], Readers],
        clock: Clock,
    ) -> None:
        self._repo_id = repo_id
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def reading(self, work: Callable[[TranscriptReader], T]) -> T:
        """Run *work* in a worker thread, on one moment of the store; see ``TranscriptStore``."""

        def read(connection: sqlite3.Connection) -> T:
            repo = repo_row(connection, self._repo_id)[0]
            return work(Reading(connection, self._repo_id, repo, self._now()))

        return await self._readers().read(read)

    async def writing(self, work: Callable[[TranscriptWriter], T]) -> T:
        """Run *work* in the writer, in a savepoint of its own; see ``TranscriptStore``."""

        def write(connection: sqlite3.Connection) -> T:
            repo = repo_number(connection, self._repo_id)
            return work(Writing(connection, self._repo_id, repo, self._now()))

        return await self._writer().run(write)

    def _now(self) -> datetime:
        return self._clock.now()

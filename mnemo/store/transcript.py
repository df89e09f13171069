"""The conversations of one repository, on the embedded store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from mnemo.protocols import Clock, TranscriptReader, TranscriptWriter
from mnemo.store.journal import repo_number
from mnemo.store.rows import repo_row
from mnemo.store.sqlite.readers import Readers
from mnemo.store.sqlite.writer import Writer
from mnemo.store.transcript_reading import Reading
from mnemo.store.transcript_writing import Writing
from mnemo.store.tx import Tx

__all__ = ["StoredTranscript"]

T = TypeVar("T")


class StoredTranscript:
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

        def read(tx: Tx) -> T:
            repo = repo_row(tx, self._repo_id)[0]
            return work(Reading(tx, self._repo_id, repo, self._now()))

        return await self._readers().read(read)

    async def writing(self, work: Callable[[TranscriptWriter], T]) -> T:
        """Run *work* in the writer, in a savepoint of its own; see ``TranscriptStore``."""

        def write(tx: Tx) -> T:
            repo = repo_number(tx, self._repo_id)
            return work(Writing(tx, self._repo_id, repo, self._now()))

        return await self._writer().run(write)

    def _now(self) -> datetime:
        return self._clock.now()

"""The conversations of one repository: ``TranscriptStore`` over an engine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from mnemo.protocols import Clock, TranscriptReader, TranscriptWriter
from mnemo.store.engine import Engine
from mnemo.store.journal import repo_number
from mnemo.store.owners import LeaseTime
from mnemo.store.rows import repo_row
from mnemo.store.transcript_reading import Reading
from mnemo.store.transcript_writing import Writing
from mnemo.store.tx import Tx

__all__ = ["StoredTranscript"]

T = TypeVar("T")


class StoredTranscript:
    """``TranscriptStore`` over an engine."""

    def __init__(
        self,
        repo_id: str,
        engine: Engine,
        clock: Clock,
        lease_time: LeaseTime,
    ) -> None:
        self._repo_id = repo_id
        self._engine = engine
        self._clock = clock
        self._lease_time = lease_time

    async def reading(self, work: Callable[[TranscriptReader], T]) -> T:
        """Run *work* in a worker thread, on one moment of the store; see ``TranscriptStore``."""

        def read(tx: Tx) -> T:
            repo = repo_row(tx, self._repo_id)[0]
            return work(Reading(tx, self._repo_id, repo, self._now(), self._lease_time))

        return await self._engine.reading(read)

    async def writing(self, work: Callable[[TranscriptWriter], T]) -> T:
        """Run *work* in the writer, in a savepoint of its own; see ``TranscriptStore``."""

        def write(tx: Tx) -> T:
            repo = repo_number(tx, self._repo_id)
            return work(Writing(tx, self._repo_id, repo, self._now(), self._lease_time))

        return await self._engine.writing(write, locks=[("transcript", self._repo_id)])

    def _now(self) -> datetime:
        return self._clock.now()

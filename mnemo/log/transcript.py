"""The conversations of one repository: ``TranscriptStore`` over an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from mnemo.jobs.owners import LeaseTime
from mnemo.log.transcript_reading import Reading
from mnemo.log.transcript_writing import Writing
from mnemo.protocols import Clock, TranscriptReader, TranscriptWriter
from mnemo.store.engine import Engine
from mnemo.store.rows import repo_row
from mnemo.store.tx import Tx

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
            return work(Reading(tx, self._repo_id, repo, self._clock.now(), self._lease_time))

        return await self._engine.reading(read)

    async def writing(
        self, work: Callable[[TranscriptWriter], T], *, thread_id: str | None = None
    ) -> T:
        """Run *work* in the writer; see ``TranscriptStore``."""
        handed = HandedWork(self._repo_id, thread_id, work, self._clock, self._lease_time)
        locks = [("transcript", self._repo_id)]
        result: T = await self._engine.merging(write_together, handed, locks=locks)
        return result


class HandedWork(NamedTuple):
    """Work on its way to the writer, and the thread that it reads first."""

    repo_id: str
    thread_id: str | None
    work: Callable[[TranscriptWriter], Any]
    clock: Clock
    lease_time: LeaseTime


def write_together(tx: Tx, handed: Sequence[HandedWork]) -> list[Any]:
    """Do what was handed over, in order; what several callers append is written together."""
    read: dict[str, set[str]] = {}
    for one in handed:
        read.setdefault(one.repo_id, set()).update([one.thread_id] if one.thread_id else ())
    writers: dict[str, Writing] = {}
    results = []
    for one in handed:
        if one.repo_id not in writers:
            writer = Writing(tx, one.repo_id, one.clock.now(), one.lease_time)
            writer.look_up(sorted(read[one.repo_id]))
            writers[one.repo_id] = writer
        results.append(writers[one.repo_id].run(one.work))
    for writer in writers.values():
        writer.flush()
    return results

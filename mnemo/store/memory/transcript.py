"""The conversations of one repository, in memory; a work that fails is undone step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio.lowlevel import cancel_shielded_checkpoint

from mnemo.protocols import Clock
from mnemo.store.memory.reading import Reading
from mnemo.store.memory.state import Kept
from mnemo.store.memory.writing import Writing
from mnemo.transcript.transaction import TranscriptReader, TranscriptWriter

__all__ = ["MemoryTranscript"]

T = TypeVar("T")


class MemoryTranscript:
    """``TranscriptStore`` in memory; made by ``MemoryStore``."""

    def __init__(self, repo_id: str, kept: Callable[[], Kept], clock: Clock) -> None:
        self._repo_id = repo_id
        self._kept = kept
        self._clock = clock

    async def reading(self, work: Callable[[TranscriptReader], T]) -> T:
        """Run *work* at once, in this turn of the loop."""
        kept = self._kept()
        result = work(Reading(kept.repo(self._repo_id), self._clock.now()))
        await cancel_shielded_checkpoint()
        return result

    async def writing(self, work: Callable[[TranscriptWriter], T]) -> T:
        """Run *work* at once; if it raises, all that it did is undone."""
        kept = self._kept()
        writing = Writing(kept, kept.repo(self._repo_id), self._clock.now())
        try:
            result = work(writing)
        except BaseException:
            writing.undo()
            raise
        await cancel_shielded_checkpoint()
        return result

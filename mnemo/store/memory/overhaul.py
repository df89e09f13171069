"""What is rarely done to one repository as a whole, in memory."""

from __future__ import annotations

from collections.abc import Callable

from anyio.lowlevel import cancel_shielded_checkpoint

from mnemo.episode.erasure import Erased, Selection
from mnemo.store.memory.erase import erase, touched_sessions
from mnemo.store.memory.state import Kept

__all__ = ["MemoryOverhaul"]


class MemoryOverhaul:
    """``Overhaul`` in memory; made by ``MemoryStore``."""

    def __init__(self, repo_id: str, kept: Callable[[], Kept]) -> None:
        self._repo_id = repo_id
        self._kept = kept

    async def touched(self, selection: Selection) -> tuple[str, ...]:
        """The sessions that would lose steps, or go; changes nothing."""
        await cancel_shielded_checkpoint()
        return touched_sessions(self._kept(), self._repo_id, selection)

    async def erase(self, selection: Selection) -> Erased:
        """Erase what is selected; there are no files to be rid of it."""
        erased = erase(self._kept(), self._repo_id, selection)
        await cancel_shielded_checkpoint()
        return erased

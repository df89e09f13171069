"""What is rarely done to one repository as a whole: erasing, and moving its vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from mnemo.erasure.erase import erase
from mnemo.erasure.moving import begin_move, stage_moved, switch_space, unmoved
from mnemo.erasure.selecting import touched_sessions
from mnemo.protocols import EmbeddingSpace
from mnemo.store.codec import encode_vector
from mnemo.store.engine import ManagedEngine
from mnemo.store.tx import Tx
from mnemo.values.erasure import Erased, Selection
from mnemo.values.feed import FeedCursor
from mnemo.values.graph import Vector


class StoredOverhaul:
    """What is rarely done to one repository as a whole: erasing, and moving its vectors."""

    def __init__(
        self,
        repo_id: str,
        engine: ManagedEngine,
    ) -> None:
        self._repo_id = repo_id
        self._engine = engine

    async def touched(self, selection: Selection) -> tuple[str, ...]:
        """The sessions that would lose steps, or go; changes nothing."""
        return await self._engine.reading(
            partial(touched_sessions, repo_id=self._repo_id, selection=selection)
        )

    async def erase(self, selection: Selection) -> Erased:
        """
        Erase what is selected with all that was derived from it alone, in one transaction.

        Then, if the selection says so, the log is cut and a file of up to 64 MB rewritten:
        ``report.scrubbed``. A dry run says what that would do, and changes nothing.

        Raises:
            StoreError: Nothing was erased. *Cancellation*: the transaction completes.
        """
        if selection.dry_run:
            return await self._rehearsed(selection)
        erased = await self._engine.writing(
            partial(erase, repo_id=self._repo_id, selection=selection)
        )
        scrubbed = selection.scrub and await self._engine.scrub(at_once=False)
        scrubbed = scrubbed and not erased.report.unreadable
        return replace(erased, report=replace(erased.report, scrubbed=scrubbed))

    async def _rehearsed(self, selection: Selection) -> Erased:
        """What would be erased: it is, and undone."""

        def rehearse(tx: Tx) -> None:
            raise _Rehearsed(erase(tx, self._repo_id, selection))

        try:
            await self._engine.writing(rehearse)
        except _Rehearsed as done:
            return replace(done.erased, report=replace(done.erased.report, scrubbed=False))
        raise AssertionError("a rehearsal always ends with an exception")

    async def begin_move(self, space: EmbeddingSpace) -> None:
        """Say where the vectors go. *Cancellation*: completes."""
        await self._engine.writing(partial(begin_move, repo_id=self._repo_id, space=space))

    async def unmoved(self, digests: Mapping[str, bytes]) -> frozenset[str]:
        """Those of the keys that no vector is staged for, of a text with this digest."""
        return await self._engine.reading(partial(unmoved, repo_id=self._repo_id, digests=digests))

    async def stage(
        self, space: EmbeddingSpace, vectors: Mapping[str, tuple[bytes, Vector]]
    ) -> None:
        """Keep vectors with their texts' digests for the switch. *Cancellation*: completes."""
        rows = [(key, digest, encode_vector(row)) for key, (digest, row) in vectors.items()]
        await self._engine.writing(
            partial(stage_moved, repo_id=self._repo_id, space=space, rows=rows)
        )

    async def switch(self, space: EmbeddingSpace, cursor: FeedCursor) -> int:
        """Put the staged vectors in force, in one transaction. *Cancellation*: completes."""
        return await self._engine.writing(
            partial(switch_space, repo_id=self._repo_id, space=space, cursor=cursor)
        )


class _Rehearsed(Exception):
    """Undoes an erasure, and carries what it did."""

    def __init__(self, erased: Erased) -> None:
        super().__init__()
        self.erased = erased

"""What is rarely done to one repository as a whole: erasing, and moving its vectors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from mnemo.commit.lane import CommitLane
from mnemo.erasure.erase import erase
from mnemo.erasure.moving import begin_move, stage_moved, switch_space, unmoved
from mnemo.erasure.selecting import touched_sessions
from mnemo.errors import MnemoError
from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.spans import NO_SPANS, Spans, memory_attributes
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


# ── Forgetting, in one process ───────────────────────────────────────────────────────


class Forgetting:
    """
    Erases from one repository.

    Args:
        lane: Whose turn it takes while it erases, and who publishes what became of it.
        end_sessions: Ends those of the named sessions that are open here.
        erased: Called when the store has changed; nothing of it may be found afterwards.
    """

    def __init__(
        self,
        *,
        repo_id: str,
        overhaul: StoredOverhaul,
        lane: CommitLane,
        end_sessions: Callable[[Collection[str]], Awaitable[None]],
        erased: Callable[[], Awaitable[None]],
        spans: Spans = NO_SPANS,
    ) -> None:
        self._repo_id = repo_id
        self._overhaul = overhaul
        self._lane = lane
        self._end_sessions = end_sessions
        self._erased = erased
        self._spans = spans
        self._in_doubt = False

    async def forget(self, selection: Selection) -> Erased:
        """
        Erase what is selected, after its sessions have ended.

        Raises:
            NotFound: An id is unknown.
            StoreError: Nothing was erased. *Cancellation*: run it in a task that
                outlives its caller.
        """
        named = memory_attributes("delete_memory", self._repo_id)
        with self._spans.span("delete_memory", attributes=named) as span:
            if selection.session_id is not None:
                span.set("mnemo.session.id", selection.session_id)
            erased = await self._erased_by(selection)
            span.set("gen_ai.memory.record.count", erased.report.nodes)
            span.set("mnemo.step.count", erased.report.steps)
            return erased

    async def _erased_by(self, selection: Selection) -> Erased:
        if selection.dry_run:
            return await self._overhaul.erase(selection)
        await self._end_sessions(await self._overhaul.touched(selection))
        async with self._lane.turn:
            try:
                erased = await self._overhaul.erase(selection)
            except MnemoError as error:
                # What it may have erased all the same is dropped from memory by the next call.
                self._in_doubt = True
                self._lane.report_failure("forget", error)
                raise
        if erased.node_ids:
            self._lane.report_deleted(erased.node_ids)
        # A session that got its first such step in between has lost it.
        await self._end_sessions(erased.session_ids)
        if self._in_doubt or not erased.report.is_empty:
            await self._erased()
            self._in_doubt = False
        return erased

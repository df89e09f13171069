"""Erasure for one repository: ends its sessions, erases from the store, publishes the outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from mnemo.commit.lane import CommitLane
from mnemo.erasure.overhaul import StoredOverhaul
from mnemo.errors import MnemoError
from mnemo.runtime.spans import NO_SPANS, Spans, memory_attributes
from mnemo.values.erasure import Erased, Selection


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
            erased = await self._forget(selection)
            span.set("gen_ai.memory.record.count", erased.report.nodes)
            span.set("mnemo.step.count", erased.report.steps)
            return erased

    async def _forget(self, selection: Selection) -> Erased:
        if selection.dry_run:
            return await self._overhaul.erase(selection)
        await self._end_sessions(await self._overhaul.touched(selection))
        async with self._lane.turn:
            erased = await self._erase(selection)
        # A session that got its first such step in between has lost it.
        await self._end_sessions(erased.session_ids)
        if self._in_doubt or not erased.report.is_empty:
            await self._erased()
            self._in_doubt = False
        return erased

    async def _erase(self, selection: Selection) -> Erased:
        try:
            erased = await self._overhaul.erase(selection)
        except MnemoError as error:
            # What it may have erased all the same is dropped from memory by the next call.
            self._in_doubt = True
            self._lane.report_failure("forget", error)
            raise
        if erased.node_ids:
            self._lane.report_deleted(erased.node_ids)
        return erased

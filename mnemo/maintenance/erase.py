"""Forgetting: ends sessions, erases from the store, and publishes what was deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from anyio import Lock

from mnemo.errors import MnemoError
from mnemo.events import Event, NodesDeleted, WriteFailed
from mnemo.protocols import Clock, Overhaul
from mnemo.runtime.spans import NO_SPANS, Spans, memory_attributes
from mnemo.values.erasure import Erased, Selection

__all__ = ["Forgetting"]


class Forgetting:
    """
    Erases from one repository.

    Args:
        turn: Held by whoever writes the repository's graph.
        end_sessions: Ends those of the named sessions that are open here.
        erased: Called when the store has changed; nothing of it may be found afterwards.
    """

    def __init__(
        self,
        *,
        repo_id: str,
        overhaul: Overhaul,
        turn: Lock,
        end_sessions: Callable[[Collection[str]], Awaitable[None]],
        erased: Callable[[], Awaitable[None]],
        clock: Clock,
        publish: Callable[[Event], None],
        spans: Spans = NO_SPANS,
    ) -> None:
        self._repo_id = repo_id
        self._overhaul = overhaul
        self._turn = turn
        self._end_sessions = end_sessions
        self._erased = erased
        self._clock = clock
        self._publish = publish
        self._spans = spans
        self._unsure = False

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
        async with self._turn:
            erased = await self._erase(selection)
        # A session that got its first such step in between has lost it.
        await self._end_sessions(erased.session_ids)
        if self._unsure or not erased.report.is_empty:
            await self._erased()
            self._unsure = False
        return erased

    async def _erase(self, selection: Selection) -> Erased:
        try:
            erased = await self._overhaul.erase(selection)
        except MnemoError as error:
            # What it may have erased all the same is dropped from memory by the next call.
            self._unsure = True
            now = self._clock.now()
            self._publish(
                WriteFailed(repo_id=self._repo_id, at=now, operation="forget", error=str(error))
            )
            raise
        if erased.node_ids:
            now = self._clock.now()
            self._publish(NodesDeleted(repo_id=self._repo_id, at=now, node_ids=erased.node_ids))
        return erased

"""Keeping a repository in order: maintenance, and forgetting for good."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Protocol

from mnemo.episode.erasure import ErasureReport, Selection
from mnemo.graph.upkeep import MaintenanceReport
from mnemo.repository.queries import GraphQueries
from mnemo.runtime.spans import memory_attributes
from mnemo.runtime.tasks import completed

__all__ = ["RepositoryUpkeep"]


class Hygiene(Protocol):
    """What ``maintenance.runner`` does; named here so that importing mnemo need not load it."""

    async def consolidate(self, *, threshold: float) -> MaintenanceReport: ...

    async def decay(self, *, threshold: float, types: Sequence[str]) -> MaintenanceReport: ...

    async def validate(self) -> MaintenanceReport: ...


class RepositoryUpkeep(GraphQueries):
    """What a ``Repository`` does for its own hygiene."""

    _maintenance: Hygiene
    _erase: Callable[[Selection], Awaitable[ErasureReport]]

    async def consolidate(self, *, threshold: float = 0.85) -> MaintenanceReport:
        """
        Merge facts that say the same, wherever they are in the graph.

        A second operation waits for the first. What is committed meanwhile is kept; a
        node that changed meanwhile is left for the next run.

        Args:
            threshold: Cosine that two facts must exceed, in [-1, 1].

        Raises:
            ValueError: *threshold* is out of range.
            CommitFailed: Nothing was changed. *Cancellation*: safe; once it has begun,
                the transaction completes.
        """
        self._check_usable()
        return await self._maintenance.consolidate(threshold=threshold)

    async def decay(
        self, *, threshold: float = 0.1, types: Sequence[str] = ("semantic", "procedural")
    ) -> MaintenanceReport:
        """
        Delete what is old, unused and unrewarded; raw steps stay.

        Args:
            threshold: Score, at least 0, below which a node goes.
            types: Of ``semantic``, ``procedural``, ``subgoal``, ``tag``, ``intent``.

        Raises:
            ValueError: *threshold* is out of range, or *types* names another type.
            CommitFailed: Nothing was changed. *Cancellation*: as of ``consolidate``.
        """
        self._check_usable()
        return await self._maintenance.decay(threshold=threshold, types=types)

    async def validate(self) -> MaintenanceReport:
        """
        Penalize facts and instructions whose evidence does not say what they say.

        Raises:
            CommitFailed: Nothing was changed. *Cancellation*: as of ``consolidate``.
        """
        self._check_usable()
        return await self._maintenance.validate()

    async def forget(
        self,
        *,
        session_id: str | None = None,
        thread_id: str | None = None,
        before: datetime | None = None,
    ) -> ErasureReport:
        """
        Erase raw steps, and all that was derived from them alone, for good.

        What is given must hold of each step. Open sessions that lose steps are ended
        (``SessionClosed``). Knowledge that other steps support stays without the erased
        part, if it is worded from what remains; what it had replaced holds again.

        Args:
            session_id: Of this session; alone: the session with its goals, too.
            thread_id: Of this conversation thread.
            before: What happened before this time, exclusive; no zone means UTC.

        Returns:
            The counts; all 0 if there was nothing. ``scrubbed`` says whether the bytes
            are gone from the store's files, too.

        Raises:
            ValueError: Nothing was given, or no text or time.
            StoreError: Nothing was erased. *Cancellation*: completes.
        """
        self._check_usable()
        selection = Selection.of(session_id=session_id, thread_id=thread_id, before=before)
        return await completed(self._parts.root.own(partial(self._forget, selection)))

    async def _forget(self, selection: Selection) -> ErasureReport:
        named = memory_attributes("delete_memory", self._parts.repo_id)
        with self._parts.spans.span("delete_memory", attributes=named) as span:
            if selection.session_id is not None:
                span.set("mnemo.session.id", selection.session_id)
            report = await self._erase(selection)
            span.set("gen_ai.memory.record.count", report.nodes)
            span.set("mnemo.step.count", report.steps)
            return report

"""
Run maintenance of one repository: one operation at a time, each all or nothing.

An operation reads a revision and plans beside whoever writes; then it takes the commit
lane's turn and writes what of its plan still holds, in one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from anyio import Lock

from mnemo.commit.lane import CommitLane
from mnemo.config import Config
from mnemo.errors import MnemoError
from mnemo.events import (
    ConsolidationCompleted,
    DecayCompleted,
    Event,
    ValidationCompleted,
)
from mnemo.graph.graph import StoredGraph
from mnemo.index.follower import RepositoryIndex
from mnemo.maintenance.consolidate import plan_consolidation
from mnemo.maintenance.decay import decaying_types, plan_decay
from mnemo.maintenance.plan import Plan, Sources
from mnemo.maintenance.validate import plan_validation
from mnemo.protocols import Clock, Embedder
from mnemo.runtime.clock import elapsed
from mnemo.runtime.tasks import TaskRoot, Threads, completed
from mnemo.runtime.validation import finite_number
from mnemo.values.changeset import MaintenanceReport, Operation

_EVENTS: dict[
    Operation, type[ConsolidationCompleted] | type[DecayCompleted] | type[ValidationCompleted]
] = {
    "consolidate": ConsolidationCompleted,
    "decay": DecayCompleted,
    "validate": ValidationCompleted,
}


class Maintenance:
    """
    Consolidates, decays and validates one repository.

    Args:
        lane: Where its commits are written; plans are written in their turn.
        root: Hosts the write, which outlives a caller that is cancelled.
        config: With the profile's scoring in force.
        publish: Hands an event to whoever listens.
        written: Called after the graph has changed.
        settle: Awaited before planning and before writing: writes the access counts that
            are still in memory.
        check_usable: Raises where the repository was closed meanwhile.
    """

    def __init__(
        self,
        *,
        repo_id: str,
        lane: CommitLane,
        graph: StoredGraph,
        index: RepositoryIndex,
        embedder: Embedder,
        clock: Clock,
        config: Config,
        root: TaskRoot,
        publish: Callable[[Event], None],
        written: Callable[[], None],
        settle: Callable[[], Awaitable[None]],
        check_usable: Callable[[], None],
    ) -> None:
        self._repo_id = repo_id
        self._lane = lane
        self._root = root
        self._publish = publish
        self._written = written
        self._settle = settle
        self._check_usable = check_usable
        self._turn = Lock()
        self._sources = Sources(
            graph=graph,
            index=index,
            embedder=embedder,
            clock=clock,
            config=config,
            threads=Threads(),
        )

    async def consolidate(self, *, threshold: float) -> MaintenanceReport:
        """
        Merge facts that say the same; see ``Repository.consolidate``.

        Raises:
            ValueError: *threshold* is no cosine.
            StoreError: Nothing was changed. *Cancellation*: safe while it plans; the
                transaction completes.
        """
        if not -1.0 <= finite_number("threshold, a cosine,", threshold) <= 1.0:
            raise ValueError(f"threshold must be a cosine in [-1, 1], but is {threshold}")
        return await self._run("consolidate", partial(plan_consolidation, threshold=threshold))

    async def decay(self, *, threshold: float, types: Sequence[str]) -> MaintenanceReport:
        """Delete what is not used; see ``Repository.decay``. Errors as of ``consolidate``."""
        if finite_number("threshold, a score,", threshold) < 0:
            raise ValueError(f"threshold must be a score of at least 0, but is {threshold}")
        chosen = decaying_types(types)
        return await self._run("decay", partial(plan_decay, threshold=threshold, types=chosen))

    async def validate(self) -> MaintenanceReport:
        """Penalize what is not grounded; see ``Repository.validate``. Errors as there."""
        return await self._run("validate", plan_validation)

    async def _run(
        self, operation: Operation, plan: Callable[[Sources], Awaitable[Plan]]
    ) -> MaintenanceReport:
        async with self._turn:
            began = elapsed()
            await self._settle()
            sources = replace(self._sources, passed=[])
            planned = await plan(sources)
            left_out = (await sources.index.corpus()).damaged
            damaged = tuple(sorted({*left_out, *(one.row for one in sources.passed)}))
            async with self._lane.turn:
                self._check_usable()
                finish = partial(self._finish, operation, planned, damaged, began)
                return await completed(self._root.own(finish))

    async def _finish(
        self, operation: Operation, plan: Plan, damaged: tuple[str, ...], began: float
    ) -> MaintenanceReport:
        # What was accessed while it was planned counts, too.
        await self._settle()
        try:
            upkeep, applied = await self._lane.tend(plan.upkeep)
        except MnemoError as error:
            self._lane.report_failure(operation, error)
            raise
        counts = await self._sources.threads.run(plan.counts, upkeep)
        report = MaintenanceReport(
            operation=operation,
            checked=counts.checked,
            deleted=len(applied.removed),
            deleted_ids=applied.removed,
            merged=dict(upkeep.merges),
            penalized=counts.penalized,
            orphaned=counts.orphaned,
            grounded=counts.grounded,
            damaged=damaged,
            revision=applied.revision,
            duration_s=elapsed() - began,
        )
        event = _EVENTS[operation]
        self._publish(event(repo_id=self._repo_id, at=self._sources.clock.now(), report=report))
        self._written()
        return report

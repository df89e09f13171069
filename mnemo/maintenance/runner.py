"""
Run maintenance of one repository: one operation at a time, each all or nothing.

It plans at a revision beside writers, then writes what still holds in the commit lane's turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from mnemo.commit.lane import CommitLane
from mnemo.errors import MnemoError
from mnemo.events import ConsolidationCompleted, DecayCompleted, ValidationCompleted
from mnemo.index.corpus import CorpusView
from mnemo.maintenance.consolidate import plan_consolidation
from mnemo.maintenance.plan import Plan, Sources, living
from mnemo.maintenance.validate import plan_validation
from mnemo.recall.score import decay_score, parameters_of
from mnemo.runtime.clock import Breather, as_utc, elapsed
from mnemo.runtime.tasks import Places, TaskRoot, completed
from mnemo.runtime.validation import finite_number
from mnemo.values.changeset import RAW, MaintenanceReport, Operation, Upkeep
from mnemo.values.graph import Node, NodeMetadata, NodeType, known_types

_EVENTS: dict[
    Operation, type[ConsolidationCompleted] | type[DecayCompleted] | type[ValidationCompleted]
] = {
    "consolidate": ConsolidationCompleted,
    "decay": DecayCompleted,
    "validate": ValidationCompleted,
}


@dataclass(eq=False, kw_only=True)
class Maintenance:
    """
    Consolidates, decays and validates one repository; writes in the turn of *lane*.

    *root*: Hosts the write, which outlives a cancelled caller. *settle*: Writes access counts still
    in memory, before planning and writing. *sweep*: Erases expired messages first.
    """

    lane: CommitLane
    sources: Sources
    root: TaskRoot
    settle: Callable[[], Awaitable[None]]
    sweep: Callable[[], Awaitable[None]]
    check_usable: Callable[[], None]
    _turn: Places = field(default_factory=Places)

    async def consolidate(self, *, threshold: float) -> MaintenanceReport:
        """
        Merge facts that say the same; see ``Repository.consolidate``.

        *Raises* ``StoreError``: nothing was changed. *Cancellation*: safe while it plans; the
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
            await self.sweep()
            await self.settle()
            sources = replace(self.sources, passed=[])
            planned = await plan(sources)
            left_out = (await sources.index.corpus()).damaged
            damaged = tuple(sorted({*left_out, *(one.row for one in sources.passed)}))
            async with self.lane.turn:
                self.check_usable()
                finish = partial(self._finish, operation, planned, damaged, began)
                return await completed(self.root.own(finish))

    async def _finish(
        self, operation: Operation, plan: Plan, damaged: tuple[str, ...], began: float
    ) -> MaintenanceReport:
        # What was accessed while it was planned counts, too.
        await self.settle()
        try:
            upkeep, applied = await self.lane.tend(plan.upkeep)
        except MnemoError as error:
            self.lane.report_failure(operation, error)
            raise
        counts = await self.sources.threads.run(plan.counts, upkeep)
        report = MaintenanceReport(
            operation=operation,
            deleted=len(applied.removed),
            deleted_ids=applied.removed,
            merged=dict(upkeep.merges),
            **counts,
            damaged=damaged,
            revision=applied.revision,
            duration_s=elapsed() - began,
        )
        event = _EVENTS[operation]
        self.lane.publish(event(repo_id=self.lane.repo_id, at=self.lane.clock.now(), report=report))
        self.lane.index.poke()
        return report


# ── Decay ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Decay(Plan):
    """Which nodes are to go, by scores taken *at* a time: who is accessed later stays."""

    faded: Sequence[Node]
    at: datetime

    async def upkeep(self, view: CorpusView) -> Upkeep:
        """Delete what still is what it was."""
        still = await self.unchanged(view, self.faded)
        removals = tuple(node.id for node in self.faded if node.id in still)
        return Upkeep(removals=removals, accessed_until=self.at, sweeps=True)


def decaying_types(types: Sequence[str]) -> tuple[NodeType, ...]:
    """*types* as node types that may decay, each once. *Raises* ``ValueError``."""
    known = known_types(types)
    if raw := [name for name in known if name in RAW]:
        raise ValueError(f"{raw[0]!r} nodes are raw steps, which never decay")
    return tuple(known)


async def plan_decay(sources: Sources, *, threshold: float, types: Sequence[NodeType]) -> Decay:
    """Find the nodes of *types* whose score is below *threshold*. *Cancellation*: safe."""
    view, now = await sources.index.corpus(), sources.clock.now()
    checked, faded = 0, list[Node]()
    async with aclosing(living(sources, view, types)) as some:
        async for _, ids in some:
            nodes, metadata = await sources.nodes(ids), await sources.metadata(ids)
            faded += await sources.threads.run(_faded, sources, nodes, metadata, threshold, now)
            checked += len(nodes)
    known = partial(Decay, sources=sources, revision=view.revision)
    return known(checked=checked, faded=faded, at=now)


def _faded(
    sources: Sources,
    nodes: Sequence[Node],
    metadata: Mapping[str, NodeMetadata],
    threshold: float,
    now: datetime,
) -> list[Node]:
    breather = Breather()
    found = []
    for node in nodes:
        breather.breathe()
        entry = metadata.get(node.id)
        parameters = parameters_of(sources.config.scoring, node.type)
        grace_s = sources.config.maintenance.decay_grace_s
        if entry is None or (now - as_utc(entry.created_at)).total_seconds() < grace_s:
            continue
        if decay_score(node, entry, parameters, now) < threshold:
            found.append(node)
    return found

"""Decay: delete what is old, unused and unrewarded; the evidence stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from mnemo.index.corpus import CorpusView
from mnemo.maintenance.plan import Counts, Sources, holds_still, living, pieces
from mnemo.recall.score import decay_score, parameters_of
from mnemo.runtime.clock import Breather, as_utc
from mnemo.values.changeset import RAW, Upkeep
from mnemo.values.graph import Node, NodeMetadata, NodeType, known_types


@dataclass(frozen=True, slots=True, kw_only=True)
class Decay:
    """
    Which nodes are to go.

    Attributes:
        at: When their scores were taken; who is accessed later stays.
    """

    checked: int
    faded: Sequence[Node]
    at: datetime

    def upkeep(self, view: CorpusView) -> Upkeep:
        """Delete what still is what it was."""
        breather = Breather()
        removals = []
        for node in self.faded:
            breather.breathe()
            if holds_still(view, node):
                removals.append(node.id)
        return Upkeep(removals=tuple(removals), accessed_until=self.at, sweeps=True)

    def counts(self, upkeep: Upkeep) -> Counts:
        """How many nodes were looked at."""
        return Counts(checked=self.checked)


def decaying_types(types: Sequence[str]) -> tuple[NodeType, ...]:
    """
    *types* as node types that may decay, each once.

    Raises:
        ValueError: One is unknown, or a raw step's.
    """
    known = known_types(types)
    if raw := [name for name in known if name in RAW]:
        raise ValueError(f"{raw[0]!r} nodes are raw steps, which never decay")
    return tuple(known)


async def plan_decay(sources: Sources, *, threshold: float, types: Sequence[NodeType]) -> Decay:
    """
    Find the nodes of *types* whose score is below *threshold*.

    Raises:
        StoreError: The store could not be read. *Cancellation*: safe.
    """
    view, now = await sources.index.corpus(), sources.clock.now()
    checked, faded = 0, list[Node]()
    for type in types:
        for piece in pieces(await sources.threads.run(living, view.of_type(type))):
            metadata = await sources.graph.metadata(
                [node.id for node in piece], intact=sources.passed
            )
            faded += await sources.threads.run(_faded, sources, piece, metadata, threshold, now)
            checked += len(piece)
    return Decay(checked=checked, faded=faded, at=now)


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
        if entry is None or _is_young(entry, sources.config.maintenance.decay_grace_s, now):
            continue
        if decay_score(node, entry, parameters, now) < threshold:
            found.append(node)
    return found


def _is_young(entry: NodeMetadata, grace_s: float, now: datetime) -> bool:
    return (now - as_utc(entry.created_at)).total_seconds() < grace_s

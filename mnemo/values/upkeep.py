"""What maintenance does to stored nodes, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from mnemo.values.changeset import Revision
from mnemo.values.graph import Node, NodeType

Operation: TypeAlias = Literal["consolidate", "decay", "validate"]

RAW: tuple[NodeType, ...] = ("episodic", "source")
"""Raw steps: maintenance never removes them."""
ROUTING: tuple[NodeType, ...] = ("tag", "intent", "subgoal")
"""What stands for its members, and goes with the last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """
    Part of a graph write: done in this order, in its transaction.

    Attributes:
        changed: Stored nodes as they will be; their texts and vectors stay.
        merges: Loser → survivor, which is no loser itself. The survivor gets the
            loser's edges (without doubles and self-links), accesses and rewards are
            added, ``created_at`` is the earliest, ``last_accessed_at`` the latest, the
            penalty the smallest, ``support_count`` the number of episodes behind the
            united provenance (where no episode is known, the greatest there was). The
            loser is deleted.
        removals: Nodes to delete.
        accessed_until: Of *removals*, those that were accessed later stay.
        penalties: Node id → penalty to set, in [0, 1).
        sweeps: Whether tags and intents without a member and subgoals without a step
            are deleted, too.
    """

    changed: tuple[Node, ...] = ()
    merges: Mapping[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()
    accessed_until: datetime | None = None
    penalties: Mapping[str, float] = field(default_factory=dict)
    sweeps: bool = False

    @property
    def named_ids(self) -> tuple[str, ...]:
        """Every node that must be stored, each once."""
        ids = (*(node.id for node in self.changed), *self.merges, *self.merges.values())
        return tuple(dict.fromkeys((*ids, *self.removals, *self.penalties)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """
    What one maintenance operation did; counts that do not apply are 0.

    Attributes:
        checked: Nodes that were looked at.
        deleted: Length of *deleted_ids*.
        deleted_ids: Losers, decayed nodes, and the routing nodes left without a member.
        merged: Loser → survivor.
        penalized: Facts and instructions whose evidence does not say what they say.
        orphaned: Those that no provenance leads from to a step.
        grounded: Those whose evidence does.
        damaged: Rows that cannot be decoded and were passed by, sorted, each as "the table,
            a blank, the row's key". They were left as they are; ``Mnemo.check`` tells more.
        revision: Of the graph afterwards.
        duration_s: Seconds, waiting for an earlier operation aside.
    """

    operation: Operation
    checked: int = 0
    deleted: int = 0
    deleted_ids: tuple[str, ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)
    penalized: int = 0
    orphaned: int = 0
    grounded: int = 0
    damaged: tuple[str, ...] = ()
    revision: Revision = 0
    duration_s: float = 0.0

"""Writes to a graph that tell who listens: what was applied, deleted, or rolled back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mnemo._ids import new_id
from mnemo.commit.intents import MergeIntent
from mnemo.commit.lane import CommitLane
from mnemo.config import CommitConfig
from mnemo.episode.journal import Settlement
from mnemo.errors import MnemoError
from mnemo.events import ChangesetApplied, Event, NodesDeleted, WriteFailed
from mnemo.graph.changeset import Changeset
from mnemo.protocols import Applied, Clock, GraphStore

__all__ = ["AnnouncedWrites"]


class AnnouncedWrites:
    """
    The commits and deletions of one repository, each followed by its event.

    Args:
        publish: Hands an event to whoever listens.
        written: Called after the graph has changed.
    """

    def __init__(
        self,
        *,
        repo_id: str,
        lane: CommitLane,
        graph: GraphStore,
        clock: Clock,
        publish: Callable[[Event], None],
        written: Callable[[], None],
    ) -> None:
        self._repo_id = repo_id
        self._lane = lane
        self._graph = graph
        self._clock = clock
        self._publish = publish
        self._written = written

    async def commit(
        self,
        changeset: Changeset,
        *,
        settlement: Settlement | None = None,
        config: CommitConfig | None = None,
        merge_intent: MergeIntent | None = None,
    ) -> Applied:
        """
        Write *changeset*, given an id if it has none; see ``CommitLane.commit``.

        *Cancellation*: as there; run it in a task that outlives the caller.
        """
        if changeset.id is None:
            changeset = replace(changeset, id=new_id("changeset"))
        try:
            applied = await self._lane.commit(
                changeset, settlement=settlement, config=config, merge_intent=merge_intent
            )
        except MnemoError as error:
            self._tell_failure("commit" if settlement else "apply", error, changeset, settlement)
            raise
        if not (applied.again or changeset.is_empty):
            self._tell_applied(changeset, applied)
        self._written()
        return applied

    async def delete(self, ids: Sequence[str]) -> int:
        """Delete nodes; give how many existed. *Cancellation*: as ``commit``."""
        try:
            deleted = await self._graph.delete(ids)
        except MnemoError as error:
            self._tell_failure("delete_nodes", error)
            raise
        if deleted:
            now = self._clock.now()
            self._publish(NodesDeleted(repo_id=self._repo_id, at=now, node_ids=deleted))
            self._written()
        return len(deleted)

    def _tell_applied(self, changeset: Changeset, applied: Applied) -> None:
        self._publish(
            ChangesetApplied(
                repo_id=self._repo_id,
                at=self._clock.now(),
                changeset_id=str(changeset.id),
                revision=applied.revision,
                node_ids=applied.node_ids,
                edge_count=applied.edge_count,
            )
        )

    def _tell_failure(
        self,
        operation: str,
        error: Exception,
        changeset: Changeset | None = None,
        settlement: Settlement | None = None,
    ) -> None:
        self._publish(
            WriteFailed(
                repo_id=self._repo_id,
                at=self._clock.now(),
                operation=operation,
                error=str(error),
                session_id=settlement.session_id if settlement else None,
                changeset_id=changeset.id if changeset else None,
            )
        )

"""Publish an event for every graph write: applied, deleted, or rolled back."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from mnemo.commit.intents import MergeIntent
from mnemo.commit.lane import CommitLane
from mnemo.config import CommitConfig
from mnemo.errors import MnemoError, StoreError
from mnemo.events import ChangesetApplied, Event, NodesDeleted, WriteFailed
from mnemo.protocols import Applied, Clock, GraphStore
from mnemo.runtime.ids import new_id
from mnemo.runtime.spans import NO_SPANS, Span, Spans, memory_attributes
from mnemo.values.changeset import Changeset
from mnemo.values.graph import Node
from mnemo.values.journal import Settlement

__all__ = ["PublishedWrites"]

FAILED_KEPT = 16
"""Changesets without an id of their own whose failed write is remembered, the last ones (S)."""


class PublishedWrites:
    """
    The commits and deletions of one repository, each followed by its event.

    Args:
        publish: Publishes an event; a plain call.
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
        spans: Spans = NO_SPANS,
    ) -> None:
        self._repo_id = repo_id
        self._lane = lane
        self._graph = graph
        self._clock = clock
        self._publish = publish
        self._written = written
        self._spans = spans
        self._failed: deque[tuple[Changeset, Changeset]] = deque(maxlen=FAILED_KEPT)

    async def commit(
        self,
        changeset: Changeset,
        *,
        settlement: Settlement | None = None,
        config: CommitConfig | None = None,
        merge_intent: MergeIntent | None = None,
        spans: Spans | None = None,
    ) -> Applied:
        """
        Write *changeset*, given an id if it has none; see ``CommitLane.commit``.

        One without an id that the store failed keeps the id it was given: the same object
        again is written once, whether or not the first call wrote it.

        Args:
            spans: Those of the session that commits, where they are others.

        *Cancellation*: as there; run it in a task that outlives the caller.
        """
        given, changeset = changeset, self._with_id(changeset)
        named = memory_attributes("upsert_memory", self._repo_id)
        with (spans or self._spans).span("upsert_memory", attributes=named) as span:
            _say_changeset(span, changeset, settlement)
            try:
                applied = await self._commit(changeset, settlement, config, merge_intent)
            except StoreError:
                if given is not changeset:
                    self._failed.append((given, changeset))
                raise
            span.set("gen_ai.memory.record.count", len(applied.node_ids))
            span.set("mnemo.revision", applied.revision)
            return applied

    def _with_id(self, changeset: Changeset) -> Changeset:
        if changeset.id is not None:
            return changeset
        failed = (named for given, named in self._failed if given is changeset)
        return next(failed, None) or replace(changeset, id=new_id("changeset"))

    async def _commit(
        self,
        changeset: Changeset,
        settlement: Settlement | None,
        config: CommitConfig | None,
        merge_intent: MergeIntent | None,
    ) -> Applied:
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
        named = memory_attributes("delete_memory", self._repo_id)
        with self._spans.span("delete_memory", attributes=named) as span:
            if len(ids) == 1:
                span.set("gen_ai.memory.record.id", ids[0])
            deleted = await self._delete(ids)
            span.set("gen_ai.memory.record.count", deleted)
            return deleted

    async def _delete(self, ids: Sequence[str]) -> int:
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


def _say_changeset(span: Span, changeset: Changeset, settlement: Settlement | None) -> None:
    span.set("mnemo.changeset.id", str(changeset.id))
    if settlement is not None:
        span.set("mnemo.session.id", settlement.session_id)
    span.set_content("gen_ai.memory.records", lambda: _as_json(changeset.nodes))


def _as_json(nodes: Iterable[Node]) -> str:
    """*nodes* as memory records in the conventions' shape."""
    return json.dumps([{"id": n.id, "content": n.text} for n in nodes], ensure_ascii=False)

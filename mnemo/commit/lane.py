"""
The commit lane: writes to the graph of one repository, one after another, each with its event.

Everything that can wait (models, embeddings, look-ups, reconciling) happens before the transaction,
against a revision. If somebody else wrote meanwhile, another process for example, it is looked up
and reconciled again; what models answered is kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from anyio import CancelScope, sleep

from mnemo.commit.changes import (
    check,
    check_sums,
    look_up,
    named_ids,
    questions,
    texts_to_embed,
    tidied,
    without,
    without_gone,
)
from mnemo.commit.reconcile import MergeIntent, plan_intents, reconcile
from mnemo.config import CommitConfig
from mnemo.errors import Barred, CommitFailed, MnemoError, ModelError, StaleRevision, StoreError
from mnemo.events import ChangesetApplied, Event, NodesDeleted, WriteFailed
from mnemo.graph.graph import StoredGraph
from mnemo.index.corpus import CorpusView
from mnemo.index.follower import RepositoryIndex
from mnemo.protocols import Applied, Clock, Embedder, GraphWrite
from mnemo.runtime.clock import new_id
from mnemo.runtime.spans import NO_SPANS, Spans, memory_attributes
from mnemo.runtime.tasks import Places, Threads
from mnemo.runtime.transactions import confirmed
from mnemo.values.changeset import ROUTING, Changeset, Upkeep
from mnemo.values.graph import Node, NodeType, Vector
from mnemo.values.journal import Owner, Settlement
from mnemo.values.vectors import unit_rows

log: logging.Logger = logging.getLogger("mnemo")

TRIES = 32
"""Times that a commit is reconciled anew because others wrote first, then it fails."""
TRIES_IN_A_RUSH = 4
"""Of these, the first, to which nobody gives way; from then on others wait for their turn."""
TURN_POLL_S = 0.02
IN_DOUBT_KEPT = 16
"""Changesets without an id of their own whose write is in doubt, the last ones (S)."""


@dataclass(eq=False, kw_only=True)
class CommitLane:
    """
    Reconciles changesets with one repository's graph and writes them, one at a time.

    Attributes:
        index: Follows the graph; poked after it has changed.
        owner: Who writes; must own the sessions whose commits it settles.
        config: Used where a commit brings none.
        publish: Publishes an event; a plain call.
        turn: Held by whoever reconciles and writes: by ``commit`` itself, around ``tend`` by
            its caller. ``delete`` needs none: the revision tells a commit of it.
    """

    repo_id: str
    graph: StoredGraph
    index: RepositoryIndex
    embedder: Embedder
    owner: Owner
    clock: Clock
    config: CommitConfig
    publish: Callable[[Event], None]
    spans: Spans = NO_SPANS
    threads: Threads = field(default_factory=Threads)
    turn: Places = field(default_factory=Places)
    _in_doubt: Sequence[tuple[Changeset, Changeset]] = ()

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
        Write *changeset* as what it adds to the stored graph, in one transaction.

        A changeset whose id was applied before is not applied again: the answer is the
        first one. Without vectors, if the embedder fails, it is committed all the same.
        One without an id gets one. If its write is in doubt, the same object again has the
        same id, so that it is written once.

        Args:
            settlement: What the commit does to its session.
            merge_intent: Words common descriptions of intents.
            spans: Those of the session that commits, where they are others.

        Raises:
            ValueError: The changeset cannot be stored as it stands.
            Conflict: The owner does not own the settled session any more.
            CommitFailed: The store could not do it. In all cases nothing was written, or
                the store does not say whether it was: committing again is safe.
            *Cancellation*: safe while waiting and reconciling; the transaction completes.
                Run it in a task that outlives the caller.
        """
        given = changeset
        if given.id is None:
            tried = (named for one, named in self._in_doubt if one is given)
            changeset = next(tried, None) or replace(given, id=new_id("changeset"))
        id = str(changeset.id)
        reconciling = _Reconciling(self, changeset, settlement, config or self.config, merge_intent)
        named = memory_attributes("upsert_memory", self.repo_id)
        with (spans or self.spans).span("upsert_memory", attributes=named) as span:
            span.set("mnemo.changeset.id", id)
            if settlement is not None:
                span.set("mnemo.session.id", settlement.session_id)
            span.set_content("gen_ai.memory.records", partial(_records, changeset.nodes))
            try:
                async with self.turn:
                    applied = await self._apply_once(
                        id,
                        reconciling.write,
                        partial(self.graph.first_answer, id, self.owner, settlement),
                        lambda: None if given.id else self._doubt(given, changeset),
                    )
            except MnemoError as error:
                operation = "commit" if settlement else "apply"
                self.report_failure(operation, error, changeset, settlement)
                raise
            if not (applied.again or changeset.is_empty):
                self.publish(
                    ChangesetApplied(
                        repo_id=self.repo_id,
                        at=self.clock.now(),
                        changeset_id=id,
                        revision=applied.revision,
                        node_ids=applied.node_ids,
                        edge_count=applied.edge_count,
                    )
                )
            self.index.poke()
            span.set("gen_ai.memory.record.count", len(applied.node_ids))
            span.set("mnemo.revision", applied.revision)
            return applied

    def _doubt(self, given: Changeset, named: Changeset) -> None:
        self._in_doubt = (*self._in_doubt, (given, named))[-IN_DOUBT_KEPT:]

    async def delete(self, ids: Sequence[str]) -> int:
        """Delete nodes; give how many existed. *Cancellation*: as ``commit``."""
        named = memory_attributes("delete_memory", self.repo_id)
        with self.spans.span("delete_memory", attributes=named) as span:
            if len(ids) == 1:
                span.set("gen_ai.memory.record.id", ids[0])
            try:
                deleted = await self.graph.delete(ids)
            except MnemoError as error:
                self.report_failure("delete_nodes", error)
                raise
            if deleted:
                self.report_deleted(deleted)
                self.index.poke()
            span.set("gen_ai.memory.record.count", len(deleted))
            return len(deleted)

    async def tend(self, draw: Callable[[CorpusView], Awaitable[Upkeep]]) -> tuple[Upkeep, Applied]:
        """
        Write the upkeep that *draw* makes of the graph as it is, in one transaction.

        If others wrote first, it is drawn anew. Gives what was drawn last, and what it did.

        *Raises* ``CommitFailed``: as of ``commit``. *Cancellation*: the transaction completes; run
        it in a task that outlives the caller.
        """
        id = new_id("upkeep")
        drawn: list[tuple[Upkeep, CorpusView]] = []

        async def write(barred: Collection[str]) -> GraphWrite:
            view = await self.index.corpus()
            upkeep = await draw(view)
            drawn[:] = [(upkeep, view)]
            return GraphWrite(changeset_id=id, expected_revision=view.revision, upkeep=upkeep)

        async def find() -> Applied | None:
            if not drawn or (first := await self.graph.first_answer(id, self.owner)) is None:
                return None
            removed = await self.threads.run(_gone, *drawn[0], await self.index.corpus())
            return replace(first, removed=removed)

        applied = await self._apply_once(id, write, find)
        return drawn[0][0], applied

    # ── Writing ──────────────────────────────────────────────────────────────────────

    async def _apply_once(
        self,
        id: str,
        draw: Callable[[Collection[str]], Awaitable[GraphWrite]],
        find: Callable[[], Awaitable[Applied | None]],
        in_doubt: Callable[[], None] = lambda: None,
    ) -> Applied:
        """
        Apply the write *id* that *draw* makes, or give the first answer, which *find* looks for.

        *Raises* ``CommitFailed``: nothing was written, or *in_doubt* was called.
        """
        known = "nothing was written"

        async def found() -> Applied | None:
            first = await find()
            return first and replace(first, again=False)

        def doubt() -> None:
            nonlocal known
            known = "whether it was written is not known, commit it again"
            in_doubt()

        try:
            return await confirmed(partial(self._apply, id, draw), found, doubt)
        except ValueError:
            # Ids that are taken may be this changeset's own, of the first time.
            if first := await find():
                return first
            raise
        except CommitFailed:
            raise
        except StoreError as error:
            raise CommitFailed(f"{known}: {error}") from error

    async def _apply(
        self, id: str, draw: Callable[[Collection[str]], Awaitable[GraphWrite]]
    ) -> Applied:
        """Apply what *draw*, given ids that may not be written, draws anew while others write."""
        barred: set[str] = set()
        has_turn = False
        try:
            for tries in range(TRIES):
                write = await draw(barred)
                try:
                    # A transaction that has begun is heard to its end by whoever settles it.
                    with CancelScope(shield=True):
                        applied = await self.graph.apply(write, self.owner)
                        # What adds something ends its turn.
                        has_turn = has_turn and applied.revision == write.expected_revision
                        return applied
                except StaleRevision:
                    log.debug("%s met another write", id)
                    if tries + 1 >= TRIES_IN_A_RUSH:
                        has_turn = True
                        # The other may be another process.
                        while not await self.graph.take_turn(id):  # noqa: ASYNC110
                            await sleep(TURN_POLL_S)
                except Barred as error:
                    barred.update(error.ids)
        finally:
            if has_turn:
                await self._end_turn(id)
        raise CommitFailed(f"nothing was written: others wrote first, {TRIES} times in a row")

    async def _end_turn(self, id: str) -> None:
        with CancelScope(shield=True):
            try:
                await self.graph.end_turn(id)
            except StoreError as error:
                log.warning("the turn of %s is left to its end: %s", id, error)

    # ── Events ───────────────────────────────────────────────────────────────────────

    def report_deleted(self, ids: tuple[str, ...]) -> None:
        at = self.clock.now()
        self.publish(NodesDeleted(repo_id=self.repo_id, at=at, node_ids=ids))

    def report_failure(
        self,
        operation: str,
        error: Exception,
        changeset: Changeset | None = None,
        settlement: Settlement | None = None,
    ) -> None:
        self.publish(
            WriteFailed(
                repo_id=self.repo_id,
                at=self.clock.now(),
                operation=operation,
                error=str(error),
                session_id=settlement.session_id if settlement else None,
                changeset_id=changeset.id if changeset else None,
            )
        )


@dataclass(eq=False, slots=True)
class _Reconciling:
    """One changeset, with what models answered to it, over all tries to write it."""

    lane: CommitLane
    changeset: Changeset
    settlement: Settlement | None
    config: CommitConfig
    merge: MergeIntent | None
    vectors: dict[str, Vector] = field(default_factory=dict)
    merged: dict[tuple[str, str], str] = field(default_factory=dict)

    async def write(self, barred: Collection[str]) -> GraphWrite:
        """Look up what the changeset, without *barred*, meets now, and decide what it writes."""
        graph, index, threads = self.lane.graph, self.lane.index, self.lane.threads
        changeset = without(self.changeset, barred) if barred else self.changeset
        revision = await index.catch_up()
        ids = await threads.run(named_ids, changeset)
        stored = {node.id: node for node in await graph.nodes(ids, intact=True)}
        changeset, texts = await threads.run(self._checked, changeset, stored)
        await check_sums(changeset, graph)
        vectors = await self._vectors_of(texts)
        changeset, asked = await threads.run(questions, changeset, stored, vectors)
        thresholds: dict[NodeType, float] = {
            "semantic": self.config.duplicate_threshold,
            "intent": self.config.intent_merge_threshold,
        }
        known = await look_up(asked, stored, graph, index, revision=revision, thresholds=thresholds)
        intents = await plan_intents(
            changeset,
            known,
            config=self.config,
            merge=self._common_intent if self.merge else None,
            vectors_of=self._vectors_of,
        )
        decide = partial(reconcile, config=self.config, now=self.lane.clock.now())
        write = await threads.run(decide, changeset, known, intents)
        return replace(write, settlement=self.settlement, space=self.lane.embedder.space)

    def _checked(
        self, changeset: Changeset, stored: Mapping[str, Node]
    ) -> tuple[Changeset, list[str]]:
        dimensions, given = self.lane.embedder.space.dimensions, self.settlement is None
        changeset = tidied(changeset if given else without_gone(changeset, stored), stored)
        check(changeset, stored, dimensions=dimensions, given=given)
        return changeset, texts_to_embed(changeset, stored)

    async def _vectors_of(self, texts: Sequence[str]) -> Mapping[str, Vector]:
        """Vectors of *texts*, as far as the embedder gives them; each is asked for once."""
        missing = [text for text in texts if text not in self.vectors]
        if missing:
            try:
                reply = await self.lane.embedder.embed(missing, kind="document")
                dimensions = self.lane.embedder.space.dimensions
                rows = unit_rows(reply, rows=len(missing), dimensions=dimensions)
                self.vectors.update(zip(missing, rows, strict=True))
            except ModelError as error:
                log.warning("committed without vectors, they will follow: %s", error)
        return self.vectors

    async def _common_intent(self, stored: str, new: str) -> str:
        """Ask for the common description, once per pair."""
        assert self.merge is not None
        if (stored, new) not in self.merged:
            self.merged[stored, new] = await self.merge(stored, new)
        return self.merged[stored, new]


def _gone(upkeep: Upkeep, before: CorpusView, after: CorpusView) -> tuple[str, ...]:
    """What an upkeep removed whose answer was lost."""
    left: dict[str, None] = {}
    named = {*upkeep.merges, *upkeep.removals}
    for type in before.nodes:
        # Not looked up: what is found by its id is the writer's, who is ahead of a view.
        for part in before.parts(type):
            were = part.named(np.flatnonzero(part.view.alive))
            left |= dict.fromkeys(id for id in were if id in named or type in ROUTING)
        there = [*left]
        for part in after.parts(type):
            for one in part.find(there)[0].tolist():
                left.pop(there[one], None)
    return tuple(left)


def _records(nodes: Sequence[Node]) -> str:
    """*nodes* as memory records in the conventions' shape."""
    return json.dumps([{"id": n.id, "content": n.text} for n in nodes], ensure_ascii=False)

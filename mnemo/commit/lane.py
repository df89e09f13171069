"""
The commit lane: commits of one repository, one after another.

Everything that can wait (models, embeddings, look-ups, reconciling) happens before
the transaction, against a revision. If somebody else wrote meanwhile, another lane
in another process for example, it is looked up and reconciled again; what models
answered is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
import numpy as np
from anyio import CancelScope, CapacityLimiter, Lock

from mnemo.commit.changes import (
    Questions,
    check,
    named_ids,
    questions,
    tidied,
    unembedded,
    with_vectors,
    without,
)
from mnemo.commit.intents import MergeIntent, plan_intents
from mnemo.commit.reconcile import reconcile
from mnemo.commit.stored import look_up
from mnemo.config import CommitConfig
from mnemo.errors import Barred, CommitFailed, ModelError, StaleRevision, StoreError
from mnemo.protocols import Applied, Clock, Embedder, GraphStore, GraphWrite, VectorIndex
from mnemo.runtime.ids import new_id
from mnemo.values.changeset import Changeset
from mnemo.values.corpus import CorpusView
from mnemo.values.graph import Node, NodeType, Vector
from mnemo.values.journal import Owner, Settlement
from mnemo.values.upkeep import ROUTING, Upkeep
from mnemo.values.vectors import unit_rows

__all__ = ["CommitLane"]

_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)

TRIES = 32
"""Times that a commit is reconciled anew because others wrote first, then it fails."""

_NO_REVISION = -1


class CommitLane:
    """
    Reconciles changesets with one repository's graph and writes them, one at a time.

    Args:
        owner: Who writes; must own the sessions whose commits it settles.
        config: Used where a commit brings none.
        merge_intent: Words common descriptions, where a commit brings nobody who does.
    """

    def __init__(
        self,
        *,
        graph: GraphStore,
        index: VectorIndex,
        embedder: Embedder,
        owner: Owner,
        clock: Clock,
        config: CommitConfig,
        merge_intent: MergeIntent | None = None,
    ) -> None:
        self._seams = _Seams(
            graph=graph,
            index=index,
            embedder=embedder,
            owner=owner,
            clock=clock,
            worker=CapacityLimiter(1),
        )
        self._config = config
        self._merge_intent = merge_intent
        self.turn = Lock()
        """Held by whoever writes: by ``commit`` itself, around ``tend`` by its caller."""

    async def commit(
        self,
        changeset: Changeset,
        *,
        settlement: Settlement | None = None,
        config: CommitConfig | None = None,
        merge_intent: MergeIntent | None = None,
    ) -> Applied:
        """
        Write *changeset* as what it adds to the stored graph, in one transaction.

        A changeset whose id was applied before is not applied again: the answer is the
        first one. Without vectors, if the embedder fails, it is committed all the same.

        Args:
            settlement: What the commit does to its session.

        Raises:
            ValueError: The changeset cannot be stored as it stands.
            Conflict: The owner does not own the settled session any more.
            CommitFailed: The store could not do it. In all cases nothing was written.
            *Cancellation*: safe while waiting and reconciling; the transaction completes.
        """
        work = _Commit(self._seams, config or self._config, merge_intent or self._merge_intent)
        async with self.turn:
            try:
                return await work.run(changeset, settlement)
            except CommitFailed:
                raise
            except StoreError as error:
                raise CommitFailed(f"nothing was written: {error}") from error

    async def tend(self, draw: Callable[[CorpusView], Upkeep]) -> tuple[Upkeep, Applied]:
        """
        Write the upkeep that *draw* makes of the graph as it is, in one transaction.

        If others wrote first, in another process for example, it is drawn anew.

        Args:
            draw: Runs in a worker thread; given the documents of the present revision.

        Returns:
            What was drawn last, and what it did.

        Raises:
            CommitFailed: Nothing was written. *Cancellation*: the transaction completes;
                run it in a task that outlives the caller.
        """
        try:
            return await self._tend(draw)
        except CommitFailed:
            raise
        except StoreError as error:
            raise CommitFailed(f"nothing was written: {error}") from error

    async def _tend(self, draw: Callable[[CorpusView], Upkeep]) -> tuple[Upkeep, Applied]:
        seams, id = self._seams, new_id("upkeep")
        for _ in range(TRIES):
            view = await seams.index.corpus()
            upkeep = await seams.in_thread(draw, view)
            write = GraphWrite(changeset_id=id, expected_revision=view.revision, upkeep=upkeep)
            try:
                with CancelScope(shield=True):
                    return upkeep, await seams.graph.apply(write, seams.owner)
            except StaleRevision:
                logger.debug("upkeep %s met another write", id)
            except StoreError:
                # The transaction may have ended well and only its answer been lost.
                first = await seams.lost_answer(id)
                if first is None:
                    raise
                removed = await seams.in_thread(_gone, upkeep, view, await seams.index.corpus())
                return upkeep, replace(first, again=False, removed=removed)
        raise CommitFailed(f"nothing was written: others wrote first, {TRIES} times in a row")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seams:
    graph: GraphStore
    index: VectorIndex
    embedder: Embedder
    owner: Owner
    clock: Clock
    worker: CapacityLimiter

    async def in_thread(self, work: Callable[..., _Result], *args: Any) -> _Result:
        """Run *work* off the event loop, one at a time."""
        return await anyio.to_thread.run_sync(work, *args, limiter=self.worker)

    async def first_answer(self, id: str, settlement: Settlement | None = None) -> Applied | None:
        """The answer to the write *id* when it was applied; ``None`` if it never was."""
        probe = GraphWrite(changeset_id=id, expected_revision=_NO_REVISION, settlement=settlement)
        try:
            return await self.graph.apply(probe, self.owner)
        except StaleRevision:
            return None

    async def lost_answer(self, id: str, settlement: Settlement | None = None) -> Applied | None:
        """``first_answer`` for a write that failed; ``None`` also if the store does not say."""
        try:
            return await self.first_answer(id, settlement)
        except StoreError as error:
            logger.warning("the store does not say whether %s was applied: %s", id, error)
            return None


class _Commit:
    """One commit, with what models answered to it, over all its tries."""

    def __init__(self, seams: _Seams, config: CommitConfig, merge: MergeIntent | None) -> None:
        self._seams = seams
        self._config = config
        self._merge = merge
        self._vectors: dict[str, Vector] = {}
        self._merged: dict[tuple[str, str], str] = {}

    async def run(self, changeset: Changeset, settlement: Settlement | None) -> Applied:
        """Write it, or give the answer of the first time; errors of the store pass through."""
        if changeset.id is None:
            return await self._write(replace(changeset, id=new_id("changeset")), settlement)
        try:
            return await self._write(changeset, settlement)
        except ValueError:
            # Ids that are taken may be this changeset's own, of the first time.
            if first := await self._seams.first_answer(changeset.id, settlement):
                return first
            raise
        except StoreError:
            # The transaction may have ended well and only its answer been lost.
            if first := await self._seams.lost_answer(changeset.id, settlement):
                return replace(first, again=False)
            raise

    async def _write(self, changeset: Changeset, settlement: Settlement | None) -> Applied:
        """Try until nobody writes in between."""
        for _ in range(TRIES):
            write = await self._reconciled(changeset)
            whole = replace(write, settlement=settlement, space=self._seams.embedder.space)
            try:
                # A transaction that has begun is heard to its end by whoever settles it.
                with CancelScope(shield=True):
                    return await self._seams.graph.apply(whole, self._seams.owner)
            except StaleRevision:
                logger.debug("changeset %s met another write", changeset.id)
            except Barred as barred:
                changeset = without(changeset, barred.ids)
        raise CommitFailed(f"nothing was written: others wrote first, {TRIES} times in a row")

    async def _reconciled(self, changeset: Changeset) -> GraphWrite:
        """One try: look up what *changeset* meets now, and decide what it writes."""
        graph, index = self._seams.graph, self._seams.index
        revision = await index.catch_up()
        ids = await self._seams.in_thread(named_ids, changeset)
        stored = {node.id: node for node in await graph.nodes(ids, intact=True)}
        changeset, texts = await self._seams.in_thread(self._checked, changeset, stored)
        vectors = await self._vectors_of(texts)
        changeset, asked = await self._seams.in_thread(_questioned, changeset, stored, vectors)
        known = await look_up(
            asked, stored, graph, index, revision=revision, thresholds=self._thresholds
        )
        intents = await plan_intents(
            changeset,
            known,
            config=self._config,
            merge=self._common_intent if self._merge else None,
            vectors_of=self._vectors_of,
        )
        decide = partial(reconcile, config=self._config, now=self._seams.clock.now())
        return await self._seams.in_thread(decide, changeset, known, intents)

    def _checked(
        self, changeset: Changeset, stored: Mapping[str, Node]
    ) -> tuple[Changeset, list[str]]:
        changeset = tidied(changeset, stored)
        check(changeset, stored, dimensions=self._seams.embedder.space.dimensions)
        return changeset, unembedded(changeset, stored)

    @property
    def _thresholds(self) -> dict[NodeType, float]:
        return {
            "semantic": self._config.duplicate_threshold,
            "intent": self._config.intent_merge_threshold,
        }

    async def _vectors_of(self, texts: Sequence[str]) -> Mapping[str, Vector]:
        """Vectors of *texts*, as far as the embedder gives them; each is asked for once."""
        missing = [text for text in texts if text not in self._vectors]
        if missing:
            try:
                reply = await self._seams.embedder.embed(missing, kind="document")
                rows = unit_rows(
                    reply, rows=len(missing), dimensions=self._seams.embedder.space.dimensions
                )
                self._vectors.update(zip(missing, rows, strict=True))
            except ModelError as error:
                logger.warning("committed without vectors, they will follow: %s", error)
        return self._vectors

    async def _common_intent(self, stored: str, new: str) -> str:
        """Ask for the common description, once per pair."""
        assert self._merge is not None
        if (stored, new) not in self._merged:
            self._merged[stored, new] = await self._merge(stored, new)
        return self._merged[stored, new]


def _gone(upkeep: Upkeep, before: CorpusView, after: CorpusView) -> tuple[str, ...]:
    """What an upkeep removed whose answer was lost."""
    left: dict[str, None] = {}
    named = {*upkeep.merges, *upkeep.removals}
    for type, documents in before.nodes.items():
        now = after.nodes[type]
        for number in np.flatnonzero(documents.alive).tolist():
            id = documents.ids[number]
            if (id in named or type in ROUTING) and not now.of(id):
                left[id] = None
    return tuple(left)


def _questioned(
    changeset: Changeset, stored: Mapping[str, Node], vectors: Mapping[str, Vector]
) -> tuple[Changeset, Questions]:
    changeset = with_vectors(changeset, stored, vectors)
    return changeset, questions(changeset, stored)

"""
The index of one repository: what its store holds, searchable in memory.

The store is the truth. The index carries the cursor it has reached in the store's
feed, reads on from there before every answer (so it sees what other processes
wrote), and starts again from nothing when in doubt. Documents without a vector are
embedded in the background; their vectors go to the store first and come back with
the feed, the only way into the index.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat

import anyio
import numpy as np
from numpy.typing import NDArray

from mnemo.errors import StoreReadOnly
from mnemo.index.corpus_writer import Corpus
from mnemo.index.documents import node_document, step_sides, steps_in
from mnemo.protocols import DocumentFeed, Embedder, FeedChanges, FeedCursor
from mnemo.runtime.clock import Breather
from mnemo.runtime.threads import Threads
from mnemo.runtime.traffic import traffic
from mnemo.runtime.user_code import traceback_of
from mnemo.values.changeset import Revision
from mnemo.values.corpus import CorpusView, DocumentsView
from mnemo.values.feed import NO_VECTORS
from mnemo.values.graph import NodeType, Vector
from mnemo.values.passages import vector_keys
from mnemo.values.vectors import unit_rows
from mnemo.values.wordings import MOST_WORDINGS

__all__ = ["IndexStatistics", "RepositoryIndex"]

log = logging.getLogger("mnemo")

BATCH = 256
"""Texts per call of the embedder, at most."""
PATIENCE_S = 5.0
"""Seconds after which it begins although writes go on."""
RETRY_S = 0.1
"""Seconds until a failed embedder is asked again; doubled by each further failure."""
MAX_RETRY_S = 60.0
"""Seconds beyond which that pause does not grow."""
MOST_HOPEFUL = 0.1
"""Share of the vectors beyond which all are compared: single rows are read more slowly."""
MOST_FRESH = 32
"""Texts without a vector that a reader waits for: what was said just before it asked."""
FRESH_S = 0.25
"""Seconds that it waits, at most; then those are found by keyword only."""


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """
    Where an index stands.

    Attributes:
        cursor: How far it has read the feed.
        revision: Of the graph, as far as it has read.
        documents: Texts that can be found.
        waiting: Of these, how many have no vector yet and are found by keyword only.
        failing: Why the embedder failed last; ``None`` if it did not.
    """

    cursor: FeedCursor
    revision: Revision
    documents: int
    waiting: int
    failing: str | None


class RepositoryIndex:
    """
    Follows one repository's feed.

    Args:
        feed: Every searchable text of the repository, in order of change.
        embedder: Makes the vectors; its space is the index's.
        agent_name: Who acts, in the text of an action.
        default_actor: Who speaks, in the text of a user's message without a name.
    """

    def __init__(
        self,
        *,
        feed: DocumentFeed,
        embedder: Embedder,
        agent_name: str,
        default_actor: str = "User",
    ) -> None:
        self._feed = feed
        self._embedder = embedder
        self._agent_name = agent_name
        self._default_actor = default_actor
        self._lock = anyio.Lock()
        self._embedding = anyio.Lock()
        self._threads = Threads(2)
        self._own = 0
        self._asked = 0
        self._served = 0
        self._traffic = traffic()
        self._poked = anyio.Event()
        self._failing: str | None = None
        self._renewing = False
        self._start_again()

    def _start_again(self) -> None:
        space = self._embedder.space
        self._corpus = Corpus(dimensions=space.dimensions, passage_tokens=space.passage_tokens)
        self._view = self._corpus.view(0, Breather())
        self._cursor = FeedCursor()
        self._unseen = False
        self._waiting: dict[str, str] = {}
        self._batch = BATCH
        self._failures = 0
        self._early: dict[str, Vector] = {}
        self._damaged: set[str] = set()

    def statistics(self) -> IndexStatistics:
        """Where it stands, as of the last catching up."""
        return IndexStatistics(
            self._cursor,
            self._view.revision,
            self._corpus.documents,
            len(self._waiting),
            self._failing,
        )

    # ── Reading ──────────────────────────────────────────────────────────────────────

    async def catch_up(self) -> Revision:
        """
        Read what is new in the store, also from other processes; give its revision.

        Callers that wait for the same moment share one read.

        Raises:
            StoreError: The feed could not be read. *Cancellation*: safe.
        """
        self._asked = ticket = self._asked + 1
        async with self._lock:
            if self._served < ticket:
                reading = self._asked
                await self._read_on()
                self._served = reading
        return self._view.revision

    async def corpus(self, *, embedded: bool = False) -> CorpusView:
        """
        Catch up, and give everything as it is then; it does not change afterwards.

        Args:
            embedded: If few texts wait for a vector, embed them first, within ``FRESH_S``;
                a failing embedder is left to the background.

        Raises:
            StoreError: The feed could not be read. *Cancellation*: safe.
        """
        await self.catch_up()
        if embedded and 0 < len(self._waiting) <= MOST_FRESH and self._failing is None:
            with anyio.move_on_after(FRESH_S):
                await self._embed_fresh()
            await self.catch_up()
        return self._view

    async def _embed_fresh(self) -> None:
        try:
            async with self._embedding:
                if 0 < len(self._waiting) <= MOST_FRESH:
                    await self._embed_batch()
        except Exception as error:
            log.debug("the background embeds what is new: %s", error)
            self.poke()

    async def renew(self) -> None:
        """
        Read everything anew, beside what serves meanwhile; nothing removed is left.

        The embedder may be of another space by now.

        Raises:
            StoreError: The feed could not be read; it serves on. *Cancellation*: safe.
        """
        fresh = RepositoryIndex(
            feed=self._feed,
            embedder=self._embedder,
            agent_name=self._agent_name,
            default_actor=self._default_actor,
        )
        self._renewing = True
        try:
            await fresh.catch_up()
            async with self._lock:
                self._corpus, self._view, self._cursor = fresh._corpus, fresh._view, fresh._cursor
                self._waiting, self._early = fresh._waiting, fresh._early
                self._damaged = fresh._damaged
        finally:
            self._renewing = False
        self.poke()

    async def _read_on(self) -> None:
        if self._cursor.vector == NO_VECTORS and not self._renewing:
            # It was to be replaced and was not: what it has passed over has to be read.
            self._start_again()
        more = True
        while more:
            changes = await self._feed.changes(self._after)
            if changes.revision < self._view.revision:
                # The store is behind its index: another file, or an older copy, took its place.
                self._start_again()
                changes = await self._feed.changes(self._after)
            if changes.cursor != self._cursor or changes.more or self._unseen:
                await self._threads.run(self._absorb, changes)
            self._traffic.elsewhere += max(0, len(changes.steps) - self._own)
            self._own = 0
            more = changes.more

    @property
    def _after(self) -> FeedCursor:
        # What is about to be replaced needs no more vectors; after a move there are very many.
        return replace(self._cursor, vector=NO_VECTORS) if self._renewing else self._cursor

    def _absorb(self, changes: FeedChanges) -> None:
        breather = Breather()
        try:
            self._add(changes, breather)
            # Put in order once, not page by page: of a million texts that takes a second.
            self._unseen = changes.more
            if not changes.more:
                view = self._corpus.view(changes.revision, breather)
                self._view = replace(view, damaged=tuple(sorted(self._damaged)))
            self._cursor = changes.cursor
        except BaseException:
            self._start_again()
            raise

    def _add(self, changes: FeedChanges, breather: Breather) -> None:
        # First what is gone: an id may have been removed and then stored anew.
        self._remove(changes.removed)
        for step in changes.steps:
            message = changes.repeats.get(step.node_id)
            if message is not None and not self._corpus.knows_step(step.node_id):
                self._corpus.repeat(step, message)
        for step in steps_in(changes, default_actor=self._default_actor):
            if not self._corpus.knows_step(step.node_id):
                for side in step_sides(step, agent_name=self._agent_name):
                    self._waiting |= self._corpus.add_side(side, breather)
            breather.breathe()
        for node in changes.nodes:
            details, origin = changes.details.get(node.id, {}), changes.origins.get(node.id)
            document = node_document(node, details, origin)
            for key in vector_keys([document.key]):
                self._waiting.pop(key, None)
            self._waiting |= self._corpus.put(document, breather)
            breather.breathe()
        self._give_vectors(changes)
        self._note_damage(changes)

    def _note_damage(self, changes: FeedChanges) -> None:
        """Remember which rows are left out, until they are gone or written anew."""
        settled = {*changes.removed, *(node.id for node in changes.nodes)}
        left = {row for row in self._damaged if row.partition(" ")[2] not in settled}
        self._damaged = left.union(changes.damaged)

    def _give_vectors(self, changes: FeedChanges) -> None:
        # With pages cut by a limit, a vector may come before what it belongs to.
        offered = {**self._early, **changes.vectors}
        fitting = {k: v for k, v in offered.items() if len(v) == self._corpus.dimensions}
        unknown = self._corpus.add_vectors(fitting)
        self._early = {key: fitting[key] for key in unknown} if changes.more else {}
        for key in fitting.keys() - unknown:
            self._waiting.pop(key, None)

    def _remove(self, ids: Iterable[str]) -> None:
        for key, renamed in self._corpus.remove(tuple(ids)).items():
            text = self._waiting.pop(key, None)
            if renamed is not None and text is not None:
                self._waiting[renamed] = text

    async def nearest(
        self,
        vectors: NDArray[np.float32],
        *,
        type: NodeType,
        threshold: float,
        limit: int = 12,
    ) -> list[list[tuple[str, float]]]:
        """
        For each row of *vectors* the ids and cosines ≥ *threshold* of one type, best first.

        Reads what ``catch_up`` reached last. Off the event loop. *Cancellation*: safe.
        """
        view = self._view.of_type(type)
        if view is None or not view.count or not len(vectors):
            return [[] for _ in vectors]
        views = (view, self._view.wordings) if type == "intent" else (view,)
        return await self._threads.run(_nearest_of, views, vectors, threshold, limit)

    # ── Embedding in the background ──────────────────────────────────────────────────

    def poke(self, *, by_job: bool = False) -> None:
        """Say that something was written; see ``VectorIndex``."""
        self._own += 1
        if not by_job:
            self._traffic.passed()
        self._poked.set()

    async def run(self) -> None:
        """
        Embed what has no vector, whenever poked, until cancelled; failures are waited out.

        *Cancellation*: safe; what was not saved is embedded after the next start.
        """
        while True:
            self._poked = anyio.Event()
            if await self._attempt():
                await self._poked.wait()
            else:
                # Also while appends go on: each of them would ask a server that is down.
                await anyio.sleep(min(MAX_RETRY_S, RETRY_S * 2 ** (self._failures - 1)))
            await self._traffic.pause(PATIENCE_S)

    async def _attempt(self) -> bool:
        try:
            await self.embed_waiting()
        except StoreReadOnly as error:
            log.info("documents are not embedded: %s", error)
        except Exception as error:
            # Whatever an embedder or the store may raise: recall goes on by keywords.
            if self._failing is None:
                trace = traceback_of(error)
                log.warning("documents wait for their vectors: %s", error, exc_info=trace)
            self._failing = f"{error.__class__.__name__}: {error}"
            self._failures = min(self._failures + 1, 32)
            return False
        self._failing, self._failures = None, 0
        return True

    async def embed_waiting(self) -> None:
        """
        Catch up, and embed every document that has no vector.

        Raises:
            ModelError: The embedder failed; what was saved before stays.
            StoreError: The store could not be read or written. *Cancellation*: safe.
        """
        await self.catch_up()
        while self._waiting:
            async with self._traffic.beside():
                async with self._embedding:
                    await self._embed_batch()
                await self.catch_up()

    async def _embed_batch(self) -> None:
        async with self._lock:
            batch = dict(islice(self._waiting.items(), self._batch))
        space = self._embedder.space
        try:
            reply = await self._embedder.embed(list(batch.values()))
            rows = unit_rows(reply, rows=len(batch), dimensions=space.dimensions)
        except Exception:
            self._let_others_go_first(batch)
            raise
        self._batch = min(BATCH, self._batch * 2)
        await self._feed.save_vectors(space, dict(zip(batch, rows, strict=True)))
        # What is gone from the store never comes back with the feed.
        async with self._lock:
            for key, text in batch.items():
                if self._waiting.get(key) == text:
                    del self._waiting[key]

    def _let_others_go_first(self, batch: Mapping[str, str]) -> None:
        """After a failure: ever fewer texts at once, so that one that is refused stays alone."""
        self._batch = max(1, self._batch // 2)
        if len(batch) == 1:
            (key,) = batch
            if key in self._waiting:
                self._waiting[key] = self._waiting.pop(key)


def _nearest_of(
    views: Sequence[DocumentsView], vectors: NDArray[np.float32], threshold: float, limit: int
) -> list[list[tuple[str, float]]]:
    """For each of *vectors* the best of all *views*, each id once."""
    found = [_nearest(view, vectors, threshold, limit) for view in views]
    if len(found) == 1:
        return found[0]
    merged = []
    for lists in zip(*found, strict=True):
        best: dict[str, float] = {}
        for id, cosine in sorted(chain.from_iterable(lists), key=lambda pair: -pair[1]):
            best.setdefault(id, cosine)
        merged.append(list(best.items())[:limit])
    return merged


def _nearest(
    view: DocumentsView, vectors: NDArray[np.float32], threshold: float, limit: int
) -> list[list[tuple[str, float]]]:
    breather = Breather()
    found = []
    for vector, rows in zip(vectors, _hopeful(view, vectors, threshold), strict=True):
        documents, cosines = _near(view, vector, threshold, rows)
        found.append(_best(view, documents, cosines, limit))
        breather.breathe()
    return found


def _hopeful(
    view: DocumentsView, vectors: NDArray[np.float32], threshold: float
) -> Iterable[NDArray[np.intp] | None]:
    if view.heads is None or view.vectors.shape[1] != vectors.shape[1]:
        return repeat(None, len(vectors))
    return view.heads.hopeful(vectors, threshold)


def _near(
    view: DocumentsView,
    vector: NDArray[np.float32],
    threshold: float,
    rows: NDArray[np.intp] | None,
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The living documents whose cosine with *vector* is ≥ *threshold*, at best among *rows*."""
    if rows is not None and len(rows) <= MOST_HOPEFUL * len(view.vectors):
        documents = view.vector_documents[rows].astype(np.intp)
        cosines = np.einsum("ij,j->i", view.vectors[rows], vector)
        near = view.alive[documents] & (cosines >= threshold)
        return documents[near], cosines[near]
    cosines, known = view.cosines(vector)
    documents = np.flatnonzero(known & view.alive & (cosines >= threshold))
    return documents, cosines[documents]


def _best(
    view: DocumentsView, documents: NDArray[np.intp], cosines: NDArray[np.float32], limit: int
) -> list[tuple[str, float]]:
    # Several documents may speak for one step or intent: the best one counts.
    best: dict[str, float] = {}
    for at in np.argsort(-cosines, kind="stable")[: MOST_WORDINGS * limit]:
        best.setdefault(view.ids[documents[at]], float(cosines[at]))
    return list(best.items())[:limit]

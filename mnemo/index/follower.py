"""
The index of one repository: what its store holds, searchable in memory.

The store is the truth. The index carries the cursor it has reached in the store's feed, reads on
from there before every answer (so it sees what other processes wrote), and starts again from
nothing when in doubt. It reads the documents at first use, and may let them go. Those without a
vector are embedded in the background; their vectors go to the store first and come back with the
feed, the only way into the index.
"""

from __future__ import annotations

import logging
from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio
import numpy as np
from numpy.typing import NDArray

from mnemo.english.letters import is_foreign
from mnemo.errors import StoreError
from mnemo.index.corpus import CorpusView
from mnemo.index.documents import node_document, step_sides, steps_in
from mnemo.index.embedding import HUNG_S, LOADING_S, Embedding
from mnemo.index.held import EMPTY, JUDGED, NOTHING, RECENT, Held, IndexStatistics
from mnemo.index.keeper import Keeper
from mnemo.index.large import LARGE
from mnemo.index.nearest import nearest
from mnemo.index.segments import CHAINS, DamagedSegment
from mnemo.index.stored import StoredSegments
from mnemo.protocols import EmbeddingSpace, FeedChanges, FeedCursor
from mnemo.runtime.budget import MemoryBudget
from mnemo.runtime.clock import Breather
from mnemo.runtime.tasks import Places
from mnemo.runtime.user_code import traceback_of
from mnemo.store.rows import chunks
from mnemo.values.changeset import Revision
from mnemo.values.feed import NO_VECTORS
from mnemo.values.graph import NodeType, Vector
from mnemo.values.steps import Step
from mnemo.values.vectors import VectorCache

log = logging.getLogger("mnemo")

MOST_TAIL = 2 * LARGE
"""Steps and messages in memory, while many are read, from which large segments are made of them."""
KEYS = 5_000
"""Vectors that are read by their keys at once."""


@dataclass(kw_only=True, eq=False)
class RepositoryIndex(Embedding):
    """
    Follows one repository's feed.

    Attributes:
        segments: Where its columns are kept; ``None``: nowhere.
        advise: Called once with ``advice``, when there is some.
        moved: Called with the repository's space; True: another process has moved it, and the
            embedder is of that one from now on.
        budget: Says when to let go.
    """

    segments: StoredSegments | None = None
    advise: Callable[[str], None] | None = None
    moved: Callable[[EmbeddingSpace], bool] = lambda space: False
    budget: MemoryBudget = field(default_factory=MemoryBudget)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sealing = Places()
        self._asked = self._served = self._bytes = 0

    _renewing = False  # here, as more than 30 attributes take a dict of their own
    _foreign = 0
    """How often segments of another reading were met: those met first are made anew."""

    def _start_again(self) -> None:
        """Hold what comes from the beginning of the feed on."""
        space = self.embedder.space
        self._held = Held(space.dimensions, space.passage_tokens)
        self._view, self._cursor = self._corpus.view(0, Breather()), FeedCursor()

    # ── In memory or not ─────────────────────────────────────────────────────────────────

    def let_go(self) -> bool:
        """
        Drop the documents from memory until somebody asks for them; False: they are in use.

        Views that were given stay as they are. A plain call.
        """
        if self._users:
            return False
        self._stood = stood = replace(self.statistics(), bytes=0)
        if self.is_held and not self._corpus.owed:
            self._paid, self._pace.left = (self.embedder.space, self._cursor), {}
        self._view = replace(EMPTY, revision=stood.revision, owed=stood.waiting)
        self._held, self._bytes = NOTHING, 0
        for made in ("_embedding", "_threads"):
            self.__dict__.pop(made, None)
        return True

    def close(self) -> None:
        """Hold nothing on the budget of others any more. A plain call."""
        self.budget.drop(self)
        self.budget = MemoryBudget()
        self.let_go()

    def statistics(self) -> IndexStatistics:
        """Where it stands, as of the last catching up; reads nothing."""
        if not self.is_held:
            return replace(self._stood, cursor=self._cursor, failing=self._failing)
        return IndexStatistics(
            self._cursor,
            self._view.revision,
            self._held.documents,
            # What serves while all is read anew gets no vectors: it is not settled.
            max(len(self._corpus.owed), int(self._renewing)),
            self._failing,
            self._bytes,
        )

    @property
    def advice(self) -> str | None:
        """
        What to do where most of the last messages are in a language that the embedder does not
        know; ``None`` if they are not.
        """
        space = self.embedder.space
        if not space.english_only or 2 * sum(self._held.tongues) <= JUDGED:
            return None
        return (
            f"most of the last {JUDGED} messages are not in English, and {space.name} knows no "
            'other language: give embedder="multilingual" and move what is stored with '
            "`mnemo reembed --embedder multilingual`"
        )

    # ── Reading ──────────────────────────────────────────────────────────────────────

    async def catch_up(self) -> Revision:
        """
        Read what is new in the store, also of other processes, once for all that wait for it.
        *Raises* ``StoreError``: the feed could not be read. *Cancellation*: safe.
        """
        with self._in_use():
            await self._follow()
            self._call_for_more()
            self.budget.use(self)
            return self._view.revision

    def _call_for_more(self) -> None:
        may_keep = self.segments is not None and self.owe is not None and not self._gives_way
        if self._view.owed or (may_keep and any(map(self._held.is_enough, CHAINS))):
            self.wake()

    async def _follow(self, *, held: bool = False) -> None:
        """Catch up; *held*: with the documents in memory also where nothing is new."""
        self._asked = ticket = self._asked + 1
        async with self._lock:
            if self._served < ticket or (held and not self.is_held):
                reading = self._asked
                try:
                    await self._read_on(held)
                except DamagedSegment:
                    await self._mend()
                    await self._read_on(held)
                self._served = reading

    async def corpus(self, *, embedded: bool = False, query: str = "") -> CorpusView:
        """
        Catch up, and give everything as it is then; it does not change afterwards.

        Args:
            embedded: Embed as many of the texts that are owed a vector as fit into ``owed_s``,
                those that are newest or fit *query* best; a failing embedder is left to
                the background. *Raises* and *Cancellation* as ``catch_up``.
        """
        with self._in_use():
            await self._follow(held=True)
            if embedded and self._view.owed and self._failing is None:
                try:
                    with anyio.move_on_after(HUNG_S if self._pace.is_loaded else LOADING_S):
                        await self._pay_for(query)
                except Exception as error:
                    log.debug("the background embeds what is new: %s", error)
                await self._follow(held=True)
            self._call_for_more()
            self.budget.use(self)
            return self._view

    async def mended(self) -> CorpusView:
        """As ``corpus``, where large segments turned out to be damaged."""
        with self._in_use():
            async with self._lock:
                await self._mend()
            return await self.corpus()

    async def _mend(self) -> None:
        """Begin anew, without files that are damaged."""
        if self._keeper is not None:
            await self._keeper.mend(self._threads)
        self._start_again()
        self._served = 0

    async def renew(self) -> None:
        """
        Read everything anew, maybe in another space; what serves meanwhile serves on if it fails.
        *Raises* and *Cancellation* as ``catch_up``.
        """
        fresh = replace(self, advise=None, budget=MemoryBudget())
        self._renewing = True
        try:
            with self._in_use():
                if self.is_held:
                    await fresh._follow(held=True)
                async with self._lock:
                    self._held, self._view, self._cursor = fresh._held, fresh._view, fresh._cursor
                    # Whoever waits to share a read made of the old one reads on instead.
                    self._served = 0
                    self._pace.forget()
                    self._count()
        finally:
            self._renewing = False
            # Else both hold each other, and all segments that were opened, until collected.
            fresh.budget.drop(fresh)
        self.poke()

    async def _read_on(self, held: bool) -> None:
        passed_over = self._cursor.vector == NO_VECTORS and not self._renewing
        if passed_over or (not self.is_held and (held or self._view.owed)):
            # What was to be replaced and was not has to read what it has passed over.
            self._start_again()
        more, before = True, self._view
        while more:
            if self._cursor == FeedCursor():
                await self._restore()
            # What is about to be replaced needs no more vectors; after a move there are very many.
            after = replace(self._cursor, vector=NO_VECTORS) if self._renewing else self._cursor
            changes = await self.feed.changes(after)
            others = self._number not in (0, changes.repo)
            self._number = changes.repo
            moved = changes.space is not None and self.moved(changes.space)
            if moved or changes.missed or others or changes.revision < self._view.revision:
                # It slept too long; or another file, or an older copy, took the store's place.
                if moved:
                    self._pace.forget()
                self._start_again()
                continue
            if changes.cursor != self._cursor or changes.more or self._held.unseen:
                if not self.is_held:
                    begins = self._cursor == FeedCursor()
                    self._start_again()
                    if not begins:
                        continue
                await self._threads.run(self._absorb, changes)
            if self._held.unlisted and not await self._follow_large():
                continue
            if changes.more and self.is_held and not await self._keep_large():
                continue
            # Not those that are read again since they were let go.
            known = bisect(changes.steps, self._stood.cursor.step, key=lambda step: step.ordinal)
            self._traffic.elsewhere += max(0, len(changes.steps) - known - self._own)
            self._own = 0
            more = changes.more
        if self._held.by_key:
            await self._read_vectors()
        if self._view is not before or not self._bytes:
            self._count()
        if self.advise is not None and (advice := self.advice) is not None:
            log.warning("%s", advice)
            self.advise(advice)
            self.advise = None

    async def _follow_large(self) -> bool:
        """Hold large segments as they are without what was erased; False: begin anew."""
        # A step that takes the place of a message in a segment is to be read.
        if (
            self._keeper is None
            or self._corpus.steps.has_heirs
            or not await self._keeper.follow(self._held, self._cursor, self._threads)
        ):
            self._start_again()
            return False
        await self._read_alone()
        await self._threads.run(self._show, self._view.revision)
        self._held.unlisted = False
        return True

    async def _read_alone(self) -> None:
        """Read what segments name and do not hold, of damaged rows those that were put right."""
        held, steps = self._held, self._corpus.steps
        alone = await self._threads.run(held.alone, held.large["steps"])
        steps.unread |= {row: id for id, row in alone.items() if row}
        for ids in chunks([*{*alone, *steps.unread.values()} - steps.documents.keys()], KEYS):
            await self._threads.run(self._add_steps, await self._steps_of(ids))
            self._held.by_key = True
        unread = steps.unread.items()
        steps.unread = {row: id for row, id in unread if id not in steps.documents}

    def _add_steps(self, steps: Sequence[Step]) -> None:
        breather = Breather()
        for step in sorted(steps, key=lambda step: step.ordinal):
            for side in step_sides(step, agent_name=self.agent_name):
                self._corpus.add_side(side, breather)

    async def _keep_large(self) -> bool:
        """Keep large segments of what a long reading has brought; False: begin anew."""
        keeper, groups = self._keeper, (self._corpus.steps, *self._corpus.nodes.values())
        many = any(group.living >= MOST_TAIL for group in groups)
        if keeper is None or not many or self._corpus.steps.has_heirs or self._gives_way:
            return True
        try:
            known = self._cursor, self._number, self._threads
            self._held.refused = self._pace.refused
            if await keeper.keep_large(self._held, *known, LARGE):
                self._count()
                return True
        except StoreError as error:
            log.info("columns are not kept: %s", error)
            return True
        self._start_again()
        return False

    def _count(self) -> None:
        """Count what is held, where something is."""
        if self.is_held:
            self._bytes = self._held.nbytes
            self.budget.hold(self, self._bytes)

    # ── At rest ──────────────────────────────────────────────────────────────────────

    @property
    def _keeper(self) -> Keeper | None:
        if self.segments is None:
            return None
        space = self.embedder.space
        texts = {"agent": self.agent_name, "speaker": self.default_actor}
        return Keeper(self.segments, {**texts, "passages": space.passage_tokens}, space.name)

    @property
    def _gives_way(self) -> bool:
        """Whether segments are left to somebody else who lives, and makes them in another way."""
        return self._held.is_foreign and self._foreign > 1

    async def _restore(self) -> None:
        """Begin with what the store keeps, but for vectors that are not in large segments."""
        if self._keeper is None:
            return
        if not self.is_held:
            self._start_again()
        try:
            known, replaces = (self._held, self._threads), not self._foreign
            self._cursor = await self._keeper.take_up(*known, replaces=replaces)
            self._foreign += self._held.is_foreign
            unread = [*self._corpus.steps.unread.values()]
            if self._held.large["steps"]:
                await self._read_alone()
            elif unread and await self._steps_of(unread):
                raise ValueError("damaged rows were put right")
        except (StoreError, DamagedSegment):
            raise
        except Exception as error:
            log.warning("the index is read anew: %s", error, exc_info=traceback_of(error))
            for chain in CHAINS:
                await self._keeper.drop(chain, 0)
            self._start_again()

    async def seal(self) -> None:
        """
        Catch up, and keep the columns of what is new, if it is enough. *Raises* ``StoreError``.
        *Cancellation*: safe.
        """
        if self._keeper is None:
            return
        async with self._sealing:
            with self._in_use():
                await self._seal(self._keeper)

    async def _seal(self, keeper: Keeper) -> None:
        await self._follow()
        if not self.is_held or self._gives_way:
            return
        held, large = self._held, {**self._held.large}

        def at() -> FeedCursor | None:
            reads_on = self._held is held and not self._corpus.steps.has_heirs
            return self._cursor if reads_on else None

        held.refused = self._pace.refused
        goes_on = await keeper.keep(held, at, self._number, self._lock, self._threads)
        async with self._lock:
            if self._held is held and not goes_on:
                self._start_again()
            elif self._held is held and held.large != large:
                await self._threads.run(self._show, self._view.revision)
                self._count()

    def _show(self, revision: Revision) -> None:
        """Let readers find what is new."""
        held, owed = self._held, len(self._corpus.owed)
        view = self._corpus.view(revision, Breather(), held.large)
        damaged = sorted(held.damaged.union(self._corpus.steps.unread))
        self._view = replace(view, damaged=tuple(damaged), owed=owed)

    async def _try_to_seal(self) -> None:
        try:
            await self.seal()
        except Exception as error:
            # Not again before there is more: each time it packs as much.
            self._held.sealed = {chain: self._corpus.count_of(chain) for chain in CHAINS}
            log.info("columns are not kept: %s", error, exc_info=traceback_of(error))

    async def _read_vectors(self) -> None:
        """Read the vectors that are owed, of what is not in large segments."""
        owed = [key for key, debt in self._corpus.owed.items() if not debt.paid]
        known = dict[str, Vector]()
        for keys in chunks(owed, KEYS):
            known |= await self.feed.vectors(keys)
        fitting = {k: v for k, v in known.items() if len(v) == self._corpus.dimensions}
        await self._threads.run(self._corpus.add_vectors, fitting)
        self._held.by_key = False
        await self._threads.run(self._show, self._view.revision)

    def _absorb(self, changes: FeedChanges) -> None:
        breather = Breather()
        try:
            self._add(changes, breather)
            # Put in order once, not page by page: of a million texts that takes a second.
            self._held.unseen = changes.more
            if not changes.more:
                self._show(changes.revision)
            self._cursor = changes.cursor
        except BaseException:
            self._start_again()
            raise

    def _add(self, changes: FeedChanges, breather: Breather) -> None:
        # First what is gone: an id may have been removed and then stored anew.
        if changes.removed:
            self._held.sealed.clear()  # Some segments may have gone with it.
            self._held.recent = VectorCache(RECENT)
            self._held.remove(changes.removed)
        for step in changes.steps:
            message = changes.repeats.get(step.node_id)
            if message is not None and not self._corpus.knows_step(step.node_id):
                self._corpus.repeat(step, message)
        said = deque[str](maxlen=JUDGED)
        for step in steps_in(changes, default_actor=self.default_actor):
            if not self._corpus.knows_step(step.node_id):
                said.append(step.observation or step.action)
                for side in step_sides(step, agent_name=self.agent_name):
                    self._corpus.add_side(side, breather)
            breather.breathe()
        if self.embedder.space.english_only:
            judged = map(is_foreign, said)
            self._held.tongues.extend(foreign for foreign in judged if foreign is not None)
        for node in changes.nodes:
            details, origin = changes.details.get(node.id, {}), changes.origins.get(node.id)
            document = node_document(node, details, origin, changes.cursor.revision)
            self._corpus.put(document, breather)
            breather.breathe()
        if self._held.hide("nodes", [node.id for node in changes.nodes]):
            # What was not worded anew keeps its vector.
            self._held.by_key = True
        self._give_vectors(changes)
        self._note_damage(changes)

    def _note_damage(self, changes: FeedChanges) -> None:
        """Remember which rows are left out, until they are gone or written anew."""
        settled = {*changes.removed, *(node.id for node in changes.nodes)}
        left = {row for row in self._held.damaged if row.partition(" ")[2] not in settled}
        self._held.damaged = left.union(changes.damaged).difference(changes.unread)
        unread = {**self._corpus.steps.unread, **changes.unread}.items()
        self._corpus.steps.unread = {row: id for row, id in unread if id not in settled}

    def _give_vectors(self, changes: FeedChanges) -> None:
        # With pages cut by a limit, a vector may come before what it belongs to.
        offered = {**self._held.early, **changes.vectors}
        fitting = {k: v for k, v in offered.items() if len(v) == self._corpus.dimensions}
        unknown = self._corpus.add_vectors(fitting)
        self._held.early = {key: fitting[key] for key in unknown} if changes.more else {}

    async def nearest(
        self, vectors: NDArray[np.float32], *, type: NodeType, threshold: float, limit: int = 12
    ) -> list[list[tuple[str, float]]]:
        """
        Ids and cosines ≥ *threshold* of one type for each row of *vectors*, best first, of what
        ``catch_up`` reached last, or more, if that was let go. *Raises* and *Cancellation* as
        ``catch_up``.
        """
        with self._in_use():
            if not self.is_held:
                await self._follow(held=True)
            self.budget.use(self)
            try:
                return await self._threads.run(self._nearest, vectors, type, threshold, limit)
            except DamagedSegment:
                await self.mended()
                return await self._threads.run(self._nearest, vectors, type, threshold, limit)

    def _nearest(
        self, vectors: NDArray[np.float32], type: NodeType, threshold: float, limit: int
    ) -> list[list[tuple[str, float]]]:
        parts = self._view.parts(type)
        if type == "intent":
            parts = (*parts, self._view.wordings)
        return nearest(parts, vectors, threshold, limit)

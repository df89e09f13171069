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
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b
from itertools import islice, zip_longest

import anyio
import numpy as np
from numpy.typing import NDArray

from mnemo.english.letters import is_foreign
from mnemo.english.words import index_terms
from mnemo.errors import StoreError, StoreReadOnly
from mnemo.index import at_rest
from mnemo.index.corpus import CorpusView, nearest, sharing_words
from mnemo.index.corpus_writer import Corpus, Debt
from mnemo.index.documents import node_document, passages_of, step_sides, steps_in
from mnemo.index.held import EMPTY, JUDGED, NOTHING, RECENT, Held, IndexStatistics
from mnemo.index.pace import BATCH, Pace
from mnemo.index.segments import (
    CHAINS,
    SEALED_FROM,
    Chain,
    Head,
    Kept,
    StoredSegments,
    reading,
)
from mnemo.log.feed import StoredFeed
from mnemo.protocols import Embedder, FeedChanges, FeedCursor
from mnemo.runtime.budget import MemoryBudget
from mnemo.runtime.clock import Breather, elapsed
from mnemo.runtime.tasks import Places, Threads
from mnemo.runtime.traffic import traffic
from mnemo.runtime.user_code import traceback_of
from mnemo.values.changeset import Revision
from mnemo.values.feed import NO_VECTORS, step_of
from mnemo.values.graph import Node, NodeType, Vector, wording_owner
from mnemo.values.steps import Step
from mnemo.values.vectors import VectorCache, unit_rows

log = logging.getLogger("mnemo")

PORTION_S = 0.25
"""Seconds that one call in the background is to take: a writer or a question waits no longer."""
UNKNOWN_PORTION = 16
"""Texts of the first call, of an embedder whose pace is not known yet."""
TURN_S = 1.0
"""Seconds after which it is seen whether a job goes on with it (S)."""
WINDOW = 256
"""Debts that are taken at once, to be embedded by length; of more one process takes a job."""
MOST_WANTED = 1_024
"""Texts that a recall considers embedding: a static embedder does no more in its time."""
LOOKED_AT = 64
"""Of these, how many it reads at once."""
MOST_REMOVED = 1_000
"""Removed texts that may be held in memory while fewer than these live (S)."""
PATIENCE_S = 5.0
"""Seconds after which it begins although writes go on."""
RETRY_S = 0.1
"""Seconds until a failed embedder is asked again; doubled by each further failure."""
MAX_RETRY_S = 60.0
"""Seconds beyond which that pause does not grow."""
LOADING_S = 5.0
"""Seconds that the first call may take, which loads the model: a question waits for that too."""
FIRST_S = 0.3
"""Seconds of embedding before the first answer, beside loading: thirty short messages (S)."""
HUNG_S = 0.25
"""Seconds after which a recall leaves an embedder that does not answer to the background."""
START = FeedCursor()
NOBODYS: Mapping[str, Debt] = {}
"""What is owed, where the documents are not in memory."""


@dataclass(kw_only=True, eq=False)
class RepositoryIndex:
    """
    Follows one repository's feed.

    Attributes:
        agent_name: Who acts, in the text of an action.
        default_actor: Who speaks, in the text of a user's message without a name.
        segments: Where its columns are kept; ``None``: nowhere.
        owed_s: Seconds of embedding that ``corpus`` does before it answers, at most.
        advise: Called once with ``IndexStatistics.advice``, when there is some.
        wake: Has ``run`` embed in the background; called where vectors are owed.
        owe: Owes more than ``WINDOW`` texts to a job, maybe of another process; gives whether it
            is being done. ``None``: there are no jobs.
        budget: Says when to let go.
    """

    feed: StoredFeed
    embedder: Embedder
    agent_name: str
    default_actor: str = "User"
    segments: StoredSegments | None = None
    owed_s: float = 0.03
    advise: Callable[[str], None] | None = None
    wake: Callable[[], None] = lambda: None
    owe: Callable[[], Awaitable[bool]] | None = None
    budget: MemoryBudget = field(default_factory=MemoryBudget)

    def __post_init__(self) -> None:
        self._lock = Places()
        self._in_hand: anyio.Event | None = None
        self._own = self._asked = self._served = 0
        self._traffic = traffic()
        self._failing: str | None = None
        self._failures = 0
        self._renewing = False
        self._number = 0
        self._users = self._bytes = 0
        self._pace = Pace()
        self._held, self._view, self._cursor = NOTHING, EMPTY, START
        self._paid = self.embedder.space, START
        self._stood = IndexStatistics(self._cursor, 0, 0, 0, None)

    def _start_again(self) -> None:
        """Hold what comes from the beginning of the feed on."""
        space = self.embedder.space
        self._held = Held(space.dimensions, space.passage_tokens)
        self._view, self._cursor = self._corpus.view(0, Breather()), FeedCursor()

    @property
    def _corpus(self) -> Corpus:
        return self._held.corpus

    # ── In memory or not ─────────────────────────────────────────────────────────────────

    @property
    def is_held(self) -> bool:
        """Whether the documents are in memory; if not, nothing is known but where it stood."""
        return self._held is not NOTHING

    def let_go(self) -> bool:
        """
        Drop the documents from memory until somebody asks for them; False: they are in use.

        Views that were given stay as they are. A plain call.
        """
        if self._users:
            return False
        self._stood = stood = replace(self.statistics(), bytes=0)
        if self.is_held and not self._corpus.owed:
            self._paid = self.embedder.space, self._cursor
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

    @cached_property
    def _embedding(self) -> anyio.Lock:
        return anyio.Lock()

    @cached_property
    def _threads(self) -> Threads:
        return Threads(2)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Do not let go meanwhile."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    def statistics(self) -> IndexStatistics:
        """Where it stands, as of the last catching up; reads nothing."""
        if not self.is_held:
            return replace(self._stood, cursor=self._cursor, failing=self._failing)
        return IndexStatistics(
            self._cursor,
            self._view.revision,
            self._corpus.documents,
            # What serves while all is read anew gets no vectors: it is not settled.
            max(len(self._corpus.owed), int(self._renewing)),
            self._failing,
            self._advice,
            self._bytes,
        )

    @property
    def _advice(self) -> str | None:
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
            if self._view.owed:
                self.wake()
            self.budget.use(self)
            return self._view.revision

    async def _follow(self, *, held: bool = False) -> None:
        """Catch up; *held*: with the documents in memory also where nothing is new."""
        self._asked = ticket = self._asked + 1
        async with self._lock:
            if self._served < ticket or (held and not self.is_held):
                reading = self._asked
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
            if self._view.owed:
                self.wake()
            self.budget.use(self)
            return self._view

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
            if changes.missed or others or changes.revision < self._view.revision:
                # It slept too long; or another file, or an older copy, took the store's place.
                self._start_again()
                continue
            if changes.cursor != self._cursor or changes.more or self._held.unseen:
                if not self.is_held:
                    begins = self._cursor == FeedCursor()
                    self._start_again()
                    if not begins:
                        continue
                await self._threads.run(self._absorb, changes)
            # Not those that are read again since they were let go.
            known = bisect(changes.steps, self._stood.cursor.step, key=lambda step: step.ordinal)
            self._traffic.elsewhere += max(0, len(changes.steps) - known - self._own)
            self._own = 0
            more = changes.more
        if self._view is not before or not self._bytes:
            self._count()
        if self.advise is not None and (advice := self._advice) is not None:
            log.warning("%s", advice)
            self.advise(advice)
            self.advise = None

    def _count(self) -> None:
        """Count what is held, where something is."""
        if self.is_held:
            self._bytes = self._held.nbytes
            self.budget.hold(self, self._bytes)

    # ── At rest ──────────────────────────────────────────────────────────────────────

    @property
    def _reading(self) -> str:
        return reading(
            agent=self.agent_name,
            speaker=self.default_actor,
            passages=self.embedder.space.passage_tokens,
        )

    async def _restore(self) -> None:
        """Begin with the columns that the store keeps, without the vectors and nodes."""
        if self.segments is None:
            return
        stored, nodes, removal = await self.segments.read()
        if not any(stored.values()):
            return
        if not self.is_held:
            self._start_again()
        heads, useless = dict[Chain, Head](), dict[Chain, int]()
        try:
            for chain, parts in stored.items():
                found = [*parts.values()]
                take_up = partial(at_rest.take_up, self._corpus, found, nodes, self._reading)
                head, used = await self._threads.run(take_up)
                heads |= {chain: head} if head is not None else {}
                if used < len(parts):
                    useless[chain] = [*parts][used]
        except Exception as error:
            log.warning("the index is read anew: %s", error, exc_info=traceback_of(error))
            self._start_again()
            heads, useless = {}, dict.fromkeys(stored, 0)
        if heads:
            ends = [head.until for head in heads.values()]
            self._cursor, self._held.unseen = at_rest.reached(ends, removal), True
            self._held.tongues.extend(heads["steps"].tongues if "steps" in heads else ())
            self._held.sealed = {chain: self._corpus.count_of(chain) for chain in CHAINS}
        for chain, no in useless.items():
            try:
                await self.segments.drop(chain, no)
            except StoreError as error:
                log.info("what is of no use stays in the store: %s", error)

    async def seal(self) -> None:
        """
        Catch up, and keep the columns of what is new, if it is enough and nothing is damaged: what
        is put right is read again. *Raises* ``StoreError``. *Cancellation*: safe.
        """
        if self.segments is None or self._held.damaged:
            return
        with self._in_use():
            await self._follow()
            for chain in CHAINS:
                await self._seal(chain, self.segments)

    async def _seal(self, chain: Chain, segments: StoredSegments) -> None:
        while self._unsealed(chain) >= SEALED_FROM:
            kept = await segments.kept(chain)
            async with self._lock:
                new, made = await self._threads.run(self._segment, chain, kept)
            self._held.sealed[chain] = self._corpus.count_of(chain) - new
            if made is None or not await segments.put(*made):
                break

    def _unsealed(self, chain: Chain) -> int:
        return self._corpus.count_of(chain) - self._held.sealed.get(chain, 0)

    def _segment(self, chain: Chain, kept: Sequence[Kept]) -> tuple[int, at_rest.Made | None]:
        known = {"repo": self._number, "reading": self._reading}
        known |= {"tongues": tuple(self._held.tongues)}
        return at_rest.segment(self._corpus, chain, kept, self._cursor, **known)

    def _absorb(self, changes: FeedChanges) -> None:
        breather = Breather()
        try:
            self._add(changes, breather)
            # Put in order once, not page by page: of a million texts that takes a second.
            self._held.unseen = changes.more
            if not changes.more:
                view = self._corpus.view(changes.revision, breather)
                damaged = tuple(sorted(self._held.damaged))
                self._view = replace(view, damaged=damaged, owed=len(self._corpus.owed))
            self._cursor = changes.cursor
        except BaseException:
            self._start_again()
            raise

    def _add(self, changes: FeedChanges, breather: Breather) -> None:
        # First what is gone: an id may have been removed and then stored anew.
        if changes.removed:
            self._held.sealed.clear()  # Some segments may have gone with it.
            self._held.recent = VectorCache(RECENT)
            self._corpus.remove(changes.removed)
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
        self._give_vectors(changes)
        self._note_damage(changes)

    def _note_damage(self, changes: FeedChanges) -> None:
        """Remember which rows are left out, until they are gone or written anew."""
        settled = {*changes.removed, *(node.id for node in changes.nodes)}
        left = {row for row in self._held.damaged if row.partition(" ")[2] not in settled}
        self._held.damaged = left.union(changes.damaged)

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
            view = self._view.of_type(type)
            if view is None or not view.count or not len(vectors):
                return [[] for _ in vectors]
            views = (view, self._view.wordings) if type == "intent" else (view,)
            return await self._threads.run(nearest, views, vectors, threshold, limit)

    # ── Embedding in the background ──────────────────────────────────────────────────

    async def is_behind(self, thread_id: str) -> bool:
        """Catch up as ``catch_up``, and tell whether vectors of the thread are to be made."""
        with self._in_use():
            await self._follow()
            self.wake()
            async with self._lock:
                waits = await self._threads.run(self._corpus.waits_in, thread_id)
            return waits and self._failing is None

    def poke(self, *, by_job: bool = False) -> None:
        """Say that something was written; *by_job*: by what other such work gives no way to."""
        self._own += 1
        if not by_job:
            self._traffic.passed()
        self.wake()

    async def run(self) -> None:
        """Embed what has no vector, at a pause; failures are waited out. *Cancellation*: safe."""
        await self._traffic.pause(PATIENCE_S)
        while not await self._attempt(self._embed_own):
            # Also while appends go on: each of them would ask a server that is down.
            await anyio.sleep(self.patience_s)
            await self._traffic.pause(PATIENCE_S)

    @property
    def patience_s(self) -> float:
        """Seconds until an embedder that failed is asked again."""
        return min(MAX_RETRY_S, RETRY_S * 2 ** (self._failures - 1)) if self._failures else 0.0

    async def _embed_own(self) -> None:
        """Embed what is owed; of more than a window, no more than until a job does it."""
        if self.owe is None:
            await self._embed_all()
            return
        # What was left by an earlier run is no reason to read all into memory.
        while not await self._embed_all(WINDOW, unread=not self._own) and not await self.owe():
            await self._embed_all(goes_on=partial(_is_before, elapsed() + TURN_S), unread=True)

    async def work_off(
        self, since: FeedCursor, *, goes_on: Callable[[], bool]
    ) -> FeedCursor | None:
        """
        Embed what has no vector, as a job, as long as *goes_on*; without the documents in memory,
        where they are not, it reads what came behind *since*. A failure is noted.

        Give the cursor up to which all have their vectors, or ``None``. *Cancellation*: safe.
        """
        space = self.embedder.space
        if self._paid[0] != space or self._paid[1].step < since.step:
            self._paid = space, since
        embed = partial(self._embed_all, goes_on=goes_on, unread=True)
        done = await self._attempt(embed) and goes_on() and self._paid[0] == space
        return self._paid[1] if done else None

    async def _attempt(self, embed: Callable[[], Awaitable[object]]) -> bool:
        try:
            await embed()
            most = max(MOST_REMOVED, self._corpus.documents)
            if self._corpus.steps.has_heirs or self._corpus.removed > most:
                await self.renew()
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
        if self.is_held:
            await self._try_to_seal()
        return True

    async def _try_to_seal(self) -> None:
        try:
            await self.seal()
        except Exception as error:
            # Not again before there is more: each time it packs as much.
            self._held.sealed = {chain: self._corpus.count_of(chain) for chain in CHAINS}
            log.info("columns are not kept: %s", error, exc_info=traceback_of(error))

    async def embed_waiting(self) -> None:
        """
        Catch up, and embed every document that has no vector. *Cancellation*: safe.

        *Raises* ``ModelError``, ``StoreError``; what was saved before stays.
        """
        await self._embed_all()

    async def _embed_all(
        self,
        most: int | None = None,
        *,
        goes_on: Callable[[], bool] = lambda: True,
        unread: bool = False,
    ) -> bool:
        """
        As ``embed_waiting``; False: *most* are fewer than there were, or it does not go on. What
        was let go is not read into memory for it, nor, *unread*, what was not read yet.
        """
        with self._in_use():
            if not self.is_held and (unread or self._cursor != FeedCursor()):
                return await self._embed_unread(most, goes_on)
            await self._follow()
            if most is not None and len(self._corpus.owed) > most:
                return False
            going = True
            while len(self._corpus.owed) and going:
                async with self._embedding:
                    async with self._lock:
                        debts = self._corpus.owed.oldest(WINDOW)
                    texts = await self._texts_of(debts)
                    # What is gone from the store never comes back with the feed.
                    self._corpus.owed.pay({key: debts[key] for key in debts.keys() - texts.keys()})
                    going = await self._embed_window(texts, self._held.recent, goes_on, debts)
            if not len(self._corpus.owed):
                self._paid = self.embedder.space, self._cursor
                self._pace.refused = frozenset()
            return not len(self._corpus.owed)

    async def _embed_unread(self, most: int | None, goes_on: Callable[[], bool]) -> bool:
        """As ``_embed_all``, of what came since all had their vectors, read page by page."""
        space, start = self.embedder.space, FeedCursor(vector=NO_VECTORS)
        since = replace(self._paid[1], vector=NO_VECTORS) if self._paid[0] == space else start
        recent, refused, more = VectorCache[bytes](RECENT), dict[str, str](), True
        while more:
            async with self._embedding:
                changes = await self.feed.changes(since)
                if self._number not in (0, changes.repo):
                    self._number, self._cursor, since = changes.repo, FeedCursor(), start
                    continue
                self._number = changes.repo
                texts = await self._threads.run(self._texts_in, changes)
                owed = await self.feed.without_vectors(texts)
                if most is not None and (changes.more or len(owed) > most):
                    return False
                refused |= {key: texts[key] for key in owed & self._pace.refused}
                fresh = {key: texts[key] for key in owed - self._pace.refused}
                last = {} if changes.more else refused
                for some in (fresh, last):
                    if not await self._embed_window(some, recent, goes_on):
                        return False
            since, more = changes.cursor, changes.more
            if not more or not refused:
                self._paid = space, replace(since, vector=0)
        self._pace.refused = frozenset()
        if not self.is_held:
            self._stood = replace(self._stood, waiting=0)
            self._view = replace(self._view, owed=0)
        return True

    async def _embed_window(
        self,
        texts: Mapping[str, str],
        recent: VectorCache[bytes],
        goes_on: Callable[[], bool],
        debts: Mapping[str, Debt] = NOBODYS,
    ) -> bool:
        """Embed *texts*, those of like lengths together; False: it went on no longer."""
        left = sorted(texts, key=lambda key: (key in self._pace.refused, len(texts[key])))
        while left:
            portion = self._pace.fitting(
                left[: self._pace.batch], texts, PORTION_S, UNKNOWN_PORTION
            )
            portion = portion or left[:1]
            left = left[len(portion) :]
            async with self._traffic.beside():
                self._in_hand = anyio.Event()
                try:
                    await self._save(await self._embedded(portion, texts, recent), debts)
                    if self.is_held:
                        await self._follow()
                finally:
                    self._in_hand.set()
                    self._in_hand = None
            if not goes_on():
                return False
        return True

    async def _save(self, rows: Mapping[str, Vector], debts: Mapping[str, Debt]) -> None:
        """Save what was owed, and owe it no more, unless it is owed anew since."""
        await self.feed.save_vectors(self.embedder.space, rows)
        async with self._lock:
            self._corpus.owed.pay({key: debts[key] for key in rows if key in debts})

    async def _embedded(
        self, keys: Iterable[str], texts: Mapping[str, str], recent: VectorCache[bytes]
    ) -> dict[str, Vector]:
        """The vectors of *keys*; a text that several of them have is embedded once."""
        space = self.embedder.space
        digests = {key: _digest(space.name, texts[key]) for key in keys}
        known = recent.found(digests.values())
        if fresh := {d: texts[key] for key, d in digests.items() if d not in known}:
            try:
                with self._pace.noted(fresh.values()):
                    reply = await self.embedder.embed(list(fresh.values()))
                    rows = unit_rows(reply, rows=len(fresh), dimensions=space.dimensions)
            except Exception:
                # What is refused stays alone, and goes last.
                if len(digests) == 1:
                    self._pace.refused |= digests.keys()
                raise
            known |= zip(fresh, rows, strict=True)
        self._pace.batch = min(BATCH, self._pace.batch * 2)
        recent.keep(known)
        return {key: known[digest] for key, digest in digests.items()}

    # ── Before an answer ─────────────────────────────────────────────────────────────

    async def _pay_for(self, query: str) -> None:
        """Embed what may answer *query*, for ``owed_s``; for ``FIRST_S`` beside loading a model."""
        cold = not self._pace.is_loaded
        allowed = max(FIRST_S, self.owed_s) if cold and self.owed_s else self.owed_s
        deadline = elapsed() + allowed
        if self._in_hand is not None:
            with anyio.move_on_after(LOADING_S if cold else self.owed_s):
                await self._in_hand.wait()
            deadline = elapsed() + allowed if cold else deadline
        async with self._lock:
            debts = await self._threads.run(self._wanted, query)
        rows, waiting = dict[str, Vector](), iter(debts.items())
        while some_debts := dict(islice(waiting, LOOKED_AT)):
            texts = await self._texts_of(some_debts)
            left = list(texts)
            while some := self._pace.fitting(left, texts, deadline - elapsed(), 1):
                loading = not self._pace.is_loaded
                rows |= await self._embedded(some, texts, self._held.recent)
                deadline = elapsed() + allowed if loading else deadline
                left = left[len(some) :]
            if left:
                break
        if rows:
            await self._save(rows, debts)

    def _wanted(self, query: str) -> dict[str, Debt]:
        """Debts in the order in which they are worth paying: the newest and the best by turns."""
        newest = self._corpus.owed.newest(MOST_WANTED)
        if len(newest) == len(self._corpus.owed) <= LOOKED_AT:
            return newest
        best = self._corpus.owed.among(sharing_words(self._view, index_terms(query), WINDOW))
        pairs = zip_longest(newest.items(), best.items())
        return dict(debt for pair in pairs for debt in pair if debt is not None)

    async def _texts_of(self, debts: Mapping[str, Debt]) -> dict[str, str]:
        """What the vectors of *debts* are made of, in their order, without what is gone."""
        held = {key: text for key, debt in debts.items() if (text := debt.text) is not None}
        if missing := [debt for key, debt in debts.items() if key not in held]:
            owners = {debt.node_id: debt.group.nodes[debt.number] for debt in missing}
            ids = [id for id, node in owners.items() if node is None]
            steps = list((await self.feed.steps(ids)).values())
            for id, (message, _) in (await self.feed.messages(ids)).items():
                steps.append(step_of(id, message, default_actor=self.default_actor))
            nodes = [node for node in owners.values() if node is not None]
            held |= await self._threads.run(self._cut, steps, nodes)
        return {key: held[key] for key in debts if key in held}

    def _cut(self, steps: Iterable[Step], nodes: Iterable[Node]) -> dict[str, str]:
        """What vectors are made of, by their keys."""
        tokens = self.embedder.space.passage_tokens
        return passages_of(steps, nodes, agent_name=self.agent_name, passage_tokens=tokens)

    def _texts_in(self, changes: FeedChanges) -> dict[str, str]:
        """Likewise, of the documents of *changes*; wordings have their vectors in their nodes."""
        texts = self._cut(steps_in(changes, default_actor=self.default_actor), changes.nodes)
        return {key: text for key, text in texts.items() if wording_owner(key) == key}


def _is_before(until: float) -> bool:
    return elapsed() < until


def _digest(space: str, text: str) -> bytes:
    """Of a text's vector: a repository may move to another space."""
    return blake2b(f"{space}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()

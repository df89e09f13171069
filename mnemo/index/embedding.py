"""How an index has its documents embedded: in the background, and before an answer."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from itertools import accumulate, islice, zip_longest

import anyio
import numpy as np

from mnemo.english.words import index_terms
from mnemo.errors import StoreReadOnly
from mnemo.index.columns import idf
from mnemo.index.corpus import CorpusView
from mnemo.index.corpus_writer import Corpus
from mnemo.index.documents import passages_of, steps_in
from mnemo.index.held import EMPTY, NOTHING, RECENT, IndexStatistics
from mnemo.index.owed import Debt
from mnemo.log.feed import StoredFeed
from mnemo.protocols import Embedder, FeedChanges, FeedCursor
from mnemo.runtime.clock import elapsed
from mnemo.runtime.tasks import Places, Threads
from mnemo.runtime.traffic import traffic
from mnemo.runtime.user_code import traceback_of
from mnemo.values.changeset import Revision
from mnemo.values.feed import NO_VECTORS, is_document, step_of
from mnemo.values.graph import Node, Vector, wording_owner
from mnemo.values.steps import Step
from mnemo.values.vectors import VectorCache, owner_of_vector, unit_rows

log = logging.getLogger("mnemo")

PORTION_S = 0.25
"""Seconds that one call in the background is to take: a writer or a question waits no longer."""
CALM_PORTION_S = 1.0
"""Likewise while little is written: in calls of 32 short texts MiniLM makes half as many (S)."""
UNKNOWN_PORTION = 16
"""Texts of the first call, of an embedder whose pace is not known yet."""
TURN_S = 1.0
"""Seconds after which it is seen whether a job goes on with it (S)."""
WINDOW = 1_024
"""Debts that are taken at once, to be embedded by length."""
MOST_OWN = 256
"""Texts above which one process embeds for all, by a job (S)."""
MOST_WANTED = 1_024
"""Texts that a recall considers embedding: a static embedder does no more in its time."""
MOST_SHARING = 256
"""Of these, how many for the words that they share with its question."""
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
LEAST = 2
"""Texts that a recall embeds although they take longer than it allows: the newest, the best."""
BATCH = 256
"""Texts per call of the embedder, at most."""
OVERHEAD_CHARACTERS = 40
"""What an embedder does for any text, in characters of a longer one."""
START = FeedCursor()
NOBODYS: Mapping[str, Debt] = {}
"""What is owed, where the documents are not in memory."""


# ── The pace of an embedder ────────────────────────────────────────────────────────────────


class Pace:
    """
    Seconds of an embedder per character, unknown at first.

    Attributes:
        is_loaded: Whether a first call has loaded the model; of that the pace is not noted.
        batch: Texts of the next call, at most.
        refused: Keys of texts that it did not take alone: they go last.
        left: Of these, what was read and is not held: key → text, and when it was read.
    """

    __slots__ = ("_seconds", "batch", "is_loaded", "left", "refused")

    def __init__(self) -> None:
        self._seconds: float | None = None
        self.is_loaded: bool = False
        self.batch: int = BATCH
        self.refused: frozenset[str] = frozenset[str]()
        self.left: dict[str, tuple[str, Revision]] = {}

    def forget(self) -> None:
        """Begin again, with another embedder."""
        self._seconds, self.is_loaded, self.refused = None, False, frozenset()

    def fitting(
        self, keys: Sequence[str], texts: Mapping[str, str], seconds: float, unknown: int
    ) -> list[str]:
        """The first of *keys* that are embedded in so many seconds; *unknown*, until that is."""
        if self._seconds is None:
            return list(keys[:unknown]) if seconds > 0 else []
        sizes = accumulate(len(texts[key]) + OVERHEAD_CHARACTERS for key in keys)
        return [k for k, size in zip(keys, sizes, strict=True) if size * self._seconds <= seconds]

    def is_soon(self, keys: Sequence[str], texts: Mapping[str, str]) -> bool:
        """Whether a recall waits for a call with *keys*: it would take no less time itself."""
        few = len(keys) <= LEAST and len(self.fitting(keys, texts, HUNG_S, LEAST)) == len(keys)
        return few or not self.is_loaded

    @contextmanager
    def noted(self, texts: Collection[str]) -> Iterator[None]:
        """Note how long the block takes for *texts*; where it fails, ever fewer go at once."""
        began = elapsed()
        try:
            yield
        except Exception:
            self.batch = max(1, self.batch // 2)
            raise
        finally:
            self._note(texts, elapsed() - began)

    def _note(self, texts: Collection[str], seconds: float) -> None:
        """What is faster counts at once, what is slower by half."""
        if not self.is_loaded:
            self.is_loaded = True
            return
        pace = seconds / sum(len(text) + OVERHEAD_CHARACTERS for text in texts)
        known = self._seconds
        self._seconds = pace if known is None else min(pace, (pace + known) / 2)


@dataclass(kw_only=True, eq=False)
class Embedding(ABC):
    """
    What an index holds, and what it does that the documents get their vectors.

    Attributes:
        agent_name: Who acts, in the text of an action.
        default_actor: Who speaks, in the text of a user's message without a name.
        owed_s: Seconds of embedding that ``corpus`` does before it answers, at most.
        wake: Has ``run`` embed and seal in the background; called where vectors are owed, and where
            enough for a segment is in memory alone.
        owe: Owes more than ``MOST_OWN`` texts to a job, maybe of another process; gives whether it
            is being done. ``None``: nothing is done here in the background.
    """

    feed: StoredFeed
    embedder: Embedder
    agent_name: str
    default_actor: str = "User"
    owed_s: float = 0.03
    wake: Callable[[], None] = lambda: None
    owe: Callable[[], Awaitable[bool]] | None = None

    def __post_init__(self) -> None:
        self._lock = Places()
        self._in_hand: anyio.Event | None = None
        self._own = self._failures = self._number = self._users = 0
        self._traffic = traffic()
        self._failing: str | None = None
        self._pace = Pace()
        self._held, self._view, self._cursor = NOTHING, EMPTY, START
        # Up to where all that is not held has its vectors, but ``_pace.left``.
        self._paid = self.embedder.space, START
        self._stood = IndexStatistics(self._cursor, 0, 0, 0, None)

    @abstractmethod
    async def _follow(self, *, held: bool = False) -> None:
        """Catch up; *held*: with the documents in memory also where nothing is new."""

    @abstractmethod
    async def renew(self) -> None:
        """Read everything anew."""

    @abstractmethod
    async def _try_to_seal(self) -> None:
        """Keep the columns of what is new, if that can be."""

    @property
    def _corpus(self) -> Corpus:
        return self._held.corpus

    @property
    def is_held(self) -> bool:
        """Whether the documents are in memory; if not, nothing is known but where it stood."""
        return self._held is not NOTHING

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
            await self.embed_waiting()
            return
        # What was left by an earlier run is no reason to read all into memory.
        while not await self.embed_waiting(MOST_OWN, unread=not self._own) and not await self.owe():
            await self.embed_waiting(goes_on=partial(_is_before, elapsed() + TURN_S), unread=True)

    async def work_off(
        self, since: FeedCursor, *, goes_on: Callable[[], bool]
    ) -> FeedCursor | None:
        """
        Embed what has no vector, as a job, as long as *goes_on*; without the documents in memory,
        where they are not, it reads what came behind *since*. A failure is noted.

        Give the cursor up to which all have their vectors, or ``None``. *Cancellation*: safe.
        """
        space = self.embedder.space
        if self._paid[0] != space:
            self._paid, self._pace.left = (space, START), {}
        paid = self._paid[1]
        furthest = FeedCursor(*map(max, astuple(paid), astuple(since)))
        # What is gone of the refused is followed from where it was.
        self._paid = space, replace(furthest, removal=paid.removal or since.removal)
        embed = partial(self.embed_waiting, goes_on=goes_on, unread=True)
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
            if self.is_held and self._pace.refused:
                await self._try_to_seal()
            return False
        self._failing, self._failures = None, 0
        if self.is_held:
            await self._try_to_seal()
        return True

    async def embed_waiting(
        self,
        most: int | None = None,
        *,
        goes_on: Callable[[], bool] = lambda: True,
        unread: bool = False,
    ) -> bool:
        """
        Catch up, and embed every document that has no vector. *Cancellation*: safe.

        False: *most* are fewer than there were, or it does not go on. What was let go is not read
        into memory for it, nor, *unread*, what was not read yet.

        *Raises* ``ModelError``, ``StoreError``; what was saved before stays.
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
                        debts, as_of = self._corpus.owed.oldest(WINDOW), self._cursor.revision
                    texts = await self._texts_of(debts)
                    # What is gone from the store never comes back with the feed.
                    self._corpus.owed.pay({key: debts[key] for key in debts.keys() - texts.keys()})
                    going = await self._embed_window(
                        texts, as_of, self._held.recent, goes_on, debts
                    )
            if not len(self._corpus.owed):
                self._paid, self._pace.left = (self.embedder.space, self._cursor), {}
                self._pace.refused = frozenset()
            return not len(self._corpus.owed)

    async def _embed_unread(self, most: int | None, goes_on: Callable[[], bool]) -> bool:
        """As ``embed_waiting``, of what came since all had their vectors, read page by page."""
        space = self.embedder.space
        if self._paid[0] != space:
            self._paid, self._pace.left = (space, FeedCursor()), {}
        recent, more = VectorCache[bytes](RECENT), True
        while more:
            async with self._embedding:
                changes = await self.feed.changes(replace(self._paid[1], vector=NO_VECTORS))
                if self._number not in (0, changes.repo) or (changes.missed and self._pace.left):
                    self._number, self._cursor = changes.repo, FeedCursor()
                    self._paid, self._pace.left = (space, FeedCursor()), {}
                    continue
                self._number, as_of = changes.repo, changes.cursor.revision
                texts = await self._threads.run(self._texts_in, changes)
                owed = await self.feed.without_vectors(texts)
                if most is not None and (changes.more or len(owed) > most):
                    return False
                self._drop_refused({*changes.removed, *(node.id for node in changes.nodes)})
                refused = owed & self._pace.refused
                fresh = {key: texts[key] for key in texts if key in owed and key not in refused}
                if not await self._embed_window(fresh, as_of, recent, goes_on):
                    return False
                self._pace.left |= {key: (texts[key], as_of) for key in refused}
                self._paid, more = (space, replace(changes.cursor, vector=0)), changes.more
        if not await self._embed_refused(recent, goes_on):
            return False
        self._pace.refused = frozenset()
        if not self.is_held:
            self._stood = replace(self._stood, waiting=0)
            self._view = replace(self._view, owed=0)
        return True

    async def _embed_refused(self, recent: VectorCache[bytes], goes_on: Callable[[], bool]) -> bool:
        """Try again, each alone, what was refused; False: it went on no longer."""
        # What others have made meanwhile is made.
        self._drop_refused({*self._pace.left} - await self.feed.without_vectors({*self._pace.left}))
        for key in tuple(self._pace.left):
            async with self._embedding:
                if (one := self._pace.left.pop(key, None)) is None:
                    continue
                self._pace.left[key] = one  # another one is the first next time
                if not await self._embed_window({key: one[0]}, one[1], recent, goes_on):
                    return False
                self._pace.left.pop(key, None)
        return True

    def _drop_refused(self, ids: Collection[str]) -> None:
        """Owe no more what was refused of documents or keys that are gone or said anew."""
        for key in tuple(self._pace.left):
            if not {key, owner_of_vector(key)[0]}.isdisjoint(ids):
                del self._pace.left[key]

    async def _embed_window(
        self,
        texts: Mapping[str, str],
        as_of: Revision,
        recent: VectorCache[bytes],
        goes_on: Callable[[], bool],
        debts: Mapping[str, Debt] = NOBODYS,
    ) -> bool:
        """
        Embed *texts*, as they were at the revision *as_of*, those of like lengths together; False:
        it went on no longer.
        """
        left = sorted(texts, key=lambda key: (key in self._pace.refused, len(texts[key])))
        while left:
            seconds = PORTION_S if self._traffic.is_busy else CALM_PORTION_S
            some = left[: self._pace.batch]
            portion = self._pace.fitting(some, texts, seconds, UNKNOWN_PORTION) or left[:1]
            left = left[len(portion) :]
            async with self._traffic.beside():
                done = anyio.Event()
                self._in_hand = done if self._pace.is_soon(portion, texts) else None
                try:
                    rows = await self._embedded(portion, texts, recent)
                    await self._save(rows, debts, as_of)
                    if self.is_held:
                        await self._follow()
                finally:
                    done.set()
                    self._in_hand = None
            if not goes_on():
                return False
        return True

    async def _save(
        self, rows: Mapping[str, Vector], debts: Mapping[str, Debt], as_of: Revision
    ) -> None:
        """Save what was owed, and owe it no more, unless it is owed anew since."""
        await self.feed.save_vectors(self.embedder.space, rows, as_of=as_of)
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
            began = elapsed()
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
            self._traffic.embedded += len(fresh)
            self._traffic.embedding_s += elapsed() - began
        self._pace.batch = min(BATCH, self._pace.batch * 2)
        recent.keep(known)
        return {key: known[digest] for key, digest in digests.items()}

    # ── Before an answer ─────────────────────────────────────────────────────────────

    async def _pay_for(self, query: str) -> None:
        """
        Embed what may answer *query*, for ``owed_s``, for ``FIRST_S`` beside loading a model; the
        ``LEAST`` first ones for ``HUNG_S``, so that they are found however busy the machine is.
        """
        cold = not self._pace.is_loaded
        allowed = max(FIRST_S, self.owed_s) if cold and self.owed_s else self.owed_s
        deadline, patience = (elapsed() + s for s in (allowed, HUNG_S if self.owed_s else 0))
        if self._in_hand is not None:
            with anyio.move_on_after(LOADING_S if cold else patience - elapsed()):
                await self._in_hand.wait()
            deadline = elapsed() + allowed if cold else deadline
        async with self._lock:
            as_of = self._cursor.revision
            debts = await self._threads.run(self._wanted, query)
        rows, waiting = dict[str, Vector](), iter(debts.items())
        while some_debts := dict(islice(waiting, LOOKED_AT)):
            texts = await self._texts_of(some_debts)
            left = list(texts)
            while left:
                first, loading = left[: max(0, LEAST - len(rows))], not self._pace.is_loaded
                some = self._pace.fitting(left, texts, deadline - elapsed(), 1)
                some = some or self._pace.fitting(first, texts, patience - elapsed(), 1)
                if not some:
                    break
                rows |= await self._embedded(some, texts, self._held.recent)
                deadline = elapsed() + allowed if loading else deadline
                left = left[len(some) :]
            if left:
                break
        if rows:
            await self._save(rows, debts, as_of)

    def _wanted(self, query: str) -> dict[str, Debt]:
        """Debts in the order in which they are worth paying: the newest and the best by turns."""
        newest = self._corpus.owed.newest(MOST_WANTED)
        if len(self._corpus.owed) <= LEAST:
            return newest
        best = self._corpus.owed.among(_sharing_words(self._view, index_terms(query), MOST_SHARING))
        pairs = zip_longest(newest.items(), best.items())
        return dict(debt for pair in pairs for debt in pair if debt is not None)

    async def _texts_of(self, debts: Mapping[str, Debt]) -> dict[str, str]:
        """What the vectors of *debts* are made of, in their order, without what is gone."""
        held = {key: text for key, debt in debts.items() if (text := debt.text) is not None}
        if missing := [debt for key, debt in debts.items() if key not in held]:
            owners = {debt.node_id: debt.group.nodes[debt.number] for debt in missing}
            ids = [id for id, node in owners.items() if node is None]
            nodes = [node for node in owners.values() if node is not None]
            held |= await self._threads.run(self._cut, await self._steps_of(ids), nodes)
        return {key: held[key] for key in debts if key in held}

    async def _steps_of(self, ids: Sequence[str]) -> list[Step]:
        """The steps and messages of documents, without those that are gone."""
        steps = list((await self.feed.steps(ids)).values())
        for id, (message, _) in (await self.feed.messages(ids)).items():
            if is_document(message):
                steps.append(step_of(id, message, default_actor=self.default_actor))
        return steps

    def _cut(self, steps: Iterable[Step], nodes: Iterable[Node]) -> dict[str, str]:
        """What vectors are made of, by their keys."""
        tokens = self.embedder.space.passage_tokens
        return passages_of(steps, nodes, agent_name=self.agent_name, passage_tokens=tokens)

    def _texts_in(self, changes: FeedChanges) -> dict[str, str]:
        """Likewise, of the documents of *changes*; wordings have their vectors in their nodes."""
        texts = self._cut(steps_in(changes, default_actor=self.default_actor), changes.nodes)
        return {key: text for key, text in texts.items() if wording_owner(key) == key}


def _sharing_words(view: CorpusView, terms: Iterable[str], most: int) -> list[str]:
    """Keys of at most so many documents without a vector that share *terms*, the best first."""
    terms, found = {*terms}, list[tuple[float, str]]()
    for part in (view.steps, *view.nodes.values()):
        scores = np.zeros(part.count, np.float32)
        for term in terms:
            if (read := part.postings.read(term, part.count)) is not None:
                scores[read[0]] += idf(part.count, len(read[0]))
        scores[part.vector_documents] = 0
        sharing = np.flatnonzero(scores)
        for at in sharing[np.argsort(-scores[sharing], kind="stable")[:most]].tolist():
            found.append((float(scores[at]), part.key(at)))
    return [key for _, key in sorted(found, key=lambda one: -one[0])[:most]]


def _is_before(until: float) -> bool:
    return elapsed() < until


def _digest(space: str, text: str) -> bytes:
    """Of a text's vector: a repository may move to another space."""
    return blake2b(f"{space}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()

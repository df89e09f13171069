"""
Re-embed a repository: give every text a vector of another space, then switch.

The new vectors wait in a place of their own, each with a digest of its text, so that a
second run goes on where the first one ended. Until the switch, which is one
transaction, the old space is in force.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice

import anyio

from mnemo.erasure.erase import StoredOverhaul
from mnemo.log.feed import StoredFeed
from mnemo.protocols import Embedder
from mnemo.runtime.clock import Breather, elapsed
from mnemo.runtime.tasks import Threads
from mnemo.values.feed import NO_VECTORS, FeedChanges, FeedCursor
from mnemo.values.vectors import passage_place, unit_rows

BATCH = 64
"""Texts per call of the embedder, at most: what a run that is stopped may lose."""
PAGE = 2_000
"""Steps and nodes that are read at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembeddingProgress:
    """
    How far a repository is on its way to another space.

    Attributes:
        done: Documents that have a new vector, of this run and of those before it.
        total: Documents with a vector in the old space, which a later write may add to.
        embedded: Texts that this run embedded, further passages of long documents among them.
        texts_per_s: How many of these in a second, so far.
    """

    done: int
    total: int
    embedded: int
    texts_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembeddingReport:
    """
    What moving a repository to another space did; nothing, if it was there.

    Attributes:
        before: The space that it was in; ``None`` if it had no vector yet.
        after: The space that it is in now, if it has one.
        embedded: Texts that this call embedded; earlier ones had embedded the rest.
        vectors: Vectors that are in force since the switch.
    """

    before: str | None = None
    after: str | None = None
    embedded: int = 0
    vectors: int = 0
    duration_s: float = 0.0


class Reembedding:
    """
    Moves one repository to the space of *embedder*.

    Args:
        texts: Gives the texts of the documents in a piece of the feed, by vector key.
        switching: Around the switch: keeps others from writing vectors of the old space.
        tell: Called after each batch.
    """

    def __init__(
        self,
        *,
        feed: StoredFeed,
        overhaul: StoredOverhaul,
        embedder: Embedder,
        texts: Callable[[FeedChanges], Mapping[str, str]],
        switching: Callable[[], AbstractAsyncContextManager[None]],
        tell: Callable[[ReembeddingProgress], Awaitable[None]],
    ) -> None:
        self._feed = feed
        self._overhaul = overhaul
        self._embedder = embedder
        self._texts = texts
        self._switching = switching
        self._tell = tell
        self._threads = Threads()
        self._began = elapsed()
        self._done = self._total = self._embedded = 0

    async def run(self) -> ReembeddingReport:
        """
        Embed what has no new vector yet, then switch.

        Raises:
            ModelError: The embedder failed; what was embedded before is kept for the next run.
            StoreError: The store could not be read or written. *Cancellation*: safe; the
                switch completes or does not begin.
        """
        space = self._embedder.space
        before = await self._feed.space()
        if before is None or (before.name, before.dimensions) == (space.name, space.dimensions):
            named = str(before) if before else None
            return ReembeddingReport(before=named, after=named)
        self._total = (await self._feed.counts())["vectors"]
        await self._overhaul.begin_move(space)
        cursor = await self._follow(FeedCursor(vector=NO_VECTORS))
        async with self._switching():
            cursor = await self._follow(cursor)
            with anyio.CancelScope(shield=True):
                vectors = await self._overhaul.switch(space, cursor)
        return ReembeddingReport(
            before=str(before),
            after=str(space),
            embedded=self._embedded,
            vectors=vectors,
            duration_s=elapsed() - self._began,
        )

    async def _follow(self, cursor: FeedCursor) -> FeedCursor:
        """Embed what came after *cursor*, up to what is there now; give how far it came."""
        more = True
        while more:
            changes = await self._feed.changes(cursor, limit=PAGE)
            texts, digests = await self._threads.run(self._read, changes)
            missing = await self._overhaul.unmoved(digests)
            self._done += _documents(texts.keys() - missing)
            await self._embed({key: texts[key] for key in texts if key in missing}, digests)
            cursor, more = changes.cursor, changes.more
        return cursor

    def _read(self, changes: FeedChanges) -> tuple[Mapping[str, str], dict[str, bytes]]:
        texts = self._texts(changes)
        breather, digests = Breather(), {}
        for key, text in texts.items():
            digests[key] = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            breather.breathe()
        return texts, digests

    async def _embed(self, texts: Mapping[str, str], digests: Mapping[str, bytes]) -> None:
        """Embed *texts*, those of like length together and equal ones once, and stage them."""
        space, same = self._embedder.space, dict[bytes, list[str]]()
        for key in sorted(texts, key=lambda key: len(texts[key])):
            same.setdefault(digests[key], []).append(key)
        left = iter(same.items())
        while batch := dict(islice(left, BATCH)):
            said = [texts[keys[0]] for keys in batch.values()]
            reply = await self._embedder.embed(said, kind="document")
            rows = unit_rows(reply, rows=len(batch), dimensions=space.dimensions)
            staged = {
                key: (digest, row)
                for (digest, keys), row in zip(batch.items(), rows, strict=True)
                for key in keys
            }
            await self._overhaul.stage(space, staged)
            self._embedded += len(staged)
            self._done += _documents(staged)
            await self._tell(self._progress())

    def _progress(self) -> ReembeddingProgress:
        return ReembeddingProgress(
            done=self._done,
            total=max(self._total, self._done),
            embedded=self._embedded,
            texts_per_s=self._embedded / max(elapsed() - self._began, 1e-9),
        )


def _documents(keys: Iterable[str]) -> int:
    return sum(not passage_place(key)[1] for key in keys)

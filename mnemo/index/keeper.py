"""What an index has read, kept in its store as segments, and taken up again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mnemo.errors import StoreError
from mnemo.index import at_rest
from mnemo.index.held import Held
from mnemo.index.large import Sealed
from mnemo.index.segments import (
    CHAINS,
    Chain,
    Kept,
    StoredSegments,
    reading,
    unpacked,
)
from mnemo.runtime.tasks import Places, Threads, from_thread
from mnemo.runtime.traffic import traffic
from mnemo.values.feed import FeedCursor

log = logging.getLogger("mnemo")


@dataclass(frozen=True, slots=True)
class Keeper:
    """
    Keeps the segments of one repository.

    Attributes:
        made_by: Settings by which texts become columns.
        space: The name of the embedding space, by which vectors are made.
    """

    segments: StoredSegments
    made_by: dict[str, Any]
    space: str

    @property
    def _reading(self) -> str:
        return reading(**self.made_by)

    @property
    def _large_reading(self) -> str:
        return reading(**self.made_by, space=self.space)

    # ── Taken up ─────────────────────────────────────────────────────────────────────

    async def take_up(self, held: Held, threads: Threads) -> FeedCursor:
        """
        Have *held*, which is new, hold what is kept, and give up to where of the feed that is; the
        vectors of what is not in large segments are not in it.

        *Raises* ``StoreError``. *Cancellation*: begin anew.
        """
        rest = await self.segments.read()
        useless: dict[Chain, int] = {}
        large = await self._opened(rest.large, held, threads)
        if len(large) < len(rest.large):
            if not await self._are_listed(rest.large):
                return await self.take_up(held, threads)
            useless["steps"] = rest.large[len(large)].no
        if large:
            await threads.run(self._set, held, large, rest.large[: len(large)])
            held.tongues.extend(large[-1].head.tongues)
        ends = [one.until for one in held.listed[-1:]]
        for chain, parts in rest.small.items():
            if chain in useless:
                continue
            after = held.end if chain == "steps" else FeedCursor()
            found = [*parts.values()]
            reading = partial(at_rest.take_up, held.corpus, found, rest.nodes, self._reading, after)
            head, used = await threads.run(reading)
            if head is not None:
                ends.append(head.until)
                held.tongues.extend(head.tongues)
            if used < len(parts):
                useless[chain] = [*parts][used]
        held.sealed = {chain: held.corpus.count_of(chain) for chain in CHAINS}
        for chain, no in useless.items():
            await self.drop(chain, no)
        if not ends:
            return FeedCursor()
        held.unseen, held.by_key = True, bool(large)
        return at_rest.reached(ends, rest.removal, rest.vector if large else 0)

    async def drop(self, chain: Chain, first: int) -> None:
        """Drop what is of no use, if the store can be written."""
        try:
            await self.segments.drop(chain, first)
        except StoreError as error:
            log.info("what is of no use stays in the store: %s", error)

    async def _opened(self, listed: Sequence[Kept], held: Held, threads: Threads) -> list[Sealed]:
        """Large segments as far as they can be used; those that are open already stay open."""
        known = {one.digest: sealed for one, sealed in zip(held.listed, held.large, strict=True)}
        opened: list[Sealed] = []
        for one in listed:
            sealed = known.get(one.digest)
            if sealed is None:
                try:
                    sealed = await threads.run(self._sealed, one)
                except ValueError as error:
                    # Others may have rewritten it since it was listed.
                    if await self._are_listed(listed):
                        log.warning("a part of the index is read anew: %s", error)
                    break
                after = opened[-1].head.until if opened else FeedCursor()
                if sealed.head.reading != self._large_reading or sealed.head.after != after:
                    break
                sealed = await threads.run(sealed.without, [*held.gone])
            opened.append(sealed)
        return opened

    def _sealed(self, one: Kept, *, at_once: bool = False) -> Sealed:
        """*Raises* ``ValueError``: it is damaged, or gone."""
        # In the loop, from here: what is erased meanwhile is not written to a file.
        read = partial(from_thread, self.segments.bytes_of, one.no)
        mapped = self.segments.mapped
        segment = mapped(one.digest or "", read) if mapped else read()
        head, batches = unpacked(segment, at_once=at_once or mapped is None)
        return Sealed(head, batches["steps"])

    async def mend(self, threads: Threads) -> None:
        """Discard the files that are damaged. *Raises* ``StoreError``. *Cancellation*: safe."""
        for one in _large(await self.segments.kept("steps")):
            try:
                await threads.run(partial(self._sealed, one, at_once=True))
            except ValueError as error:
                log.warning("a file of the index is made anew: %s", error)
                if self.segments.discard is not None:
                    self.segments.discard(one.digest or "")

    async def _are_listed(self, large: Sequence[Kept]) -> bool:
        return _large(await self.segments.kept("steps")) == (*large,)

    def _set(self, held: Held, large: Sequence[Sealed], listed: Sequence[Kept]) -> None:
        at_rest.shed(held.corpus, large, held.alone(large), large[-1].head.until)
        held.large, held.listed = (*large,), (*listed,)
        held.sealed.pop("steps", None)

    # ── Kept ─────────────────────────────────────────────────────────────────────────

    async def keep(
        self,
        held: Held,
        at: Callable[[], FeedCursor | None],
        repo: int,
        lock: Places,
        threads: Threads,
    ) -> bool:
        """
        Keep what *held*, which has come to where *at* says, has read and is not kept, if it is
        enough, in portions beside writes; no more once that is ``None``. False: others have kept
        what it holds in another way, it is to be made anew.

        *Raises* ``StoreError``. *Cancellation*: safe.
        """
        known = {"repo": repo, "tongues": tuple(held.tongues)}

        def small(
            chain: Chain, kept: Sequence[Kept], cursor: FeedCursor
        ) -> tuple[int, at_rest.Made | None]:
            return at_rest.segment(held.corpus, chain, kept, cursor, reading=self._reading, **known)

        async def portion(work: Callable[..., Awaitable[bool]]) -> bool | None:
            async with traffic().beside(), lock:
                return None if (cursor := at()) is None else await work(held, cursor, threads)

        follows = await portion(self.follow)
        while follows and await portion(partial(self._keep_one, repo=repo)):
            pass
        if not (follows and (follows := await portion(self.follow))):
            return follows is None
        for chain in CHAINS:
            while held.is_enough(chain):
                async with traffic().beside():
                    kept = await self.segments.kept(chain)
                    async with lock:
                        if (cursor := at()) is None:
                            return True
                        if chain == "steps" and _large(kept) != held.listed:
                            break  # What is held lies behind others: see there first.
                        new, made = await threads.run(small, chain, kept, cursor)
                    held.sealed[chain] = held.corpus.count_of(chain) - new
                    if made is None or not await self.segments.put(*made):
                        break
        return True

    async def keep_large(self, held: Held, cursor: FeedCursor, repo: int, threads: Threads) -> bool:
        """
        Make large segments of what *held*, of which nobody reads on meanwhile, has in memory, as
        long as there is enough for one. As of ``keep``.
        """
        if not await self.follow(held, cursor, threads):
            return False
        while await self._keep_one(held, cursor, threads, repo=repo):
            pass
        return await self.follow(held, cursor, threads)

    async def _keep_one(
        self, held: Held, cursor: FeedCursor, threads: Threads, *, repo: int
    ) -> bool:
        """Make a large segment of what follows on those that are kept, if there is enough."""
        stay = _large(await self.segments.kept("steps"))
        if not at_rest.lies_between(held.end, _end(stay), cursor):
            return False  # What *held* holds in them is in memory no more.
        known = {"repo": repo, "tongues": tuple(held.tongues), "reading": self._large_reading}
        large = partial(at_rest.large_segment, held.corpus, stay, cursor, held.refused, **known)
        made = await threads.run(large)
        return made is not None and await self.segments.put(*made, large=True)

    async def follow(self, held: Held, cursor: FeedCursor, threads: Threads) -> bool:
        """
        Hold the large segments as they are now: rewritten without what was erased, or more of them.
        False: what *held* holds does not follow on them.

        *Raises* ``StoreError``. *Cancellation*: safe.
        """
        listed = _large(await self.segments.kept("steps"))
        if listed == held.listed:
            return True
        if not at_rest.lies_between(held.end, _end(listed), cursor):
            return False
        large = await self._opened(listed, held, threads)
        if len(large) < len(listed):
            return False
        await threads.run(self._set, held, large, listed)
        return True


def _end(large: Sequence[Kept]) -> FeedCursor:
    return large[-1].until if large else FeedCursor()


def _large(kept: Iterable[Kept]) -> tuple[Kept, ...]:
    return tuple(one for one in kept if one.digest)

"""What an index has read, kept in its store as segments, and taken up again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mnemo.errors import StoreError
from mnemo.index import at_rest
from mnemo.index.held import Held
from mnemo.index.large import LARGE_FROM, Segment, without_replaced
from mnemo.index.segment_rows import Kept
from mnemo.index.segments import CHAINS, Chain, reading, unpacked
from mnemo.index.stored import StoredSegments
from mnemo.runtime.tasks import Places, Threads, from_thread
from mnemo.runtime.traffic import traffic
from mnemo.values.feed import FeedCursor
from mnemo.values.graph import Node

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

    async def take_up(self, held: Held, threads: Threads, *, replaces: bool) -> FeedCursor:
        """
        Have *held*, which is new, hold what is kept, and give up to where of the feed that is; the
        vectors of what is not in large segments are not in it. What is of no use goes; what is of
        another reading only where *replaces*.

        *Raises* ``StoreError``. *Cancellation*: begin anew.
        """
        rest = await self.segments.read()
        useless: dict[Chain, int] = {}
        for chain, listed in rest.large.items():
            large = await self._opened(chain, listed, held, threads)
            if len(large) < len(listed):
                if not await self._are_listed(chain, listed):
                    return await self.take_up(held, threads, replaces=replaces)
                useless[chain] = listed[len(large)].no
            if large:
                set = partial(self._set, held, chain, large, listed[: len(large)], rest.nodes)
                await threads.run(set)
        ends = [held.end(chain) for chain in CHAINS if held.listed[chain]]
        for chain, parts in rest.small.items():
            if chain in useless:
                continue
            found = [*parts.values()]
            reading = partial(at_rest.take_up, held.corpus, found, rest.nodes, self._reading)
            head, used, is_foreign = await threads.run(reading, held.end(chain))
            held.is_foreign |= is_foreign
            if head is not None:
                ends.append(head.until)
                held.tongues.extend(head.tongues)
            if used < len(parts):
                useless[chain] = [*parts][used]
        await threads.run(held.hide_replaced)
        held.sealed = {chain: held.corpus.count_of(chain) for chain in CHAINS}
        for chain, no in useless.items():
            if replaces or not held.is_foreign:
                await self.drop(chain, no)
        if not ends:
            return FeedCursor()
        held.unseen, held.by_key = True, any(held.large.values())
        return at_rest.reached(ends, rest.removal, rest.vector if held.by_key else 0)

    async def drop(self, chain: Chain, first: int) -> None:
        """Drop what is of no use, if the store can be written."""
        try:
            await self.segments.drop(chain, first)
        except StoreError as error:
            log.info("what is of no use stays in the store: %s", error)

    async def _opened(
        self, chain: Chain, listed: Sequence[Kept], held: Held, threads: Threads
    ) -> list[Segment]:
        """Large segments as far as they can be used; those that are open already stay open."""
        ours = zip(held.listed[chain], held.large[chain], strict=True)
        known = {one.digest: segment for one, segment in ours}
        opened: list[Segment] = []
        for one in listed:
            segment = known.get(one.digest)
            if segment is None:
                try:
                    segment = await threads.run(self._segment, chain, one)
                except ValueError as error:
                    # Others may have rewritten it since it was listed.
                    if await self._are_listed(chain, listed):
                        log.warning("a part of the index is read anew: %s", error)
                    break
                after = opened[-1].head.until if opened else FeedCursor()
                is_foreign = segment.head.reading != self._large_reading
                held.is_foreign |= is_foreign
                if is_foreign or segment.head.after != after:
                    break
                if held.gone:
                    segment = await threads.run(segment.without, [*held.gone])
            opened.append(segment)
        return opened

    def _segment(self, chain: Chain, one: Kept, *, at_once: bool = False) -> Segment:
        """*Raises* ``ValueError``: it is damaged, or gone."""
        # In the loop, from here: what is erased meanwhile is not written to a file.
        read = partial(from_thread, self.segments.bytes_of, chain, one.no)
        mapped = self.segments.mapped
        segment = mapped(one.digest or "", read) if mapped else read()
        return Segment.of(*unpacked(segment, at_once=at_once or mapped is None))

    async def mend(self, threads: Threads) -> None:
        """Discard the files that are damaged. *Raises* ``StoreError``. *Cancellation*: safe."""
        for chain in CHAINS:
            for one in _large(await self.segments.kept(chain)):
                try:
                    await threads.run(partial(self._segment, chain, one, at_once=True))
                except ValueError as error:
                    log.warning("a file of the index is made anew: %s", error)
                    if self.segments.discard is not None:
                        self.segments.discard(one.digest or "")

    async def _are_listed(self, chain: Chain, large: Sequence[Kept]) -> bool:
        return _large(await self.segments.kept(chain)) == (*large,)

    def _set(
        self,
        held: Held,
        chain: Chain,
        large: Sequence[Segment],
        listed: Sequence[Kept],
        nodes: Mapping[str, Node] | None = None,
    ) -> None:
        """Hold *large* segments; with *nodes*, which are there, what of them is in memory, too."""
        if chain == "nodes":
            large = without_replaced(large)
        held.large[chain], held.listed[chain] = (*large,), (*listed,)
        held.tongues.extend(large[-1].head.tongues)
        if nodes is not None:
            at_rest.restore_others(held.corpus, large, nodes)
        at_rest.shed(held, chain, large[-1].head.until)
        held.hide_replaced()
        held.sealed.pop(chain, None)

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
        while follows and await portion(partial(self._keep_one, repo=repo, least=LARGE_FROM)):
            follows = await portion(self.follow)
        if not follows:
            return follows is None
        for chain in CHAINS:
            while held.is_enough(chain):
                async with traffic().beside():
                    kept = await self.segments.kept(chain)
                    async with lock:
                        if (cursor := at()) is None:
                            return True
                        if _large(kept) != held.listed[chain]:
                            break  # What is held lies behind others: see there first.
                        new, made = await threads.run(small, chain, kept, cursor)
                    held.sealed[chain] = held.corpus.count_of(chain) - new
                    if made is None or not await self.segments.put(*made):
                        break
        return True

    async def keep_large(
        self, held: Held, cursor: FeedCursor, repo: int, threads: Threads, least: int
    ) -> bool:
        """
        Make large segments of what *held*, of which nobody reads on meanwhile, has in memory, as
        long as *least* documents wait for one. As of ``keep``.
        """
        follows = await self.follow(held, cursor, threads)
        while follows and await self._keep_one(held, cursor, threads, repo=repo, least=least):
            follows = await self.follow(held, cursor, threads)
        return follows

    async def _keep_one(
        self, held: Held, cursor: FeedCursor, threads: Threads, *, repo: int, least: int
    ) -> bool:
        """Make a large segment of what follows on those that are held, if there is enough."""
        known: dict[str, Any] = {"repo": repo, "reading": self._large_reading, "least": least}
        for chain in CHAINS:
            listed, known["tongues"] = held.listed[chain], tuple(held.tongues)
            large = partial(at_rest.large_segment, held, chain, cursor, **known)
            if (made := await threads.run(large)) is not None:
                return await self.segments.put(*made, large=listed)
        return False

    async def follow(self, held: Held, cursor: FeedCursor, threads: Threads) -> bool:
        """
        Hold the large segments as they are now: rewritten without what was erased, or more of them.
        False: what *held* holds does not follow on them.

        *Raises* ``StoreError``. *Cancellation*: safe.
        """
        # One after the other: each sheds what it follows.
        done = [await self._follow(held, chain, cursor, threads) for chain in CHAINS]
        return all(done)

    async def _follow(self, held: Held, chain: Chain, cursor: FeedCursor, threads: Threads) -> bool:
        listed = _large(await self.segments.kept(chain))
        if listed == held.listed[chain]:
            return True
        if not listed or not at_rest.lies_between(chain, held.end(chain), _end(listed), cursor):
            return False
        large = await self._opened(chain, listed, held, threads)
        if len(large) < len(listed):
            return False
        await threads.run(self._set, held, chain, large, listed)
        return True


def _end(large: Sequence[Kept]) -> FeedCursor:
    return large[-1].until if large else FeedCursor()


def _large(kept: Iterable[Kept]) -> tuple[Kept, ...]:
    return tuple(one for one in kept if one.digest)

"""Segments as rows of the store, in which they are whole or not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter

from mnemo.index.erased import left_since, without_left
from mnemo.index.segment_rows import (
    DROP_FROM,
    LEFT,
    Kept,
    Row,
    bytes_of,
    kept_of,
    put_segment,
)
from mnemo.index.segments import CHAINS, Buffer, Chain, Head
from mnemo.store.engine import OfRepository, compute
from mnemo.store.rows import repo_row
from mnemo.store.tables import NODES
from mnemo.store.tx import Tx
from mnemo.values.feed import FeedCursor
from mnemo.values.graph import Node


@dataclass(frozen=True, slots=True)
class AtRest:
    """
    What is kept of a repository at one moment.

    Attributes:
        small: By chain and number the bytes of each segment that is not large.
        large: The others of each chain, which come first in it.
        nodes: The nodes whose documents are held in memory, if any segment of nodes is kept.
        removal: The number of the last removal, with which ids have left them.
        vector: The number of the last vector.
    """

    small: dict[Chain, dict[int, bytes]]
    large: dict[Chain, list[Kept]]
    nodes: dict[str, Node]
    removal: int
    vector: int


_PARTS = """
SELECT no, bytes FROM segments WHERE repo = ? AND chain = ? AND digest IS NULL ORDER BY no, part
"""
_LAST_VECTOR = "SELECT coalesce(max(seq), 0) FROM vectors WHERE repo = ?"
_NODES = """
SELECT id, type, body, NULL FROM nodes
WHERE repo = :repo AND revision > :after AND type NOT IN ('episodic', 'source')
UNION ALL SELECT id, type, body, NULL FROM nodes
WHERE repo = :repo AND type IN ('subgoal', 'tag', 'intent') AND +revision <= :after
"""
# The plus: by type, of which there are few, not by revision.
# Whoever lets something leave recall holds the repository's row as well, and then rewrites.
_HOLD = "UPDATE repos SET revision = revision WHERE no = ?"


class StoredSegments(OfRepository):
    """
    The segments of one repository, in order.

    *mapped* gives large ones as files by their digest, and what reads the bytes of one that is
    not there yet; ``None``: they are held in memory. *discard* has one made anew.
    """

    mapped: Callable[[str, Callable[[], bytes]], Buffer] | None = None
    discard: Callable[[str], None] | None = None

    async def read(self) -> AtRest:
        """What is kept; damaged rows are left out. *Cancellation*: safe."""
        return await self._engine.reading(partial(_read, repo_id=self._repo_id))

    async def kept(self, chain: Chain) -> list[Kept]:
        """What there is, without the bytes; damaged rows are left out. *Cancellation*: safe."""
        return await self._engine.reading(
            lambda tx: kept_of(tx, repo_row(tx, self._repo_id)[0], chain)
        )

    async def bytes_of(self, chain: Chain, no: int) -> bytes:
        """Those of segment *no*; none: it is gone. *Cancellation*: safe."""
        return await self._engine.reading(
            lambda tx: bytes_of(tx, repo_row(tx, self._repo_id)[0], chain, no)
        )

    async def put(
        self,
        head: Head,
        segment: bytes,
        stay: Sequence[Kept],
        *,
        large: Sequence[Kept] | None = None,
    ) -> bool:
        """
        Put a segment behind those that *stay*, in the place of what follows them; a large one, if
        those of its chain are *large*. What has left recall since it was made is not in it then.
        ``False``: it holds less than *stay*, unless it is large; others stand there now, or it is
        to be made anew without what has left. *Cancellation*: completes.
        """
        row = await compute(partial(Row.of, head, segment, is_large=large is not None))
        # Behind one that is large there may be others.
        known = [*(large if large is not None else stay)]
        return await self._writing(partial(_put, row=row, stay=[*stay], known=known))

    async def drop(self, chain: Chain, first: int) -> None:
        """Drop those from number *first* on. *Cancellation*: completes."""
        await self._writing(lambda tx, repo: bool(tx.run(DROP_FROM, (repo, chain, first))))

    async def _writing(self, work: Callable[[Tx, int], bool]) -> bool:
        def held(tx: Tx) -> bool:
            repo = repo_row(tx, self._repo_id)[0]
            tx.run(_HOLD, (repo,))
            return bool(repo) and work(tx, repo)

        return await self._engine.writing(held, locks=[("segments", self._repo_id)])


def _read(tx: Tx, repo_id: str) -> AtRest:
    repo = repo_row(tx, repo_id)[0]
    found: dict[Chain, dict[int, bytes]] = {}
    for chain in CHAINS:
        parts = groupby(tx.run(_PARTS, (repo, chain)).fetchall(), itemgetter(0))
        # What is no part leaves a gap, which the checksum tells.
        found[chain] = {
            no: b"".join(part for _, part in of_one if isinstance(part, bytes))
            for no, of_one in parts
        }
    large = {chain: [one for one in kept_of(tx, repo, chain) if one.digest] for chain in CHAINS}
    after = large["nodes"][-1].until.revision if large["nodes"] else 0
    known = found["nodes"] or after
    nodes = NODES.whole.intact(tx.run(_NODES, {"repo": repo, "after": after})) if known else ()
    (removal,) = tx.run(LEFT, {"repo": repo}).fetchone()
    (vector,) = tx.run(_LAST_VECTOR, (repo,)).fetchone()
    return AtRest(found, large, {node.id: node for node in nodes}, removal, vector)


def _put(tx: Tx, repo: int, *, row: Row, stay: Sequence[Kept], known: Sequence[Kept]) -> bool:
    head = row.head
    kept, gone = kept_of(tx, repo, head.chain), left_since(tx, head)
    there = kept[: len(known)]
    # Without what is gone they are others, and end where they did.
    is_other = (_ends(there) != _ends(known)) if gone else (there != known)
    if repo != head.repo or gone is None or is_other:
        return False
    if any(one.digest for one in kept[len(known) :]):
        return False
    ends = {"steps": head.until.step, "messages": head.until.message}
    if any(tx.dialect.last_number(tx, table, repo) < end for table, end in ends.items()):
        return False  # An older copy took the store's place.
    if not row.digest and kept and not _is_behind(kept[-1].until, head.until):
        return False
    if (left := without_left(tx, row, gone)) is None:
        return False
    no = kept[-1].no + 1 if kept else 1
    tx.run(DROP_FROM, (repo, head.chain, stay[-1].no + 1 if stay else 0))
    put_segment(tx, no, left)
    return True


def _ends(kept: Sequence[Kept]) -> list[tuple[int, FeedCursor]]:
    return [(one.no, one.until) for one in kept]


def _is_behind(one: FeedCursor, other: FeedCursor) -> bool:
    one, other = (replace(cursor, removal=0, vector=0) for cursor in (one, other))
    return one != other and all(a <= b for a, b in zip(astuple(one), astuple(other), strict=True))

"""Segments as rows of the store, in which they are whole or not there."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from mnemo.index.segments import CHAINS, Batches, Buffer, Chain, Head, digest_of, unpacked
from mnemo.runtime.clock import breathed
from mnemo.store.engine import OfRepository, compute
from mnemo.store.rows import Rows, chunks, repo_row
from mnemo.store.tables import NODES
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_object
from mnemo.values.feed import FeedCursor
from mnemo.values.graph import Node

MOST_BYTES = 1_000_000
"""Of a row."""


@dataclass(frozen=True, slots=True)
class Kept:
    """
    A segment that the store holds: its number, how many documents, up to which cursor, and of a
    large one the digest, by which a file is named.
    """

    no: int
    documents: int
    until: FeedCursor
    digest: str | None = None


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


_KEPT = """
SELECT no, documents, until, digest FROM segments
WHERE repo = ? AND chain = ? AND part = 0 ORDER BY no
"""
_PARTS = """
SELECT no, bytes FROM segments WHERE repo = ? AND chain = ? AND digest IS NULL ORDER BY no, part
"""
_BYTES = "SELECT bytes FROM segments WHERE repo = ? AND chain = ? AND no = ? ORDER BY part"
_LAST_VECTOR = "SELECT coalesce(max(seq), 0) FROM vectors WHERE repo = ?"
_NODES = """
SELECT id, type, body, NULL FROM nodes
WHERE repo = :repo AND revision > :after AND type NOT IN ('episodic', 'source')
UNION ALL SELECT id, type, body, NULL FROM nodes
WHERE repo = :repo AND type IN ('subgoal', 'tag', 'intent') AND +revision <= :after
"""
# The plus: by type, of which there are few, not by revision.
_COLUMNS = ("repo", "chain", "no", "part", "documents", "until", "named", "digest", "bytes")
_IDS = ("ids", "behind", "origins")
DROP_FROM = "DELETE FROM segments WHERE repo = ? AND chain = ? AND no >= ?"
# Whoever lets something leave recall holds the repository's row as well, and then rewrites.
_HOLD = "UPDATE repos SET revision = revision WHERE no = ?"
_LAST_REMOVAL = "SELECT coalesce(max(seq), 0) FROM removals WHERE repo = ?"
# A row of its own says behind which removal messages went that had only expired (``erased``).
_LEFT = """
SELECT coalesce((SELECT no FROM segments WHERE repo = :repo AND chain = 'expired'),
                (SELECT max(seq) FROM removals WHERE repo = :repo), 0)
"""
_ROWS = Rows("segments", "i i s s?", lambda row: Kept(row[0], row[1], _cursor(row[2]), row[3]))


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
            lambda tx: _kept(tx, repo_row(tx, self._repo_id)[0], chain)
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
        those of its chain are *large*. ``False``: it holds less than that, unless it is large;
        others stand there now, or something left recall. *Cancellation*: completes.
        """
        is_large = large is not None
        named, digest = await compute(
            lambda: (names_in(unpacked(segment)[1]), digest_of(segment) if is_large else None)
        )
        # Behind one that is large there may be others.
        known = [*(large if large is not None else stay)]
        put = partial(_put, head=head, segment=segment, named=named, digest=digest)
        return await self._writing(partial(put, stay=[*stay], known=known))

    async def drop(self, chain: Chain, first: int) -> None:
        """Drop those from number *first* on. *Cancellation*: completes."""
        await self._writing(lambda tx, repo: bool(tx.run(DROP_FROM, (repo, chain, first))))

    async def _writing(self, work: Callable[[Tx, int], bool]) -> bool:
        def held(tx: Tx) -> bool:
            repo = repo_row(tx, self._repo_id)[0]
            tx.run(_HOLD, (repo,))
            return bool(repo) and work(tx, repo)

        return await self._engine.writing(held, locks=[("segments", self._repo_id)])


def bytes_of(tx: Tx, repo: int, chain: Chain, no: int) -> bytes:
    """Those of one segment; none: it is gone."""
    rows = tx.run(_BYTES, (repo, chain, no)).fetchall()
    return b"".join(part for (part,) in rows if isinstance(part, bytes))


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
    large = {chain: [one for one in _kept(tx, repo, chain) if one.digest] for chain in CHAINS}
    after = large["nodes"][-1].until.revision if large["nodes"] else 0
    known = found["nodes"] or after
    nodes = NODES.whole.intact(tx.run(_NODES, {"repo": repo, "after": after})) if known else ()
    (removal,) = tx.run(_LEFT, {"repo": repo}).fetchone()
    (vector,) = tx.run(_LAST_VECTOR, (repo,)).fetchone()
    return AtRest(found, large, {node.id: node for node in nodes}, removal, vector)


def _kept(tx: Tx, repo: int, chain: Chain) -> list[Kept]:
    return _ROWS.intact(tx.run(_KEPT, (repo, chain)))


def _put(
    tx: Tx,
    repo: int,
    *,
    head: Head,
    segment: bytes,
    named: bytes,
    digest: str | None,
    stay: Sequence[Kept],
    known: Sequence[Kept],
) -> bool:
    kept = _kept(tx, repo, head.chain)
    (removal,) = tx.run(_LAST_REMOVAL, (repo,)).fetchone()
    if kept[: len(known)] != known or (repo, removal) != (head.repo, head.until.removal):
        return False
    if any(one.digest for one in kept[len(known) :]):
        return False
    ends = {"steps": head.until.step, "messages": head.until.message}
    if any(tx.dialect.last_number(tx, table, repo) < end for table, end in ends.items()):
        return False  # An older copy took the store's place.
    if not digest and kept and not _is_behind(kept[-1].until, head.until):
        return False
    no = kept[-1].no + 1 if kept else 1
    tx.run(DROP_FROM, (repo, head.chain, stay[-1].no + 1 if stay else 0))
    put_segment(tx, repo, no, head, segment, named, digest)
    return True


def put_segment(
    tx: Tx, repo: int, no: int, head: Head, segment: bytes, named: bytes, digest: str | None
) -> None:
    """Insert the rows of one; *named*: ``names_in`` it; *digest*: of a large one."""
    until = json.dumps(asdict(head.until))
    of_first, of_others = (head.documents, until, named), (0, until, b"")
    rows = [
        (repo, head.chain, no, part, *(of_others if part else of_first), digest, piece)
        for part, piece in enumerate(chunks(segment, MOST_BYTES))
    ]
    tx.insert("segments", _COLUMNS, rows)


def marks_of(names: Iterable[str]) -> NDArray[np.uint32]:
    """What names are looked for by, ascending; others may have the same."""
    sums = (zlib.crc32(name.encode("utf-8", "surrogatepass")) for name in breathed(names))
    return np.unique(np.fromiter(sums, np.uint32))


def names_in(batches: Batches) -> bytes:
    """The marks of all ids in *batches*: of documents, of what is behind them or repeats them."""
    names = set[str]()
    for batch in batches.values():
        names.update(*(batch.names.get(kind, ()) for kind in _IDS))
        names.update(*(repeat[:2] for repeat in batch.repeats))
    return marks_of(names).astype("<u4").tobytes()


def _is_behind(one: FeedCursor, other: FeedCursor) -> bool:
    one, other = (replace(cursor, removal=0, vector=0) for cursor in (one, other))
    return one != other and all(a <= b for a, b in zip(astuple(one), astuple(other), strict=True))


def _cursor(text: str) -> FeedCursor:
    return FeedCursor(**decode_object(text))

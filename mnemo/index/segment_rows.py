"""The rows of segments: which there are, their bytes, and by what names are looked for in them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from mnemo.index.segments import Batches, Chain, Head, digest_of, unpacked
from mnemo.runtime.clock import breathed
from mnemo.store.rows import Rows, chunks
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_object
from mnemo.values.feed import FeedCursor

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
class Row:
    """A segment as it is put into the store: with the marks of its names, a large one's digest."""

    head: Head
    segment: bytes
    named: bytes
    digest: str | None

    @classmethod
    def of(
        cls, head: Head, segment: bytes, *, is_large: bool, batches: Batches | None = None
    ) -> Row:
        """The row of *segment*, of *batches*."""
        named = names_in(unpacked(segment)[1] if batches is None else batches)
        return cls(head, segment, named, digest_of(segment) if is_large else None)


_KEPT = """
SELECT no, documents, until, digest FROM segments
WHERE repo = ? AND chain = ? AND part = 0 ORDER BY no
"""
_BYTES = "SELECT bytes FROM segments WHERE repo = ? AND chain = ? AND no = ? ORDER BY part"
DROP_FROM = "DELETE FROM segments WHERE repo = ? AND chain = ? AND no >= ?"
# A row of its own says behind which removal messages went that had only expired (``erased``).
LEFT = """
SELECT coalesce((SELECT no FROM segments WHERE repo = :repo AND chain = 'expired'),
                (SELECT max(seq) FROM removals WHERE repo = :repo), 0)
"""
_COLUMNS = ("repo", "chain", "no", "part", "documents", "until", "named", "digest", "bytes")
_IDS = ("ids", "behind", "origins")
_ROWS = Rows("segments", "i i s s?", lambda row: Kept(row[0], row[1], _cursor(row[2]), row[3]))


def bytes_of(tx: Tx, repo: int, chain: Chain, no: int) -> bytes:
    """Those of one segment; none: it is gone."""
    rows = tx.run(_BYTES, (repo, chain, no)).fetchall()
    return b"".join(part for (part,) in rows if isinstance(part, bytes))


def kept_of(tx: Tx, repo: int, chain: Chain) -> list[Kept]:
    return _ROWS.intact(tx.run(_KEPT, (repo, chain)))


def put_segment(tx: Tx, no: int, row: Row) -> None:
    """Insert the rows of one."""
    head, until = row.head, json.dumps(asdict(row.head.until))
    of_first, of_others = (head.documents, until, row.named), (0, until, b"")
    rows = [
        (head.repo, head.chain, no, part, *(of_others if part else of_first), row.digest, piece)
        for part, piece in enumerate(chunks(row.segment, MOST_BYTES))
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


def _cursor(text: str) -> FeedCursor:
    return FeedCursor(**decode_object(text))

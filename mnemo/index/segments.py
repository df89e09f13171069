"""
Columns at rest: what reading and tokenising texts gave, kept in the store.

A *segment* holds some documents of one repository, in the order of their numbers: columns, terms
and names, no vectors and no nodes themselves. Those of steps and messages are one *chain*, each
segment going on where the one before ends, those of nodes another. It is made of rows and can be
made anew from them; whatever leaves recall takes all segments of its repository along,
so that none of them holds a word of it (``log.feed.leave_recall``).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from mnemo.english.words import ANALYSER
from mnemo.store.codec import decode_object
from mnemo.store.engine import OfRepository
from mnemo.store.rows import UNDECODABLE, Rows, chunks, repo_row
from mnemo.store.tables import NODES
from mnemo.store.tx import Tx
from mnemo.values.feed import FeedCursor
from mnemo.values.graph import Node

SEALED_FROM = 64
"""Documents that wait in memory alone, at most, before they are kept (scale.md section 3)."""
MOST_DOCUMENTS = 4_096
"""Documents of a segment, about: so many are packed in a tenth of a second, while recalls wait."""
MERGED = 8
"""Segments of one size that become one: a document is written again once per eightfold size."""
MOST_BYTES = 1_000_000
"""Of a row."""


# ── A segment as bytes ────────────────────────────────────────────────────────────────


_MAGIC = b"mnemoseg"
_HEAD = struct.Struct("<8sII")
_ALIGNED = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """
    Documents of one type without their vectors.

    Attributes:
        columns: Name → a value for each document, but for ``terms``: the numbers of the terms of
            all documents, end to end. Numbers of names count within *names*.
        names: Kind of name → the names; ``ids`` has one for each document.
        repeats: Steps that are found as a message's document: id, message's id, session, ordinal.
    """

    columns: Mapping[str, NDArray[Any]]
    names: Mapping[str, Sequence[str]]
    repeats: Sequence[Sequence[Any]] = ()

    def __len__(self) -> int:
        return len(self.names["ids"])


Batches: TypeAlias = Mapping[str, Batch]
"""By type; those of steps and messages are ``steps``."""
Chain: TypeAlias = Literal["steps", "nodes"]
CHAINS: tuple[Chain, ...] = get_args(Chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """
    What a segment says of itself.

    Attributes:
        repo: The store's number of the repository.
        chain: Of steps and messages, or of nodes.
        after, until: The feed's cursors behind and up to which it holds what was read.
        reading: By what its columns were made; others are of no use (``reading``).
        documents: How many it holds.
        tongues: Of the last messages, whether they are in another language than the embedder's.
    """

    repo: int
    chain: Chain
    after: FeedCursor
    until: FeedCursor
    reading: str
    documents: int
    tongues: tuple[bool, ...] = ()


def reading(**settings: object) -> str:
    """Names what decides how a text becomes columns: this code, and *settings*."""
    return json.dumps([ANALYSER, settings], sort_keys=True)


def packed(head: Head, batches: Batches) -> bytes:
    """A segment as bytes: checksum, what is said in JSON, arrays, little-endian and aligned."""
    body, parts = bytearray(), dict[str, Any]()
    for kind, batch in batches.items():
        arrays = {}
        for name, array in batch.columns.items():
            dtype = array.dtype.newbyteorder("<").str
            arrays[name] = dtype, len(array), len(body)
            body += array.astype(dtype, copy=False).tobytes()
            body += bytes(-len(body) % _ALIGNED)
        parts[kind] = {"arrays": arrays, "names": batch.names, "repeats": batch.repeats}
    text = json.dumps([asdict(head), parts], ensure_ascii=False)
    said = text.encode("utf-8", "surrogatepass")
    said += b" " * (-(_HEAD.size + len(said)) % _ALIGNED)
    checksum = zlib.crc32(body, zlib.crc32(said))
    return b"".join((_HEAD.pack(_MAGIC, checksum, len(said)), said, body))


def unpacked(segment: bytes) -> tuple[Head, Batches]:
    """The parts of ``packed``. *Raises* ``ValueError``: it is damaged, or of another version."""
    try:
        magic, checksum, size = _HEAD.unpack_from(segment)
        body = memoryview(segment)[_HEAD.size :]
        if magic != _MAGIC or zlib.crc32(body) != checksum:
            raise ValueError("another checksum")
        head, parts = json.loads(bytes(body[:size]).decode("utf-8", "surrogatepass"))
        head |= {end: FeedCursor(**head[end]) for end in ("after", "until")}
        head["tongues"] = tuple(head["tongues"])
        batches = {}
        for kind, part in parts.items():
            arrays = {
                name: np.frombuffer(body, dtype, count, size + at)
                for name, (dtype, count, at) in part["arrays"].items()
            }
            batches[kind] = Batch(arrays, part["names"], part["repeats"])
        return Head(**head), batches
    except (*UNDECODABLE, struct.error) as error:
        raise ValueError(f"a damaged segment: {error}") from error


# ── Which are merged ──────────────────────────────────────────────────────────────────


def absorbed(sizes: Sequence[int], documents: int) -> int:
    """
    How many of the last segments of *sizes* are made one with *documents* new ones: the last
    ``MERGED`` of about one size, and so on upwards.
    """
    left, merged = [*sizes, documents], 0
    while len(left) >= MERGED:
        last = left[-MERGED:]
        if sum(last) > MOST_DOCUMENTS or _magnitude(min(last)) < _magnitude(max(last)):
            break
        left[-MERGED:] = [sum(last)]
        merged = len(sizes) + 1 - len(left)
    return merged


def _magnitude(documents: int) -> int:
    return (max(documents // SEALED_FROM, 1).bit_length() - 1) // (MERGED.bit_length() - 1)


# ── Segments as rows ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Kept:
    """A segment that the store holds: its number, how many documents, up to which cursor."""

    no: int
    documents: int
    until: FeedCursor


_KEPT = """
SELECT no, documents, until FROM segments WHERE repo = ? AND chain = ? AND part = 0 ORDER BY no
"""
_PARTS = "SELECT no, bytes FROM segments WHERE repo = ? AND chain = ? ORDER BY no, part"
_NODES = """
SELECT id, type, body, NULL FROM nodes WHERE repo = ? AND type NOT IN ('episodic', 'source')
"""
_COLUMNS = ("repo", "chain", "no", "part", "documents", "until", "bytes")
_DROP = "DELETE FROM segments WHERE repo = ? AND chain = ? AND no >= ?"
# Whoever lets something leave recall holds the repository's row as well, and then deletes.
_HOLD = "UPDATE repos SET revision = revision WHERE no = ?"
_LAST_REMOVAL = "SELECT coalesce(max(seq), 0) FROM removals WHERE repo = ?"
_ROWS = Rows("segments", "i i s", lambda row: Kept(row[0], row[1], _cursor(row[2])))


class StoredSegments(OfRepository):
    """The segments of one repository, in order."""

    async def read(self) -> tuple[dict[Chain, dict[int, bytes]], dict[str, Node]]:
        """By chain and number the bytes of each, and all nodes. *Cancellation*: safe."""
        return await self._engine.reading(partial(_read, repo_id=self._repo_id))

    async def kept(self, chain: Chain) -> list[Kept]:
        """What there is, without the bytes; damaged rows are left out. *Cancellation*: safe."""
        return await self._engine.reading(
            lambda tx: _kept(tx, repo_row(tx, self._repo_id)[0], chain)
        )

    async def put(self, head: Head, segment: bytes, stay: Sequence[Kept]) -> bool:
        """
        Put a segment behind those that *stay*, in the place of what follows them. ``False``: it
        holds less than that, others stand there now, or something left recall.
        *Cancellation*: completes.
        """
        return await self._writing(partial(_put, head=head, segment=segment, stay=[*stay]))

    async def drop(self, chain: Chain, first: int) -> None:
        """Drop those from number *first* on. *Cancellation*: completes."""
        await self._writing(lambda tx, repo: bool(tx.run(_DROP, (repo, chain, first))))

    async def _writing(self, work: Callable[[Tx, int], bool]) -> bool:
        def held(tx: Tx) -> bool:
            repo = repo_row(tx, self._repo_id)[0]
            tx.run(_HOLD, (repo,))
            return bool(repo) and work(tx, repo)

        return await self._engine.writing(held, locks=[("segments", self._repo_id)])


def _read(tx: Tx, repo_id: str) -> tuple[dict[Chain, dict[int, bytes]], dict[str, Node]]:
    repo = repo_row(tx, repo_id)[0]
    found: dict[Chain, dict[int, bytes]] = {}
    for chain in CHAINS:
        parts = groupby(tx.run(_PARTS, (repo, chain)).fetchall(), itemgetter(0))
        # What is no part leaves a gap, which the checksum tells.
        found[chain] = {
            no: b"".join(part for _, part in of_one if isinstance(part, bytes))
            for no, of_one in parts
        }
    nodes = NODES.whole.intact(tx.run(_NODES, (repo,))) if found["nodes"] else ()
    return found, {node.id: node for node in nodes}


def _kept(tx: Tx, repo: int, chain: Chain) -> list[Kept]:
    return _ROWS.intact(tx.run(_KEPT, (repo, chain)))


def _put(tx: Tx, repo: int, *, head: Head, segment: bytes, stay: Sequence[Kept]) -> bool:
    kept = _kept(tx, repo, head.chain)
    (removal,) = tx.run(_LAST_REMOVAL, (repo,)).fetchone()
    if kept[: len(stay)] != stay or (repo, removal) != (head.repo, head.until.removal):
        return False
    if kept and not _is_behind(kept[-1].until, head.until):
        return False
    no = kept[-1].no + 1 if kept else 1
    tx.run(_DROP, (repo, head.chain, stay[-1].no + 1 if stay else 0))
    until = json.dumps(asdict(head.until))
    rows = [
        (repo, head.chain, no, part, head.documents if not part else 0, until, piece)
        for part, piece in enumerate(chunks(segment, MOST_BYTES))
    ]
    tx.insert("segments", _COLUMNS, rows)
    return True


def _is_behind(one: FeedCursor, other: FeedCursor) -> bool:
    one, other = (replace(cursor, removal=0, vector=0) for cursor in (one, other))
    return one != other and all(a <= b for a, b in zip(astuple(one), astuple(other), strict=True))


def _cursor(text: str) -> FeedCursor:
    return FeedCursor(**decode_object(text))

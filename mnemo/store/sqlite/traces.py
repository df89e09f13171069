"""
Traces of erased rows in the free space of the file's pages.

SQLite overwrites what it deletes, but when it moves rows between pages it may leave
their old copies behind, which a later deletion does not know of. What is found here is
put right by rewriting the file.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mnemo._clock import Breather

__all__ = ["Traces"]

_MOST_BYTES = 16 * 1024 * 1024
# A copy is known by any twelve bytes of it that begin at a multiple of four.
_WINDOW = 12
_STRIDE = 4
_MIX = np.uint64(0x9E3779B97F4A7C15)

_STEPS = """
SELECT coalesce(t.observation, '') || t.action || t.at || t.actor || coalesce(t.key, '')
       || t.metadata || t.recorded_at, coalesce(t.state, '') || coalesce(t.subgoal, ''), t.key
FROM erased_steps x CROSS JOIN steps t ON t.ordinal = x.ordinal
"""
_NODES = """
SELECT n.id || n.type || n.created_at || coalesce(n.at, '') || n.body
FROM erased_nodes x CROSS JOIN nodes n ON n.no = x.no
"""
_KEYS = "SELECT k.key FROM erased_nodes x CROSS JOIN node_keys k ON k.node = x.no"
_VECTORS = """
SELECT v.vector FROM erased_steps x CROSS JOIN vectors v ON v.repo = :repo
AND v.key IN (x.node_id || '/observation', x.node_id || '/action')
UNION ALL SELECT v.vector FROM erased_nodes x CROSS JOIN vectors v ON v.repo = :repo
AND v.key = x.id
"""
_STAGED = """
SELECT changeset FROM staged WHERE episode = ?
UNION ALL SELECT coalesce(changeset, goal) FROM episodes WHERE no = ?
UNION ALL SELECT goal FROM episodes WHERE no = ?
"""


class Traces:
    """By what the erased would be known; gathered before it is deleted."""

    def __init__(self) -> None:
        self._values: list[bytes] = []
        self._bytes = 0

    @property
    def too_many(self) -> bool:
        """Whether so much was erased that looking for it costs more than rewriting the file."""
        return self._bytes > _MOST_BYTES

    def add(self, value: str | bytes | None) -> None:
        """Add what one row held, its columns in a row."""
        if not value or self.too_many:
            return
        raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        self._values.append(raw)
        self._bytes += len(raw)

    def take(self, connection: sqlite3.Connection, repo: int) -> None:
        """Add what the rows hold that are about to be erased."""
        breather = Breather()
        for query in (_STEPS, _NODES, _KEYS, _VECTORS):
            values = {"repo": repo} if ":repo" in query else ()
            for row in connection.execute(query, values):
                for value in row:
                    self.add(value)
                breather.breathe()
                if self.too_many:
                    return

    def take_staged(self, connection: sqlite3.Connection, episode: int) -> None:
        """Add the staged results and the goal of an episode."""
        for (value,) in connection.execute(_STAGED, (episode, episode, episode)):
            self.add(value)

    def are_in(self, path: Path) -> bool:
        """
        Whether the file's free space holds some of it; for a worker thread of its own.

        Only fragments of fifteen bytes and more are sure to be found.
        """
        if not self._values:
            return False
        wanted = np.unique(np.concatenate([_hashes(value, _STRIDE) for value in self._values]))
        # Zeros are no trace of anything, though vectors may hold a run of them.
        wanted = wanted[wanted != 0]
        breather, left = Breather(), bytearray()
        for piece in _free_space(path):
            left += piece
            breather.breathe()
            if len(left) > _MOST_BYTES:
                return True
        return bool(np.isin(_hashes(bytes(left), 1), wanted).any())


def _hashes(raw: bytes, stride: int) -> NDArray[np.uint64]:
    """A number for every window of *raw*; of a shorter one, none."""
    count = (len(raw) - _WINDOW) // stride + 1
    if count < 1:
        return np.empty(0, np.uint64)
    starts = np.ndarray(count, "<u8", raw, 0, (stride,))
    ends = np.ndarray(count, "<u4", raw, _WINDOW - 4, (stride,))
    return starts * _MIX ^ ends.astype(np.uint64)


# ── The file format (sqlite.org/fileformat2.html) ────────────────────────────────────

_BTREE = {2: 12, 5: 12, 10: 8, 13: 8}
"""Type of a b-tree page → length of its header."""


def _free_space(path: Path) -> Iterator[bytes]:
    """What stands where nothing is stored: unused parts of b-tree pages, and free pages."""
    with path.open("rb") as file:
        head = file.read(100)
        size, reserved = struct.unpack(">H", head[16:18])[0], head[20]
        size = 65_536 if size == 1 else size
        free = set(_free_pages(file, head, size))
        file.seek(0)
        number = 0
        while len(page := file.read(size)) == size:
            number += 1
            if number in free:
                yield _told(page[8:])
            elif page[0] in _BTREE or number == 1:
                yield from map(_told, _gaps(page, 100 if number == 1 else 0, size - reserved))


def _free_pages(file: object, head: bytes, size: int) -> Iterator[int]:
    trunk, count = struct.unpack(">II", head[32:40])
    seen = 0
    while trunk and seen <= count:
        seen += 1
        yield trunk
        file.seek((trunk - 1) * size)  # type: ignore[attr-defined]
        page = file.read(size)  # type: ignore[attr-defined]
        following, leaves = struct.unpack(">II", page[:8])
        yield from struct.unpack(f">{leaves}I", page[8 : 8 + 4 * leaves])
        trunk = following


def _gaps(page: bytes, start: int, end: int) -> Iterable[bytes]:
    kind, block, cells, content, _ = struct.unpack(">BHHHB", page[start : start + 8])
    if kind not in _BTREE:
        return
    first = start + _BTREE[kind] + 2 * cells
    yield page[first : (content or 65_536)]
    while block and block + 4 <= end:
        following, length = struct.unpack(">HH", page[block : block + 4])
        yield page[block + 4 : block + length]
        if following <= block:
            return
        block = following


def _told(gap: bytes) -> bytes:
    """*gap* without its zeros at both ends, kept apart from the next one."""
    found = gap.strip(b"\0")
    return found + bytes(_WINDOW) if found else b""

"""
Traces of erased rows in the free space of the file's pages.

SQLite overwrites what it deletes, but when it moves rows between pages it may leave
their old copies behind, which a later deletion does not know of. What is found here is
put right by rewriting the file.
"""

from __future__ import annotations

import re
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mnemo.runtime.clock import Breather

__all__ = ["Traces"]

_MOST_BYTES = 16 * 1024 * 1024
# A copy is known by any twenty bytes of it that begin at a multiple of four. Shorter ones
# are met in texts that are still there, and each such meeting costs a rewriting.
_WINDOW = 20
_STRIDE = 4
_MIX = np.uint64(0x9E3779B97F4A7C15)
_AT_ONCE = 4 * 1024 * 1024
# Zeros are no trace of anything: they stand where something was overwritten.
_RUN = re.compile(rb"[^\0]{8,}")

_STEPS = """
SELECT t.observation, t.action, t.metadata, t.state, t.subgoal, t.actor || coalesce(t.key, '')
FROM erased_steps x CROSS JOIN steps t ON t.ordinal = x.ordinal
"""
# What a node says, not the names of its fields nor its ids, which are everywhere.
_NODES = """
SELECT body ->> '$.proposition', body ->> '$.instruction', body ->> '$.condition',
       body ->> '$.expected_outcome', body ->> '$.description', body ->> '$.label'
FROM (SELECT iif(json_valid(n.body), n.body,
                 json_object('proposition', CAST(n.body AS TEXT))) AS body
      FROM erased_nodes x CROSS JOIN nodes n ON n.no = x.no
      WHERE x.type NOT IN ('episodic', 'source'))
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
_MESSAGES = """
SELECT m.content, m.blocks, m.tool_calls, m.metadata, m.name, m.actor, m.id, m.tool_call_id
FROM erased_messages x CROSS JOIN messages m ON m.no = x.no
"""
_MESSAGE_VECTORS = """
SELECT v.vector FROM erased_messages x
CROSS JOIN message_vectors v ON v.thread = x.thread AND v.seq = x.seq
"""
_SUMMARIES = """
SELECT c.text FROM erased_compactions x CROSS JOIN compactions c ON c.no = x.no
UNION ALL SELECT s.text FROM erased_snapshots x CROSS JOIN snapshots s ON s.no = x.no
"""
_OF_THREAD = """
SELECT description FROM goals WHERE thread = :thread
UNION ALL SELECT excerpt FROM pins WHERE thread = :thread
UNION ALL SELECT hits FROM surfaced WHERE thread = :thread
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

    def add(self, value: object) -> None:
        """Add one text or vector as the file holds it; of other kinds there is nothing to see."""
        if not isinstance(value, str | bytes) or not value or self.too_many:
            return
        raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        self._values.append(raw)
        self._bytes += len(raw)

    def take(self, connection: sqlite3.Connection, repo: int) -> None:
        """Add what the rows of steps and nodes hold that are about to be erased."""
        for query in (_STEPS, _NODES, _KEYS, _VECTORS):
            self._take(connection.execute(query, {"repo": repo} if ":repo" in query else ()))

    def take_messages(self, connection: sqlite3.Connection) -> None:
        """Add what the rows of messages, summaries and pins hold that are about to be erased."""
        for query in (_MESSAGES, _MESSAGE_VECTORS, _SUMMARIES):
            self._take(connection.execute(query))

    def take_thread(self, connection: sqlite3.Connection, thread: int) -> None:
        """Add what else a thread holds: its goals, its pins, what came to mind in it."""
        self._take(connection.execute(_OF_THREAD, {"thread": thread}))

    def _take(self, rows: Iterable[tuple[Any, ...]]) -> None:
        breather = Breather()
        for row in rows:
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

        Fragments of 24 bytes and more are sure to be found, and whole texts of 8 and more.
        """
        if not self._values:
            return False
        wanted = _Wanted(self._values)
        breather, left = Breather(), bytearray()
        for gap in _free_space(path):
            for run in _RUN.findall(gap):
                left += run + b"\0"
            breather.breathe()
            if len(left) > _AT_ONCE:
                if wanted.are_in(bytes(left)):
                    return True
                left.clear()
        return wanted.are_in(bytes(left))


class _Wanted:
    """What is looked for: windows of what is long, and what is short as a whole."""

    def __init__(self, values: Iterable[bytes]) -> None:
        runs = [run for value in set(values) for run in _RUN.findall(value)]
        hashes = [_hashes(run, _STRIDE) for run in runs]
        self._windows = np.unique(np.concatenate(hashes)) if hashes else np.empty(0, np.uint64)
        self._short = [run for run in runs if len(run) < _WINDOW + _STRIDE]

    def are_in(self, left: bytes) -> bool:
        """Whether some of it is in *left*."""
        if np.isin(_hashes(left, 1), self._windows).any():
            return True
        breather = Breather()
        for text in self._short:
            if text in left:
                return True
            breather.breathe()
        return False


def _hashes(raw: bytes, stride: int) -> NDArray[np.uint64]:
    """A number for every window of *raw*; of a shorter one, none."""
    count = (len(raw) - _WINDOW) // stride + 1
    if count < 1:
        return np.empty(0, np.uint64)
    first, second = (np.ndarray(count, "<u8", raw, at, (stride,)) for at in (0, 8))
    last = np.ndarray(count, "<u4", raw, 16, (stride,)).astype(np.uint64)
    hashes: NDArray[np.uint64] = (first * _MIX ^ second) * _MIX ^ last
    return hashes


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
                yield page[8:]
            elif page[0] in _BTREE or number == 1:
                yield from _gaps(page, 100 if number == 1 else 0, size - reserved)


def _free_pages(file: BinaryIO, head: bytes, size: int) -> Iterator[int]:
    trunk, count = struct.unpack(">II", head[32:40])
    seen = 0
    while trunk and seen <= count:
        seen += 1
        yield trunk
        file.seek((trunk - 1) * size)
        page = file.read(size)
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

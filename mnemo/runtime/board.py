"""Numbers by name that the processes of a service share, in a file that each of them maps."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from mnemo.errors import ConfigError

if sys.platform != "win32":  # where a board is of one process
    import fcntl

BYTES = 8 * 2**20
"""Of a board, names included; what is not used of it takes no memory (S)."""
WORD = 8


class Board:
    """
    Numbers (float64, 0 at first) by name; ``with board:`` for changes that no process cuts in on.

    The lock is held for microseconds, and ends with a process that is killed.

    Args:
        path: A file of the service alone, made if it is new; ``None``: of this process, in memory.

    Raises:
        OSError: The file cannot be mapped.
    """

    def __init__(self, path: Path | None = None) -> None:
        number = -1 if path is None else os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if path is not None:
            os.ftruncate(number, BYTES)
        shared = memoryview(mmap.mmap(number, BYTES))
        self._number, self._bytes = number, shared
        self._floats, self._words = shared.cast("d"), shared.cast("Q")
        self._lock, self._depth = threading.RLock(), 0
        self._end = 1  # the word behind what is known; the first word is that of all processes
        self._known: dict[str, memoryview[float]] = {}

    def __enter__(self) -> Self:
        self._lock.acquire()
        if not self._depth and self._number >= 0:
            fcntl.flock(self._number, fcntl.LOCK_EX)
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth and self._number >= 0:
            fcntl.flock(self._number, fcntl.LOCK_UN)
        self._lock.release()

    def numbers(self, name: str, count: int = 1) -> memoryview[float]:
        """
        The *count* numbers of *name*: the same memory in every process.

        Raises:
            ConfigError: ``BYTES`` are used up.
        """
        found = self._known.get(name)
        if found is None:
            with self:
                self._read_on()
                found = self._known.get(name) or self._added(name, count)
        return found

    def items(self) -> Iterator[tuple[str, memoryview[float]]]:
        """All numbers by name, sorted, also those that other processes have begun."""
        with self:
            self._read_on()
        return iter(sorted(self._known.items()))

    def _read_on(self) -> None:
        """Take up what other processes have added."""
        while self._end < self._words[0]:
            length, count = divmod(self._words[self._end], 2**32)
            start = (self._end + 1) * WORD
            self._know(str(self._bytes[start : start + length], "utf-8"), length, count)

    def _know(self, name: str, length: int, count: int) -> memoryview[float]:
        first = self._end + 1 + -(-length // WORD)
        self._end = first + count
        self._known[name] = self._floats[first : self._end]
        return self._known[name]

    def _added(self, name: str, count: int) -> memoryview[float]:
        encoded = name.encode()
        start = (self._end + 1) * WORD
        if start + len(encoded) + WORD * (count + 1) > BYTES:
            raise ConfigError(f"the numbers of this service have more than {BYTES:,} bytes")
        self._words[self._end] = len(encoded) * 2**32 + count
        self._bytes[start : start + len(encoded)] = encoded
        added = self._know(name, len(encoded), count)
        self._words[0] = self._end  # last: whoever is killed before it has added nothing
        return added

"""Numbers by name that the processes of a service share, in a file that each of them maps."""

from __future__ import annotations

import mmap
import os
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self

from mnemo.errors import ConfigError
from mnemo.runtime.turns import Turn, free

BYTES = 8 * 2**20
"""Of a board, names included; what is not used of it takes no memory (S)."""
WORD = 8
PATIENCE_S = 0.1
"""Seconds after which a process that has a lock of a board hangs (S)."""


class Board:
    """
    Numbers (float64, 0 at first) by name; ``with board:`` for changes that no process cuts in on.

    The lock is held for microseconds, and ends with a process that is killed. One that hangs with
    it is waited for once; the others go on with a lock of their own, and when it wakes, a change
    may be missed. Names are added under a third one: without it the numbers are of this process.

    Args:
        path: A file of the service alone, made if it is new; ``None``: of this process, in memory.

    Raises:
        OSError: The file cannot be mapped.
    """

    def __init__(self, path: Path | None = None) -> None:
        paths = [] if path is None else [path, Path(f"{path}.spare"), Path(f"{path}.names")]
        files = [os.open(one, os.O_RDWR | os.O_CREAT, 0o600) for one in paths]
        if files:
            os.ftruncate(files[0], BYTES)
        shared = memoryview(mmap.mmap(files[0] if files else -1, BYTES))
        self._bytes, self._floats, self._words = shared, shared.cast("d"), shared.cast("Q")
        self._locks = [(file, Turn(PATIENCE_S)) for file in files[:2]]
        naming = Turn(PATIENCE_S)
        self._naming: Callable[[], AbstractContextManager[bool]] = lambda: (
            naming.held(files[2]) if files else nullcontext(True)
        )
        self._taken: int | None = None
        self._lock, self._depth = threading.RLock(), 0
        self._end = 1  # the word behind what is known; the first word is that of all processes
        self._known: dict[str, memoryview[float]] = {}

    def __enter__(self) -> Self:
        self._lock.acquire()
        if not self._depth:
            self._taken = next((file for file, turn in self._locks[:2] if turn.taken(file)), None)
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth and self._taken is not None:
            free(self._taken)
        self._lock.release()

    def numbers(self, name: str, count: int = 1) -> memoryview[float]:
        """
        The *count* numbers of *name*: the same memory in every process.

        Raises:
            ConfigError: ``BYTES`` are used up.
        """
        found = self._known.get(name)
        if found is None:
            with self, self._naming() as may_add:
                self._read_on()
                found = self._known.get(name)
                if found is None and not may_add:
                    return memoryview(array("d", bytes(WORD * count)))
                found = found or self._added(name, count)
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

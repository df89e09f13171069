"""Locks of processes on files, which one that hangs does not keep from the others."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mnemo.runtime.clock import PAUSE_S, elapsed

if sys.platform != "win32":
    import fcntl


class Turn:
    """
    Waits for a lock as long as whoever has it may work, and no longer once that one hangs.

    Args:
        patience_s: Seconds after which whoever has the lock is taken to hang.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s, self._hangs = patience_s, False

    def taken(self, number: int) -> bool:
        """
        Lock the open file *number*; blocks its thread. ``False``: it is another's, who hangs; the
        next calls do not wait for that one, until it has let go.
        """
        if sys.platform == "win32":
            return True
        until = elapsed() + (0 if self._hangs else self._patience_s)
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._hangs = elapsed() >= until
                if self._hangs:
                    return False
                time.sleep(PAUSE_S)
            else:
                self._hangs = False
                return True

    @contextmanager
    def held(self, number: int) -> Iterator[bool]:
        """As ``taken``, until the end of the block."""
        is_taken = self.taken(number)
        try:
            yield is_taken
        finally:
            if is_taken:
                free(number)


def free(number: int) -> None:
    """Let the lock of the open file *number* go."""
    if sys.platform != "win32":
        fcntl.flock(number, fcntl.LOCK_UN)

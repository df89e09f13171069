"""The worker processes of a service: begun, replaced when one ends, and stopped together."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import anyio

from mnemo.runtime.clock import elapsed

log = logging.getLogger("mnemo")

LEAST_S = 1.0
"""Seconds between two starts of a worker, at least (S)."""
STOP_S = 25.0
"""Seconds that workers may take to stop; then they are killed (S)."""

Work = Callable[[int, Callable[[], None]], int]
"""
What a worker does until SIGTERM: it gets its number, calls the function when it is ready, and gives
its exit code.
"""
_SPAWNED = multiprocessing.get_context("spawn")


def supervise(work: Work, count: int) -> int:
    """
    Run *work*, which can be pickled, in *count* processes until SIGTERM or SIGINT.

    The first is ready before the others begin; one that ends is replaced. SIGINT does not reach
    them: what a terminal sends to all of them is for this process, and a second one kills them.

    Returns:
        0, or the exit code of the first if that ended before it was ready.

    Raises:
        KeyboardInterrupt: SIGINT came; all have stopped.
    """
    with _signals() as told:
        workers = _Workers(work, count, told)
        try:
            code = workers.begin_first()
            while not (code or workers.signal):
                workers.look()
        finally:
            workers.stop()
    if workers.signal == signal.SIGINT:
        raise KeyboardInterrupt
    return code


async def orphaned() -> None:
    """Wait until the process that began this worker has ended. *Cancellation*: safe."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    await anyio.wait_readable(parent.sentinel)


class _Workers:
    """The processes by number; *told* gets a byte for each signal, the first is *signal*."""

    def __init__(self, work: Work, count: int, told: socket.socket) -> None:
        self._work, self._told = work, told
        self._running: list[SpawnProcess | None] = [None] * count
        self._due = [0.0] * count
        self._ready: dict[int, Connection] = {}
        self.signal = 0

    def begin_first(self) -> int:
        """Have the first be ready. Returns its exit code if it has ended before."""
        first = self._begin(0)
        if self._heard([self._ready[0]]):
            return 0
        try:
            self._ready[0].recv_bytes()
        except EOFError:
            first.join()
            return abs(first.exitcode or 0)
        return 0

    def look(self) -> None:
        """Begin those that are missing; return when one has ended, is due, or a signal came."""
        for number, one in enumerate(self._running):
            if one is not None and one.exitcode is not None:
                log.warning("worker %d (pid %d) ended: %s", number, one.pid, one.exitcode)
                self._running[number] = None
            if self._running[number] is None and self._due[number] <= elapsed():
                self._begin(number)
        missing = [at for one, at in zip(self._running, self._due, strict=True) if one is None]
        # Also of those that have ended since: asked for its exit code, one is forgotten here.
        begun = [one.sentinel for one in self._running if one is not None]
        self._heard(begun, max(0.0, min(missing) - elapsed()) if missing else None)

    def stop(self) -> None:
        """End all, within ``STOP_S``."""
        for one in filter(None, self._running):
            one.terminate()
        until = elapsed() + STOP_S
        while sentinels := self._sentinels():
            again = self._heard(sentinels, max(0.0, until - elapsed()))
            if again == signal.SIGINT or elapsed() >= until:
                for one in filter(None, self._running):
                    one.kill()

    def _sentinels(self) -> list[int]:
        return [one.sentinel for one in self._running if one is not None and one.exitcode is None]

    def _begin(self, number: int) -> SpawnProcess:
        ready, writer = _SPAWNED.Pipe(duplex=False)
        one = _SPAWNED.Process(target=_run, args=(self._work, number, writer), daemon=True)
        resource_tracker.ensure_running()  # Beginning it unblocks the signal.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it inherits that
        try:
            one.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            writer.close()
        self._running[number], self._due[number] = one, elapsed() + LEAST_S
        self._ready[number] = ready
        return one

    def _heard(self, more: Iterable[int | Connection], timeout_s: float | None = None) -> int:
        """Wait for a signal, which is given, or one of *more*."""
        if self._told not in wait([self._told, *more], timeout_s):
            return 0
        number = self._told.recv(1)[0]
        self.signal = self.signal or number
        return number


def _run(work: Work, number: int, ready: Connection) -> None:
    sys.exit(work(number, partial(ready.send_bytes, b"ready")))


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Give a socket that gets the number of each signal, in place of what it does else."""
    told, writer = socket.socketpair()
    writer.setblocking(False)
    with told, writer:
        former = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        kept = {one: signal.signal(one, _do_nothing) for one in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield told
        finally:
            for one, handler in kept.items():
                signal.signal(one, handler)
            signal.set_wakeup_fd(former)


def _do_nothing(*_: object) -> None:
    """Have the number of the signal be written, which is all."""

"""Worker threads: run functions off the event loop, a bounded number at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

T = TypeVar("T")


class Threads:
    """
    Runs functions in worker threads.

    Args:
        limit: Threads at once; the callers beyond them wait.
    """

    __slots__ = ("_limiter",)

    def __init__(self, limit: int = 1) -> None:
        self._limiter = CapacityLimiter(limit)

    async def run(self, work: Callable[..., T], *args: Any, abandon: bool = False) -> T:
        """
        The result of ``work(*args)``.

        *Cancellation*: met when *work* has ended; with *abandon* at once, and the thread goes on
        without its caller.
        """
        return await anyio.to_thread.run_sync(
            work, *args, limiter=self._limiter, abandon_on_cancel=abandon
        )


def spare_cores() -> int:
    """Processors of this process but one, at least 1: for work that others must not wait for."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return max(1, len(os.sched_getaffinity(0)) - 1)
    return max(1, (os.cpu_count() or 1) - 1)


def of_loop(variable: RunVar[T], make: Callable[[], T]) -> T:
    """The running event loop's value of *variable*, made at first use."""
    try:
        return variable.get()
    except LookupError:
        variable.set(made := make())
        return made


_SHARED: RunVar[dict[str, Threads]] = RunVar("mnemo.runtime.threads")


def shared_threads(purpose: str) -> Threads:
    """The one thread that everything on the running event loop shares for *purpose*."""
    shared = of_loop(_SHARED, dict)
    if purpose not in shared:
        shared[purpose] = Threads()
    return shared[purpose]

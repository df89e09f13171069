"""The limiter of the worker thread that analyses texts off the event loop."""

from __future__ import annotations

import anyio
from anyio.lowlevel import RunVar

__all__ = ["workers"]

_LIMITER: RunVar[anyio.CapacityLimiter] = RunVar("mnemo.extraction.embedded")


def workers() -> anyio.CapacityLimiter:
    """
    The limiter of this event loop: one thread at once.

    The work is pure Python, so a second thread would not be faster, only make the
    event loop wait for the interpreter twice as long.
    """
    try:
        return _LIMITER.get()
    except LookupError:
        _LIMITER.set(limiter := anyio.CapacityLimiter(1))
        return limiter

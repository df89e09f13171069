"""The threads in which texts are taken apart, off the event loop."""

from __future__ import annotations

import anyio
from anyio.lowlevel import RunVar

__all__ = ["workers"]

_LIMITER: RunVar[anyio.CapacityLimiter] = RunVar("mnemo.extraction.embedded")


def workers() -> anyio.CapacityLimiter:
    """
    The limiter of this event loop: two threads at once.

    The work is pure Python, so more threads would not be faster, only make each
    other and the loop wait longer.
    """
    try:
        return _LIMITER.get()
    except LookupError:
        _LIMITER.set(limiter := anyio.CapacityLimiter(2))
        return limiter

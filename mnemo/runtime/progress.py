"""How far the call at hand is, for whoever follows it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """*done* of *total*, in whatever the call counts; ``None``: it is not known yet."""

    done: int = 0
    total: int | None = None


PROGRESS: ContextVar[Progress | None] = ContextVar("mnemo.runtime.progress", default=None)
"""Of the call at hand; ``None``: nobody follows it."""


def reached(done: int, total: int) -> None:
    """Note how far it is; a plain call, from any thread that the call runs in."""
    progress = PROGRESS.get()
    if progress is not None:
        progress.done, progress.total = done, total

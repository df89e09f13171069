"""How one recall comes along: what its trace and its events will say."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mnemo.prompts.usage import How
from mnemo.runtime.clock import elapsed

__all__ = ["Progress"]

log = logging.getLogger("mnemo")


@dataclass(slots=True)
class Progress:
    """
    What the trace will say; grows while the recall runs.

    Attributes:
        seconds: Phase → seconds.
        degraded: What failed and was done without, in order, each once.
        stages: Purpose → how it ran; purposes that were not needed are absent.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)
    stages: dict[str, How] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside to phase *name*."""
        began = elapsed()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed() - began

    def does_without(self, part: str, error: BaseException) -> None:
        """Note that *part* failed, and that the recall goes on."""
        line = f"{part}: {type(error).__name__}"
        if line not in self.degraded:
            self.degraded.append(line)
            log.warning("recall goes on without %s: %s", part, error)

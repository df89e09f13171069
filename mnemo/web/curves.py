"""Curves: what came in, went out, waits and failed, second by second and minute by minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import Any, Literal

import anyio
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from mnemo import Mnemo, MnemoError
from mnemo.events import (
    CompressionFailed,
    Event,
    EvictionFailed,
    RecallExecuted,
    RecallFailed,
    SessionTransitioned,
    WriteFailed,
)
from mnemo.runtime.clock import SystemClock
from mnemo.runtime.traffic import traffic
from mnemo.web.access import ANY, Token_

router = APIRouter(prefix="/v1", tags=["operations"])

Span = Literal["minutes", "hour", "day"]
STEPS: dict[Span, tuple[int, int]] = {"minutes": (1, 600), "hour": (60, 60), "day": (60, 1_440)}
"""Seconds of a step, and how many steps."""
MOST_MEASURED = 1_000
"""Recalls of one step whose durations are kept until it ends, the last ones (S)."""
FAILED = (WriteFailed, RecallFailed, CompressionFailed, EvictionFailed)
"""Events that tell of a failure, beside sessions that change to ``failed``."""


class Series(BaseModel):
    """
    One number per step; ``null``: nothing was measured in it.

    Attributes:
        writes: Writes that became durable in this process, each of one message or a batch.
        recall_p95_ms: Milliseconds within which 95 % of the recalls were answered.
        waiting: Messages that waited for extraction, the most at once; of the whole store.
        failed: Tries of recalls, commits, extractions and summaries that failed in this process.
    """

    writes: list[int | None]
    recalls: list[int | None]
    recall_p95_ms: list[float | None]
    waiting: list[int | None]
    failed: list[int | None]


class Curves(BaseModel):
    """
    Curves up to now; the last step is not over yet.

    Attributes:
        from: Begin of the first step, in Unix seconds.
    """

    step_s: Literal[1, 60]
    start: int = Field(alias="from")
    series: Series


@dataclass(slots=True)
class Step:
    """What was measured within a second or minute."""

    writes: int = 0
    recalls: int = 0
    failed: int = 0
    waiting: int | None = None
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_MEASURED))
    p95_ms: float | None = None

    def end(self) -> None:
        """Keep the number alone; a plain call."""
        self.p95_ms = self.recall_p95_ms
        self.seconds.clear()

    @property
    def recall_p95_ms(self) -> float | None:
        """Of the recalls of which the durations are kept, or were."""
        if not self.seconds:
            return self.p95_ms
        return round(1_000 * sorted(self.seconds)[ceil(0.95 * len(self.seconds)) - 1], 3)


class Recorder:
    """Keeps the curves of a service in bounded memory; ``run`` is of the app's lifespan."""

    def __init__(self, memory: Mnemo, now: Callable[[], datetime] | None = None) -> None:
        self._memory, self._now = memory, now or SystemClock().now
        self._steps: dict[int, dict[int, Step]] = {step_s: {} for step_s, _ in STEPS.values()}

    async def run(self) -> None:
        """Measure until cancelled."""
        work = traffic()
        written = work.writes
        subscription = self._memory.subscribe(self._happened)
        try:
            while True:
                self._count(writes=work.writes - written)
                written = work.writes
                with suppress(MnemoError):  # the store cannot be read now: nothing is measured
                    await self._look()
                await anyio.sleep(1 - self._now().timestamp() % 1)
        finally:
            subscription.cancel()

    async def _look(self) -> None:
        """Measure what waits."""
        waiting = sum(levels.messages for levels in (await self._memory.backlog()).values())
        for step in self._count():
            step.waiting = max(waiting, step.waiting or 0)

    def _happened(self, event: Event) -> None:
        if isinstance(event, RecallExecuted):
            for step in self._count(recalls=1):
                step.seconds.append(event.duration_s)
        elif isinstance(event, FAILED) or (
            isinstance(event, SessionTransitioned) and event.to_state == "failed"
        ):
            self._count(failed=1)

    def _count(self, *, writes: int = 0, recalls: int = 0, failed: int = 0) -> list[Step]:
        """Add to the present second and minute, which are given."""
        found = [self._present(step_s) for step_s in self._steps]
        for step in found:
            step.writes += writes
            step.recalls += recalls
            step.failed += failed
        return found

    def _present(self, step_s: int) -> Step:
        steps, start = self._steps[step_s], self._start(step_s)
        if start not in steps:
            if steps:
                steps[next(reversed(steps))].end()
            steps[start] = Step()
            most = max(count for size, count in STEPS.values() if size == step_s)
            while len(steps) > most:
                del steps[next(iter(steps))]
        return steps[start]

    def _start(self, step_s: int) -> int:
        return int(self._now().timestamp()) // step_s * step_s

    def curves(self, span: Span, *, of_all: bool = True) -> Curves:
        """The curves of *span*; levels of the store only where they are *of_all* one may see."""
        step_s, count = STEPS[span]
        start = self._start(step_s) - (count - 1) * step_s
        hidden = () if of_all else ("waiting", "failed")
        steps = [self._steps[step_s].get(start + number * step_s) for number in range(count)]
        return Curves(
            **{"from": start},
            step_s=step_s,
            series={
                name: [None if name in hidden else getattr(step, name, None) for step in steps]
                for name in Series.model_fields
            },
        )


@router.get("/curves", response_model=Curves)
async def curves(request: Request, token: Token_, span: Span = "hour") -> Any:
    """
    Give what came in, went out, waits and failed: by seconds for 10 minutes, by minutes for a day.

    Counts are of this process since it began. A token of some repositories alone is not told what
    waits and has failed in all of them.
    """
    recorder: Recorder = request.app.state.curves
    return recorder.curves(span, of_all=ANY in token.repositories)

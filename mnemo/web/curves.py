"""Curves: what came in, went out, waits and failed, second by second and minute by minute."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from math import ceil
from typing import Any, Literal

import anyio
from fastapi import Request
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
from mnemo.runtime.board import Board
from mnemo.runtime.clock import SystemClock
from mnemo.runtime.traffic import traffic
from mnemo.web.access import ANY, Token_
from mnemo.web.problems import routes

router = routes(prefix="/v1", tags=["operations"])

Span = Literal["minutes", "hour", "day"]
STEPS: dict[Span, tuple[int, int]] = {"minutes": (1, 600), "hour": (60, 60), "day": (60, 1_440)}
"""Seconds of a step, and how many steps."""
MOST_MEASURED = 1_000
"""Recalls of one step whose durations are kept until the next, the last ones (S)."""
FAILED = (WriteFailed, RecallFailed, CompressionFailed, EvictionFailed)
"""Events that tell of a failure, beside sessions that change to ``failed``."""


class Series(BaseModel):
    """
    One number per step; ``null``: nothing was measured in it.

    Attributes:
        writes: Writes that became durable in this service, each of one message or a batch.
        recall_p95_ms: Milliseconds within which 95 % of the recalls were answered.
        waiting: Messages that waited for extraction, the most at once; of the whole store.
        failed: Tries of recalls, commits, extractions and summaries that failed in this service.
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


START, WRITES, RECALLS, FAILURES, WAITING, P95_MS, SIZE = range(7)
"""Places in the numbers of a step; of the last two 0 is nothing, and ``WAITING`` is one more."""


class Recorder:
    """
    Keeps the curves of a service on a board, where other workers of it count, too; ``run`` is of
    the app's lifespan.
    """

    def __init__(
        self,
        memory: Mnemo,
        now: Callable[[], datetime] | None = None,
        board: Board | None = None,
    ) -> None:
        self._memory, self._now = memory, now or SystemClock().now
        self._board = board = board or Board()
        self._counts = dict(STEPS.values())
        self._steps = {
            step_s: board.numbers(f"curves {step_s}", count * SIZE)
            for step_s, count in self._counts.items()
        }
        # Of the last step with recalls: its start, their number, and seconds.
        self._durations = {
            step_s: board.numbers(f"durations {step_s}", 2 + MOST_MEASURED)
            for step_s in self._counts
        }

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
        levels = (await self._memory.backlog()).values()
        self._count(waiting=sum(one.messages for one in levels))

    def _happened(self, event: Event) -> None:
        if isinstance(event, RecallExecuted):
            self._count(recall_s=event.duration_s)
        elif isinstance(event, FAILED) or (
            isinstance(event, SessionTransitioned) and event.to_state == "failed"
        ):
            self._count(failed=1)

    def _count(
        self,
        *,
        writes: int = 0,
        failed: int = 0,
        waiting: int | None = None,
        recall_s: float | None = None,
    ) -> None:
        """Add to the present second and minute."""
        with self._board:
            for step_s in self._counts:
                start = self._start(step_s)
                step = self._step(step_s, start)
                if step[START] != start:
                    step[:] = array("d", [start, *[0] * (SIZE - 1)])
                step[WRITES] += writes
                step[FAILURES] += failed
                if waiting is not None:
                    step[WAITING] = max(step[WAITING], waiting + 1)
                if recall_s is not None:
                    step[RECALLS] += 1
                    self._measure(step_s, start, recall_s)

    def _measure(self, step_s: int, start: int, seconds: float) -> None:
        kept = self._durations[step_s]
        if kept[0] != start:
            self._keep_p95(step_s)
            kept[:2] = array("d", [start, 0])
        kept[2 + int(kept[1]) % MOST_MEASURED] = seconds
        kept[1] += 1

    def _keep_p95(self, step_s: int) -> None:
        """Of the last step with recalls."""
        kept = self._durations[step_s]
        step, count = self._step(step_s, int(kept[0])), min(int(kept[1]), MOST_MEASURED)
        if count and step[START] == kept[0]:
            step[P95_MS] = round(1_000 * sorted(kept[2 : 2 + count])[ceil(0.95 * count) - 1], 3)

    def _step(self, step_s: int, start: int) -> memoryview[float]:
        """Where the step is kept that begins at *start*, or one that is over by then."""
        place = start // step_s % self._counts[step_s] * SIZE
        return self._steps[step_s][place : place + SIZE]

    def _start(self, step_s: int) -> int:
        return int(self._now().timestamp()) // step_s * step_s

    def curves(self, span: Span, *, of_all: bool = True) -> Curves:
        """The curves of *span*; levels of the store only where they are *of_all* one may see."""
        step_s, count = STEPS[span]
        start = self._start(step_s) - (count - 1) * step_s
        steps: list[Sequence[float] | None] = []
        with self._board:
            self._keep_p95(step_s)
            for begin in range(start, start + count * step_s, step_s):
                step = self._step(step_s, begin).tolist()
                steps.append(step if step[START] == begin else None)

        def counts(place: int, less: int = 0) -> list[int | None]:
            return [int(one[place]) - less if one and one[place] >= less else None for one in steps]

        nothing = [None] * count
        return Curves(
            **{"from": start},
            step_s=step_s,
            series=Series(
                writes=counts(WRITES),
                recalls=counts(RECALLS),
                recall_p95_ms=[(one[P95_MS] or None) if one else None for one in steps],
                waiting=counts(WAITING, 1) if of_all else nothing,
                failed=counts(FAILURES) if of_all else nothing,
            ),
        )


@router.get("/curves", response_model=Curves)
async def curves(request: Request, token: Token_, span: Span = "hour") -> Any:
    """
    Give what came in, went out, waits and failed: by seconds for 10 minutes, by minutes for a day.

    Counts are of this service, of all its workers, since it began. A token of some repositories
    alone is not told what waits and has failed in all of them.
    """
    recorder: Recorder = request.app.state.curves
    return recorder.curves(span, of_all=ANY in token.repositories)

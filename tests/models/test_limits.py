"""Limits per minute: steady, in order, and nothing is taken by who leaves the line."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mnemo.models.transport import Lane, Limits
from mnemo.runtime.clock import Bucket
from mnemo.testing import ManualClock


def limits(clock: ManualClock, **rates: float | None) -> Limits:
    given = {"requests_per_minute": None, "tokens_per_minute": None, **rates}
    return Limits(clock=clock, **given)


class Line:
    """Callers of one lane; knows who had a turn, and when."""

    def __init__(self, clock: ManualClock, slots: int = 99, **rates: float | None) -> None:
        self.clock = clock
        self.limits = limits(clock, **rates)
        self.lane = Lane(slots)
        self.served: list[tuple[Any, float]] = []

    async def call(self, name: Any, tokens: float = 0) -> None:
        async with self.limits.turn(self.lane, tokens):
            self.served.append((name, self.clock.monotonic()))

    async def advance(self, seconds: float) -> None:
        """Move the clock second by second, as long as it takes to serve who is waiting."""
        await self.clock.advance(0)
        for _ in range(int(seconds)):
            await self.clock.advance(1)


async def test_requests_wait_for_their_minute():
    """A full minute's requests go at once, the others as the budget refills, in their order."""
    line = Line(ManualClock(), requests_per_minute=6)
    async with anyio.create_task_group() as tasks:
        for name in range(9):
            tasks.start_soon(line.call, name)
        await line.advance(31)
    assert line.served == [(n, 0) for n in range(6)] + [(6, 10), (7, 20), (8, 30)]


@pytest.mark.parametrize(
    ("per_minute", "asked", "served"),
    [
        # The estimate is what counts beforehand; a small one does not overtake a large one.
        (600, {"a": 500, "b": 300, "c": 10}, [("a", 0), ("b", 20), ("c", 21)]),
        # One larger than a minute's is not stuck for ever, and what follows pays for it.
        (60, {"a": 30, "b": 120, "c": 30}, [("a", 0), ("b", 30), ("c", 120)]),
    ],
)
async def test_tokens_wait_for_their_minute(per_minute, asked, served):
    """In their order, until the budget has refilled; a too large one for a full budget."""
    line = Line(ManualClock(), tokens_per_minute=per_minute)
    async with anyio.create_task_group() as tasks:
        for name, tokens in asked.items():
            tasks.start_soon(line.call, name, tokens)
            await anyio.lowlevel.checkpoint()
        await line.advance(125)
    assert line.served == served


async def test_what_was_really_used_corrects_the_estimate():
    """More makes the next one wait, less lets it go; the budget never exceeds its minute."""
    clock = ManualClock()
    bucket = Bucket(60, clock.monotonic)
    bucket.take(30)
    bucket.take(50 - 30)
    assert bucket.wait_for(20) == pytest.approx(10)
    bucket.take(10 - 50)
    assert bucket.wait_for(50) == 0
    bucket.take(-1_000)
    assert bucket.wait_for(60) == 0
    bucket.take(60)
    assert bucket.wait_for(1) == pytest.approx(1)


async def test_settling_lets_a_waiting_call_go_in_time():
    """A line limited by tokens looks again after its wait."""
    line = Line(ManualClock(), tokens_per_minute=60)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.call, "a", 60)
        await line.advance(1)
        line.limits.settle(60, 80)
        tasks.start_soon(line.call, "b", 10)
        await line.advance(40)
    assert line.served == [("a", 0), ("b", 30)]


async def test_who_leaves_the_line_takes_nothing():
    """A cancelled waiter costs neither budget nor slot, at the head of the line or behind."""
    line = Line(ManualClock(), requests_per_minute=1, slots=3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(line.call, "a")
        await line.advance(1)
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(line.call, "head")
            leaving.start_soon(line.call, "behind")
            await line.advance(5)
            leaving.cancel_scope.cancel()
        tasks.start_soon(line.call, "b")
        await line.advance(60)
    assert line.served == [("a", 0), ("b", 60)]
    assert line.lane.slots.value == 3


async def test_no_limit_is_no_wait():
    """Without rates only the slots count."""
    line = Line(ManualClock())
    for name in range(1_000):
        await line.call(name, 1e9)
    assert len(line.served) == 1_000

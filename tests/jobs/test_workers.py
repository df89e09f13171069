"""The one look for jobs: when it is made, and who is told of it."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest

from mnemo.errors import StoreError
from mnemo.jobs.job_rows import MOST_SOON, Owing
from mnemo.jobs.slots import JobSlots
from mnemo.jobs.workers import LEAST_S, OWING_PER_S, Poller
from mnemo.testing import ManualClock
from mnemo.values.jobs import JobKind


class Looks:
    """A poller of a store that owes what a test says, and when it looked."""

    def __init__(self) -> None:
        self.clock, self.slots = ManualClock(), JobSlots()
        self.is_told = self.are_claimed = False
        self.poller = Poller(
            clock=self.clock, slots=self.slots, owing=self.owing, is_told=lambda: self.is_told
        )
        self.repos: Sequence[str] = ()
        self.soon: list[tuple[str, float]] = []
        self.at: list[float] = []
        self.gate: anyio.Event | None = None
        self._pokes: dict[str, Callable[[], None]] = {}
        self.error: Exception | None = None

    async def owing(self, kinds: Collection[JobKind] | None) -> Owing:
        self.at.append(self.clock.monotonic())
        found = Owing(self.repos, self.soon, self.are_claimed)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return found

    async def pass_s(self, seconds: float, step: float = 0.5) -> None:
        for _ in range(round(seconds / step)):
            await self.clock.advance(step)

    async def open(self, id: str, poll_s: float) -> list[str]:
        """Open a repository; grows when it is woken."""
        woken: list[str] = []
        self._pokes[id] = partial(woken.append, id)
        self.slots.enter(id, self._pokes[id], poll_s)
        await self.clock.advance(0)
        return woken

    def close(self, id: str) -> None:
        self.slots.leave(id, self._pokes[id])


@asynccontextmanager
async def looking() -> AsyncIterator[Looks]:
    looks = Looks()
    async with anyio.create_task_group() as group:
        group.start_soon(looks.poller.run)
        await anyio.lowlevel.checkpoint()
        yield looks
        group.cancel_scope.cancel()


async def test_the_most_impatient_that_is_open_sets_the_pace():
    """Nobody looks where nothing is open."""
    async with looking() as looks:
        await looks.pass_s(10)
        assert looks.at == []
        await looks.open("slow", 5)
        await looks.pass_s(5)
        assert looks.at == [10, 15]
        await looks.open("fast", 1)
        await looks.pass_s(2)
        assert looks.at[2:] == [15, 16, 17]
        looks.close("fast")
        await looks.pass_s(10)
        assert looks.at[5:] == [18, 23]
        looks.close("slow")
        await looks.pass_s(20)
        assert looks.at[7:] == []


async def test_it_looks_when_the_next_job_falls_due():
    """Not more often than ``LEAST_S``, and less often the more others owe."""
    async with looking() as looks:
        looks.soon = [("r", 0.5), ("r", 0.7)]
        await looks.open("r", 2)
        await looks.pass_s(1)
        assert looks.at == [0, 0.5, 1]
        looks.soon = [("r", 0)]
        await looks.pass_s(3 * LEAST_S, LEAST_S)
        looks.soon = []
        looks.at.clear()
        looks.repos = [str(n) for n in range(3 * OWING_PER_S)]
        looks.poller.poke()
        await looks.pass_s(10)
        assert [round(b - a) for a, b in pairwise(looks.at[1:])] == [3, 3]


async def test_what_falls_due_for_others_alone_is_not_looked_after():
    """Unless a worker opens what owes; behind as many as are read, there may be one of here."""
    async with looking() as looks:
        looks.soon = [("elsewhere", 0.5), ("r", 1.5)]
        await looks.open("r", 2)
        await looks.pass_s(3)
        assert looks.at == [0, 1.5, 3]
        looks.soon = [("elsewhere", 0.5)]
        with looks.slots.working(None, 2):
            await looks.pass_s(1)
        assert looks.at[3:] == [3.5, 4]
        looks.soon = [("elsewhere", 1)] * MOST_SOON
        await looks.pass_s(3)
        assert looks.at[5:] == [4.5, 5.5, 6.5]
        looks.soon = [("elsewhere", 1)] * (MOST_SOON - 1)
        await looks.pass_s(3)
        assert looks.at[8:] == [7.5, 9.5]


async def test_looks_are_rare_where_others_tell_and_nothing_runs():
    """Not where jobs are claimed or fall due, nor those of a worker; a poke is not waited for."""
    async with looking() as looks:
        looks.is_told = True
        await looks.open("r", 1)
        await looks.pass_s(11)
        assert looks.at == [0, 5, 10]

        async def looked_then(seconds: float) -> list[float]:
            looks.at.clear()
            looks.slots.look()
            await looks.clock.advance(0)
            await looks.pass_s(seconds)
            return [at - looks.at[0] for at in looks.at]

        assert await looked_then(6) == [0, 5]
        looks.soon = [("r", 2)]
        assert await looked_then(5) == [0, 2, 4]
        looks.soon, looks.are_claimed = [], True
        assert await looked_then(2) == [0, 1, 2]
        looks.are_claimed = False
        with looks.slots.working(None, 1):
            assert await looked_then(2) == [0, 1, 2]
        looks.repos = ["elsewhere"]
        assert await looked_then(2) == [0, 1, 2]


async def test_only_what_owes_is_woken():
    """Once for each look."""
    async with looking() as looks:
        owing, other = await looks.open("owing", 1), await looks.open("other", 1)
        looks.repos = ["elsewhere", "owing"]
        await looks.pass_s(3, 1)
        assert (owing, other) == (["owing"] * 3, [])


@pytest.mark.parametrize("error", [StoreError("gone"), KeyError("gone")])
async def test_a_failed_look_is_made_again(error, caplog):
    """It is logged; who waits for one goes on."""
    async with looking() as looks:
        looks.error = error
        woken = await looks.open("r", 1)
        with anyio.fail_after(120):
            assert await looks.poller.found_since(0) == (1, ())
        looks.error, looks.repos = None, ["r"]
        await looks.pass_s(1)
        assert woken == ["r"]
    assert "are looked for again" in caplog.text


async def test_notices_of_other_processes_are_not_each_looked_after():
    """The first is, at once; those that follow it are together. Who asks here does not wait."""
    async with looking() as looks:
        await looks.open("r", 3_600)
        await anyio.sleep(LEAST_S)
        before, began = len(looks.at), anyio.current_time()
        for number in range(30):
            looks.slots.notice()
            await anyio.sleep(0.01)
            assert number or len(looks.at) == before + 1
        took_s = anyio.current_time() - began
        assert before + 2 <= len(looks.at) <= before + 1 + took_s / LEAST_S
        looks.slots.notice()
        await anyio.sleep(2 * LEAST_S)
        before = len(looks.at)
        for _ in range(3):
            looks.poller.poke()
            await looks.clock.advance(0)
        assert len(looks.at) == before + 3


@pytest.mark.parametrize("turns", range(12))
async def test_who_asks_is_answered_by_a_look_that_began_later(turns):
    """At whatever moment of another look the poke comes, what was written before it is found."""
    async with looking() as looks:
        looks.gate = anyio.Event()
        looks.slots.enter("r", lambda: None, 3_600)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
            if turns > 6:
                looks.gate.set()
        looks.repos, seen = ["r"], looks.poller.begun
        looks.poller.poke()
        looks.gate.set()
        with anyio.fail_after(120):
            assert await looks.poller.found_since(seen) == (seen + 1, ["r"])

"""Background work runs once per key at a time, and never less often than it must."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mnemo.errors import UsageError
from mnemo.runtime.flights import Errand, Flights


class Work:
    """Runs that end when they are let go."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.gate = anyio.Event()
        self.error: Exception | None = None

    async def run(self, key: str) -> int:
        self.runs.append(key)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return len(self.runs)


async def turns() -> None:
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("turns", range(8))
async def test_a_run_follows_every_poke(turns):
    """Whenever it is poked, in, at or behind the end of a run; afterwards there is no task."""
    begun: list[int] = []
    spawned: list[asyncio.Task[None]] = []

    async def work() -> None:
        begun.append(poked)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()

    def spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        spawned.append(asyncio.create_task(work()))

    errand, poked = Errand(spawn, work), 1
    errand.poke()
    errand.poke()
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    poked = 2
    errand.poke()
    for _ in range(10):
        await anyio.lowlevel.checkpoint()
    assert begun in ([1, 2], [2])
    assert len(spawned) <= 2
    assert all(task.done() for task in spawned)


async def test_an_errand_that_failed_or_was_cancelled_can_be_poked_again():
    """Its next run begins in a task of its own."""
    runs: list[asyncio.Task[None]] = []

    async def work() -> None:
        if len(runs) == 1:
            raise ValueError("failed")
        await anyio.sleep_forever()

    errand = Errand(lambda work: runs.append(asyncio.create_task(work())), work)
    errand.poke()
    await asyncio.wait(runs)
    assert isinstance(runs[0].exception(), ValueError)
    for number in (2, 3):
        errand.poke()
        assert len(runs) == number
        await anyio.lowlevel.checkpoint()
        runs[-1].cancel()
        await asyncio.wait(runs)


async def test_a_poke_during_a_run_that_fails_is_not_forgotten():
    """The next run begins by itself, and no other one beside it."""
    runs: list[asyncio.Task[None]] = []

    async def work() -> None:
        if len(runs) == 1:
            errand.poke()
            raise ValueError("failed")
        await anyio.sleep_forever()

    errand = Errand(lambda work: runs.append(asyncio.create_task(work())), work)
    errand.poke()
    await asyncio.wait(runs)
    assert isinstance(runs[0].exception(), ValueError)
    assert len(runs) == 2
    errand.poke()
    assert len(runs) == 2
    runs[1].cancel()
    await asyncio.wait(runs[1:])


async def test_an_errand_of_what_was_closed_does_nothing():
    """Who pokes it is not told: what is due is found at the next start."""

    def refuse(work: object) -> None:
        raise UsageError("it is closed")

    Errand(refuse, anyio.sleep_forever).poke()


async def test_triggers_during_a_run_cause_exactly_one_more():
    """Ten pokes while a key's run is under way are one further run."""
    work = Work()
    async with anyio.create_task_group() as group:
        flights = Flights(work.run, spawn=group.start_soon, limit=4)
        for _ in range(10):
            flights.poke("a")
            await turns()
        work.gate.set()
        await flights.settled("a")
    assert work.runs == ["a", "a"]
    assert flights.under_way == 0


async def test_who_joins_gets_the_result_of_the_run_under_way():
    """Two who join share one run."""
    work = Work()
    async with anyio.create_task_group() as group:
        flights = Flights(work.run, spawn=group.start_soon, limit=4)
        flights.poke("a")
        work.gate.set()
        assert await flights.join("a") == 1
        assert await flights.join("a") == 2


async def test_a_run_that_looked_too_early_is_asked_again():
    """Joining a run that began before and gave nothing gives the result of the next one."""
    due: list[str] = []
    looked, gate = anyio.Event(), anyio.Event()

    async def run(key: str) -> str | None:
        found = due.pop() if due else None
        looked.set()
        await gate.wait()
        return found

    async with anyio.create_task_group() as group:
        flights = Flights(run, spawn=group.start_soon, limit=4)
        flights.poke("a")
        await looked.wait()
        due.append("work")
        joined: list[str | None] = []

        async def join() -> None:
            joined.append(await flights.join("a"))

        for _ in range(2):
            group.start_soon(join)
        await turns()
        gate.set()
        await flights.settled("a")
    assert joined == ["work", "work"]


async def test_keys_run_side_by_side_up_to_the_limit():
    """With a limit of two, a third key waits for its turn."""
    work = Work()
    async with anyio.create_task_group() as group:
        flights = Flights(work.run, spawn=group.start_soon, limit=2)
        for key in "abc":
            flights.poke(key)
        await turns()
        assert sorted(work.runs) == ["a", "b"]
        work.gate.set()
    assert sorted(work.runs) == ["a", "b", "c"]


async def test_a_failed_run_is_told_to_who_joined_and_can_be_repeated():
    """An exception reaches the joiner; the key is free again afterwards."""
    work = Work()
    work.error = ValueError("no")
    work.gate.set()
    async with anyio.create_task_group() as group:
        flights = Flights(work.run, spawn=group.start_soon, limit=2)
        with pytest.raises(ValueError, match="no"):
            await flights.join("a")
        work.error = None
        assert await flights.join("a") == 2


async def test_a_repository_that_closes_is_no_failure(caplog):
    """A run that meets a closed repository is told to who joined, and nobody is alarmed."""
    work = Work()
    work.gate.set()
    work.error = UsageError("repository 'r' is closed")
    async with anyio.create_task_group() as group:
        flights = Flights(work.run, spawn=group.start_soon, limit=4)
        with pytest.raises(UsageError, match="closed"):
            await flights.join("a")
    assert [record for record in caplog.records if record.levelname != "INFO"] == []


async def test_who_waits_for_a_cancelled_run_is_told():
    """Closing ends the run and leaves no joiner waiting; nothing is started anew."""
    work = Work()
    errors: list[Exception] = []

    async def joining() -> None:
        try:
            await flights.join("a")
        except UsageError as error:
            errors.append(error)

    async with anyio.create_task_group() as outer, anyio.create_task_group() as group:
        flights = Flights(work.run, spawn=group.start_soon, limit=2)
        flights.poke("a")
        flights.poke("a")
        outer.start_soon(joining)
        await turns()
        group.cancel_scope.cancel()
    assert len(errors) == 1
    assert work.runs == ["a"]


async def test_a_run_that_outlives_the_group_it_may_start_in_harms_nobody():
    """A trigger during the last run before the end starts nothing, and fails nobody's group."""
    work, is_open = Work(), True
    async with anyio.create_task_group() as group:

        def spawn(*arguments: object) -> None:
            if not is_open:
                raise UsageError("closed")
            group.start_soon(*arguments)  # type: ignore[arg-type]

        flights = Flights(work.run, spawn=spawn, limit=4)
        flights.poke("a")
        await turns()
        flights.poke("a")
        is_open = False
        work.gate.set()
        with anyio.fail_after(120):
            await flights.settled("a")
        with pytest.raises(UsageError):
            await flights.join("a")
        with anyio.fail_after(120):
            await flights.settled("a")
    assert work.runs == ["a"]
    assert flights.under_way == 0

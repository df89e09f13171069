"""The task root: what hosts a service's tasks."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from mnemo.errors import UsageError
from mnemo.runtime.tasks import Branch, Places, TaskRoot, Threads, from_thread


@pytest.fixture
async def root() -> AsyncIterator[TaskRoot]:
    """An open root, closed when the test ends."""
    root = TaskRoot()
    root.open()
    yield root
    await root.aclose()


class Ended(BaseException):
    """No ``Exception``."""


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError(), Ended()])
async def test_a_task_that_fails_ends_no_other(root, error):
    """Whatever it raises; who waits for its result is told."""

    async def fail() -> None:
        raise error

    other = anyio.Event()
    root.spawn(fail)
    with pytest.raises((ValueError, UsageError)):
        await root.own(fail)
    root.spawn(_set, other)
    with anyio.fail_after(120):
        await other.wait()


async def _set(event: anyio.Event) -> None:
    event.set()


async def test_work_never_begins_inside_the_plain_call(root):
    """Not even under an eager task factory, which an application may have set: it is not asked."""
    asked = []

    def factory(loop, coroutine, **rest):
        asked.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **rest)

    asyncio.get_running_loop().set_task_factory(factory)
    begun = anyio.Event()
    root.spawn(_set, begun)
    asyncio.get_running_loop().set_task_factory(None)
    with anyio.fail_after(120):
        await begun.wait()
    assert not asked


async def test_a_branch_is_cancelled_before_the_rest(root):
    """Its tasks end, also those that have not begun, and it takes no more; others go on."""
    branch, ended, other = Branch(root.spawn), [], anyio.Event()

    async def wait(name: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(name)

    branch.spawn(wait, "begun")
    await anyio.lowlevel.checkpoint()
    branch.spawn(wait, "not begun")
    branch.cancel()
    with pytest.raises(UsageError, match="closed"):
        branch.spawn(wait, "late")
    root.spawn(_set, other)
    with anyio.fail_after(120):
        await other.wait()
        while len(ended) < 2:
            await anyio.lowlevel.checkpoint()
    assert sorted(ended) == ["begun", "not begun"]


async def test_an_act_whose_task_the_loop_cancels_before_its_first_step_is_told(
    root,
):
    """As at the end of ``asyncio.run``: who waits for the act does not wait for ever."""
    act = root.own(anyio.sleep_forever)
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
    with pytest.raises(UsageError, match="closed before"), anyio.fail_after(120):
        await act


@pytest.mark.parametrize("seed", range(20))
async def test_no_more_are_inside_than_there_are_places(seed):
    """Whoever comes, leaves or is cancelled meanwhile; once all have left, all may come again."""
    chance, places = random.Random(seed), Places(2)
    inside, most, entered = 0, 0, 0

    async def visit(stay: int) -> None:
        nonlocal inside, most, entered
        async with places:
            inside, entered = inside + 1, entered + 1
            most = max(most, inside)
            try:
                for _ in range(stay):
                    await anyio.lowlevel.checkpoint()
            finally:
                inside -= 1

    async def come_and_go() -> None:
        with anyio.CancelScope() as scope:
            if chance.random() < 0.3:
                asyncio.get_running_loop().call_soon(scope.cancel)
            await visit(chance.randrange(4))

    async with anyio.create_task_group() as group:
        for _ in range(30):
            group.start_soon(come_and_go)
            for _ in range(chance.randrange(4)):
                await anyio.lowlevel.checkpoint()
    assert (inside, most, places.waiting) == (0, 2, 0)
    before = entered
    await visit(0)
    assert entered == before + 1


@pytest.mark.parametrize("seed", range(5))
async def test_no_more_threads_run_than_may(seed):
    """Whenever callers come while others end."""
    chance, threads, lock = random.Random(seed), Threads(), threading.Lock()
    running = most = 0

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        with lock:
            running -= 1

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(threads.run, work)
            for _ in range(chance.randrange(12)):
                await anyio.lowlevel.checkpoint()
    assert (running, most) == (0, 1)


async def test_a_thread_is_answered_though_its_caller_is_cancelled():
    """What it waits for is no part of what is cancelled."""
    found = list[int]()

    async def counted() -> int:
        return await anyio.to_thread.run_sync(lambda: 7)

    with anyio.fail_after(10), anyio.CancelScope() as scope:

        def work() -> None:
            anyio.from_thread.run_sync(scope.cancel)
            found.append(from_thread(counted))

        await Threads().run(work)
    assert found == [7]

"""The turnstile: few requests begin in one turn of the loop, in the order of their coming."""

import asyncio

import anyio
import anyio.lowlevel
import pytest

from mnemo.web.gate import MOST_PER_TURN, Turnstile


class Crowd:
    """Callers of one turnstile, and the turn of the loop in which each of them passed."""

    def __init__(self) -> None:
        self.turnstile = Turnstile()
        self.passed: list[tuple[int, int]] = []
        self._turn = 0

    async def come(self, number: int) -> None:
        """Pass, and say when."""
        await self.turnstile.passed()
        self.passed.append((self._turn, number))

    async def count_turns(self) -> None:
        """Number the turns of the loop."""
        while True:
            await anyio.lowlevel.checkpoint()
            self._turn += 1


@pytest.mark.parametrize("count", [1, MOST_PER_TURN, 5 * MOST_PER_TURN + 1])
async def test_few_begin_in_one_turn_and_in_order(count):
    """However many come at once; again and again."""
    crowd = Crowd()
    async with anyio.create_task_group() as group:
        group.start_soon(crowd.count_turns)
        for _ in range(3):
            crowd.passed.clear()
            with anyio.fail_after(120):
                async with anyio.create_task_group() as callers:
                    for number in range(count):
                        callers.start_soon(crowd.come, number)
            turns = [turn for turn, _ in crowd.passed]
            assert [number for _, number in crowd.passed] == list(range(count))
            assert max(turns.count(turn) for turn in turns) <= MOST_PER_TURN
        group.cancel_scope.cancel()


async def test_who_leaves_takes_no_place():
    """All who wait are cancelled but the last: it passes in the next turn."""
    crowd = Crowd()
    tasks = [asyncio.create_task(crowd.come(n)) for n in range(4 * MOST_PER_TURN)]
    await anyio.lowlevel.checkpoint()
    for task in tasks[MOST_PER_TURN:-1]:
        task.cancel()
    with anyio.fail_after(120):
        await asyncio.wait(tasks)
    assert [number for _, number in crowd.passed] == [*range(MOST_PER_TURN), len(tasks) - 1]

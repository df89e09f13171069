"""What an append costs in the writer's thread: calls of Python and C functions, not seconds."""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mnemo import Mnemo
from mnemo.runtime.text import index_stems
from mnemo.store.tx import Tx
from mnemo.testing import ManualClock

MOST_CALLS = 112
MOST_STATEMENTS = 9
APPENDS = 50
ROUNDS = 3


@pytest.fixture(autouse=True)
def guarded_rows() -> None:
    """Nothing here: the check of locks that all other tests run would be counted."""


async def test_an_append_alone_costs_few_calls_in_the_writer(path: Path) -> None:
    """Each with its own transaction, full text and look at the session's owner."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1
        elif event == "c_call":
            calls[argument.__name__] += 1

    def profile(tx: Tx) -> None:
        sys.setprofile(count)

    def stop(tx: Tx) -> None:
        sys.setprofile(None)

    said = [(f"the kettle {n} is in the kitchen", f"looked at {n}") for n in range(APPENDS)]
    # A word is stemmed once in a process: whether other tests have said it is not to be counted.
    index_stems(" ".join(text for texts in said for text in texts))
    # By its own clock no lease is renewed meanwhile, however slow the machine.
    async with Mnemo(path, embedder=None, clock=ManualClock()) as memory:
        session = await (await memory.open_repo("r")).start_session("find the kettles")
        await session.append("the table of the repository is made", "")
        engine = memory._store.engine  # type: ignore[union-attr]
        # The writer may do other work meanwhile: the round without it is what an append costs.
        rounds = []
        for _ in range(ROUNDS):
            calls.clear()
            await engine.writing(profile)
            for observation, action in said:
                await session.append(observation, action)
            await engine.writing(stop)
            rounds.append(calls.copy())
    least = min(rounds, key=Counter.total)
    assert least["execute"] <= MOST_STATEMENTS * (APPENDS + 2)
    assert APPENDS < least.total() <= MOST_CALLS * APPENDS, least.most_common(40)

"""Reading only as far as it takes: the best few are those of the whole list."""

import asyncio
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from contracts.records import asked
from contracts.talk import said
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from world import store_at

from mnemo.testing import ManualClock
from mnemo.values.records import Ranking, RecordQuery

WORDS = ["tea", "milk", "kettle", "cup", "leaf", "東京都", "京都の"]
EVERYTHING = 10_000


class Filled:
    """A store with 400 messages of few words and all ages."""

    def __init__(self, store: Any, clock: ManualClock, loop: asyncio.AbstractEventLoop) -> None:
        self.store = store
        self.clock = clock
        self.loop = loop

    async def open(self) -> None:
        """Fill it; the same things are said in every store."""
        chance = random.Random(1)
        await self.store.open()
        messages = []
        for n in range(400):
            text = " ".join(chance.choices(WORDS, weights=range(7, 0, -1), k=chance.randint(1, 9)))
            at = self.clock.now() - timedelta(days=chance.choice([0, 1, 30, 365, 3_000, -5]))
            messages.append(said(n // 4, text, thread=f"t{n % 4}", at=at))
        await self.store.transcript("r").writing(lambda tx: tx.add(messages))

    def search(self, groups: list[list[str]], decay: float, limit: int) -> list[tuple[str, int]]:
        """Where what was found was said, best first."""
        ranking = Ranking(self.clock.now(), decay)
        wanted = RecordQuery(query=asked(*groups), ranking=ranking, limit=limit)
        hits = self.loop.run_until_complete(self.store.records("r").search(wanted))
        places = [(hit.record.session_id, hit.record.seq) for hit in hits]
        keys = [
            ranking.order(h.relevance, h.record.at, *p) for h, p in zip(hits, places, strict=True)
        ]
        assert keys == sorted(keys)
        return places


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    clock = ManualClock()
    path = tmp_path_factory.mktemp("ranked") / "m.db"
    store = store_at(path, clock)
    loop = asyncio.new_event_loop()
    filled = Filled(store, clock, loop)
    loop.run_until_complete(filled.open())
    yield filled
    loop.run_until_complete(store.aclose())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.mark.slow
@given(
    groups=st.lists(
        st.lists(
            st.sampled_from([*WORDS, "tea milk", "京都"]), min_size=1, max_size=2, unique=True
        ),
        min_size=1,
        max_size=3,
    ),
    decay=st.sampled_from([0.0, 0.3, 10.0]),
    limit=st.integers(1, 30),
)
@settings(max_examples=examples(80), derandomize=True, database=None)
def test_the_best_few_are_those_of_all(filled, groups, decay, limit):
    """Whatever the ages, a limit cuts the one exact order."""
    everything = filled.search(groups, decay, EVERYTHING)
    assert filled.search(groups, decay, limit) == everything[:limit]

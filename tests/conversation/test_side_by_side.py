"""Several who work on one thread at once: services, handles, and callers that are cancelled."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from talk_kit import Talk, open_talk, seqs, texts, turns, user
from world import store_at

from mnemo.errors import Conflict
from mnemo.events import CompactionRecorded
from mnemo.testing import ManualClock
from mnemo.values.derived import Compaction
from mnemo.values.messages import StoredMessage


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[list[Talk]]:
    """Two services on one file."""
    async with AsyncExitStack() as stack:
        clock = ManualClock()
        stores = [store_at(tmp_path / "talk.db", clock) for _ in range(2)]
        yield [await stack.enter_async_context(open_talk(store, clock)) for store in stores]


async def test_two_services_on_one_file_give_gapless_seqs(two):
    """Appends are serialised by the store, so seqs are distinct and without gaps."""
    stored: list[StoredMessage] = []

    async def append(talk: Talk, text: str) -> None:
        stored.extend(await talk.log().append([user(f"{text}a"), user(f"{text}b")]))

    async with anyio.create_task_group() as group:
        for number in range(16):
            group.start_soon(append, two[number % 2], str(number))
    assert sorted(seqs(stored)) == list(range(32))
    for talk in two:
        history = await talk.log().history()
        assert seqs(history) == list(range(32))
        assert all(
            a[:-1] == b[:-1] for a, b in zip(texts(history)[::2], texts(history)[1::2], strict=True)
        )


async def test_one_of_two_overlapping_records_is_refused(two):
    """The overlap is looked for in the inserting transaction, also between two services."""
    await two[0].log().append(turns(6))
    made: list[Compaction] = []
    refused: list[Conflict] = []

    async def compact(talk: Talk, start: int, end: int) -> None:
        try:
            made.append(await talk.log().compact(start, end, f"{start}"))
        except Conflict as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(compact, two[0], 0, 3)
        group.start_soon(compact, two[1], 2, 5)
    assert len(made) == len(refused) == 1
    assert await two[0].log().compactions() == await two[1].log().compactions() == made


async def test_one_of_two_writers_with_the_same_expectation_is_refused(two):
    """A stale writer with anything new gets a conflict and stores nothing."""
    outcomes: list[object] = []

    async def append(talk: Talk, text: str) -> None:
        try:
            outcomes.append(len(await talk.log().append(user(text), expected_seq=0)))
        except Conflict:
            outcomes.append("refused")

    async with anyio.create_task_group() as group:
        group.start_soon(append, two[0], "a")
        group.start_soon(append, two[1], "b")
    assert sorted(map(str, outcomes)) == ["1", "refused"]
    assert len(await two[0].log().history()) == 1


@pytest.mark.parametrize("after", range(10))
async def test_a_cancelled_compaction_is_told_of_if_it_was_made(talk, log, after):
    """Whoever gave up waiting changes nothing about the record, and the event follows it."""
    await log.append(turns(4))
    async with anyio.create_task_group() as group:
        group.start_soon(log.compact, 0, 2, "s")
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert len(talk.seen.of(CompactionRecorded)) == len(await log.compactions())
    assert (await log.compact(0, 2, "s")).summary_text == "s"
    assert len(talk.seen.of(CompactionRecorded)) == 1

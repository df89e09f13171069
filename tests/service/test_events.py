"""Events: who hears them, in what order, and what a slow listener loses."""

from __future__ import annotations

import anyio
import pytest

from mnemo.events import EventsDropped, StepAppended
from mnemo.testing import RecordingObserver


async def appended(kit, count: int) -> None:
    session = await kit.started()
    for number in range(count):
        await session.append(f"o{number}", "")


async def test_a_bad_observer_stops_nobody(open_kit):
    """One raises, one never returns; appends go on and a third sees all in order."""
    kit = await open_kit()

    def raising(event) -> None:
        raise RuntimeError("an observer's own trouble")

    async def hanging(event) -> None:
        await anyio.sleep_forever()

    kit.memory.subscribe(raising)
    kit.memory.subscribe(hanging)
    third = RecordingObserver()
    kit.memory.subscribe(third)
    await appended(kit, 3)
    assert [event.step_index for event in third.of(StepAppended)] == [0, 1, 2]


async def test_a_lagging_reader_is_told_what_it_lost(open_kit):
    """With buffer=4 and 10 events it sees EventsDropped(6) and the last four."""
    kit = await open_kit()
    session = await kit.started()
    kit.model.block()
    async with kit.memory.events(buffer=4) as events:
        for number in range(10):
            await session.append(f"o{number}", "")
        seen = [await anext(events) for _ in range(5)]
    assert isinstance(seen[0], EventsDropped)
    assert seen[0].count == 6
    assert [event.step_index for event in seen[1:]] == [6, 7, 8, 9]
    kit.model.unblock()


async def test_a_cancelled_subscription_hears_nothing_more(open_kit):
    """cancel() is idempotent, for functions and coroutine functions."""
    kit = await open_kit()
    plain, slow = RecordingObserver(), RecordingObserver()

    async def through_a_queue(event) -> None:
        slow(event)

    subscriptions = [kit.memory.subscribe(plain), kit.memory.subscribe(through_a_queue)]
    await appended(kit, 1)
    await kit.until(lambda: bool(slow.of(StepAppended)))
    for subscription in subscriptions:
        subscription.cancel()
        subscription.cancel()
    before = len(plain.events), len(slow.events)
    await appended(kit, 2)
    await kit.at_rest()
    assert (len(plain.events), len(slow.events)) == before


async def test_closing_ends_the_stream_after_what_is_buffered(open_kit):
    """A reader gets what is due, and then its iteration ends."""
    kit = await open_kit()
    async with kit.memory.events() as events:
        await appended(kit, 2)
        await kit.at_rest()
        await kit.memory.aclose()
        kinds = [type(event) async for event in events]
    assert kinds.count(StepAppended) == 2


async def test_an_asynchronous_observer_gets_what_is_due_before_the_end(open_kit):
    """aclose delivers what is due before it returns."""
    kit = await open_kit()
    seen = []

    async def observer(event) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(type(event))

    kit.memory.subscribe(observer)
    await appended(kit, 5)
    await kit.memory.aclose()
    assert seen.count(StepAppended) == 5


async def test_a_buffer_has_room_for_something(open_kit):
    """events(buffer=0) is ValueError."""
    kit = await open_kit()
    with pytest.raises(ValueError, match="buffer"):
        async with kit.memory.events(buffer=0):
            pass


async def test_every_event_says_where_and_when(open_kit):
    """repo_id and a time of the service's clock are on each event."""
    kit = await open_kit()
    await appended(kit, 1)
    await kit.repo.recall("o0", reason=False)
    assert kit.seen.events
    assert {event.repo_id for event in kit.seen.events} == {"r"}
    assert {event.at for event in kit.seen.events} == {kit.clock.now()}

"""Appends: durable first, idempotent by key, bounded, safe to cancel."""

import anyio
import pytest

from mnemo import Config, PendingQueueFull, SessionState, StoreError, UsageError
from mnemo.events import StepAppended


async def test_a_hanging_model_never_holds_an_append(kit):
    """Given a blocked model, 50 appends all return with indexes 0 to 49."""
    kit.model.block()
    session = await kit.started()
    steps = [await session.append(f"observation {n}", "") for n in range(50)]
    assert [step.index for step in steps] == list(range(50))
    assert session.state is SessionState.COLLECTING
    kit.model.unblock()


async def test_a_full_backlog_holds_the_append_until_there_is_room(open_kit):
    """Beyond max_append_backlog an append waits for the model, then gets the next index."""
    kit = await open_kit(config=Config(session={"max_append_backlog": 4}))
    kit.model.block()
    session = await kit.started()
    for number in range(4):
        await session.append(f"observation {number}", "")
    indexes = []

    async def one_more() -> None:
        indexes.append((await session.append("observation 4", "")).index)

    async with anyio.create_task_group() as group:
        group.start_soon(one_more)
        await kit.until(lambda: kit.model.waiting == 1)
        assert indexes == []
        assert session.statistics().append_backlog == 4
        kit.model.unblock()
    assert indexes == [4]


async def test_a_waiting_append_that_is_cancelled_leaves_no_trace(open_kit):
    """Cancelling an append that waits for room records nothing."""
    kit = await open_kit(config=Config(session={"max_append_backlog": 1}))
    kit.model.block()
    session = await kit.begun("first", "")
    with anyio.move_on_after(0.02):
        await session.append("never", "")
    kit.model.unblock()
    assert (await session.append("second", "")).index == 1


async def test_a_queued_append_beyond_the_backlog_is_refused(open_kit):
    """Append_async beyond the limit raises PendingQueueFull and no callback ever runs."""
    kit = await open_kit(config=Config(session={"max_append_backlog": 4}))
    kit.model.block()
    session = await kit.started()
    for number in range(4):
        await session.append(f"observation {number}", "")
    called = []
    with pytest.raises(PendingQueueFull) as full:
        session.append_async("one too many", "", called.append)
    assert full.value.reason == "append_backlog_full"
    kit.model.unblock()
    await kit.at_rest()
    assert called == []


async def test_a_repeated_key_gives_the_first_step(collecting):
    """Two appends with one key are one step and one event."""
    kit, session = collecting
    first = await session.append("said", "done", key="k")
    again = await session.append("said otherwise", "done", key="k")
    assert again == first
    assert len(kit.seen.of(StepAppended)) == 1
    assert session.statistics().steps == 1


async def test_a_key_is_known_in_every_state(session):
    """A client that lost the answer may ask again after the close."""
    first = await session.append("said", "done", key="k")
    await session.close()
    assert (await session.append("said", "done", key="k")).node_id == first.node_id
    await session.wait_for("ready")
    await session.commit()
    assert (await session.append("said", "done", key="k")).node_id == first.node_id


async def test_one_key_at_once_is_one_step(session):
    """Concurrent appends with one key meet in one step."""
    ids = []

    async def one() -> None:
        ids.append((await session.append("said", "", key="k")).node_id)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(one)
    assert len(set(ids)) == 1
    assert session.statistics().steps == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"observation": " ", "action": "\t"},
        {"observation": "", "action": ""},
        {"observation": None, "action": "a"},
        {"observation": 3, "action": "a"},
        {"observation": "o", "action": "a", "metadata": {"x": object()}},
        {"observation": "o", "action": "a", "metadata": {"x": float("nan")}},
        {"observation": "o", "action": "a", "actor": " "},
        {"observation": "o", "action": "a", "key": ""},
        {"observation": "o", "action": "a", "at": "yesterday"},
    ],
)
async def test_what_cannot_be_stored_is_refused(session, arguments):
    """A bad argument is ValueError before the state is looked at, and records nothing."""
    with pytest.raises(ValueError):  # noqa: PT011 - each argument has a message of its own
        await session.append(**arguments)
    assert session.statistics().steps == 0


async def test_one_side_of_a_step_may_be_empty(session):
    """Only both texts blank is an error."""
    assert (await session.append("seen", "")).index == 0
    assert (await session.append("", "done")).index == 1


async def test_strange_characters_are_kept_or_replaced(session):
    """U+0000 and lone surrogates become U+FFFD; everything else round-trips."""
    step = await session.append("a\0b\ud800c 日本 🐈", "", metadata={"n": [1, {"x": None}]})
    assert step.observation == "a\ufffdb\ufffdc 日本 🐈"
    assert step.metadata == {"n": [1, {"x": None}]}


async def test_a_time_without_zone_is_utc_and_may_go_backwards(session):
    """`at` is kept as given; without a zone it means UTC."""
    from datetime import UTC, datetime

    await session.append("later", "", at=datetime(2024, 5, 1, tzinfo=UTC))
    step = await session.append("earlier", "", at=datetime(2023, 5, 1))
    assert step.at == datetime(2023, 5, 1, tzinfo=UTC)
    assert step.index == 1


async def test_a_step_is_taken_in_although_its_callback_cannot_be_started(collecting):
    """The step, its key and who waits for it are well; the next callback runs them all."""
    kit, session = collecting
    work, heard = session._work, []
    spawn = work.callbacks._spawn

    def refuse(*_: object) -> None:
        raise UsageError("it is closed")

    work.callbacks._spawn = refuse
    first = session.append_async("said", "done", heard.append, key="k")
    again = session.append_async("said", "done", heard.append, key="k")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(work.drained)
            assert (await session.append("said", "done", key="k")).index == 0
        assert [await first, await again] == ["appended", "appended"]
        assert session.statistics().steps == 1
        assert (await session.append("other words", "", key="k")).index == 0
        work.callbacks._spawn = spawn
        await session.append_async("more", "", heard.append)
        await kit.until(lambda: len(heard) == 3)


async def test_what_listens_to_an_append_sees_its_step_in_the_session(collecting):
    """Callers that wait go on in a later turn; those who listen are told when all is noted."""
    _, session = collecting
    work, seen = session._work, []
    appending = work.submit(session._draft("said", "done", None, None, "k", None))
    appending.listeners.append(lambda step: seen.append((work.keys["k"] is step, work.in_flight)))
    appending.listeners.append(lambda step: seen.append(work.the_book().steps == [step]))
    assert (await appending.wait()).index == 0
    assert seen == [(True, 0), True]


async def test_an_append_that_the_store_does_not_take_leaves_nothing(kit, monkeypatch):
    """Its key is free again, and the session ends."""
    session = await kit.started()
    sessions = session._work.parts.store

    def refuse(*given):
        raise StoreError("the store is closed")

    with monkeypatch.context() as refusing:
        refusing.setattr(sessions, "append", refuse)
        with pytest.raises(StoreError):
            await session.append("tea", "", key="k")
    assert (await session.append("tea", "", key="k")).index == 0
    await session.aclose()

"""``repo.notes`` as an application has it: sessions' costs, shutdown, statistics, restart."""

import asyncio
import threading

import anyio
import pytest
from helpers import repository
from notes_kit import NOTHING, TRIP, reply, user, writes

from mnemo import Config, Mnemo, UsageError
from mnemo.testing import HashingEmbedder, RecordingObserver, ScriptedChatModel


async def test_a_session_receives_the_cost(open_kit):
    """The cost of an update is added to the session that is given, by value or id."""
    kit = await open_kit()
    kit.model.script("update_notes", [reply(writes()), NOTHING])
    session = await kit.started()
    update = await kit.repo.notes.update_after_task(TRIP, iterations=10, session=session)
    assert update.wrote
    assert update.usage.cost_usd == 0.02
    assert session.statistics().cost_usd == 0.02
    assert (await kit.repo.statistics()).notes.notes == 1


async def test_a_repository_is_not_idle_while_its_notes_are_updated(open_kit):
    """Closing it would cut the update short; nor is it while a session is open."""
    kit, idle = await open_kit(), []

    async def look(progress):
        idle.append(await kit.repo.is_idle())

    kit.model.script("update_notes", NOTHING)
    await kit.repo.notes.update_after_task(TRIP, iterations=10, on_progress=look)
    assert idle
    assert not any(idle)
    assert await kit.repo.is_idle()
    session = await kit.started()
    assert not await kit.repo.is_idle()
    await session.aclose()
    assert await kit.repo.is_idle()


async def test_an_observer_hears_of_the_end(open_kit):
    """``MemoryUpdateFinished`` comes before the awaited call returns."""
    kit = await open_kit()
    kit.model.script("update_notes", NOTHING)
    await kit.repo.notes.update_after_task(TRIP, iterations=10)
    (event,) = [e for e in kit.seen.events if type(e).__name__ == "MemoryUpdateFinished"]
    assert (event.repo_id, event.ran, event.turns) == ("r", True, 1)


async def test_what_was_judged_stays_so_over_a_restart(db):
    """Marks, notes and history live in the store."""
    model = ScriptedChatModel({"update_notes": [reply(writes()), NOTHING]})
    for turn in range(2):
        async with repository(db, "r", chat_model=model) as repo:
            update = await repo.notes.update_after_task(TRIP, iterations=10)
            assert update.skipped_because == ("nothing_new" if turn else None)
            assert (await repo.notes.read("travel")).body == "- Tokyo in March"


async def test_closing_the_service_stops_what_does_not_end(db):
    """After the grace an update is cancelled, its part stays new, and its caller is told."""
    model = ScriptedChatModel({"update_notes": NOTHING})
    model.block()
    seen = RecordingObserver()
    config = Config(shutdown_grace_s=0.01)
    memory = Mnemo(db, chat_model=model, embedder=HashingEmbedder(), config=config)
    await memory.open()
    memory.subscribe(seen)
    repo = await memory.open_repo("r")
    operation = repo.notes.update_after_task_async(TRIP, iterations=10)
    with anyio.fail_after(120):
        while not model.waiting:  # noqa: ASYNC110 - the model's state, no event
            await anyio.sleep(0.001)
        await memory.aclose()
    assert operation.done
    assert (await operation).error is not None
    async with Mnemo(db, embedder=HashingEmbedder()) as again:
        notes = (await again.open_repo("r")).notes
        assert (await notes.update_after_task(TRIP, iterations=50)).skipped_because == "no_model"


async def test_no_observer_can_set_off_another_update(db):
    """Neither one that is a function nor one that is told in a task of its own."""
    model = ScriptedChatModel({"update_notes": NOTHING})
    inner = []
    async with Mnemo(db, chat_model=model, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")

        async def again(event):
            if type(event).__name__ == "MemoryUpdateFinished":
                more = [user("We also visit Nara.")]
                inner.append(await repo.notes.update_after_task(more, iterations=50))

        def at_once(event):
            if type(event).__name__ == "MemoryUpdateFinished":
                more = [user("We also visit Kyoto.")]
                operations.append(repo.notes.update_after_task_async(more, iterations=50))

        operations = []
        memory.subscribe(again)
        memory.subscribe(at_once)
        assert (await repo.notes.update_after_task(TRIP, iterations=10)).ran
        with anyio.fail_after(120):
            while not inner:  # noqa: ASYNC110 - told in a task of the service's
                await anyio.sleep(0.001)
        inner.append(await operations[0])
    assert [update.skipped_because for update in inner] == ["nested", "nested"]
    assert len(model.requests) == 1


async def test_a_held_handle_is_refused_in_another_event_loop(db):
    """It is told at once, where it used to wait for ever, and the own loop goes on."""
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        notes = (await memory.open_repo("r")).notes
        await notes.write("travel", "- Tokyo", "Travel")
        asked = [user("Remember that tea is at four.")]

        async def elsewhere():
            for call in (
                lambda: notes.write("food", "- figs", "Food"),
                lambda: notes.read("travel"),
                lambda: notes.recall("travel"),
            ):
                with pytest.raises(UsageError, match="another event loop; open one per loop"):
                    await call()
            update = await notes.update_after_task(asked, iterations=1)
            later = await notes.update_after_task_async(asked, iterations=1)
            return [type(one.error) for one in (update, later)]

        thread = threading.Thread(target=lambda: told.extend(asyncio.run(elsewhere())))
        told: list[type] = []
        thread.start()
        with anyio.fail_after(120):
            while thread.is_alive():  # noqa: ASYNC110 - a thread, no event
                await anyio.sleep(0.001)
        assert told == [UsageError, UsageError]
        assert [note.topic for note in await notes.list()] == ["travel"]


async def test_a_held_handle_is_refused_once_its_repository_is_closed(db):
    """Notes end with their repository, as its conversations do."""
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        notes = (await memory.open_repo("r")).notes
        await memory.close_repo("r")
        with pytest.raises(UsageError, match="is closed"):
            await notes.write("travel", "- Tokyo", "Travel")
        with pytest.raises(UsageError, match="is closed"):
            await notes.list()
        assert (await notes.update_after_task([], iterations=1)).skipped_because == "closing"

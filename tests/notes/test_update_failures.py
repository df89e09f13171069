"""Failure at every await and every call: nothing but cancellation leaves, and the end is told."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from helpers import Moody
from notes_kit import NOTHING, TRIP, reply, task, writes
from world import store_at

from mnemo.errors import ModelUnavailable, StoreError, UsageError
from mnemo.notes.notes import Notes
from mnemo.testing import HashingEmbedder, ManualClock, ScriptedChatModel

HISTORY = task("We fly to Tokyo in March. Please remember that Rex is my dog.", "Ok.")


class Tripwire:
    """Counts every call that goes through it, and raises at the *at*-th."""

    def __init__(self, at: int, error: BaseException | None = None) -> None:
        self.at = at
        self.count = 0
        self.error = error or OSError("made to fail")

    def step(self) -> None:
        """One more call."""
        self.count += 1
        if self.count == self.at:
            raise self.error

    def around(self, target: Any) -> Any:
        """*target*, with every method counted."""
        return _Wired(target, self)


class _Wired:
    def __init__(self, target: Any, wire: Tripwire) -> None:
        self._target = target
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return value
        if name in ("reading", "writing"):
            return self._transaction(value)
        wire = self._wire

        def called(*args: Any, **rest: Any) -> Any:
            wire.step()
            return value(*args, **rest)

        return called

    def _transaction(self, run: Callable[..., Any]) -> Any:
        async def transaction(work: Callable[[Any], Any]) -> Any:
            self._wire.step()
            result = await run(lambda tx: work(_Wired(tx, self._wire)))
            self._wire.step()
            return result

        return transaction


async def _update_with(open_notes, wire: Tripwire, name: str, **rest: Any):
    """An update in which everything that it calls goes through *wire*."""
    model = ScriptedChatModel(
        {
            "update_notes": [
                reply({"name": "list_notes"}, {"name": "read_note", "topic": "travel"}),
                reply(writes(body="- old\n- Tokyo")),
                NOTHING,
            ]
        }
    )
    kit = await open_notes(
        model=wire.around(model), embedder=wire.around(HashingEmbedder()), wrap=wire.around
    )
    return kit, model


async def _prepared(kit) -> None:
    await kit.notes.write("travel", "- old", "Travel")


@pytest.fixture
def kind() -> str:
    """One store is enough for what comes before and after it."""
    return "memory"


async def _count_calls(open_notes) -> int:
    wire = Tripwire(0)
    kit, _ = await _update_with(open_notes, wire, "count")
    await _prepared(kit)
    before = wire.count
    update = await kit.update(HISTORY, task_id="t")
    assert (update.error, update.wrote, len(update.notes)) == (None, True, 2)
    return wire.count - before


@pytest.mark.slow
@pytest.mark.parametrize("error", [OSError("made to fail"), StoreError("made to fail")])
@pytest.mark.long
async def test_a_failure_at_every_call_is_an_error_and_an_end(open_notes, error, caplog):
    """Whatever call fails, ``update_after_task`` returns, and the end is told exactly once."""
    caplog.set_level(logging.CRITICAL)
    calls = await _count_calls(open_notes)
    assert calls > 40
    for at in range(1, calls + 1):
        wire = Tripwire(0, error)
        kit, _ = await _update_with(open_notes, wire, str(at))
        await _prepared(kit)
        wire.count, wire.at = 0, at
        update = await kit.update(HISTORY, task_id="t")
        wire.at = 0
        assert kit.phases.count("finished") == kit.phases.count("started"), at
        if update.ran:
            assert kit.phases[0] == "started"
            assert kit.phases[-1] == "finished"
        assert len(kit.finished) == 1, at
        assert kit.finished[0].wrote == update.wrote
        note = await kit.notes.read("travel")
        assert note.body.split("\n")[0] == "- old"
        assert note.version == len(await kit.notes.history("travel"))


@pytest.mark.slow
@pytest.mark.long
async def test_after_any_failure_the_next_update_keeps_the_request(open_notes, caplog):
    """What a failed update did not keep, the next one over the same part does: once."""
    caplog.set_level(logging.CRITICAL)
    calls = await _count_calls(open_notes)
    for at in range(1, calls + 1):
        wire = Tripwire(0)
        kit, model = await _update_with(open_notes, wire, str(at))
        await _prepared(kit)
        wire.count, wire.at = 0, at
        await kit.update(HISTORY, task_id="t")
        wire.at = 0
        await kit.clock.advance(500)
        model.script("update_notes", NOTHING)
        await kit.update(HISTORY, task_id="t")
        bodies = [(await kit.notes.read(note.topic)).body for note in await kit.notes.list()]
        assert sum(body.count("Rex is my dog") for body in bodies) == 1, at


@pytest.mark.long
@pytest.mark.slow
async def test_a_cancellation_at_every_turn_of_the_loop_leaves_everything_whole(open_notes):
    """Cancelled after k turns of the event loop, for every k: the end is told, the part is new."""
    finished = False
    turns = 0
    while not finished:
        kit, _ = await _update_with(open_notes, Tripwire(0), str(turns))
        await _prepared(kit)
        result = []

        async def run(kit=kit, result=result):
            result.append(await kit.update(HISTORY, task_id="t"))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert kit.phases.count("finished") == kit.phases.count("started"), turns
        assert len(kit.finished) == kit.phases.count("started"), turns
        note = await kit.notes.read("travel")
        assert note.body in ("- old", "- old\n- Tokyo")
        finished = bool(result)
        if not finished and kit.finished:
            assert kit.finished[0].cancelled
            store = kit.store.notes("r")
            assert not await store.reading(lambda tx: tx.is_done("t"))
        turns += 1
    assert turns > 10


@pytest.mark.parametrize(
    "arguments",
    [
        {"iterations": -1},
        {"iterations": "many"},
        {"iterations": True},
        {"history": None},
        {"history": "text"},
        {"history": 7},
        {"history": [{"role": "nobody"}]},
        {"history": [object()]},
        {"outcome": "perhaps"},
        {"history": [TRIP[1]] * 10_001},
        {"tools": 7},
        {"tools": {"name": "search"}},
        {"tools": [{}] * 1_001},
        {"session": 7},
        {"task_id": " "},
        {"thread_id": 3},
        {"on_progress": "not callable"},
    ],
)
async def test_wrong_arguments_are_an_error_of_the_update(kit, arguments, caplog):
    """Checking arguments is guarded too: an error, one event, and no exception."""
    given = {"history": TRIP, "iterations": 10, **arguments}
    update = await kit.notes.update_after_task(given.pop("history"), **given)
    assert isinstance(update.error, ValueError)
    assert len(kit.finished) == 1
    operation = kit.notes.update_after_task_async(arguments.get("history", TRIP), **given)
    assert isinstance((await operation).error, ValueError)


async def test_a_store_that_fails_while_the_prompt_is_built(open_notes):
    """An error, one event, and ``finished`` exactly once."""

    class Failing:
        def __init__(self, store):
            self._store = store
            self.reads = 0

        async def reading(self, work):
            self.reads += 1
            if self.reads == 2:
                raise StoreError("gone while building")
            return await self._store.reading(work)

        async def writing(self, work):
            return await self._store.writing(work)

    kit = await open_notes(wrap=Failing)
    update = await kit.update()
    assert isinstance(update.error, StoreError)
    assert update.ran
    assert not kit.asked
    assert kit.phases == ["started", "finished"]
    assert len(kit.finished) == 1


async def test_a_progress_callback_may_do_what_it_likes(open_notes, caplog):
    """One that raises is logged and changes nothing; asynchronous ones are awaited."""
    kit = await open_notes(reply(writes()), NOTHING)

    def raising(progress):
        raise RuntimeError("no")

    assert (await kit.update(on_progress=raising)).wrote
    told = []

    async def slowly(progress):
        await anyio.lowlevel.checkpoint()
        told.append((progress.phase, progress.turn, progress.topic))

    kit = await open_notes(reply(writes()), NOTHING)
    await kit.update(task("We fly to Tokyo in March, or not"), on_progress=slowly, thread_id="x")
    assert told == [
        ("started", 0, None),
        ("turn", 1, None),
        ("tool", 1, "travel"),
        ("turn", 2, None),
        ("finished", 2, None),
    ]


async def test_a_model_whose_own_work_was_cancelled_is_no_cancellation(open_notes):
    """A foreign ``CancelledError`` is an error like any other."""
    import asyncio

    async def complete(request):
        raise asyncio.CancelledError

    kit = await open_notes(model=ScriptedChatModel({"update_notes": complete}))
    update = await kit.update()
    assert update.error is not None
    assert not kit.finished[0].cancelled


async def test_cancelling_tells_the_end_and_goes_its_way(kit):
    """The event says ``cancelled``, the progress ends, and the part stays new."""
    kit.model.block()
    async with anyio.create_task_group() as group:
        group.start_soon(kit.update)
        while not kit.model.waiting:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert kit.finished[0].cancelled
    assert kit.phases == ["started", "turn", "finished"]
    kit.model.unblock()
    assert (await kit.update()).ran


async def test_closing_gives_a_grace_and_then_stops(kit):
    """An awaited update that does not end is stopped, and its caller gets a result."""
    kit.model.block()
    updates = []

    async def run():
        updates.append(await kit.update())

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        while not kit.model.waiting:
            await anyio.lowlevel.checkpoint()
        await kit.notes._aclose(0)
    (update,) = updates
    assert isinstance(update.error, UsageError)
    assert kit.finished[0].cancelled
    assert isinstance(kit.clock, ManualClock)


@pytest.mark.long
async def test_a_task_that_is_cancelled_outright_ends_its_update_as_well(open_notes):
    """asyncio's own ``cancel`` after k turns, for every k: one end, and every answer is counted."""
    for turns in itertools.count():
        store = store_at()
        await store.open()
        kit = await open_notes(reply(writes()), NOTHING, store=store)
        caller = asyncio.get_running_loop().create_task(kit.update(task_id="t"))
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        caller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await caller
        assert kit.phases.count("finished") == kit.phases.count("started"), turns
        assert len(kit.finished) == kit.phases.count("started"), turns
        if kit.finished:
            update_id = kit.finished[0].update_id
            rows = await kit.store.notes("r").reading(lambda tx, of=update_id: tx.usage(of))
            assert len(rows) * 0.01 == pytest.approx(kit.meter.total.cost_usd or 0.0), turns
        if not caller.cancelled():
            break
    assert turns > 10


async def test_a_callback_whose_own_wait_was_cancelled_cancels_nothing(kit, caplog):
    """What the callback waited for was cancelled, and nobody else."""

    async def on_progress(progress):
        waited = asyncio.get_running_loop().create_future()
        waited.cancel()
        await waited

    update = await kit.update(on_progress=on_progress)
    assert (update.ran, update.error) == (True, None)
    assert "on_progress failed" in caplog.text


class Unspeakable(Exception):
    """An error that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_an_error_that_cannot_be_shown_is_one_all_the_same(open_notes, caplog):
    """While the history is copied, and while a text is embedded."""

    class Broken(list):
        def __iter__(self):
            raise Unspeakable

    kit = await open_notes(reply(writes()), NOTHING, embedder=Moody(Unspeakable()))
    update = await kit.update(Broken(HISTORY))
    assert isinstance(update.error, Unspeakable)
    assert kit.finished[0].error == "Unspeakable: (it cannot be shown)"
    update = await kit.update()
    assert (update.wrote, update.error) == (True, None)


async def test_an_event_that_cannot_be_published_does_not_hide_the_end(open_notes, caplog):
    """The progress is told, and the update stays what it is."""
    kit = await open_notes(reply(writes()), NOTHING)

    def publish(event):
        raise RuntimeError("nobody listens")

    notes = Notes(replace(kit.notes._parts, publish=publish))
    update = await notes.update_after_task(TRIP, iterations=10, on_progress=kit.told.append)
    assert (update.wrote, update.error) == (True, None)
    assert kit.phases.count("finished") == 1


async def test_an_error_that_is_tried_again_is_logged_without_secrets(open_notes, caplog):
    """So is one of the embedder's."""
    caplog.set_level("INFO", logger="mnemo")
    said = "bad key sk-abcdefghijklmnop1234"
    kit = await open_notes(
        ModelUnavailable(said, retryable=True),
        reply(writes()),
        NOTHING,
        embedder=Moody(ValueError(said)),
    )
    assert (await kit.update()).wrote
    assert "[redacted:key]" in caplog.text
    assert "abcdefghijklmnop" not in caplog.text

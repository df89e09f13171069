"""Updates in the background: held for their window, superseded, cancelled, closed."""

from types import MappingProxyType

import anyio
import anyio.lowlevel
import anyio.to_thread
from helpers import until
from notes_kit import NOTHING, TRIP, reply, user, writes

from mnemo.runtime.operations import PendingOperation
from mnemo.values.messages import Message, ToolCall


async def test_a_background_update_gives_its_result(open_notes):
    """It returns at once; awaiting it gives the update, and the callback is told once."""
    kit = await open_notes(reply(writes()), NOTHING)
    told = []
    operation = kit.notes.update_after_task_async(TRIP, iterations=10, callback=told.append)
    assert isinstance(operation, PendingOperation)
    update = await operation
    assert (update.ran, update.wrote) == (True, True)
    await until(lambda: told)
    assert [outcome.value for outcome in told] == [update]
    assert operation.done


async def test_its_copy_is_taken_before_it_returns(kit):
    """What the caller does to its history afterwards is not seen."""
    history = [dict(message) for message in TRIP]
    operation = kit.notes.update_after_task_async(history, iterations=10)
    history.clear()
    assert (await operation).ran
    assert len(kit.asked[0].messages) == len(TRIP) + 1


async def test_inside_the_window_it_is_held_and_a_newer_one_takes_its_place(kit):
    """Held until the window has passed; superseded by a newer call of the conversation."""
    await kit.update(thread_id="t")
    second = [*TRIP, user("We also visit Kyoto", id="m3")]
    third = [*second, user("And Nara", id="m4")]
    older = kit.notes.update_after_task_async(second, iterations=10, thread_id="t")
    counts = []

    async def held():
        counts.append((await kit.notes.statistics()).updates_held)

    await until(lambda: kit.notes._updater.counts["updates_held"] == 1)
    await held()
    newer = kit.notes.update_after_task_async(third, iterations=10, thread_id="t")
    assert (await older).skipped_because == "superseded"
    await until(lambda: kit.notes._updater.counts["updates_held"] == 1)
    assert len(kit.asked) == 1
    await kit.clock.advance(121)
    assert (await newer).ran
    assert '"begins": "We also visit Kyoto"' in kit.asked[1].messages[-1].content
    assert counts == [1]


async def test_at_shutdown_a_held_one_runs_at_once(kit):
    """Nothing that was accepted is lost by closing, within the grace."""
    await kit.update(thread_id="t")
    more = [*TRIP, user("We also visit Kyoto", id="m3")]
    operation = kit.notes.update_after_task_async(more, iterations=10, thread_id="t")
    await until(lambda: kit.notes._updater.counts["updates_held"] == 1)
    await kit.notes._aclose(5)
    assert (await operation).ran
    late = kit.notes.update_after_task_async(more, iterations=10)
    assert (await late).skipped_because == "closing"


async def test_it_can_be_cancelled_while_it_runs(kit):
    """``cancel`` works on a running update: its event says so, awaiting it gives the rest."""
    kit.model.block()
    operation = kit.notes.update_after_task_async(TRIP, iterations=10)
    await until(lambda: kit.model.waiting)
    assert operation.cancel()
    update = await operation
    assert update.error is not None
    assert kit.finished[0].cancelled
    assert not operation.cancel()


async def test_one_at_a_time_per_conversation_and_a_few_at_once(open_notes):
    """A second call waits for the first of its conversation; others run beside, up to a bound."""
    kit = await open_notes(max_concurrent=2)
    kit.model.block()
    same = [kit.notes.update_after_task_async(TRIP, iterations=10, thread_id="t") for _ in range(2)]
    others = [
        kit.notes.update_after_task_async(
            [user(f"Conversation number {n}")], iterations=10, thread_id=f"o{n}"
        )
        for n in range(2)
    ]
    await until(lambda: kit.model.waiting == 2)
    statistics = await kit.notes.statistics()
    assert (statistics.updates_running, statistics.updates_waiting) == (2, 2)
    kit.model.unblock()
    first, second = [await operation for operation in same]
    assert (first.ran, second.skipped_because) == (True, "nothing_new")
    assert all([(await operation).ran for operation in others])


async def test_outside_of_the_loop_it_is_an_error_of_the_update(kit, caplog):
    """Called from a plain thread it does not raise either."""
    operation = await anyio.to_thread.run_sync(
        lambda: kit.notes.update_after_task_async(TRIP, iterations=10)
    )
    assert (await operation).error is not None


async def test_a_callback_that_is_none_is_an_error_of_the_update(kit, caplog):
    """A plain function that never raises."""
    operation = kit.notes.update_after_task_async(TRIP, iterations=10, callback="no")
    assert isinstance((await operation).error, ValueError)
    assert not kit.asked


async def test_no_depth_of_what_it_was_given_is_shared(kit):
    """Calls, blocks and tools that the caller changes afterwards are asked about as they were."""
    call = ToolCall("c", "look", {"at": ["map"]})
    blocks = Message("user", [{"type": "text", "text": "We fly to Tokyo"}])
    tool = {"name": "look", "parameters": {"type": "object"}}
    history = [
        MappingProxyType({"role": "user", "content": "Where to?"}),
        {"role": "assistant", "tool_calls": [call]},
        Message("tool", "here", tool_call_id="c"),
        blocks,
    ]
    operation = kit.notes.update_after_task_async(history, iterations=10, tools=[tool])
    call.arguments["at"].append("clock")
    blocks.content[0]["text"] = "nothing"
    tool["parameters"]["type"] = "array"
    assert (await operation).error is None
    asked = kit.asked[0]
    assert asked.messages[1].tool_calls[0]["arguments"] == {"at": ["map"]}
    assert asked.messages[3].content == "We fly to Tokyo"
    assert asked.tools[0]["parameters"] == {"type": "object"}


async def test_names_that_cannot_be_stored_are_cleaned(open_notes):
    """Lone surrogates in ids harm no update."""
    kit = await open_notes(reply(writes()), NOTHING)
    update = await kit.update(task_id="\ud800", thread_id="\ud801", session="\ud802")
    assert (update.wrote, update.error) == (True, None)
    assert (await kit.update(task_id="\ud800")).skipped_because == "already_done"


async def test_closing_waits_for_callbacks(kit):
    """Who asked to be told is told before the repository is closed."""
    told = []

    async def callback(outcome):
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        told.append(outcome.value.ran)

    await kit.notes.update_after_task_async(TRIP, iterations=10, callback=callback)
    await kit.notes._aclose(5)
    assert told == [True]

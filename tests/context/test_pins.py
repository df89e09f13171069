"""Pins: messages that goals hold on to."""

import pytest
from window_kit import answered, called, said

from mnemo.context.goals import check_pins
from mnemo.errors import Conflict, NotFound
from mnemo.runtime.text import count_tokens
from mnemo.values.messages import Message


async def begun(threads, *goals: str):
    """A thread of three messages with goals."""
    await threads.say(said("zero"), said("one"), said("two"))
    for goal in goals:
        await threads.goals().add(goal)
    return threads.pins()


async def test_messages_are_pinned_to_goals(threads):
    """Links are messages times goals after removing repeats, existing ones included."""
    pins = await begun(threads, "first", "second")
    assert await pins.attach([1, 0, 1], [2, 1]) == 4
    assert await pins.attach([0], [1]) == 1
    zero, one = await pins.list()
    assert (zero.seq, zero.excerpt, zero.goal_ids) == (0, "zero", (1, 2))
    assert (one.seq, one.excerpt, one.goal_ids) == (1, "one", (1, 2))
    assert one.token_count == count_tokens("one")
    [stored] = (m for m in await threads.say(said("one", id=one.message_id)))
    assert stored.seq == 1


async def test_a_further_goal_is_added_to_the_pin(threads):
    """One pin per message, one link per pin and goal."""
    pins = await begun(threads, "first", "second")
    await pins.attach([0], [2])
    await pins.attach([0], [1])
    assert [pin.goal_ids for pin in await pins.list()] == [(1, 2)]


@pytest.mark.parametrize(
    ("seqs", "goal_ids", "error", "told"),
    [
        ([], [1], ValueError, "No message ids given"),
        ([0], [], ValueError, "No goal ids given"),
        ([], [], ValueError, "No message ids given; No goal ids given"),
        ([0], [1.5], ValueError, None),
        ([True], [1], ValueError, None),
        ([999, 0, -1], [1], NotFound, "Messages not found: -1, 999"),
        ([10**30], [1], NotFound, f"Messages not found: {10**30}"),
        ([0], [1, 9, 8], NotFound, "Goals not found: 8, 9"),
        ([0], [3, 1], Conflict, "Goals already completed: 3"),
        (
            [999],
            [3, 9],
            NotFound,
            "Messages not found: 999; Goals already completed: 3; Goals not found: 9",
        ),
    ],
)
async def test_what_cannot_be_pinned_is_refused_as_a_whole(threads, seqs, goal_ids, error, told):
    """The errors are told in the order of the table, and nothing is attached."""
    pins = await begun(threads, "first", "second", "third")
    await threads.goals().complete(3)
    with pytest.raises(error) as caught:
        await pins.attach(seqs, goal_ids)
    assert await pins.list() == []
    if told is not None:
        assert caught.value.__notes__ == [told]
        work = lambda tx: check_pins(tx, tx.thread("t"), seqs, goal_ids)  # noqa: E731
        assert str(await threads.parts.store.reading(work)) == told


async def test_a_pin_goes_with_the_last_active_goal_that_holds_it(threads):
    """Held by goals 1 and 2, completing 1 releases 0, completing 2 releases 1."""
    pins = await begun(threads, "first", "second")
    await pins.attach([0], [1, 2])
    assert (await threads.goals().complete(1)).released_pins == 0
    assert [pin.seq for pin in await pins.list()] == [0]
    assert (await threads.goals().complete(2)).released_pins == 1
    assert await pins.list() == []


@pytest.mark.parametrize(
    ("message", "excerpt"),
    [
        (said(" word " + "x" * 300), "word " + "x" * 194 + "…"),
        (said("y" * 200), "y" * 200),
        (said("y" * 201), "y" * 199 + "…"),
        (said(" \n "), "message 0"),
        (Message(role="assistant", content=None), "message 0"),
        (called("a", name="search"), "search"),
        (called("a", name="search", text=" looking "), "looking"),
        (answered("a", text="found"), "found"),
        (
            Message(
                role="assistant",
                tool_calls=[{"id": "c", "name": "think", "arguments": {"thought": " hm "}}],
            ),
            "hm",
        ),
    ],
)
async def test_an_excerpt_is_the_beginning_of_what_was_said(threads, message, excerpt):
    """300 characters give 200 that end with an ellipsis; no text gives the seq."""
    await threads.say(message)
    await threads.goals().add("goal")
    await threads.pins().attach([0], [1])
    [pin] = await threads.pins().list()
    assert pin.excerpt == excerpt


async def test_an_expired_message_can_neither_be_pinned_nor_stay_shown(threads):
    """Expiry is at once: it does not wait for the sweep."""
    pins = await begun(threads, "first")
    await pins.attach([0], [1])
    brief = threads.pins(ttl_s=60)
    threads.clock.advance(60)
    assert [pin.seq for pin in await brief.list()] == [0]
    threads.clock.advance(1)
    assert await brief.list() == []
    with pytest.raises(NotFound):
        await brief.attach([1], [1])

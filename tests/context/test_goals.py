"""Goals: what a thread is after, on two levels."""

import pytest
from window_kit import START, said

from mnemo.errors import Conflict, NotFound


async def test_goals_are_numbered_from_one_and_trimmed(threads):
    """Ids count per thread, and are never used twice."""
    first = await threads.goals().add("  win the case ")
    second = await threads.goals().add("go home", parent_id=1)
    other = await threads.goals("other").add("sleep")
    assert (first.id, first.description, first.parent_id) == (1, "win the case", None)
    assert (second.id, second.parent_id, other.id) == (2, 1, 1)
    assert first.status == "active"
    assert first.created_at == START
    assert first.completed_at is None


@pytest.mark.parametrize("text", ["", " \u3000\n", "x" * 501, None])
async def test_a_blank_or_too_long_goal_is_refused(threads, text):
    """At most 500 characters; nothing is written."""
    with pytest.raises(ValueError, match="goal"):
        await threads.goals().add(text)
    await threads.goals().add("x" * 500)
    with pytest.raises(ValueError, match="goal"):
        await threads.goals().update(1, text)
    assert [goal.description for goal in await threads.goals().list()] == ["x" * 500]


async def test_a_parent_must_be_an_active_root(threads):
    """A sub-goal as parent: ValueError; an unknown one: NotFound; a completed: Conflict."""
    goals = threads.goals()
    await goals.add("root")
    await goals.add("sub", parent_id=1)
    with pytest.raises(ValueError, match="sub-goal"):
        await goals.add("below", parent_id=2)
    with pytest.raises(NotFound):
        await goals.add("nowhere", parent_id=9)
    await goals.complete(1)
    with pytest.raises(Conflict):
        await goals.add("late", parent_id=1)
    assert [goal.id for goal in await goals.list()] == [1, 2]


async def test_completing_twice_is_a_conflict(threads):
    """And an unknown goal can be neither completed nor updated."""
    goals = threads.goals()
    await goals.add("root")
    await goals.complete(1)
    with pytest.raises(Conflict):
        await goals.complete(1)
    with pytest.raises(Conflict):
        await goals.update(1, "again")
    with pytest.raises(NotFound):
        await goals.complete(2)
    with pytest.raises(NotFound):
        await goals.update(2, "which")


async def test_a_goal_gets_other_words(threads):
    """Updating changes the description alone."""
    goal = await threads.goals().add("first")
    threads.clock.advance(60)
    updated = await threads.goals().update(1, " second ")
    assert updated.description == "second"
    assert updated.created_at == goal.created_at
    assert await threads.goals().list() == [updated]


async def test_completing_a_root_completes_its_active_sub_goals(threads):
    """A completed sub-goal keeps its time; the pins of both are released."""
    goals, pins = threads.goals(), threads.pins()
    await threads.say(said("one"), said("two"))
    for text, parent in (("root", None), ("active", 1), ("done", 1), ("other", None)):
        await goals.add(text, parent_id=parent)
    await goals.complete(3)
    await pins.attach([0], [1])
    await pins.attach([1], [2])
    threads.clock.advance(60)
    completion = await goals.complete(1)
    assert completion.goal.id == 1
    assert [goal.id for goal in completion.completed_children] == [2]
    assert completion.released_pins == 2
    times = {goal.id: goal.completed_at for goal in await goals.list()}
    assert times == {1: threads.clock.now(), 2: threads.clock.now(), 3: START, 4: None}
    assert await pins.list() == []


async def test_completing_a_sub_goal_leaves_its_root(threads):
    """Only what lies below is completed with a goal."""
    goals = threads.goals()
    await goals.add("root")
    await goals.add("sub", parent_id=1)
    completion = await goals.complete(2)
    assert completion.completed_children == ()
    assert [goal.status for goal in await goals.list()] == ["active", "completed"]
    assert [goal.id for goal in await goals.list(active_only=True)] == [1]


async def test_sub_goals_follow_their_root(threads):
    """Roots by creation, each followed by its sub-goals."""
    goals = threads.goals()
    for text, parent in (("a", None), ("b", None), ("b1", 2), ("a1", 1), ("c", None), ("a2", 1)):
        await goals.add(text, parent_id=parent)
    assert [goal.description for goal in await goals.list()] == ["a", "a1", "a2", "b", "b1", "c"]

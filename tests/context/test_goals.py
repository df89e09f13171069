"""Goals: what a thread is after, on two levels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_kit import START, answered, called, said

from mnemo.context.goals import check_pins, goals_text
from mnemo.conversation.scope import ThreadScope
from mnemo.errors import Conflict, NotFound
from mnemo.runtime.text import count_tokens
from mnemo.values.derived import Goal, Pin
from mnemo.values.messages import Message


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


# ── Goals and their pins, within their share ──────────────────────────────────────────


def goal(id, description="goal", *, parent=None, status="active"):
    return Goal(
        thread_id="t",
        epoch=0,
        id=id,
        parent_id=parent,
        description=description,
        status=status,
        created_at=START,
    )


def pin(seq, *goals, excerpt="said"):
    return Pin(
        thread_id="t",
        epoch=0,
        seq=seq,
        message_id=f"m{seq}",
        excerpt=excerpt,
        goal_ids=goals,
        token_count=1,
    )


@st.composite
def trees(draw: st.DrawFn) -> list[Goal]:
    """Roots and sub-goals, active and completed."""
    goals: list[Goal] = []
    for id in range(1, draw(st.integers(0, 8)) + 1):
        roots = [each.id for each in goals if each.parent_id is None and each.is_live]
        parent = draw(st.sampled_from([None, *roots]))
        status = "active" if parent is None else draw(st.sampled_from(["active", "completed"]))
        text = draw(st.text(min_size=1, max_size=120))
        goals.append(goal(id, text, parent=parent, status=status))
    return goals


PINS = st.lists(
    st.tuples(st.integers(0, 40), st.sets(st.integers(1, 8), min_size=1), st.text(max_size=60)),
    max_size=10,
    unique_by=lambda each: each[0],
)


@pytest.mark.slow
@pytest.mark.parametrize("count", [count_tokens, len, lambda text: len(text.split())])
@given(goals=trees(), pins=PINS, share=st.integers(0, 400))
def test_goals_and_pins_keep_within_their_share(count, goals, pins, share):
    """However it is counted; no pin of a message in the window, no excerpt twice."""
    held = [pin(seq, *sorted(ids), excerpt=text) for seq, ids, text in pins]
    told = goals_text(goals, held, boundary=20, share=share, count=count)
    assert count(told) <= share
    lines = told.split("\n") if told else []
    assert all(line.lstrip().startswith(("## ", "- [", "📌", "(+")) for line in lines)
    shown = [line.split()[2].rstrip(":") for line in lines if "📌" in line.split()[:1]]
    excerpts = [seq for seq, line in zip(shown, (x for x in lines if x.lstrip()[0] == "📌"),
                                         strict=True) if not line.endswith("(above)")]  # fmt: skip
    assert set(map(int, shown)) <= {each.seq for each in held if each.seq < 20}
    assert len(set(excerpts)) == len(excerpts)


def test_nothing_is_told_where_nothing_is_pursued():
    """Completed roots are not shown, nor are pins without a goal that is."""
    told = goals_text(
        [goal(1, status="completed")], [pin(0, 1)], boundary=9, share=500, count=count_tokens
    )
    assert told == ""


def test_a_pin_that_a_completed_sub_goal_holds_too_is_told_once():
    """Under the goal that is still pursued."""
    goals = [goal(1), goal(2, parent=1, status="completed")]
    told = goals_text(goals, [pin(0, 1, 2)], boundary=9, share=500, count=count_tokens)
    assert told.split("\n") == [
        "## Goals",
        "- [ ] goal (goal 1)",
        "  📌 message 0: said",
        "  - [x] goal (goal 2)",
    ]


def test_no_share_shows_no_goal():
    """Not even a heading."""
    assert goals_text([goal(1)], [], boundary=0, share=3, count=count_tokens) == ""


# ── Pins: messages that goals hold on to ──────────────────────────────────────────────


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

        def work(tx):
            return check_pins(tx, ThreadScope.stored(tx, "t", threads.config), seqs, goal_ids)

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

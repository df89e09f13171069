"""Chat messages as steps: who observed, who acted, and what a replay adds."""

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from mnemo import Config, SessionError
from mnemo.errors import StoreError
from mnemo.events import StepAppended
from mnemo.values.messages import VIEW, Message, StoredMessage, ToolCall
from mnemo.values.units import call_text

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief.", "id": "m0"},
    {"role": "user", "content": "Where is the ferry?", "id": "m1", "actor": "Ana", "at": NOON},
    {
        "role": "assistant",
        "content": "I look it up.",
        "id": "m2",
        "tool_calls": [{"id": "c1", "name": "find", "arguments": {"what": "ferry", "n": 2}}],
    },
    {"role": "tool", "content": "Pier 3", "id": "m3", "tool_call_id": "c1", "name": "find"},
    {"role": "assistant", "content": "At pier 3.", "id": "m4", "metadata": {"draft": {"no": 1}}},
]


def stored(id: str, text: str, *, thread: str, seq: int = 0) -> StoredMessage:
    return StoredMessage(
        role="user",
        content=text,
        id=id,
        thread_id=thread,
        seq=seq,
        epoch=0,
        recorded_at=NOON,
        at=NOON,
        token_count=1,
    )


async def test_what_is_said_is_observed_and_what_is_answered_is_acted(collecting):
    """User, system and tool messages are observations, an assistant's words and calls actions."""
    kit, session = collecting
    steps = await session.append_messages(TALK)
    assert [(step.observation, step.action) for step in steps] == [
        ("Be brief.", ""),
        ("Where is the ferry?", ""),
        ("", 'I look it up.\nfind(what="ferry", n=2)'),
        ("Pier 3", ""),
        ("", "At pier 3."),
    ]
    assert [step.actor for step in steps] == ["system", "Ana", "assistant", "find", "assistant"]
    assert [step.index for step in steps] == [0, 1, 2, 3, 4]
    assert [step.key for step in steps] == [step.message_id for step in steps]
    assert [step.role for step in steps] == ["system", "user", "assistant", "tool", "assistant"]
    assert steps[1].at == NOON
    assert steps[2].at == kit.clock.now()
    assert steps[4].metadata == {"draft": {"no": 1}}


async def test_a_user_without_a_name_is_the_default_actor(open_kit):
    """Who speaks is the actor, else the name, else who the configuration says."""
    kit = await open_kit(config=Config(extraction={"default_actor": "Reader"}))
    session = await kit.started()
    named = {"role": "user", "content": "a", "name": "Bo"}
    steps = await session.append_messages([named, {"role": "user", "content": "b"}])
    assert [step.actor for step in steps] == ["Bo", "Reader"]


async def test_the_same_messages_again_add_nothing(collecting):
    """Issue 5, point 4: keyed by message id, a replay gives the same steps."""
    kit, session = collecting
    first = await session.append_messages(TALK[:3])
    again = await session.append_messages(TALK)
    assert again[:3] == first
    assert len(again) == 5
    assert len(kit.seen.of(StepAppended)) == 5


async def test_a_replay_into_a_resumed_session_adds_nothing(open_kit, db):
    """Keys, threads and message ids are durable with their steps."""
    kit = await open_kit(store=db)
    session = await kit.started()
    first = await session.append_messages([stored("m1", "tea", thread="t")])
    await session.aclose()
    resumed = await kit.repo.resume_session(session.id)
    again = await resumed.append_messages([stored("m1", "tea", thread="t")])
    assert again == first
    assert (again[0].thread_id, again[0].message_id) == ("t", "m1")
    assert resumed.held_messages("t") == ["m1"]


async def test_messages_without_an_id_are_steps_each_time(session):
    """Without an id there is nothing to know a replay by."""
    await session.append_messages({"role": "user", "content": "ok"})
    await session.append_messages({"role": "user", "content": "ok"})
    assert session.statistics().steps == 2


async def test_the_same_id_in_two_threads_is_two_steps(session):
    """Nothing is lost where two threads use one id; the second one's key names its thread."""
    both = [stored("m1", "tea", thread="a"), stored("m1", "milk", thread="b")]
    steps = await session.append_messages(both)
    again = await session.append_messages(both)
    assert [step.key for step in steps] == ["m1", "m1@b"]
    assert [step.observation for step in steps] == ["tea", "milk"]
    assert again == steps
    assert session.held_messages("a") == session.held_messages("b") == ["m1"]


async def test_a_key_that_looks_like_another_threads_is_no_trap(session):
    """An id that has the form of a second thread's key is still a message of its own."""
    messages = [
        stored("m1", "one", thread="a"),
        stored("m1@b", "two", thread="b", seq=0),
        stored("m1", "three", thread="b", seq=1),
    ]
    steps = await session.append_messages(messages)
    assert [step.observation for step in steps] == ["one", "two", "three"]
    assert await session.append_messages(messages) == steps


async def test_a_callers_own_step_with_the_key_hides_no_message(session):
    """A key that was given to other words is not the message's; the same words are."""
    own = await session.append("elsewhere", "", key="m1")
    bare = await session.append_messages({"role": "user", "content": "milk", "id": "m2"})
    steps = await session.append_messages(
        [stored("m1", "tea", thread="a"), stored("m2", "milk", thread="a")]
    )
    assert steps[0].index != own.index
    assert steps[1] == bare[0]


async def test_what_says_nothing_or_was_made_by_a_view_is_left_out(session):
    """Summaries, view-made messages and blank ones never become steps; the order is kept."""
    steps = await session.append_messages(
        [
            Message(role="system", kind="summary", content="They talked.", id="summary:1"),
            Message(role="user", content="first"),
            Message(role="user", content=" \n"),
            Message(role="user", content=[{"type": "image", "url": "x"}]),
            Message(role="assistant", content=None),
            Message(role="tool", tool_call_id="c", content="cut", metadata={VIEW: "pruned"}),
            Message(role="user", content="second"),
        ]
    )
    assert [step.observation for step in steps] == ["first", "second"]


@pytest.mark.parametrize(
    ("message", "action"),
    [
        (Message(role="assistant", content="Hm.", kind="thought"), "Hm."),
        (Message(role="tool", tool_call_id="c", content="Hm.", kind="thought"), "Hm."),
        (
            Message(
                role="assistant", tool_calls=[ToolCall(id="c", name="think", arguments={"x": "Hm"})]
            ),
            "Hm",
        ),
        (
            Message(
                role="assistant",
                content="Aloud.",
                kind="thought",
                tool_calls=[ToolCall(id="c", name="think", arguments={"x": "Hm"})],
            ),
            'Aloud.\nthink(x="Hm")',
        ),
    ],
)
async def test_thoughts_are_acted(session, message, action):
    """What the agent thinks is its own doing, however it was recorded."""
    (step,) = await session.append_messages(message)
    assert (step.observation, step.action) == ("", action)


@pytest.mark.parametrize(
    ("content", "observation"), [("no route", "[failed] no route"), (None, "[failed]")]
)
async def test_a_failed_call_is_observed_as_one(session, content, observation):
    """The flag is said, whatever the text says."""
    failed = Message(role="tool", tool_call_id="c", content=content, is_error=True)
    (step,) = await session.append_messages(failed)
    assert step.observation == observation


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"query": "café", "n": 3}, 'f(query="café",n=3)'),
        ({}, "f()"),
        ({"no name": 1}, 'f({"no name":1})'),
        ([1, 2], "f([1,2])"),
        (None, "f(null)"),
    ],
)
def test_a_call_is_written_as_one_would_write_it(arguments, text):
    """Named arguments where they have names, else the JSON."""
    assert call_text(ToolCall(id="c", name="f", arguments=arguments)).replace(", ", ",") == text


async def test_an_invalid_message_adds_nothing(session):
    """All messages are checked before the first is written."""
    with pytest.raises(ValueError, match="role"):
        await session.append_messages([TALK[0], {"role": "robot", "content": "x"}])
    assert session.statistics().steps == 0


async def test_appending_messages_is_legal_where_append_is(session):
    """A closed session refuses new messages, and gives the steps of known ones."""
    (known,) = await session.append_messages(TALK[0])
    await session.close_and_commit()
    with pytest.raises(SessionError) as refused:
        await session.append_messages(TALK)
    assert (refused.value.reason, refused.value.operation) == ("not_collecting", "append")
    assert await session.append_messages(TALK[0]) == [known]


async def test_a_failure_leaves_what_came_before_and_a_replay_adds_the_rest(failing_kit):
    """Steps before the failing one are durable, none after it; again adds only the rest."""
    kit, store = failing_kit
    session = await kit.started()
    store.fail("append", only=lambda draft: draft.message_id == "m2")
    with pytest.raises(StoreError):
        await session.append_messages(TALK)
    assert [step.message_id for step in session.recent_steps(9)] == ["m0", "m1"]
    await session.append_messages(TALK)
    assert [step.message_id for step in session.recent_steps(9)] == ["m0", "m1", "m2", "m3", "m4"]


async def test_a_cancelled_batch_leaves_its_beginning_and_a_replay_adds_the_rest(open_kit):
    """Waiting for room can be cancelled: what was written stays, the rest comes with a replay."""
    kit = await open_kit(config=Config(session={"max_append_backlog": 2}))
    kit.model.block()
    session = await kit.started()
    async with anyio.create_task_group() as group:
        group.start_soon(session.append_messages, TALK)
        await kit.until(lambda: session.statistics().steps == 2)
        group.cancel_scope.cancel()
    kit.model.unblock()
    steps = await session.append_messages(TALK)
    assert [step.message_id for step in steps] == ["m0", "m1", "m2", "m3", "m4"]
    assert [step.index for step in steps] == [0, 1, 2, 3, 4]


async def test_two_threads_that_append_one_id_at_once_lose_nothing(session):
    """The second one is told apart while the first is still on its way to the store."""
    async with anyio.create_task_group() as group:
        for thread in ("a", "b", "a"):
            message = stored("m1", f"said in {thread}", thread=thread)
            group.start_soon(session.append_messages, message)
    said = {step.observation for step in session.recent_steps(9)}
    assert said == {"said in a", "said in b"}
    assert session.statistics().steps == 2


async def test_sources_name_the_message(open_kit):
    """Issue 5, point 4: recall's sources name the message, committed or not."""
    kit = await open_kit(embedded=True)
    session = await kit.started("find the ferry")
    await session.append_messages([stored("m7", "The ferry leaves from pier 3.", thread="t")])
    found = await kit.repo.recall("Where does the ferry leave from?", k=3)
    assert [(s.thread_id, s.message_id) for s in found.sources] == [("t", "m7")]
    await session.close_and_commit()
    found = await kit.repo.recall("Where does the ferry leave from?", k=3)
    assert {(s.thread_id, s.message_id) for s in found.sources} == {("t", "m7")}


async def test_sources_of_plain_steps_name_no_message(open_kit):
    """A step that was appended as such comes from no message."""
    kit = await open_kit(embedded=True)
    await kit.begun("The ferry leaves from pier 3.", "")
    (source,) = (await kit.repo.recall("Where does the ferry leave from?")).sources
    assert (source.thread_id, source.message_id) == (None, None)

"""Mneme: one run, its tools, its verdict."""

from typing import Any

import pytest
from mneme_kit import attach, both, ok, snapshot, watched
from talk_kit import assistant

from mnemo.context.eviction import DueEviction
from mnemo.prompts.mneme import STANDING
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.testing import tool_call


def names(request: ChatRequest) -> list[str]:
    """The tools that are offered."""
    return [tool["name"] for tool in request.tools]


def results(request: ChatRequest) -> list[str]:
    """What tools have answered so far."""
    return [message.content for message in request.messages if message.role == "tool"]


async def test_six_messages_leave_a_snapshot_of_the_first_two(opened):
    """One level-1 snapshot, and the window starts behind it."""
    async with opened(snapshot("s")) as kit:
        await kit.say_and_settle(6)
        [taken] = await kit.snapshots.list()
        assert (taken.level, taken.from_seq, taken.to_seq, taken.text) == (1, 0, 1, "s")
        assert (taken.origin, taken.token_count, taken.covered_by) == ("model", 1, None)
        assert await kit.boundary() == 2
        shown = await kit.viewport().messages()
        assert [getattr(message, "seq", None) for message in shown] == [2, 3, 4, 5]
        [outcome] = await kit.snapshots.outcomes()
        assert (outcome.kind, outcome.snapshot_id, outcome.attempts) == ("snapshot", taken.id, 1)
        assert len(kit.requests) == 1


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (ok(), None),  # not worth keeping
        ({**tool_call("everything_ok"), "arguments": 7}, None),
        (both(snapshot("a"), ok(), snapshot("b"), snapshot(" ")), "b"),
        (ChatReply(tool_calls=(7, None, {"name": ["x"]}, snapshot("s"))), "s"),
    ],
)
async def test_the_last_valid_snapshot_of_a_reply_counts(opened, reply, text):
    """Also beside ``everything_ok``, whose arguments are ignored, and beside what is no call."""
    async with opened(reply) as kit:
        await kit.say_and_settle(6)
        assert await kit.verdicts() == [(0, 1, "snapshot" if text else "ok")]
        assert await kit.texts() == ([(0, 1, text)] if text else [])
        assert await kit.boundary() == 2


@pytest.mark.parametrize(("last", "calls"), [(95, 0), (96, 1)])
async def test_the_trigger_is_passed_not_reached(opened, last, calls):
    """A span of exactly 595 is not due, one of 596 is."""
    async with opened(snapshot()) as kit:
        await kit.say(5)
        await kit.say_and_settle(1, tokens=last)
        assert len(kit.requests) == calls


async def test_a_run_asks_with_its_purpose_and_its_tools():
    """Pinning is offered only while a goal is active."""
    async with watched(script=ok()) as kit:
        await kit.say_and_settle(6)
        await kit.goals.add("Book a ryokan")
        await kit.say_and_settle(2)
        await kit.goals.complete(1)
        await kit.say_and_settle(2)
        plain, pinning, after = kit.requests
        assert {request.purpose for request in kit.requests} == {"summarize"}
        assert names(plain) == names(after) == ["save_snapshot", "everything_ok"]
        assert names(pinning) == ["save_snapshot", "attach_messages_to_goals", "everything_ok"]
        assert plain.max_output_tokens == 8_192
        schema = plain.tools[0]["input_schema"]
        assert schema["properties"]["text"]["maxLength"] == 8_192


async def test_a_run_shows_window_goals_and_pins():
    """The compressed viewport as it is, then what can be pinned to, then what is."""
    async with watched(script=ok()) as kit:
        await kit.say(2)
        await kit.goals.add("Book a ryokan")
        await kit.goals.add("with a bath", parent_id=1)
        await kit.goals.add("Buy\nrice")
        await kit.pins.attach([0], [1, 3])
        kit.model.block()
        await kit.say(4)
        await kit.talk.until(lambda: kit.model.waiting == 1)
        shown = (await kit.viewport().compressed()).text
        kit.model.unblock()
        await kit.settle()
        system, user = kit.requests[0].messages
        assert system.content == STANDING["summarize"][0]
        assert user.content.startswith(shown)
        assert "── EVICTION ZONE ──\nmessage 0 User: Sentence 0." in shown
        assert "goal 1: Book a ryokan\ngoal 2 (part of goal 1): with a bath\n" in user.content
        assert "goal 3: Buy rice" in user.content
        assert "message 0 -> goals 1, 3" in user.content


async def test_a_blank_text_is_refused_and_the_next_one_counts(opened):
    """The model is told, and one snapshot has the second text."""
    async with opened([snapshot(" \n"), snapshot("s")]) as kit:
        await kit.say_and_settle(6)
        assert results(kit.requests[1]) == ["Error: Summary text cannot be blank"]
        assert await kit.texts() == [(0, 1, "s")]


async def test_a_text_that_is_too_long_is_refused(opened):
    """The error names both numbers, and nothing is stored."""
    async with opened([snapshot("x" * 8_193), "I give up."], retry_backoff_s=5) as kit:
        await kit.say(6)
        assert await kit.mneme.evict("t") is None
        told = "Error: Summary text has 8193 characters, at most 8192 are allowed"
        assert results(kit.requests[1]) == [told]
        assert await kit.snapshots.list() == []
        assert await kit.boundary() == 0


async def test_messages_are_pinned_with_the_snapshot(opened):
    """Two messages and two goals are two pins and four links."""
    async with opened([attach([0, 1, 1], [1, 2]), snapshot()]) as kit:
        await kit.goals.add("one")
        await kit.goals.add("two")
        await kit.say_and_settle(6)
        assert results(kit.requests[1]) == ["Pinned 4 message-goal links"]
        pins = await kit.pins.list()
        assert [(pin.seq, pin.goal_ids) for pin in pins] == [(0, (1, 2)), (1, (1, 2))]
        assert await kit.boundary() == 2


async def test_all_that_is_wrong_with_a_pin_is_told_at_once(opened):
    """In the table's order; nothing is pinned."""
    async with opened([attach([999, 0], [1]), ok()]) as kit:
        await kit.goals.add("one")
        await kit.goals.add("two")
        await kit.goals.complete(1)
        await kit.say_and_settle(6)
        told = "Error: Messages not found: 999; Goals already completed: 1"
        assert results(kit.requests[1]) == [told]
        assert await kit.pins.list() == []


async def test_all_calls_of_one_reply_are_carried_out(opened):
    """Pin and snapshot in one reply take one request, and both are committed."""
    async with opened(both(attach([0], [1]), snapshot("s"))) as kit:
        await kit.goals.add("one")
        await kit.say_and_settle(6)
        assert len(kit.requests) == 1
        assert [pin.seq for pin in await kit.pins.list()] == [0]
        assert await kit.texts() == [(0, 1, "s")]


async def test_what_mneme_says_is_no_part_of_the_conversation(opened):
    """Neither its requests nor its tools' results are stored as messages."""
    async with opened([snapshot(" "), snapshot("s")]) as kit:
        await kit.say_and_settle(6)
        history = await kit.log.history()
        assert [message.id for message in history] == [f"m{i}" for i in range(6)]


async def test_a_thread_without_a_viewport_is_left_alone(opened):
    """No model is asked, nothing is evicted, whatever its length."""
    async with opened(snapshot(), budget=None) as kit:
        for _ in range(10):
            await kit.say(100)
        await kit.settle()
        assert kit.requests == []
        assert await kit.snapshots.outcomes() == []
        assert kit.mneme.statistics().failures == 0


WRONG: list[tuple[Any, str]] = [
    (tool_call("save_snapshot"), "Summary text cannot be blank"),
    (tool_call("save_snapshot", text=7), "text must be a string, not a number"),
    (tool_call("save_snapshot", text=None), "text must be a string, not null"),
    ({**tool_call("save_snapshot"), "arguments": "half a {"}, "must be a JSON object"),
    ({**tool_call("save_snapshot"), "arguments": ["s"]}, "must be a JSON object"),
    (tool_call("launch", at="moon"), "Unknown tool 'launch'; there are save_snapshot, "),
    (attach([], [1]), "No message ids given"),
    (attach([0], []), "No goal ids given"),
    (attach([], []), "No message ids given; No goal ids given"),
    (tool_call("attach_messages_to_goals"), "No message ids given; No goal ids given"),
    (attach("0", [1]), "message_ids must be an array of integers"),
    (attach([0], ["1"]), "goal_ids must be an array of integers"),
    (attach([True], [1.5]), "message_ids must be an array of integers; goal_ids must be"),
    (attach([0, 10**30], [1]), f"Messages not found: {10**30}"),
    (attach([7, 3, 9], [8, 1, 5]), "Messages not found: 7, 9; Goals not found: 5, 8"),
]


@pytest.mark.parametrize(("call", "told"), WRONG)
async def test_a_call_that_is_wrong_is_answered_in_words(call, told):
    """A tool never raises into the loop, and nothing is staged."""
    async with watched(script=[call, ok()]) as kit:
        await kit.goals.add("one")
        await kit.say_and_settle(6)
        [answer] = results(kit.requests[1])
        assert answer.startswith("Error: ")
        assert told in answer
        assert await kit.pins.list() == []
        assert await kit.verdicts() == [(0, 1, "ok")]


async def test_pinning_without_a_goal_is_an_unknown_tool():
    """It was not offered."""
    async with watched(script=[attach([0], [1]), ok()]) as kit:
        await kit.say_and_settle(6)
        assert "Unknown tool 'attach_messages_to_goals'" in results(kit.requests[1])[0]


async def test_a_pin_alone_is_no_verdict():
    """The model is asked on; without a verdict what it staged is dropped."""
    async with watched(script=attach([0], [1]), max_attempts=1, max_rounds=3) as kit:
        await kit.goals.add("one")
        await kit.say_and_settle(6)
        assert len(kit.requests) == 3
        assert await kit.pins.list() == []
        assert await kit.verdicts() == [(0, 1, "fallback")]


async def test_events_follow_the_commit(opened):
    """What they tell can be read from the store as they are told."""
    async with opened(snapshot("s")) as kit:
        await kit.say_and_settle(6)
        [taken], [completed] = kit.events("SnapshotTaken"), kit.events("EvictionCompleted")
        assert (taken.thread_id, taken.level, taken.from_seq, taken.to_seq) == ("t", 1, 0, 1)
        assert taken.origin == "model"
        told = (completed.thread_id, completed.from_seq, completed.to_seq, completed.kind)
        assert told == ("t", 0, 1, "snapshot")


async def test_evict_runs_now_and_tells_the_outcome(opened):
    """``None`` where nothing is due."""
    async with opened(snapshot()) as kit:
        assert await kit.mneme.evict("t") is None
        await kit.say(5)
        assert await kit.mneme.evict("t") is None
        await kit.say(1)
        outcome = await kit.mneme.evict("t")
        assert outcome is not None
        assert (outcome.from_seq, outcome.to_seq) == (0, 1)


async def test_the_window_is_brought_below_the_trigger_run_by_run(opened):
    """Each run deals with one zone; the zones follow each other without a gap."""
    async with opened([snapshot(str(n)) for n in range(9)]) as kit:
        await kit.say_and_settle(12)
        ranges = [(0, 1, "snapshot"), (2, 3, "snapshot"), (4, 5, "snapshot"), (6, 7, "snapshot")]
        assert await kit.verdicts() == ranges
        assert len(kit.requests) == 4
        assert await kit.boundary() == 8


async def test_an_open_call_holds_the_window():
    """Until its deadline nothing behind it can be cut off; then it counts as abandoned."""
    async with watched(script=snapshot("s")) as kit:
        await kit.log.append(assistant(None, "c", token_count=100))
        await kit.say_and_settle(5)
        assert kit.requests == []
        kit.talk.clock.advance(181)
        await kit.say_and_settle(1)
        assert (await kit.verdicts())[0][0] == 0


async def test_usage_of_every_request_is_counted():
    """On the repository's meter, with how the stage ran."""
    async with watched(script=[snapshot(" "), snapshot("s")]) as kit:
        await kit.say_and_settle(6)
        meter = kit.talk.parts.meter
        assert meter.by_purpose["summarize"].calls == 2
        assert meter.stages["snapshot"] == {"model": 1}
        assert kit.mneme.statistics().evictions == 1


async def test_a_long_backlog_is_not_read_again_for_each_zone(opened):
    """A thread that is first watched late costs each run the beginning of its window."""
    async with opened(ok(), budget=None) as kit:
        await kit.say(3_000, tokens=10)
        read: list[int] = []
        real = kit.talk.parts.store.reading

        async def reading(work: Any) -> Any:
            found = await real(work)
            read.extend([len(found.units)] if isinstance(found, DueEviction) else [])
            return found

        object.__setattr__(kit.talk.parts.store, "reading", reading)
        kit.viewport(1_000)
        await kit.say(1, tokens=10)
        await kit.talk.until(lambda: len(kit.requests) >= 5)
        assert max(read[:5]) == 200
        assert "message 199 " in kit.requests[0].messages[1].content
        first, second, *_ = await kit.verdicts()
        assert (first, second) == ((0, 22, "ok"), (23, 45, "ok"))

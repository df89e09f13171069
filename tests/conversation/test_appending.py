"""Appending: what is new, what is there already, what must not come back."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import anyio
import pytest
from talk_kit import assistant, result, seqs, texts, turns, user

from mnemo.config import Config
from mnemo.context.zones import Budget
from mnemo.conversation.log import MessageDraft, drafts_of
from mnemo.errors import Conflict, StoreError
from mnemo.log.job_rules import demand_extraction
from mnemo.values.messages import MOST_TOKENS, Message, ToolCall


async def test_an_unknown_thread_is_empty_and_asking_creates_nothing(talk):
    """Of an unknown thread everything is empty, also with a ttl to be stored."""
    log = talk.log(ttl_s=5)
    assert [await log.load(), await log.history(), await log.compactions()] == [[], [], []]
    await log.clear()
    assert await talk.parts.store.reading(lambda tx: tx.threads()) == []
    assert await log.next_seq() == 0


async def test_seqs_start_at_zero_and_grow_by_one(log):
    """Three messages get 0, 1, 2, the next one 3."""
    a, b, c, d = turns(4)
    assert seqs(await log.append([a, b, c])) == [0, 1, 2]
    assert seqs(await log.append(d)) == [3]
    assert texts(await log.history()) == ["m0", "m1", "m2", "m3"]


async def test_a_batch_appended_twice_is_stored_once(talk, log):
    """The second append gives the same seqs, and the history has each message once."""
    first = await log.append(turns(3))
    again = await log.append(turns(3))
    assert again == first
    assert seqs(await log.history()) == [0, 1, 2]
    assert len(talk.appended) == 1


async def test_expected_seq_must_be_the_next_one(log):
    """The next seq is accepted; one too low or too high is a conflict that stores nothing."""
    await log.append(turns(2), expected_seq=0)
    await log.append(user("third"), expected_seq=2)
    for wrong in (2, 4):
        with pytest.raises(Conflict, match="3"):
            await log.append(user("stale"), expected_seq=wrong)
    assert len(await log.history()) == 3


@pytest.mark.parametrize("wrong", ["0", -1, 0.0, True])
async def test_expected_seq_must_be_a_number(talk, wrong):
    """What can never be next is a mistake to mend, no conflict to try again."""
    with pytest.raises(ValueError, match="expected_seq must be a whole number"):
        await talk.log().append(user("first"), expected_seq=wrong)
    assert await talk.log().history() == []


async def test_expected_seq_is_not_compared_when_nothing_is_new(log):
    """A retry of a batch whose reply was lost succeeds; with anything new it does not."""
    first = await log.append(turns(2), expected_seq=0)
    assert await log.append(turns(2), expected_seq=0) == first
    with pytest.raises(Conflict):
        await log.append([*turns(2), user("new")], expected_seq=0)


async def test_a_batch_with_an_invalid_message_uses_up_no_seq(log):
    """Nothing of the batch is stored, and the next append begins where it would have."""
    await log.append(turns(1))
    batch: list[Any] = [user("fine"), {"role": "robot", "content": "x"}]
    with pytest.raises(ValueError, match="robot"):
        await log.append(batch)
    assert seqs(await log.append(user("next"))) == [1]


@pytest.mark.parametrize(
    "other",
    [
        {"role": "user", "content": "other"},
        {"role": "system", "content": "m0"},
        {"role": "assistant", "content": "m0"},
        {"role": "tool", "content": "m0", "tool_call_id": "c"},
    ],
)
async def test_an_id_cannot_stand_for_two_messages(log, other):
    """The same id with another role, content or call is a conflict; the first text stays."""
    await log.append(turns(1))
    with pytest.raises(Conflict, match="m0"):
        await log.append([user("beside it"), {**other, "id": "m0"}])
    assert texts(await log.history()) == ["m0"]


async def test_other_tool_calls_under_one_id_are_a_conflict(log):
    """Calls are compared too, their arguments included; time and metadata are not."""
    first = assistant(None, "c1", id="a")
    await log.append(first)
    again = assistant(None, "c1", id="a", metadata={"x": 1}, at=datetime(2020, 1, 1))
    assert (await log.append(again))[0].metadata == {}
    changed = Message(role="assistant", id="a", tool_calls=[ToolCall("c1", "tool", {"of": "c2"})])
    with pytest.raises(Conflict, match="tool_calls"):
        await log.append(changed)


async def test_one_id_twice_in_a_batch_is_stored_once_or_refused(log):
    """The same message twice gives one entry for each; two unlike ones are a conflict."""
    twice = await log.append([user("a", id="x"), user("a", id="x")])
    assert seqs(twice) == [0, 0]
    with pytest.raises(Conflict):
        await log.append([user("a", id="y"), user("b", id="y")])
    assert await log.next_seq() == 1


async def test_equal_texts_without_ids_are_two_messages(log):
    """Nothing is taken for the same because its words are."""
    stored = await log.append([user("ok"), user("ok")])
    assert seqs(stored) == [0, 1]
    assert stored[0].id != stored[1].id


async def test_everything_about_a_message_comes_back(log):
    """None, calls in order, nested metadata and equal times survive, as the caller's own."""
    at = datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    blocks = [{"type": "text", "text": "seen"}, {"type": "image", "url": "x"}]
    said = [
        assistant(None, "c2", "c1", at=at, metadata={"deep": [{"a": None}, 1.5]}, actor="Ann"),
        result("c1", "no", is_error=True, name="search", at=at),
        Message(role="user", content=blocks, at=at),
        user("", at=at),
    ]
    stored = await log.append(said)
    for given, kept in zip(said, await log.history(), strict=True):
        for name in ("role", "content", "tool_calls", "tool_call_id", "is_error", "name"):
            assert getattr(kept, name) == getattr(given, name)
        assert (kept.at, kept.actor, kept.metadata) == (at, given.actor, given.metadata)
    stored[0].metadata["deep"][0]["a"] = "changed"  # type: ignore[index]
    (await log.history())[2].content[0]["text"] = "changed"  # type: ignore[index, call-overload]
    (await log.load())[0].tool_calls[0].arguments["of"] = "changed"
    kept = await log.history()
    assert kept[0].metadata == {"deep": [{"a": None}, 1.5]}
    assert kept[2].content == blocks
    assert kept[0].tool_calls == said[0].tool_calls


@pytest.mark.parametrize(
    "invalid",
    [
        {"role": "robot", "content": "x"},
        {"role": "tool", "content": "x"},
        {"content": "x"},
        {"role": "user", "content": "x", "colour": "red"},
        {"role": "user", "content": 7},
        "words",
    ],
)
async def test_an_invalid_message_is_refused(talk, invalid):
    """An unknown role, a result without its call, an unknown key: nothing is stored."""
    with pytest.raises(ValueError, match=r".+"):
        await talk.log().append([invalid])
    assert await talk.log().history() == []


async def test_what_load_made_is_not_stored(log):
    """Appending what was loaded and one new message stores exactly the new one."""
    await log.append([*turns(3), assistant(None, "c1", id="call"), user("u"), result("gone")])
    await log.compact(0, 1, "s")
    loaded = await log.load()
    new = user("new", id="new")
    entries = await log.append([*loaded, new])
    assert texts(await log.history())[6:] == ["new"]
    assert [entry.id for entry in entries] == ["m2", "call", *(e.id for e in entries[2:])]
    assert entries[-1].id == "new"


async def test_nothing_is_checked_of_an_empty_batch(talk):
    """No message, no entry, whatever seq is expected."""
    assert await talk.log().append([], expected_seq=77) == []
    assert talk.appended == []


async def test_a_big_batch_is_one_batch(log):
    """Many messages are checked off the event loop, and stored in order all the same."""
    stored = await log.append(iter(turns(300)))
    assert seqs(stored) == list(range(300))
    assert texts(await log.history(from_seq=298)) == ["m298", "m299"]


async def test_history_gives_a_range_or_refuses_it(log):
    """Both ends are inclusive; a negative seq or a range turned round is refused."""
    await log.append(turns(5))
    assert texts(await log.history(from_seq=1, to_seq=3)) == ["m1", "m2", "m3"]
    assert texts(await log.history(from_seq=4, to_seq=99)) == ["m4"]
    for arguments in ({"from_seq": -1}, {"from_seq": 3, "to_seq": 2}, {"to_seq": -1}):
        with pytest.raises(ValueError, match=r"seq|turned"):
            await log.history(**arguments)


async def test_times_without_a_zone_are_utc_and_default_to_the_recording(talk, log):
    """``at`` is when it was said; where nobody says, it is when it was stored."""
    said, unsaid = await log.append([user("a", at=datetime(2020, 1, 1)), user("b")])
    assert said.at == datetime(2020, 1, 1, tzinfo=UTC)
    assert unsaid.at == unsaid.recorded_at == said.recorded_at == talk.clock.now()


async def test_text_that_no_store_can_hold_is_mended(talk):
    """U+0000 and lone surrogates become U+FFFD; all else stays as it is."""
    [stored] = await talk.log().append(user("a\0b\ud800c\u00e9"))
    assert stored.content == "a\ufffdb\ufffdc\u00e9"


async def test_tokens_are_estimated_unless_given(log):
    """Bytes over four, rounded up; a positive count is kept, 0 is replaced."""
    given = [user(text) for text in ("hello world", "a", "")] + [Message(role="user")]
    given += [user("hello world", token_count=7), user("hello world", token_count=0)]
    assert [m.token_count for m in await log.append(given)] == [3, 1, 0, 0, 7, 3]
    [called] = await log.append(assistant("é", "c"))
    compact = '[{"id":"c","name":"tool","arguments":{"of":"c"}}]'
    assert called.token_count == -(-len(f"é{compact}".encode()) // 4)


async def test_a_counter_belongs_to_its_service(open_conversations):
    """A service's counter counts there only; one that fails is passed over."""

    def broken(text: str) -> int:
        if text == "raise":
            raise RuntimeError("no tokens today")
        return {"negative": -1, "impossible": 2**70}.get(text, 1_000)

    with_own = await open_conversations(config=Config(conversation={"token_counter": broken}))
    given = [user(text) for text in ("hello world", "raise", "negative", "impossible")]
    assert [m.token_count for m in await with_own.log().append(given)] == [1_000, 2, 2, 3]
    without = await open_conversations()
    [counted] = await without.log("other").append(user("hello world"))
    assert counted.token_count == 3


@pytest.mark.parametrize("after", range(12))
async def test_a_cancelled_append_is_whole_or_absent(talk, log, after):
    """Whenever it is cancelled, the batch is stored whole or not at all, and can be repeated."""

    async def append() -> None:
        await log.append(turns(40))

    async with anyio.create_task_group() as group:
        group.start_soon(append)
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    stored = len(await log.history())
    assert stored in (0, 40)
    assert len(talk.appended) == (stored > 0)
    assert seqs(await log.append(turns(40))) == list(range(40))


@pytest.mark.parametrize(
    "vast",
    [
        {"role": "assistant", "tool_calls": [ToolCall(str(n), "f") for n in range(2_000)]},
        {"role": "user", "content": "x", "metadata": {"deep": [["y"] * 1_000] * 3}},
        {"role": "user", "content": [{"text": "z" * 99_000}]},
        Message(role="assistant", tool_calls=[ToolCall("c", "f", {"text": "z" * 99_000})]),
    ],
    ids=["calls", "metadata", "blocks", "arguments"],
)
async def test_one_vast_message_is_checked_off_the_event_loop(talk, vast, monkeypatch):
    """What makes a message long may lie in its calls or metadata, too."""
    checked: list[bool] = []

    def drafts(*args: Any, pause: object = None) -> list[MessageDraft]:
        checked.append(pause is not None)
        return drafts_of(*args)

    monkeypatch.setattr("mnemo.conversation.log.drafts_of", drafts)
    await talk.log().append([vast])
    await talk.log().append([user("a short one"), assistant(None, "c"), result("c")])
    assert checked == [True, False]


# Values at the edge of what can be stored: cleaned, bounded or refused, never half kept.


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b"])
async def test_a_call_with_an_id_that_no_store_holds_keeps_its_result(log, odd):
    """The call's id and name are cleaned like its result's, so that both stay one group."""
    call = Message(role="assistant", tool_calls=[ToolCall(odd, odd)])
    await log.append([call, Message(role="tool", tool_call_id=odd, content="done")])
    caller, result = await log.load()
    assert (caller.role, result.role) == ("assistant", "tool")
    assert caller.tool_calls[0].id == caller.tool_calls[0].name == "a\ufffdb"
    assert result.tool_call_id == "a\ufffdb"


def test_two_ids_that_become_the_same_are_refused():
    """What makes a message's calls equal once they are stored is told where it is made."""
    with pytest.raises(ValueError, match="same id"):
        Message(role="assistant", tool_calls=[ToolCall("a\0", "x"), ToolCall("a\ud800", "x")])


async def test_a_token_count_is_one_that_sums_can_hold(talk, log):
    """A count beyond all reason is refused: the sum of a thread's would be no number of a store."""
    with pytest.raises(ValueError, match="token_count"):
        await log.append({"role": "user", "content": "x", "token_count": MOST_TOKENS + 1})
    stored = await log.append([user("x", token_count=MOST_TOKENS) for _ in range(3)])
    seen = await talk.parts.store.reading(lambda tx: tx.span("t", from_seq=0))
    assert seen == (len(stored), 3 * MOST_TOKENS)


async def test_a_range_beyond_all_seqs_is_empty(log):
    """Seqs that no store can number are none that were given."""
    await log.append(user("x"))
    assert await log.history(from_seq=2**70) == []
    assert len(await log.history(to_seq=2**70)) == 1


def test_a_budget_beyond_all_reason_is_refused():
    """It could not be stored, and the thread would never be watched."""
    with pytest.raises(ValueError, match="at most"):
        Budget.of(2**70, Config().viewport)


async def test_a_demand_that_was_rolled_back_is_not_taken_for_made(open_conversations):
    """What is there already is appended to be remembered: if that fails, the caller hears of it."""
    demand = partial(demand_extraction, quiet_s=5, most_waiting=9)
    talk = await open_conversations(demand=demand)
    await talk.log().append(turns(2))
    store = talk.parts.store
    writing = store.writing

    async def rolling_back(work: Callable[[Any], Any], **named: Any) -> Any:
        def fail(tx: Any) -> None:
            work(tx)
            raise StoreError("the disk is full")

        return await writing(fail, **named)

    store.writing = rolling_back
    remembering = talk.log(remember=True)
    with pytest.raises(StoreError, match="disk is full"):
        await remembering.append(turns(2))
    store.writing = writing
    await remembering.append(turns(2))
    assert await store.reading(lambda tx: tx.job("extract", "t")) is not None

"""Values at the edge of what can be stored: cleaned, bounded or refused, never half kept."""

import pytest
from talk_kit import user

from mnemo.config import Config
from mnemo.context.zones import Budget
from mnemo.values.messages import MOST_TOKENS, Message, ToolCall


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b"])
async def test_a_call_with_an_id_that_no_store_holds_keeps_its_result(talk, odd):
    """The call's id and name are cleaned like its result's, so that both stay one group."""
    log = talk.log()
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


async def test_a_token_count_is_one_that_sums_can_hold(talk):
    """A count beyond all reason is refused: the sum of a thread's would be no number of a store."""
    log = talk.log()
    with pytest.raises(ValueError, match="token_count"):
        await log.append({"role": "user", "content": "x", "token_count": MOST_TOKENS + 1})
    stored = await log.append([user("x", token_count=MOST_TOKENS) for _ in range(3)])
    seen = await talk.parts.store.reading(lambda tx: tx.span("t", from_seq=0))
    assert seen == (len(stored), 3 * MOST_TOKENS)


async def test_a_counter_that_gives_no_possible_count_is_passed_over(
    open_conversations,
):
    """A configured counter may say what it will: a message gets the estimate in place of it."""
    config = Config.model_validate({"conversation": {"token_counter": lambda text: 2**70}})
    talk = await open_conversations(config=config)
    (stored,) = await talk.log().append(user("hello world"))
    assert stored.token_count == 3


async def test_a_range_beyond_all_seqs_is_empty(talk):
    """Seqs that no store can number are none that were given."""
    log = talk.log()
    await log.append(user("x"))
    assert await log.history(from_seq=2**70) == []
    assert len(await log.history(to_seq=2**70)) == 1


def test_a_budget_beyond_all_reason_is_refused():
    """It could not be stored, and the thread would never be watched."""
    with pytest.raises(ValueError, match="at most"):
        Budget.of(2**70, Config().viewport)

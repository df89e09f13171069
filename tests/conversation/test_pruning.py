"""Pruning: long tool results are shown cut, and stay whole."""

import pytest
from talk_kit import assistant, result, texts, user

from mnemo.values.messages import Message
from mnemo.values.strategies import Summary, ToolOutputPruner


async def test_a_long_result_is_shown_cut(talk):
    """4,001 characters become 4,000 and a note with the id; 4,000 stay; all is kept."""
    log = talk.log(compression=ToolOutputPruner(4_000))
    long, exact = "x" * 4_001, "y" * 4_000
    await log.append([assistant(None, "a", "b"), result("a", long, id="ra"), result("b", exact)])
    _, cut, whole = await log.load()
    assert cut.text.startswith("x" * 4_000 + "\n[")
    assert cut.text.count("x") == 4_000
    assert "1 more character" in cut.text
    assert "ra" in cut.text[4_000:]
    assert (cut.tool_call_id, cut.id, cut.kind, cut.role) == ("a", "ra", "tool_result", "tool")
    assert whole.text == exact
    assert texts(await log.history()) == ["", long, exact]


async def test_a_limit_of_zero_leaves_the_note(talk):
    """With 0 characters nothing of the result is shown but how long it is."""
    log = talk.log(compression=[Summary(), ToolOutputPruner(0)])
    await log.append([assistant(None, "a"), result("a", "secret words", id="r")])
    assert (await log.load())[1].text == "[12 more characters; view message r for all of it]"


@pytest.mark.parametrize("compression", [None, Summary()])
async def test_nothing_is_cut_without_a_pruner(talk, compression):
    """Only the pruner shortens results; what users say is never cut."""
    log = talk.log(compression=compression)
    await log.append([assistant(None, "a"), result("a", "z" * 9_000)])
    assert len((await log.load())[1].text) == 9_000
    pruning = talk.log(compression=ToolOutputPruner(1))
    await pruning.append(user("w" * 9_000))
    assert len((await pruning.load())[-1].text) == 9_000


async def test_what_is_no_text_stays_beside_the_cut_text(talk):
    """An image in a result is not lost with its words."""
    log = talk.log(compression=ToolOutputPruner(3))
    image = {"type": "image", "url": "x"}
    blocks = [{"type": "text", "text": "abcdef"}, image]
    await log.append([assistant(None, "a"), Message(role="tool", tool_call_id="a", content=blocks)])
    shown = (await log.load())[1]
    assert isinstance(shown.content, list)
    assert shown.text.startswith("abc\n[3 more")
    assert shown.content[1] == image


async def test_a_pruned_result_costs_what_is_shown(talk):
    """A budget is filled with what the agent gets to read, and the pruned view is not stored."""
    log = talk.log(compression=ToolOutputPruner(4))
    await log.append([user("u"), assistant(None, "a"), result("a", "x" * 4_000)])
    loaded = await log.load(budget_tokens=100)
    assert len(loaded) == 3
    assert sum(message.token_count or 0 for message in loaded) < 100
    assert len(await log.append(loaded)) == 2
    assert len(await log.history()) == 3


async def test_a_late_result_is_pruned_too(talk):
    """A result whose call is gone is cut before it is shown as late."""
    log = talk.log(compression=ToolOutputPruner(2))
    await log.append(result("gone", "abcd", id="r"))
    assert (await log.load())[0].text.startswith("[late result of gone] ab\n[2 more")

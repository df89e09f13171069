"""Loading: the newest units, whole groups, and what fits a budget."""

import re

import pytest
from talk_kit import assistant, result, texts, turns, user

from mnemo.errors import UsageError
from mnemo.values.messages import VIEW, Message
from mnemo.values.strategies import Composite, Recent, Summary, ToolOutputPruner
from mnemo.values.units import NO_RESULT


async def test_recent_gives_the_last_units(talk):
    """A turn counts as two, so ``Recent(3)`` gives six of eight messages, in order."""
    log = talk.log(retrieval=Recent(3))
    await log.append(turns(8))
    assert texts(await log.load()) == [f"m{number}" for number in range(2, 8)]


async def test_twenty_messages_are_loaded_by_default(talk):
    """Of 25 messages the last 20."""
    await talk.log().append(turns(25))
    assert texts(await talk.log().load()) == [f"m{number}" for number in range(5, 25)]


async def test_a_group_is_one_unit(talk):
    """With ``Recent(1)`` a call with three results is given whole, and one unit before."""
    log = talk.log(retrieval=Recent(1))
    await log.append([*turns(3), assistant(None, "a", "b", "c")])
    await log.append([result("c", "C"), result("a", "A"), result("b", "B")])
    loaded = await log.load()
    assert texts(loaded) == ["m2", "", "A", "B", "C"]
    assert [m.tool_call_id for m in loaded] == [None, None, "a", "b", "c"]


async def test_results_stand_after_their_call_wherever_they_lie(log):
    """Early, late and interleaved results are put behind the message that called."""
    await log.append([result("b", "B"), user("first"), assistant("calls", "a", "b")])
    await log.append([user("between"), result("a", "A"), user("last")])
    assert texts(await log.load()) == ["first", "calls", "A", "B", "between", "last"]


async def test_a_call_with_its_result_far_away_is_an_old_unit(talk):
    """A unit has the place of its first message, so a fresh result of an old call is old too."""
    log = talk.log(retrieval=Recent(1))
    await log.append([assistant("old", "a"), *turns(300), result("a", "fresh")])
    assert texts(await log.load()) == ["m298", "m299"]
    everything = await talk.log(retrieval=Recent(1_000)).load()
    assert texts(everything)[:3] == ["old", "fresh", "m0"]


async def test_a_call_whose_result_came_long_before_is_an_old_unit(talk):
    """An early result far away is found too, and moves its group to its own place."""
    log = talk.log(retrieval=Recent(1))
    await log.append([result("a", "early"), *turns(300), assistant("late call", "a")])
    assert texts(await log.load()) == ["m298", "m299"]


async def test_a_result_at_the_edge_of_a_page_is_not_given_to_a_later_call(talk):
    """Its own call lies before the page; a later call of the same id does not take it."""
    log = talk.log(retrieval=Recent(1))
    await log.append([assistant("first", "a"), result("a", "A"), *turns(62)])
    await log.append(assistant("second", "a"))
    assert texts(await log.load()) == ["m61", "second"]


async def test_call_ids_may_be_used_again_and_again(talk):
    """Each result belongs to the nearest call of its id before it."""
    log = talk.log(retrieval=Recent(2))
    for number in range(100):
        await log.append([assistant(f"call {number}", "call_1"), result("call_1", f"r{number}")])
    await log.append(assistant("open", "call_1"))
    loaded = texts(await log.load())
    assert loaded == ["call 97", "r97", "call 98", "r98", "call 99", "r99", "open"]


async def test_an_open_newest_group_waits_and_an_abandoned_one_is_answered(talk, log):
    """The newest group's missing result is left out for 180 s; then it is said to be missing."""
    await log.append([user("u"), assistant(None, "a", "b", id="x"), result("b", "B")])
    assert texts(await log.load()) == ["u", "", "B"]
    await talk.clock.advance(179.9)
    assert texts(await log.load()) == ["u", "", "B"]
    await talk.clock.advance(0.1)
    *_, missing, b = await log.load()
    assert (missing.content, missing.is_error, missing.tool_call_id) == (NO_RESULT, True, "a")
    assert (missing.metadata[VIEW], b.text) == ("no_result", "B")
    await log.append(result("a", "A"))
    assert texts(await log.load()) == ["u", "", "A", "B"]
    assert len(await log.history()) == 4


async def test_a_missing_result_before_the_newest_unit_is_said(log):
    """A group that something follows is complete at once; the real result takes its place."""
    await log.append([assistant("calls", "a"), user("goes on")])
    assert texts(await log.load()) == ["calls", NO_RESULT, "goes on"]
    await log.append(result("a", "A"))
    assert texts(await log.load()) == ["calls", "A", "goes on"]


@pytest.mark.parametrize(
    "behind",
    [
        [result("b", "B"), assistant("open", "a"), assistant("later", "b")],
        [assistant("c", "b"), result("b"), assistant("open", "a"), result("b", "B2")],
        [assistant("open", "a", "b"), result("b"), result("b", "B2")],
    ],
)
async def test_no_call_stays_open_with_something_shown_behind_it(log, behind):
    """The newest unit may be shown before an older one's call, or its second result."""
    await log.append(behind)
    loaded = texts(await log.load())
    assert loaded[loaded.index("open") + 1] == NO_RESULT


async def test_a_result_without_its_call_is_a_late_result(log):
    """It is a user message under its own id, by name or call id; no tool message is bare."""
    await log.append([result("zz", "found", id="r1"), result("yy", "B", name="search", id="r2")])
    first, second = await log.load()
    assert (first.role, first.id, first.text) == ("user", "r1", "[late result of zz] found")
    assert (second.kind, second.text) == ("user", "[late result of search] B")
    assert (await log.history())[0].role == "tool"


async def test_a_second_result_of_one_call_is_not_lost(log):
    """A call has one result; what else answers it is given as late, at its own place."""
    await log.append([assistant("calls", "a"), result("a", "A"), user("u"), result("a", "A2")])
    assert texts(await log.load()) == ["calls", "A", "u", "[late result of a] A2"]


async def test_system_messages_and_summaries_are_pinned(talk):
    """No ``k`` leaves them out, and they count for none."""
    log = talk.log(retrieval=Recent(1))
    await log.append([Message(role="system", content="be kind"), *turns(9)])
    await log.append(Message(role="system", content="be brief"))
    await log.compact(1, 2, "s")
    loaded = await log.load()
    assert [m.kind for m in loaded] == ["system", "summary", "assistant", "user", "system"]
    assert texts(loaded)[0] == "be kind"
    assert texts(loaded)[2:] == ["m7", "m8", "be brief"]


async def test_a_covered_system_message_is_in_its_summary(log):
    """A record covers whatever lies in its range."""
    await log.append([Message(role="system", content="be kind"), *turns(2)])
    await log.compact(0, 1, "s")
    assert texts(await log.load())[1:] == ["m1"]


async def test_the_newest_units_that_fit_are_taken(log):
    """A budget that two units fill exactly gives both; one token less only the newest."""
    await log.append(turns(3, token_count=10))
    assert texts(await log.load(budget_tokens=20)) == ["m1", "m2"]
    assert texts(await log.load(budget_tokens=19)) == ["m2"]


async def test_filling_stops_at_the_first_unit_that_does_not_fit(log):
    """An older unit that would fit is not taken over a newer one that does not."""
    await log.append([user("small", token_count=1), user("big", token_count=90)])
    await log.append(user("newest", token_count=10))
    assert texts(await log.load(budget_tokens=50)) == ["newest"]


async def test_a_budget_below_what_is_required_is_refused(log):
    """Both numbers are named; nothing is silently cut."""
    await log.append([*turns(2), user("newest", token_count=30)])
    await log.append(Message(role="system", content="x", token_count=7))
    await log.compact(0, 1, "s")
    summary = (await log.load())[0].token_count or 0
    assert summary > 0
    needed = summary + 37
    assert len(await log.load(budget_tokens=needed)) == 3
    with pytest.raises(UsageError, match=rf"{needed} tokens.*{needed - 1}"):
        await log.load(budget_tokens=needed - 1)


@pytest.mark.parametrize("budget", [0, -1, 1.5, True])
async def test_a_budget_is_a_positive_number(talk, budget):
    """Below one token there is nothing to load into."""
    with pytest.raises(ValueError, match="budget_tokens"):
        await talk.log().load(budget_tokens=budget)


async def test_a_groups_cost_is_what_is_shown_of_it(log):
    """Synthetic results count too, so that the loaded messages are within the budget."""
    await log.append([user("old", token_count=1), assistant("c", "a", token_count=5)])
    await log.append(user("newest", token_count=5))
    missing = 5  # ceil(len("[no result recorded]") / 4)
    assert texts(await log.load(budget_tokens=10 + missing)) == ["c", NO_RESULT, "newest"]
    assert texts(await log.load(budget_tokens=9 + missing)) == ["newest"]


async def test_the_parts_of_a_composite_share_a_budget(talk):
    """Each part has its weight's share, and passes on what it leaves."""
    await talk.log().append(turns(20, token_count=10))
    even = Composite(Recent(1), Recent(10), weights=[3, 1])
    loaded = await talk.log(retrieval=even).load(budget_tokens=100)
    assert texts(loaded) == [f"m{number}" for number in range(10, 20)]
    stingy = Composite(Recent(10), Recent(10), weights=[1, 1])
    assert len(await talk.log(retrieval=stingy).load(budget_tokens=99)) == 9


async def test_nothing_is_written_by_a_load(talk, log):
    """The thread's row is the same before and after, and no hook is told."""
    await log.append(turns(5))
    before = await talk.row(), await log.history(), len(talk.appended)
    await log.load(query="m3", budget_tokens=100)
    assert (await talk.row(), await log.history(), len(talk.appended)) == before


async def test_a_cleared_thread_starts_empty(talk, log):
    """``load`` is empty, ``history`` whole, and the next append continues the seq."""
    await log.append([Message(role="system", content="old rule"), assistant("c", "a")])
    await log.clear()
    assert await log.load() == []
    assert len(await log.history()) == 2
    assert [m.id for m in await log.append(await log.history())] == [
        m.id for m in await log.history()
    ]
    assert await log.load() == []
    [late] = await log.append(result("a", "A"))
    assert (late.seq, late.epoch) == (2, 1)
    assert re.match(r"\[late result of a\] A", (await log.load())[0].text)
    await log.clear()
    assert (await talk.row()).epoch == 2


# ── Pruning: long tool results are shown cut, and stay whole ──────────────────────────


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

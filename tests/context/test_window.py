"""The window: what is read, and how room is made in it before it is read."""

from dataclasses import replace

import pytest
from window_kit import answered, called, said

from mnemo.context import window as window_module
from mnemo.errors import StoreLocked
from mnemo.events import EvictionCompleted, EvictionFailed, SnapshotTaken
from mnemo.values.derived import EvictionOutcome, Snapshot
from mnemo.values.messages import Message
from mnemo.values.units import NO_RESULT


def texts(messages):
    return [message.text for message in messages]


def numbered(first, last, **fields):
    return [said(f"m{n}", **fields) for n in range(first, last + 1)]


async def test_an_empty_thread_has_an_empty_window(threads):
    """Nothing said, nothing seen, and nobody is told."""
    viewport = threads.viewport()
    assert await viewport.messages() == []
    assert (await viewport.compressed()).text == ""
    rendered = await viewport.render()
    assert (rendered.messages, rendered.memory, rendered.window, rendered.state) == ([], "", [], "")
    assert rendered.token_count == 0
    assert threads.mneme.poked == []


@pytest.mark.parametrize(("tokens", "told"), [(595, []), (596, ["t"])])
async def test_mneme_is_told_above_the_trigger(threads, tokens, told):
    """At a span of exactly 595 it is not, at 596 it is; reading evicts in neither case."""
    await threads.say(said(tokens=500), said(tokens=tokens - 500))
    assert len(await threads.viewport().messages()) == 2
    assert threads.mneme.poked == told
    assert (await threads.row()).boundary == 0


async def test_a_window_that_is_full_to_the_brim_is_shown_whole(threads):
    """A span of W fits; one token more does not."""
    await threads.say(*numbered(0, 6))
    assert len(await threads.viewport().messages()) == 7
    await threads.say(said("more", tokens=1))
    assert texts(await threads.viewport().messages()) == ["m2", "m3", "m4", "m5", "m6", "more"]


async def test_what_does_not_fit_is_summarised_before_it_is_absent(threads):
    """Case 3: zones leave with a text by rule, in the transaction that reads."""
    await threads.say(*numbered(0, 10))
    assert texts(await threads.viewport().messages()) == [f"m{n}" for n in range(4, 11)]
    outcomes = await threads.kept(EvictionOutcome)
    assert [(o.from_seq, o.to_seq, o.kind) for o in outcomes] == [
        (0, 1, "fallback"),
        (2, 3, "fallback"),
    ]
    assert (await threads.row()).boundary == 4
    assert [s.id for s in await threads.kept(Snapshot)] == [o.snapshot_id for o in outcomes]
    told = [(type(event), event.from_seq, event.to_seq) for event in threads.events]
    assert told == [
        (SnapshotTaken, 0, 1),
        (EvictionCompleted, 0, 1),
        (SnapshotTaken, 2, 3),
        (EvictionCompleted, 2, 3),
    ]
    assert threads.mneme.poked == ["t"]


async def test_a_message_too_long_for_the_window_is_shown_alone(threads):
    """Whole, over budget, and all others have outcomes."""
    await threads.say(*numbered(0, 4), said("x" * 3_600, tokens=900))
    viewport = threads.viewport()
    [only] = await viewport.messages()
    assert only.text == "x" * 3_600
    rendered = await viewport.render()
    assert rendered.over_budget
    assert rendered.window == [only]
    assert rendered.degraded is None
    outcomes = await threads.kept(EvictionOutcome)
    assert (outcomes[0].from_seq, outcomes[-1].to_seq) == (0, 4)


async def test_a_group_that_is_too_long_is_shown_alone_and_whole(threads):
    """The newest unit is never cut: a call is not parted from its results."""
    group = [called("a", "b"), answered("a", tokens=500), answered("b", tokens=500)]
    await threads.say(*numbered(0, 2), *group)
    shown = await threads.viewport().messages()
    assert [message.kind for message in shown] == ["tool_call", "tool_result", "tool_result"]
    assert (await threads.row()).boundary == 3


async def test_an_open_group_does_not_hold_a_full_window_open(threads):
    """Under case 3 it counts as abandoned at once; its late result is shown as such."""
    await threads.say(called("a", name="look"), *numbered(1, 9))
    viewport = threads.viewport()
    assert texts(await viewport.messages()) == [f"m{n}" for n in range(4, 10)]
    await threads.say(answered("a", text="found", tokens=1, name="look"))
    *_, late = await viewport.messages()
    assert (late.role, late.text) == ("user", "[late result of look] found")


async def test_an_open_group_that_is_the_newest_stays_as_it_is(threads):
    """Its result is still to come, so nothing stands for it."""
    await threads.say(*numbered(0, 1), called("a"))
    assert [message.kind for message in await threads.viewport().messages()][-1] == "tool_call"
    await threads.say(said("next"))
    assert texts(await threads.viewport().messages()) == ["m0", "m1", "", NO_RESULT, "next"]


async def test_what_stands_for_missing_results_takes_room_as_well(threads):
    """The window as it is shown keeps within its share, not only as it is stored."""
    calls = [Message(role="assistant", tool_calls=[{"id": f"c{n}", "name": "x"}], token_count=1)
             for n in range(200)]  # fmt: skip
    await threads.say(*calls, said("end", tokens=1))
    rendered = await threads.viewport().render()
    assert sum(message.token_count for message in rendered.window) <= 700
    assert rendered.token_count <= 1_000
    assert (await threads.row()).boundary > 0


async def test_a_smaller_budget_may_evict_and_a_larger_one_brings_nothing_back(threads):
    """Viewports of one thread share its boundary, and the latest budget is watched."""
    await threads.say(*numbered(0, 6))
    large = threads.viewport(2_000)
    assert len(await large.messages()) == 7
    small = threads.viewport(500)
    assert texts(await small.messages()) == ["m4", "m5", "m6"]
    assert texts(await large.messages()) == ["m4", "m5", "m6"]
    assert (await threads.row()).budget_tokens == 500
    assert threads.mneme.watched == [("t", 2_000), ("t", 500)]


async def test_the_budget_is_stored_with_the_first_reading(threads):
    """So that watching goes on after a restart; making a viewport touches nothing."""
    viewport = threads.viewport(800)
    await viewport.messages()
    assert await threads.parts.store.reading(lambda tx: tx.threads()) == []
    await threads.say(said())
    assert (await threads.row()).budget_tokens is None
    await viewport.render()
    assert (await threads.row()).budget_tokens == 800


@pytest.mark.parametrize("later_first", [True, False])
async def test_the_budget_of_the_viewport_made_last_is_stored(threads, later_first):
    """Whichever of them is read first."""
    await threads.say(said())
    earlier, later = threads.viewport(800), threads.viewport(900)
    for viewport in (later, earlier) if later_first else (earlier, later):
        await viewport.messages()
    assert (await threads.row()).budget_tokens == 900


async def test_what_the_window_shows_of_the_log_is_the_log(threads):
    """Eviction changes no message."""
    said_ids = [m.id for m in await threads.say(*numbered(0, 20))]
    await threads.viewport().messages()
    history = await threads.parts.store.reading(lambda tx: tx.messages("t"))
    assert [message.id for message in history] == said_ids


async def test_expired_messages_are_in_no_window(threads):
    """Expiry is at once; the zone still begins at the boundary."""
    brief = threads.with_config(conversation={"ttl_s": 60})
    await brief.say(*numbered(0, 3))
    threads.clock.advance(61)
    await brief.say(*numbered(4, 12))
    assert texts(await brief.viewport().messages()) == [f"m{n}" for n in range(6, 13)]
    [outcome] = await threads.kept(EvictionOutcome)
    assert (outcome.from_seq, outcome.to_seq) == (0, 5)


@pytest.mark.parametrize("head", [1, 2_000])
async def test_a_store_that_cannot_be_written_gives_the_newest_that_fits(
    threads, monkeypatch, head
):
    """Nothing is marked as dealt with, and the rendering names what is missing from it."""
    monkeypatch.setattr(window_module, "HEAD", head)
    await threads.say(*numbered(0, 9))
    threads.parts = replace(threads.parts, store=Unwritable(threads.parts.store))
    viewport = threads.viewport()
    assert texts(await viewport.messages()) == [f"m{n}" for n in range(3, 10)]
    rendered = await viewport.render()
    assert rendered.degraded == (0, 2)
    assert not rendered.over_budget
    assert (await threads.row()).boundary == 0
    assert await threads.kept(EvictionOutcome) == []
    assert {type(event) for event in threads.events} == {EvictionFailed}


async def test_a_budget_that_cannot_be_stored_takes_nothing_away(threads):
    """A window that fits is whole, though the store cannot be written."""
    await threads.say(*numbered(0, 4))
    threads.parts = replace(threads.parts, store=Unwritable(threads.parts.store))
    rendered = await threads.viewport().render()
    assert texts(rendered.window) == [f"m{n}" for n in range(5)]
    assert rendered.degraded is None


@pytest.mark.parametrize("head", [1, 3, 8, 2_000])
async def test_a_window_far_too_long_is_dealt_with_piece_by_piece(threads, monkeypatch, head):
    """However few messages are read at once, the same zones leave."""
    monkeypatch.setattr(window_module, "HEAD", head)
    monkeypatch.setattr(window_module, "MAX_ZONES", 3)
    groups = [
        called("a"),
        *numbered(1, 6),
        answered("a"),
        called("b"),
        answered("b"),
        answered("x"),
    ]
    await threads.say(*groups, *numbered(11, 40))
    shown = await threads.viewport().messages()
    assert texts(shown) == [f"m{n}" for n in range(35, 41)]
    ranges = [(o.from_seq, o.to_seq) for o in await threads.kept(EvictionOutcome)]
    assert ranges == [(0, 7), (8, 10), *((n, n + 1) for n in range(11, 35, 2))]


class Unwritable:
    """Conversations that can be read only."""

    def __init__(self, inner) -> None:
        self.reading = inner.reading

    async def writing(self, work, **named):
        """Refuse."""
        raise StoreLocked("another process holds the file")


@pytest.mark.parametrize("result_tokens", [100, 900])
async def test_a_result_far_behind_its_call_does_not_hold_the_window_open(threads, result_tokens):
    """The call leaves with what lies behind it; its result is shown as a late one."""
    found = answered("a", tokens=result_tokens, text="word" * result_tokens)
    await threads.say(called("a"), *numbered(0, 39), found)
    rendered = await threads.viewport().render()
    assert rendered.window[-1].text == f"[late result of a] {found.text}"
    assert not any(message.role == "tool" for message in rendered.messages)
    assert rendered.over_budget == (result_tokens > 700)
    assert len(rendered.window) == (1 if rendered.over_budget else 5)
    outcomes = await threads.kept(EvictionOutcome)
    assert [outcomes[0].from_seq, outcomes[-1].to_seq + 1] == [0, (await threads.row()).boundary]


async def test_interlocked_groups_leave_one_after_the_other(threads):
    """Without a clean cut the oldest group is cut, and only as far as it must be."""
    calls = [called(id, tokens=20) for id in "abc"]
    results = [answered(id, tokens=300) for id in "abc"]
    await threads.say(*calls, *results)
    shown = await threads.viewport().messages()
    assert [(m.role, m.text) for m in shown][-3:] == [
        ("user", "[late result of a] found it"),
        ("user", "[late result of b] found it"),
        ("user", "[late result of c] found it"),
    ][-len(shown) :]
    assert sum(message.token_count or 0 for message in shown) <= 700


async def test_interlocked_groups_that_fit_are_left_alone(threads):
    """A cut is made in a window that is too long, and in no other."""
    await threads.say(called("a"), called("b"), answered("a"), answered("b"))
    shown = await threads.viewport().messages()
    assert [message.role for message in shown] == ["assistant", "tool", "assistant", "tool"]


async def test_a_reading_that_cannot_write_fits_the_budget_without_a_clean_cut(
    threads, monkeypatch
):
    """The newest messages that fit are shown, a result without its call as a late one."""
    await threads.say(called("a"), *numbered(0, 39), answered("a"))
    threads.parts = replace(threads.parts, store=Unwritable(threads.parts.store))
    rendered = await threads.viewport().render()
    assert sum(message.token_count or 0 for message in rendered.window) <= 700
    assert texts(rendered.window)[-1].startswith("[late result of ")
    assert rendered.degraded == (0, 34)

"""The viewport over a store that is shared, reopened, cleared, or counted otherwise."""

from dataclasses import replace

import anyio
import pytest
from window_kit import START, called, open_threads, said

from mnemo.errors import NotFound
from mnemo.testing import ManualClock
from mnemo.values.derived import EvictionOutcome, Snapshot


def numbered(first, last, **fields):
    return [said(f"m{n}", **fields) for n in range(first, last + 1)]


def by_words(text):
    """A counter unlike the estimate: every character that is no letter is a token."""
    return sum(not c.isalpha() for c in text)


async def everything(threads):
    """All that outlives the process, and what is rendered of it."""
    rendered = await threads.viewport().render()
    return (
        await threads.row(),
        await threads.kept(EvictionOutcome),
        await threads.kept(Snapshot),
        await threads.goals().list(),
        await threads.pins().list(),
        rendered,
    )


async def test_a_reopened_store_holds_what_it_held(tmp_path):
    """Boundary, outcomes, snapshots, goals and pins, and the same rendering."""
    clock = ManualClock(START)
    found = []
    for run in range(2):
        async with open_threads(tmp_path / "talk.db", clock) as threads:
            if run == 0:
                await threads.say(*numbered(0, 9))
                await threads.goals().add("root")
                await threads.goals().add("sub", parent_id=1)
                await threads.pins().attach([0], [1, 2])
            found.append(await everything(threads))
    assert found[0] == found[1]
    assert found[0][0].boundary == 4


async def test_two_services_on_one_file_evict_each_message_once(tmp_path):
    """The boundary is the store's, not a process's."""
    path, clock = tmp_path / "talk.db", ManualClock(START)
    async with open_threads(path, clock) as one, open_threads(path, clock) as other:
        await one.say(*numbered(0, 30))
        async with anyio.create_task_group() as group:
            for threads in (one, other):
                group.start_soon(threads.viewport().messages)
        outcomes = await one.kept(EvictionOutcome)
    assert [o.from_seq for o in outcomes] == [0, *(o.to_seq + 1 for o in outcomes[:-1])]


async def test_another_counter_counts_what_is_made(threads):
    """The rendering keeps its budget as this service counts."""
    other = threads.with_config(conversation={"token_counter": by_words})
    await other.say(*numbered(0, 9), called("a"), said("b", tokens=1))
    await other.goals().add("- " * 120)
    await other.goals().add("win")
    rendered = await other.viewport().render()
    made = [text for text in (rendered.memory, rendered.state) if text]
    assert "win" in rendered.state
    assert sum(map(by_words, made)) <= rendered.token_count <= 1_000
    assert by_words(rendered.memory) <= 200
    assert by_words(rendered.state) <= 50


async def test_a_new_epoch_starts_without_goals_pins_and_memory(threads):
    """They belong to thread and epoch; what was said before cannot be pinned any more."""
    await threads.say(*numbered(0, 7))
    await threads.goals().add("old")
    await threads.pins().attach([0], [1])
    await threads.viewport().messages()
    row = await threads.row()
    cleared = replace(row, epoch=1, epoch_start=8, boundary=8)
    await threads.parts.store.writing(lambda tx: tx.keep(cleared))
    assert await threads.goals().list() == []
    assert await threads.pins().list() == []
    await threads.say(said("anew"))
    assert (await threads.goals().add("new")).id == 2
    with pytest.raises(NotFound):
        await threads.pins().attach([0], [2])
    with pytest.raises(NotFound):
        await threads.goals().complete(1)
    assert await threads.pins().attach([8], [2]) == 1
    rendered = await threads.viewport().render()
    assert [message.text for message in rendered.messages] == [rendered.state, "anew"]
    assert rendered.state == "## Goals\n- [ ] new (goal 2)"


@pytest.mark.parametrize("budget_tokens", [0, -5, 1.5])
async def test_a_viewport_needs_a_budget(threads, budget_tokens):
    """Below 1 it is refused, and nobody watches."""
    with pytest.raises(ValueError, match="budget"):
        threads.viewport(budget_tokens)
    assert threads.mneme.watched == []


async def test_the_configured_budget_is_the_default(threads):
    """Without one of its own a viewport takes that of the configuration."""
    assert threads.viewport(None).budget_tokens == 120_000
    other = threads.with_config(viewport={"budget_tokens": 500})
    assert other.viewport(None).budget_tokens == 500


async def test_the_compressed_viewport_writes_nothing(threads):
    """It shows the whole window, though it has grown out of its share."""
    await threads.say(*numbered(0, 19))
    view = await threads.viewport().compressed()
    shown = [*view.eviction, *view.middle, *view.recent]
    assert [message.seq for message in shown] == list(range(20))
    row = await threads.row()
    assert (row.boundary, row.budget_tokens) == (0, None)
    assert await threads.kept(EvictionOutcome) == []


async def test_mneme_is_asked_to_evict(threads):
    """`evict` is Mneme's to do."""
    assert await threads.viewport().evict() is None
    assert threads.mneme.poked == ["t"]

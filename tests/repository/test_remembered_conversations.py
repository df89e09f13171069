"""Conversations whose messages are remembered: ``repo.conversation(thread_id, remember=True)``."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from helpers import Kit, over_http

from mnemo import Config, Conflict, Message, StoredMessage
from mnemo.testing import ManualClock

ALLERGIC, LUND = "I am allergic to peanuts.", "I live in Lund."
LAKE = "I own a boat on the lake."


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a service stores, on either engine."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return url
    return str(tmp_path / "m.db")


async def said_of_facts(kit: Kit) -> list[str]:
    """The texts that facts rest on, one for each fact and text."""
    page = await kit.repo.memories()
    return sorted(source.text for memory in page.items for source in memory.sources)


async def test_what_is_appended_becomes_facts(open_kit, place):
    """Messages and facts are there after ``settle``, without a session and without a feed."""
    kit = await open_kit(embedded=True, store=place)
    chat = kit.repo.conversation("ada", remember=True)
    stored = await chat.append([Message("user", LUND), {"role": "user", "content": ALLERGIC}])
    assert [message.seq for message in stored] == [0, 1]
    assert (await kit.repo.statistics()).jobs.waiting == 1
    await kit.repo.settle()
    assert await said_of_facts(kit) == sorted([LUND, ALLERGIC])
    assert await kit.repo.unfinished_sessions() == []


async def test_the_job_is_stored_with_the_messages_or_not_at_all(open_kit):
    """An append that is refused leaves no job; the promises of ``append`` hold as without."""
    kit = await open_kit(embedded=True)
    chat = kit.repo.conversation("ada", remember=True)
    with pytest.raises(Conflict):
        await chat.append(Message("user", LUND), expected_seq=3)
    assert (await kit.repo.statistics()).jobs.waiting == 0
    assert await chat.append([]) == []
    first = await chat.append(Message("user", LUND, id="a"), expected_seq=0)
    assert await chat.append(Message("user", LUND, id="a")) == first
    await kit.repo.settle()
    assert await chat.append(Message("user", LUND, id="a")) == first
    assert (await kit.repo.statistics()).jobs.waiting == 0
    assert await said_of_facts(kit) == [LUND]


async def test_other_handles_of_the_thread_are_not_changed(open_kit):
    """Remembering is the handle's: without it nothing is extracted."""
    kit = await open_kit(embedded=True)
    await kit.repo.conversation("ada").append(Message("user", LUND))
    await kit.repo.settle()
    assert await said_of_facts(kit) == []
    await kit.repo.conversation("ada", remember=True).append(Message("user", ALLERGIC))
    await kit.repo.settle()
    assert await said_of_facts(kit) == [ALLERGIC]


async def test_it_is_the_same_over_http(open_kit):
    """A handle of the client has its messages remembered, and others not."""
    kit = await open_kit(embedded=True)
    async with over_http(kit.memory) as remote:
        repo = remote.repo("r")
        await repo.conversation("a").append([Message("user", LUND)])
        await repo.conversation("b", remember=True).append([Message("user", ALLERGIC)])
        await repo.settle()
    assert await said_of_facts(kit) == [ALLERGIC]


@pytest.mark.parametrize("given", [None, 1, "yes"])
async def test_remember_is_a_truth_value(open_kit, given):
    """What is none is refused where the handle is made."""
    kit = await open_kit(embedded=True)
    with pytest.raises(ValueError, match="remember must be True or False"):
        kit.repo.conversation("ada", remember=given)


async def test_what_a_session_took_first_is_not_remembered_again(open_kit, place):
    """A message that was fed or appended to a session is its step alone, though remembered."""
    kit = await open_kit(embedded=True, store=place)
    chat = kit.repo.conversation("ada", remember=True)
    session = await kit.started()
    feed = await chat.feed(session)
    stored = await chat.append(Message("user", LUND))
    await feed.caught_up()
    feed.cancel()
    stored = await chat.append(Message("user", ALLERGIC))
    await session.append_messages(stored)
    await chat.append(Message("user", LAKE))
    await kit.repo.settle()
    assert await said_of_facts(kit) == [LAKE]
    await session.close_and_commit()
    assert await said_of_facts(kit) == sorted([LUND, ALLERGIC, LAKE])
    assert (await kit.repo.statistics()).steps == 3


async def test_what_was_remembered_first_is_no_step_of_a_session(open_kit, place):
    """A feed from the start and the history appended by hand leave extracted messages out."""
    kit = await open_kit(embedded=True, store=place)
    chat = kit.repo.conversation("ada", remember=True)
    await chat.append([Message("user", LUND), Message("user", ALLERGIC)])
    await kit.repo.settle()
    session = await kit.started()
    assert await session.append_messages(await chat.history()) == []
    feed = await chat.feed(session, from_seq=0)
    await feed.caught_up()
    feed.cancel()
    assert session.statistics().steps == 0
    assert (await kit.repo.statistics()).steps == 2


async def test_of_takers_at_the_same_time_one_gets_each_message(open_kit, place):
    """Jobs and a session that take messages side by side make one step of each."""
    kit = await open_kit(embedded=True, store=place, config=Config(jobs={"most_waiting": 2}))
    chat = kit.repo.conversation("ada", remember=True)
    session = await kit.started()
    said = [f"My friend number {n} is called Ada{n}." for n in range(24)]

    async def taken(stored: Sequence[StoredMessage]) -> None:
        await session.append_messages(stored)

    async with anyio.create_task_group() as tasks:
        for text in said:
            tasks.start_soon(taken, await chat.append(Message("user", text)))
    await kit.repo.settle()
    await session.close_and_commit()
    steps = await kit.repo.get_nodes(["episodic"])
    assert sorted(step.observation for step in steps) == sorted(said)
    assert (await kit.repo.statistics()).steps == len(said)


async def test_after_a_restart_each_message_is_extracted_once(open_kit, place):
    """What waited when the service closed is extracted by the next, and what was is not."""
    kit = await open_kit(embedded=True, store=place, clock=ManualClock())
    chat = kit.repo.conversation("ada", remember=True)
    await chat.append(Message("user", LUND, id="a"))
    await kit.repo.settle()
    await chat.append(Message("user", ALLERGIC, id="b"))
    await kit.memory.aclose()
    again = await open_kit(embedded=True, store=place, clock=kit.clock)
    chat = again.repo.conversation("ada", remember=True)
    await chat.append([Message("user", LUND, id="a"), Message("user", ALLERGIC, id="b")])
    await again.repo.settle()
    session = await again.started()
    feed = await chat.feed(session, from_seq=0)
    await feed.caught_up()
    feed.cancel()
    assert session.statistics().steps == 0
    assert await said_of_facts(again) == sorted([LUND, ALLERGIC])
    assert (await again.repo.statistics()).steps == 2

"""Messages of conversations are documents of recall, each once, from the moment of the append."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers import repository

from mnemo import Config, Message, Mnemo, Repository, ToolCall
from mnemo.testing import HashingEmbedder, ManualClock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
async def memory() -> AsyncIterator[Mnemo]:
    """A service in memory whose clock stands still."""
    async with Mnemo("memory:", clock=ManualClock(NOON), embedder=HashingEmbedder()) as service:
        yield service


@pytest.fixture
async def repo(memory: Mnemo) -> Repository:
    """An empty repository."""
    return await memory.open_repo("r")


async def told(repo: Repository, query: str, **keywords: Any) -> list[str]:
    """The texts of what a recall finds, best first."""
    found = await repo.recall(query, **keywords)
    return [candidate.node.text for candidate in found.candidates]


async def test_a_message_is_found_as_soon_as_its_append_returned(repo):
    """No session, no extraction: the hit is episodic, and its source names thread and message."""
    chat = repo.conversation("chat")
    (stored,) = await chat.append(
        Message(role="user", content="I am allergic to peanuts.", actor="Ada", at=NOON)
    )
    (candidate,) = (await repo.recall("Who is allergic to peanuts?")).candidates
    (source,) = candidate.sources
    assert candidate.node.type == "episodic"
    assert (source.thread_id, source.message_id) == ("chat", stored.id)
    assert (source.session_id, source.episode_id, source.step_index) == (None, None, None)
    assert (source.actor, source.at, source.text) == ("Ada", NOON, "I am allergic to peanuts.")


async def test_speech_and_thoughts_are_found_and_what_serves_the_window_is_not(
    repo,
):
    """Users, assistants, thoughts and replies; no prompts, no calls, no results."""
    await repo.conversation("t").append(
        [
            Message(role="system", content="the harbour prompt"),
            Message(role="user", content="the harbour question"),
            Message(role="assistant", tool_calls=[ToolCall("1", "look", {"at": "the harbour"})]),
            Message(role="tool", content="the harbour result", tool_call_id="1"),
            Message(role="assistant", content="the harbour thought", kind="thought"),
            Message(role="assistant", content="the harbour answer"),
        ]
    )
    found = await told(repo, "harbour", k=20)
    assert sorted(found) == ["the harbour answer", "the harbour question", "the harbour thought"]


async def test_a_message_and_the_step_made_of_it_are_one_hit(repo):
    """A fed session adds its step to the hit of the message, not another hit."""
    chat, session = repo.conversation("chat"), await repo.start_session("talk")
    feed = await chat.feed(session, from_seq=0)
    (stored,) = await chat.append(Message(role="user", content="The ferry leaves at nine."))
    await feed.caught_up()
    (candidate,) = (await repo.recall("When does the ferry leave?")).candidates
    (source,) = candidate.sources
    assert (source.thread_id, source.message_id) == ("chat", stored.id)
    assert (source.session_id, source.step_index) == (session.id, 0)
    assert (await repo.statistics()).index.documents == 1


async def test_a_fact_leads_back_to_the_message_of_its_step(repo):
    """What was extracted of a fed session has the message as its source."""
    chat, session = repo.conversation("chat"), await repo.start_session("talk")
    feed = await chat.feed(session, from_seq=0)
    (stored,) = await chat.append(
        Message(role="user", content="My sister Emma lives in Porto.", actor="Ada")
    )
    await feed.caught_up()
    await session.close_and_commit()
    found = await repo.recall("Where does Emma live?", types=("semantic",))
    assert found.candidates
    assert {source.message_id for source in found.sources} == {stored.id}


async def test_a_cleared_thread_is_found_and_a_purged_one_is_not(repo):
    """Clearing resets what is loaded, purging erases."""
    chat = repo.conversation("chat")
    await chat.append([Message(role="user", content=f"the kite number {n}") for n in range(3)])
    await chat.clear()
    assert len(await told(repo, "kite")) == 3
    await chat.purge()
    assert await told(repo, "kite") == []


async def test_a_compacted_range_is_found_by_its_originals(repo):
    """A summary stands for the messages in the window, not in recall."""
    chat = repo.conversation("chat")
    await chat.append([Message(role="user", content=f"the kite number {n}") for n in range(3)])
    await chat.compact(0, 1, "They spoke of kites.")
    assert sorted(await told(repo, "kite")) == [f"the kite number {n}" for n in range(3)]


async def test_an_expired_message_is_found_no_more_but_its_step_is():
    """Swept or not; what a session holds of it outlives it as the session's."""
    clock = ManualClock(NOON)
    config = Config(conversation={"ttl_s": 60})
    async with repository("memory:", "r", clock=clock, config=config) as repo:
        chat, session = repo.conversation("chat"), await repo.start_session("talk")
        await chat.append(Message(role="user", content="the red kite"))
        feed = await chat.feed(session, from_seq=1)
        await chat.append(Message(role="user", content="the blue kite"))
        await feed.caught_up()
        assert sorted(await told(repo, "kite")) == ["the blue kite", "the red kite"]
        await clock.advance(61)
        assert await told(repo, "kite") == ["the blue kite"]
        await chat.append(Message(role="user", content="something else"))
        await chat.settle()
        found = await repo.recall("kite")
        of = {source.text: source.session_id for c in found.candidates for source in c.sources}
        assert of == dict.fromkeys(("the blue kite", "something else"), session.id)

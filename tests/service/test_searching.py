"""Search, drill-down and their tools through the public interface."""

from pathlib import Path

import pytest
from helpers import repository

from mnemo import Config, Conversation, Mnemo, Repository, UsageError
from mnemo.events import RecallFailed
from mnemo.testing import HashingEmbedder, ManualClock, RecordingObserver


@pytest.fixture(params=["memory:", "file"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both stores."""
    return "memory:" if request.param == "memory:" else str(tmp_path / "m.db")


async def test_an_agent_finds_what_it_does_not_see(where):
    """Other threads and sessions, and what left its window."""
    async with repository(where, "r") as repo:
        mine, other = repo.conversation("mine"), repo.conversation("other")
        (message,) = await mine.append([{"role": "user", "content": "kyoto in spring"}])
        await other.append([{"role": "user", "content": "kyoto in autumn"}])
        session = await repo.start_session("plan", session_id="steps")
        await session.append("kyoto in winter", "")
        hits = await repo.search("kyoto")
        assert {hit.session_id for hit in hits} == {"mine", "other", "steps"}
        unseen = await repo.search("kyoto", not_visible_in="mine")
        assert {hit.session_id for hit in unseen} == {"other", "steps"}
        unseen = await repo.search("kyoto", not_visible_in="steps")
        assert {hit.session_id for hit in unseen} == {"mine", "other"}
        await mine.clear()
        assert len(await repo.search("kyoto", not_visible_in="mine")) == 3
        seen = await repo.view(message.stored_id, session_id="mine")
        assert seen.target.text == "kyoto in spring"
        assert seen.as_text().count("→") == 1


async def test_an_agent_searches_and_views_by_tools(where):
    """Bound to its thread, the tools leave out what it sees."""
    async with repository(where, "r") as repo:
        await repo.conversation("mine").append([{"role": "user", "content": "about kyoto"}])
        searching, viewing = repo.tools("mine")
        everywhere, _ = repo.tools()
        assert (searching.name, viewing.name) == ("search_messages", "view_messages")
        assert await searching.call({"query": "kyoto"}) == 'No results found for "kyoto".'
        assert (await everywhere.call({"query": "kyoto"})).startswith("Found 1 result")
        (hit,) = await repo.search("kyoto")
        opened = await viewing.call({"message_id": hit.message_id})
        assert "User: about kyoto" in opened
        assert await viewing.call({"message_id": "x"}) == "Error: Message x not found"


async def fed(memory: Mnemo, *said: str) -> tuple[Repository, Conversation, list[str]]:
    """A thread that feeds session ``s``; what the messages are called."""
    repo = await memory.open_repo("r")
    thread = repo.conversation("mine")
    session = await repo.start_session("plan", session_id="s")
    feed = await thread.feed(session, from_seq=0)
    stored = await thread.append([{"role": "user", "content": text} for text in said])
    await feed.caught_up()
    return repo, thread, [message.stored_id for message in stored]


async def test_a_message_and_the_step_made_of_it_are_one_hit(where):
    """While the message lives it is the hit, by words, substrings and in either stream."""
    async with Mnemo(where, embedder=HashingEmbedder()) as memory:
        repo, _, ids = await fed(memory, "kyoto in spring 京都の春", "kyoto in autumn")
        for within in (None, "mine", "s"):
            hits = await repo.search("kyoto", session_id=within)
            assert {(hit.message_id, hit.session_id) for hit in hits} == {(i, "mine") for i in ids}
            assert len(hits) == 2
            (hit,) = await repo.search("京都", session_id=within)
            assert hit.message_id == ids[0]
        assert await repo.search("kyoto", session_id="other") == []
        assert len(await repo.search("kyoto", limit=1)) == 1


async def test_what_is_visible_as_message_or_step_is_hidden_as_both(where):
    """Neither the thread's agent nor the session's is shown again what it sees."""
    async with Mnemo(where, embedder=HashingEmbedder()) as memory:
        repo, thread, _ = await fed(memory, "kyoto in spring", "kyoto in autumn")
        assert await repo.search("kyoto", not_visible_in="mine") == []
        assert await repo.search("kyoto", not_visible_in="s") == []
        searching, _ = repo.tools("mine")
        assert await searching.call({"query": "kyoto"}) == 'No results found for "kyoto".'
        await thread.clear()
        assert len(await repo.search("kyoto", not_visible_in="mine")) == 2
        assert await repo.search("kyoto", not_visible_in="s") == []


async def test_a_step_whose_message_expired_is_the_hit(where):
    """It is found under the session and under the thread that it came from."""
    clock = ManualClock()
    config = Config(conversation={"ttl_s": 60})
    async with Mnemo(where, config=config, clock=clock, embedder=HashingEmbedder()) as memory:
        repo, thread, ids = await fed(memory, "kyoto in spring")
        clock.advance(61)
        for within in (None, "mine", "s"):
            (hit,) = await repo.search("kyoto", session_id=within)
            assert (hit.session_id, hit.kind) == ("s", "observation")
            assert hit.message_id not in ids
        await thread.append({"role": "user", "content": "osaka"})
        (hit,) = await repo.search("kyoto", session_id="mine", not_visible_in="mine")
        assert hit.kind == "observation"


async def test_a_fed_step_comes_to_mind_as_its_message(where):
    """Passive recall of another thread names the message, once."""
    async with Mnemo(where, embedder=HashingEmbedder()) as memory:
        repo, _, (id,) = await fed(memory, "The kyoto lantern festival begins in March.")
        other = repo.conversation("other")
        await other.append({"role": "user", "content": "Tell me of the kyoto lantern festival."})
        rendered = await other.viewport(2_000).render()
        (passive,) = [m.text for m in rendered.messages if "lantern festival begins" in m.text]
        assert passive.count("lantern festival begins") == 1
        assert id in passive


async def test_nothing_comes_to_mind_in_a_closed_repository(where):
    """A viewport of a closed repository says so, and reports no failed recall."""
    seen = RecordingObserver()
    async with Mnemo(where, embedder=HashingEmbedder()) as memory:
        memory.subscribe(seen)
        repo = await memory.open_repo("r")
        chat = repo.conversation("mine")
        await chat.append({"role": "user", "content": "kyoto in spring"})
        window = chat.viewport(1_000)
        await memory.close_repo("r")
        with pytest.raises(UsageError, match="closed"):
            await window.recalled()
    assert not [event for event in seen.events if isinstance(event, RecallFailed)]

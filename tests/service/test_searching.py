"""Search, drill-down and their tools through the public interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from mnemo import Mnemo, NotFound, UsageError
from mnemo.events import RecallFailed
from mnemo.testing import HashingEmbedder, RecordingObserver


@pytest.fixture(params=["memory:", "file"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Both stores."""
    return "memory:" if request.param == "memory:" else str(tmp_path / "m.db")


async def test_an_agent_finds_what_it_does_not_see(where: str) -> None:
    """Acceptance 4, 21, 22, 25: other threads and sessions, and what left its window."""
    async with Mnemo(where, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
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


async def test_an_agent_searches_and_views_by_tools(where: str) -> None:
    """Acceptance 29, 30: bound to its thread, the tools leave out what it sees."""
    async with Mnemo(where, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
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


async def test_a_purged_thread_is_not_found(where: str) -> None:
    """Section 1: erased records are neither found nor viewed."""
    async with Mnemo(where, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        thread = repo.conversation("mine")
        (message,) = await thread.append([{"role": "user", "content": "kyoto in spring"}])
        await thread.purge()
        assert await repo.search("kyoto") == []
        with pytest.raises(NotFound):
            await repo.view(message.stored_id)


async def test_nothing_comes_to_mind_in_a_closed_repository(where: str) -> None:
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

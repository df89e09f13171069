"""The reprs of public objects are one short line, and signatures show readable defaults."""

import inspect

import pytest

from mnemo import Conversation, Mnemo, Notes, Repository, Session
from mnemo.testing import HashingEmbedder


async def test_a_public_object_says_what_it_is_in_one_line():
    """Kind, name, and the levels that tell two of them apart."""
    memory = Mnemo("memory:", embedder=HashingEmbedder())
    assert repr(memory) == "<Mnemo not open>"
    async with memory:
        repo = await memory.open_repo("trips")
        session = await repo.start_session("Plan", session_id="x")
        await session.append("I want to see Tokyo.", "")
        chat = repo.conversation("ada")
        (stored,) = await chat.append({"role": "user", "content": "Osaka."})
        shown = {
            "<Mnemo open, 1 repositories>": memory,
            "<Repository 'trips' open>": repo,
            "<Session 'x' collecting, 1 step>": session,
            "<Conversation 'ada'>": chat,
            "<Viewport of 'ada', 900 tokens>": chat.viewport(900),
            "<Goals of 'ada'>": chat.goals,
            "<Pins of 'ada'>": chat.pins,
            "<Snapshots of 'ada'>": chat.snapshots,
            "<Notes of 'trips'>": repo.notes,
            "<NoteToolbox, 4 tools>": repo.notes.toolbox(),
            "<AgentTool search_messages>": repo.tools()[0],
            "<Subscription>": memory.subscribe(print),
            "<RecallResult mixed, 1 candidate>": await repo.recall(
                "Tokyo", mode="mixed", types=["episodic"], session_id="x"
            ),
            f"<MessageView '{stored.id}', 0 before, 0 after>": await repo.view(stored.id),
            "<RenderedViewport 1 messages, 2 tokens>": await chat.viewport(900).render(),
        }
        assert [repr(value) for value in shown.values()] == list(shown)
        feed = await chat.feed(session)
        assert repr(feed) == "<Feed 'ada' to 'x', active>"
        await session.aclose()
        assert repr(session) == "<Session 'x' collecting, 1 step, ended>"
    assert [repr(repo), repr(memory)] == ["<Repository 'trips' closed>", "<Mnemo closed>"]


@pytest.mark.parametrize("cls", [Mnemo, Repository, Session, Conversation, Notes])
def test_no_default_of_a_signature_is_an_address(cls):
    """A sentinel shows its name, not where it lies in memory."""
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        assert " object at 0x" not in str(inspect.signature(method)), name

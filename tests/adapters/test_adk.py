"""ADK's memory service over mnemo: every method, and under its Runner with a scripted model."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.memory import BaseMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService, Session
from google.adk.tools import load_memory, preload_memory
from google.genai.types import Blob, Content, FunctionCall, Part
from helpers import Kit
from pydantic import Field

import mnemo.sync
from mnemo import ConfigError, UsageError
from mnemo.adapters.adk import MnemoMemoryService, repo_id_of
from mnemo.testing import HashingEmbedder

SECRET = "vqzkxwbrtd"
"""Occurs nowhere else."""
ADA = {"app_name": "app", "user_id": "ada"}


@pytest.fixture
def service(kit: Kit) -> MnemoMemoryService:
    """The memory service over it."""
    return MnemoMemoryService(kit.memory)


def event(text: str, id: str = "", author: str = "user", **values: Any) -> Event:
    """An event that says *text*."""
    role = "user" if author == "user" else "model"
    return Event(
        id=id, author=author, content=Content(role=role, parts=[Part(text=text)]), **values
    )


def session(*events: Event, id: str = "s", user_id: str = "ada") -> Session:
    """A session of ADK with these events."""
    return Session(app_name="app", user_id=user_id, id=id, events=list(events))


async def found(service: MnemoMemoryService, query: str, **user: str) -> list[MemoryEntry]:
    """What a search gives."""
    return (await service.search_memory(**{**ADA, **user}, query=query)).memories


def texts(memories: list[MemoryEntry]) -> str:
    """What they say, together."""
    return "\n".join(part.text or "" for m in memories for part in m.content.parts or ())


def test_every_method_of_the_base_is_its_own():
    """None is left to the base class, which refuses or does nothing."""
    names = [name for name in vars(BaseMemoryService) if name.endswith(("_memory", "_to_memory"))]
    assert len(names) == 5
    assert all(name in vars(MnemoMemoryService) for name in names)


@pytest.mark.slow
async def test_a_long_session_is_remembered_in_parts(service, kit):
    """A session has no bound, a call has one."""
    said = [event(f"I count {n}.", f"e{n}") for n in range(2_500)]
    await service.add_session_to_memory(session(*said))
    repo = kit.memory.repo(repo_id_of("app", "ada"))
    assert await repo.conversation("s").next_seq() == len(said)


async def test_a_session_is_remembered_once(service, kit):
    """Added again with more events, only those are new; id, author and time come back."""
    first = event("My cat is called Tom.", "e1", timestamp=1_700_000_000.0)
    await service.add_session_to_memory(session(first))
    second = event("Tom, a fine name.", "e2", author="agent")
    await service.add_session_to_memory(session(first, second))
    repo = kit.memory.repo(repo_id_of("app", "ada"))
    assert [m.id for m in await repo.conversation("s").history()] == ["e1", "e2"]
    by_id = {memory.id: memory for memory in await found(service, "fine name")}
    assert (by_id["e2"].author, by_id["e2"].content.role) == ("agent", "model")
    (message,) = [m for m in await repo.conversation("s").history() if m.id == "e1"]
    assert message.at is not None
    assert message.at.timestamp() == 1_700_000_000.0


async def test_facts_are_extracted_in_the_background(service, kit):
    """Once the repository has settled there is a fact, and a search gives what it says."""
    await service.add_session_to_memory(session(event("My cat is called Tom.", "e1")))
    await kit.memory.repo(repo_id_of("app", "ada")).settle()
    (memory,) = (await kit.memory.repo(repo_id_of("app", "ada")).memories()).items
    assert memory.text == "User's cat is called Tom."
    assert "My cat is called Tom." in texts(await found(service, "What is the cat called?"))


async def test_users_and_applications_are_apart(service, kit):
    """Each has a repository, whatever signs its names hold; a search makes none."""
    await service.add_session_to_memory(session(event(f"I am {SECRET}.", "e")))
    for user in ({"user_id": "bob"}, {"app_name": "other"}, {"app_name": "app/ada", "user_id": ""}):
        assert await found(service, SECRET, **user) == []
    assert SECRET in texts(await found(service, SECRET))
    assert [one.id for one in await kit.memory.repos()] == ["app/ada"]
    ids = {repo_id_of("a/b", "c"), repo_id_of("a", "b/c"), repo_id_of("a", "x" * 300)}
    assert len(ids) == 3
    assert max(map(len, ids)) <= 200


async def test_repositories_are_listed_for_no_user(service, kit, monkeypatch):
    """A search costs no listing of all others, whether its user is known or not."""
    await service.add_session_to_memory(session(event(f"I am {SECRET}.", "e")))
    monkeypatch.delattr(type(kit.memory), "repos")
    assert SECRET in texts(await found(service, SECRET))
    assert await found(service, SECRET, user_id="bob") == []


async def test_events_are_added_as_a_delta(service, kit):
    """Beside those before, also without a session, with metadata that filters match."""
    await service.add_events_to_memory(
        **ADA, events=[event("I like figs.", "a")], session_id="s", custom_metadata={"kind": "food"}
    )
    await service.add_events_to_memory(**ADA, events=[event("I like tea.", "b")])
    await service.add_events_to_memory(**ADA, events=[])
    repo = kit.memory.repo(repo_id_of("app", "ada"))
    assert [one.thread_id for one in await repo.threads()] == ["events", "s"]
    hits = await repo.search("like", where={"kind": "food"})
    assert [hit.message_id for hit in hits] == ["a"]


async def test_an_event_that_says_nothing_is_left_out(service, kit):
    """Calls, files, thoughts and empty contents; of the rest the words are kept."""
    parts = [
        Part(function_call=FunctionCall(name="f", args={})),
        Part(inline_data=Blob(data=b"x", mime_type="image/png")),
        Part(text="hidden", thought=True),
    ]
    silent = Event(id="a", author="agent", content=Content(role="model", parts=parts))
    await service.add_session_to_memory(session(silent, Event(id="b", author="agent")))
    assert [one.id for one in await kit.memory.repos()] == []
    spoken = Content(role="model", parts=[*parts, Part(text="shown")])
    await service.add_session_to_memory(session(Event(id="c", author="agent", content=spoken)))
    history = await kit.memory.repo("app/ada").conversation("s").history()
    assert [message.content for message in history] == ["shown"]


async def test_an_event_that_was_changed_stays_as_it_was(service, kit):
    """What is new beside it is remembered all the same."""
    await service.add_session_to_memory(session(event("first", "e1")))
    changed = [event("another wording", "e1"), event("second", "e2")]
    await service.add_session_to_memory(session(*changed))
    history = await kit.memory.repo("app/ada").conversation("s").history()
    assert [message.content for message in history] == ["first", "second"]


async def test_memories_are_added_by_hand(service, kit):
    """Facts with their time, author and metadata; one without text stops all."""
    entry = MemoryEntry(
        content=Content(parts=[Part(text="Ada lives in Bern.")]),
        author="ada",
        timestamp="2024-03-01T12:00:00+00:00",
        custom_metadata={"a": 1},
    )
    await service.add_memory(**ADA, memories=[entry], custom_metadata={"b": 2})
    (fact,) = (await kit.memory.repo("app/ada").memories()).items
    assert fact.text == "Ada lives in Bern."
    assert fact.metadata == {"a": 1, "b": 2, "author": "ada"}
    (memory,) = await found(service, "Where does Ada live?")
    assert (memory.id, memory.timestamp) == (fact.id, "2024-03-01T12:00:00+00:00")
    for bad in (
        MemoryEntry(content=Content(parts=[])),
        entry.model_copy(update={"timestamp": "yesterday"}),
    ):
        new = MemoryEntry(content=Content(parts=[Part(text="Ada is tall.")]))
        with pytest.raises(ValueError, match=r"text|isoformat"):
            await service.add_memory(**ADA, memories=[new, bad])
    assert len((await kit.memory.repo("app/ada").memories()).items) == 1


async def test_a_message_is_deleted_with_what_came_of_it(service, kit):
    """Its fact goes, too; added again with its session, it does not come back."""
    events = session(event(f"My cat is called {SECRET}.", "e1"), event("I like tea.", "e2"))
    await service.add_session_to_memory(events)
    await kit.memory.repo("app/ada").settle()
    await service.delete_memory(**ADA, memory_id="e1")
    assert SECRET not in texts(await found(service, f"cat {SECRET}"))
    await service.add_session_to_memory(events)
    await kit.memory.repo("app/ada").settle()
    assert SECRET not in texts(await found(service, f"cat {SECRET}"))
    assert "tea" in texts(await found(service, "tea"))


async def test_a_fact_is_deleted_alone(service, kit):
    """The message that says it stays; what is unknown, or named by nothing, is gone already."""
    await service.add_session_to_memory(session(event("My cat is called Tom.", "e1")))
    await kit.memory.repo("app/ada").settle()
    (fact,) = (await kit.memory.repo("app/ada").memories()).items
    await service.delete_memory(**ADA, memory_id=fact.id)
    assert (await kit.memory.repo("app/ada").memories()).items == ()
    assert [memory.id for memory in await found(service, "cat")] == ["e1"]
    for id in ("unknown", "", None):
        await service.delete_memory(**ADA, memory_id=id)
    await service.delete_memory(app_name="app", user_id="nobody", memory_id="e1")


async def test_a_search_gives_at_most_so_many(kit):
    """Best first; none for a blank query."""
    service = MnemoMemoryService(kit.memory, most=2)
    events = [event(f"I like fig number {n}.", f"e{n}") for n in range(5)]
    await service.add_session_to_memory(session(*events))
    assert len(await found(service, "Which fig?")) == 2
    assert await found(service, "  ") == []


@pytest.mark.parametrize("metadata", [{"bad": object()}, {"bad": float("nan")}])
async def test_metadata_that_is_no_json_is_refused(service, kit, metadata):
    """Nothing is stored, and no repository made."""
    events = [event("one", "a"), event("two", "b")]
    with pytest.raises(ValueError, match="metadata"):
        await service.add_events_to_memory(**ADA, events=events, custom_metadata=metadata)
    assert [one.id for one in await kit.memory.repos()] == []


def test_what_is_no_service_is_refused(kit):
    """A repository is none: users would share it."""
    for given in ("memory.db", kit.repo, None):
        with pytest.raises(ConfigError, match="Mnemo"):
            MnemoMemoryService(given)  # type: ignore[arg-type]


# ── Under the Runner ─────────────────────────────────────────────────────────────────


class ScriptedLlm(BaseLlm):
    """A model that says its script, and keeps what it was sent."""

    model: str = "scripted"
    script: list[Part]
    seen: list[LlmRequest] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """The next part of the script."""
        self.seen.append(llm_request.model_copy(deep=True))
        yield LlmResponse(content=Content(role="model", parts=[self.script.pop(0)]))


async def turn(runner: Runner, session_id: str, text: str) -> str:
    """One turn of a user; what the agent said last."""
    said = ""
    message = Content(role="user", parts=[Part(text=text)])
    async for one in runner.run_async(user_id="ada", session_id=session_id, new_message=message):
        said = "".join(p.text or "" for p in (one.content.parts or ())) if one.content else said
    return said


@pytest.mark.slow
async def test_the_runner_finds_what_another_session_said(service):
    """One session is added to memory; in the next the model loads it, and it is preloaded."""
    call = Part(function_call=FunctionCall(name="load_memory", args={"query": "cat"}))
    script = [Part(text="Nice."), call, Part(text="Tom."), Part(text="Yes.")]
    model = ScriptedLlm(script=script)
    agent = LlmAgent(name="agent", model=model, tools=[load_memory, preload_memory])
    sessions = InMemorySessionService()
    runner = Runner(app_name="app", agent=agent, session_service=sessions, memory_service=service)
    await sessions.create_session(app_name="app", user_id="ada", session_id="one")
    assert await turn(runner, "one", "My cat is called Tom.") == "Nice."
    ended = await sessions.get_session(app_name="app", user_id="ada", session_id="one")
    assert ended is not None
    await service.add_session_to_memory(ended)
    await sessions.create_session(app_name="app", user_id="ada", session_id="two")
    assert await turn(runner, "two", "What is my cat called?") == "Tom."
    answered = model.seen[2].contents[-1].parts or []
    responses = [p.function_response for p in answered if p.function_response]
    assert "Tom" in str(responses) or "Tom" in str(model.seen[2].contents)
    assert "PAST_CONVERSATIONS" in str(model.seen[1].contents)
    assert "called Tom" in str(model.seen[1].contents)
    await runner.close()


# ── Blocking, and from a path ────────────────────────────────────────────────────────


def test_a_blocking_service_serves_loops_of_their_own(db):
    """``mnemo.sync``: each call runs in a worker thread."""
    with mnemo.sync.Mnemo(db, embedder=HashingEmbedder()) as memory:
        service = MnemoMemoryService(memory)
        asyncio.run(service.add_session_to_memory(session(event("I like figs.", "e1"))))
        assert "figs" in texts(asyncio.run(found(service, "figs")))


@pytest.mark.slow
async def test_a_path_is_opened_by_the_first_call_and_closed(db):
    """What was added is there in the next service; a closed one refuses."""
    async with MnemoMemoryService.from_path(db) as service:
        assert not db.exists()
        await service.add_session_to_memory(session(event("I like figs.", "e1")))
    with pytest.raises(UsageError, match="closed"):
        await found(service, "figs")
    async with MnemoMemoryService.from_path(db) as again:
        assert "figs" in texts(await found(again, "figs"))

"""Both providers under Microsoft's Agent Framework itself: its agents, sessions and tool loop."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)
from helpers import Kit

from mnemo import ConfigError, Mnemo
from mnemo.adapters.agent_framework import KNOWN, MnemoContextProvider, MnemoHistoryProvider

pytestmark = pytest.mark.slow


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """It answers as told, and notes what it was sent."""

    def __init__(self, *answers: Message) -> None:
        super().__init__()
        self.answers, self.sent = list(answers), list[list[Message]]()

    async def _inner_get_response(self, *, messages: Sequence[Message], **others: Any) -> Any:  # type: ignore[override]
        self.sent.append(list(messages))
        return ChatResponse(messages=[self.answers.pop(0)])


def says(text: str) -> Message:
    return Message("assistant", [text])


def texts(messages: Sequence[Message]) -> list[str]:
    return [one.text for one in messages]


async def test_a_session_goes_on_in_another_process_with_all_that_was_said(kit: Kit):
    """Another agent with another provider has the messages of the session, searched as well."""
    history = MnemoHistoryProvider(kit.repo)
    first = Agent(Scripted(says("Hello Ada.")), context_providers=[history])
    await first.run("I am Ada, I live in Bern.", session=AgentSession(session_id="ada"))
    client = Scripted(says("In Bern."))
    second = Agent(client, context_providers=[MnemoHistoryProvider(kit.repo)])
    await second.run("Where do I live?", session=AgentSession(session_id="ada"))
    assert texts(client.sent[0]) == ["I am Ada, I live in Bern.", "Hello Ada.", "Where do I live?"]
    assert len(await history.get_messages("ada")) == 4
    assert await history.get_messages("eve") == await history.get_messages(None) == []
    assert [hit.snippet for hit in await kit.repo.search("Bern", thread_id="ada")]


async def test_calls_results_and_pictures_come_back_as_they_were(kit: Kit):
    """What the framework's own loop stores is what it gets; the result is a message."""

    @tool(approval_mode="never_require")
    def weather(city: str) -> str:
        """Tell the weather."""
        return f"Snow in {city}."

    call = Content.from_function_call("c1", "weather", arguments='{"city": "Bern"}')
    client = Scripted(Message("assistant", [call]), says("It snows."))
    history = MnemoHistoryProvider(kit.repo)
    agent = Agent(client, context_providers=[history], tools=[weather])
    picture = Content.from_uri("https://example.org/a.png", media_type="image/png")
    asked = Message("user", ["Look:", picture], author_name="Ada", message_id="m1")
    await agent.run(asked, session=AgentSession(session_id="w"))
    stored = await history.get_messages("w")
    assert [one.role for one in stored] == ["user", "assistant", "tool", "assistant"]
    assert stored[0].to_dict() == asked.to_dict()
    assert stored[1].contents[0].arguments == '{"city": "Bern"}'
    assert stored[2].contents[0].call_id == "c1"
    told = [one.text for one in await kit.repo.conversation("w").recent()]
    assert told == ["Look:", "", "Snow in Bern.", "It snows."]


async def test_several_results_of_one_message_are_one_message_again(kit: Kit):
    """Each is a message of the thread, and the framework gets them as it gave them."""
    both = [Content.from_function_result(f"c{n}", result=f"result {n}") for n in (1, 2)]
    history = MnemoHistoryProvider(kit.repo)
    await history.save_messages("t", [Message("tool", both)])
    (back,) = await history.get_messages("t")
    assert [one.call_id for one in back.contents] == ["c1", "c2"]
    assert len(await kit.repo.conversation("t").recent()) == 2


async def test_what_somebody_else_said_in_the_thread_is_there_in_its_words(kit: Kit):
    """A message that mnemo's own call appended."""
    await kit.repo.conversation("t").append({"role": "user", "content": "From elsewhere."})
    assert texts(await MnemoHistoryProvider(kit.repo).get_messages("t")) == ["From elsewhere."]


async def test_what_was_said_in_one_session_is_known_in_another(kit: Kit):
    """Recalled before the question, and not stored again with it."""
    memory = MnemoContextProvider(kit.repo)
    agent = Agent(Scripted(says("Noted.")), context_providers=[memory])
    await agent.run("I am allergic to peanuts.", session=AgentSession(session_id="monday"))
    client = Scripted(says("No peanuts."))
    other = Agent(client, context_providers=[memory])
    await other.run("Am I allergic to peanuts?", session=AgentSession(session_id="friday"))
    (recalled, question) = client.sent[0]
    assert recalled.text.startswith(f"{KNOWN}\n- ")
    assert "allergic to peanuts" in recalled.text
    assert question.text == "Am I allergic to peanuts?"
    stored = await kit.repo.conversation("friday").recent()
    assert [one.text for one in stored] == ["Am I allergic to peanuts?", "No peanuts."]


async def test_with_a_history_that_remembers_the_context_stores_nothing(kit: Kit):
    """Both in one agent: each message is in the thread once."""
    providers = [
        MnemoHistoryProvider(kit.repo, remember=True),
        MnemoContextProvider(kit.repo, store=False),
    ]
    agent = Agent(Scripted(says("Noted.")), context_providers=providers)
    await agent.run("I play the cello.", session=AgentSession(session_id="s"))
    assert len(await kit.repo.conversation("s").recent()) == 2
    await kit.repo.settle()
    assert [fact.text for fact in await kit.repo.memories()]


async def test_a_history_needs_a_session_and_a_provider_an_open_repository(kit: Kit):
    """Nothing is stored; the message says what to give."""
    with pytest.raises(ValueError, match="session="):
        await MnemoHistoryProvider(kit.repo).save_messages(None, [says("Hi.")])
    for kind in (MnemoHistoryProvider, MnemoContextProvider):
        with pytest.raises(ConfigError, match="open Repository of mnemo or"):
            kind(Mnemo("memory:"))
        with pytest.raises(ConfigError, match=rf"{kind.__name__}\.from_path"):
            kind("memory.db")


async def test_a_file_serves_as_well(tmp_path):
    """``from_path`` opens at the first call and is closed by ``async with``."""
    path = tmp_path / "memory.db"
    async with MnemoHistoryProvider.from_path(path) as history:
        await history.save_messages("s", [says("Kept.")])
    async with MnemoContextProvider.from_path(path) as known:
        client = Scripted(says("Kept."))
        agent = Agent(client, context_providers=[known])
        await agent.run("What was kept?", session=AgentSession(session_id="t"))
    assert len(client.sent[0]) == 2


def test_a_blocking_repository_serves_as_well(blocking_repo):
    """Of a program without an event loop of its own."""
    history = MnemoHistoryProvider(blocking_repo)
    anyio.run(history.save_messages, "s", [says("Kept.")])
    assert texts(anyio.run(history.get_messages, "s")) == ["Kept."]

"""
Pydantic AI over mnemo: the SDK's own store calls, its TestModel and FunctionModel.

What a ``ConversationStore`` promises is asked of the SDK's ``InMemoryConversationStore`` as well:
the same test runs over both.
"""

import asyncio
from datetime import UTC, datetime
from itertools import count
from typing import Any

import anyio
import pytest
from helpers import Kit
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    ImageUrl,
    UserError,
)
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from mnemo import ConfigError, Message, StoreCorrupt, StoreError
from mnemo.adapters.pydantic_ai import MnemoConversationStore, MnemoMemory, thread_of

SECRET = "vqzkxwbrtd"
"""Occurs nowhere else."""


@pytest.fixture(params=["mnemo", "in memory"])
def store(request: pytest.FixtureRequest, kit: Kit) -> ConversationStore:
    """The store under test, and the SDK's own."""
    return (
        MnemoConversationStore(kit.repo)
        if request.param == "mnemo"
        else InMemoryConversationStore()
    )


def asked(text: str) -> ModelRequest:
    """A request of a user."""
    return ModelRequest(parts=[UserPromptPart(text)])


def told(text: str) -> ModelResponse:
    """A response in words."""
    return ModelResponse(parts=[TextPart(text)])


def talk(turns: int, id: str = "c") -> Conversation:
    """A conversation of so many turns that no store has yet."""
    messages: list[ModelMessage] = []
    for number in range(turns):
        messages += [asked(f"q{number}"), told(f"a{number}")]
    return Conversation(messages=messages, conversation_id=id)


def texts(conversation: Conversation | None) -> list[str]:
    """What the first parts of its messages say."""
    assert conversation is not None
    return [str(getattr(m.parts[0], "content", None)) for m in conversation.messages]


# ── The protocol ─────────────────────────────────────────────────────────────────────


async def test_a_conversation_is_saved_and_loaded(store):
    """Messages, usage, revision; a second save stores what is new alone."""
    assert await store.load("c") is None
    conversation = talk(2)
    conversation.usage = RunUsage(requests=2, input_tokens=7)
    assert len(await store.save(conversation)) == 4
    loaded = await store.load("c")
    assert loaded == conversation
    assert loaded is not None
    loaded.messages += [asked("q2"), told("a2")]
    assert [entry.message for entry in await store.save(loaded)] == loaded.messages[4:]
    assert texts(await store.load("c")) == ["q0", "a0", "q1", "a1", "q2", "a2"]
    assert await store.save(loaded) == []


async def test_facts_are_extracted_from_saved_messages_that_are_remembered(kit):
    """With ``remember=True`` facts come of a conversation without a session, each once."""
    store = MnemoConversationStore(kit.repo, remember=True)
    conversation = Conversation(messages=[asked("I live in Lund.")], conversation_id="c")
    await store.save(conversation)
    loaded = await store.load("c")
    assert loaded is not None
    loaded.messages += [told("Noted.")]
    await store.save(loaded)
    await kit.repo.settle()
    (fact,) = (await kit.repo.memories()).items
    assert "Lund" in fact.text


@pytest.mark.parametrize(("limit", "expected"), [(0, []), (1, ["a2"]), (3, ["a1", "q2", "a2"])])
async def test_a_limit_loads_the_last_messages(store, limit, expected):
    """A window saved again appends to the whole conversation."""
    await store.save(talk(3))
    window = await store.load("c", limit=limit)
    assert texts(window) == expected
    assert window is not None
    window.messages.append(asked("more"))
    await store.save(window)
    assert texts(await store.load("c"))[-2:] == ["a2", "more"]
    assert len(texts(await store.load("c"))) == 7


async def test_a_stale_copy_is_a_conflict_and_stores_nothing(store):
    """Two loaded the same revision: the second to save must load again."""
    await store.save(talk(1))
    one, other = await store.load("c"), await store.load("c")
    assert one is not None
    assert other is not None
    one.messages.append(asked("one"))
    other.messages.append(asked("other"))
    await store.save(one)
    with pytest.raises(ConversationConflict):
        await store.save(other)
    with pytest.raises(ConversationConflict):
        await store.save(talk(1))
    assert texts(await store.load("c")) == ["q0", "a0", "one"]


async def test_a_rewritten_history_is_a_branch(store):
    """The old one stays stored, and can be branched back to."""
    await store.save(talk(2))
    loaded = await store.load("c")
    assert loaded is not None
    loaded.messages[2:] = [asked("instead")]
    loaded.new_message_index = None
    await store.save(loaded)
    assert texts(await store.load("c")) == ["q0", "a0", "instead"]
    (record,) = await store.list_conversations()
    (tip,) = record.branches
    back = await store.branch("c", from_entry=tip, expected_revision=record.revision)
    assert texts(back) == ["q0", "a0", "q1", "a1"]
    assert texts(await store.load("c")) == texts(back)


async def test_a_conversation_is_branched_from_an_earlier_message(store):
    """The turn after it goes on the branch; a wrong place or revision is refused."""
    await store.save(talk(2))
    loaded = await store.load("c")
    assert loaded is not None
    with pytest.raises(UserError):
        await store.branch("c", at=9, expected_revision=loaded.revision)
    with pytest.raises(ConversationConflict):
        await store.branch("c", at=2, expected_revision="stale")
    branched = await store.branch("c", at=2, expected_revision=loaded.revision)
    branched.messages.append(asked("again"))
    await store.save(branched)
    assert texts(await store.load("c")) == ["q0", "a0", "again"]


async def test_a_fork_shares_entries_and_goes_its_own_way(store):
    """Neither sees the other's new turns; the entries before are the same ones."""
    await store.save(talk(2), scope="ada")
    fork = await store.fork("c", at=2, new_conversation_id="f")
    fork.messages.append(asked("forked"))
    await store.save(fork)
    again = await store.fork("f", new_conversation_id="g")
    assert texts(again) == texts(await store.load("f")) == ["q0", "a0", "forked"]
    assert texts(await store.load("c")) == ["q0", "a0", "q1", "a1"]
    own, shared = await store.load_entries("c"), await store.load_entries("f", limit=2)
    assert own is not None
    assert shared is not None
    assert shared[0].id == own[1].id
    record = await store.read_record("f")
    assert record is not None
    assert (record.forked_from, record.forked_at, record.scope) == ("c", own[1].id, "ada")
    with pytest.raises(ConversationConflict):
        await store.fork("c", new_conversation_id="f")


async def test_scopes_keep_conversations_apart(store):
    """Another scope's conversation does not load, list, save or go."""
    await store.save(talk(1, "a"), scope="ada")
    await store.save(talk(1, "b"), scope="bob")
    assert await store.load("a", scope="bob") is None
    assert [one.conversation_id for one in await store.list_conversations(scope="bob")] == ["b"]
    await store.delete("a", scope="bob")
    loaded = await store.load("a", scope="ada")
    assert loaded is not None
    loaded.messages.append(asked("more"))
    with pytest.raises(ConversationConflict):
        await store.save(loaded, scope="bob")


async def test_conversations_are_listed_last_saved_first(store):
    """At most as many as asked for."""
    for id in ("a", "b", "c"):
        await store.save(talk(1, id))
    again = await store.load("a")
    assert again is not None
    again.messages.append(asked("more"))
    await store.save(again)
    listed = [one.conversation_id for one in await store.list_conversations()]
    assert listed == ["a", "c", "b"]
    assert [one.conversation_id for one in await store.list_conversations(limit=2)] == ["a", "c"]
    assert await store.list_conversations(limit=0) == []


@pytest.mark.slow
async def test_a_deleted_conversation_is_gone_and_may_be_new_again(
    store,
):
    """A copy loaded before cannot be saved over the new one; a fork keeps what it shares."""
    await store.save(talk(2))
    stale = await store.load("c")
    assert stale is not None
    await store.fork("c", at=3, new_conversation_id="f")
    await store.delete("c")
    assert await store.load("c") is None
    assert [one.conversation_id for one in await store.list_conversations()] == ["f"]
    stale.messages.append(asked("late"))
    with pytest.raises(ConversationConflict):
        await store.save(stale)
    assert texts(await store.load("f")) == ["q0", "a0", "q1"]
    await store.save(talk(1))
    assert texts(await store.load("c")) == ["q0", "a0"]
    await store.delete("f")
    assert texts(await store.load("c")) == ["q0", "a0"]
    await store.delete("c")
    await store.delete("c")
    assert await store.list_conversations() == []


async def test_an_entry_that_is_not_stored_is_a_lookup_error(store):
    """By its id; those that are stored are found, of whatever conversation."""
    entries = await store.save(talk(1))
    assert await store.read_entry(entries[1].id) == entries[1]
    with pytest.raises(LookupError):
        await store.read_entry("unknown")


PARTS: list[ModelMessage] = [
    ModelRequest(
        parts=[
            SystemPromptPart("Be brief."),
            UserPromptPart(
                ["Look:", ImageUrl(url="https://host/i.png")], timestamp=datetime.now(UTC)
            ),
        ],
        instructions="Be kind.",
        metadata={"n": 1},
    ),
    ModelRequest(
        parts=[UserPromptPart([BinaryContent(b"\x00\xff", media_type="application/pdf")])]
    ),
    ModelResponse(
        parts=[
            ThinkingPart("hm", signature="s"),
            TextPart("Two calls: \x00 \ud83d 😊"),
            ToolCallPart("f", {"a": [1, 1.5, None]}, "c1"),
            ToolCallPart("f", "not JSON", "c2"),
        ],
        model_name="m",
    ),
    ModelResponse(parts=[ToolCallPart("f", {}, "same"), ToolCallPart("g", {}, "same")]),
    ModelResponse(parts=[ToolCallPart("f", {}, "x" * 600)]),
    ModelRequest(
        parts=[
            ToolReturnPart("f", {"n": 2}, "c1"),
            ToolReturnPart("f", "two", "c2"),
            UserPromptPart("And?"),
        ]
    ),
    ModelRequest(parts=[]),
    ModelResponse(parts=[]),
]


@pytest.mark.parametrize("message", PARTS, ids=lambda message: message.kind)
async def test_a_message_comes_back_equal(store, message):
    """Whatever its parts are: images, bytes, thoughts, calls with ids that are none."""
    if "\ud83d" in str(message):
        message.parts[1].content = "Two calls: \x00 😊"  # type: ignore[union-attr]
    await store.save(Conversation(messages=[message], conversation_id="c"))
    loaded = await store.load("c")
    assert loaded is not None
    assert loaded.messages == [message]


# ── As messages of a repository ──────────────────────────────────────────────────────


async def test_what_was_said_is_searched_and_shown(kit):
    """Prompts, answers and results are messages of the thread, in their order and roles."""
    store = MnemoConversationStore(kit.repo)
    await store.save(
        Conversation(messages=PARTS[:1] + PARTS[5:6] + [told("A cat.")], conversation_id="c")
    )
    assert [hit.session_id for hit in await kit.repo.search("cat")] == [thread_of("c")]
    history = await kit.repo.conversation(thread_of("c")).history()
    assert [(m.role, m.content) for m in history] == [
        ("system", "Be brief."),
        ("user", "Look:"),
        ("tool", '{"n":2}'),
        ("tool", "two"),
        ("user", "And?"),
        ("assistant", "A cat."),
    ]


@pytest.mark.slow
async def test_deleting_erases_what_no_fork_needs(open_kit, db):
    """Rows, index and bytes; what a fork shared goes with the fork."""
    kit = await open_kit(embedded=True, store=db)
    store = MnemoConversationStore(kit.repo)
    await store.save(Conversation(messages=[asked("keep"), told(SECRET)], conversation_id="c"))
    await store.fork("c", new_conversation_id="f")
    await store.delete("c")
    assert await kit.repo.search(SECRET)
    assert texts(await store.load("f")) == ["keep", SECRET]
    await store.delete("f")
    await kit.repo.settle()
    assert await kit.repo.search(SECRET) == []
    assert await kit.memory.scrub()
    assert [f.name for f in db.parent.iterdir() if SECRET.encode() in f.read_bytes()] == []


async def test_a_fork_of_what_is_deleted_meanwhile_is_refused(kit, monkeypatch):
    """Deleted between the fork's look and its write: a conflict, and nothing of it is left."""
    store = MnemoConversationStore(kit.repo)
    await store.save(talk(1))
    append = store._append

    async def late(id: str, *rest: Any) -> None:
        monkeypatch.undo()
        await store.delete("c")
        await append(id, *rest)

    monkeypatch.setattr(store, "_append", late)
    with pytest.raises(ConversationConflict):
        await store.fork("c", new_conversation_id="f")
    assert await store.list_conversations() == []
    assert await kit.repo.search("q0") == []


async def test_messages_of_others_in_the_thread_are_passed_by(kit):
    """Whoever appends to a conversation's thread hides nothing and breaks no save."""
    store = MnemoConversationStore(kit.repo)
    await store.save(talk(1))
    await kit.repo.conversation(thread_of("c")).append({"role": "user", "content": "foreign"})
    loaded = await store.load("c")
    assert texts(loaded) == ["q0", "a0"]
    assert loaded is not None
    loaded.messages.append(asked("q1"))
    await store.save(loaded)
    assert texts(await store.load("c")) == ["q0", "a0", "q1"]
    assert texts(await store.load("c", limit=2)) == ["a0", "q1"]


async def test_saves_at_once_have_one_winner(kit):
    """Of twenty copies of one revision one is saved, nineteen are told."""
    store = MnemoConversationStore(kit.repo)
    await store.save(talk(1))
    results: list[str] = []

    async def save(number: int) -> None:
        copy = Conversation(
            messages=[*talk(1).messages, asked(str(number))], conversation_id="c", revision=revision
        )
        try:
            await store.save(copy)
        except ConversationConflict:
            results.append("told")
        else:
            results.append("saved")

    loaded = await store.load("c")
    assert loaded is not None
    revision = loaded.revision
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(save, number)
    assert sorted(results) == ["saved", *["told"] * 19]
    assert len(texts(await store.load("c"))) == 3


@pytest.mark.slow
async def test_a_save_of_any_length_is_whole_or_not_there(open_kit, failing_store):
    """It is stored in portions, the record with the last; one that fails takes back the others."""
    failing, writes = failing_store(), count()
    kit = await open_kit(store=failing, embedded=True)
    store, long = MnemoConversationStore(kit.repo), talk(1_250)

    def is_last(work: Any) -> bool:
        return "transacted" in work.__qualname__ and next(writes) == 2

    failing.fail("writing", only=is_last)
    with pytest.raises(StoreError):
        await store.save(long)
    assert next(writes) > 2
    assert await store.load("c") is None
    assert await kit.repo.conversation(thread_of("c")).history() == []
    await store.save(long)
    assert texts(await store.load("c")) == texts(long)


async def test_what_the_sdk_cannot_read_is_named(kit):
    """A message of another version is StoreCorrupt, with the row."""
    extra = '{"format": "pydantic-ai", "item": {"record": {"conversation_id": 7}}}'
    odd = Message(role="assistant", id="odd", extra=extra)
    await kit.repo.conversation(thread_of("c")).append(odd)
    with pytest.raises(StoreCorrupt, match="odd") as caught:
        await MnemoConversationStore(kit.repo).load("c")
    assert (caught.value.table, caught.value.key) == ("messages", "odd")


@pytest.mark.parametrize("id", ["x" * 600, "\x00"])
async def test_an_id_that_cannot_be_stored_is_refused(kit, id):
    """Nothing is stored."""
    with pytest.raises(ValueError, match="id"):
        await MnemoConversationStore(kit.repo).save(talk(1, id))
    assert await kit.repo.threads() == []


async def test_metadata_that_is_no_json_is_refused_whole(kit):
    """The message before it is not stored either."""
    store = MnemoConversationStore(kit.repo)
    bad = ModelRequest(parts=[UserPromptPart("x")], metadata={"bad": object()})
    with pytest.raises(ValueError, match="serialize"):
        await store.save(Conversation(messages=[asked("before"), bad], conversation_id="c"))
    assert await store.load("c") is None
    assert await kit.repo.search("before") == []


@pytest.mark.parametrize("make", [MnemoConversationStore, MnemoMemory])
def test_what_is_no_repository_is_refused(make):
    """The error says what to give."""
    with pytest.raises(ConfigError, match="Repository"):
        make("memory.db")


# ── Under an agent ───────────────────────────────────────────────────────────────────


async def test_an_agent_goes_on_from_the_store(store):
    """Two runs around a save: the second is sent the first; its tool calls are stored."""
    agent = Agent(TestModel(), tools=[])

    @agent.tool_plain
    def weather(city: str) -> str:
        return f"sunny in {city}"

    for turn in range(2):
        conversation = await store.load("c") or Conversation(conversation_id="c")
        result = await agent.run(f"Turn {turn}", conversation=conversation)
        await store.save(result)
    loaded = await store.load("c")
    assert loaded is not None
    assert loaded.messages == result.all_messages()
    assert loaded.usage.requests == 3
    parts = [part for message in loaded.messages for part in message.parts]
    assert sum(isinstance(part, ToolReturnPart) for part in parts) == 1


async def test_a_paused_run_is_resumed_from_the_store(store):
    """The requests that wait for a human are stored with the conversation."""
    agent = Agent(TestModel(), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def erase(name: str) -> str:
        return f"erased {name}"

    paused = await agent.run("Erase it.", conversation=Conversation(conversation_id="c"))
    assert isinstance(paused.output, DeferredToolRequests)
    await store.save(paused)
    loaded = await store.load("c")
    assert loaded is not None
    assert loaded.deferred_tool_requests is not None
    answers = loaded.deferred_tool_requests.build_results(approve_all=True)
    result = await agent.run(conversation=loaded, deferred_tool_results=answers)
    await store.save(result)
    done = await store.load("c")
    assert done is not None
    assert done.deferred_tool_requests is None
    assert any(isinstance(p, ToolReturnPart) for m in done.messages for p in m.parts)


async def test_the_capability_offers_tools_that_find_and_remember(kit):
    """Search, view, recall and remember, with mnemo's schemas; remember appends elsewhere."""
    await kit.repo.remember("Ada is allergic to peanuts.")
    seen: list[AgentInfo] = []
    calls = iter(
        [
            ToolCallPart("search_messages", {"query": "peanuts"}),
            ToolCallPart("recall", {"query": "allergic"}),
            ToolCallPart("remember", {"content": "Bob likes figs.", "text": "Bob likes figs."}),
            ToolCallPart("search_messages", {"query": 7}),
        ]
    )

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        call = next(calls, None)
        return ModelResponse(parts=[call or TextPart("done")])

    agent = Agent(FunctionModel(model), capabilities=[MnemoMemory(kit.repo)])
    result = await agent.run("What is Ada allergic to?")
    assert result.output == "done"
    names = {tool.name for tool in seen[0].function_tools}
    assert names == {"search_messages", "view_messages", "recall", "remember"}
    parts = [p for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
    answers = [str(part.content) for part in parts]
    assert "peanuts" in answers[0]
    assert "peanuts" in answers[1]
    assert answers[3].startswith("Error:")
    assert [one.thread_id for one in await kit.repo.threads()] == ["default"]
    assert await kit.repo.search("figs")


@pytest.mark.slow
async def test_the_window_is_sent_and_the_whole_is_kept(kit):
    """Earlier turns are cut and told in words; the run's history and the store stay whole."""
    store = MnemoConversationStore(kit.repo)
    sent: list[list[ModelMessage]] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sent.append(messages)
        return told("word " * 150)

    agent = Agent(FunctionModel(model), capabilities=[MnemoMemory(kit.repo, budget_tokens=2_000)])
    for turn in range(16):
        conversation = await store.load("c") or Conversation(conversation_id="c")
        result = await agent.run(f"Question {turn}", conversation=conversation)
        await store.save(result)
        await kit.repo.conversation(thread_of("c")).settle()
    first, *rest = sent[-1]  # the SDK joins the words of memory and the first prompt
    assert [type(part) for part in first.parts] == [SystemPromptPart, UserPromptPart]
    assert len(rest) < 31
    assert getattr(rest[-1].parts[0], "content", "") == "Question 15"
    assert len(result.all_messages()) == 32
    assert len(texts(await store.load("c"))) == 32
    assert not any(isinstance(m.parts[0], SystemPromptPart) for m in result.all_messages())


async def test_an_unsaved_conversation_is_sent_as_it_is(kit):
    """Nothing is known of it, so nothing is cut, and nothing is stored."""
    seen: list[int] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(len(messages))
        return told("ok")

    agent = Agent(FunctionModel(model), capabilities=[MnemoMemory(kit.repo)])
    await agent.run("now", message_history=talk(20).messages)
    assert seen == [41]
    assert await kit.repo.threads() == []


# ── Blocking, and from a path ────────────────────────────────────────────────────────


def test_a_blocking_program_uses_a_blocking_repository(
    blocking_repo,
):
    """``run_sync`` with the capability; the store under a loop of its own."""
    store = MnemoConversationStore(blocking_repo)
    agent = Agent(TestModel(), capabilities=[MnemoMemory(blocking_repo)])
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    result = agent.run_sync("Hello", conversation=Conversation(conversation_id="c"))
    asyncio.set_event_loop(None)
    loop.close()
    asyncio.run(store.save(result))
    loaded = asyncio.run(store.load("c"))
    assert loaded is not None
    assert loaded.messages == result.all_messages()


@pytest.mark.slow
async def test_a_path_is_opened_by_the_first_call(db):
    """What one store saved another one loads."""
    async with MnemoConversationStore.from_path(db) as store:
        assert not db.exists()
        await store.save(talk(1))
    async with MnemoConversationStore.from_path(db) as again:
        assert texts(await again.load("c")) == ["q0", "a0"]

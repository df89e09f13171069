"""Withdrawing: the newest messages taken back, from rows, search, recall and extraction."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from helpers import Kit, OpenKit

from mnemo import Message, Mnemo, SessionClosed, StoredMessage, StoreError, ToolCall
from mnemo.testing import HashingEmbedder, ManualClock

SECRET = "vqzkxwbrtd"
"""Occurs nowhere else."""


def said(*texts: str) -> list[Message]:
    """Messages of a user."""
    return [Message(role="user", content=text) for text in texts]


def texts(messages: list[StoredMessage] | list[Message]) -> list[Any]:
    """What they say."""
    return [message.content for message in messages]


def files_with(db: Path, word: str) -> list[str]:
    """The files of the store that hold *word*."""
    return [one.name for one in db.parent.iterdir() if word.encode() in one.read_bytes().lower()]


@pytest.fixture
async def kit(open_kit: OpenKit, db: Path) -> Kit:
    """A repository in a file, without a chat model."""
    return await open_kit(store=db, embedded=True)


@pytest.fixture
async def chat(kit: Kit) -> Any:
    """A thread of it."""
    return kit.repo.conversation("t")


async def test_the_newest_message_is_taken_back(chat):
    """Its content is returned; load, history and recent have it no more; its seq is not reused."""
    await chat.append(said("one", "two"))
    assert texts(await chat.withdraw()) == ["two"]
    assert texts(await chat.history()) == texts(await chat.load()) == ["one"]
    assert [one.seq for one in await chat.append(said("three"))] == [2]
    assert texts(await chat.recent()) == ["one", "three"]
    assert texts(await chat.withdraw(9)) == ["one", "three"]
    assert await chat.withdraw() == []


async def test_recent_gives_the_last_of_the_epoch(chat):
    """Ascending, at most so many, none of an epoch before, and none is withdrawn of that."""
    await chat.append(said("old"))
    await chat.clear()
    assert await chat.recent() == await chat.withdraw() == []
    await chat.append(said("a", "b", "c"))
    assert texts(await chat.recent(2)) == ["b", "c"]
    assert texts(await chat.recent()) == ["a", "b", "c"]
    assert texts(await chat.history()) == ["old", "a", "b", "c"]


@pytest.mark.parametrize("count", [0, -1, 1.5, "1", True])
async def test_a_count_below_one_is_refused(chat, count):
    """Nothing is withdrawn by a mistake."""
    await chat.append(said("one"))
    for call in (chat.recent, chat.withdraw):
        with pytest.raises(ValueError, match="count"):
            await call(count)
    assert texts(await chat.recent()) == ["one"]


async def test_a_result_goes_without_its_call(chat):
    """One message is one message: the rest of its tool group stays as it is."""
    call = Message(role="assistant", tool_calls=[ToolCall("c", "look", {"at": 1})])
    await chat.append([*said("go"), call, Message(role="tool", tool_call_id="c", content="seen")])
    assert texts(await chat.withdraw()) == ["seen"]
    assert [one.kind for one in await chat.recent()] == ["user", "tool_call"]
    assert [one.kind for one in await chat.withdraw()] == ["tool_call"]


async def test_search_and_recall_find_it_no_more(kit, chat):
    """Neither by its words nor by its vector; what stays is found."""
    await chat.append(said("My dog is called Rex.", f"My cat is called {SECRET}."))
    await kit.repo.settle()
    assert await kit.repo.search(SECRET)
    await chat.withdraw()
    assert await kit.repo.search(SECRET) == []
    found = await kit.repo.recall(f"What is called {SECRET}?", use_model=False)
    assert SECRET not in found.as_text()
    assert "Rex" in found.as_text()


@pytest.mark.slow
async def test_what_was_extracted_of_it_alone_goes_too(kit):
    """As forget with message_ids has it: the fact that rests on nothing else goes as well."""
    remembered = await kit.repo.remember(
        ["My dog is called Rex.", f"My cat is called {SECRET}."], thread_id="t", wait=True
    )
    assert remembered.node_ids
    assert SECRET in "".join([one.text for one in (await kit.repo.memories()).items])
    await kit.repo.conversation("t").withdraw()
    left = "".join([one.text for one in (await kit.repo.memories()).items])
    assert SECRET not in left
    assert "Rex" in left
    assert (await kit.memory.check()).problems == ()


async def test_a_session_that_loses_a_step_ends(kit):
    """A fed session that still collects holds a step of it: it is ended as by forget."""
    chat, session = kit.repo.conversation("t"), await kit.repo.start_session("talk")
    feed = await chat.feed(session, from_seq=0)
    await chat.append(said("keep", SECRET))
    await feed.caught_up()
    await chat.withdraw()
    with pytest.raises(SessionClosed):
        await session.append("more", "")
    assert await kit.repo.search(SECRET) == []


async def test_a_summary_of_its_range_goes_with_it(chat):
    """What the summary stood for is shown in full again."""
    await chat.append(said("one", "two"))
    await chat.compact(0, 1, f"They said {SECRET}.")
    await chat.withdraw()
    assert texts(await chat.load()) == ["one"]
    assert await chat.compactions() == []


async def test_its_id_does_not_come_back(chat):
    """A client that still holds the message cannot store it anew under its id."""
    message = Message(role="user", content="one", id="m")
    await chat.append(message)
    await chat.withdraw()
    assert await chat.append(message) == []
    assert texts(await chat.append(said("one"))) == ["one"]


async def test_expired_messages_are_not_withdrawn(open_kit):
    """They are gone for every reader, whether or not the sweep has come to them."""
    clock = ManualClock()
    kit = await open_kit(clock=clock, embedded=True)
    chat = kit.repo.conversation("t", ttl_s=60)
    await chat.append(said("old"))
    await clock.advance(61)
    assert await chat.recent() == await chat.withdraw() == []


@pytest.mark.slow
@pytest.mark.parametrize("made", [True, False])
async def test_a_message_whose_answer_is_lost_is_given_all_the_same(kit, chat, made, monkeypatch):
    """Made, it is returned: asked for again the next one would go. Else nothing was taken."""
    await chat.append(said("one", "two"))
    engine = kit.repo._parts.sessions._engine
    writing = engine.writing

    async def losing(work: Any, **named: Any) -> Any:
        def whole(tx: Any) -> Any:
            result = work(tx)
            if not made:
                raise StoreError("rolled back")
            return result

        await writing(whole, **named)
        raise StoreError("the connection is cut")

    monkeypatch.setattr(engine, "writing", losing)
    if made:
        assert texts(await chat.withdraw()) == ["two"]
    else:
        with pytest.raises(StoreError, match="rolled back"):
            await chat.withdraw()
    monkeypatch.undo()
    assert texts(await chat.withdraw()) == (["one"] if made else ["two"])


async def test_many_at_once_never_get_the_same_message(chat, db):
    """Each of thirty is withdrawn exactly once, also by a second service on the file."""
    await chat.append(said(*map(str, range(30))))
    got: list[Any] = []
    async with Mnemo(db, embedder=HashingEmbedder()) as other_memory:
        other = (await other_memory.open_repo("r")).conversation("t")

        async def take(handle: Any) -> None:
            got.extend(texts(await handle.withdraw()))

        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(take, (chat, other)[number % 2])
    assert sorted(map(int, got)) == list(range(30))
    assert await chat.recent() == []


async def test_the_bytes_go_with_the_next_scrub(kit, chat, db):
    """Withdrawing waits for no rewriting; afterwards not a file holds the words."""
    await chat.append(said("stay", SECRET))
    await kit.repo.settle()
    await chat.withdraw()
    assert await kit.memory.scrub()
    assert files_with(db, SECRET) == []


async def test_a_purge_may_leave_the_bytes_to_the_next_scrub(kit, chat, db):
    """Rows are gone at once; the report says that the bytes are not, and closing takes them."""
    await chat.append(said(SECRET))
    await kit.repo.settle()
    report = await chat.purge(scrub=False)
    assert (report.messages, report.scrubbed) == (1, False)
    assert await chat.history() == []
    await kit.memory.aclose()
    assert files_with(db, SECRET) == []

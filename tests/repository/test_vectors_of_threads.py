"""What a thread's messages are found by under ``Nearest``: the vectors that recall has."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

import anyio
import pytest

from mnemo import Config, Mnemo, Nearest, Repository
from mnemo.errors import ModelUnavailable, UsageError
from mnemo.testing import HashingEmbedder, ManualClock
from mnemo.values.messages import Message


class CountingEmbedder(HashingEmbedder):
    """It notes the documents, fails when told to, and can be held back."""

    def __init__(self) -> None:
        super().__init__()
        self.documents: list[str] = []
        self.refused: Callable[[str], bool] = lambda text: False
        self.gate: anyio.Event | None = None
        self.asked = anyio.Event()

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> Any:
        """Embed *texts*, once the gate is open."""
        if kind == "document":
            self.documents += texts
            self.asked.set()
            if self.gate is not None:
                await self.gate.wait()
        if any(map(self.refused, texts)):
            raise ModelUnavailable("no vectors for this")
        return await super().embed(texts, kind=kind)


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def repo(embedder: CountingEmbedder, clock: ManualClock) -> AsyncIterator[Repository]:
    config = Config(conversation={"retrieval": Nearest(1)})
    async with Mnemo("memory:", embedder=embedder, clock=clock, config=config) as memory:
        yield await memory.open_repo("r")


def user(text: str, **fields: Any) -> Message:
    return Message(role="user", content=text, **fields)


async def nearest(repo: Repository, query: str, thread_id: str = "t") -> list[str]:
    """What a load gives for *query*."""
    return [message.text for message in await repo.conversation(thread_id).load(query=query)]


async def test_one_more_message_is_one_more_embedding(repo, embedder):
    """Fifty indexed messages and one more: one document is embedded, and recall needs no other."""
    talk = repo.conversation("t")
    await talk.append([user(f"number {n}") for n in range(50)])
    await talk.settle()
    assert sorted(embedder.documents) == sorted(f"number {n}" for n in range(50))
    await talk.append([user("one more", id="m1"), user("one more", id="m1")])
    await talk.settle()
    assert embedder.documents[50:] == ["one more"]
    assert await nearest(repo, "number 7") == ["number 7"]
    assert (await repo.recall("number 7")).trace.owed == 0
    assert embedder.documents[51:] == []


async def test_only_what_speaks_is_embedded(repo, embedder):
    """User, assistant, thought and reply; no calls, results, system messages or blanks."""
    call = {"id": "a", "name": "look"}
    talk = repo.conversation("t")
    await talk.append(
        [
            Message(role="system", content="Be brief."),
            user("asked"),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            Message(role="tool", content="found", tool_call_id="a"),
            Message(role="tool", content="replied", tool_call_id="a", kind="reply"),
            Message(role="assistant", content="thought", kind="thought"),
            Message(role="assistant", content="answered"),
            user(" "),
        ]
    )
    await talk.settle()
    assert sorted(embedder.documents) == ["answered", "asked", "replied", "thought"]


async def test_a_load_waits_for_no_vector(repo, embedder):
    """What has none yet fills up, newest first, and is found by meaning once it has one."""
    embedder.gate = anyio.Event()
    talk = repo.conversation("t")
    await talk.append([user("the ferry to Naxos"), user("the cat sleeps")])
    assert await nearest(repo, "ferry") == ["the cat sleeps"]
    embedder.gate.set()
    await talk.settle()
    assert await nearest(repo, "ferry") == ["the ferry to Naxos"]


async def test_settling_waits_for_a_failing_embedder_once(repo, embedder):
    """What failed stays owed and is tried again; who settles is not held up by it."""
    embedder.refused = lambda text: text == "bad"
    talk = repo.conversation("t")
    await talk.append([user("bad"), user("good")])
    await talk.settle()
    assert (await repo.statistics()).index.failing is not None
    embedder.refused = lambda text: False
    await repo.settle()
    assert await nearest(repo, "bad") == ["bad"]


async def test_settling_waits_for_ones_own_thread_only(repo, embedder):
    """A thread that is owed nothing is settled while others wait."""
    embedder.gate = anyio.Event()
    await repo.conversation("other").append(user("waits"))
    await repo.conversation("t").settle()
    with anyio.move_on_after(0.1) as waited:
        await repo.conversation("other").settle()
    assert waited.cancelled_caught
    embedder.gate.set()
    await repo.conversation("other").settle()


async def test_settling_ends_with_the_repository(embedder):
    """Who waits when it closes is told; nobody waits for ever."""
    embedder.gate = anyio.Event()
    async with Mnemo("memory:", embedder=embedder) as memory, anyio.create_task_group() as group:
        repo = await memory.open_repo("r")
        await repo.conversation("t").append(user("waits"))

        async def settle() -> None:
            with pytest.raises(UsageError):
                await repo.conversation("t").settle()

        group.start_soon(settle)
        await embedder.asked.wait()
        with anyio.fail_after(120):
            await memory.close_repo("r")


async def test_a_purged_message_gets_no_vector(repo, embedder):
    """An embedding in flight when the thread is purged is discarded at its commit."""
    embedder.gate = anyio.Event()
    talk = repo.conversation("t")
    await talk.append(user("secret"))
    await embedder.asked.wait()
    await talk.purge()
    embedder.gate.set()
    await talk.settle()
    assert (await repo.statistics()).vectors == 0


async def test_what_has_expired_is_not_found(repo, clock):
    """Whether or not the sweep has come to its vector."""
    talk = repo.conversation("t", ttl_s=60, retrieval=Nearest(2))
    await talk.append(user("the ferry to Naxos"))
    await talk.settle()
    await clock.advance(61)
    assert await talk.load(query="ferry") == []


async def test_messages_of_a_cleared_epoch_are_embedded_still(repo, embedder):
    """``clear`` keeps what is queued: the history stays searchable, and is not loaded."""
    talk = repo.conversation("t")
    await talk.append(user("before"))
    await talk.clear()
    await talk.settle()
    assert embedder.documents == ["before"]
    assert await talk.load(query="before") == []

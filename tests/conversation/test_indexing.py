"""The indexer: every message is embedded once, whatever fails or ends in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import numpy as np
import pytest
from talk_kit import OpenTalk, Talk, assistant, result, user

from mnemo.config import Config
from mnemo.conversation.indexer import Indexing
from mnemo.errors import ModelUnavailable, StoreError, UsageError
from mnemo.runtime import traffic as room
from mnemo.runtime.traffic import traffic
from mnemo.testing import HashingEmbedder
from mnemo.values.messages import Message
from mnemo.values.strategies import Composite, Nearest, Recent


class CountingEmbedder:
    """A ``HashingEmbedder`` that counts, fails when told to, and can be held back."""

    def __init__(self) -> None:
        self._embedder = HashingEmbedder()
        self.space = self._embedder.space
        self.batches: list[list[str]] = []
        self.refused: Callable[[str], bool] = lambda text: False
        self.gate: anyio.Event | None = None

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> Any:
        assert kind == "document"
        self.batches.append(list(texts))
        if self.gate is not None:
            await self.gate.wait()
        if any(map(self.refused, texts)):
            raise ModelUnavailable("no vectors for this")
        return await self._embedder.embed(texts)

    @property
    def documents(self) -> list[str]:
        """Every text that was asked for, in order."""
        return [text for batch in self.batches for text in batch]


async def vectors(talk: Talk, thread_id: str = "t", since: Any = None) -> list[int]:
    """The seqs that have a vector."""
    store = talk.parts.store
    seqs, rows = await store.reading(lambda tx: tx.vectors(thread_id, since=since))
    assert len(rows) == len(seqs)
    return list(seqs)


@asynccontextmanager
async def indexing(talk: Talk) -> AsyncIterator[Indexing]:
    """The worker, at work until the end."""
    worker = Indexing(talk.parts)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with anyio.fail_after(120):
            yield worker
        group.cancel_scope.cancel()


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


async def test_one_more_message_is_one_more_embedding(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """Fifty indexed messages and one more: exactly one document is embedded."""
    talk = await open_conversations(embedder=embedder)
    async with indexing(talk) as worker:
        await talk.log().append([user(f"number {n}") for n in range(50)])
        await worker.settled("t")
        assert len(embedder.documents) == 50
        await talk.log().append(user("one more"))
        await worker.settled("t")
        assert embedder.documents[50:] == ["one more"]
        assert await vectors(talk) == list(range(51))
        assert await worker.depth() == 0


async def test_writes_go_first_unless_somebody_waits_for_the_index(
    open_conversations: OpenTalk, embedder: CountingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is appended waits for a pause in the writes, which ``settled`` does not."""
    monkeypatch.setattr(room, "QUIET_S", 3_600.0)
    talk = await open_conversations(embedder=embedder)
    async with indexing(talk) as worker:
        for text in ("soon", "later", "last"):
            while all(waiter.done() for waiter, _ in traffic()._waiters):
                worker.poke()
                await anyio.sleep(0.001)
            await talk.log().append(user(text))
            assert await worker.depth() == 1
            await worker.settled("t")
            assert embedder.documents[-1] == text


async def test_only_what_speaks_is_embedded(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """User, assistant, thought and reply; no calls, results, system messages or blanks."""
    talk = await open_conversations(embedder=embedder)
    await talk.log().append(
        [
            Message(role="system", content="Be brief."),
            user("asked"),
            assistant(None, "a"),
            result("a", "found"),
            result("a", "replied", kind="reply"),
            Message(role="assistant", content="thought", kind="thought"),
            assistant("answered"),
            user(" "),
        ]
    )
    async with indexing(talk) as worker:
        await worker.settled("t")
    assert embedder.documents == ["asked", "replied", "thought", "answered"]
    assert await vectors(talk) == [1, 4, 5, 6]


async def test_the_same_id_again_is_one_entry(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """A message that is appended again costs no embedding."""
    talk = await open_conversations(embedder=embedder)
    async with indexing(talk) as worker:
        for _ in range(3):
            await talk.log().append(user("tea", id="m1"))
            await worker.settled("t")
    assert embedder.documents == ["tea"]


async def test_the_vector_is_that_of_the_text(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """Each message gets its own row, in whatever batch it was embedded."""
    talk = await open_conversations(embedder=embedder)
    texts = [f"word{n}" for n in range(20)]
    await talk.log().append([user(text) for text in texts])
    async with indexing(talk) as worker:
        await worker.settled("t")
    _, rows = await talk.parts.store.reading(lambda tx: tx.vectors("t"))
    assert np.allclose(rows, await HashingEmbedder().embed(texts), atol=1e-6)


async def test_a_failed_order_stays_and_is_retried(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """An embedder that is down: appended all the same; retried after 5 s, then 10 s."""
    talk = await open_conversations(embedder=embedder)
    embedder.refused = lambda text: True
    async with indexing(talk) as worker:
        await talk.log().append(user("tea"))
        worker.poke()
        await worker.settled("t")
        assert await worker.depth() == 1
        for seconds, tries in [(4.9, 1), (0.2, 2), (9.7, 2), (0.3, 3)]:
            await talk.clock.advance(seconds)
            await worker.settled("t")
            assert len(embedder.batches) == tries
        embedder.refused = lambda text: False
        await talk.clock.advance(60)
        await talk.until(lambda: len(embedder.batches) == 4)
        await worker.settled("t")
        assert await worker.depth() == 0


async def test_orders_outlive_the_worker(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """What was owed when the repository closed is embedded after the next opening, once."""
    talk = await open_conversations(embedder=embedder)
    embedder.refused = lambda text: True
    await talk.log().append(user("tea"))
    async with indexing(talk):
        await talk.until(lambda: len(embedder.batches) == 1)
    embedder.refused = lambda text: False
    async with indexing(talk) as worker:
        await worker.settled("t")
        assert await vectors(talk) == [0]
    assert embedder.documents == ["tea", "tea"]


async def test_one_message_that_is_refused_holds_up_nobody(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """Fewer and fewer are tried at once, until the refused one is alone and passed over."""
    talk = await open_conversations(embedder=embedder)
    embedder.refused = lambda text: text == "bad"
    await talk.log().append([user("bad"), *(user(f"good {n}") for n in range(9))])
    async with indexing(talk) as worker:
        for _ in range(12):
            await worker.settled("t")
            await talk.clock.advance(60)
        await worker.settled("t")
        assert await vectors(talk) == list(range(1, 10))
        assert await worker.depth() == 1
        await talk.log().append(user("later"))
        for _ in range(4):
            await worker.settled("t")
            await talk.clock.advance(60)
        assert await vectors(talk) == list(range(1, 11))


@pytest.mark.parametrize("reply", [None, [[1.0]], [[float("nan")] * 256], "vectors"])
async def test_an_embedders_nonsense_is_a_failure(
    open_conversations: OpenTalk, embedder: CountingEmbedder, reply: Any
) -> None:
    """Rows that are missing, too short or not finite are never stored."""

    async def nonsense(texts: Sequence[str], **rest: Any) -> Any:
        return reply

    embedder.embed = nonsense  # type: ignore[method-assign]
    talk = await open_conversations(embedder=embedder)
    await talk.log().append(user("tea"))
    async with indexing(talk) as worker:
        await worker.settled("t")
        assert await worker.depth() == 1
        assert await vectors(talk) == []


async def test_a_store_that_fails_is_waited_out(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """The worker dies of nothing: neither reading nor writing that fails ends it."""
    talk = await open_conversations(embedder=embedder)
    store, broken = talk.parts.store, ["reading", "writing"]
    reading, writing = store.reading, store.writing

    async def read(work: Any) -> Any:
        if "reading" in broken and work.__name__ == "_orders":
            broken.remove("reading")
            raise StoreError("not now")
        return await reading(work)

    async def write(work: Any) -> Any:
        if broken == ["writing"]:
            broken.remove("writing")
            raise StoreError("not now either")
        return await writing(work)

    await talk.log().append(user("tea"))
    store.reading, store.writing = read, write
    async with indexing(talk) as worker:
        for _ in range(4):
            await worker.settled("t")
            await talk.clock.advance(60)
        assert await vectors(talk) == [0]
    assert broken == []


async def test_the_oldest_vectors_of_the_thread_go(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """``max_index_size`` drops the thread's own oldest vectors, and no other thread's."""
    talk = await open_conversations(embedder=embedder)
    bounded = talk.settings(retrieval=Composite(Recent(2), Nearest(2, max_index_size=3)))
    await talk.log("other").append([user(f"x{n}") for n in range(5)])
    await talk.log().append([user(f"m{n}") for n in range(5)])
    async with indexing(talk) as worker:
        worker.appended(bounded)
        await worker.settled("t")
        await worker.settled("other")
        assert await vectors(talk) == [2, 3, 4]
        assert await vectors(talk, "other") == [0, 1, 2, 3, 4]
        assert await worker.depth() == 0
        await talk.log().append(user("m5"))
        worker.appended(bounded)
        await worker.settled("t")
        assert await vectors(talk) == [3, 4, 5]
        await talk.log().append(user("m6"))
        worker.appended(talk.settings(retrieval=Nearest(2)))
        await worker.settled("t")
        assert await vectors(talk) == [3, 4, 5, 6]


async def test_a_purged_message_gets_no_vector(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """An embedding in flight when the thread is purged is discarded at its commit."""
    talk = await open_conversations(embedder=embedder)
    embedder.gate = anyio.Event()
    await talk.log().append(user("secret"))
    async with indexing(talk) as worker:
        await talk.until(lambda: len(embedder.batches) == 1)
        await talk.log().purge()
        embedder.gate.set()
        await worker.settled("t")
        assert await vectors(talk) == []
        assert await worker.depth() == 0


async def test_what_expires_while_it_is_embedded_gets_no_vector(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """The transaction that saves checks that the message has not expired."""
    talk = await open_conversations(embedder=embedder, config=Config(conversation={"ttl_s": 60}))
    embedder.gate = anyio.Event()
    await talk.log().append(user("gone"))
    talk.clock.advance(30)
    await talk.log().append(user("stays"))
    async with indexing(talk) as worker:
        await talk.until(lambda: len(embedder.batches) == 1)
        talk.clock.advance(31)
        embedder.gate.set()
        await worker.settled("t")
        assert await vectors(talk) == [1]
        assert await worker.depth() == 0


async def test_what_has_expired_is_not_embedded(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """An order whose message has expired costs no embedding, and does not stay."""
    talk = await open_conversations(embedder=embedder, config=Config(conversation={"ttl_s": 60}))
    await talk.log().append(user("gone"))
    talk.clock.advance(61)
    await talk.log().append(user("stays"))
    async with indexing(talk) as worker:
        await worker.settled("t")
        assert embedder.documents == ["stays"]
        assert await worker.depth() == 0


async def test_messages_of_a_cleared_epoch_are_indexed_still(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """``clear`` keeps what is queued: the history stays searchable."""
    talk = await open_conversations(embedder=embedder)
    await talk.log().append(user("before"))
    await talk.log().clear()
    async with indexing(talk) as worker:
        await worker.settled("t")
    assert embedder.documents == ["before"]


async def test_settling_waits_for_ones_own_thread_only(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """A thread that is owed nothing is settled while others wait."""
    talk = await open_conversations(embedder=embedder)
    embedder.gate = anyio.Event()
    await talk.log("other").append(user("waits"))
    async with indexing(talk) as worker:
        await talk.until(lambda: len(embedder.batches) == 1)
        with anyio.fail_after(120):
            await worker.settled("t")
        embedder.gate.set()


async def test_settling_ends_with_the_worker(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """Who waits when the repository closes is told; nobody waits for ever."""
    talk = await open_conversations(embedder=embedder)
    embedder.gate = anyio.Event()
    await talk.log().append(user("waits"))
    raised: list[Exception] = []

    async def wait(worker: Indexing) -> None:
        try:
            await worker.settled("t")
        except UsageError as error:
            raised.append(error)

    async with anyio.create_task_group() as group, indexing(talk) as worker:
        group.start_soon(wait, worker)
        await talk.until(lambda: len(embedder.batches) == 1)
    assert len(raised) == 1


async def test_many_messages_go_in_batches(
    open_conversations: OpenTalk, embedder: CountingEmbedder
) -> None:
    """No call of the embedder has more than 256 texts."""
    talk = await open_conversations(embedder=embedder)
    await talk.log().append([user(f"m{n}") for n in range(600)])
    async with indexing(talk) as worker:
        await worker.settled("t")
    assert [len(batch) for batch in embedder.batches] == [256, 256, 88]

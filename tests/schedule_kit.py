"""Acts in any order that change what a repository holds."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import strategies as st
from segments_kit import WORDS, collect, index_of, learn, tell

from mnemo import Feed, MnemoError
from mnemo.index.stored import StoredSegments

COUNTS = st.integers(0, 9)
GOING = {
    **dict.fromkeys(("purge", "withdraw", "expire", "forget message"), "t"),
    **dict.fromkeys(("forget session", "forget memory"), ""),
    "delete": "semantic",
    "reword": "moss",
}
"""What may happen while segments are made, with what it takes."""
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.integers(1, 9), st.sampled_from("tu")),
        st.tuples(st.just("collect"), st.integers(1, 4), st.just("")),
        st.tuples(st.just("feed"), COUNTS, st.sampled_from("tu")),
        st.tuples(st.just("hear"), COUNTS, st.sampled_from("tu")),
        st.tuples(st.just("know"), COUNTS, st.sampled_from(WORDS)),
        st.tuples(st.just("learn"), COUNTS, st.sampled_from(WORDS)),
        st.tuples(st.just("reword"), COUNTS, st.sampled_from(WORDS)),
        st.tuples(st.just("seal"), st.just(0), st.just("")),
        st.tuples(st.just("seal"), st.just(0), st.just("")),
        st.tuples(st.just("seal beside"), COUNTS, st.sampled_from([*GOING])),
        st.tuples(st.just("unite"), st.just(0), st.just("")),
        st.tuples(st.just("purge"), st.just(0), st.sampled_from("tu")),
        st.tuples(st.just("withdraw"), COUNTS, st.sampled_from("tu")),
        st.tuples(st.just("expire"), COUNTS, st.sampled_from("tu")),
        st.tuples(st.just("forget session"), COUNTS, st.just("")),
        st.tuples(st.just("forget message"), COUNTS, st.just("")),
        st.tuples(st.just("forget memory"), COUNTS, st.just("")),
        st.tuples(st.just("delete"), COUNTS, st.sampled_from(("tag", "intent", "semantic"))),
        st.tuples(st.just("delete"), COUNTS, st.sampled_from(("episodic", "subgoal"))),
    ),
    max_size=14,
)


@contextmanager
def happening(act: Callable[[], Awaitable[None]], times: int = 1) -> Iterator[None]:
    """Within this block something happens after a segment was made, and before it is put."""
    put, left = StoredSegments.put, iter(range(times))

    async def late(*args: Any, **named: Any) -> bool:
        if next(left, None) is not None:
            await act()
        return await put(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoredSegments, "put", late)
        yield


class Schedule:
    """Does acts to a repository; *index* goes on all the time, beside those that begin."""

    def __init__(self, memory: Any, repo: Any) -> None:
        self.memory, self.repo = memory, repo
        self.index = index_of(memory, kept=True)
        self.said, self.sessions, self.feeds = 0, list[str](), list[Feed]()

    async def do(self, act: str, number: int, word: str) -> None:
        """Do an act, with what follows of it in the background."""
        await self.begin(act, number, word)
        await self.settle()

    async def begin(self, act: str, number: int, word: str) -> None:
        repo = self.repo
        match act:
            case "tell":
                await tell(repo, self.said, self.said + number, thread=word)
                self.said += number
            case "collect":
                self.sessions.append(f"s{len(self.sessions)}")
                await collect(repo, self.sessions[-1], number)
            case "feed":
                await self.fed(word)
            case "hear":
                said = f"I keep {WORDS[number]} at home and Ana keeps {WORDS[number]}"
                await repo.conversation(word).append({"role": "user", "content": said})
                await (await self.fed(word)).close_and_commit()
            case "know":
                await repo.add_memory(f"Zoë keeps {number} {word}", tags=[word])
            case "learn":
                await learn(repo, word)
            case "reword" if memories := await self.memories():
                id = memories[number % len(memories)]
                await repo.update_memory(id, f"Ana has {number} {word}")
            case "seal":
                await self.index.run()
            case "seal beside":
                with happening(lambda: self.begin(word, number, GOING[word])):
                    await self.index.run()
            case "unite":
                await repo.consolidate()
            case "purge":
                await repo.conversation(word).purge()
            case "withdraw":
                await repo.conversation(word).withdraw(1 + number % 3)
            case "expire":
                await self.expire(word, number)
            case "forget session" if number < len(self.sessions):
                await repo.forget(session_id=self.sessions[number])
            case "forget message" if found := await self.messages():
                await repo.forget(message_ids=[found[number % len(found)]])
            case "forget memory" if memories := await self.memories():
                await repo.forget(memory_ids=[memories[number % len(memories)]])
            case "delete":
                nodes = await self.memory._store.graph("r").nodes(types=[word])
                await repo.delete_nodes([node.id for node in nodes][number : number + 2])

    async def fed(self, thread: str) -> Any:
        """A session with steps that repeat the messages of a thread."""
        self.sessions.append(f"s{len(self.sessions)}")
        fed = await self.repo.start_session("look", session_id=self.sessions[-1])
        self.feeds.append(await self.repo.conversation(thread).feed(fed, from_seq=0))
        await self.settle()
        return fed

    async def settle(self) -> None:
        """Wait until the sessions that are fed have what their threads hold."""
        self.feeds = [feed for feed in self.feeds if feed.active]
        for feed in self.feeds:
            with suppress(MnemoError):  # its session takes no more
                await feed.caught_up()

    async def memories(self) -> list[str]:
        return [one.id for one in await self.repo.memories()]

    async def messages(self) -> list[str]:
        threads = [await self.repo.conversation(thread).history() for thread in "tu"]
        return [message.id for messages in threads for message in messages]

    async def expire(self, thread: str, number: int) -> None:
        """Erase the first messages of a thread as a sweep does."""
        seqs = [one.seq for one in await self.repo.conversation(thread).history()][:number]
        if seqs:
            store = self.memory._store.transcript("r")
            await store.writing(lambda tx: tx.erase(thread, seqs))

"""A call takes a list of a bounded length, over whatever surface; the bound is one number."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import pytest
from helpers import Kit, repository

from mnemo import Conversation, Mnemo, Repository
from mnemo.items.items import GetItem
from mnemo.runtime.validation import MOST_AT_ONCE, every

CALLS: dict[str, Callable[[Kit, Iterable[Any]], Any]] = {
    "remember": lambda kit, some: kit.repo.remember(f"Ada sings {n}." for n in some),
    "append": lambda kit, some: kit.repo.conversation("t").append(said(some)),
    "append_messages": lambda kit, some: kit.memory.session("s").append_messages(said(some)),
    "batch": lambda kit, some: kit.repo.items.batch(
        GetItem(namespace=("a",), key=str(n)) for n in some
    ),
    "forget_memories": lambda kit, some: kit.repo.forget(memory_ids=map(str, some)),
    "forget_messages": lambda kit, some: kit.repo.forget(message_ids=map(str, some)),
    "forget_steps": lambda kit, some: kit.repo.forget(steps=map(str, some)),
    "delete_nodes": lambda kit, some: kit.repo.delete_nodes(map(str, some)),
    "get_metadata": lambda kit, some: kit.repo.get_metadata(map(str, some)),
    "get_edges": lambda kit, some: kit.repo.get_edges(map(str, some)),
    "get_linked_nodes": lambda kit, some: kit.repo.get_linked_nodes(map(str, some)),
    "add_memory": lambda kit, some: kit.repo.add_memory("Ada sings.", tags=map(str, some)),
    "retry_jobs": lambda kit, some: kit.repo.retry_jobs(map(str, some)),
    "cancel_jobs": lambda kit, some: kit.repo.cancel_jobs(map(str, some)),
}


def said(numbers: Iterable[int]) -> Iterator[dict[str, str]]:
    """Messages, made as they are asked for."""
    return ({"role": "user", "content": f"Ada sings {n}."} for n in numbers)


@pytest.mark.parametrize("call", CALLS)
async def test_a_list_without_an_end_is_refused(open_kit, call):
    """One more than the bound is read and no further, and nothing is stored."""
    kit = await open_kit(embedded=True)
    await kit.repo.start_session("sing", session_id="s")
    taken = 0

    def endless() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    with pytest.raises(ValueError, match="at most 1,000 at once"):
        await CALLS[call](kit, endless())
    assert taken == MOST_AT_ONCE + 1
    found = await kit.repo.statistics()
    assert (found.messages, found.steps) == (0, 0)


def test_a_list_of_the_greatest_length_is_taken():
    """The bound itself is allowed."""
    assert len(every("ids", range(MOST_AT_ONCE))) == MOST_AT_ONCE


# ── Arguments of the wrong kind are told as such, whatever call they are given to ─────


Call = Callable[[Any, Conversation, Repository], Awaitable[Any]]

WRONG: dict[str, Call] = {
    "append": lambda odd, talk, repo: talk.append(odd),
    "query of load": lambda odd, talk, repo: talk.load(query=odd),
    "end of compact": lambda odd, talk, repo: talk.compact(0, odd, "s"),
    "timeout of settle": lambda odd, talk, repo: talk.settle(odd),
    "parent of a goal": lambda odd, talk, repo: talk.goals.add("g", parent_id=odd),
    "goal to update": lambda odd, talk, repo: talk.goals.update(odd, "g"),
    "goal to complete": lambda odd, talk, repo: talk.goals.complete(odd),
    "seqs of pins": lambda odd, talk, repo: talk.pins.attach(odd, [1]),
    "goals of pins": lambda odd, talk, repo: talk.pins.attach([0], odd),
    "stream of search": lambda odd, talk, repo: repo.search("x", session_id=odd),
    "viewer of search": lambda odd, talk, repo: repo.search("x", not_visible_in=odd),
    "stream of view": lambda odd, talk, repo: repo.view("x", session_id=odd),
}
ODD = [object(), {"a"}, 1.5]


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG.keys())
async def test_an_argument_of_the_wrong_kind_is_refused(call):
    """A ``ValueError`` that says so, and nothing is written."""
    async with repository(embedder="static") as repo:
        talk = repo.conversation("t")
        await talk.append({"role": "user", "content": "x"})
        for odd in ODD:
            if odd == 1.5 and call is WRONG["timeout of settle"]:
                continue
            with pytest.raises(ValueError, match=r"must|give|whole|message"):
                await call(odd, talk, repo)
        assert await talk.next_seq() == 1
        assert await talk.goals.list() == await talk.compactions() == []


@pytest.mark.parametrize("store", ["memory:", "t.db"])
async def test_a_thread_id_that_not_every_store_holds_is_refused(store, tmp_path, monkeypatch):
    """Ids are compared exactly, so none is changed to another that can be stored."""
    monkeypatch.chdir(tmp_path)
    async with repository(store, embedder="static") as repo:
        for odd in ("a\0b", "a\ud800b"):
            with pytest.raises(ValueError, match="cannot hold"):
                repo.conversation(odd)


async def test_a_conversation_feeds_no_session_of_another_repository():
    """What is forgotten in one repository would live on in the other."""
    async with Mnemo("memory:", embedder="static") as memory:
        here, there = await memory.open_repo("here"), await memory.open_repo("there")
        talk = here.conversation("t")
        own, strange = await here.start_session("g"), await there.start_session("g")
        for odd in (strange, None, own.id):
            with pytest.raises(ValueError, match="its own repository"):
                await talk.feed(odd)  # type: ignore[arg-type]
        feed = await talk.feed(own)
        await talk.append({"role": "user", "content": "x"})
        await feed.caught_up()
        assert len(own.held_messages("t")) == 1

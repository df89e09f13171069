"""Arguments of the wrong kind are told as such, whatever call they are given to."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mnemo import Conversation, Mnemo, Repository

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
    async with Mnemo("memory:", embedder="static") as memory:
        repo = await memory.open_repo()
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
    async with Mnemo(store, embedder="static") as memory:
        repo = await memory.open_repo()
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

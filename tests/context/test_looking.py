"""A look at a window: what it would be, in numbers, with nothing changed by it."""

import pytest
from helpers import repository

from mnemo import Config, Mnemo
from mnemo.testing import ManualClock

WORDS = "The harbour is closed until the storm has passed, says the pilot. "
LOOKING = Config(viewport={"auto_evict": False})


async def said(conversation, count):
    """Append *count* messages of about 50 tokens, sides in turn."""
    await conversation.append(
        [
            {"role": "user" if n % 2 == 0 else "assistant", "content": f"{n}: {WORDS * 3}"}
            for n in range(count)
        ]
    )


async def stored(repo, thread_id):
    """The thread's budget and outcomes."""
    (record,) = [record for record in await repo.threads() if record.thread_id == thread_id]
    return record.budget_tokens, await repo.conversation(thread_id).snapshots.outcomes()


async def test_a_look_is_what_a_viewport_would_be_and_changes_nothing():
    """The zones are those of ``compressed()``; neither budget nor boundary is touched."""
    async with repository(clock=ManualClock(), embedder="static") as repo:
        conversation = repo.conversation("t")
        await said(conversation, 40)
        looked = await conversation.look(1_000)
        assert (looked.budget.total, looked.budget.window) == (1_000, 700)
        assert (looked.messages, looked.from_seq, looked.is_due) == (40, 0, True)
        assert looked.tokens == (await repo.threads())[0].tokens
        assert looked.watched_tokens is None
        assert await stored(repo, "t") == (None, [])
        assert looked.zones.text == (await conversation.viewport(1_000).compressed()).text
        assert looked.zones.eviction[0].seq == 0


async def test_a_look_shows_memory_and_goals_as_a_rendering_does():
    """What has left the window, and what is pursued, within the watched budget."""
    async with repository(clock=ManualClock(), embedder="static") as repo:
        conversation = repo.conversation("t")
        await conversation.goals.add("Get out of the harbour")
        await said(conversation, 40)
        rendered = await conversation.viewport(1_000).render(recall=False)
        looked = await conversation.look()
        assert looked.watched_tokens == looked.budget.total == 1_000
        assert (looked.memory, looked.state) == (rendered.memory, rendered.state)
        assert looked.from_seq > 0
        assert 0 < looked.memory_tokens <= 200
        assert 0 < looked.state_tokens <= 50


async def test_an_unknown_thread_is_empty_and_not_made():
    """Looking is no writing."""
    async with repository(embedder="static") as repo:
        looked = await repo.conversation("nobody").look()
        assert (looked.messages, looked.memory, looked.zones.text) == (0, "", "")
        assert looked.budget.total == 120_000
        assert await repo.threads() == []


async def test_without_auto_evict_room_is_made_only_when_asked(tmp_path):
    """What is due waits for who evicts on purpose: appending and opening leave it."""
    store = str(tmp_path / "m.db")
    async with repository(store, config=LOOKING, embedder="static") as repo:
        conversation = repo.conversation("t")
        await conversation.append({"role": "user", "content": "Hello"})
        await conversation.viewport(1_000).render()
        await said(conversation, 13)
        await conversation.settle()
        assert (await conversation.look()).is_due
        assert await stored(repo, "t") == (1_000, [])
    async with repository(store, config=LOOKING, embedder="static") as repo:
        conversation = repo.conversation("t")
        await conversation.settle()
        assert await stored(repo, "t") == (1_000, [])
        assert await conversation.viewport(1_000).evict() is not None
        assert not (await conversation.look()).is_due


async def test_an_opened_repository_catches_up_by_default(tmp_path):
    """The same thread is dealt with by who next opens it with the default."""
    store = str(tmp_path / "m.db")
    async with Mnemo(store, config=LOOKING, embedder="static") as memory:
        conversation = (await memory.open_repo()).conversation("t")
        await conversation.append({"role": "user", "content": "Hello"})
        await conversation.viewport(1_000).render()
        await said(conversation, 13)
    async with repository(store, embedder="static") as repo:
        conversation = repo.conversation("t")
        await conversation.append({"role": "user", "content": "Go on"})
        await conversation.settle()
        _, outcomes = await stored(repo, "t")
        assert [outcome.kind for outcome in outcomes] == ["fallback"]


async def test_threads_are_listed_with_what_they_hold():
    """By id; a cleared one keeps its messages, a purged one its place."""
    clock = ManualClock()
    async with repository(clock=clock, embedder="static") as repo:
        for thread_id in ("b", "a", "c"):
            await repo.conversation(thread_id).append({"role": "user", "content": "four letters"})
        await repo.conversation("b").clear()
        await repo.conversation("c").purge()
        a, b, c = await repo.threads()
        assert (a.thread_id, a.messages, a.tokens, a.next_seq, a.epoch) == ("a", 1, 3, 1, 0)
        assert a.last_at == clock.now()
        assert (b.messages, b.epoch) == (1, 1)
        assert (c.messages, c.next_seq, c.last_at) == (0, 1, None)


@pytest.mark.parametrize("store", ["memory:", "m.db"])
async def test_messages_are_counted(store, tmp_path, monkeypatch):
    """Those of all threads that are kept; purged ones are not."""
    monkeypatch.chdir(tmp_path)
    async with repository(store, embedder="static") as repo:
        assert (await repo.statistics()).messages == 0
        await said(repo.conversation("a"), 3)
        await said(repo.conversation("b"), 2)
        await repo.conversation("a").purge()
        await said(repo.conversation("a"), 1)
        assert (await repo.statistics()).messages == 3

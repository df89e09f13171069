"""What a repository hands out, called over HTTP by the client's handles: windows, goals, items."""

import pytest
from helpers import over_http

from mnemo import ConfigError, NotFound, UsageError


@pytest.fixture
async def repo(memory):
    """A repository of the service, from elsewhere."""
    async with over_http(memory) as remote:
        yield remote.repo("ada")


async def test_a_thread_is_compacted_pinned_and_purged(repo):
    """Goals hold messages, a summary stands for a range, and a purge leaves nothing."""
    chat = repo.conversation("desk")
    said = [{"role": "user", "content": f"Ada said {word}."} for word in ("one", "two", "three")]
    await chat.append(said)
    assert await chat.next_seq() == 3
    goal = await chat.goals.add("Find the cello")
    assert await chat.pins.attach([1], [goal.id]) == 1
    assert [(pin.seq, pin.goal_ids) for pin in await chat.pins.list()] == [(1, (goal.id,))]
    assert (await chat.goals.update(goal.id, "Find the bow")).description == "Find the bow"
    assert (await chat.goals.complete(goal.id)).released_pins == 1
    assert await chat.goals.list(active_only=True) == []
    summary = await chat.compact(0, 1, "Ada counted.")
    assert [one.id for one in await chat.compactions()] == [summary.id]
    assert "Ada counted." in str((await chat.load())[0].content)
    assert [one.seq for one in await chat.recent(1)] == [2]
    assert [one.seq for one in await chat.withdraw(1)] == [2]
    assert await chat.snapshots.list() == []
    assert await chat.compress() is None
    await chat.settle(30)
    assert (await chat.purge()).messages > 0
    assert await chat.history() == []


async def test_items_are_put_found_and_deleted(repo):
    """Under a namespace and a key, with a text by which they are found."""
    path = ("people", "ada")
    await repo.items.put(path, "cello", {"year": 1790}, texts={"name": "a cello"}, ttl_s=3_600.0)
    found = await repo.items.get(path, "cello")
    assert (found.namespace, found.value, found.ttl_s) == (path, {"year": 1790}, 3_600.0)
    assert [one.key for one in await repo.items.search(("people",), query="cello")] == ["cello"]
    assert await repo.items.list_namespaces() == [path]
    assert await repo.items.delete(path, "cello") is True
    assert await repo.items.get(path, "cello") is None


async def test_notes_are_found_undone_and_purged(repo):
    """Recall gives passages; what is purged has no history either."""
    await repo.notes.write("ada", "- plays the cello", "About Ada")
    hits = (await repo.notes.recall("cello")).hits
    assert [hit.note.topic for hit in hits] == ["ada"]
    assert "ada" in await repo.notes.overview()
    with pytest.raises(NotFound):
        await repo.notes.undo("nothing")
    assert (await repo.notes.purge("ada")).note_versions == 1
    with pytest.raises(NotFound):
        await repo.notes.history("ada")


async def test_looking_back_over_a_task_needs_a_model(repo):
    """A service without one says so."""
    await repo.notes.write("ada", "- plays the cello", "About Ada")
    with pytest.raises(ConfigError, match="chat model"):
        await repo.notes.update_after_task([{"role": "user", "content": "Hi."}], iterations=9)


async def test_changes_are_followed_from_a_cursor(repo):
    """Nothing before the first look, then what was written."""
    await repo.add_memory("Ada sings.")
    cursor = (await repo.inspection.changes()).cursor
    added = await repo.add_memory("Ada plays the cello.")
    seen = await repo.inspection.changes(cursor)
    assert added.id in [id for id, _ in seen.nodes]


async def test_an_open_client_is_not_opened_again(memory):
    """It would lose the connections that it has; once closed, it can be."""
    async with over_http(memory) as remote:
        with pytest.raises(UsageError, match="open already"):
            await remote.open()
        assert await remote.repos() == []
        await remote.aclose()
        await remote.open()
        assert await remote.repos() == []

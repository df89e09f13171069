"""Writes of a repository that the store made and then failed, asked for once more."""

from typing import Any

import pytest

from mnemo import (
    Changeset,
    CommitFailed,
    Config,
    Conflict,
    MetadataDelta,
    NotFound,
    Semantic,
    StoreError,
)
from mnemo.events import CompactionRecorded
from mnemo.notes.writing import NoteSource, NoteText, Write, write

PROBED = pytest.mark.parametrize("probe", [False, True], ids=["answer lost", "answer, probe lost"])


def of_a_caller(work: Any) -> bool:
    """Whether it is the write of a call, or its look after that; nothing in the background."""
    return "transacted" in getattr(work, "__qualname__", "")


async def test_a_changeset_that_was_written_is_not_written_again(failing_kit):
    """Without an id of its own: the same object again gives the first revision."""
    kit, store = failing_kit
    node = Semantic("Ada lives in Oslo", 0.8)
    changeset = Changeset(
        nodes=(node,), metadata={node.id: MetadataDelta(cumulative_reward=1.0, reward_count=1)}
    )
    store.fail("apply", before=False)
    store.fail("first_answer")
    with pytest.raises(CommitFailed):
        await kit.repo.apply(changeset)
    assert await kit.repo.apply(changeset) == 1
    counts = await store.graph("r").metadata([node.id])
    assert counts[node.id].reward_count == 1


@pytest.mark.parametrize("ids", [True, False], ids=["own ids", "no ids"])
async def test_messages_that_were_appended_are_given(failing_kit, ids):
    """The answer is lost: the call gives the messages as they are stored, each once."""
    kit, store = failing_kit
    log = kit.repo.conversation("t")
    batch = [{"role": "user", "content": f"line {n}"} for n in range(3)]
    if ids:
        batch = [{**message, "id": f"m{n}"} for n, message in enumerate(batch)]
    store.fail("writing", before=False, only=of_a_caller)
    appended = await log.append(batch)
    assert [message.seq for message in appended] == [0, 1, 2]
    assert [message.id for message in await log.history()] == [message.id for message in appended]


async def test_messages_with_ids_can_be_appended_until_it_is_known(failing_kit):
    """A store that is gone after the write: the same ids again give what is stored."""
    kit, store = failing_kit
    log = kit.repo.conversation("t")
    store.fail("writing", before=False, only=of_a_caller)
    store.fail("reading", only=of_a_caller)
    with pytest.raises(StoreError):
        await log.append({"role": "user", "content": "hello", "id": "m"}, expected_seq=0)
    (again,) = await log.append({"role": "user", "content": "hello", "id": "m"}, expected_seq=0)
    assert (again.seq, await log.next_seq()) == (0, 1)


@PROBED
async def test_a_compaction_that_was_recorded_is_given(failing_kit, probe):
    """There is one record, whether the first call learns of it or the second."""
    kit, store = failing_kit
    log = kit.repo.conversation("t")
    await log.append([{"role": "user", "content": f"line {n}"} for n in range(3)])
    store.fail("writing", before=False, only=of_a_caller)
    if probe:
        store.fail("reading", only=of_a_caller)
        with pytest.raises(StoreError):
            await log.compact(0, 1, "two lines")
    made = await log.compact(0, 1, "two lines")
    assert await log.compactions() == [made]
    assert len(kit.seen.of(CompactionRecorded)) == (0 if probe else 1)


async def test_a_note_that_was_written_is_given(failing_kit):
    """An answer that is lost is looked up; sent again, the expected version has changed."""
    kit, store = failing_kit
    await kit.repo.notes.write("deploys", "Run the tests first.", "how to deploy")
    store.fail("writing", before=False)
    new = ("deploys", "Run the tests, then tag.", "how to deploy")
    note = await kit.repo.notes.write(*new, expected_version=1)
    assert (note.version, note.body) == (2, "Run the tests, then tag.")
    with pytest.raises(Conflict):
        await kit.repo.notes.write(*new, expected_version=1)


@PROBED
async def test_a_goal_that_was_added_is_given(failing_kit, probe):
    """There is one goal, and completing it is told once, whether or not the look succeeds."""
    kit, store = failing_kit
    goals = kit.repo.conversation("t").goals
    store.fail("writing", before=False, only=of_a_caller)
    if probe:
        store.fail("reading", only=of_a_caller)
        with pytest.raises(StoreError):
            await goals.add("Book a ryokan")
    made = await goals.add("Book a ryokan")
    assert await goals.list() == [made]
    store.fail("writing", before=False, only=of_a_caller)
    done = await goals.complete(made.id)
    assert await goals.list() == [done.goal]


async def test_a_goal_that_was_not_added_is_an_error(failing_kit):
    """The store failed before it wrote: the call says so, and nothing is stored."""
    kit, store = failing_kit
    goals = kit.repo.conversation("t").goals
    store.fail("writing")
    with pytest.raises(StoreError):
        await goals.add("Book a ryokan")
    assert await goals.list() == []


@PROBED
async def test_a_note_that_was_deleted_is_gone(failing_kit, probe):
    """The deletion succeeds, at once or with the same version again, as one version."""
    kit, store = failing_kit
    notes = kit.repo.notes
    await notes.write("deploys", "Run the tests first.", "how to deploy")
    store.fail("writing", before=False, only=of_a_caller)
    if probe:
        store.fail("reading", only=of_a_caller)
        with pytest.raises(StoreError):
            await notes.delete("deploys", expected_version=1)
    await notes.delete("deploys", expected_version=1)
    assert [version.action for version in await notes.history("deploys")] == ["created", "deleted"]
    with pytest.raises(NotFound):
        await notes.delete("deploys")


async def test_a_version_that_was_restored_is_given(failing_kit):
    """One new version, although its answer was lost."""
    kit, store = failing_kit
    notes = kit.repo.notes
    await notes.write("deploys", "Run the tests first.", "how to deploy")
    await notes.write("deploys", "Tag first.", "how to deploy")
    store.fail("writing", before=False, only=of_a_caller)
    assert (await notes.restore("deploys", 1)).version == 3


@PROBED
async def test_an_update_that_was_undone_is_undone_once(failing_kit, probe):
    """The undoing succeeds, at once or when it is asked for again, as one version."""
    kit, store = failing_kit
    notes = kit.repo.notes
    changes = await updated(store, "deploys")
    store.fail("writing", before=False, only=of_a_caller)
    if probe:
        store.fail("reading", only=of_a_caller)
        with pytest.raises(StoreError):
            await notes.undo("u1")
    undone = await notes.undo("u1")
    assert [(change.topic, change.action) for change in undone] == [("deploys", "deleted")]
    assert [version.action for version in await notes.history("deploys")] == ["created", "deleted"]
    assert len(changes) == 1
    with pytest.raises(Conflict):
        await notes.undo("u1")


async def updated(store: Any, topic: str) -> Any:
    """A note that the update ``u1`` created; its changes."""
    text = NoteText(topic=topic, description="how to deploy", body="- run the tests")
    change = Write(text=text, source=NoteSource(by="agent", trust="unquoted", update_id="u1"))

    def work(tx: Any) -> Any:
        write(tx, change, Config().notes)
        return tx.changes("u1")

    return await store.notes("r").writing(work)


async def test_a_note_that_was_purged_is_counted(failing_kit):
    """The report tells what the transaction erased, although its answer was lost."""
    kit, store = failing_kit
    await kit.repo.notes.write("deploys", "Run the tests first.", "how to deploy")
    store.fail("writing", before=False, only=of_a_caller)
    assert (await kit.repo.notes.purge("deploys")).note_versions == 1
    with pytest.raises(NotFound):
        await kit.repo.notes.history("deploys")


async def test_a_thread_that_was_cleared_is_cleared_once(failing_kit):
    """One epoch begins, although the answer was lost."""
    kit, store = failing_kit
    log = kit.repo.conversation("t")
    await log.append({"role": "user", "content": "hello"})
    store.fail("writing", before=False, only=of_a_caller)
    await log.clear()
    assert (await store.transcript("r").reading(lambda tx: tx.thread("t"))).epoch == 1
    assert await log.load() == []


async def test_a_correction_in_doubt_that_was_made_is_a_conflict(failing_kit):
    """Nobody says whose the wording is; a correction whose answer alone is lost is found."""
    kit, store = failing_kit
    memory = await kit.repo.add_memory("Ada lives in Oslo")
    store.fail("apply", before=False)
    store.fail("first_answer")
    with pytest.raises(CommitFailed):
        await kit.repo.update_memory(memory.id, "Ada lives in Rome", expected_version=1)
    with pytest.raises(Conflict, match="has version 2, not 1"):
        await kit.repo.update_memory(memory.id, "Ada lives in Rome", expected_version=1)
    store.fail("apply", before=False)
    found = await kit.repo.update_memory(memory.id, "Ada lives in Bonn", expected_version=2)
    assert (found.version, found.text) == (3, "Ada lives in Bonn")


async def test_what_was_forgotten_is_not_found_after_the_second_call(open_kit, failing_store):
    """The erasure was made and failed: nothing is found, and forgetting again succeeds."""
    store = failing_store()
    kit = await open_kit(store=store, config=Config())
    session = await kit.begun("the zebra is in the cellar", "", session_id="s")
    await session.close_and_commit()
    await session.aclose()
    store.fail("erase", before=False)
    with pytest.raises(StoreError):
        await kit.repo.forget(session_id="s")
    assert await kit.repo.search("zebra") == []
    again = await kit.repo.forget(session_id="s")
    assert (again.steps, again.scrubbed) == (0, True)
    assert not (await kit.repo.recall("where is the zebra?")).candidates

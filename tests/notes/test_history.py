"""History, restoring and undoing."""

import pytest
from notes_kit import NOTHING, reply, task, writes

from mnemo.errors import Conflict, InvalidNote, NotFound, StoreError


async def test_history_holds_every_version(kit):
    """Who, when and what, oldest first, deletions included, also of a deleted note."""
    await kit.notes.write("travel", "- a", "Travel")
    await kit.clock.advance(60)
    await kit.notes.write("travel", "- b", "Travel")
    await kit.notes.delete("travel")
    kept = await kit.notes.history("travel")
    assert [(v.version, v.action, v.body) for v in kept] == [
        (1, "created", "- a"),
        (2, "updated", "- b"),
        (3, "deleted", ""),
    ]
    assert (kept[1].at - kept[0].at).total_seconds() == 60


async def test_an_old_version_is_written_as_a_new_one(kit):
    """Restoring makes a version, and revives a deleted note; a deletion has no text."""
    await kit.notes.write("travel", "- a", "Travel")
    await kit.notes.delete("travel")
    note = await kit.notes.restore("travel", 1)
    assert (note.version, note.body) == (3, "- a")
    assert (await kit.notes.recall("travel")).hits
    with pytest.raises(InvalidNote):
        await kit.notes.restore("travel", 2)
    with pytest.raises(NotFound):
        await kit.notes.restore("travel", 9)


async def test_an_update_is_undone_as_a_whole(open_notes):
    """Created notes are retired, changed and absorbed ones return; the undoing can be undone."""
    kit = await open_notes(
        reply(
            {"name": "read_note", "topic": "trips"},
            {"name": "read_note", "topic": "flights"},
            {"name": "read_note", "topic": "hotels"},
        ),
        reply(
            writes(topic="trips", body="- joined", absorbs=["flights"]),
            writes(topic="rex", body="- a dog"),
            {
                "name": "delete_note",
                "topic": "hotels",
                "reason": "stale",
                "evidence": "We fly to Tokyo in March",
            },
        ),
        NOTHING,
    )
    for topic in ("trips", "flights", "hotels"):
        await kit.notes.write(topic, f"- {topic}", topic)
    update = await kit.update()
    assert [note.topic for note in await kit.notes.list()] == ["rex", "trips"]
    changes = await kit.notes.undo(update.id)
    assert {(c.topic, c.action, c.by) for c in changes} == {
        ("trips", "restored", "undo"),
        ("flights", "restored", "undo"),
        ("hotels", "restored", "undo"),
        ("rex", "deleted", "undo"),
    }
    notes = {note.topic: (await kit.notes.read(note.topic)).body for note in await kit.notes.list()}
    assert notes == {topic: f"- {topic}" for topic in ("trips", "flights", "hotels")}
    with pytest.raises(Conflict):
        await kit.notes.undo(update.id)
    undone = (await kit.notes.history("rex"))[-1].update_id
    await kit.notes.undo(undone)
    assert (await kit.notes.read("rex")).body == "- a dog"
    assert (await kit.notes.read("trips")).body == "- joined"


async def test_nothing_is_undone_once_a_note_has_changed(open_notes):
    """A conflict names the notes that were changed since, and touches none."""
    kit = await open_notes(reply(writes(topic="one"), writes(topic="two")), NOTHING)
    update = await kit.update()
    await kit.notes.write("two", "- by hand", "Two")
    with pytest.raises(Conflict, match="two"):
        await kit.notes.undo(update.id)
    assert len(await kit.notes.history("one")) == 1


async def test_only_the_latest_versions_are_kept(open_notes):
    """``keep_versions`` bounds the history; an update whose former text is gone stays done."""
    kit = await open_notes(keep_versions=2)
    for number in range(4):
        await kit.notes.write("travel", f"- {number}", "Travel")
    assert [v.version for v in await kit.notes.history("travel")] == [3, 4]
    calls = [reply(writes(body=f"- {number}")) for number in range(4)]
    kit.script(reply({"name": "read_note", "topic": "travel"}), *calls, NOTHING)
    update = await kit.update()
    assert [(c.action, c.version) for c in update.notes] == [("updated", 8)]
    with pytest.raises(Conflict, match="not kept"):
        await kit.notes.undo(update.id)


async def test_purging_what_a_request_made_leaves_none_of_its_words(open_notes, tmp_path):
    """The topic is made of them, too; the request stays covered."""
    kit = await open_notes(without_model=True)
    history = task("Remember that my zeppelin lives upstairs", "Ok.")
    (change,) = (await kit.update(history, iterations=1)).notes
    await kit.notes.purge(change.topic)
    for file in tmp_path.glob("notes.db*"):
        assert b"zeppelin" not in file.read_bytes()
    assert (await kit.update(history, iterations=1)).skipped_because == "too_few_iterations"


async def test_the_same_text_again_makes_no_version(kit):
    """Writing what is there already changes nothing."""
    first = await kit.notes.write("travel", "- a", "Travel")
    await kit.clock.advance(5)
    again = await kit.notes.write("travel", "- a\n", "Travel")
    assert again == first


async def test_an_undo_is_stopped_by_no_rule_for_new_texts(open_notes):
    """Neither by the most notes there may be, nor by a line that reads like an order."""
    stale = {"name": "delete_note", "topic": "old", "reason": "stale", "evidence": "Tokyo in March"}
    kit = await open_notes(
        reply({"name": "read_note", "topic": "old"}), reply(stale), reply(writes()), NOTHING,
        max_notes=1,
    )  # fmt: skip
    await kit.notes.write("old", "You are now in Paris", "Where we are")
    update = await kit.update()
    assert [note.topic for note in await kit.notes.list()] == ["travel"]
    await kit.notes.undo(update.id)
    assert (await kit.notes.read("old")).body == "You are now in Paris"
    assert len(await kit.notes.list()) == 1


async def test_a_skipped_update_did_nothing_that_could_be_undone(kit):
    """Its id is blank, and so names none of the changes that no update made."""
    await kit.notes.write("travel", "- Tokyo", "Travel")
    skipped = await kit.update(iterations=1)
    with pytest.raises(NotFound):
        await kit.notes.undo(skipped.id)
    assert len(await kit.notes.list()) == 1


async def test_purging_takes_the_name_out_of_what_was_absorbed(open_notes, tmp_path):
    """The absorbed note's history stays, without the name of what it went into."""
    kit = await open_notes(
        reply(*({"name": "read_note", "topic": topic} for topic in ("zeppelin", "balloon"))),
        reply(writes(topic="zeppelin", absorbs=["balloon"])),
        NOTHING,
    )
    for topic in ("zeppelin", "balloon"):
        await kit.notes.write(topic, "- flies", "What flies")
    await kit.update()
    assert (await kit.notes.history("balloon"))[-1].reason == "absorbed by zeppelin"
    await kit.notes.purge("zeppelin")
    assert [version.reason for version in await kit.notes.history("balloon")] == ["", ""]
    for file in tmp_path.glob("notes.db*"):
        assert b"zeppelin" not in file.read_bytes()


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "x"])
async def test_a_limit_is_a_whole_number_from_one(open_notes, limit):
    """Anything else is a ``ValueError``."""
    with pytest.raises(ValueError, match="limit"):
        await (await open_notes()).notes.list(limit=limit)


async def test_what_is_stored_is_done_although_its_vector_is_not(open_notes, monkeypatch):
    """The vector is owed: an undo that was made is not refused, and a search answers by words."""
    kit = await open_notes(reply(writes(topic="rex", body="- a dog")), NOTHING)
    await kit.notes.write("travel", "- Tokyo", "Travel")
    update = await kit.update()
    await kit.notes.undo(update.id)
    undone = (await kit.notes.history("rex"))[-1].update_id
    store = kit.notes._parts.store
    writing = store.writing

    async def full(work):
        def refused(tx):
            monkeypatch.setattr(tx, "save_vectors", fails, raising=False)
            return work(tx)

        return await writing(work if "save_vectors" not in work.__code__.co_names else refused)

    def fails(space, made):
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "writing", full)
    assert await kit.notes.undo(undone)
    assert (await kit.notes.recall("a dog")).hits

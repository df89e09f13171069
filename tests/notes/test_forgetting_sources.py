"""Forgetting conversations reaches the notes that were written from them."""

from datetime import timedelta
from functools import partial

import pytest
from engines import change
from notes_kit import NOTHING, TRIP, reply, task, writes

from mnemo import Config
from mnemo.notes.note_rows import forget_sources
from mnemo.testing import ScriptedChatModel
from mnemo.values.erasure import ErasureReport


def gone(*ids: str):
    """Says that these messages of the thread ``"t"`` are erased."""
    return lambda thread, asked: frozenset(ids) & frozenset(asked) if thread == "t" else frozenset()


async def noted(kit, text: str, thread: str, **rest) -> None:
    """A note, from one message of a thread."""
    read = {"name": "read_note", "topic": rest.get("topic", "travel")}
    kit.script(reply(read), reply(writes(evidence=text, **rest)), NOTHING)
    assert (await kit.update(task(text, "Ok."), thread_id=thread)).wrote


async def forget(kit, **given) -> ErasureReport:
    """Forget in one transaction."""
    given.setdefault("erased", gone())
    return await kit.store.notes("r").writing(partial(forget_sources, **given))


async def test_a_note_of_an_erased_thread_is_gone(kit):
    """Provenance that lies only in what is erased: the note goes physically."""
    await noted(kit, "We fly to Tokyo in March", "t")
    await noted(kit, "The dog is called Rex", "other", topic="rex")
    done = await forget(kit, thread_id="t")
    assert (done.notes, done.note_versions, done.mixed_notes) == (1, 1, ())
    assert [note.topic for note in await kit.notes.list()] == ["rex"]
    assert not await kit.store.notes("r").reading(lambda tx: tx.versions("travel"))


async def test_a_note_that_rests_on_more_stays_without_the_quotes(kit):
    """Mixed: named in the report, its quotes from erased messages blanked, older versions gone."""
    await noted(kit, "We fly to Tokyo in March", "t")
    await noted(kit, "We stay at a small inn", "other", body="- Tokyo\n- small inn")
    done = await forget(kit, thread_id="t")
    assert (done.notes, done.note_versions, done.mixed_notes) == (0, 1, ("travel",))
    (version,) = await kit.notes.history("travel")
    assert (version.version, version.evidence) == (2, "We stay at a small inn")


async def test_a_present_text_that_rests_on_the_erased_loses_its_quote(kit):
    """The latest version of a mixed note stays, its evidence does not."""
    await kit.notes.write("travel", "- by hand", "Travel")
    await noted(kit, "We fly to Tokyo in March", "t")
    done = await forget(kit, erased=gone("m1"))
    assert done.mixed_notes == ("travel",)
    kept = await kit.notes.history("travel")
    assert [(v.version, v.evidence, v.message_ids) for v in kept] == [(1, "", ()), (2, "", ())]
    assert (await kit.notes.read("travel")).version == 2


async def test_messages_are_enough(kit):
    """Single erased messages count as well as whole threads; others are left alone."""
    await noted(kit, "We fly to Tokyo in March", "t")
    assert (await forget(kit, erased=gone("m7"))) == ErasureReport()
    assert (await forget(kit, erased=gone("m1"))).notes == 1


async def test_a_session_is_a_source_where_no_thread_is_named(open_notes):
    """A whole session that is forgotten takes the notes that came of it."""
    kit = await open_notes(reply(writes()), NOTHING)
    assert (await kit.update(session="s")).wrote
    assert (await forget(kit, session_ids=["another"])) == ErasureReport()
    assert (await forget(kit, session_ids=["s"])).notes == 1


async def test_a_restored_text_goes_with_the_thread_that_it_is_from(kit):
    """It rests on what its first version rested on."""
    await noted(kit, "We fly to Tokyo in March", "t")
    await kit.notes.delete("travel")
    await kit.notes.restore("travel", 1)
    assert (await forget(kit, thread_id="t")).notes == 1


async def test_deletions_do_not_keep_a_note(kit):
    """A deleted note whose every text came from the erased goes with its history."""
    await noted(kit, "We fly to Tokyo in March", "t")
    await kit.notes.delete("travel")
    assert (await forget(kit, thread_id="t")).note_versions == 2


async def test_forgetting_a_thread_of_the_repository_reaches_its_notes(open_kit, db):
    """``repo.forget(thread_id=…)`` takes notes that rest on it alone, and names the mixed ones."""
    model = ScriptedChatModel.answering()
    kit = await open_kit(model=model, store=str(db))
    notes = kit.repo.notes
    said = task("We fly to Tokyo in March", "Ok.")
    await kit.repo.conversation("t").append(said)
    await notes.write("food", "- by hand", "Food")
    left = [
        reply(writes(), {"name": "read_note", "topic": "food"}),
        reply(writes(topic="food", body="- by hand\n- ramen")),
        NOTHING,
    ]
    model.script("update_notes", lambda request: left.pop(0))
    history = await kit.repo.conversation("t").history()
    update = await notes.update_after_task(history, iterations=10)
    assert {change.topic for change in update.notes} == {"travel", "food"}
    assert (await notes.history("travel"))[0].thread_id == "t"
    report = await kit.repo.forget(thread_id="t")
    assert (report.notes, report.mixed_notes) == (1, ("food",))
    assert [note.topic for note in await notes.list()] == ["food"]
    assert (await notes.history("food"))[-1].evidence == ""


def scripted(kit, *replies) -> None:
    """What the model answers to the next update of the service's notes."""
    left = list(replies)
    kit.model.script("update_notes", lambda request: left.pop(0))


@pytest.fixture
async def swept(open_kit, db):
    """A note of the messages m1 and left; m1 has expired, and its step is there."""
    kit = await open_kit(config=Config(conversation={"ttl_s": 60}), store=str(db))
    talk = kit.repo.conversation("t")
    await talk.append({"role": "user", "content": "We fly to Tokyo in March", "id": "m1"})
    await kit.clock.advance(40)
    await talk.append({"role": "user", "content": "We fly to Tokyo in March!", "id": "left"})
    feed = await talk.feed(await kit.repo.start_session("a talk", session_id="s"), from_seq=1)
    await feed.caught_up()
    scripted(kit, reply(writes()), NOTHING)
    assert (await kit.repo.notes.update_after_task(await talk.history(), iterations=10)).wrote
    await kit.clock.advance(21)
    await talk.append({"role": "user", "content": "Ana likes tea", "id": "tea"})
    await kit.repo.settle()
    assert [message.id for message in await talk.history()] == ["left", "tea"]
    assert (await kit.repo.statistics()).messages == 2
    (version,) = await kit.repo.notes.history("travel")
    assert version.message_ids == ("m1", "left")
    return kit


async def test_a_note_outlives_messages_that_expired_before(swept):
    """What another erasure takes is no reason to judge it: it rests on nothing of that."""
    before = await swept.repo.notes.history("travel")
    report = await swept.repo.forget(message_ids=["tea"])
    assert (report.messages, report.notes, report.mixed_notes) == (1, 0, ())
    assert await swept.repo.notes.history("travel") == before


async def test_expired_messages_keep_no_note_of_a_forgotten_one(swept):
    """Whose other sources have expired rests on the forgotten one alone."""
    assert (await swept.repo.forget(message_ids=["left"])).notes == 1


async def test_an_expired_message_is_forgotten_with_its_step(swept):
    """Its words were kept as a step: a note that quotes them loses them."""
    report = await swept.repo.forget(session_id="s")
    assert (report.messages, report.mixed_notes) == (0, ("travel",))
    (version,) = await swept.repo.notes.history("travel")
    assert (version.evidence, version.message_ids) == ("", ("left",))


async def test_notes_go_with_the_last_step_of_their_session(open_kit, db):
    """Whatever takes it: a session of which nothing is left is a source no more."""
    kit = await open_kit(store=str(db))
    for name in ("Kyoto", "Porto"):
        session = await kit.repo.start_session("a trip", session_id=name)
        step = await session.append(f"We fly to {name} in March", "Ok.")
        scripted(kit, reply(writes(name.lower(), f"- to {name}", name, f"fly to {name}")), NOTHING)
        said = task(f"We fly to {name} in March", ids=False)
        given = {"iterations": 10, "session": session}
        assert (await kit.repo.notes.update_after_task(said, **given)).wrote
    report = await kit.repo.forget(steps=[step])
    assert (report.sessions, report.notes, report.note_versions) == (1, 1, 1)
    assert [note.topic for note in await kit.repo.notes.list()] == ["kyoto"]
    report = await kit.repo.forget(before=kit.clock.now() + timedelta(days=1))
    assert (report.sessions, report.notes) == (1, 1)


async def test_a_damaged_version_is_told_whatever_is_named(swept, db):
    """It may rest on what goes by its id; of an untouched thread it is not asked."""
    await swept.repo.conversation("other").append({"role": "user", "content": "Tea", "id": "cup"})
    change(db, "UPDATE note_versions SET message_ids = '{}'")
    assert (await swept.repo.forget(message_ids=["cup"])).unreadable == ()
    report = await swept.repo.forget(message_ids=["left"])
    assert [name.split()[0] for name in report.unreadable] == ["note_versions"]
    assert not report.scrubbed


async def test_a_damaged_version_goes_with_the_last_step_of_its_session(open_kit, db):
    """By its columns, unread."""
    kit = await open_kit(store=str(db))
    session = await kit.repo.start_session("a trip", session_id="s")
    step = await session.append("We fly to Tokyo in March", "Ok.")
    scripted(kit, reply(writes()), NOTHING)
    assert (await kit.repo.notes.update_after_task(TRIP, iterations=10, session=session)).wrote
    change(db, "UPDATE note_versions SET message_ids = '{}'")
    report = await kit.repo.forget(steps=[step])
    assert (report.notes, report.note_versions, report.unreadable) == (1, 1, ())

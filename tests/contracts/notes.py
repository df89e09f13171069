"""What a store of notes must do: rows in, rows out, each piece of work one transaction."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from world import NOON, SPACE, Kit, StoreContract, unit_vector

from mnemo.notes.note_rows import NoteWriter, StoredNotes
from mnemo.values.chat import EmbeddingSpace, Usage
from mnemo.values.notes import ConversationRow, Covered, NoteChange, NoteRow, NoteVersion, UsageRow

__all__ = ["NoteStoreContract"]


def row(topic: str = "trips", version: int = 1, **values: Any) -> NoteRow:
    """A note of noon, unless told otherwise."""
    given: dict[str, Any] = {
        "description": f"about {topic}",
        "body": "- Tokyo in March",
        "created_at": NOON,
        "updated_at": NOON,
        "last_read_at": None,
        "trust": "stated",
    }
    return NoteRow(topic=topic, version=version, **{**given, **values})


def version_of(row: NoteRow, **values: Any) -> NoteVersion:
    """The version that makes *row*, by a model's update ``"u"``, unless told otherwise."""
    given: dict[str, Any] = {
        "action": "created" if row.version == 1 else "updated",
        "body": row.body,
        "description": row.description,
        "at": NOON,
        "by": "model",
        "update_id": "u",
        "message_ids": ("m1", "m2"),
        "evidence": "Tokyo in March",
        "trust": row.trust,
    }
    return NoteVersion(topic=row.topic, version=row.version, **{**given, **values})


async def put(store: StoredNotes, *rows: NoteRow, keep: int = 50, **values: Any) -> None:
    """Write notes, each with its version, in one transaction."""

    def work(tx: NoteWriter) -> None:
        for one in rows:
            tx.put(one, version_of(one, **values), keep=keep)

    await store.writing(work)


class NoteStoreContract(StoreContract):
    """``StoredNotes``."""

    @pytest.fixture
    def notes(self, kit: Kit) -> StoredNotes:
        """The notes of the repository ``"r"``."""
        return kit.store.notes("r")

    async def test_an_empty_repository_has_no_notes(self, notes):
        """Nothing was written: nothing is there."""
        assert await notes.reading(lambda tx: (tx.rows(), tx.topics(), tx.counts())) == (
            [],
            [],
            (0, 0),
        )

    async def test_a_written_note_is_read_as_it_was(self, kit, notes):
        """A note, its version and its journal row come back whole, after reopening too."""
        written = row(last_read_at=NOON + timedelta(days=1))
        await put(notes, written)
        await kit.reopen()
        store = kit.store.notes("r")
        assert await store.reading(lambda tx: tx.rows()) == [written]
        assert await store.reading(lambda tx: tx.versions("trips")) == [version_of(written)]
        change = NoteChange(topic="trips", action="created", version=1, by="model")
        assert await store.reading(lambda tx: tx.changes("u")) == [change]

    async def test_work_that_raises_writes_nothing(self, notes):
        """An exception undoes all of a transaction, and reaches the caller."""

        def work(tx: NoteWriter) -> None:
            tx.put(row(), version_of(row()), keep=50)
            tx.mark("key", keep=10)
            raise LookupError("on purpose")

        with pytest.raises(LookupError, match="on purpose"):
            await notes.writing(work)
        assert await notes.reading(lambda tx: (tx.rows(), tx.marked(["key"]))) == ([], frozenset())

    async def test_repositories_do_not_share_notes(self, kit, notes):
        """What one repository holds is nowhere in another."""
        await put(notes, row())
        await notes.writing(lambda tx: tx.finish("task"))
        other = kit.store.notes("other")
        await put(other, row("food"))
        assert await other.reading(lambda tx: tx.topics()) == ["food"]
        assert await other.reading(lambda tx: tx.matching(["tokyo"])) == {
            "tokyo": frozenset({"food"})
        }
        assert not await other.reading(lambda tx: tx.is_done("task"))
        assert await other.reading(lambda tx: tx.versions("trips")) == []

    async def test_a_deleted_note_is_listed_nowhere_and_keeps_its_versions(self, notes):
        """A deletion is a version; the row stays for who asks for the topic."""
        await put(notes, row())
        gone = row(version=2, body="", description="", deleted_by="application")
        await put(notes, gone, action="deleted")
        assert await notes.reading(lambda tx: (tx.rows(), tx.topics())) == ([], [])
        assert await notes.reading(lambda tx: tx.rows(["trips", "nothing"])) == [gone]
        kept = await notes.reading(lambda tx: tx.versions("trips"))
        assert [(v.version, v.action) for v in kept] == [(1, "created"), (2, "deleted")]
        assert await notes.reading(lambda tx: tx.counts()) == (0, 2)
        assert await notes.reading(lambda tx: tx.matching(["tokyo"])) == {"tokyo": frozenset()}

    async def test_rows_come_by_topic(self, notes):
        """Notes are listed by topic, asked for or all."""
        await put(notes, row("zebra"), row("apple"), row("maple"))
        assert await notes.reading(lambda tx: tx.topics()) == ["apple", "maple", "zebra"]
        asked = await notes.reading(lambda tx: tx.rows(["zebra", "apple", "zebra"]))
        assert [one.topic for one in asked] == ["apple", "zebra"]

    async def test_only_the_latest_versions_are_kept(self, notes):
        """The oldest versions are dropped first; the journal outlives them."""
        for number in range(1, 6):
            await put(notes, row(version=number, body=f"text {number}"), keep=3)
        kept = await notes.reading(lambda tx: tx.versions("trips"))
        assert [v.version for v in kept] == [3, 4, 5]
        assert len(await notes.reading(lambda tx: tx.changes("u"))) == 5

    async def test_full_text_follows_the_present_version(self, notes):
        """A note is found by the terms of topic, description and body as they are now."""
        await put(notes, row(body="- Ramen, don't book v1.2 of 東京タワー"))
        wanted = ["trip", "about", "ramen", "don't", "v1.2", "東京", "kyoto", 'a"b']
        found = await notes.reading(lambda tx: tx.matching(wanted))
        hits = {term for term, topics in found.items() if topics == {"trips"}}
        assert hits == {"trip", "ramen", "v1.2", "東京"}
        await put(notes, row(version=2, body="Kyoto"))
        found = await notes.reading(lambda tx: tx.matching(["ramen", "kyoto"]))
        assert found == {"ramen": frozenset(), "kyoto": frozenset({"trips"})}

    async def test_a_note_is_owed_a_vector_until_its_version_has_one(self, notes):
        """Vectors are of one version and one space; anything else is owed."""
        await put(notes, row("one"), row("two"))
        vector = unit_vector(1, 2, 3, 4)
        saved = {"one": (1, vector), "two": (7, vector), "nobody": (1, vector)}
        await notes.writing(lambda tx: tx.save_vectors(SPACE, saved))
        found = await notes.reading(lambda tx: tx.vectors(SPACE))
        assert list(found) == ["one"]
        assert found["one"].tolist() == vector.tolist()
        owed = await notes.reading(lambda tx: tx.owed(SPACE, limit=10))
        assert [one.topic for one in owed] == ["two"]
        other = EmbeddingSpace("another", 4)
        assert len(await notes.reading(lambda tx: tx.owed(other, limit=1))) == 1
        await put(notes, row("one", version=2))
        assert await notes.reading(lambda tx: tx.vectors(SPACE)) == {}

    async def test_reading_marks_notes_without_a_version(self, notes):
        """``touch`` sets when a note was last read, and nothing else."""
        await put(notes, row("one"), row("two"))
        later = NOON + timedelta(hours=2)
        await notes.writing(lambda tx: tx.touch(["two", "nobody"], later))
        rows = await notes.reading(lambda tx: tx.rows())
        assert rows == [row("one"), row("two", last_read_at=later)]

    async def test_erasing_leaves_nothing_of_a_note(self, notes):
        """A purged note is gone with versions, journal, words and vector; the others stay."""
        await put(notes, row("one"), row("two"))
        vectors = {"one": (1, unit_vector(1, 0, 0, 0)), "two": (1, unit_vector(0, 1, 0, 0))}
        await notes.writing(lambda tx: tx.save_vectors(SPACE, vectors))
        erased = await notes.writing(lambda tx: tx.erase("one"))
        assert (erased.note_versions, erased.fulltext_rows, erased.vectors) == (1, 1, 1)
        again = await notes.writing(lambda tx: tx.erase("one"))
        assert (again.note_versions, again.fulltext_rows, again.vectors) == (0, 0, 0)
        assert await notes.reading(lambda tx: tx.rows(["one", "two"])) == [row("two")]
        assert [c.topic for c in await notes.reading(lambda tx: tx.changes("u"))] == ["two"]
        assert await notes.reading(lambda tx: tx.matching(["tokyo"])) == {
            "tokyo": frozenset({"two"})
        }

    async def test_a_version_can_lose_words(self, notes):
        """``rewrite`` replaces one version and leaves the others."""
        await put(notes, row())
        await put(notes, row(version=2))
        blanked = replace(version_of(row()), evidence="", message_ids=())
        await notes.writing(lambda tx: tx.rewrite(blanked))
        kept = await notes.reading(lambda tx: tx.versions("trips"))
        assert kept == [blanked, version_of(row(version=2))]

    async def test_the_latest_marks_are_kept(self, notes):
        """Marks are bounded; setting one again makes it the latest."""
        for key in ("a", "b", "c", "a", "d"):
            await notes.writing(_marking(key))
        marked = await notes.reading(lambda tx: tx.marked(["a", "b", "c", "d", "e"]))
        assert marked == {"a", "c", "d"}

    async def test_the_first_word_about_a_request_stays(self, notes):
        """Once covered or refused, always so."""
        await notes.writing(lambda tx: tx.cover("x", Covered(topic="trips")))
        await notes.writing(lambda tx: tx.cover("x", Covered(refused="secret")))
        await notes.writing(lambda tx: tx.cover("y", Covered(refused="secret")))
        assert await notes.reading(lambda tx: tx.covered(["x", "y", "z"])) == {
            "x": Covered(topic="trips"),
            "y": Covered(refused="secret"),
        }

    async def test_what_updates_leave_behind_is_remembered(self, kit, notes):
        """Finished tasks, conversations and usage rows survive a restart."""
        conversation = ConversationRow(key="t", ended_at=NOON, part="p", failures=2)
        usage = UsageRow(
            update_id="u",
            task_id="task",
            session_id=None,
            at=NOON,
            usage=Usage("m", 10, 5, 3, 0.01),
        )

        def work(tx: NoteWriter) -> None:
            tx.finish("task")
            tx.finish("task")
            tx.keep_conversation(ConversationRow(key="t", failures=1))
            tx.keep_conversation(conversation)
            tx.add_usage(usage)
            tx.add_usage(replace(usage, usage=Usage("m")))

        await notes.writing(work)
        await kit.reopen()
        store = kit.store.notes("r")
        assert await store.reading(lambda tx: (tx.is_done("task"), tx.is_done("other"))) == (
            True,
            False,
        )
        assert await store.reading(lambda tx: tx.conversation("t")) == conversation
        assert await store.reading(lambda tx: tx.conversation("?")) == ConversationRow(key="?")
        kept = await store.reading(lambda tx: tx.usage("u"))
        assert kept == [usage, replace(usage, usage=Usage("m"))]

    async def test_the_store_knows_the_time(self, kit, notes):
        """A transaction sees the service's clock."""
        assert await notes.reading(lambda tx: tx.now) == kit.clock.now()
        assert await notes.writing(lambda tx: tx.now) == kit.clock.now()


def _marking(key: str) -> Callable[[NoteWriter], None]:
    return lambda tx: tx.mark(key, keep=3)

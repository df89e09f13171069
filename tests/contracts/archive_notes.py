"""The contract of archives of notes: they come back, or nothing was written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from contracts.archive import (
    Change,
    assert_refused_by_line,
    doubling,
    dropping,
    lines_of,
    of,
    put,
    setting,
)
from contracts.notes import row, version_of
from world import NOON, SPACE, Kit, StoreContract, unit_vector

from mnemo.errors import UsageError
from mnemo.notes.note_rows import NoteReader, NoteWriter
from mnemo.values.chat import Usage
from mnemo.values.notes import ConversationRow, Covered, UsageRow

__all__ = ["NoteArchiveContract"]

TOPICS = ("food", "gone", "trips")
LATER = NOON + timedelta(hours=2)


def noted(tx: NoteWriter) -> None:
    """Notes there, pruned, deleted and purged, and all that is remembered of updates."""
    told: dict[str, Any] = {"task_id": "k", "session_id": "s", "thread_id": "t", "reason": "why"}
    for number in (1, 2, 3):
        trip = row(version=number, body=f"- お茶 \u2028 {number}", last_read_at=LATER)
        tx.put(trip, version_of(trip, **told), keep=2)
    food = row("food", trust="application", body="- Ramen")
    tx.put(food, version_of(food, by="application", update_id=None, message_ids=()), keep=9)
    for gone in (row("gone"), row("gone", 2, description="", body="", deleted_by="model")):
        action = "deleted" if gone.deleted_by else "created"
        tx.put(gone, version_of(gone, action=action, update_id="a"), keep=9)
    tx.put(row("purged"), version_of(row("purged"), update_id="b"), keep=9)
    tx.erase("purged")
    tx.save_vectors(SPACE, {"trips": (3, unit_vector(1, 2, 3, 4))})
    for key in ("a", "b", "c", "a"):
        tx.mark(key, keep=9)
    for digest, covered in (
        ("x", Covered(topic="trips")),
        ("y", Covered(refused="secret")),
        ("z", Covered(topic="purged")),
    ):
        tx.cover(digest, covered)
    tx.finish("k")
    tx.keep_conversation(ConversationRow(key="thread t", ended_at=NOON, part="p", failures=2))
    spent = UsageRow(update_id="u", task_id="k", session_id=None, at=NOON, usage=Usage("m", 1, 1))
    tx.add_usage(spent)


def dump(tx: NoteReader) -> dict[str, Any]:
    """Everything that travels, as a transaction shows it."""
    return {
        "there": tx.rows(),
        "rows": tx.rows(tx.topics(deleted=True)),
        "versions": [tx.versions(topic) for topic in TOPICS],
        "changes": [tx.changes(update) for update in ("a", "b", "u")],
        "counts": tx.counts(),
        "matching": tx.matching(["ramen", "trip", "gone", "purged", "お茶"]),
        "marked": tx.marked(["a", "b", "c", "d"]),
        "covered": tx.covered(["x", "y"]),
        "done": [tx.is_done("k"), tx.is_done("l")],
    }


BROKEN: dict[str, Change] = {
    **{
        f"a {kind} twice": doubling(f"note{kind}")
        for kind in ("", "_version", "_mark", "_request", "_task")
    },
    "a version of nowhere": setting("note_version", note="nowhere"),
    "a version to come": setting("note_version", -1, version=4),
    "a change of nowhere": setting("note_change", note="nowhere"),
    "a change to come": setting("note_change", -1, version=4),
    "a note with another text than its latest version": setting("note", body="- Sushi"),
    "a note with another description": setting("note", description="not about food"),
    "a note that its latest version deletes": setting(
        "note", 1, deleted_by=None, description="about gone", body="- x"
    ),
    "a note without its latest version": dropping(
        "note_version", -1, lambda rows: of(rows, "note", -1)
    ),
    "a request of a note that is nowhere": setting("note_request", topic="nowhere"),
    "a topic that is a path": setting("note", topic="../food"),
    "a topic that is no topic": setting("note_change", note="No Topic"),
    "a blank body": setting("note", body=" "),
    "a body that is too long": setting("note_version", body="x" * 4_001),
    "a body with hidden characters": setting("note", body="a\u200bb"),
    "a description of two lines": setting("note", description="a\nb"),
    "a deletion with a text": setting("note", 1, body="- x"),
    "a time without a zone": setting("note_version", at="2024-01-01T12:00:00"),
    "an author that is none": setting("note_version", by="somebody"),
    "a mark without a key": setting("note_mark", key=""),
}


class NoteArchiveContract(StoreContract):
    """Notes, out of one store and into another."""

    async def test_notes_come_back_elsewhere(self, kit: Kit, elsewhere: Kit) -> None:
        """Out of this store and into another: all reads agree, and so do the lines."""
        await kit.store.notes("r").writing(noted)
        lines = await lines_of(kit.store.archive("r"))
        await put(elsewhere.store.archive("copy"), lines)
        assert await lines_of(elsewhere.store.archive("copy")) == lines
        found = await elsewhere.store.notes("copy").reading(dump)
        assert found == await kit.store.notes("r").reading(dump)
        assert [note.topic for note in found["there"]] == ["food", "trips"]
        assert [len(versions) for versions in found["versions"]] == [1, 2, 2]
        assert [len(changes) for changes in found["changes"]] == [2, 0, 3]

    async def test_notes_arrive_from_elsewhere(self, kit: Kit, elsewhere: Kit) -> None:
        """Out of another store and into this one, beside others, also after reopening."""
        await elsewhere.store.notes("r").writing(noted)
        lines = await lines_of(elsewhere.store.archive("r"))
        await kit.store.notes("before").writing(noted)
        await put(kit.store.archive("copy"), lines)
        expected = await elsewhere.store.notes("r").reading(dump)
        for _ in range(2):
            assert await lines_of(kit.store.archive("copy")) == lines
            assert await lines_of(kit.store.archive("before")) == lines
            assert await kit.store.notes("copy").reading(dump) == expected
            await kit.reopen()
        assert (await kit.store.check()).problems == ()

    async def test_imported_notes_go_on(self, kit: Kit, elsewhere: Kit) -> None:
        """Versions count on, the oldest mark goes first, and an erasure finds everything."""
        await elsewhere.store.notes("r").writing(noted)
        await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))

        def work(tx: NoteWriter) -> Any:
            fourth = row(version=4, body="- Sushi")
            tx.put(fourth, version_of(fourth), keep=2)
            tx.mark("d", keep=3)
            return tx.erase("food")

        erased = await kit.store.notes("r").writing(work)
        assert (erased.note_versions, erased.fulltext_rows, erased.vectors) == (1, 1, 0)
        found = await kit.store.notes("r").reading(dump)
        assert [version.version for version in found["versions"][2]] == [3, 4]
        assert [change.version for change in found["changes"][2]] == [1, 2, 3, 4]
        assert found["marked"] == {"a", "c", "d"}
        assert found["matching"]["ramen"] == frozenset()
        assert (await kit.store.check()).problems == ()

    async def test_what_only_the_present_needs_stays_at_home(
        self, kit: Kit, elsewhere: Kit
    ) -> None:
        """Calls were paid for once; vectors are owed; a purged note's topic is nowhere."""
        await elsewhere.store.notes("r").writing(noted)
        lines = await lines_of(elsewhere.store.archive("r"))
        assert "purged" not in "".join(lines)
        await put(kit.store.archive("r"), lines)

        def read(tx: NoteReader) -> Any:
            owed = [note.topic for note in tx.owed(SPACE, limit=9)]
            return tx.usage("u"), owed, tx.covered(["z"]), tx.conversation("thread t")

        assert await kit.store.notes("r").reading(read) == (
            [],
            ["food", "trips"],
            {"z": Covered()},
            ConversationRow(key="thread t"),
        )

    @pytest.mark.parametrize("what", ["note", "mark"])
    async def test_a_repository_with_notes_is_not_empty(
        self, kit: Kit, elsewhere: Kit, what: str
    ) -> None:
        """Nothing is imported into it, nor where no more than a mark is left of an update."""
        await elsewhere.store.notes("r").writing(noted)

        def work(tx: NoteWriter) -> None:
            if what == "mark":
                tx.mark("a", keep=9)
            else:
                tx.put(row("mine"), version_of(row("mine")), keep=9)

        await kit.store.notes("r").writing(work)
        before = await lines_of(kit.store.archive("r"))
        with pytest.raises(UsageError, match="not empty"):
            await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))
        assert await lines_of(kit.store.archive("r")) == before

    async def test_what_is_no_part_of_an_archive_stays(self, kit: Kit, elsewhere: Kit) -> None:
        """A repository that holds no more than costs is empty, and keeps them."""
        window = ConversationRow(key="thread t", ended_at=NOON)
        spent = UsageRow(
            update_id="u", task_id=None, session_id=None, at=NOON, usage=Usage("m", 1, 1)
        )

        def work(tx: NoteWriter) -> None:
            tx.add_usage(spent)
            tx.keep_conversation(window)

        await kit.store.notes("r").writing(work)
        await elsewhere.store.notes("r").writing(noted)
        await put(kit.store.archive("r"), await lines_of(elsewhere.store.archive("r")))
        kept = await kit.store.notes("r").reading(
            lambda tx: (tx.usage("u"), tx.conversation("thread t"))
        )
        assert kept == ([spent], window)

    @pytest.mark.parametrize("what", BROKEN)
    async def test_records_of_notes_that_do_not_fit_are_refused_by_line(
        self, kit: Kit, elsewhere: Kit, what: str
    ) -> None:
        """The line is named, and nothing is written."""
        await elsewhere.store.notes("r").writing(noted)
        await assert_refused_by_line(kit, elsewhere, BROKEN[what])

"""What was tokenised is kept as columns, read back as it was, and never outlives an erasure."""

import json
import sqlite3
from contextlib import closing, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines import change
from helpers import examples, until
from hypothesis import given, settings
from hypothesis import strategies as st
from segments_kit import (
    WORDS,
    Tokenised,
    collect,
    few,
    holding,
    index_of,
    learn,
    message,
    opened,
    same_as_anew,
    seal,
    segments_in,
    tell,
    text,
)

from mnemo import StoreError, StoreReadOnly
from mnemo.english.forms import form_of
from mnemo.english.words import ANALYSER, index_terms
from mnemo.index import at_rest, embedding, segments, stored
from mnemo.index.follower import RepositoryIndex
from mnemo.index.segments import MERGED, SEALED_FROM, Batch, Head, absorbed, packed, unpacked
from mnemo.runtime.text import words
from mnemo.testing import HashingEmbedder
from mnemo.values.feed import FeedCursor

pytestmark = pytest.mark.usefixtures("small")


def made_of(index: Any) -> at_rest.Made:
    """The segment of all steps that *index* holds."""
    known = {"repo": index._number, "reading": index._keeper._reading}
    _, made = at_rest.segment(index._corpus, "steps", [], index._cursor, **known)
    assert made is not None
    return made


async def test_what_was_read_once_is_not_tokenised_again(place, monkeypatch):
    """A service that opens the store later takes up the columns, and reads on behind them."""
    async with opened(place, background=True) as (_, repo):
        await tell(repo, 0, 40)
        await collect(repo, "s", 10)
        await until(lambda: sum(row[1] for row in segments_in(place)) == 60)
        first = await repo.recall("honey of the hive in winter")
    tokenised = Tokenised(monkeypatch)
    async with opened(place) as (_, repo):
        again = await repo.recall("honey of the hive in winter")
        assert tokenised.texts == 0
        await tell(repo, 40, 43)
        assert text(42) in (await repo.recall(text(42), k=1)).as_text()
        assert tokenised.texts == 3
    assert again.as_text() == first.as_text()
    assert [c.score for c in again.candidates] == [c.score for c in first.candidates]


@pytest.mark.parametrize("feed_first", [True, False])
async def test_columns_at_rest_say_what_the_rows_say(place, feed_first):
    """Of messages, of steps with both sides, and of steps that repeat a message."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 9, actor="Zoë")
        await tell(repo, 9, 12, thread="u", metadata={})
        if feed_first:
            await seal(memory)
        await collect(repo, "s", 5)
        fed = await repo.start_session("look", session_id="fed")
        await repo.conversation("t").feed(fed, from_seq=0)
        await repo.add_memory("Zoë keeps bees")
        for word in WORDS[:3]:
            await learn(repo, word)
        await tell(repo, 12, 20)
        await seal(memory)
        assert sum(row[1] for row in segments_in(place)) >= 30
        await same_as_anew(memory)


async def test_nothing_that_is_forgotten_stays_in_a_segment(place):
    """The erasing transaction takes it out of those that hold it; what is left stays kept."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        await repo.conversation("secret").append([message(n, content="zanzibar") for n in (90, 91)])
        await collect(repo, "s", 4)
        await seal(memory)
        assert holding(place, b"zanzibar")
        await repo.forget(thread_id="secret")
        assert not holding(place, b"zanzibar")
        await tell(repo, 12, 20)
        await seal(memory)
        assert sum(row[1] for row in segments_in(place)) == 28
        assert not holding(place, b"zanzibar")
        await repo.forget(session_id="s")
        assert [row[1] for row in segments_in(place)] == [12, 8]
        await same_as_anew(memory)
    if isinstance(place, Path):
        assert not any(b"zanzibar" in file.read_bytes() for file in place.parent.iterdir())


async def test_what_leaves_recall_meanwhile_is_in_no_segment(place):
    """A segment that was made before, and is written after, is refused."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        index = index_of(memory, kept=True)
        await index.catch_up()
        made = made_of(index)
        await repo.conversation("t").purge()
        assert not await memory._store.segments("r").put(*made)
        assert not segments_in(place)


async def test_two_that_keep_columns_at_once_keep_each_document_once(place):
    """Who comes second looks again at what there is."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        one, other = index_of(memory, kept=True), index_of(memory, kept=True)
        await one.catch_up()
        await other.catch_up()
        late = made_of(other)
        await one.seal()
        assert not await memory._store.segments("r").put(*late)
        await tell(repo, 12, 20)
        await other.catch_up()
        await other.seal()
        await one.catch_up()
        await one.seal()
        assert [row[1] for row in segments_in(place)] == [12, 8]
        await same_as_anew(memory)


@pytest.mark.parametrize("at", ["head", "middle"])
async def test_a_damaged_segment_is_read_anew(place, at, caplog):
    """It is told, dropped, and made again; what stands before it is used."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        await seal(memory)
        await tell(repo, 12, 20)
        await seal(memory)
        before = segments_in(place)
        assert len(before) == 2
        await damage(memory, 2, at)
        await same_as_anew(memory)
        assert segments_in(place) == before[:1]
        assert "read anew" in caplog.text
        index = index_of(memory, kept=True)
        await index.catch_up()
        await index.seal()
        assert [row[1] for row in segments_in(place)] == [12, 8]
        await same_as_anew(memory)


async def damage(memory: Any, no: int, at: str) -> None:
    """Change a byte of a segment."""

    def change(tx: Any) -> None:
        (found,) = tx.run("SELECT bytes FROM segments WHERE no = ?", (no,)).fetchone()
        damaged = bytearray(found)
        damaged[4 if at == "head" else len(found) // 2] ^= 1
        tx.run("UPDATE segments SET bytes = ? WHERE no = ?", (bytes(damaged), no))

    await memory._store.engine.writing(change, locks=[("segments", "r")])


async def test_what_is_only_asked_is_kept_too(place, monkeypatch):
    """Also where no vector is owed; what cannot be kept is packed once."""
    async with opened(place, background=True) as (memory, repo):
        await tell(repo, 0, 20)
        await until(lambda: sum(row[1] for row in segments_in(place)) == 20)
        await memory._store.segments("r").drop("steps", 0)
    packs, put = list[int](), stored.StoredSegments.put

    async def refuse(*_: Any) -> None:
        packs.append(1)
        raise StoreError("full")

    monkeypatch.setattr(stored.StoredSegments, "put", refuse)
    async with opened(place, background=True) as (_, repo):
        for _ in range(3):
            await repo.recall("honey")
            await until(lambda: packs)
        assert packs == [1]
    monkeypatch.setattr(stored.StoredSegments, "put", put)
    async with opened(place) as (_, repo):
        monkeypatch.setattr(repo._parts.index, "wake", pytest.fail)
        await repo.recall("honey")
    async with opened(place, background=True) as (memory, repo):
        await repo.recall("honey")
        await until(lambda: sum(row[1] for row in segments_in(place)) == 20)
        await same_as_anew(memory)


async def test_columns_of_another_reading_are_made_anew(place):
    """Under another name of the agent texts are others."""
    async with opened(place) as (memory, repo):
        await collect(repo, "s", 10)
        await seal(memory)
        index = RepositoryIndex(
            feed=memory._store.feed("r"), segments=memory._store.segments("r"),
            embedder=HashingEmbedder(), agent_name="Robot",
        )  # fmt: skip
        assert "robot" in (await index.corpus()).steps.actors
        await index.seal()
        again = replace(index)
        assert "robot" in (await again.corpus()).steps.actors


async def test_a_long_reading_is_kept_in_several_segments(place, monkeypatch):
    """None is cut between the two sides of a step."""
    monkeypatch.setattr(at_rest, "MOST_DOCUMENTS", 7)
    async with opened(place) as (memory, repo):
        await collect(repo, "s", 9)
        await tell(repo, 0, 9)
        index = index_of(memory, kept=True)
        await index.catch_up()
        await index.seal()
        assert [row[1] for row in segments_in(place)] == [7, 8, 8, 4]
        await same_as_anew(memory)


async def test_segments_go_with_their_repository(place):
    """And are of no other."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        await seal(memory)
        other = await memory.open_repo("other")
        await other.remember("alone")
        assert len((await other.recall("honey of the hive")).candidates) == 1
        await memory.close_repo("r")
        await memory.delete_repo("r")
        assert not segments_in(place)


async def test_a_store_that_cannot_be_written_is_read(place, monkeypatch):
    """What is of no use stays there, and is read anew."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        await seal(memory)
        await damage(memory, 1, "middle")
        before, index = segments_in(place), index_of(memory, kept=True)

        async def refuse(*_: Any, **__: Any) -> None:
            raise StoreReadOnly("it cannot be written")

        monkeypatch.setattr(memory._store.engine, "writing", refuse)
        assert (await index.corpus()).steps.count == 12
        monkeypatch.undo()
    assert segments_in(place) == before


async def test_a_repository_of_the_same_name_takes_nothing_over(place):
    """Not what another process had read of one that was deleted since."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        index = index_of(memory, kept=True)
        await index.catch_up()
        await memory.close_repo("r")
        await memory.delete_repo("r")
        await tell(await memory.open_repo("r"), 50, 70)
        assert not await memory._store.segments("r").put(*made_of(index))
        await index.seal()
        assert [row[1] for row in segments_in(place)] == [20]
        assert (await index.corpus()).steps.count == 20
        await same_as_anew(memory)


async def test_replaced_nodes_are_not_taken_up(place, monkeypatch):
    """Else an index would be renewed to be rid of them, and have them again."""
    monkeypatch.setattr(embedding, "MOST_REMOVED", 5)
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 4)
        facts = [await repo.add_memory(f"Zoë keeps {word}") for word in WORDS]
        for number in range(4):
            for fact, word in zip(facts, WORDS, strict=True):
                await repo.update_memory(fact.id, f"Zoë keeps {number} {word}")
            await seal(memory)
        assert len(segments_in(place)) > 2
        index = index_of(memory, kept=True)
        await index.catch_up()
        assert index._corpus.removed == 0
        await same_as_anew(memory)


async def test_a_row_that_is_no_blob_is_read_anew(place):
    """Recall goes on."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        await seal(memory)
        if not isinstance(place, Path):
            return  # PostgreSQL refuses the value
        await memory._store.engine.writing(
            lambda tx: tx.run("UPDATE segments SET bytes = 'garbage'"), locks=[("segments", "r")]
        )
        await same_as_anew(memory)
        assert not segments_in(place)


@pytest.mark.parametrize("error", [StoreReadOnly("it cannot be written"), StoreError("full")])
async def test_what_cannot_be_kept_is_not_packed_again_at_once(place, monkeypatch, error):
    """Documents get their vectors all the same."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        packs, index = list[int](), index_of(memory, kept=True)

        async def refuse(*_: Any) -> None:
            packs.append(1)
            raise error

        monkeypatch.setattr(stored.StoredSegments, "put", refuse)
        for _ in range(3):
            await index.run()
        assert packs == [1]
        assert index.statistics().waiting == 0
        assert index.statistics().failing is None


async def test_useless_segments_that_cannot_be_dropped_stay(place, monkeypatch):
    """Reading does not depend on writing."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        await seal(memory)
        await damage(memory, 1, "middle")

        async def refuse(*_: Any) -> None:
            raise StoreError("the disk is full")

        monkeypatch.setattr(stored.StoredSegments, "drop", refuse)
        assert (await index_of(memory, kept=True).corpus()).steps.count == 12


DAMAGE = {"messages": "no", "steps": "ordinal"}


@pytest.mark.parametrize("table", DAMAGE)
@pytest.mark.parametrize("large", [False, True])
async def test_a_damaged_row_keeps_nothing_else_from_being_kept(tmp_path, table, large):
    """It is told as before, found again when it was put right, and erased."""
    place, sides = tmp_path / "m.db", 1 if table == "messages" else 2
    damage = f"UPDATE {table} SET metadata = {{}} WHERE {DAMAGE[table]} = 3"
    with few(large=8, exact=12) if large else nullcontext():
        async with opened(place) as (memory, repo):
            await tell(repo, 0, 12)
            await collect(repo, "s", 6)
            await index_of(memory, kept=True).embed_waiting()
            change(place, damage.format("'x' || metadata"))
            index = index_of(memory, kept=True)
            await index.embed_waiting()
            await index.seal()
            assert sum(row[1] for row in segments_in(place)) == 24 - sides
            assert bool(index._held.large["steps"]) == large
            damaged = (await index_of(memory, kept=False).corpus()).damaged
            assert damaged
            for one in (index, index_of(memory, kept=True)):
                view = await one.corpus()
                assert view.damaged == damaged
                assert one.statistics().documents == 24 - sides
            change(place, damage.format("substr(metadata, 2)"))
            index = index_of(memory, kept=True)
            await index.embed_waiting()
            assert index.statistics().documents == 24
            assert not (await index.corpus()).damaged
            if not large:
                await same_as_anew(memory)
            await repo.forget(message_ids=["m2"], thread_id="t")
            await repo.forget(session_id="s")
            for one in (index, index_of(memory, kept=True)):
                await one.embed_waiting()
                assert one.statistics().documents == 11


@pytest.mark.parametrize("late", [False, True])
async def test_an_older_copy_in_the_place_of_a_store_is_followed(tmp_path, monkeypatch, late):
    """Nothing that it does not hold is found or kept, also where it comes while that is kept."""
    place, copy = tmp_path / "m.db", tmp_path / "copy.db"

    def put_back() -> None:
        with closing(sqlite3.connect(copy)) as older, closing(sqlite3.connect(place)) as present:
            older.backup(present)

    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        index = index_of(memory, kept=True)
        await index.embed_waiting()
        await memory.backup(copy)
        await tell(repo, 12, 20, content="zanzibar")
        await index.embed_waiting()
        put = stored.StoredSegments.put

        async def after_all(*args: Any, **named: Any) -> bool:
            put_back()
            return await put(*args, **named)

        if late:
            monkeypatch.setattr(stored.StoredSegments, "put", after_all)
        else:
            put_back()
        await index.seal()
        assert not holding(place, b"zanzibar")
        assert (await index.corpus()).steps.count == 12
        await same_as_anew(memory)


async def test_no_nodes_are_kept_where_one_is_damaged(tmp_path):
    """What is put right is read again."""
    place = tmp_path / "m.db"
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        facts = [await repo.add_memory(f"Zoë keeps {word}") for word in WORDS]
        change(place, f"UPDATE nodes SET body = 'x' || body WHERE id = '{facts[3].id}'")
        index = index_of(memory, kept=True)
        await index.catch_up()
        await index.seal()
        assert [row[1] for row in segments_in(place)] == [12]
        change(place, f"UPDATE nodes SET body = substr(body, 2) WHERE id = '{facts[3].id}'")
        await same_as_anew(memory)
        assert len((await index_of(memory, kept=True).corpus()).nodes["semantic"].ids) == 10


async def test_a_message_is_behind_a_fact_once(place):
    """However many sessions that were fed it have told the fact."""
    async with opened(place) as (memory, repo):
        said = {"role": "user", "content": "I keep bees at home and Ana keeps bees"}
        await repo.conversation("t").append([said, *map(message, range(4))])
        for name in ("a", "b"):
            session = await repo.start_session("look", session_id=name)
            await (await repo.conversation("t").feed(session, from_seq=0)).caught_up()
            await session.close_and_commit()
        pairs = (await index_of(memory, kept=False).corpus()).behind["semantic"].tolist()
        assert pairs
        assert len(pairs) == len({*map(tuple, pairs)})
        await seal(memory)
        await same_as_anew(memory)


async def test_what_is_handed_on_is_read_anew(place):
    """A message that a step repeats is forgotten elsewhere; then all is kept again."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 8)
        fed = await repo.start_session("look", session_id="fed")
        await repo.conversation("t").feed(fed, from_seq=0)
        index = index_of(memory, kept=True)
        await index.catch_up()
        await repo.conversation("t").purge()
        await index.run()
        await index.run()
        await same_as_anew(memory)


acts = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.integers(1, 9), st.sampled_from("tu")),
        st.tuples(st.just("collect"), st.integers(1, 4), st.just("")),
        st.tuples(st.just("feed"), st.just(0), st.sampled_from("tu")),
        st.tuples(st.just("purge"), st.just(0), st.sampled_from("tu")),
        st.tuples(st.just("forget"), st.integers(0, 3), st.just("")),
        st.tuples(st.just("seal"), st.just(0), st.just("")),
        st.tuples(st.just("know"), st.integers(0, 4), st.sampled_from(WORDS)),
        st.tuples(st.just("unite"), st.just(0), st.just("")),
    ),
    max_size=12,
)


@given(acts)
@settings(max_examples=examples(30), deadline=None)
@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
async def test_whatever_happens_columns_at_rest_are_those_of_the_rows(acts):
    """Of any order of messages, sessions, feeding, erasing and keeping."""
    async with opened("memory:") as (memory, repo):
        said = 0
        index = index_of(memory, kept=True)
        sessions = list[str]()
        for act, number, thread in acts:
            match act:
                case "tell":
                    await tell(repo, said, said + number, thread=thread)
                    said += number
                case "collect":
                    sessions.append(f"s{len(sessions)}")
                    await collect(repo, sessions[-1], number)
                case "feed":
                    sessions.append(f"s{len(sessions)}")
                    fed = await repo.start_session("look", session_id=sessions[-1])
                    await repo.conversation(thread).feed(fed, from_seq=0)
                case "purge":
                    await repo.conversation(thread).purge()
                case "forget" if number < len(sessions):
                    await repo.forget(session_id=sessions[number])
                case "know":
                    await repo.add_memory(f"Zoë keeps {number} {thread}", tags=[thread])
                    if number == 4 and sessions:
                        await learn(repo, thread)
                case "unite":
                    await repo.consolidate()
                case "seal":
                    await index.catch_up()
                    await index.seal()
        await same_as_anew(memory)


def test_a_segment_is_read_as_it_was_packed():
    """Whatever the names hold; damage anywhere is found."""
    names = {
        "ids": ["a", "é\ud800", ""],
        "terms": ["x"],
        "chains": ["\0t"],
        "metadata": ['{"a": 1}'],
    }
    columns = {
        "born": np.array([1, 2, 70_000], np.uint32),
        "acted": np.array([True, False, True]),
        "terms": np.array([0, 0], np.uint8),
    }
    batch = Batch(columns, names, [["s", "m", "\ud800", 2]])
    head = Head(
        repo=1, chain="steps", after=FeedCursor(), until=FeedCursor(step=4), reading="r",
        documents=3, tongues=(True, False),
    )  # fmt: skip
    found, batches = unpacked(segment := packed(head, {"steps": batch}))
    again = batches["steps"]
    assert (found, [*again.repeats]) == (head, [*map(tuple, batch.repeats)])
    assert {kind: [*some] for kind, some in again.names.items()} == names
    assert {name: column.tolist() for name, column in again.columns.items()} == {
        name: column.tolist() for name, column in columns.items()
    }
    for at in range(len(segment)):
        damaged = bytearray(segment)
        damaged[at] ^= 0x55
        with pytest.raises(ValueError, match="damaged"):
            unpacked(bytes(damaged))
    for end in (0, 3, 15, len(segment) // 2, len(segment) - 1):
        with pytest.raises(ValueError, match="damaged"):
            unpacked(segment[:end])


def test_a_document_is_written_again_once_per_eightfold_size():
    """So that what is written per document does not grow with the store."""
    sizes: list[int] = []
    written = 0
    for _ in range(3_000):
        merged = absorbed(sizes, SEALED_FROM)
        size = SEALED_FROM + sum(sizes[len(sizes) - merged :])
        sizes[len(sizes) - merged :] = [size]
        written += size
    documents = sum(sizes)
    assert documents == 3_000 * SEALED_FROM
    assert written / documents <= 4
    assert len(sizes) <= documents / (64 * SEALED_FROM) + 2 * MERGED


def test_segments_that_lost_documents_are_merged_all_the_same():
    """Else each of them would keep those beside it apart."""
    size = MERGED**2 * segments.SEALED_FROM
    lost = size * 3 // 5
    assert absorbed([size, lost, size, lost, size, lost, size], size) == MERGED - 1
    assert absorbed([size, *[segments.SEALED_FROM] * (MERGED - 2)], segments.SEALED_FROM) == 0


SAID = (
    "We've moved the launch to Friday 14 May 2023, haven't we?",
    "She's in the hospital's café.",
    "I walked 3 miles in Rome yesterday",
    "東京都に住んでいます。",
    "fooBar.baz_qux(42) != snake_case",
)


def test_the_analyser_is_another_one_when_it_reads_otherwise():
    """Terms and forms of older segments are of no use then: raise ``ANALYSER`` with this digest."""
    read = [(list(index_terms(said)), len(words(said)), form_of(said)) for said in SAID]
    digest = sha256(json.dumps(read).encode()).hexdigest()[:16]
    assert (ANALYSER, digest) == (1, "a19b7348764e9204")

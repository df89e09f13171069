"""What leaves recall leaves the segments that hold it; what they hold then is what the rows say."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from engines import change
from helpers import examples
from hypothesis import HealthCheck, example, given, settings
from schedule_kit import ACTS, Schedule
from segments_kit import (
    Tokenised,
    check_segments,
    collect,
    holding,
    index_of,
    learn,
    message,
    opened,
    same_as_anew,
    seal,
    segments_in,
    tell,
    told,
)

from mnemo import Changeset
from mnemo.index import erased
from mnemo.index.batches import DERIVED, derived
from mnemo.index.erased import without
from mnemo.index.segments import Batch
from mnemo.log import feed
from mnemo.store.engine import pay_off
from mnemo.store.rows import repo_number
from mnemo.store.tx import Tx
from mnemo.values.feed import FeedCursor

pytestmark = pytest.mark.usefixtures("small")


BEGUN = [("tell", 5, "t"), ("hear", 1, "t"), ("learn", 2, "hive"), ("know", 3, "moss")]
BEGUN += [("seal", 0, ""), ("feed", 0, "t"), ("collect", 2, ""), ("seal", 0, "")]
ERASING = ("unite", "purge", "withdraw", "expire", "delete", "forget")


# A fact rests on two steps of one message, which follow it.
@example(acts=[("hear", 0, "t")])
@given(acts=ACTS)
@settings(
    max_examples=examples(40), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
async def test_whatever_is_erased_segments_say_what_the_rows_say(begun, acts):
    """At once, for who begins and for who goes on; nothing that is gone is named in them."""
    async with opened(begun()) as (memory, repo):
        schedule = Schedule(memory, repo)
        for act in (*BEGUN, *acts):
            await schedule.do(*act)
            if act[0].startswith(ERASING):
                await same_as_anew(memory)
                if act[0] != "expire":
                    await pay_off(memory._store.engine.writing)
                    await check_segments(memory)
        for _ in range(2):
            await schedule.index.run()
        # Whoever goes on knows changesets by which it read what is left, also forgotten ones.
        goes_on, anew = schedule.index, index_of(memory, kept=False)
        assert await told(goes_on, origins=False) == await told(anew, origins=False)
        await pay_off(memory._store.engine.writing)
        await check_segments(memory)
        await same_as_anew(memory)


async def stored_bytes(memory: Any) -> dict[tuple[str, int], bytes]:
    """What segments are, by chain and number."""
    chains = (await memory._store.segments("r").read()).small
    return {(chain, no): stored for chain, kept in chains.items() for no, stored in kept.items()}


async def sealed(memory: Any, repo: Any, *sizes: int) -> list[str]:
    """Segments of so many messages each; the ids of all."""
    index, said = index_of(memory, kept=True), 0
    for size in sizes:
        await tell(repo, said, said + size)
        await index.catch_up()
        await index.seal()
        said += size
    assert len(await stored_bytes(memory)) == len(sizes)
    return [message.id for message in await repo.conversation("t").history()]


async def test_only_segments_that_hold_it_are_written_again(place, monkeypatch):
    """Nothing is tokenised for it, and the others stay as they are."""
    async with opened(place) as (memory, repo):
        ids = await sealed(memory, repo, 9, 6, 4)
        before = await stored_bytes(memory)
        await repo.forget(message_ids=[ids[10], ids[12]], thread_id="t")
        after = await stored_bytes(memory)
        assert [key for key in before if after[key] == before[key]] == [("steps", 1), ("steps", 3)]
        assert [row[:2] for row in segments_in(place)] == [(1, 9), (2, 4), (3, 4)]
        await check_segments(memory)
        await same_as_anew(memory)
        tokenised = Tokenised(monkeypatch)
        assert (await index_of(memory, kept=True).corpus()).steps.count == 17
        assert tokenised.texts == 0


async def test_an_emptied_segment_goes(place):
    """What follows it begins where it began, and goes on to be appended to."""
    async with opened(place) as (memory, repo):
        ids = await sealed(memory, repo, 4, 5, 6, 4)
        await repo.forget(message_ids=[*ids[:9], *ids[15:]], thread_id="t")
        assert [row[:2] for row in segments_in(place)] == [(3, 6)]
        await check_segments(memory)
        await same_as_anew(memory)
        await tell(repo, 30, 34)
        await seal(memory)
        assert [row[1] for row in segments_in(place)] == [6, 4]
        await check_segments(memory)
        await same_as_anew(memory)


async def test_too_much_at_once_is_made_anew(place, monkeypatch):
    """Other writers do not wait for it; what could be written again in time stays."""
    monkeypatch.setattr(erased, "MOST_REWRITTEN", 12)
    async with opened(place) as (memory, repo):
        ids = await sealed(memory, repo, 7, 5, 6, 4)
        await repo.forget(message_ids=[ids[0], ids[8], ids[13]], thread_id="t")
        assert [row[:2] for row in segments_in(place)] == [(1, 6), (2, 4)]
        await same_as_anew(memory)
        await seal(memory)
        await check_segments(memory)
        assert sum(row[1] for row in segments_in(place)) == 19


@pytest.mark.parametrize("change", ["bytes = $", "documents = -9", "named = $"])
async def test_what_cannot_be_read_is_made_anew(place, change):
    """A damaged segment that may hold something of it goes, with those behind it."""
    value = "'\\x00'::bytea" if isinstance(place, str) else "x'00'"
    async with opened(place) as (memory, repo):
        ids = await sealed(memory, repo, 7, 5, 6)
        await memory._store.engine.writing(
            lambda tx: tx.run(f"UPDATE segments SET {change.replace('$', value)} WHERE no = 2"),
            locks=[("segments", "r")],
        )
        await repo.forget(message_ids=[ids[8]], thread_id="t")
        left = [(1, 7)] if change.startswith("bytes") else [(1, 7), (2, 4), (3, 6)]
        assert [row[:2] for row in segments_in(place)] == left
        await same_as_anew(memory)


async def test_what_expires_at_each_append_waits_for_more(place, monkeypatch):
    """Nobody finds it meanwhile; it is gone with the next erasure, or at the latest a scrub."""
    monkeypatch.setattr(erased, "MOST_WAITING", 5)

    async def expire(*seqs: int) -> None:
        await memory._store.transcript("r").writing(lambda tx: tx.erase("t", seqs))

    async with opened(place) as (memory, repo):
        ids = await sealed(memory, repo, 9, 9, 9, 9)
        before, index = segments_in(place), index_of(memory, kept=True)
        for first in (0, 2):
            await expire(first, first + 1)
            assert [row for row in segments_in(place) if row[1]] == before
            await same_as_anew(memory)
        await tell(repo, 40, 44)
        await index.run()
        await same_as_anew(memory)
        await expire(4)
        assert [row[1] for row in segments_in(place)] == [4, 9, 9, 9, 4]
        await check_segments(memory)
        await expire(10)
        await repo.forget(message_ids=[ids[20]], thread_id="t")
        assert [row[1] for row in segments_in(place)] == [4, 8, 8, 9, 4]
        await expire(30)
        await memory.scrub()
        assert [row[1] for row in segments_in(place)] == [4, 8, 8, 8, 4]
        await check_segments(memory)
        await same_as_anew(memory)


async def test_a_mark_behind_which_nothing_waits_goes(place):
    """Whatever left it there: a scrub ends."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 2)

        def mark(tx: Tx) -> None:
            values = (repo_number(tx, "r"), "expired", b"", b"")
            tx.run("INSERT INTO segments VALUES (?, ?, 99, 0, 0, '', ?, NULL, ?)", values)

        await memory._store.engine.writing(mark)
        with anyio.fail_after(30):
            await pay_off(memory._store.engine.writing)
        assert segments_in(place) == []


async def test_a_changeset_that_is_forgotten_is_kept_in_no_segment(place):
    """Not by an index either that had read of it before."""
    async with opened(place) as (memory, repo):
        session = await repo.start_session("look", session_id="s")
        await repo.conversation("t").append([message(n) for n in range(4)])
        said = message(4, content="I keep bees at home and Ana keeps bees")
        await repo.conversation("t").append(said)
        await (await repo.conversation("t").feed(session, from_seq=0)).caught_up()
        origin = (await session.close_and_commit()).changeset_id
        await learn(repo, "hive")
        await learn(repo, "moss")
        index = index_of(memory, kept=True)
        await index.embed_waiting()
        await repo.forget(message_ids=["m4"], thread_id="t")
        await index.run()
        assert not holding(place, origin.encode())
        await same_as_anew(memory)


async def test_a_step_that_takes_the_place_of_a_message_is_read_anew(place):
    """A segment knows that it repeats one, and not what it says."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 8)
        await seal(memory)
        fed = await repo.start_session("look", session_id="fed")
        await repo.conversation("t").feed(fed, from_seq=0)
        await collect(repo, "s", 4)
        await seal(memory)
        assert [row[:2] for row in segments_in(place)] == [(1, 8), (2, 8)]
        store = memory._store.transcript("r")
        await store.writing(lambda tx: tx.erase("t", [0, 1]))
        assert [row[:2] for row in segments_in(place)] == [(1, 6)]
        await same_as_anew(memory)
        await seal(memory)
        await check_segments(memory)
        await same_as_anew(memory)


async def test_more_may_go_than_is_logged(place, monkeypatch):
    """Whoever begins with segments has missed nothing of what went before."""
    monkeypatch.setattr(feed, "KEPT", 3)
    async with opened(place) as (memory, repo):
        ids = await sealed(memory, repo, 12, 6)
        for id in ids[:9]:
            await repo.forget(message_ids=[id], thread_id="t")
        assert [row[:2] for row in segments_in(place)] == [(1, 3), (2, 6)]
        with anyio.fail_after(30):
            await same_as_anew(memory)


async def test_what_is_behind_a_damaged_step_is_read_anew(tmp_path):
    """A fact that loses a step is given no new revision where another one cannot be judged."""
    place = tmp_path / "m.db"
    async with opened(place) as (memory, repo):
        for session in range(3):
            await learn(repo, "bees", session_id=f"s{session}")
        await seal(memory)
        facts = await repo.memories()
        assert len(facts.items[0].sources) > 1
        damage = "UPDATE nodes SET body = 'x' || body WHERE id IN (SELECT node_id FROM steps {})"
        change(place, damage.format("WHERE session = 2"))
        await repo.forget(session_id="s0")
        await check_segments(memory)
        await same_as_anew(memory)


async def test_what_an_erasure_changed_is_of_no_changeset(place):
    """One that wrote nothing and has the same revision is not where it is from."""
    async with opened(place) as (memory, repo):
        await learn(repo, "bees")
        steps = await memory._store.graph("r").nodes(types=["episodic"])
        await repo.delete_nodes([step.id for step in steps])
        await repo.apply(Changeset())
        changes = await memory._store.feed("r").changes(FeedCursor())
        known = {node.type: node.id in changes.origins for node in changes.nodes}
        assert known == {"tag": True, "semantic": False, "subgoal": False}


def test_a_large_batch_loses_what_is_of_a_document():
    """Vectors too; a document may have several, or none yet."""
    columns = {
        "born": np.array([3, 4, 7]),
        "lengths": np.array([2.0, 0.0, 1.0], np.float32),
        "terms": np.array([2, 1, 3], np.uint8),
        "session": np.array([1, 2, 2], np.uint8),
        "thread": np.array([0, 3, 2], np.uint8),
        "vectors": np.array([1, 2, 0], np.uint8),
        "codes": np.array([[1, 2], [3, 4], [5, 6]], np.int8),
        "scales": np.array([0.5, 0.25, 0.125], np.float32),
        "first": np.array([1.0, 2.0, 3.0]),
        "actor": np.array([1, 1, 1], np.uint8),
        "asks": np.array([False, True, False]),
        "log_words": np.array([1.0, 0.0, 0.5], np.float32),
    }
    names = {"ids": ["a", "b", "c"], "terms": ["x", "y", "z"], "chains": ["\0t", "\0u", "\0v"]}
    repeats = [("s", "a", "one", 1), ("r", "b", "two", 2), ("q", "c", "three", 3)]
    given = {"steps": derived(Batch(columns, names, repeats))}
    assert without(given, {"d"})["steps"] is given["steps"]
    left = without(given, {"a", "q"})["steps"]
    kept = {name: left.columns[name].tolist() for name in left.columns if name not in DERIVED}
    assert kept == {
        "first": [2.0, 3.0], "actor": [1, 1], "asks": [True, False], "log_words": [0.0, 0.5],
        "born": [4, 7], "lengths": [0.0, 1.0], "terms": [1], "session": [1, 1], "thread": [2, 1],
        "vectors": [2, 0], "codes": [[3, 4], [5, 6]], "scales": [0.25, 0.125],
    }  # fmt: skip
    anew = derived(replace(left, columns={name: left.columns[name] for name in kept}))
    for name in DERIVED:
        assert left.columns[name].tolist() == anew.columns[name].tolist()
    assert left.columns["documents"].tolist() == [1]
    assert left.columns["owners"].tolist() == [0, 0]
    assert left.names == {"ids": ["b", "c"], "terms": ["z"], "chains": ["\0u", "\0v"]}
    assert left.repeats == [("r", "b", "two", 2)]
    assert without(given, {"a", "b", "c"})["steps"].names == {"ids": [], "terms": [], "chains": []}


async def test_no_byte_of_what_is_erased_is_in_a_file(tmp_path):
    """Neither words nor ids; whatever erased it, once it says that nothing is left."""
    place = tmp_path / "m.db"
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 12)
        talk = repo.conversation("u", ttl_s=3_600)
        await talk.append(
            [message(n, content=f"quagga {n}", id=f"okapi{n}") for n in range(60, 65)]
        )
        fact = await repo.add_memory("Zoë keeps an axolotl", tags=["zanzibar"])
        await repo.add_memory("Zoë keeps bees", tags=["home"])
        await collect(repo, "hoopoe", 4)
        await seal(memory)
        (tag,) = [
            n for n in await memory._store.graph("r").nodes(types=["tag"]) if "zanz" in n.text
        ]
        assert all(holding(place, word) for word in (b"quagga", b"axolotl", b"zanzibar", b"hoopoe"))
        await repo.delete_nodes([tag.id])
        assert not holding(place, b"zanzibar")
        assert not holding(place, tag.id.encode())
        for erase, *words in (
            (partial(repo.forget, memory_ids=[fact.id]), "axolotl", "zanzibar"),
            (partial(repo.forget, session_id="hoopoe"), "hoopoe"),
            (partial(repo.forget, message_ids=["okapi60"], thread_id="u"), "okapi60"),
            (talk.purge, "quagga", "okapi"),
        ):
            assert (await erase()).scrubbed
            assert not {word: found for word in words if (found := found_in(tmp_path, word))}
        # The log of what is gone has its id.
        assert not holding(place, fact.id.encode())
        assert sum(row[1] for row in segments_in(place)) >= 12


def found_in(folder: Path, word: str) -> list[str]:
    """The files that hold *word*."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return [file.name for file in files if word.encode() in file.read_bytes()]

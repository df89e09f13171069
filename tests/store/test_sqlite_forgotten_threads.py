"""What is forgotten of conversations is in no byte of the store's files."""

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from contracts.talk import (
    compaction,
    goal,
    outcome,
    pin,
    result,
    said,
    save_vectors,
    snapshot,
    surfaced,
)
from engines import rows_of
from world import NOON, Kit, unit_vector

from mnemo.log.transcript import TranscriptWriter
from mnemo.store import texts
from mnemo.store.sqlite import scrub
from mnemo.store.sqlite.dialect import merge_words
from mnemo.store.tx import Tx
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.derived import EvictionOutcome, Surfaced, Thread
from mnemo.values.erasure import ErasureReport, Selection
from mnemo.values.feed import FeedCursor
from mnemo.values.messages import ToolCall

THINGS = (
    *("text", "block", "argument", "tool", "call", "result", "metadata", "speaker", "actor"),
    *("excerpt", "objective", "summary", "level", "snapshot", "hit", "id"),
)


def word(thing: str, thread: str = "t") -> str:
    """A word that occurs nowhere else."""
    chance = random.Random(f"{thing} in {thread}")
    return "".join(chance.choice("bdfghjkmpqvwxz") for _ in range(14))


SPOKEN = "昨日は東京へ行きましたとさ"
"""In a script without blanks: every three characters of it are indexed."""


def talk(tx: TranscriptWriter, thread: str = "t") -> None:
    """Two minutes of talk with a word of its own in everything that is kept of it."""

    def its(thing: str) -> str:
        return word(thing, thread)

    tx.keep(Thread(id=thread, next_seq=6, boundary=2, next_goal=2))
    calls = [ToolCall(its("call"), its("tool"), {"deep": [its("argument")]})]
    blocks = [{"type": "text", "text": f"see the {its('block')}"}]
    tx.add(
        [
            said(
                0,
                f"the {its('text')} and {its('id')}",
                thread=thread,
                metadata={"m": its("metadata")},
            ),
            said(1, None, content=blocks, thread=thread, id=its("id"), actor=its("actor")),
            said(2, None, content=None, role="assistant", thread=thread, tool_calls=calls),
            result(3, its("call"), content=its("result"), thread=thread, name=its("speaker")),
            said(4, f"{SPOKEN} {thread}", thread=thread),
            said(5, "the end", thread=thread),
        ],
        search_tools=True,
    )
    save_vectors(tx, {(thread, seq): unit_vector(seq, 1, 2, 3) for seq in (0, 1, 4)})
    tx.put(
        compaction(0, 1, summary_text=f"about {its('summary')}", thread=thread, superseded_by="c"),
        compaction(0, 3, id="c", level=2, summary_text=its("level"), thread=thread),
        snapshot(0, 1, text=f"seen {its('snapshot')} 京都で見た", thread=thread),
        outcome(0, 1, kind="snapshot", snapshot_id="s0-1", thread=thread),
        goal(1, description=f"reach {its('objective')}", thread=thread),
        pin(0, excerpt=f"held {its('excerpt')}", thread=thread),
    )
    shown = {"session_id": thread, "text": its("hit")}
    place = surfaced(1, (thread, "m0"), thread="elsewhere")
    tx.put(replace(place, seq=random.Random(thread).randrange(10**6), hits=(shown,)))


def kept(tx: TranscriptWriter) -> None:
    """A thread that stays, of the same words but for those that are looked for."""
    tx.keep(Thread(id="elsewhere", next_seq=3))
    tx.add([said(seq, "the end of the kettle 東京", thread="elsewhere") for seq in range(3)])


def left_of(folder: Path, thread: str = "t") -> set[str]:
    """The things whose word is still in some file."""
    raw = b"".join(path.read_bytes().lower() for path in folder.iterdir())
    left = {thing for thing in THINGS if word(thing, thread).encode() in raw}
    return left | ({"triples"} if any(w.encode() in raw for w in ("ましたと", "都で見")) else set())


async def forgotten(kit: Kit, **selection: object) -> ErasureReport:
    """The report of an erasure."""
    return (await kit.store.overhaul("r").erase(Selection(**selection))).report


async def begun(kit: Kit, *threads: str) -> None:
    """Threads with words of their own, beside one that stays."""
    transcript = kit.store.transcript("r")
    await transcript.writing(kept)
    for thread in threads:
        await transcript.writing(lambda tx, thread=thread: talk(tx, thread))


async def test_a_purged_thread_leaves_no_byte(kit, path):
    """Every count is that of what was there; seqs go on; doing it again finds nothing."""
    await begun(kit, "t")
    assert left_of(path.parent) == {*THINGS, "triples"}
    report = await forgotten(kit, thread_id="t")
    assert report == ErasureReport(
        messages=6, compactions=2, snapshots=1, pins=1, goals=1, fulltext_rows=7, vectors=3
    )
    assert left_of(path.parent) == set()
    transcript = kit.store.transcript("r")
    thread = await transcript.reading(lambda tx: tx.thread("t"))
    assert thread == Thread(id="t", next_seq=6, epoch=1, epoch_start=6, boundary=6, next_goal=2)
    assert await transcript.reading(lambda tx: tx.messages("t")) == []
    ids = ["m0", word("id"), "m5", "m6"]
    erased = await transcript.reading(lambda tx: tx.erased_ids("t", ids))
    assert erased == {*ids} - {"m6"}
    assert await transcript.reading(lambda tx: tx.erased_ids("elsewhere", ids)) == frozenset()
    assert await transcript.reading(lambda tx: tx.all(Surfaced, "elsewhere")) == []
    assert len(await transcript.reading(lambda tx: tx.messages("elsewhere"))) == 3
    assert (await forgotten(kit, thread_id="t")).is_empty
    assert (await kit.store.check()).problems == ()
    await kit.store.aclose()
    assert left_of(path.parent) == set()


async def test_what_came_to_mind_goes_after_its_turn_expired(kit, path):
    """A purge of which the report counts nothing clears the log of it all the same."""
    transcript = kit.store.transcript("r")
    hits = ({"text": "of another: zwxqkvbnjh"},)
    await transcript.writing(lambda tx: tx.put(replace(surfaced(1, thread="t"), hits=hits)))
    report = await forgotten(kit, thread_id="t")
    assert (report.is_empty, report.scrubbed) == (True, True)
    assert b"zwxqkvbnjh" not in b"".join(p.read_bytes() for p in path.parent.iterdir())


async def test_what_was_said_before_a_time_leaves_no_byte(kit, path):
    """With summaries and snapshots of it; the outcome stays without its snapshot."""
    await begun(kit, "t")
    report = await forgotten(kit, before=NOON + timedelta(minutes=2))
    assert (report.messages, report.compactions, report.snapshots, report.pins) == (4, 2, 1, 1)
    stay = {"argument", "tool", "call", "result", "speaker", "objective", "triples"}
    assert left_of(path.parent) == stay
    transcript = kit.store.transcript("r")
    (verdict,) = await transcript.reading(lambda tx: tx.all(EvictionOutcome, "t"))
    assert verdict.snapshot_id is None
    found = await transcript.reading(
        lambda tx: [message.seq for thread in ("t", "elsewhere") for message in tx.messages(thread)]
    )
    assert found == [2, 3, 4, 5, 2]
    assert (await kit.store.check()).problems == ()


async def test_steps_of_a_thread_go_with_it(kit, path):
    """A step that was made from a message is forgotten with the thread, in its session too."""
    await begun(kit, "t")
    await kit.start()
    await kit.append("from talk: zwxqkvbnjh", thread_id="t", message_id="m0")
    await kit.append("of another thread", thread_id="T", message_id="m0")
    await kit.append("of none")
    erased = await kit.store.overhaul("r").erase(Selection(thread_id="t"))
    assert (erased.report.steps, erased.report.fulltext_rows, erased.session_ids) == (1, 8, ("s",))
    assert b"zwxqkvbnjh" not in b"".join(p.read_bytes() for p in path.parent.iterdir())
    left = rows_of(path, "SELECT thread, message FROM steps ORDER BY ordinal")
    assert left == [("T", "m0"), (None, None)]
    assert (await kit.store.check()).problems == ()


async def test_a_record_of_a_step_takes_along_where_it_was_shown(kit, path):
    """What came to mind in a thread holds the words of sessions, and goes with those."""
    await kit.start()
    step = await kit.append("the zwxqkvbnjh")
    shown = surfaced(1, ("s", f"{step.node_id}/observation"), thread="elsewhere")
    shown = replace(shown, hits=({"text": "the zwxqkvbnjh"},))
    transcript = kit.store.transcript("r")
    await transcript.writing(kept)
    await transcript.writing(lambda tx: tx.put(shown, surfaced(2, thread="elsewhere")))
    await forgotten(kit, session_id="s")
    assert b"zwxqkvbnjh" not in b"".join(p.read_bytes() for p in path.parent.iterdir())
    left = await transcript.reading(lambda tx: tx.all(Surfaced, "elsewhere"))
    assert left == [surfaced(2, thread="elsewhere")]


@pytest.mark.parametrize("then", ["closed", "forgotten", "opened"])
async def test_what_expired_leaves_no_byte_after_the_next_scrub(kit, make, path, then):
    """The rows go at once; the words of the index with the next scrub, whoever asks for it."""
    await begun(kit, "t")
    transcript = kit.store.transcript("r")
    rows = await transcript.writing(lambda tx: tx.erase("t", range(6)))
    assert (rows.messages, rows.fulltext_rows, rows.vectors, rows.goals) == (6, 7, 3, 0)
    assert (await kit.store.check()).problems == ()
    if then == "forgotten":
        assert (await forgotten(kit, session_id="nobody")).scrubbed
    elif then == "opened":
        await kit.store.engine._writer().aclose()  # type: ignore[attr-defined]
        again = make()
        await again.open()
        await again.aclose()
    else:
        await kit.store.aclose()
    assert left_of(path.parent) == {"objective"}


async def test_a_large_file_is_not_rewritten_for_what_expired(kit, path, monkeypatch):
    """Sweeps are frequent: index merged and log cut is what they get; a forget gets all."""
    rewritten: list[bool] = []
    monkeypatch.setattr(scrub, "REWRITTEN_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(scrub, "_rewrite", lambda connection: rewritten.append(True))
    await begun(kit, "t")
    transcript = kit.store.transcript("r")
    await transcript.writing(lambda tx: tx.erase("t", [0, 1]))
    assert (await forgotten(kit, session_id="nobody")).scrubbed
    assert not rewritten
    assert not {"text", "block", "summary", "snapshot"} & left_of(path.parent)


@pytest.mark.parametrize("then", ["swept", "closed"])
async def test_what_expired_leaves_the_index_of_a_large_file_once(kit, path, monkeypatch, then):
    """Of texts that are in the index already; then it is not merged again for it."""
    monkeypatch.setattr(texts, "_AT_ONCE", 1)
    monkeypatch.setattr(scrub, "REWRITTEN_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(scrub, "_rewrite", lambda connection: None)
    merged: list[bool] = []

    def merge(tx: Tx, **options: bool) -> None:
        merged.append(True)
        merge_words(tx, **options)

    monkeypatch.setattr(scrub, "merge_words", merge)
    await begun(kit, "t")
    await kit.store.transcript("r").writing(lambda tx: tx.erase("t", range(6)))
    if then == "swept":
        assert await kit.store.engine.scrub()
        assert left_of(path.parent) == {"objective"}
        assert await kit.store.engine.scrub()
    await kit.store.aclose()
    assert left_of(path.parent) == {"objective"}
    assert merged == [True]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_a_large_file_is_rewritten_for_messages_at_the_next_scrub(
    kit, path, seed, monkeypatch
):
    """Rows that were moved between pages left copies, which no rewritten file has."""
    monkeypatch.setattr(scrub, "REWRITTEN_AT_ONCE_BYTES", 0)
    chance = random.Random(seed)
    threads = [f"thread {number}" for number in range(12)]
    transcript = kit.store.transcript("r")

    def work(tx: TranscriptWriter, thread: str) -> None:
        talk(tx, thread)
        tx.keep(Thread(id=thread, next_seq=46))
        for seq in range(6, 46):
            padding = "walks " * chance.randint(1, 150)
            tx.add([said(seq, f"{word('text', thread)} {padding}", thread=thread)])
            long = word("snapshot", thread) * chance.randint(1, 60)
            tx.put(snapshot(0, 1, text=long, thread=thread))

    for thread in threads:
        await transcript.writing(lambda tx, thread=thread: work(tx, thread))
    for thread in threads[::2]:
        assert not (await forgotten(kit, thread_id=thread)).scrubbed
    assert await kit.store.engine.scrub(at_once=True)
    for thread in threads[::2]:
        assert left_of(path.parent, thread) <= {"triples"}
    for thread in threads[1::2]:
        assert left_of(path.parent, thread) == {*THINGS, "triples"}
    assert (await kit.store.check()).problems == ()


async def test_what_is_erased_during_a_scrub_is_left_to_the_next(kit, path, monkeypatch):
    """Its note is another one than that which the scrub began with, and stays."""

    def rewrite(tx: Tx) -> None:
        tx.run("VACUUM")
        tx.dialect.note_erased(tx)

    await begun(kit, "t")
    with monkeypatch.context() as patch:
        patch.setattr(scrub, "_rewrite", rewrite)
        assert (await forgotten(kit, thread_id="t")).scrubbed
    assert is_noted(path)
    assert await kit.store.engine.scrub()
    assert not is_noted(path)


def is_noted(path: Path) -> bool:
    """Whether the file says that a scrub is due."""
    return bool(rows_of(path, "SELECT 1 FROM meta WHERE name = 'scrub'"))


async def test_vectors_of_messages_do_not_survive_another_space(kit):
    """With the switch those are gone that none was staged for, and the old space is refused."""
    await begun(kit, "t")
    transcript = kit.store.transcript("r")
    await kit.store.transcript("twin").writing(talk)
    overhaul, larger = kit.store.overhaul("r"), EmbeddingSpace("larger", 8)
    await overhaul.begin_move(larger)
    await overhaul.switch(larger, FeedCursor())
    seqs, _ = await transcript.reading(lambda tx: tx.vectors("t"))
    assert seqs.tolist() == []
    vector = unit_vector(*range(1, 9))
    await transcript.writing(lambda tx: save_vectors(tx, {("t", 0): vector}, larger))
    seqs, vectors = await transcript.reading(lambda tx: tx.vectors("t"))
    assert (seqs.tolist(), vectors.shape) == ([0], (1, 8))
    seqs, _ = await kit.store.transcript("twin").reading(lambda tx: tx.vectors("t"))
    assert seqs.tolist() == [4, 1, 0]
    assert (await kit.store.check()).problems == ()

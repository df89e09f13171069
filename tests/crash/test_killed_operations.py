"""A process killed with SIGKILL in the middle of an operation leaves it undone or done."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from contracts.talk import compaction, goal, pin, said, snapshot
from crash.lives import opened
from engines import rows_of
from helpers import lines_of, repository
from world import store_at

from mnemo import Changeset, EmbeddingSpaceMismatch, Mnemo, NotFound, Semantic
from mnemo.erasure.erase import erase
from mnemo.log.transcript import TranscriptWriter
from mnemo.runtime.clock import SystemClock
from mnemo.testing import HashingEmbedder, ManualClock
from mnemo.values.derived import Thread
from mnemo.values.erasure import Selection

pytestmark = [pytest.mark.slow, pytest.mark.long]

OLD, NEW = HashingEmbedder(64), HashingEmbedder(96)
WORD = "zwxqkvbnjhgfdp"
COUNT = 300
"""Messages of a thread."""


def places(folder: Path, number: int) -> Iterator[Path]:
    """So many places for a store, each in a folder of its own."""
    for life in range(number):
        path = folder / str(life) / "m.db"
        path.parent.mkdir()
        yield path


def holds_the_word(path: Path) -> bool:
    """Whether any file in the store's folder holds it."""
    raw = b"".join(file.read_bytes() for file in path.parent.iterdir())
    return WORD.encode() in raw.lower()


# ── Forgetting a session ─────────────────────────────────────────────────────────────


async def two_sessions(path: Path) -> None:
    """A store with a session to be forgotten and one to be kept."""
    async with repository(path, "r", embedder=OLD) as repo:
        for name, word in (("s", WORD), ("t", "violin")):
            session = await repo.start_session(f"goal {word}", session_id=name)
            for number in range(12):
                await session.append(f"The {word} is number {number}.", f"Noted {word} {number}")
            await session.close_and_commit()
        await repo._parts.index.embed_waiting()  # type: ignore[attr-defined]


def steps_of_the_word(path: Path) -> int:
    """How many steps say it, read past the service."""
    with closing(sqlite3.connect(path)) as file:
        query = "SELECT count(*) FROM steps WHERE observation LIKE ?"
        (count,) = file.execute(query, (f"%{WORD}%",)).fetchone()
    return int(count)


@pytest.mark.long
async def test_a_kill_leaves_forgetting_undone_or_done(tmp_path, lives):
    """After the next open either all is there, or no row and no byte of it is."""
    chance = random.Random(5)
    for path in places(tmp_path, 8):
        await two_sessions(path)
        told = lives.killed("forget", when=opened, delay_s=chance.uniform(0, 0.06), path=str(path))
        async with Mnemo(path, embedder=OLD) as memory:
            repo = await memory.open_repo("r")
            assert (await memory.check()).problems == ()
            left = steps_of_the_word(path)
            assert left in ((0,) if ["done"] in told else (0, 12))
            assert bool(left) == holds_the_word(path)
            assert len(await repo.search("violin", limit=100)) == 24
            if left:
                assert (await repo.forget(session_id="s")).steps == 12
        assert not holds_the_word(path)


def note_of(path: Path) -> list[tuple[str]]:
    """What the file says is still to be scrubbed."""
    return rows_of(path, "SELECT value FROM meta WHERE name = 'scrub'")


async def _dies(*_: object, **__: object) -> bool:
    """In the place of a scrubbing that the process does not live to see."""
    return False


async def test_what_was_left_to_scrub_is_scrubbed_at_the_next_open(tmp_path, monkeypatch):
    """A process that dies between the transaction and the scrubbing leaves a note of it."""
    path = tmp_path / "m.db"
    await two_sessions(path)
    memory = Mnemo(path, embedder=OLD)
    await memory.open()
    repo = await memory.open_repo("r")
    store = memory._store
    await store.engine.writing(  # type: ignore[union-attr]
        partial(erase, repo_id="r", selection=Selection(session_id="s"))
    )
    assert steps_of_the_word(path) == 0
    assert holds_the_word(path)
    assert await repo.search(WORD) == []
    with monkeypatch.context() as patch:
        patch.setattr(store.engine._scrubber, "scrub", _dies)  # type: ignore[union-attr]
        await memory.aclose()
    assert len(note_of(path)) == 1
    async with Mnemo(path, embedder=OLD):
        assert note_of(path) == []
        assert not holds_the_word(path)


# ── Moving to another embedding space ────────────────────────────────────────────────


async def test_a_kill_leaves_the_old_space_or_the_new_one(tmp_path, lives):
    """One of the two opens; from the old one the move is made, and recall goes by vector."""
    chance, question = random.Random(6), "Which number is the violin?"
    for path in places(tmp_path, 6):
        await two_sessions(path)
        told = lives.killed("move", when=opened, delay_s=chance.uniform(0, 0.16), path=str(path))
        async with Mnemo(path, embedder=NEW) as memory:
            try:
                repo = await memory.open_repo("r")
            except EmbeddingSpaceMismatch:
                assert ["done"] not in told
                async with repository(path, "r", embedder=OLD) as old:
                    assert not (await old.recall(question)).trace.degraded
                await memory.reembed("r")
                repo = await memory.open_repo("r")
            assert (await memory.check()).problems == ()
            assert not (await repo.recall(question)).trace.degraded
            statistics = await repo.statistics()
            assert statistics.vectors == statistics.index.documents


# ── Forgetting a thread ──────────────────────────────────────────────────────────────


def talk(tx: TranscriptWriter, thread: str, word: str) -> None:
    """Messages with something derived from every tenth of them."""
    tx.keep(Thread(id=thread, next_seq=COUNT, next_goal=2))
    tx.add([said(seq, f"the {word} 東京{word}へ {seq}", thread=thread) for seq in range(COUNT)])
    tx.put(goal(1, description=word, thread=thread))
    for seq in range(0, COUNT, 10):
        tx.put(
            compaction(seq, seq + 9, summary_text=word, thread=thread),
            snapshot(seq, seq + 9, text=word, thread=thread),
            pin(seq, excerpt=word, thread=thread),
        )


async def two_threads(path: Path) -> None:
    """A store with a thread to be forgotten and one to be kept."""
    store = store_at(path, SystemClock())
    await store.open()
    for thread, word in (("t", WORD), ("u", "violin")):
        await store.transcript("r").writing(partial(talk, thread=thread, word=word))
    await store.aclose()


async def test_a_kill_leaves_the_purge_of_a_thread_undone_or_done(tmp_path, lives):
    """After the next open either all is there, or no row and no byte of it is."""
    chance = random.Random(7)
    for path in places(tmp_path, 8):
        await two_threads(path)
        told = lives.killed("purge", when=opened, delay_s=chance.uniform(0, 0.08), path=str(path))
        store = store_at(path, SystemClock())
        await store.open()
        report = await store.check()
        assert report.problems == ()
        left = report.counts["messages"] - COUNT
        assert left in ((0,) if ["done"] in told else (0, COUNT))
        counts = [report.counts[name] for name in ("goals", "pins", "snapshots", "compactions")]
        assert counts == ([2, 60, 60, 60] if left else [1, 30, 30, 30])
        assert bool(left) == holds_the_word(path)
        again = (await store.overhaul("r").erase(Selection(thread_id="t"))).report
        assert again.messages == left
        await store.aclose()
        assert WORD.encode() not in path.read_bytes().lower()


# ── Importing ────────────────────────────────────────────────────────────────────────


async def test_a_killed_import_leaves_the_store_as_it_was(tmp_path, lives):
    """Nothing is imported, nothing lies about, and the same import works afterwards."""
    store, file = tmp_path / "memory.db", tmp_path / "r.jsonl"
    facts = [Semantic(f"The pier number {number} is closed.") for number in range(1_200)]
    async with Mnemo(store, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        await repo.apply(Changeset(tuple(facts)))
        before = await lines_of(memory, "r")
    file.write_text("".join(before), encoding="ascii")
    lives.killed(
        "import_lines", when=lambda told: ["waiting"] in told, path=str(store), file=str(file)
    )
    async with Mnemo(store, embedder=HashingEmbedder()) as memory:
        with pytest.raises(NotFound):
            await lines_of(memory, "copy")
        assert await lines_of(memory, "r") == before
        with file.open(encoding="ascii") as lines:
            await memory.import_repo("copy", lines)
        assert await lines_of(memory, "copy") == before
        assert (await memory.check()).problems == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory.db", "r.jsonl"]


# ── Writing notes ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lines", [1, 6, 23])
async def test_a_killed_write_is_whole_or_not_there(tmp_path, lives, lines):
    """Note, history, journal and full text agree, and nothing acknowledged is lost."""
    path = tmp_path / "notes.db"
    told = lives.killed("write_notes", when=lambda told: len(told) >= lines, path=str(path))
    acknowledged: dict[str, int] = dict(told)
    store = store_at(path, ManualClock())
    await store.open()
    notes = store.notes("r")
    for row in await notes.reading(lambda tx: tx.rows()):
        number = row.version
        assert number >= acknowledged.get(row.topic, 0)
        assert row.description == f"text {number}"
        assert set(row.body.splitlines()) == {f"- this is text {number}"}
        kept = await notes.reading(lambda tx, topic=row.topic: tx.versions(topic))
        assert (kept[-1].version, kept[-1].body) == (number, row.body)
        found = await notes.reading(lambda tx, n=number: tx.matching([str(n)]))
        assert row.topic in found[str(number)]
    assert (await store.check()).problems == ()
    await store.aclose()

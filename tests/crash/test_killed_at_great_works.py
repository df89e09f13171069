"""A service killed with SIGKILL while it forgets or moves leaves that undone or done."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from crash.lives import Lives, opened

from mnemo import EmbeddingSpaceMismatch, Mnemo
from mnemo.store.erase import erase
from mnemo.testing import HashingEmbedder
from mnemo.values.erasure import Selection

OLD, NEW = HashingEmbedder(64), HashingEmbedder(96)
WORD = "zwxqkvbnjhgfdp"


async def made(path: Path) -> None:
    """A store with a session to be forgotten and one to be kept."""
    async with Mnemo(path, embedder=OLD) as memory:
        repo = await memory.open_repo("r")
        for name, word in (("s", WORD), ("t", "violin")):
            session = await repo.start_session(f"goal {word}", session_id=name)
            for number in range(12):
                await session.append(f"The {word} is number {number}.", f"Noted {word} {number}")
            await session.close_and_commit()
        await repo._parts.index.embed_waiting()  # type: ignore[attr-defined]


def bytes_of(path: Path) -> bytes:
    """Everything in the store's folder."""
    return b"".join(file.read_bytes() for file in path.parent.iterdir())


def steps_of_the_word(path: Path) -> int:
    """How many steps say it, read past the service."""
    with closing(sqlite3.connect(path)) as file:
        query = "SELECT count(*) FROM steps WHERE observation LIKE ?"
        (count,) = file.execute(query, (f"%{WORD}%",)).fetchone()
    return int(count)


@pytest.mark.slow
async def test_a_kill_leaves_forgetting_undone_or_done(tmp_path: Path, lives: Lives) -> None:
    """After the next open either all is there, or no row and no byte of it is."""
    chance, met = random.Random(5), Counter[str]()
    for life in range(8):
        path = tmp_path / str(life) / "m.db"
        path.parent.mkdir()
        await made(path)
        told = lives.killed("forget", when=opened, delay_s=chance.uniform(0, 0.06), path=str(path))
        through = ["done"] in told
        async with Mnemo(path, embedder=OLD) as memory:
            repo = await memory.open_repo("r")
            assert (await memory.check()).problems == ()
            left = steps_of_the_word(path)
            assert left in (0, 12)
            assert not (through and left)
            assert bool(left) == (WORD.encode() in bytes_of(path).lower())
            assert len(await repo.search("violin", limit=100)) == 24
            if left:
                assert (await repo.forget(session_id="s")).steps == 12
        assert WORD.encode() not in bytes_of(path).lower()
        met["done" if not left else "undone"] += 1
    assert met.total() == 8


def note_of(path: Path) -> list[tuple[str]]:
    """What the file says is still to be scrubbed."""
    with closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT value FROM meta WHERE name = 'scrub'").fetchall()


async def _dies(*_: object, **__: object) -> bool:
    """In the place of a scrubbing that the process does not live to see."""
    return False


@pytest.mark.slow
async def test_what_was_left_to_scrub_is_scrubbed_at_the_next_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies between the transaction and the scrubbing leaves a note of it."""
    path = tmp_path / "m.db"
    await made(path)
    memory = Mnemo(path, embedder=OLD)
    await memory.open()
    repo = await memory.open_repo("r")
    store = memory._store
    await store.engine.writing(  # type: ignore[union-attr]
        partial(erase, repo_id="r", selection=Selection(session_id="s"))
    )
    assert steps_of_the_word(path) == 0
    assert WORD.encode() in bytes_of(path).lower()
    assert await repo.search(WORD) == []
    with monkeypatch.context() as patch:
        patch.setattr(store.engine._scrubber, "scrub", _dies)  # type: ignore[union-attr]
        await memory.aclose()
    assert len(note_of(path)) == 1
    async with Mnemo(path, embedder=OLD):
        assert note_of(path) == []
        assert WORD.encode() not in bytes_of(path).lower()


@pytest.mark.slow
async def test_a_kill_leaves_the_old_space_or_the_new_one(tmp_path: Path, lives: Lives) -> None:
    """One of the two opens; from the old one the move is made, and recall goes by vector."""
    chance, met = random.Random(6), Counter[str]()
    for life in range(6):
        path = tmp_path / str(life) / "m.db"
        path.parent.mkdir()
        await made(path)
        told = lives.killed("move", when=opened, delay_s=chance.uniform(0, 0.16), path=str(path))
        through = ["done"] in told
        async with Mnemo(path, embedder=NEW) as memory:
            try:
                repo = await memory.open_repo("r")
                met["new"] += 1
            except EmbeddingSpaceMismatch:
                assert not through
                met["old"] += 1
                async with Mnemo(path, embedder=OLD) as other:
                    old = await other.open_repo("r")
                    assert not (await old.recall("Which number is the violin?")).trace.degraded
                await memory.reembed("r")
                repo = await memory.open_repo("r")
            assert (await memory.check()).problems == ()
            found = await repo.recall("Which number is the violin?")
            assert not found.trace.degraded
            statistics = await repo.statistics()
            assert statistics.vectors == statistics.index.documents
    assert met.total() == 6

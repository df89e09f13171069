"""A service killed with SIGKILL while it forgets a thread leaves that undone or done."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from crash.lives import Lives, opened

from mnemo.config import StoreConfig
from mnemo.protocols import TranscriptWriter
from mnemo.runtime.clock import SystemClock
from mnemo.store.sqlite import SqliteStore
from mnemo.testing.contracts.talk import compaction, goal, pin, said, snapshot
from mnemo.values.derived import Thread
from mnemo.values.erasure import Selection

WORD = "zwxqkvbnjhgfdp"
COUNT = 300


def store_at(path: Path) -> SqliteStore:
    """A store over the file."""
    return SqliteStore(path, config=StoreConfig(), clock=SystemClock(), lease_s=30)


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


async def made(path: Path) -> None:
    """A store with a thread to be forgotten and one to be kept."""
    store = store_at(path)
    await store.open()
    for thread, word in (("t", WORD), ("u", "violin")):
        await store.transcript("r").writing(
            lambda tx, thread=thread, word=word: talk(tx, thread, word)
        )
    await store.aclose()


@pytest.mark.slow
async def test_a_kill_leaves_the_purge_of_a_thread_undone_or_done(
    tmp_path: Path, lives: Lives
) -> None:
    """After the next open either all is there, or no row and no byte of it is."""
    chance, met = random.Random(7), Counter[str]()
    for life in range(8):
        path = tmp_path / str(life) / "m.db"
        path.parent.mkdir()
        await made(path)
        told = lives.killed("purge", when=opened, delay_s=chance.uniform(0, 0.08), path=str(path))
        through = ["done"] in told
        store = store_at(path)
        await store.open()
        report = await store.check()
        assert report.problems == ()
        left = report.counts["messages"] - COUNT
        assert left in (0, COUNT)
        assert not (through and left)
        counts = [report.counts[name] for name in ("goals", "pins", "snapshots", "compactions")]
        assert counts == ([2, 60, 60, 60] if left else [1, 30, 30, 30])
        raw = b"".join(file.read_bytes() for file in path.parent.iterdir())
        assert bool(left) == (WORD.encode() in raw.lower())
        again = (await store.overhaul("r").erase(Selection(thread_id="t"))).report
        assert again.messages == left
        await store.aclose()
        assert WORD.encode() not in path.read_bytes().lower()
        met["undone" if left else "done"] += 1
    assert met.total() == 8

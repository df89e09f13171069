"""
The write side under load: appends, and episodes from close to committed.

A caller that appends alone is set beside a bare writer: a thread that writes the same rows with
their full text into a store of the same schema, each in a savepoint and a transaction, and wakes
its caller. It looks nothing up, checks nothing and knows no sessions.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from queue import SimpleQueue
from statistics import median, quantiles
from threading import Thread
from time import perf_counter, thread_time
from typing import Literal

import anyio
from bench_kit import Figure, Sizes, Words, heartbeat, percentile

from mnemo import Config, Mnemo
from mnemo.config import StoreConfig
from mnemo.repository import Repository
from mnemo.session.session import Session

Durability = Literal["normal", "full"]
LEAST_PER_S: dict[tuple[str, int], float] = {
    ("normal", 1): 2_500,
    ("normal", 64): 8_000,
    ("full", 64): 6_000,
}
EVENT_LOOP_US = {64: 40.0}
EPISODE_STEPS = 50
ROUNDS = 5
ALTERNATIONS = 30
LEAST_OF_BARE = 0.48
WORDS = Words()
TEXTS = [(WORDS.sentence(8, 16), WORDS.sentence(4, 10)) for _ in range(2_000)]
Timed = list[float]


# ── The first time ───────────────────────────────────────────────────────────────────


async def first_use(sizes: Sizes, folder: Path) -> list[Figure]:
    """What a process pays once: modules and the embedder's weights are loaded."""
    async with heartbeat() as beats:
        began = perf_counter()
        await warm_up(folder)
        whole_s = perf_counter() - began
    name = "first repository, step, commit and recall"
    return [Figure(f"{name}: all", whole_s, "s"), *beats.figures(name)]


async def warm_up(folder: Path) -> None:
    """Have everything loaded that is loaded at its first use."""
    async with Mnemo(folder / "warm.db", embedder="static") as memory:
        repo = await memory.open_repo("warm")
        session = await repo.start_session("Warm up")
        await append_all([session], 3)
        await session.close_and_commit()
        await repo.recall("What is there?")


# ── Appends ──────────────────────────────────────────────────────────────────────────


async def appends_normal(sizes: Sizes, folder: Path) -> list[Figure]:
    """Durable appends with ``synchronous = normal``."""
    return await _appends("normal", sizes, folder)


async def appends_full(sizes: Sizes, folder: Path) -> list[Figure]:
    """Durable appends with ``synchronous = full``."""
    return await _appends("full", sizes, folder)


async def _appends(mode: Durability, sizes: Sizes, folder: Path) -> list[Figure]:
    await warm_up(folder)
    figures: list[Figure] = []
    for tasks in sizes.in_flight:
        count = sizes.appends_alone if tasks == 1 else sizes.appends
        config = Config(store=StoreConfig(synchronous=mode))
        async with Mnemo(folder / f"{mode}-{tasks}.db", config=config, embedder="static") as memory:
            repo = await memory.open_repo("bench")
            sessions = [await repo.start_session("Take everything down") for _ in range(tasks)]
            await append_all(sessions, 2)
            figures += await _timed_appends(mode, sessions, max(1, count // tasks // ROUNDS))
    return figures


async def _timed_appends(mode: Durability, sessions: Sequence[Session], each: int) -> list[Figure]:
    took: Timed = []
    per_s: Timed = []
    used_s = -thread_time()
    async with heartbeat() as beats:
        for _ in range(ROUNDS):
            began = perf_counter()
            took += await append_all(sessions, each)
            per_s.append(each * len(sessions) / (perf_counter() - began))
    used_us = 1e6 * (used_s + thread_time()) / len(took)
    most = EVENT_LOOP_US.get(len(sessions))
    name = f"append, {mode}, {len(sessions)} in flight"
    least = LEAST_PER_S.get((mode, len(sessions)))
    return [
        Figure(f"{name}: durable, median of {ROUNDS}", median(per_s), "/s", least=least),
        Figure(f"{name}: processor on the event loop, each", used_us, "µs", most=most),
        Figure(f"{name}: p50", 1_000 * percentile(took, 0.5), "ms"),
        Figure(f"{name}: p99", 1_000 * percentile(took, 0.99), "ms"),
        *beats.figures(name),
    ]


async def append_all(sessions: Sequence[Session], each: int) -> Timed:
    """Append to all at once, *each* steps one after another; how long every one took."""
    took: Timed = []

    async def fill(number: int, session: Session) -> None:
        for step in range(each):
            observation, action = TEXTS[(number * each + step) % len(TEXTS)]
            began = perf_counter()
            await session.append(observation, action)
            took.append(perf_counter() - began)

    async with anyio.create_task_group() as group:
        for number, session in enumerate(sessions):
            group.start_soon(fill, number, session)
    return took


async def appends_beside_bare(sizes: Sizes, folder: Path) -> list[Figure]:
    """Appends of one caller, in turns with those of a bare writer in the same process."""
    await warm_up(folder)
    each = max(1, sizes.appends_alone // ALTERNATIONS)
    async with Mnemo(folder / "ours.db", embedder=None) as memory:
        repo = await memory.open_repo("bench")
        session = await repo.start_session("Take everything down")
        await append_all([session], each)
        async with _bare_writer(folder / "bare.db") as write:
            turns = [
                (await _took(write, each), await _took(session.append, each))
                for _ in range(ALTERNATIONS)
            ]
    low, middle, high = quantiles([bare_s / ours_s for bare_s, ours_s in turns], n=4)
    bare, ours = zip(*turns, strict=True)
    name = f"append alone, as a share of a bare writer's rate, {ALTERNATIONS} turns"
    return [
        # Other work on the machine makes turns slower, never faster.
        Figure(f"{name}: best of each", min(bare) / min(ours), "×", least=LEAST_OF_BARE),
        Figure(f"{name}: median", middle, "×"),
        Figure(f"{name}: lower quartile", low, "×"),
        Figure(f"{name}: upper quartile", high, "×"),
    ]


async def _took(append: Callable[[str, str], Awaitable[object]], count: int) -> float:
    began = perf_counter()
    for observation, action in TEXTS[:count]:
        await append(observation, action)
    return perf_counter() - began


@asynccontextmanager
async def _bare_writer(path: Path) -> AsyncIterator[Callable[[str, str], Awaitable[object]]]:
    async with Mnemo(path, embedder=None) as memory:
        session = await (await memory.open_repo("bench")).start_session("Take everything down")
        await session.append("first", "")
    loop = asyncio.get_running_loop()
    queue: SimpleQueue[tuple[str, str, asyncio.Future[None]] | None] = SimpleQueue()
    thread = Thread(target=_write_bare, args=(path, queue, loop), daemon=True)
    thread.start()

    async def write(observation: str, action: str) -> None:
        written = loop.create_future()
        queue.put((observation, action, written))
        await written

    try:
        yield write
    finally:
        queue.put(None)
        await anyio.to_thread.run_sync(thread.join)


def _write_bare(
    path: Path,
    queue: SimpleQueue[tuple[str, str, asyncio.Future[None]] | None],
    loop: asyncio.AbstractEventLoop,
) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous = NORMAL", "secure_delete = ON", "wal_autocheckpoint = 4000"):
        connection.execute(f"PRAGMA {pragma}")
    found = connection.execute("SELECT * FROM steps")
    columns = [column for column, *_ in found.description]
    row = dict(zip(columns, found.fetchone(), strict=True))
    insert = f"INSERT INTO steps VALUES ({', '.join(f':{column}' for column in columns)})"
    texts = "INSERT INTO words_1 (rowid, text) VALUES (?, ?), (?, ?)"
    while (work := queue.get()) is not None:
        row["observation"], row["action"], written = work
        number = row["ordinal"] = row["ordinal"] + 1
        row["idx"], row["node_id"] = number, f"bare-{number}"
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("SAVEPOINT step")
        connection.execute(insert, row)
        connection.execute(texts, (4 * number, work[0], 4 * number + 1, work[1]))
        connection.execute("RELEASE step")
        connection.execute("COMMIT")
        loop.call_soon_threadsafe(written.set_result, None)
    connection.close()


# ── Episodes ─────────────────────────────────────────────────────────────────────────


async def episodes(sizes: Sizes, folder: Path) -> list[Figure]:
    """From close to committed: one episode alone, then many at once."""
    await warm_up(folder)
    async with Mnemo(folder / "episodes.db", embedder="static") as memory:
        repo = await memory.open_repo("bench")
        figures = await _one_by_one(repo, sizes.episodes)
    async with Mnemo(folder / "drain.db", embedder="static") as memory:
        repo = await memory.open_repo("bench")
        return figures + await _all_at_once(repo, sizes)


async def _one_by_one(repo: Repository, count: int) -> list[Figure]:
    took: Timed = []
    async with heartbeat() as beats:
        for _ in range(count + 1):
            session = await repo.start_session("Help plan a journey")
            await append_all([session], EPISODE_STEPS)
            began = perf_counter()
            await session.close_and_commit()
            took.append(perf_counter() - began)
            await session.aclose()
    name = f"episode of {EPISODE_STEPS} steps"
    return [
        Figure(f"{name}: close to committed", 1_000 * median(took[1:]), "ms"),
        *beats.figures(name),
    ]


async def _all_at_once(repo: Repository, sizes: Sizes) -> list[Figure]:
    sessions = [await repo.start_session("Help plan a journey") for _ in range(sizes.sessions)]
    name = f"{sizes.sessions} × {sizes.steps_each} steps"
    figures: list[Figure] = []
    for what, work in (
        ("appending", lambda: append_all(sessions, sizes.steps_each)),
        ("annotated and embedded", lambda: _drained(repo)),
        ("extracted and committed", lambda: _commit_all(sessions)),
    ):
        async with heartbeat() as beats:
            began = perf_counter()
            await work()
            figures.append(Figure(f"{name}, {what}: all", perf_counter() - began, "s"))
        figures += beats.figures(f"{name}, {what}")
    return figures


async def _drained(repo: Repository) -> None:
    while True:
        levels = await repo.statistics()
        if not levels.append_backlog and levels.vectors >= 2 * levels.steps:
            return
        await anyio.sleep(0.05)


async def _commit_all(sessions: Sequence[Session]) -> None:
    async with anyio.create_task_group() as group:
        for session in sessions:
            group.start_soon(session.close_and_commit)

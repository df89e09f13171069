"""The write side under load: appends, and episodes from close to committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
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

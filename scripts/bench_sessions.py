"""
Sessions: ``MnemoSession`` beside the OpenAI Agents SDK's ``SQLiteSession``, both at ``full``.

Every caller adds one item after the other to a session of its own, all on one file;
``SQLiteSession`` offers no other ``synchronous``. The two take turns, the median is shown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio
from agents import SQLiteSession
from bench_kit import Figure, Heartbeat, Words, heartbeat

from mnemo import Config, Mnemo
from mnemo.adapters.openai_agents import MnemoSession
from mnemo.runtime import settle_collector
from mnemo.testing import HashingEmbedder

IN_FLIGHT, ROUNDS = 64, 3
FASTER = 3.0

Add = Callable[[int, list[Any]], Awaitable[None]]
"""Adds items to the session of a number."""


@asynccontextmanager
async def mnemo_sessions(folder: Path) -> AsyncIterator[Add]:
    """Ours: threads of one repository."""
    config = Config(store={"synchronous": "full"})
    async with Mnemo(folder / "mnemo.db", config=config, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo()
        sessions = [MnemoSession(f"thread {n}", repo) for n in range(IN_FLIGHT)]
        yield lambda number, items: sessions[number].add_items(items)
        await repo.settle()


@asynccontextmanager
async def sqlite_sessions(folder: Path) -> AsyncIterator[Add]:
    """The SDK's."""
    sessions = [SQLiteSession(f"thread {n}", folder / "sdk.db") for n in range(IN_FLIGHT)]
    try:
        yield lambda number, items: sessions[number].add_items(items)
    finally:
        for session in sessions:
            session.close()


async def adds_per_s(add: Add, count: int, words: Words) -> tuple[float, Heartbeat]:
    """How many items per second all callers store together, and the loop's lag."""
    items = iter([{"role": "user", "content": words.sentence()} for _ in range(count)])

    async def caller(number: int) -> None:
        for item in items:
            await add(number, [item])

    async with heartbeat() as beats:
        began = perf_counter()
        async with anyio.create_task_group() as group:
            for number in range(IN_FLIGHT):
                group.start_soon(caller, number)
        taken = perf_counter() - began
    return count / taken, beats


async def measured(folder: Path, *, tiny: bool) -> list[Figure]:
    """Adds per second of both, how many times as many, and the lag while ours add."""
    adds = 64 if tiny else 3_200
    words, ours, theirs, late = Words(), list[float](), list[float](), Heartbeat()
    async with AsyncExitStack() as stack:
        mnemo_add = await stack.enter_async_context(mnemo_sessions(folder))
        sqlite_add = await stack.enter_async_context(sqlite_sessions(folder))
        settle_collector()
        for add in (mnemo_add, sqlite_add):
            await adds_per_s(add, IN_FLIGHT, words)
        for _ in range(1 if tiny else ROUNDS):
            speed, beats = await adds_per_s(mnemo_add, adds, words)
            ours.append(speed)
            late.late_ms += beats.late_ms
            late.collecting_ms = max(late.collecting_ms, beats.collecting_ms)
            speed, _ = await adds_per_s(sqlite_add, adds // 2, words)
            theirs.append(speed)
    name = f"sessions, {IN_FLIGHT} in flight"
    times = median(ours) / median(theirs)
    return [
        Figure(f"{name}: adds to MnemoSession", median(ours), "/s"),
        Figure(f"{name}: adds to SQLiteSession", median(theirs), "/s"),
        Figure(f"{name}: times as many", times, "x", least=FASTER),
        *late.figures(f"{name}, MnemoSession"),
    ]

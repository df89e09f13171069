"""
Checkpoints: ``MnemoSaver`` beside ``AsyncSqliteSaver`` at the same ``synchronous``.

A step is what a graph does in one: the writes of a task, then a checkpoint whose history of
messages has grown by one while an attached file of 20 KB stayed as it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import aiosqlite
import anyio
from bench_kit import Figure, Words, heartbeat
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from mnemo import Config, Mnemo
from mnemo.adapters.langgraph_checkpoints import MnemoSaver
from mnemo.testing import HashingEmbedder

Opened = Callable[[Path, str], AbstractAsyncContextManager[Any]]
FILE_BYTES = 20_000


@asynccontextmanager
async def mnemo_saver(path: Path, mode: str) -> AsyncIterator[MnemoSaver]:
    """Ours."""
    config = Config(store={"synchronous": mode})
    async with Mnemo(path, config=config, embedder=HashingEmbedder()) as memory:
        yield MnemoSaver(await memory.open_repo())


@asynccontextmanager
async def sqlite_saver(path: Path, mode: str) -> AsyncIterator[AsyncSqliteSaver]:
    """LangGraph's."""
    async with aiosqlite.connect(path) as connection:
        await connection.execute(f"PRAGMA synchronous = {mode}")
        yield AsyncSqliteSaver(connection)


SAVERS: dict[str, Opened] = {"MnemoSaver": mnemo_saver, "AsyncSqliteSaver": sqlite_saver}


async def grown(saver: Any, thread: str, said: Sequence[str]) -> None:
    """A thread of a step for each sentence."""
    values: dict[str, Any] = {"messages": [], "file": "x" * FILE_BYTES, "turn": 0}
    versions: dict[str, Any] = dict.fromkeys(values, saver.get_next_version(None, None))
    news = dict(versions)
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    for step, sentence in enumerate(said):
        made = empty_checkpoint() | {"channel_values": dict(values), "channel_versions": versions}
        config = await saver.aput(config, made, {"source": "loop", "step": step}, news)
        message = {"role": "user", "content": sentence}
        await saver.aput_writes(config, [("messages", [message])], f"task {step}", "~pull")
        values = {**values, "messages": [*values["messages"], message], "turn": step}
        news = {name: saver.get_next_version(versions[name], None) for name in ("messages", "turn")}
        versions = versions | news


async def rates(path: Path, opened: Opened, mode: str, name: str, sizes: list[int]) -> list[Figure]:
    """Steps per second alone and of many threads at once, the loop's lag, and the size."""
    alone, threads, each = sizes
    words = Words()
    said = [words.sentence() for _ in range(max(alone, each))]
    async with opened(path, mode) as saver:
        began = perf_counter()
        await grown(saver, "alone", said[:alone])
        figures = [Figure(f"{name}, {mode}: steps, one thread", _rate(alone, began), "/s")]
        async with heartbeat() as beats:
            began = perf_counter()
            async with anyio.create_task_group() as group:
                for number in range(threads):
                    group.start_soon(partial(grown, saver, f"thread {number}", said[:each]))
            rate = _rate(threads * each, began)
        figures.append(Figure(f"{name}, {mode}: steps, {threads} threads", rate, "/s"))
        began = perf_counter()
        async for _ in saver.alist({"configurable": {"thread_id": "alone"}}, limit=20):
            pass
        reading = 1_000 * (perf_counter() - began)
    figures.append(Figure(f"{name}, {mode}: list 20", reading, "ms"))
    written = sum(file.stat().st_size for file in path.parent.iterdir())
    figures.append(Figure(f"{name}, {mode}: size", written / 2**20, "MiB"))
    lag = beats.figures(f"{name}, {mode}")
    return figures + (lag if name == "MnemoSaver" else [_unset(figure) for figure in lag])


def _rate(steps: int, began: float) -> float:
    return steps / (perf_counter() - began)


def _unset(figure: Figure) -> Figure:
    """The figure of another library, which has no target."""
    return Figure(figure.name, figure.value, figure.unit)


async def measured(folder: Path, *, tiny: bool) -> list[Figure]:
    """All figures of this section."""
    sizes = [3, 2, 2] if tiny else [200, 32, 30]
    found = []
    for mode in ("normal", "full"):
        for name, opened in SAVERS.items():
            place = folder / f"{name}-{mode}"
            place.mkdir()
            found += await rates(place / "checkpoints.db", opened, mode, name, sizes)
    return found

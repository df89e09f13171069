"""
The framework adapters beside what the frameworks bring themselves, at the same durability.

Checkpoints: a step is what a graph does in one: the writes of a task, then a checkpoint whose
history of messages has grown by one while an attached file of 20 KB stayed as it was. Items: puts
and searches with one embedder. Sessions: every caller adds one item after the other to a session
of its own, all on one file. Items and sessions take turns, the median is shown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import bench_kit as kit
from bench_kit import Figure, Figures, Heartbeat, Row, Words, at_once, beside, heartbeat, timed

from mnemo import Config, Mnemo, Repository
from mnemo.models.local import WordLlamaEmbedder
from mnemo.protocols import Embedder
from mnemo.runtime import settle_collector
from mnemo.testing import HashingEmbedder

FILE_BYTES, IN_FLIGHT, ROUNDS = 20_000, 64, 3
ITEMS_FASTER, SEARCH_SHARE, SESSIONS_FASTER = 1.5, 0.3, 3.0
Add = Callable[[int, Any], Awaitable[object]]
"""Adds something for the caller of a number."""


@asynccontextmanager
async def ours(
    folder: Path, mode: Any = "full", embedder: Embedder | None = None
) -> AsyncIterator[Repository]:
    """A repository in a file."""
    config, embedder = Config(store={"synchronous": mode}), embedder or HashingEmbedder()
    async with Mnemo(folder / "mnemo.db", config=config, embedder=embedder) as memory:
        yield await memory.open_repo()


async def checkpoints(folder: Path, *, mode: str, alone: int, threads: int, each: int) -> Figures:
    """``MnemoSaver`` and ``AsyncSqliteSaver``: steps, alone and of many threads, and the size."""
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from mnemo.adapters.langgraph_checkpoints import MnemoSaver

    figures, words = list[Figure](), Words()
    said = [words.sentence() for _ in range(max(alone, each))]
    for name in ("MnemoSaver", "AsyncSqliteSaver"):
        place = folder / name
        place.mkdir()
        async with AsyncExitStack() as stack:
            if name == "MnemoSaver":
                saver: Any = MnemoSaver(await stack.enter_async_context(ours(place, mode)))
            else:
                connect = aiosqlite.connect(place / "checkpoints.db")
                connection = await stack.enter_async_context(connect)
                await connection.execute(f"PRAGMA synchronous = {mode}")
                saver = AsyncSqliteSaver(connection)
            one_s = await at_once(_grow, [saver], ["alone"], [said[:alone]])
            async with heartbeat() as beats:
                names = [f"thread {number}" for number in range(threads)]
                many_s = await at_once(_grow, [saver] * threads, names, [said[:each]] * threads)
            began = perf_counter()
            async for _ in saver.alist({"configurable": {"thread_id": "alone"}}, limit=20):
                pass
            reading_ms = 1_000 * (perf_counter() - began)
        written = sum(file.stat().st_size for file in place.iterdir())
        title = f"{name}, {mode}"
        figures += [
            Figure(f"{title}: steps, one thread", alone / one_s, "/s"),
            Figure(f"{title}: steps, {threads} threads", threads * each / many_s, "/s"),
            Figure(f"{title}: list 20", reading_ms, "ms"),
            Figure(f"{title}: size", written / 2**20, "MiB"),
            *(beats.figures(title) if name == "MnemoSaver" else beats.figures(title, None, None)),
        ]
    return figures


async def _grow(saver: Any, thread: str, said: Sequence[str]) -> None:
    """A thread of a step for each sentence."""
    from langgraph.checkpoint.base import empty_checkpoint

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


async def in_turns(
    title: str, what: str, adders: dict[str, Add], values: Callable[[], Sequence[Any]], least: float
) -> Figures:
    """Rates of adding *values* with each of *adders*, the lag while the first adds."""
    late, rates = Heartbeat(), dict[str, list[float]]()
    for turn in range(ROUNDS + 1):
        for name, add in adders.items():
            waiting = iter(some := values())

            async def caller(number: int, add: Add = add, waiting: Any = waiting) -> None:
                for value in waiting:
                    await add(number, value)

            async with heartbeat() as beats:
                took = await at_once(caller, range(IN_FLIGHT))
            if turn:  # the first warms up
                rates.setdefault(f"{what} to {name}", []).append(len(some) / took)
            if turn and name == next(iter(adders)):
                late.late_ms += beats.late_ms
                late.collecting_ms = max(late.collecting_ms, beats.collecting_ms)
    title = f"{title}, {IN_FLIGHT} in flight"
    lag = late.figures(f"{title}, {next(iter(adders))}")
    return [*beside(title, rates, "/s", "times as many", least=least), *lag]


async def sessions(folder: Path, *, adds: int) -> Figures:
    """``MnemoSession`` beside the OpenAI Agents SDK's ``SQLiteSession``, both at ``full``."""
    from agents import SQLiteSession

    from mnemo.adapters.openai_agents import MnemoSession

    words, names = Words(), [f"thread {number}" for number in range(IN_FLIGHT)]
    async with ours(folder) as repo:
        mine = [MnemoSession(name, repo) for name in names]
        others = [SQLiteSession(name, folder / "sdk.db") for name in names]
        settle_collector()
        figures = await in_turns(
            "sessions",
            "adds",
            {
                "MnemoSession": lambda number, item: mine[number].add_items([item]),
                "SQLiteSession": lambda number, item: others[number].add_items([item]),
            },
            lambda: [{"role": "user", "content": words.sentence()} for _ in range(adds)],
            SESSIONS_FASTER,
        )
        await repo.settle()
    for session in others:
        session.close()
    return figures


async def items(folder: Path, *, puts: int, count: int, queries: int) -> Figures:
    """``MnemoStore`` beside ``AsyncSqliteStore`` (puts) and ``InMemoryStore`` (searches)."""
    from langgraph.store.base import PutOp
    from langgraph.store.memory import InMemoryStore
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    from mnemo.adapters.langgraph import MnemoStore

    words, embedder = Words(), WordLlamaEmbedder()

    async def put(store: Any, number: int, text: str) -> None:
        await store.aput(("bench", str(number)), text, {"text": text}, index=False)

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        rows: list[list[float]] = (await embedder.embed(texts)).tolist()
        return rows

    async with ours(folder, "full", embedder) as repo:
        mine = MnemoStore(repo, index={"fields": ["text"]})
        async with AsyncSqliteStore.from_conn_string(str(folder / "langgraph.db")) as other:
            await other.setup()
            settle_collector()
            figures = await in_turns(
                "items",
                "puts",
                {"MnemoStore": partial(put, mine), "AsyncSqliteStore": partial(put, other)},
                lambda: [words.sentence() for _ in range(puts)],
                ITEMS_FASTER,
            )
        texts = [words.sentence() for _ in range(count)]
        asked = [words.question(texts[n * count // queries]) for n in range(queries)]
        index = {"dims": embedder.space.dimensions, "embed": embed, "fields": ["text"]}
        name, p95, lags = f"search of {count:,} items", dict[str, list[float]](), Figures()
        # Ours first: the other's lists of floats would be collected during our searches.
        for who, store in (("MnemoStore", mine), ("InMemoryStore", InMemoryStore(index=index))):
            await store.abatch(
                [PutOp(("texts",), f"{n}", {"text": text}) for n, text in enumerate(texts)]
            )
            calls = [partial(store.asearch, ("texts",), query=q, limit=10) for q in asked]
            await timed(calls[:3])
            async with heartbeat() as beats:
                p95[f"{who} p95"] = [kit.percentile(await timed(calls), 0.95)]
            lags = lags or beats.figures(f"{name}, {who}")
    return [*figures, *beside(name, p95, "ms", "share of its time", most=SEARCH_SHARE), *lags]


ROWS = {
    "adapters-checkpoints": Row(
        checkpoints, mode=["normal", "full"], alone=(200, 3), threads=(32, 2), each=(30, 2)
    ),
    "adapters-items": Row(items, puts=(8_000, 128), count=(10_000, 200), queries=(100, 5)),
    "adapters-sessions": Row(sessions, adds=(3_200, 64)),
}

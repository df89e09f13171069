"""Measure ``MnemoStore`` beside LangGraph's ``AsyncSqliteStore`` and ``InMemoryStore``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio
from bench_kit import Figure, Heartbeat, Words, heartbeat, percentile
from langgraph.store.base import BaseStore, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from mnemo import Config, Mnemo
from mnemo.adapters.langgraph import MnemoStore
from mnemo.models.wordllama import WordLlamaEmbedder
from mnemo.runtime import settle_collector

IN_FLIGHT, ROUNDS = 64, 3
FASTER, SLOWEST = 1.5, 0.3


async def measured(folder: Path, *, tiny: bool) -> list[Figure]:
    """
    Puts of both stores on disk in turns, each durable by ``synchronous = FULL``; searches of
    both that follow, with one embedder.
    """
    puts, items, queries = (128, 200, 5) if tiny else (8_000, 10_000, 100)
    embedder = WordLlamaEmbedder()
    config = Config(store={"synchronous": "full"})
    async with Mnemo(folder / "mnemo.db", config=config, embedder=embedder) as memory:
        ours = MnemoStore(await memory.open_repo("bench"), index={"fields": ["text"]})
        async with AsyncSqliteStore.from_conn_string(str(folder / "langgraph.db")) as theirs:
            await theirs.setup()
            settle_collector()
            figures = await _puts(ours, theirs, puts)
        return figures + await _searches(ours, embedder, items, queries)


async def _puts(ours: BaseStore, theirs: BaseStore, count: int) -> list[Figure]:
    words, beats = Words(), Heartbeat()
    speeds: tuple[list[float], list[float]] = ([], [])
    for turn in range(ROUNDS):
        for store, found in zip((ours, theirs), speeds, strict=True):
            late = await _put_all(store, words, count, turn, found)
            if store is ours:
                beats.late_ms += late.late_ms
                beats.collecting_ms = max(beats.collecting_ms, late.collecting_ms)
    name = f"items, {IN_FLIGHT} in flight"
    mine, other = map(median, speeds)
    return [
        Figure(f"{name}: puts to MnemoStore", mine, "/s"),
        Figure(f"{name}: puts to AsyncSqliteStore", other, "/s"),
        Figure(f"{name}: times as many", mine / other, "x", least=FASTER),
        *beats.figures(f"{name}, MnemoStore"),
    ]


async def _put_all(
    store: BaseStore, words: Words, count: int, turn: int, speeds: list[float]
) -> Heartbeat:
    values = iter([{"text": words.sentence(), "n": n} for n in range(count)])

    async def caller(number: int) -> None:
        for value in values:
            await store.aput(("bench", str(number)), f"{turn}-{value['n']}", value, index=False)

    async with heartbeat() as beats:
        began = perf_counter()
        async with anyio.create_task_group() as group:
            for number in range(IN_FLIGHT):
                group.start_soon(caller, number)
        speeds.append(count / (perf_counter() - began))
    return beats


async def _searches(
    ours: BaseStore, embedder: WordLlamaEmbedder, count: int, queries: int
) -> list[Figure]:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        rows: list[list[float]] = (await embedder.embed(texts)).tolist()
        return rows

    dims = embedder.space.dimensions
    theirs = InMemoryStore(index={"dims": dims, "embed": embed, "fields": ["text"]})
    words = Words()
    texts = [words.sentence() for _ in range(count)]
    puts = [PutOp(("texts",), f"{n}", {"text": text}) for n, text in enumerate(texts)]
    asked = [words.question(texts[n * count // queries]) for n in range(queries)]
    await ours.abatch(puts)
    await _times(ours, asked[:3])
    async with heartbeat() as beats:
        mine = await _times(ours, asked)
    # Behind ours: its lists of floats would be collected during our searches.
    await theirs.abatch(puts)
    await _times(theirs, asked[:3])
    other = await _times(theirs, asked)
    name = f"search of {count:,} items"
    p95 = [percentile(times, 0.95) for times in (mine, other)]
    return [
        Figure(f"{name}: MnemoStore p95", p95[0], "ms"),
        Figure(f"{name}: InMemoryStore p95", p95[1], "ms"),
        Figure(f"{name}: share of its time", p95[0] / p95[1], "x", most=SLOWEST),
        *beats.figures(f"{name}, MnemoStore"),
    ]


async def _times(store: BaseStore, asked: Sequence[str]) -> list[float]:
    """Milliseconds of each search."""
    times = []
    for query in asked:
        began = perf_counter()
        await store.asearch(("texts",), query=query, limit=10)
        times.append(1_000 * (perf_counter() - began))
    return times

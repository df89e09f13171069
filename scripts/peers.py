"""
One memory, driven through every phase: ``peers.py NAME WORK`` prints a row of ``bench_peers``.

It needs Python, NumPy, wordllama and the peer alone, because it runs in the peer's environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

BEAT_S, IN_FLIGHT, DIMENSIONS, TOP = 0.005, 64, 256, 10
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
GROUP = "bench"
HOME = tempfile.TemporaryDirectory(prefix="mem0-")
Told = dict[str, Any]


@cache
def _model() -> tuple[Any, Any]:
    # wordllama's own loader asks the network for a file that its package does not have.
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    spec = find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("install wordllama: it is the embedder of every peer")
    folder = Path(spec.submodule_search_locations[0])
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return load_file(str(folder / WEIGHTS))["embedding.weight"].astype("float32"), tokenizer


def embed(texts: Sequence[str]) -> list[list[float]]:
    """The unit vectors of *texts*, as mnemo's ``embedder="static"`` makes them."""
    table, tokenizer = _model()
    rows = []
    for text in texts:
        row = table[tokenizer.encode(text, add_special_tokens=False).ids].sum(axis=0)
        rows.append((row / (float((row @ row) ** 0.5) or 1.0)).tolist())
    return rows


INDEX = {"dims": DIMENSIONS, "embed": embed, "fields": ["text"]}


# ── The peers ────────────────────────────────────────────────────────────────────────


class Cannot(Exception):
    """The peer has no such call."""


async def _cannot(*given: object) -> Any:
    raise Cannot


async def _nothing() -> None:
    """Most can find at once what was added."""


@dataclass
class Peer:
    """
    One memory that is open in a folder of its own.

    Attributes:
        durability: What an acknowledged add survives, e.g. ``synchronous = FULL``.
        add: Stores a text under an id; returns when the memory says that it is stored.
        count: How many texts are stored.
        search: The ids of the first ten that are found, best first.
        settle: Returns when everything added can be found.
        add_turns: Stores the turns of a dialogue; else each is one text with time and speaker.
    """

    durability: str
    add: Callable[[str, str], Awaitable[Any]]
    count: Callable[[], Awaitable[int]]
    search: Callable[[str], Awaitable[list[str]]] = _cannot
    settle: Callable[[], Awaitable[Any]] = _nothing
    add_turns: Callable[[Sequence[dict[str, str]]], Awaitable[Any]] | None = None


class Kind(NamedTuple):
    """How one is opened, what a program imports to use it, and whose versions are told."""

    opened: Callable[[Path], AbstractAsyncContextManager[Peer]]
    module: str
    packages: Sequence[str]


PEERS: dict[str, Kind] = {}


def peer(name: str, module: str, *packages: str) -> Callable[[Any], Any]:
    """Enter what opens a memory with nothing in it."""

    def enter(opened: Any) -> Any:
        PEERS[name] = Kind(asynccontextmanager(opened), module, packages)
        return opened

    return enter


@peer("mnemo", "mnemo.service", "mnemo-sessions")
async def mnemo_repository(folder: Path) -> AsyncIterator[Peer]:
    """``remember`` and ``recall`` of one repository; the turns of a dialogue are steps."""
    from mnemo import Config, Mnemo

    async def search(query: str) -> list[str]:
        found = await repo.recall(query, k=TOP, reason=False)
        keys = (source.key for source in found.sources)
        return [key for key in keys if key is not None][:TOP]

    async def count() -> int:
        return int((await repo.statistics()).messages)

    async def add_turns(turns: Sequence[dict[str, str]]) -> None:
        for number in dict.fromkeys(turn["session"] for turn in turns):
            session = await repo.start_session(f"Talk {number}")
            for turn in (turn for turn in turns if turn["session"] == number):
                at = datetime.fromisoformat(turn["at"])
                await session.append(turn["text"], "", at=at, actor=turn["speaker"], key=turn["id"])
            await session.close_and_commit()
            await session.aclose()

    config = Config(store={"synchronous": "full"})
    async with Mnemo(folder / "mnemo.db", config=config, embedder="static") as memory:
        repo = await memory.open_repo(GROUP)
        yield Peer(
            "synchronous = FULL",
            lambda id, text: repo.remember(text, key=id),
            count,
            search,
            repo.settle,
            add_turns,
        )


def _langgraph(store: Any, durability: str, searches: bool) -> Peer:
    """One namespace of a store."""

    async def count() -> int:
        return len(await store.asearch((GROUP,), limit=1_000_000))

    async def search(query: str) -> list[str]:
        return [item.key for item in await store.asearch((GROUP,), query=query, limit=TOP)]

    def add(id: str, text: str) -> Awaitable[Any]:
        return store.aput((GROUP,), id, {"text": text})  # type: ignore[no-any-return]

    return Peer(durability, add, count, search if searches else _cannot)


@peer("langgraph-sqlite", "langgraph.store.sqlite.aio", "langgraph", "langgraph-checkpoint-sqlite")
async def langgraph_sqlite(folder: Path) -> AsyncIterator[Peer]:
    """
    ``AsyncSqliteStore`` in a file, as its own ``from_conn_string`` opens it.

    Its index is an extension of SQLite, which a Python may be built not to load: then the row has
    adds without an index, and no searches.
    """
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    index = INDEX if hasattr(sqlite3.Connection, "enable_load_extension") else None
    path = str(folder / "langgraph.db")
    async with AsyncSqliteStore.from_conn_string(path, index=index) as store:
        await store.setup()
        async with store.conn.execute("PRAGMA synchronous") as cursor:
            (level,) = await cursor.fetchone()
        without = "" if index else ", no vector index: this Python loads no SQLite extension"
        yield _langgraph(store, f"synchronous = {SYNCHRONOUS[level]}{without}", index is not None)


@peer("langgraph-memory", "langgraph.store.memory", "langgraph")
async def langgraph_memory(folder: Path) -> AsyncIterator[Peer]:
    """``InMemoryStore``, which ends with its process."""
    from langgraph.store.memory import InMemoryStore

    yield _langgraph(InMemoryStore(index=INDEX), "none: in memory", True)


@peer("openai-agents", "agents", "openai-agents")
async def agents_session(folder: Path) -> AsyncIterator[Peer]:
    """One ``SQLiteSession`` in a file, which cannot search."""
    from agents import SQLiteSession

    session = SQLiteSession(GROUP, str(folder / "agents.db"))

    async def count() -> int:
        return len(await session.get_items())

    yield Peer(
        "SQLite's default (synchronous = FULL), which it leaves as it is",
        lambda id, text: session.add_items([{"role": "user", "content": text}]),
        count,
    )
    session.close()


@peer("mem0", "mem0", "mem0ai", "qdrant-client")
async def mem0_memory(folder: Path) -> AsyncIterator[Peer]:
    """The memories of one user, with Qdrant embedded; ``infer=False`` asks no model."""
    # Read when mem0 is imported: its settings would be in the user's home, its statistics sent.
    os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=HOME.name)
    from mem0 import AsyncMemory
    from mem0.embeddings.base import EmbeddingBase
    from mem0.utils.factory import EmbedderFactory

    class Embedding(EmbeddingBase):
        """The bench's embedder under one of the names that mem0's settings take."""

        def embed(self, text: str, memory_action: str | None = None) -> list[float]:
            return embed([text])[0]

        def embed_batch(self, texts: list[str], memory_action: str = "") -> list[list[float]]:
            return embed(texts)

    this: Any = sys.modules[__name__]
    this.Embedding, sys.modules["peers"] = Embedding, this
    EmbedderFactory.provider_to_class["langchain"] = "peers.Embedding"
    path = {"path": str(folder / "qdrant"), "on_disk": True, "collection_name": GROUP}
    qdrant = {**path, "embedding_model_dims": DIMENSIONS}
    memory = AsyncMemory.from_config(
        {
            "embedder": {"provider": "langchain", "config": {}},
            "vector_store": {"provider": "qdrant", "config": qdrant},
            "llm": {"provider": "openai", "config": {"api_key": "never used"}},
            "history_db_path": str(folder / "history.db"),
        }
    )
    whose = {"user_id": GROUP}

    async def count() -> int:
        return len((await memory.get_all(filters=whose, top_k=1_000_000))["results"])

    async def search(query: str) -> list[str]:
        found = await memory.search(query, filters=whose, top_k=TOP, threshold=0.0)
        return [result["metadata"]["key"] for result in found["results"]]

    yield Peer(
        "Qdrant embedded: SQLite's default, one commit for each",
        lambda id, text: memory.add(text, user_id=GROUP, metadata={"key": id}, infer=False),
        count,
        search,
    )
    memory.vector_store.client.close()


@peer("graphiti", "graphiti_core", "graphiti-core", "kuzu")
async def graphiti(folder: Path) -> AsyncIterator[Peer]:
    """With Kuzu: each text is the fact of an edge, saved as extraction would save it."""
    os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"
    from graphiti_core import Graphiti
    from graphiti_core.cross_encoder.client import CrossEncoderClient
    from graphiti_core.driver.driver import GraphProvider
    from graphiti_core.driver.kuzu_driver import KuzuDriver
    from graphiti_core.edges import EntityEdge
    from graphiti_core.embedder.client import EmbedderClient
    from graphiti_core.graph_queries import get_fulltext_indices
    from graphiti_core.llm_client.client import LLMClient
    from graphiti_core.llm_client.config import LLMConfig
    from graphiti_core.nodes import EntityNode

    class Embedder(EmbedderClient):
        """The bench's embedder."""

        async def create(self, input_data: Any) -> list[float]:
            return embed([input_data] if isinstance(input_data, str) else input_data)[0]

        async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
            return embed(input_data_list)

    class StubModel(LLMClient):
        """Graphiti demands a chat model; extraction, which would ask it, is left out."""

        _generate_response = _cannot

    class StubReranker(CrossEncoderClient):
        """Graphiti demands a reranker; its plain search does not ask it."""

        rank = _cannot

    warnings.simplefilter("ignore", DeprecationWarning)
    driver = KuzuDriver(db=str(folder / "graph.kuzu"))
    for statement in get_fulltext_indices(GraphProvider.KUZU):
        await driver.execute_query(statement)
    graph = Graphiti(
        graph_driver=driver,
        llm_client=StubModel(LLMConfig(api_key="never used")),
        embedder=Embedder(),
        cross_encoder=StubReranker(),
    )
    nodes = [EntityNode(name=name, group_id=GROUP) for name in ("user", "memory")]
    for node in nodes:
        await node.generate_name_embedding(graph.embedder)
        await node.save(driver)

    async def add(id: str, text: str) -> None:
        edge = EntityEdge(
            name=id,
            fact=text,
            group_id=GROUP,
            source_node_uuid=nodes[0].uuid,
            target_node_uuid=nodes[1].uuid,
            created_at=datetime.now(UTC),
        )
        await edge.generate_embedding(graph.embedder)
        await edge.save(graph.driver)

    async def count() -> int:
        query = "MATCH (n:RelatesToNode_) RETURN count(*) AS stored"
        rows, _, _ = await driver.execute_query(query)
        return int(rows[0]["stored"])

    async def search(query: str) -> list[str]:
        found = await graph.search(query, group_ids=[GROUP], num_results=TOP)
        return [edge.name for edge in found]

    yield Peer("Kuzu's write-ahead log, one commit for each", add, count, search)
    driver.client.close()


# ── Phases ───────────────────────────────────────────────────────────────────────────


async def _adds(peer: Peer, texts: Sequence[str], callers: int, told: Told) -> tuple[int, float]:
    """
    Add *texts* from so many callers; the first error is told.

    Returns:
        How many the peer acknowledged, and the event loop's lag p99 in ms.
    """
    waiting, errors, late = iter(enumerate(texts)), list[Exception](), list[float]()

    async def caller() -> None:
        for number, text in waiting:
            try:
                await peer.add(f"{callers}-{number}", text)
            except Exception as error:
                errors.append(error)

    async def beat() -> None:
        while True:
            asleep = perf_counter()
            await asyncio.sleep(BEAT_S)
            late.append(1_000 * (perf_counter() - asleep - BEAT_S))

    beating = asyncio.create_task(beat())
    await asyncio.gather(*(caller() for _ in range(callers)))
    beating.cancel()
    if errors:
        told.setdefault("first error", " ".join(repr(errors[0]).split()))
    return len(texts) - len(errors), percentile(late, 0.99)


async def _timed_adds(peer: Peer, texts: Sequence[str], callers: int, told: Told) -> None:
    await peer.settle()
    began = perf_counter()
    added, lag = await _adds(peer, texts, callers, told)
    told[f"adds/s, {callers}"] = added / (perf_counter() - began)
    await peer.settle()
    if callers > 1:
        told["findable/s"] = added / (perf_counter() - began)
        told["lag p99 ms"] = lag


async def _lost(peer: Peer, texts: Sequence[str], told: Told) -> None:
    """How many of 64 adds at once are not stored afterwards, those with an error included."""
    before = await peer.count()
    await _adds(peer, texts[:IN_FLIGHT], IN_FLIGHT, told)
    await peer.settle()
    told["lost of 64"] = IN_FLIGHT - (await peer.count() - before)


async def _searches(peer: Peer, size: int, work: Told, told: Told) -> None:
    for number, text in enumerate(work["texts"][:size]):
        await peer.add(f"{number}", text)
    await peer.settle()
    asked, times = work["questions"][str(size)], list[float]()
    for query in [*asked[:3], *asked]:
        began = perf_counter()
        await peer.search(query)
        times.append(1_000 * (perf_counter() - began))
    told[f"search p50 ms, {size}"] = percentile(times[len(asked[:3]) :], 0.5)
    told[f"search p95 ms, {size}"] = percentile(times[len(asked[:3]) :], 0.95)


async def _ranked(peer: Peer, dialogue: dict[str, Any], told: Told) -> None:
    for turn in dialogue["turns"] if peer.add_turns is None else ():
        await peer.add(turn["id"], turn["document"])
    if peer.add_turns is not None:
        await peer.add_turns(dialogue["turns"])
    await peer.settle()
    ranked = [await peer.search(question) for question in dialogue["questions"]]
    told["rankings"].append(ranked)


async def driven(kind: Kind, work: dict[str, Any]) -> Told:
    """Every phase, each on a new memory."""
    told: Told = {}

    async def with_new(phase: Callable[..., Awaitable[None]], *given: Any, first: int = 0) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            async with kind.opened(Path(folder)) as peer:
                told["durability"] = peer.durability
                if first:
                    await peer.add("first", "The first add opens files and loads the embedder.")
                await phase(peer, *given, told)
                return peer.search is not _cannot

    for callers, count in zip((1, IN_FLIGHT), work["adds"], strict=True):
        await with_new(_timed_adds, work["texts"][:count], callers, first=1)
    searches = await with_new(_lost, work["texts"], first=1)
    told["resident MB"] = _resident_mb()
    if searches:
        for size in work["sizes"]:
            await with_new(_searches, size, work)
        told["resident MB"] = _resident_mb()
        told["rankings"] = []
        for dialogue in work["dialogues"]:
            await with_new(_ranked, dialogue)
    return told


def _import_s(module: str, times: int) -> float:
    """Median seconds of importing *module* in a fresh process, less those of an empty one."""

    def run(code: str) -> float:
        began = perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return perf_counter() - began

    run(f"import {module}")
    bare = median(run("pass") for _ in range(times))
    return median(run(f"import {module}") for _ in range(times)) - bare


def percentile(values: Sequence[float], share: float) -> float:
    """The value that *share* of *values* do not exceed (nearest rank); 0 of none."""
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _resident_mb() -> float:
    status = Path("/proc/self/statm")
    if not status.exists():
        return 0.0
    return int(status.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main(name: str, work: str) -> None:
    """Print the row."""
    kind, wanted = PEERS[name], json.loads(Path(work).read_text("utf-8"))
    told = asyncio.run(driven(kind, wanted))
    told["import s"] = _import_s(kind.module, wanted["imports"])
    told["version"] = ", ".join(f"{name} {version(name)}" for name in kind.packages)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""
Memories behind one interface, for ``bench_peers`` and ``torture``: an adapter for each.

It needs Python, NumPy, wordllama and the peer alone, because it runs in the peer's environment.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

DIMENSIONS, TOP = 256, 10
WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
GROUP = "bench"
EXTENSIONS = "enable_load_extension"
# For the one peer that wants it, before anything imports the other one.
_asked, _loads = sys.argv[1:2] == ["langgraph-sqlite"], hasattr(sqlite3.Connection, EXTENSIONS)
if _asked and not _loads and find_spec("pysqlite3"):
    sys.modules["sqlite3"] = import_module("pysqlite3")
HOME = tempfile.TemporaryDirectory(prefix="mem0-")


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


def is_given(call: object) -> bool:
    """Whether the peer has this call."""
    return call is not _cannot


@dataclass
class Peer:
    """
    One memory that is open in a folder of its own.

    Attributes:
        durability: What an acknowledged add survives, e.g. ``synchronous = FULL``.
        add: Stores a text under an id; returns when the memory says that it is stored.
        texts: Every text that is stored, as the memory's own calls list them.
        search: The ids of the first ten that are found, best first.
        settle: Returns when everything added can be found.
        delete: Erases what was added under an id, as far as the memory's own calls can.
        add_turns: Stores the turns of a dialogue; else each is one text with time and speaker.
    """

    durability: str
    add: Callable[[str, str], Awaitable[Any]]
    texts: Callable[[], Awaitable[list[str]]]
    search: Callable[[str], Awaitable[list[str]]] = _cannot
    settle: Callable[[], Awaitable[Any]] = _nothing
    delete: Callable[[str], Awaitable[Any]] = _cannot
    add_turns: Callable[[Sequence[dict[str, str]]], Awaitable[Any]] | None = None


class Kind(NamedTuple):
    """
    How one is opened in a folder, what a program imports to use it, and whose versions are told.

    The second argument of *opened* asks for the most durable setting instead of the default.
    """

    opened: Callable[[Path, bool], AbstractAsyncContextManager[Peer]]
    module: str
    packages: Sequence[str]


PEERS: dict[str, Kind] = {}


def peer(name: str, module: str, *packages: str) -> Callable[[Any], Any]:
    """Enter what opens a memory in a folder, made anew where there is none."""

    def enter(opened: Any) -> Any:
        PEERS[name] = Kind(asynccontextmanager(opened), module, packages)
        return opened

    return enter


@peer("mnemo", "mnemo.service", "mnemo-sessions")
async def mnemo_repository(folder: Path, durable: bool) -> AsyncIterator[Peer]:
    """``remember`` and ``recall`` of one repository; the turns of a dialogue are steps."""
    from mnemo import Config, Mnemo

    ids = dict[str, str]()

    async def add(id: str, text: str) -> None:
        for message in (await repo.remember(text, key=id)).messages:
            ids[id] = message.id

    async def search(query: str) -> list[str]:
        found = await repo.recall(query, k=TOP, reason=False)
        keys = (source.key for source in found.sources)
        return [key for key in keys if key is not None][:TOP]

    async def texts() -> list[str]:
        return [message.text for message in await repo.conversation("default").history()]

    async def add_turns(turns: Sequence[dict[str, str]]) -> None:
        for number in dict.fromkeys(turn["session"] for turn in turns):
            session = await repo.start_session(f"Talk {number}")
            for turn in (turn for turn in turns if turn["session"] == number):
                at = datetime.fromisoformat(turn["at"])
                await session.append(turn["text"], "", at=at, actor=turn["speaker"], key=turn["id"])
            await session.close_and_commit()
            await session.aclose()

    config = Config(store={"synchronous": "full"} if durable else {})
    async with Mnemo(folder / "mnemo.db", config=config, embedder="static") as memory:
        repo = await memory.open_repo(GROUP)
        yield Peer(
            f"synchronous = {config.store.synchronous.upper()}",
            add,
            texts,
            search,
            repo.settle,
            lambda id: repo.forget(message_ids=[ids[id]]),
            add_turns,
        )


def _langgraph(store: Any, durability: str, searches: bool) -> Peer:
    """One namespace of a store."""

    async def texts() -> list[str]:
        found = await store.asearch((GROUP,), limit=1_000_000)
        return [item.value["text"] for item in found]

    async def search(query: str) -> list[str]:
        return [item.key for item in await store.asearch((GROUP,), query=query, limit=TOP)]

    def add(id: str, text: str) -> Awaitable[Any]:
        return store.aput((GROUP,), id, {"text": text})  # type: ignore[no-any-return]

    return Peer(
        durability,
        add,
        texts,
        search if searches else _cannot,
        delete=lambda id: store.adelete((GROUP,), id),
    )


async def _level(connection: Any, durable: bool) -> str:
    """The level of a connection that is its user's to set; the most durable is EXTRA."""
    if durable:
        await connection.execute("PRAGMA synchronous = EXTRA")
    async with connection.execute("PRAGMA synchronous") as cursor:
        (level,) = await cursor.fetchone()
    return f"synchronous = {SYNCHRONOUS[level]}"


@peer("langgraph-sqlite", "langgraph.store.sqlite.aio", "langgraph", "langgraph-checkpoint-sqlite")
async def langgraph_sqlite(folder: Path, durable: bool) -> AsyncIterator[Peer]:
    """
    ``AsyncSqliteStore`` in a file, as its own ``from_conn_string`` opens it.

    Its index is an extension of SQLite, which a Python may be built not to load: then the SQLite
    of ``pysqlite3`` stands in, if that is there; else the row has adds without an index, and no
    searches.
    """
    from langgraph.store.sqlite.aio import AsyncSqliteStore

    loads = hasattr(sys.modules["sqlite3"].Connection, EXTENSIONS)
    path = str(folder / "langgraph.db")
    async with AsyncSqliteStore.from_conn_string(path, index=INDEX if loads else None) as store:
        await store.setup()
        without = "" if loads else ", no vector index: this Python loads no SQLite extension"
        yield _langgraph(store, await _level(store.conn, durable) + without, loads)


@peer("langgraph-memory", "langgraph.store.memory", "langgraph")
async def langgraph_memory(folder: Path, durable: bool) -> AsyncIterator[Peer]:
    """``InMemoryStore``, which ends with its process."""
    from langgraph.store.memory import InMemoryStore

    yield _langgraph(InMemoryStore(index=INDEX), "none: in memory", True)


@peer("langgraph-saver", "langgraph.graph", "langgraph", "langgraph-checkpoint-sqlite")
async def langgraph_saver(folder: Path, durable: bool) -> AsyncIterator[Peer]:
    """``AsyncSqliteSaver`` below a graph of one node: each text is a message in its own thread."""
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.graph import START, MessagesState, StateGraph

    async with AsyncSqliteSaver.from_conn_string(str(folder / "saver.db")) as saver:
        await saver.setup()
        graph = StateGraph(MessagesState).add_node("answer", lambda state: {})
        built = graph.add_edge(START, "answer").compile(checkpointer=saver)
        mode = "sync" if durable else "async"

        async def add(id: str, text: str) -> None:
            where = {"configurable": {"thread_id": id}}
            message = HumanMessage(text, id=id)
            await built.ainvoke({"messages": [message]}, where, durability=mode)

        async def texts() -> list[str]:
            newest = dict[str, list[Any]]()
            async for one in saver.alist(None):
                said = one.checkpoint["channel_values"].get("messages", [])
                newest.setdefault(one.config["configurable"]["thread_id"], said)
            return [message.content for said in newest.values() for message in said]

        durability = f"durability = {mode}, {await _level(saver.conn, durable)}"
        yield Peer(durability, add, texts, delete=saver.adelete_thread)


@peer("openai-agents", "agents", "openai-agents")
async def agents_session(folder: Path, durable: bool) -> AsyncIterator[Peer]:
    """One ``SQLiteSession`` in a file, which cannot search, and can delete its last item alone."""
    from agents import SQLiteSession

    session = SQLiteSession(GROUP, str(folder / "agents.db"))

    async def texts() -> list[str]:
        return [str(item["content"]) for item in await session.get_items()]

    yield Peer(
        "SQLite's default (synchronous = FULL), which it leaves as it is",
        lambda id, text: session.add_items([{"role": "user", "content": text}]),
        texts,
        delete=lambda id: session.pop_item(),
    )
    session.close()


@peer("mem0", "mem0", "mem0ai", "qdrant-client")
async def mem0_memory(folder: Path, durable: bool) -> AsyncIterator[Peer]:
    """The memories of one user, with Qdrant embedded; ``infer=False`` asks no model."""
    # Read when mem0 is imported: its settings would be in the user's home, its statistics sent.
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ.setdefault("MEM0_DIR", HOME.name)
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
    whose, ids = {"user_id": GROUP}, dict[str, str]()

    async def add(id: str, text: str) -> None:
        told = await memory.add(text, user_id=GROUP, metadata={"key": id}, infer=False)
        ids[id] = told["results"][0]["id"]

    async def texts() -> list[str]:
        found = await memory.get_all(filters=whose, top_k=1_000_000)
        return [result["memory"] for result in found["results"]]

    async def search(query: str) -> list[str]:
        found = await memory.search(query, filters=whose, top_k=TOP, threshold=0.0)
        return [result["metadata"]["key"] for result in found["results"]]

    yield Peer(
        "Qdrant embedded: SQLite's default, one commit for each",
        add,
        texts,
        search,
        delete=lambda id: memory.delete(ids[id]),
    )
    memory.vector_store.client.close()


@peer("graphiti", "graphiti_core", "graphiti-core", "kuzu")
async def graphiti(folder: Path, durable: bool) -> AsyncIterator[Peer]:
    """With Kuzu: each text is the fact of an edge, saved as extraction would save it."""
    os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"
    from graphiti_core import Graphiti
    from graphiti_core.cross_encoder.client import CrossEncoderClient
    from graphiti_core.driver.driver import GraphProvider
    from graphiti_core.driver.kuzu_driver import KuzuDriver
    from graphiti_core.edges import EntityEdge
    from graphiti_core.embedder.client import EmbedderClient
    from graphiti_core.errors import GroupsEdgesNotFoundError
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
    path = folder / "graph.kuzu"
    new = not path.exists()
    driver = KuzuDriver(db=str(path))
    for statement in get_fulltext_indices(GraphProvider.KUZU) if new else ():
        await driver.execute_query(statement)
    graph = Graphiti(
        graph_driver=driver,
        llm_client=StubModel(LLMConfig(api_key="never used")),
        embedder=Embedder(),
        cross_encoder=StubReranker(),
    )
    nodes = [EntityNode(uuid=name, name=name, group_id=GROUP) for name in ("user", "memory")]
    for node in nodes if new else ():
        await node.generate_name_embedding(graph.embedder)
        await node.save(driver)

    async def add(id: str, text: str) -> None:
        edge = EntityEdge(
            uuid=id,
            name=id,
            fact=text,
            group_id=GROUP,
            source_node_uuid=nodes[0].uuid,
            target_node_uuid=nodes[1].uuid,
            created_at=datetime.now(UTC),
        )
        await edge.generate_embedding(graph.embedder)
        await edge.save(graph.driver)

    async def texts() -> list[str]:
        try:
            return [edge.fact for edge in await EntityEdge.get_by_group_ids(driver, [GROUP])]
        except GroupsEdgesNotFoundError:
            return []

    async def delete(id: str) -> None:
        await (await EntityEdge.get_by_uuid(driver, id)).delete(driver)

    async def search(query: str) -> list[str]:
        found = await graph.search(query, group_ids=[GROUP], num_results=TOP)
        return [edge.name for edge in found]

    yield Peer("Kuzu's write-ahead log, one commit for each", add, texts, search, delete=delete)
    driver.client.close()
    driver.db.close()


@peer("chroma", "chromadb", "chromadb")
async def chroma(folder: Path, durable: bool) -> AsyncIterator[Peer]:
    """``PersistentClient`` with one collection; it has vectors of its user, and no threads."""
    import chromadb
    from chromadb.config import Settings

    def opened() -> tuple[Any, Any]:
        client = chromadb.PersistentClient(folder / "chroma", Settings(anonymized_telemetry=False))
        hnsw = {"space": "cosine", **({"batch_size": 2, "sync_threshold": 2} if durable else {})}
        with_own_vectors = {"configuration": {"hnsw": hnsw}, "embedding_function": None}
        return client, client.get_or_create_collection(GROUP, **with_own_vectors)

    async def add(id: str, text: str) -> None:
        given = {"ids": [id], "documents": [text], "embeddings": embed([text])}
        await asyncio.to_thread(collection.add, **given)

    async def texts() -> list[str]:
        return (await asyncio.to_thread(collection.get, include=["documents"]))["documents"]

    async def search(query: str) -> list[str]:
        found = await asyncio.to_thread(collection.query, embed([query]), n_results=TOP)
        return found["ids"][0]

    client, collection = await asyncio.to_thread(opened)
    durability = "its write-ahead log in SQLite; vectors are written out every "
    yield Peer(
        durability + ("2 adds" if durable else "1,000 adds"),
        add,
        texts,
        search,
        delete=lambda id: asyncio.to_thread(collection.delete, [id]),
    )
    client.close()

"""mem0 with its default vector store, Qdrant embedded; no chat model is asked (``infer=False``)."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from peer_kit import DIMENSIONS, TOP, Peer, drive, embed

# Read when mem0 is imported: its settings would be in the user's home, its statistics sent.
os.environ["MEM0_TELEMETRY"] = "False"
os.environ["MEM0_DIR"] = tempfile.mkdtemp()

from mem0 import AsyncMemory
from mem0.embeddings.base import EmbeddingBase
from mem0.utils.factory import EmbedderFactory


class Embedding(EmbeddingBase):
    """The bench's embedder under one of the names that mem0's settings take."""

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return embed([text])[0]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return embed(texts)


class Mem0Peer(Peer):
    """The memories of one user."""

    durability = "Qdrant embedded: SQLite's default, one commit for each"

    def __init__(self, memory: AsyncMemory) -> None:
        self.memory = memory

    async def add(self, id: str, text: str) -> None:
        await self.memory.add(text, user_id="bench", metadata={"key": id}, infer=False)

    async def count(self) -> int:
        found = await self.memory.get_all(filters={"user_id": "bench"}, top_k=1_000_000)
        return len(found["results"])

    async def search(self, query: str) -> list[str]:
        found = await self.memory.search(
            query, filters={"user_id": "bench"}, top_k=TOP, threshold=0.0
        )
        return [result["metadata"]["key"] for result in found["results"]]


@asynccontextmanager
async def open_mem0(folder: Path) -> AsyncIterator[Peer]:
    """A collection in a folder."""
    sys.modules["peer_mem0"] = sys.modules[__name__]
    EmbedderFactory.provider_to_class["langchain"] = "peer_mem0.Embedding"
    path = {"path": str(folder / "qdrant"), "on_disk": True, "collection_name": "bench"}
    memory = AsyncMemory.from_config(
        {
            "embedder": {"provider": "langchain", "config": {}},
            "vector_store": {
                "provider": "qdrant",
                "config": {**path, "embedding_model_dims": DIMENSIONS},
            },
            "llm": {"provider": "openai", "config": {"api_key": "never used"}},
            "history_db_path": str(folder / "history.db"),
        }
    )
    try:
        yield Mem0Peer(memory)
    finally:
        memory.vector_store.client.close()


if __name__ == "__main__":
    try:
        drive(open_mem0, module="mem0", packages=["mem0ai", "qdrant-client"])
    finally:
        shutil.rmtree(os.environ["MEM0_DIR"])

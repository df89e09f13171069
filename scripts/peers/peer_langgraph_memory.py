"""LangGraph's ``InMemoryStore`` with its vector index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from langgraph.store.memory import InMemoryStore
from peer_kit import Peer, drive
from peer_langgraph_sqlite import INDEX, StorePeer


@asynccontextmanager
async def open_memory(folder: Path) -> AsyncIterator[Peer]:
    """A store that ends with its process."""
    yield StorePeer(InMemoryStore(index=INDEX), "none: in memory")


if __name__ == "__main__":
    drive(open_memory, module="langgraph.store.memory", packages=["langgraph"])

"""
LangGraph's ``AsyncSqliteStore`` with its vector index.

The index is an extension of SQLite, which a Python may be built not to load: then the row
has adds without an index, and no searches.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langgraph.store.sqlite.aio import AsyncSqliteStore
from peer_kit import DIMENSIONS, TOP, Peer, drive, embed

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class StorePeer(Peer):
    """One namespace of a LangGraph store."""

    def __init__(self, store: Any, durability: str) -> None:
        self.store, self.durability = store, durability

    async def add(self, id: str, text: str) -> None:
        await self.store.aput(("bench",), id, {"text": text})

    async def count(self) -> int:
        return len(await self.store.asearch(("bench",), limit=1_000_000))

    async def search(self, query: str) -> list[str]:
        return [item.key for item in await self.store.asearch(("bench",), query=query, limit=TOP)]


INDEXED = hasattr(sqlite3.Connection, "enable_load_extension")
INDEX = {"dims": DIMENSIONS, "embed": embed, "fields": ["text"]}


@asynccontextmanager
async def open_sqlite(folder: Path) -> AsyncIterator[Peer]:
    """A store in a file, as its own ``from_conn_string`` opens it."""
    path = str(folder / "langgraph.db")
    async with AsyncSqliteStore.from_conn_string(path, index=INDEX if INDEXED else None) as store:
        await store.setup()
        async with store.conn.execute("PRAGMA synchronous") as cursor:
            (level,) = await cursor.fetchone()
        without = "" if INDEXED else ", no vector index: this Python loads no SQLite extension"
        yield StorePeer(store, f"synchronous = {SYNCHRONOUS[level]}{without}")


if __name__ == "__main__":
    drive(
        open_sqlite,
        module="langgraph.store.sqlite.aio",
        packages=["langgraph", "langgraph-checkpoint-sqlite"],
        searches=INDEXED,
    )

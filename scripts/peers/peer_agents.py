"""The OpenAI Agents SDK's ``SQLiteSession``, which cannot search."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agents import SQLiteSession
from peer_kit import Peer, drive


class SessionPeer(Peer):
    """One session in a file."""

    durability = "SQLite's default (synchronous = FULL), which it leaves as it is"

    def __init__(self, session: SQLiteSession) -> None:
        self.session = session

    async def add(self, id: str, text: str) -> None:
        await self.session.add_items([{"role": "user", "content": text}])

    async def count(self) -> int:
        return len(await self.session.get_items())


@asynccontextmanager
async def open_session(folder: Path) -> AsyncIterator[Peer]:
    """A file with one session."""
    session = SQLiteSession("bench", str(folder / "agents.db"))
    try:
        yield SessionPeer(session)
    finally:
        session.close()


if __name__ == "__main__":
    drive(open_session, module="agents", packages=["openai-agents"], searches=False)

"""mnemo: ``remember`` and ``recall``; the turns of a dialogue as steps of sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from peer_kit import TOP, Peer, drive

from mnemo import Config, Mnemo
from mnemo.models.wordllama import WordLlamaEmbedder
from mnemo.repository import Repository


class MnemoPeer(Peer):
    """One repository; facts and vectors follow an add in the background."""

    durability = "synchronous = FULL"

    def __init__(self, repo: Repository) -> None:
        self.repo = repo

    async def add(self, id: str, text: str) -> None:
        await self.repo.remember(text, key=id)

    async def count(self) -> int:
        return (await self.repo.statistics()).messages

    async def settle(self) -> None:
        await self.repo.settle()

    async def search(self, query: str) -> list[str]:
        found = await self.repo.recall(query, k=TOP, reason=False)
        keys = (source.key for source in found.sources)
        return [key for key in keys if key is not None][:TOP]

    async def add_turns(self, turns: Sequence[dict[str, str]]) -> None:
        for number in dict.fromkeys(turn["session"] for turn in turns):
            session = await self.repo.start_session(f"Talk {number}")
            for turn in (turn for turn in turns if turn["session"] == number):
                at = datetime.fromisoformat(turn["at"])
                await session.append(turn["text"], "", at=at, actor=turn["speaker"], key=turn["id"])
            await session.close_and_commit()
            await session.aclose()
        await self.repo.settle()


@asynccontextmanager
async def open_mnemo(folder: Path) -> AsyncIterator[Peer]:
    """A file with one repository."""
    config = Config(store={"synchronous": "full"})
    embedder = WordLlamaEmbedder()
    async with Mnemo(folder / "mnemo.db", config=config, embedder=embedder) as memory:
        yield MnemoPeer(await memory.open_repo("bench"))


if __name__ == "__main__":
    drive(open_mnemo, module="mnemo.service", packages=["mnemo-sessions"])

"""Sessions of each store, with steps said at chosen times."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from world import Kit, opened

from mnemo.config import Config
from mnemo.context.rendering import hidden_in
from mnemo.log.records import StoredRecords
from mnemo.recall.keyword import SearchHit, search
from mnemo.testing import ManualClock
from mnemo.values.derived import Thread
from mnemo.values.messages import StoredMessage
from mnemo.values.records import Hidden


@dataclass
class Talk:
    """Steps of one store's sessions, and searching them."""

    kit: Kit
    sessions: set[str] = field(default_factory=set)
    steps: int = 0

    @property
    def store(self) -> Any:
        return self.kit.store

    @property
    def clock(self) -> ManualClock:
        return self.kit.clock

    def records(self, repo: str = "r") -> StoredRecords:
        return self.store.records(repo)

    async def say(
        self,
        observation: str,
        action: str = "",
        *,
        session: str = "s",
        repo: str = "r",
        days_ago: float = 0.0,
    ) -> str:
        """Append a step; gives its node's id once it is durable."""
        at = self.clock.now() - timedelta(days=days_ago)
        if session not in self.sessions:
            self.sessions.add(session)
            await self.kit.start(session, repo=repo)
        self.steps += 1
        id = f"episodic-{self.steps}"
        values = {"at": at, "actor": "User", "node_id": id}
        await self.kit.append(observation, action, session=session, repo=repo, **values)
        return id

    async def write(self, *messages: StoredMessage, repo: str = "r") -> None:
        """Add messages to their threads."""
        await self.store.transcript(repo).writing(lambda tx: tx.add(messages))

    async def keep(self, *values: Any, repo: str = "r") -> None:
        """Write threads' rows, and what was derived from them."""

        def work(tx: Any) -> None:
            for value in values:
                (tx.keep if isinstance(value, Thread) else tx.put)(value)

        await self.store.transcript(repo).writing(work)

    async def seen(self, stream: str, repo: str = "r") -> Hidden:
        """What the agent of a thread or session sees."""
        found = await hidden_in(self.store.transcript(repo), stream, Config())
        assert found is not None
        return found

    async def search(
        self, query: str | None, *, repo: str = "r", config: Config | None = None, **options: Any
    ) -> list[SearchHit]:
        config = config or Config()
        return await search(self.records(repo), query, clock=self.clock, config=config, **options)

    async def found(self, query: str, **options: Any) -> list[str]:
        """The message ids that *query* finds, best first."""
        return [hit.message_id for hit in await self.search(query, limit=100, **options)]


@pytest.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    async with opened(tmp_path / "m.db") as kit:
        yield Talk(kit)

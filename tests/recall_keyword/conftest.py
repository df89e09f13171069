"""Sessions of each store, with steps said at chosen times."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from mnemo.config import Config, StoreConfig
from mnemo.context.rendering import seen_by
from mnemo.log.records import StoredRecords
from mnemo.recall.keyword import SearchHit, search
from mnemo.stores import SqliteStore
from mnemo.testing.clock import ManualClock
from mnemo.values.derived import Thread
from mnemo.values.journal import Owner, SessionRecord, SessionState
from mnemo.values.messages import StoredMessage
from mnemo.values.records import Hidden
from mnemo.values.steps import Step, StepDraft


@dataclass
class Talk:
    """Steps of one store's sessions, and searching them."""

    store: SqliteStore
    owner: Owner
    clock: ManualClock
    sessions: set[str] = field(default_factory=set)
    steps: int = 0

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
        await self._start(session, repo, at)
        self.steps += 1
        draft = StepDraft(
            observation=observation,
            action=action,
            at=at,
            actor="User",
            node_id=f"episodic-{self.steps}",
        )
        durable = anyio.Event()
        results: list[Step | BaseException] = []

        def done(result: Step | BaseException) -> None:
            results.append(result)
            durable.set()

        self.store.sessions(repo).append(session, f"{session}-episode", draft, self.owner, done)
        await durable.wait()
        assert isinstance(results[0], Step), results[0]
        return draft.node_id

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
        return await self.store.transcript(repo).reading(lambda tx: seen_by(tx, stream, Config()))

    async def _start(self, session: str, repo: str, at: datetime) -> None:
        if session in self.sessions:
            return
        self.sessions.add(session)
        record = SessionRecord(
            id=session,
            repo_id=repo,
            goal="talk",
            state=SessionState.COLLECTING,
            steps=0,
            updated_at=at,
            episode_id=f"{session}-episode",
        )
        await self.store.sessions(repo).create(record, goal_at=at, owner=self.owner)

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
    clock = ManualClock()
    store = SqliteStore(tmp_path / "m.db", config=StoreConfig(), clock=clock, lease_s=30.0)
    yield Talk(store, await store.open(), clock)
    await store.aclose()

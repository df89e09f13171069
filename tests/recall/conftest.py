"""A small repository to ask questions of, on the memory store, without a service."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import anyio
import numpy as np
import pytest
from helpers import in_memory_store
from numpy.typing import NDArray

from mnemo.config import Config
from mnemo.errors import ModelTimeout
from mnemo.events import Event
from mnemo.index.follower import RepositoryIndex
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, Embedder, EmbeddingSpace, GraphWrite
from mnemo.recall.pipeline import Recall
from mnemo.recall.result import RecallResult
from mnemo.stores import SqliteStore
from mnemo.testing import HashingEmbedder, ManualClock
from mnemo.values.graph import Edge, Episodic, MetadataDelta, Node, node_id
from mnemo.values.journal import Owner, SessionRecord, SessionState, Settlement
from mnemo.values.steps import Step, StepDraft

NOON = datetime(2024, 3, 1, 12, 0, tzinfo=UTC)


class FailingEmbedder:
    """An embedder whose server is down."""

    space = EmbeddingSpace("down", 8, dense_weight=1.0)

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """Refuse."""
        raise ModelTimeout("the embedder is down")


class Recalls:
    """The recall pipeline, asked with keywords."""

    def __init__(self, pipeline: Recall) -> None:
        self._pipeline = pipeline

    async def recall(self, query: str, **keywords: Any) -> RecallResult:
        """Answer *query*."""
        return await self._pipeline.recall(query, **keywords)


@dataclass
class World:
    """One repository, and what was said in it."""

    store: SqliteStore
    clock: ManualClock
    owner: Owner
    embedder: Embedder
    config: Config
    chat_model: ChatModel | None = None
    usage: UsageMeter = field(default_factory=UsageMeter)
    events: list[Event] = field(default_factory=list)
    episodes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = self.store.graph("r")
        self.feed = self.store.feed("r")
        self.index = RepositoryIndex(feed=self.feed, embedder=self.embedder, agent_name="Agent")
        pipeline = Recall(
            repo_id="r",
            graph=self.graph,
            feed=self.feed,
            index=self.index,
            embedder=self.embedder,
            clock=self.clock,
            config=self.config,
            notify=self.events.append,
            chat_model=self.chat_model,
            usage=self.usage,
        )
        self.recall = Recalls(pipeline)

    async def begin(self, session: str, goal: str = "Talk") -> None:
        """Start a session with an open episode."""
        episode = self.episodes[session] = f"{session}-e1"
        record = SessionRecord(
            id=session,
            repo_id="r",
            goal=goal,
            state=SessionState.COLLECTING,
            steps=0,
            updated_at=NOON,
            episode_id=episode,
        )
        await self.store.sessions("r").create(record, goal_at=NOON, owner=self.owner)

    async def say(
        self,
        observation: str,
        action: str = "",
        *,
        session: str = "s1",
        actor: str = "User",
        at: datetime = NOON,
        key: str | None = None,
    ) -> Step:
        """Append one step; it is durable when this returns."""
        if session not in self.episodes:
            await self.begin(session)
        draft = StepDraft(
            observation=observation,
            action=action,
            at=at,
            actor=actor,
            node_id=node_id("episodic"),
            key=key,
        )
        done = anyio.Event()
        outcome: list[Any] = []

        def finish(result: Step | BaseException) -> None:
            outcome.append(result)
            done.set()

        episode = self.episodes[session]
        self.store.sessions("r").append(session, episode, draft, self.owner, finish)
        await done.wait()
        assert isinstance(outcome[0], Step), outcome[0]
        return outcome[0]

    async def commit(
        self,
        *nodes: Node,
        edges: Sequence[Edge] = (),
        metadata: Mapping[str, MetadataDelta] | None = None,
        steps: Sequence[Step] = (),
    ) -> None:
        """Write *nodes*, with the episodic nodes of *steps*, in one transaction."""
        revision = await self.graph.revision()
        episodic = tuple(
            Episodic(step.observation, step.action, id=step.node_id, at=step.at) for step in steps
        )
        stored = {node.id for node in await self.graph.nodes([node.id for node in episodic])}
        fresh = tuple(node for node in episodic if node.id not in stored)
        write = GraphWrite(
            changeset_id=f"c{revision}",
            expected_revision=revision,
            nodes=tuple(replace(n, created_at=NOON) for n in (*nodes, *fresh)),
            edges=tuple(edges),
            metadata=metadata or {},
        )
        await self.graph.apply(write, self.owner)

    async def embedded(self) -> None:
        """Let every document get its vector."""
        await self.index.embed_waiting()


MakeWorld = Callable[..., Any]


@pytest.fixture
async def make_world() -> AsyncIterator[MakeWorld]:
    """Makes repositories on stores that are closed when the test ends."""
    stores: list[SqliteStore] = []

    async def make(
        *,
        embedder: Embedder | None = None,
        config: Config | None = None,
        model: ChatModel | None = None,
    ) -> World:
        clock = ManualClock(NOON)
        store = in_memory_store(clock)
        stores.append(store)
        owner = await store.open()
        embedder = embedder or HashingEmbedder()
        return World(store, clock, owner, embedder, config or Config(), model)

    yield make
    for store in stores:
        await store.aclose()


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    """An empty repository with the hashing embedder."""
    made: World = await make_world()
    return made


@pytest.fixture
async def deaf(make_world: MakeWorld) -> World:
    """A repository whose embedder always fails."""
    made: World = await make_world(embedder=FailingEmbedder())
    return made


__all__ = ["NOON", "Settlement", "World"]

"""A small repository to ask questions of, on the memory store, without a service."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from world import NOON, Kit, opened

from mnemo.config import Config
from mnemo.errors import ModelTimeout
from mnemo.events import Event
from mnemo.index.follower import RepositoryIndex
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, Embedder, EmbeddingSpace
from mnemo.recall.pipeline import Recall
from mnemo.recall.result import RecallResult
from mnemo.testing import HashingEmbedder, ManualClock
from mnemo.values.graph import Episodic, Node
from mnemo.values.steps import Step


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


class World:
    """One repository, and what was said in it."""

    def __init__(
        self, kit: Kit, embedder: Embedder, config: Config, chat_model: ChatModel | None = None
    ) -> None:
        self.kit, self.store, self.clock, self.owner = kit, kit.store, kit.clock, kit.owner
        self.usage, self.events, self.sessions = UsageMeter(), list[Event](), set[str]()
        self.graph, self.feed = self.store.graph("r"), self.store.feed("r")
        self.index = RepositoryIndex(feed=self.feed, embedder=embedder, agent_name="Agent")
        pipeline = Recall(
            repo_id="r",
            graph=self.graph,
            feed=self.feed,
            index=self.index,
            embedder=embedder,
            clock=self.clock,
            config=config,
            notify=self.events.append,
            chat_model=chat_model,
            usage=self.usage,
        )
        self.recall = Recalls(pipeline)

    async def begin(self, session: str, goal: str = "Talk") -> None:
        """Start a session with an open episode."""
        self.sessions.add(session)
        await self.kit.start(session, goal=goal)

    async def say(
        self,
        observation: str,
        action: str = "",
        *,
        session: str = "s1",
        actor: str = "User",
        **values: Any,
    ) -> Step:
        """Append one step, at noon unless told otherwise; it is durable when this returns."""
        if session not in self.sessions:
            await self.begin(session)
        return await self.kit.append(observation, action, session=session, actor=actor, **values)

    async def commit(self, *nodes: Node, steps: Sequence[Step] = (), **rest: Any) -> None:
        """Write *nodes*, with the episodic nodes of *steps*, in one transaction."""
        episodic = [
            Episodic(step.observation, step.action, id=step.node_id, at=step.at) for step in steps
        ]
        stored = {node.id for node in await self.graph.nodes([node.id for node in episodic])}
        fresh = (node for node in episodic if node.id not in stored)
        dated = [replace(node, created_at=NOON) for node in (*nodes, *fresh)]
        await self.kit.apply(*dated, id=f"c{await self.graph.revision()}", **rest)

    async def embedded(self) -> None:
        """Let every document get its vector."""
        await self.index.embed_waiting()


MakeWorld = Callable[..., Any]


@pytest.fixture
async def make_world() -> AsyncIterator[MakeWorld]:
    """Makes repositories on stores that are closed when the test ends."""
    async with AsyncExitStack() as stack:

        async def make(
            *,
            embedder: Embedder | None = None,
            config: Config | None = None,
            model: ChatModel | None = None,
        ) -> World:
            kit = await stack.enter_async_context(opened(clock=ManualClock(NOON)))
            return World(kit, embedder or HashingEmbedder(), config or Config(), model)

        yield make


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


__all__ = ["NOON", "World"]

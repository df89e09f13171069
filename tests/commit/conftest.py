"""A repository of each store with its index and commit lane, and words to build changesets."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from world import opened

from mnemo.commit.lane import CommitLane
from mnemo.config import CommitConfig
from mnemo.errors import ModelUnavailable
from mnemo.graph.graph import StoredGraph
from mnemo.index.follower import RepositoryIndex
from mnemo.protocols import Applied, EmbeddingSpace
from mnemo.testing import HashingEmbedder, ManualClock
from mnemo.values.changeset import Changeset
from mnemo.values.graph import (
    Edge,
    EdgeKind,
    Episodic,
    Intent,
    Node,
    Procedural,
    Semantic,
    Source,
    Subgoal,
    Tag,
)
from mnemo.values.journal import Owner

DIMENSIONS = 64


class PlacedEmbedder:
    """Gives some texts the vectors a test wants, hashes the others; counts; may fail."""

    def __init__(self) -> None:
        self._hashing = HashingEmbedder(DIMENSIONS)
        self.placed: dict[str, NDArray[np.float32]] = {}
        self.asked: list[str] = []
        self.failing = False

    @property
    def space(self) -> EmbeddingSpace:
        return self._hashing.space

    def place(self, text: str, angle: float) -> None:
        """Put *text* at *angle* (radians) in one plane: cosines are those of differences."""
        vector = np.zeros(DIMENSIONS, np.float32)
        vector[0], vector[1] = np.cos(angle), np.sin(angle)
        self.placed[text] = vector

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        if self.failing:
            raise ModelUnavailable("no embedder today")
        self.asked += texts
        rows = await self._hashing.embed(texts, kind=kind)
        for row, text in zip(rows, texts, strict=True):
            if text in self.placed:
                row[:] = self.placed[text]
        return rows


@dataclass
class World:
    """One repository: its graph, its lane, and what is behind them."""

    graph: StoredGraph
    index: RepositoryIndex
    embedder: PlacedEmbedder
    owner: Owner
    clock: ManualClock

    def lane(self, graph: StoredGraph | None = None, **settings: Any) -> CommitLane:
        return CommitLane(
            repo_id="r",
            publish=lambda event: None,
            graph=graph or self.graph,
            index=self.index,
            embedder=self.embedder,
            owner=self.owner,
            clock=self.clock,
            config=CommitConfig(**settings),
        )

    async def commit(self, changeset: Changeset, **options: Any) -> Applied:
        return await self.lane().commit(changeset, **options)

    async def of(self, kind: type[Node]) -> list[Any]:
        """All stored nodes of one kind, oldest first."""
        return await self.graph.nodes(types=(kind.type,))

    async def edges(self, *ids: str, kind: EdgeKind | None = None) -> set[Edge]:
        return set(await self.graph.edges(ids, kind=kind))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    embedder = PlacedEmbedder()
    async with opened(tmp_path / "m.db") as kit:
        feed = kit.store.feed("r")
        index = RepositoryIndex(feed=feed, embedder=embedder, agent_name="Agent")
        yield World(kit.store.graph("r"), index, embedder, kit.owner, kit.clock)


@dataclass
class Draft:
    """Builds a changeset, one thing said after another."""

    episode: str = "e1"
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    replaces: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def step(
        self, id: str, at: datetime, reward: float | None = None, index: int | None = None
    ) -> str:
        place = {"session_id": "s", "episode_id": self.episode, "step_index": index}
        node = Episodic("seen", "done", id=id, at=at, reward=reward, **place)
        self.nodes.append(node)
        return id

    def fact(self, text: str, *steps: str, tags: Sequence[str] = (), **fields: Any) -> Semantic:
        times = [n.at for n in self.nodes if isinstance(n, Episodic) and n.id in steps and n.at]
        node = Semantic(text, **{"valid_from": min(times, default=None), **fields})
        self.nodes.append(node)
        self.edges += [Edge(node.id, step, EdgeKind.PROVENANCE) for step in steps]
        for label in tags:
            tag = Tag(label)
            self.nodes.append(tag)
            self.edges.append(Edge(tag.id, node.id, EdgeKind.MEMBERSHIP))
        return node

    def instruction(self, intent: str, condition: str, text: str, *steps: str) -> Procedural:
        node, goal = Procedural(text, condition, "it works"), Intent(intent)
        self.nodes += (node, goal)
        self.edges.append(Edge(goal.id, node.id, EdgeKind.HIERARCHICAL))
        self.edges += [Edge(node.id, step, EdgeKind.PROVENANCE) for step in steps]
        return node

    def build(self, **fields: Any) -> Changeset:
        return Changeset(
            nodes=tuple(self.nodes),
            edges=tuple(self.edges),
            **{"replaces": self.replaces, **fields},
        )


@pytest.fixture
def draft() -> Callable[..., Draft]:
    return Draft


__all__ = ["Draft", "PlacedEmbedder", "Source", "Subgoal", "World"]

"""A repository with facts at chosen angles to each other, for the tests of maintenance."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from helpers import Kit

from mnemo import (
    Changeset,
    Edge,
    EdgeKind,
    Episodic,
    Intent,
    MetadataDelta,
    Node,
    Procedural,
    Repository,
    Semantic,
    Tag,
)
from mnemo.testing import HashingEmbedder

DIMENSIONS = HashingEmbedder().space.dimensions


def at_cosine(cosine: float) -> Any:
    """A unit vector with that cosine to ``at_cosine(1.0)``."""
    vector = np.zeros(DIMENSIONS, np.float32)
    vector[0], vector[1] = cosine, math.sqrt(1 - cosine**2)
    return vector


def at_angle_to_all(number: int) -> Any:
    """A unit vector with a cosine of 0.9 to that of every other number."""
    vector = np.zeros(DIMENSIONS, np.float32)
    vector[0], vector[1 + number] = math.sqrt(0.9), math.sqrt(0.1)
    return vector


@dataclass
class Memory:
    """A repository, and short words for what tests do to it."""

    kit: Kit

    @property
    def repo(self) -> Repository:
        return self.kit.repo

    @property
    def graph(self) -> Any:
        return self.kit.repo._parts.graph

    def ago(self, days: float) -> datetime:
        """So many days before the clock's present."""
        return self.kit.clock.now() - timedelta(days=days)

    async def fact(
        self,
        text: str,
        id: str,
        *,
        days: float = 0,
        tags: Iterable[str] = (),
        steps: Iterable[str] = (),
        reward: tuple[float, int] = (0.0, 0),
        **fields: Any,
    ) -> str:
        """A stored fact with tags by label, steps by id, and rewards."""
        node = Semantic(text, id=id, created_at=self.ago(days), **fields)
        nodes: list[Node] = [node]
        edges = []
        for label in tags:
            tag = Tag(label, created_at=self.ago(days))
            nodes.append(tag)
            edges.append(Edge(tag.id, id, EdgeKind.MEMBERSHIP))
        edges += [Edge(id, step, EdgeKind.PROVENANCE) for step in steps]
        delta = MetadataDelta(cumulative_reward=reward[0], reward_count=reward[1])
        await self.repo.apply(Changeset(tuple(nodes), tuple(edges), metadata={id: delta}))
        return id

    async def step(self, id: str, text: str = "seen", episode: str = "e", days: float = 0) -> str:
        """A raw step, as a changeset applied by hand brings it."""
        at = self.ago(days)
        node = Episodic(text, id=id, session_id="s", episode_id=episode, at=at, created_at=at)
        await self.repo.apply(Changeset((node,)))
        return id

    async def instruction(self, text: str, id: str, intent: str, *, days: float = 0) -> str:
        """A stored instruction that serves an intent."""
        node = Procedural(text, "when asked", id=id, created_at=self.ago(days))
        goal = Intent(intent, created_at=self.ago(days))
        edge = Edge(goal.id, id, EdgeKind.HIERARCHICAL)
        await self.repo.apply(Changeset((node, goal), (edge,)))
        return id

    async def accessed(self, id: str, count: int, *, hours: float = 0) -> None:
        """Count accesses, the last one so many hours ago."""
        await self.graph.touch({id: count}, self.kit.clock.now() - timedelta(hours=hours))

    async def ids(self, *types: str) -> set[str]:
        """The ids of all stored nodes of *types*."""
        return {node.id for node in await self.repo.get_nodes(types)}

    async def edges(self, *ids: str) -> set[Edge]:
        return set(await self.graph.edges(ids))

    async def twins(self, a: str = "a", b: str = "b", **fields: Any) -> None:
        """Two facts that say the same, at a cosine that commits do not unite."""
        await self.fact("Ana likes green tea", a, vector=at_cosine(1.0), **fields)
        await self.fact("Ana likes green tea very much", b, vector=at_cosine(0.9), **fields)

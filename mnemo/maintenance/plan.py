"""What maintenance operations share: their inputs, and the plan that they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from mnemo.config import Config
from mnemo.errors import StoreCorrupt
from mnemo.graph.graph import StoredGraph
from mnemo.index.corpus import CorpusView
from mnemo.index.follower import RepositoryIndex
from mnemo.protocols import Clock, Embedder
from mnemo.runtime.clock import Breather
from mnemo.runtime.progress import reached
from mnemo.runtime.tasks import Threads
from mnemo.values.changeset import Revision, Upkeep
from mnemo.values.graph import Node, NodeMetadata, NodeType

T = TypeVar("T")

PIECE = 500
"""Nodes per read of the store, and per turn of a worker thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What plans are made from; *config* has the profile's scoring, *passed* gets damaged rows."""

    graph: StoredGraph
    index: RepositoryIndex
    embedder: Embedder
    clock: Clock
    config: Config
    threads: Threads
    passed: list[StoreCorrupt] = field(default_factory=list)

    async def nodes(self, ids: Sequence[str]) -> list[Node]:
        """Those of *ids* that there are. *Cancellation*: safe."""
        return await self.graph.nodes(ids, intact=self.passed)

    async def metadata(self, ids: Sequence[str]) -> dict[str, NodeMetadata]:
        """Entries of *ids*, read in pieces. *Cancellation*: safe."""
        found: dict[str, NodeMetadata] = {}
        for piece in pieces(ids):
            found.update(await self.graph.metadata(piece, intact=self.passed))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(ABC):
    """What an operation found out about one *revision*: *checked* nodes were looked at."""

    sources: Sources
    revision: Revision
    checked: int

    @abstractmethod
    async def upkeep(self, view: CorpusView) -> Upkeep:
        """What to do to the graph; nodes changed since planning are left. *Cancellation*: safe."""

    async def unchanged(self, view: CorpusView, nodes: Iterable[Node]) -> set[str]:
        """The ids of those of *nodes* that are in *view* what they were."""
        return await self.sources.threads.run(_unchanged, view, [*nodes], self.revision)

    def counts(self, upkeep: Upkeep) -> dict[str, int]:
        """Fields of the report if *upkeep* was done; for a worker thread, too."""
        return {"checked": self.checked}


def pieces(items: Sequence[T], *, size: int = PIECE) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def living(
    sources: Sources, view: CorpusView, types: Iterable[NodeType]
) -> AsyncGenerator[tuple[NodeType, Sequence[str]], None]:
    """The nodes of *types* in pieces, each in order of its last change. *Cancellation*: safe."""
    found = {type: await sources.threads.run(_living, view, type) for type in types}
    done, total = 0, sum(map(len, found.values()))
    for type, ids in found.items():
        for piece in pieces(ids):
            reached(done, total)
            yield type, piece
            done += len(piece)


def _living(view: CorpusView, type: NodeType) -> list[str]:
    parts = view.parts(type)
    return [id for part in parts for id in part.named(np.flatnonzero(part.view.alive))]


def _unchanged(view: CorpusView, nodes: Sequence[Node], revision: Revision) -> set[str]:
    found, breather = set[str](), Breather()
    for piece in pieces(nodes):
        for type in {node.type for node in piece}:
            ids = [node.id for node in piece if node.type == type]
            for part in view.parts(type):
                which, numbers = part.find(ids)
                # A node that is written again is a new document.
                found.update(ids[one] for one in which[part.view.born[numbers] <= revision])
            breather.breathe()
    return found

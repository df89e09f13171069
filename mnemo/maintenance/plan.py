"""What maintenance operations share: their inputs, and the plan that they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mnemo.config import Config
from mnemo.errors import StoreCorrupt
from mnemo.graph.graph import StoredGraph
from mnemo.index.corpus import CorpusView, DocumentsView
from mnemo.index.follower import RepositoryIndex
from mnemo.protocols import Clock, Embedder
from mnemo.runtime.tasks import Threads
from mnemo.values.changeset import Upkeep
from mnemo.values.graph import Node, NodeMetadata

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

    async def metadata(self, ids: Sequence[str]) -> dict[str, NodeMetadata]:
        """Entries of *ids*, read in pieces. *Cancellation*: safe."""
        found: dict[str, NodeMetadata] = {}
        for piece in pieces(ids):
            found.update(await self.graph.metadata(piece, intact=self.passed))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(ABC):
    """What an operation found out about one revision: *checked* nodes were looked at."""

    checked: int

    @abstractmethod
    def upkeep(self, view: CorpusView) -> Upkeep:
        """What to do to the graph; nodes changed since planning are left. For a worker thread."""

    def counts(self, upkeep: Upkeep) -> dict[str, int]:
        """Fields of the report if *upkeep* was done; for a worker thread, too."""
        return {"checked": self.checked}


def pieces(items: Sequence[T], *, size: int = PIECE) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def living(documents: DocumentsView | None) -> list[Node]:
    """The nodes of one type, in order of their last change."""
    if documents is None:
        return []
    alive = documents.alive.tolist()
    nodes = zip(documents.nodes, alive, strict=False)
    return [node for node, lives in nodes if lives and node is not None]


def holds_still(view: CorpusView, node: Node) -> bool:
    """Whether *node* is unchanged: the index keeps one object per node until it changes."""
    documents = view.of_type(node.type)
    return documents is not None and any(
        documents.nodes[number] is node for number in documents.of(node.id)
    )

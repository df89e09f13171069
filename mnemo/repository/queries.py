"""Looking at what is stored: read-only, of one revision, superseded facts included."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mnemo.graph.edges import Edge, EdgeKind
from mnemo.graph.metadata import NodeMetadata
from mnemo.graph.nodes import NODE_TYPES, Node, NodeType
from mnemo.repository.parts import RepositoryParts
from mnemo.runtime.validation import known_id, whole_number

__all__ = ["GraphQueries", "known_ids"]


class GraphQueries(ABC):
    """The queries of a ``Repository``; recall says what holds, these what is stored."""

    _parts: RepositoryParts

    @abstractmethod
    def _check_usable(self) -> None:
        """Raise ``UsageError`` where the repository is closed."""

    async def get_node(self, id: str) -> Node | None:
        """The node, superseded or not; ``None`` if there is none. *Cancellation*: safe."""
        self._check_usable()
        nodes = await self._parts.graph.nodes([known_id("id", id)])
        return nodes[0] if nodes else None

    async def get_nodes(self, types: Sequence[str]) -> list[Node]:
        """All nodes of *types*, oldest first. *Raises* ``ValueError`` for an unknown type."""
        self._check_usable()
        return await self._parts.graph.nodes(types=_checked_types(types))

    async def get_metadata(self, ids: Sequence[str]) -> dict[str, NodeMetadata]:
        """Entries of the ids that exist; unknown ids are absent. *Cancellation*: safe."""
        self._check_usable()
        return await self._parts.graph.metadata(known_ids(ids))

    async def get_edges(
        self, ids: Sequence[str], *, edge_type: EdgeKind | str | None = None
    ) -> list[Edge]:
        """
        The edges of *edge_type* (``None``: all) with an end among *ids*.

        Raises:
            ValueError: Unknown edge type. *Cancellation*: safe.
        """
        self._check_usable()
        kind = EdgeKind(edge_type) if edge_type is not None else None
        return await self._parts.graph.edges(known_ids(ids), kind=kind)

    async def get_linked_nodes(
        self, ids: Sequence[str], *, edge_type: EdgeKind | str | None = None
    ) -> list[Node]:
        """
        The neighbours of *ids* over edges of *edge_type* (``None``: all), each once.

        Both directions; a node of *ids* appears only if it neighbours another of them.

        Raises:
            ValueError: Unknown edge type. *Cancellation*: safe.
        """
        self._check_usable()
        wanted = set(known_ids(ids))
        found: dict[str, None] = {}
        for edge in await self.get_edges(list(wanted), edge_type=edge_type):
            if edge.source in wanted:
                found[edge.target] = None
            if edge.target in wanted:
                found[edge.source] = None
        return await self._parts.graph.nodes(list(found))

    async def latest(
        self, top_k: int = 10, *, types: Sequence[str] = ("semantic", "procedural")
    ) -> list[tuple[Node, NodeMetadata]]:
        """
        The newest nodes of *types* with their metadata, newest first, ties by id.

        Raises:
            ValueError: *top_k* is no whole number from 1, or an unknown type. *Cancellation*: safe.
        """
        self._check_usable()
        whole_number("top_k", top_k, 1)
        nodes = await self._parts.graph.nodes(types=_checked_types(types), newest=top_k)
        metadata = await self._parts.graph.metadata([node.id for node in nodes])
        return [(node, metadata[node.id]) for node in nodes if node.id in metadata]


def known_ids(ids: Sequence[str]) -> list[str]:
    """*ids*, to look up. *Raises* ``ValueError``: it is one text, or one of them is none."""
    if isinstance(ids, str):
        raise ValueError(f"ids must be a list of ids, not one text: give [{ids!r}]")
    return [known_id("an id", id) for id in ids]


def _checked_types(types: Sequence[str]) -> list[NodeType]:
    """*types* as node types. *Raises* ``ValueError`` for an unknown one."""
    unknown = [name for name in types if name not in NODE_TYPES]
    if unknown or isinstance(types, str):
        raise ValueError(f"unknown node types {unknown or types!r}; known: {sorted(NODE_TYPES)}")
    return [name for name in NODE_TYPES if name in types]

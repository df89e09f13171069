"""Draw a graph as one HTML page that needs no network."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from mnemo import Edge, Episodic, Node, NodeMetadata, Procedural, Repository, Semantic
from mnemo.runtime.text import one_line

__all__ = ["DRAWN", "graph_data", "graph_page"]

DRAWN = ("semantic", "procedural", "episodic", "subgoal", "intent", "tag")
"""Types of node on the page; a source says again what its step says."""


async def graph_data(repo: Repository, *, limit: int) -> dict[str, Any]:
    """
    What the page shows: at most *limit* nodes, the best connected, and the edges between them.

    Raises:
        ValueError: *limit* is less than 1.
    """
    if limit < 1:
        raise ValueError(f"the limit must be at least 1, not {limit}")
    nodes = await repo.get_nodes(DRAWN)
    edges = await repo.get_edges([node.id for node in nodes])
    shown = _best_connected(nodes, edges, limit)
    place = {node.id: number for number, node in enumerate(shown)}
    metadata = await repo.get_metadata(list(place))
    return {
        "repo": repo.id,
        "revision": (await repo.statistics()).revision,
        "total": len(nodes),
        "nodes": [_node_data(node, metadata.get(node.id)) for node in shown],
        "edges": [
            [place[edge.source], place[edge.target], str(edge.kind)]
            for edge in edges
            if edge.source in place and edge.target in place
        ],
    }


def graph_page(data: dict[str, Any]) -> str:
    """The page of *data*."""
    template = files("mnemo.cli").joinpath("graph_page.html").read_text(encoding="utf-8")
    # Stored text must end neither the element it stands in nor begin another one.
    written = json.dumps(data).replace("<", "\\u003c").replace(">", "\\u003e")
    return template.replace("__GRAPH__", written)


def _best_connected(nodes: Sequence[Node], edges: Sequence[Edge], limit: int) -> list[Node]:
    degree = Counter(end for edge in edges for end in (edge.source, edge.target))
    return sorted(nodes, key=lambda node: -degree[node.id])[:limit]


def _node_data(node: Node, metadata: NodeMetadata | None) -> dict[str, Any]:
    return {
        "type": node.type,
        "text": one_line(node.text),
        "gone": isinstance(node, Semantic) and node.valid_to is not None,
        "facts": {name: value for name, value in _facts(node, metadata).items() if value},
    }


def _facts(node: Node, metadata: NodeMetadata | None) -> dict[str, str | None]:
    facts: dict[str, str | None] = {"id": node.id}
    match node:
        case Semantic():
            facts["confidence"] = f"{node.confidence:.2f}"
            facts["valid from"] = f"{node.valid_from:%Y-%m-%d}" if node.valid_from else None
            facts["valid to"] = f"{node.valid_to:%Y-%m-%d}" if node.valid_to else None
            facts["superseded by"] = node.superseded_by
        case Procedural():
            facts["expect"] = one_line(node.expected_outcome)
            facts["return"] = None if node.return_score is None else f"{node.return_score:.2f}"
        case Episodic():
            facts["actor"] = node.actor
            facts["at"] = f"{node.at:%Y-%m-%d %H:%M}" if node.at else None
            facts["step"] = f"{node.session_id}#{node.step_index}"
            facts["reward"] = None if node.reward is None else f"{node.reward:.2f}"
    return facts | _counts(metadata)


def _counts(metadata: NodeMetadata | None) -> dict[str, str | None]:
    if metadata is None:
        return {}
    mean = metadata.mean_reward
    return {
        "stored": f"{metadata.created_at:%Y-%m-%d %H:%M}",
        "accesses": str(metadata.access_count),
        "stated by": f"{metadata.support_count} episodes" if metadata.support_count else None,
        "mean reward": None if mean is None else f"{mean:.2f}",
        "penalty": f"{metadata.penalty:.2f}" if metadata.penalty else None,
    }

"""Graphiti with Kuzu: each text is the fact of an edge between two nodes; no model is asked."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphiti_core import Graphiti
from graphiti_core.cross_encoder.client import CrossEncoderClient
from graphiti_core.driver.driver import GraphProvider
from graphiti_core.driver.kuzu_driver import KuzuDriver
from graphiti_core.edges import EntityEdge
from graphiti_core.embedder.client import EmbedderClient
from graphiti_core.graph_queries import get_fulltext_indices
from graphiti_core.llm_client.client import LLMClient
from graphiti_core.llm_client.config import LLMConfig
from graphiti_core.nodes import EntityNode
from peer_kit import TOP, Peer, drive, embed

GROUP = "bench"


class Embedder(EmbedderClient):
    """The bench's embedder."""

    async def create(self, input_data: Any) -> list[float]:
        return embed([input_data] if isinstance(input_data, str) else input_data)[0]

    async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
        return embed(input_data_list)


class StubModel(LLMClient):
    """Graphiti demands a chat model; extraction, which would ask it, is left out."""

    async def _generate_response(self, *messages: Any, **options: Any) -> dict[str, Any]:
        raise RuntimeError("the bench asks no model")


class StubReranker(CrossEncoderClient):
    """Graphiti demands a reranker; its plain search does not ask it."""

    async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
        raise RuntimeError("the bench asks no reranker")


class GraphitiPeer(Peer):
    """Facts between one pair of nodes, saved as extraction would save them."""

    durability = "Kuzu's write-ahead log, one commit for each"

    def __init__(self, graph: Graphiti, pair: tuple[str, str]) -> None:
        self.graph, self.pair = graph, pair

    async def add(self, id: str, text: str) -> None:
        edge = EntityEdge(
            name=id,
            fact=text,
            group_id=GROUP,
            source_node_uuid=self.pair[0],
            target_node_uuid=self.pair[1],
            created_at=datetime.now(UTC),
        )
        await edge.generate_embedding(self.graph.embedder)
        await edge.save(self.graph.driver)

    async def count(self) -> int:
        query = "MATCH (n:RelatesToNode_) RETURN count(*) AS stored"
        rows, _, _ = await self.graph.driver.execute_query(query)
        return int(rows[0]["stored"])

    async def search(self, query: str) -> list[str]:
        found = await self.graph.search(query, group_ids=[GROUP], num_results=TOP)
        return [edge.name for edge in found]


@asynccontextmanager
async def open_graphiti(folder: Path) -> AsyncIterator[Peer]:
    """A graph in a file, with the full-text indexes that its search reads."""
    warnings.simplefilter("ignore", DeprecationWarning)
    driver = KuzuDriver(db=str(folder / "graph.kuzu"))
    for statement in get_fulltext_indices(GraphProvider.KUZU):
        await driver.execute_query(statement)
    graph = Graphiti(
        graph_driver=driver,
        llm_client=StubModel(LLMConfig(api_key="never used")),
        embedder=Embedder(),
        cross_encoder=StubReranker(),
    )
    nodes = [EntityNode(name=name, group_id=GROUP) for name in ("user", "memory")]
    for node in nodes:
        await node.generate_name_embedding(graph.embedder)
        await node.save(driver)
    yield GraphitiPeer(graph, (nodes[0].uuid, nodes[1].uuid))
    driver.client.close()


if __name__ == "__main__":
    drive(open_graphiti, module="graphiti_core", packages=["graphiti-core", "kuzu"])

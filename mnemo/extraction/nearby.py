"""The stored facts that a model is shown beside a trajectory, to say which no longer hold."""

from __future__ import annotations

from collections.abc import Sequence

from mnemo.extraction.embedding import TextEmbedder
from mnemo.graph.nodes import Semantic
from mnemo.prompts.semantic import StoredFact
from mnemo.protocols import Embedder, GraphStore, VectorIndex

__all__ = ["StoredFacts"]


class StoredFacts:
    """A ``NearbyFacts`` over one repository; facts that no longer hold are not shown."""

    def __init__(self, *, graph: GraphStore, index: VectorIndex, embedder: Embedder) -> None:
        self._graph = graph
        self._index = index
        self._embedder = TextEmbedder(embedder, capacity=0)

    async def __call__(self, text: str, limit: int) -> Sequence[StoredFact]:
        """
        Give at most *limit* facts nearest to *text*, best first.

        Raises:
            ModelError: Of the embedder.
            StoreError: The graph cannot be read. *Cancellation*: safe.
        """
        rows = await self._embedder.embed([text])
        await self._index.catch_up()
        # Twice as many as are shown: some of them may have been superseded.
        (found,) = await self._index.nearest(rows, type="semantic", threshold=0.0, limit=2 * limit)
        nodes = await self._graph.nodes([id for id, _ in found], intact=True)
        facts = [node for node in nodes if isinstance(node, Semantic) and node.valid_to is None]
        return [StoredFact(fact.id, fact.proposition) for fact in facts[:limit]]

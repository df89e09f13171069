"""An embedder behind the door for user code, whose calls can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mnemo.protocols import Embedder, EmbeddingSpace
from mnemo.runtime.spans import Spans, model_attributes
from mnemo.runtime.user_code import called

__all__ = ["traced"]


def traced(embedder: Embedder, spans: Spans) -> Embedder:
    """
    *embedder*, which can raise nothing but an ``Exception`` now.

    One that names its ``provider`` has a span for every call; one that computes in this
    process names none.
    """
    if not spans.active or not hasattr(embedder, "provider"):
        return _ForeignEmbedder(embedder)
    return _TracedEmbedder(embedder, spans)


class _ForeignEmbedder:
    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def space(self) -> EmbeddingSpace:
        return self._embedder.space

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = await called(self._embedder.embed, texts, kind=kind)
        return rows


class _TracedEmbedder(_ForeignEmbedder):
    def __init__(self, embedder: Embedder, spans: Spans) -> None:
        super().__init__(embedder)
        self._spans = spans
        self._named = {
            **model_attributes("embeddings", embedder),
            "gen_ai.embeddings.dimension.count": embedder.space.dimensions,
        }
        model = self._named.get("gen_ai.request.model", embedder.space.name)
        self._name = f"embeddings {model}"

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        with self._spans.span(self._name, kind="client", attributes=self._named) as span:
            span.set("mnemo.embeddings.texts", len(texts))
            span.set("mnemo.embeddings.kind", kind)
            return await super().embed(texts, kind=kind)

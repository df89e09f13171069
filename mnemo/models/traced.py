"""An embedder whose calls can be seen, where it asks somebody outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mnemo._spans import Spans, model_attributes
from mnemo.protocols import Embedder, EmbeddingSpace

__all__ = ["traced"]


def traced(embedder: Embedder, spans: Spans) -> Embedder:
    """
    *embedder* with a span for every call, if it names its ``provider``.

    One that computes in this process names none, and is given back as it is.
    """
    if not spans.active or not hasattr(embedder, "provider"):
        return embedder
    return _TracedEmbedder(embedder, spans)


class _TracedEmbedder:
    def __init__(self, embedder: Embedder, spans: Spans) -> None:
        self._embedder = embedder
        self._spans = spans
        self._named = {
            **model_attributes("embeddings", embedder),
            "gen_ai.embeddings.dimension.count": embedder.space.dimensions,
        }
        model = self._named.get("gen_ai.request.model", embedder.space.name)
        self._name = f"embeddings {model}"

    @property
    def space(self) -> EmbeddingSpace:
        return self._embedder.space

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        with self._spans.span(self._name, kind="client", attributes=self._named) as span:
            span.set("mnemo.embeddings.texts", len(texts))
            span.set("mnemo.embeddings.kind", kind)
            return await self._embedder.embed(texts, kind=kind)

"""Wrappers of an embedder: one that traces its calls, one that can be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import anyio
import numpy as np
from numpy.typing import NDArray

from mnemo.errors import ModelError, ModelUnavailable
from mnemo.protocols import Embedder, EmbeddingSpace
from mnemo.runtime.spans import Spans, model_attributes
from mnemo.runtime.user_code import called, foreign


def traced(embedder: Embedder, spans: Spans) -> Embedder:
    """
    *embedder*, which can raise nothing but a ``ModelError`` now.

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
        try:
            rows: NDArray[np.float32] = await called(self._embedder.embed, texts, kind=kind)
        except ModelError:
            raise
        except Exception as error:
            raise foreign("the embedder", error) from error
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


class MovableEmbedder:
    """
    Passes everything on to an embedder that can be replaced.

    From ``hold`` to ``release`` it embeds no query, so that recall goes by keywords;
    documents wait for ``move_to`` (or ``release``) and are then embedded in the new space.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._settled: anyio.Event | None = None
        self._mute = False

    @property
    def space(self) -> EmbeddingSpace:
        """That of the embedder behind it at this moment."""
        return self._embedder.space

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """
        Embed *texts*; shape ``(len(texts), d)``, unit rows. *Cancellation*: safe.

        Raises:
            ModelUnavailable: A query, while the space changes. Else as the one behind it.
        """
        if self._mute and kind == "query":
            raise ModelUnavailable("the repository changes its embedding space", retryable=True)
        if self._settled is not None:
            await self._settled.wait()
        return await self._embedder.embed(texts, kind=kind)

    def hold(self) -> None:
        """The space is about to change."""
        self._mute, self._settled = True, anyio.Event()

    def move_to(self, embedder: Embedder) -> None:
        """It has changed: documents are embedded by *embedder* from now on."""
        self._embedder = embedder
        self._let_go()

    def release(self) -> None:
        """What recall searches is of the present space again."""
        self._mute = False
        self._let_go()

    def _let_go(self) -> None:
        if self._settled is not None:
            self._settled.set()
            self._settled = None

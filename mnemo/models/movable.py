"""The embedder of an open repository, which may move to another space while it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import anyio
import numpy as np
from numpy.typing import NDArray

from mnemo.errors import ModelUnavailable
from mnemo.protocols import Embedder, EmbeddingSpace

__all__ = ["MovableEmbedder"]


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

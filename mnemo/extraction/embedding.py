"""Embed texts for the pipeline; recent vectors are cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mnemo.protocols import Embedder
from mnemo.values.graph import Vector
from mnemo.values.vectors import unit_rows

CACHED_TEXTS = 64
"""Texts whose vectors are kept; a session repeats its last few subgoals (S)."""


class TextEmbedder:
    """
    An ``Embedder`` of unit rows, with a small LRU cache.

    Not for threads: one event loop at a time.

    Args:
        capacity: Texts that ``remembered`` keeps, least recently used first out.
    """

    def __init__(self, embedder: Embedder, *, capacity: int = CACHED_TEXTS) -> None:
        self._embedder = embedder
        self._capacity = capacity
        self._kept: OrderedDict[str, Vector] = OrderedDict()

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """
        Embed *texts* as documents; shape ``(len(texts), d)``, unit rows.

        Raises:
            ModelError: Of the embedder, or a result of wrong shape. *Cancellation*: safe.
        """
        if not texts:
            return np.zeros((0, self._embedder.space.dimensions), dtype=np.float32)
        reply = await self._embedder.embed(texts)
        dimensions = self._embedder.space.dimensions
        return unit_rows(reply, rows=len(texts), dimensions=dimensions)

    async def remembered(self, texts: Sequence[str]) -> dict[str, Vector]:
        """
        Give each text its vector, the very same one for as long as it is kept.

        Raises:
            ModelError: As ``embed``. *Cancellation*: safe.
        """
        found = {text: self._kept[text] for text in texts if text in self._kept}
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        found |= zip(missing, await self.embed(missing), strict=True)
        self._keep(found)
        return found

    def _keep(self, found: dict[str, Vector]) -> None:
        for text, vector in found.items():
            self._kept[text] = vector
            self._kept.move_to_end(text)
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)

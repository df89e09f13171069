"""An embedder without a model: hashed terms, for tests and where no weights are wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mnemo.protocols import EmbeddingSpace
from mnemo.runtime.clock import Breather
from mnemo.runtime.tasks import Threads
from mnemo.runtime.text import clean, terms


class HashingEmbedder:
    """
    Feature hashing of a text's terms: cosines say how many words two texts share.

    The same on every machine and in every run. A text without any term gets one fixed
    vector, so that every row is of unit length.

    Args:
        dimensions: Width of the vectors, at least 2; fewer make more terms collide.

    Raises:
        ValueError: *dimensions* is below 2.
    """

    def __init__(self, dimensions: int = 256) -> None:
        if dimensions < 2:
            raise ValueError(f"dimensions must be at least 2, not {dimensions}")
        self._space = EmbeddingSpace(f"hashing-{dimensions}", dimensions, dense_weight=0.2)
        self._threads = Threads()

    @property
    def space(self) -> EmbeddingSpace:
        """``hashing-<dimensions>``, dense weight 0.2."""
        return self._space

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """Embed *texts*; shape ``(len(texts), d)``, unit rows. *Cancellation*: safe."""
        return await self._threads.run(self._embed, tuple(texts))

    def _embed(self, texts: tuple[str, ...]) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), self._space.dimensions), np.float32)
        breather = Breather()
        for row, text in zip(rows, texts, strict=True):
            self._fill(row, text)
            breather.breathe()
        return rows

    def _fill(self, row: NDArray[np.float32], text: str) -> None:
        for term in terms(clean(text)):
            place, sign = _place(term, row.shape[0])
            row[place] += sign
        length = float(np.linalg.norm(row))
        if length == 0:
            row[0] = length = 1.0
        row /= length


@lru_cache(maxsize=2_048)
def _place(term: str, dimensions: int) -> tuple[int, float]:
    # Not hash(): it differs from run to run.
    number = int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "little")
    return (number >> 1) % dimensions, 1.0 if number & 1 else -1.0

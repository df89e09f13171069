"""Rows of vectors, checked once on the way in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import InvalidReply

__all__ = ["unit_rows"]


def unit_rows(reply: object, *, rows: int, dimensions: int) -> NDArray[np.float32]:
    """
    Give an embedder's reply as float32 rows of length 1.

    Args:
        reply: What the embedder returned; anything that NumPy takes for an array.
        rows: How many texts it was asked for.
        dimensions: Width of its space.

    Raises:
        InvalidReply: If a row is missing, of wrong width, zero or not finite.
    """
    vectors = np.asarray(reply, dtype=np.float32)
    if vectors.shape != (rows, dimensions):
        raise InvalidReply(
            f"the embedder gave an array of shape {vectors.shape}, not {(rows, dimensions)}"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.all(np.isfinite(lengths)) or not np.all(lengths > 0):
        raise InvalidReply("the embedder gave a vector that is zero or not finite")
    unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32, copy=False)
    return unit

"""Rows of vectors: checked once on the way in, and a bound of how near they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import InvalidReply

COSINE_ROUNDING = 1e-6
"""What float32 may take from a cosine: "equal to the threshold" must not become "below"."""

HEAD = 64
"""
Numbers of a vector that are looked at first. Of dialogue turns in the embedded default's
space they leave 1 in 2,000 to be compared at a threshold of 0.92; 32 leave 1 in 20.
"""
_TOGETHER = 16
_PIECE = 256
"""Rows per product, so few that BLAS starts no threads: they spin for one another."""
ROUNDING = 1e-4
"""What single precision may take from a bound."""


def unit_rows(reply: object, *, rows: int, dimensions: int) -> NDArray[np.float32]:
    """
    Give an embedder's reply as float32 rows of length 1.

    Args:
        reply: What the embedder returned; anything that NumPy takes for an array.
        rows: How many texts it was asked for.
        dimensions: Width of its space.

    Raises:
        InvalidReply: It is no array of numbers, or a row is missing, of wrong width, zero or
            not finite.
    """
    try:
        vectors = np.asarray(reply, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidReply(f"the embedder gave what is no array of numbers: {error}") from error
    if vectors.shape != (rows, dimensions):
        raise InvalidReply(
            f"the embedder gave an array of shape {vectors.shape}, not {(rows, dimensions)}"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.all(np.isfinite(lengths)) or not np.all(lengths > 0):
        raise InvalidReply("the embedder gave a vector that is zero or not finite")
    unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32, copy=False)
    return unit


class Heads:
    """
    The first numbers of unit vectors and the length of the rest, to tell who may be near.

    With ``a = (h, r)`` and ``b = (h', r')`` the cosine is ``h·h' + r·r'``, which is at
    most ``h·h' + |r||r'|``: what stays below a threshold by that need not be looked at.
    Nothing near is missed in any space; few are looked at where the first numbers say
    most, as in the embedded default's.

    Args:
        heads: Shape ``(rows, up to HEAD)``.
        tails: Length of what each row leaves out.
    """

    __slots__ = ("heads", "tails")

    def __init__(self, heads: NDArray[np.float32], tails: NDArray[np.float32]) -> None:
        self.heads = heads
        self.tails = tails

    def hopeful(self, vectors: NDArray[np.float32], threshold: float) -> Iterator[NDArray[np.intp]]:
        """For each of *vectors* the rows whose cosine with it may reach *threshold*."""
        for start in range(0, len(vectors), _TOGETHER):
            heads, tails = head_and_tail(vectors[start : start + _TOGETHER])
            bounds = np.multiply.outer(tails, self.tails)
            for at in range(0, len(self.heads), _PIECE):
                bounds[:, at : at + _PIECE] += heads @ self.heads[at : at + _PIECE].T
            for reached in bounds >= threshold - ROUNDING:
                yield np.flatnonzero(reached)


def head_and_tail(
    vectors: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The first numbers of each row of *vectors*, and the length of the others."""
    tails = np.sqrt(np.einsum("ij,ij->i", vectors[:, HEAD:], vectors[:, HEAD:]))
    return np.ascontiguousarray(vectors[:, :HEAD]), tails

"""Where one trajectory ends and the next begins."""

from __future__ import annotations

import numpy as np

from mnemo.graph.nodes import Vector
from mnemo.graph.vectors import COSINE_ROUNDING

__all__ = ["is_boundary"]


def is_boundary(previous: Vector | None, current: Vector, threshold: float) -> bool:
    """
    Decide whether *current* starts a new trajectory.

    A boundary is where the subgoal changes: the cosine between consecutive subgoal
    embeddings falls below the threshold; equal to it is no boundary.

    Args:
        previous: Unit-norm float32 vector, shape ``(d,)``; ``None`` for the first step.
        current: Same shape and norm.
        threshold: Cosine in ``[-1, 1]``.

    Raises:
        ValueError: If the shapes differ.

    Source:
        PlugMem (arXiv 2603.03296): 0.75.
    """
    if previous is None:
        return False
    if previous.shape != current.shape:
        raise ValueError(f"shapes differ: {previous.shape} and {current.shape}")
    return float(np.dot(previous, current)) < threshold - COSINE_ROUNDING

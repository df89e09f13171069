"""What a step's neighbours in its session lend to it. NumPy only, no await."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemo.values.corpus import StepsView

__all__ = ["Chain"]

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chain:
    """Each document's eligible neighbours in its session; number 0 where there is none."""

    previous: Ints
    has_previous: Mask
    next: Ints
    has_next: Mask

    @classmethod
    def of(cls, view: StepsView, ok: Mask) -> Chain:
        """The neighbours among the documents *ok*."""
        previous = np.maximum(view.previous, 0)
        has_previous = (view.previous >= 0) & ok[previous] & ok
        beyond = (view.next < 0) | (view.next >= view.count)
        following = np.where(beyond, 0, view.next)
        return cls(previous, has_previous, following, ~beyond & ok[following] & ok)

    def before(self, values: Floats) -> Floats:
        """Of each document's previous one; 0 where there is none."""
        return np.where(self.has_previous, values.take(self.previous), np.float32(0))

    def after(self, values: Floats) -> Floats:
        """Of each document's next one; 0 where there is none."""
        return np.where(self.has_next, values.take(self.next), np.float32(0))

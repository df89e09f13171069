"""Arrays that grow at the end while readers look at what was there before."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Column"]

_FIRST_CAPACITY = 64


class Column:
    """
    A growable array: one writer appends, readers keep the views they took.

    Growing copies into a new buffer, so a view stays as it was; rows below a view's
    length are never written again, except by ``replace``, which copies first.

    Args:
        dtype: Of the elements.
        width: Length of each row; ``None`` for single numbers.
    """

    __slots__ = ("_data", "count")

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        shape = (_FIRST_CAPACITY,) if width is None else (_FIRST_CAPACITY, width)
        self._data: NDArray[Any] = np.zeros(shape, dtype)
        self.count = 0

    def append(self, value: Any) -> None:
        """Add one row."""
        self._reserve(1)
        self._data[self.count] = value
        self.count += 1

    def extend(self, values: Any) -> None:
        """Add the rows of *values*."""
        added = len(values)
        self._reserve(added)
        self._data[self.count : self.count + added] = values
        self.count += added

    def replace(self, rows: Any, value: Any) -> None:
        """Set *rows* to *value* in a copy; views taken before keep what they had."""
        self._data = self._data.copy()
        self._data[rows] = value

    def link(self, rows: Any, values: Any) -> None:
        """Set *rows* where they are: for what no reader looks at before it is set."""
        self._data[rows] = values

    def view(self, count: int | None = None) -> NDArray[Any]:
        """The first *count* rows, or all, without a copy."""
        return self._data[: self.count if count is None else count]

    def _reserve(self, more: int) -> None:
        needed = self.count + more
        if needed <= len(self._data):
            return
        grown = np.zeros(
            (max(needed, 2 * len(self._data)), *self._data.shape[1:]), self._data.dtype
        )
        grown[: self.count] = self._data[: self.count]
        self._data = grown

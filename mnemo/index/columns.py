"""Arrays that grow at the end while readers look at what was there before."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_FIRST_CAPACITY = 64
_GATHERED = 1_024
"""Rows that are gathered at most: more would hold the interpreter for long when written."""


class Column:
    """
    A growable array: one writer appends, readers keep the views they took.

    Growing copies into a new buffer, so a view stays as it was; rows below a view's
    length are never written again, except by ``replace``, which copies first. Single
    rows are gathered, and written when they are asked for: only the writer calls
    ``view`` of a column that it appends to.

    Args:
        dtype: Of the elements.
        width: Length of each row; ``None`` for single numbers.
        capacity: Rows that are reserved from the beginning, at least 1.
    """

    __slots__ = ("_data", "_fresh", "count")

    def __init__(
        self, dtype: Any, width: int | None = None, *, capacity: int = _FIRST_CAPACITY
    ) -> None:
        shape = (capacity,) if width is None else (capacity, width)
        self._data: NDArray[Any] = np.zeros(shape, dtype)
        self._fresh: list[Any] = []
        self.count = 0

    def append(self, value: Any) -> None:
        """Add one row."""
        self._fresh.append(value)
        self.count += 1
        if len(self._fresh) >= _GATHERED:
            self._settle()

    def extend(self, values: Any) -> None:
        """Add the rows of *values*."""
        self._settle()
        self._write(values)
        self.count += len(values)

    def replace(self, rows: Any, value: Any) -> None:
        """Set *rows* to *value* in a copy; views taken before keep what they had."""
        self._settle()
        self._data = self._data.copy()
        self._data[rows] = value

    def link(self, rows: Any, values: Any) -> None:
        """Set *rows* where they are: for what no reader looks at before it is set."""
        self._settle()
        self._data[rows] = values

    def view(self, count: int | None = None) -> NDArray[Any]:
        """The first *count* rows, or all, without a copy."""
        self._settle()
        # First the length: a buffer that is read later holds at least as many rows.
        rows = self.count if count is None else count
        return self._data[:rows]

    def _settle(self) -> None:
        """Write the rows that were gathered."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self.count -= len(fresh)
            self._write(fresh)
            self.count += len(fresh)

    def _write(self, values: Any) -> None:
        end = self.count + len(values)
        if end > len(self._data):
            # What is reserved takes no memory before it is written to.
            rows = max(end, (2 if self._data.ndim == 1 else 4) * len(self._data))
            grown = np.zeros((rows, *self._data.shape[1:]), self._data.dtype)
            grown[: self.count] = self._data[: self.count]
            self._data = grown
        self._data[self.count : end] = values

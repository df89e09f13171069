"""The vectors of a repository's items in memory, read on from the store before each search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from mnemo.items.item_rows import ItemReader, StoredItems
from mnemo.values.items import Item, ItemVectorRows, SearchItems, filter_matches

PAGE = 5_000
"""Vectors that one transaction reads (S)."""
SMALLEST = 1_024
"""Rows below which nothing deleted is looked for (S)."""


class VectorView(NamedTuple):
    """Vectors as of one moment: their numbers, ascending, and the vectors as rows."""

    numbers: NDArray[np.int64]
    matrix: NDArray[np.float32]

    def cosines(
        self, reader: ItemReader, numbers: NDArray[np.int64], query: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """
        Cosines of the vectors *numbers* to *query*, a unit vector.

        What is not in the view yet is read from *reader*; a damaged vector gets NaN.
        """
        found = np.full(len(numbers), np.nan, dtype=np.float32)
        if not len(numbers):
            return found
        places = np.searchsorted(self.numbers, numbers)
        known = places < len(self.numbers)
        known[known] = self.numbers[places[known]] == numbers[known]
        if known.any():
            found[known] = self._products(places[known], query)
        if not known.all():
            fresh, matrix = reader.vectors_of(numbers[~known].tolist())
            found[np.searchsorted(numbers, fresh)] = matrix @ query
        return found

    def _products(
        self, places: NDArray[np.intp], query: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Gathering single rows takes longer than multiplying all, if they are many."""
        if 2 * len(places) > len(self.matrix):
            products: NDArray[np.float32] = (self.matrix @ query)[places]
            return products
        return self.matrix[places] @ query


class ItemVectors:
    """
    Follows the vectors of one repository's items by their numbers.

    A deleted one stays in memory, where nobody asks for it, until half of all are deleted.
    """

    def __init__(self, store: StoredItems) -> None:
        self._store = store
        self._lock = anyio.Lock()
        self.forget()

    def forget(self) -> None:
        """Drop all vectors from memory; the next search reads them anew. A plain call."""
        self._numbers = np.empty(0, dtype=np.int64)
        self._matrix: NDArray[np.float32] | None = None
        self._count = 0
        self._last = 0
        self._look_at = SMALLEST

    async def view(self) -> VectorView:
        """
        Read what is new, also from other processes, and give all as it is then.

        Raises:
            StoreError: The store could not be read. *Cancellation*: safe.
        """
        async with self._lock:
            await self._drop_deleted()
            while await self._read_on():
                pass
            matrix = np.empty((0, 0), np.float32) if self._matrix is None else self._matrix
            return VectorView(self._numbers[: self._count], matrix[: self._count])

    async def _drop_deleted(self) -> None:
        if self._count < self._look_at:
            return
        stored = await self._store.reading(lambda reader: reader.vector_count())
        if 2 * stored < self._count:
            self.forget()
        else:
            self._look_at = 2 * self._count

    async def _read_on(self) -> bool:
        """Read a page; give whether more may follow."""
        last = self._last
        rows = await self._store.reading(lambda reader: reader.vectors(last, limit=PAGE))
        if last == self._last and rows[0]:
            await anyio.to_thread.run_sync(self._add, rows)
        return len(rows[0]) == PAGE

    def _add(self, rows: ItemVectorRows) -> None:
        numbers, vectors = rows
        if self._matrix is None or self._matrix.shape[1] != vectors.shape[1]:
            self._matrix = np.empty((0, vectors.shape[1]), dtype=np.float32)
            self._count = 0
        end = self._count + len(numbers)
        if end > len(self._matrix):
            self._grow(max(end, 2 * len(self._matrix)))
        # Rows behind the count are in no view.
        self._numbers[self._count : end] = numbers
        self._matrix[self._count : end] = vectors
        self._count, self._last = end, numbers[-1]

    def _grow(self, rows: int) -> None:
        assert self._matrix is not None
        numbers = np.empty(rows, dtype=np.int64)
        matrix = np.empty((rows, self._matrix.shape[1]), dtype=np.float32)
        numbers[: self._count] = self._numbers[: self._count]
        matrix[: self._count] = self._matrix[: self._count]
        self._numbers, self._matrix = numbers, matrix


# ── Searching ─────────────────────────────────────────────────────────────────────


PIECE = 64
"""Items that are read at once where a filter may refuse some (S)."""


@dataclass(frozen=True, slots=True)
class Meant:
    """A query as a unit vector, and the vectors that it is compared with."""

    vector: NDArray[np.float32]
    view: VectorView


def search(reader: ItemReader, wanted: SearchItems, meant: Meant | None) -> list[Item]:
    """What *wanted* asks for; *meant* is of its query, and ``None`` if it has none."""
    ranked = _ranked(reader, wanted, meant)
    if not wanted.filter:
        ranked = islice(ranked, wanted.offset, wanted.offset + wanted.limit)
        return list(_read(reader, ranked))
    fitting = (item for item in _read(reader, ranked) if filter_matches(item.value, wanted.filter))
    return list(islice(fitting, wanted.offset, wanted.offset + wanted.limit))


def _ranked(
    reader: ItemReader, wanted: SearchItems, meant: Meant | None
) -> Iterator[tuple[int, float | None]]:
    """Numbers of all items under the prefix with their scores, best first."""
    prefix = tuple(wanted.prefix)
    scored = _scored(reader, prefix, meant) if meant is not None else {}
    yield from scored.items()
    for number in reader.numbers(prefix):
        if number not in scored:
            yield number, None


def _scored(reader: ItemReader, prefix: tuple[str, ...], meant: Meant) -> dict[int, float | None]:
    """Number of an item → cosine of its nearest text, by falling cosine."""
    places = reader.places(prefix)
    if not places:
        return {}
    numbers, items = np.array(places, dtype=np.int64).T
    cosines = meant.view.cosines(reader, numbers, meant.vector)
    intact = ~np.isnan(cosines)
    items, cosines = items[intact], cosines[intact]
    # Equal ones by falling number, as what was put last comes first elsewhere.
    order = np.lexsort((-items, -cosines))
    items, cosines = items[order], cosines[order]
    _, first = np.unique(items, return_index=True)
    first.sort()
    return dict(zip(items[first].tolist(), cosines[first].tolist(), strict=True))


def _read(reader: ItemReader, ranked: Iterator[tuple[int, float | None]]) -> Iterator[Item]:
    """The items of *ranked* in their order, read piece by piece; damaged ones are passed by."""
    while piece := list(islice(ranked, PIECE)):
        yield from _items(reader, piece)


def _items(reader: ItemReader, piece: Sequence[tuple[int, float | None]]) -> Iterator[Item]:
    found = reader.items([number for number, _ in piece])
    for number, score in piece:
        if number in found:
            item = found[number]
            yield item if score is None else replace(item, score=score)

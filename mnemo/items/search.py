"""Searching items within one transaction: rank numbers, then read and filter in that order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from mnemo.items.item_rows import ItemReader
from mnemo.items.vectors import VectorView
from mnemo.values.items import Item, SearchItems, filter_matches

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

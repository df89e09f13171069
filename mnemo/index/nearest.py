"""The documents whose vectors are nearest to given ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnemo.index.columns import Floats, products_of
from mnemo.index.corpus import DocumentsView, Part
from mnemo.index.large import Sealed, coarse
from mnemo.runtime.clock import Breather
from mnemo.values.graph import MOST_WORDINGS

COARSE = 1_000
_TOGETHER = 16


def nearest(
    parts: Sequence[Part], vectors: Floats, threshold: float, limit: int
) -> list[list[tuple[str, float]]]:
    """
    For each of *vectors* the best of all *parts*, each id once. What lies in large segments is
    known to .01, and looked for among the ``COARSE`` with the fewest signs that differ.
    """
    breather, found = Breather(), []
    width = vectors.shape[1] if len(vectors) else 0
    views = [one for one in parts if isinstance(one, DocumentsView)]
    known = [view for view in views if len(view.vectors) and view.vectors.shape[1] == width]
    large = [one for one in parts if isinstance(one, Sealed) and one.width == width]
    for at in range(0, len(vectors), _TOGETHER):
        some = vectors[at : at + _TOGETHER]
        cosines = [products_of(view.vectors, some) for view in known]
        for number in range(len(some)):
            near: list[tuple[str, float]] = []
            for view, columns in zip(known, cosines, strict=True):
                column, documents = columns[number], view.vector_documents
                rows = np.flatnonzero((column >= threshold) & view.alive[documents])
                best = rows[np.lexsort((documents[rows], -column[rows]))][: MOST_WORDINGS * limit]
                near += [(view.ids[documents[row]], float(column[row])) for row in best]
            rows_of = coarse([(one, one.view.alive) for one in large], some[number], COARSE)
            for part, rows in zip(large, rows_of, strict=True):
                column = part.vectors(rows) @ some[number]
                rows, column = rows[column >= threshold], column[column >= threshold]
                order = np.argsort(-column)[: MOST_WORDINGS * limit]
                owners = part.owners[rows[order]]
                lives = part.view.alive[owners]
                ids = part.named(owners[lives])
                near += zip(ids, column[order][lives].tolist(), strict=True)
            # Several rows may speak for one step or intent: the best one counts.
            by_id: dict[str, float] = {}
            for id, cosine in sorted(near, key=lambda pair: -pair[1]):
                by_id.setdefault(id, cosine)
            found.append(list(by_id.items())[:limit])
            breather.breathe()
    return found

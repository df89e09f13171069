"""Documents of large segments as batches: joined, cut, and with what their columns give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.index.columns import Floats, Mask, coded, parted
from mnemo.index.pieces import Pieces
from mnemo.index.segments import NAMED, Batch, narrowed

_CODE = 127
"""The greatest number of a code."""
OF_PIECES = ("piece", "previous", "next", "kind", "long")
DERIVED = frozenset(
    (*("begins", "documents", "counts", "owners", "signs", "middle", "sum", "summed"), *OF_PIECES)
)
"""Columns that ``derived`` makes of the others."""


def with_codes(batch: Batch, counts: NDArray[Any], rows: Floats) -> Batch:
    """
    *batch* with its vectors in bytes; *counts*: how many of *rows* each document has, these in the
    order of documents and passages.
    """
    scales = np.maximum(np.abs(rows).max(axis=1, initial=0), 1e-9) / _CODE
    codes = np.rint(rows / scales[:, None])
    # So that the length of each row stays, which every cosine would show.
    scales = np.linalg.norm(rows, axis=1) / np.maximum(np.linalg.norm(codes, axis=1), 1)
    codes = codes.astype(np.int8)
    of_vectors = {"vectors": narrowed(counts), "codes": codes, "scales": scales.astype(np.float32)}
    return replace(batch, columns={**batch.columns, **of_vectors})


def joined(batches: Sequence[Batch]) -> Batch:
    """The documents of *batches* as one, without the columns ``DERIVED``."""
    first = batches[0]
    kept = [name for name in first.columns if name not in DERIVED]
    columns = {name: [batch.columns[name] for batch in batches] for name in kept}
    names: dict[str, Sequence[str]] = {}
    for kind in first.names:
        if kind not in NAMED:
            names[kind] = [name for batch in batches for name in batch.names[kind]]
            continue
        known: dict[str, int] = {}
        for place, batch in enumerate(batches):
            ours = [known.setdefault(name, len(known) + 1) for name in batch.names[kind]]
            for name in NAMED[kind]:
                columns[name][place] = narrowed(np.array([0, *ours]))[columns[name][place]]
        names[kind] = [*known]
    repeats = [one for batch in batches for one in batch.repeats]
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Batch(whole, names, repeats)


_COUNTS = {"terms": "lengths", "codes": "vectors", "scales": "vectors"}
"""Columns that lie end to end → how many rows of them each document has."""


def those(batch: Batch, kept: Mask) -> Batch:
    """The documents of *batch* that are *kept*, with the names that these have."""
    columns = dict[str, NDArray[Any]]()
    for name in batch.columns.keys() - DERIVED:
        values = batch.columns[name]
        counts = batch.columns[_COUNTS[name]] if name in _COUNTS else None
        columns[name] = values[kept if counts is None else _each(kept, counts)]
    chosen = {"ids": kept, "origins": kept}
    if "behind" in batch.columns:
        chosen["behind"] = _each(kept, batch.columns["behind"])
    names: dict[str, Sequence[str]] = {
        kind: [*compress(some, chosen[kind])]
        for kind, some in batch.names.items()
        if kind in chosen
    }
    for kind, named in NAMED.items():
        if kind in batch.names:
            used = np.unique(np.concatenate([[0], *(columns[name] for name in named)]))
            columns |= {
                name: np.searchsorted(used, columns[name]).astype(columns[name].dtype)
                for name in named
            }
            of_kind = list(batch.names[kind])
            names[kind] = [of_kind[number - 1] for number in used[1:].tolist()]
    left = replace(batch, columns=columns, names=names)
    return derived(left) if "codes" in columns else left


def _each(kept: Mask, counts: NDArray[Any]) -> Mask:
    return np.repeat(kept, counts.astype(np.int64))


def derived(batch: Batch) -> Batch:
    """*batch* with the columns ``DERIVED``, made anew."""
    columns = {name: batch.columns[name] for name in batch.columns if name not in DERIVED}
    lengths, counts = columns["lengths"].astype(np.int32), columns["vectors"].astype(np.int64)
    terms, codes = coded(0, lengths, columns["terms"].astype(np.int32))
    documents, times = parted(codes)
    rows = columns["codes"] * columns["scales"][:, None]
    # Signs say more of vectors less their mean.
    middle = rows.mean(axis=0) if len(rows) else np.zeros(rows.shape[1], np.float32)
    first = rows[(np.cumsum(counts) - counts)[counts > 0]]
    columns |= {
        "begins": narrowed(np.searchsorted(terms, np.arange(len(batch.names["terms"]) + 2))),
        "documents": narrowed(documents),
        "counts": narrowed(times.astype(np.int64)),
        "owners": narrowed(np.repeat(np.arange(len(batch)), counts)),
        "signs": sign_bits(rows - middle),
        "middle": middle.astype(np.float32),
        "sum": first.sum(axis=0, dtype=np.float64),
        "summed": np.array([len(first)]),
    }
    if "session" not in columns:
        return replace(batch, columns=columns)
    said = {name: columns[name] for name in ("session", "first", "actor", "asks", "log_words")}
    pieces = Pieces.of(np.ones(len(batch), np.bool_), **said)
    columns |= {name: getattr(pieces, name) for name in OF_PIECES}
    return replace(batch, columns=columns)


def sign_bits(rows: Floats) -> NDArray[np.uint64]:
    """The signs of each row, 64 in a number, shape ``(numbers, rows)``."""
    bits = np.packbits(rows > 0, axis=1)
    wide = np.zeros((len(rows), -(-bits.shape[1] // 8) * 8), np.uint8)
    wide[:, : bits.shape[1]] = bits
    return np.ascontiguousarray(wide.view(np.uint64).T)

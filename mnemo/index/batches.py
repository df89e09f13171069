"""Documents of large segments as batches: joined, cut, and with what their columns give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_AT_ONCE = 1_024
"""Vectors that are computed at once, in a few megabytes."""
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
    blocks = [_coded(rows[block]) for block in _blocks(rows)]
    codes, scales = map(np.concatenate, zip(*blocks, strict=True))
    of_vectors = {"vectors": narrowed(counts), "codes": codes, "scales": scales}
    return replace(batch, columns={**batch.columns, **of_vectors})


def _coded(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    scales = np.maximum(np.abs(rows).max(axis=1, initial=0), 1e-9) / _CODE
    codes = np.rint(rows / scales[:, None])
    # So that the length of each row stays, which every cosine would show.
    scales = np.linalg.norm(rows, axis=1) / np.maximum(np.linalg.norm(codes, axis=1), 1)
    return codes.astype(np.int8), scales.astype(np.float32)


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
            used = np.zeros(len(batch.names[kind]) + 1, np.bool_)
            for name in named:
                used[columns[name]] = True
            used[0] = False
            places = np.cumsum(used)
            columns |= {name: places[columns[name]].astype(columns[name].dtype) for name in named}
            names[kind] = [*compress(batch.names[kind], used[1:])]
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
    is_first = np.zeros(len(columns["codes"]), np.bool_)
    is_first[(np.cumsum(counts) - counts)[counts > 0]] = True
    # Signs say more of vectors less their mean.
    middle = np.asarray(_sum(columns) / max(len(is_first), 1), np.float32)
    signs = [sign_bits(_rows(columns, block) - middle) for block in _blocks(is_first)]
    columns |= {
        "begins": narrowed(np.searchsorted(terms, np.arange(len(batch.names["terms"]) + 2))),
        "documents": narrowed(documents),
        "counts": narrowed(times.astype(np.int64)),
        "owners": narrowed(np.repeat(np.arange(len(batch)), counts)),
        "signs": np.concatenate(signs, axis=1),
        "middle": middle,
        "sum": _sum(columns, is_first),
        "summed": np.array([np.count_nonzero(is_first)]),
    }
    if "session" not in columns:
        return replace(batch, columns=columns)
    said = {name: columns[name] for name in ("session", "first", "actor", "asks", "log_words")}
    pieces = Pieces.of(np.ones(len(batch), np.bool_), **said)
    columns |= {name: getattr(pieces, name) for name in OF_PIECES}
    return replace(batch, columns=columns)


def _sum(columns: Mapping[str, NDArray[Any]], some: Mask | None = None) -> NDArray[np.float64]:
    """The sum of the vectors, or of *some*."""
    blocks = _blocks(columns["codes"])
    rows = (_rows(columns, block)[... if some is None else some[block]] for block in blocks)
    total: NDArray[np.float64] = sum(part.sum(axis=0, dtype=np.float64) for part in rows)
    return total


def _rows(columns: Mapping[str, NDArray[Any]], block: slice) -> Floats:
    rows: Floats = columns["codes"][block] * columns["scales"][block, np.newaxis]
    return rows


def _blocks(rows: NDArray[Any]) -> list[slice]:
    """Slices of *rows*, at least one, of each of which vectors are computed at once."""
    return [slice(at, at + _AT_ONCE) for at in range(0, max(len(rows), 1), _AT_ONCE)]


def sign_bits(rows: Floats) -> NDArray[np.uint64]:
    """The signs of each row, 64 in a number, shape ``(numbers, rows)``."""
    bits = np.packbits(rows > 0, axis=1)
    wide = np.zeros((len(rows), -(-bits.shape[1] // 8) * 8), np.uint8)
    wide[:, : bits.shape[1]] = bits
    return np.ascontiguousarray(wide.view(np.uint64).T)

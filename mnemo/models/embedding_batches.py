"""Texts as an embedding server takes them: clean, never blank, short enough, in batches."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mnemo.runtime.text import clean, count_tokens, is_blank

__all__ = ["VectorCache", "batches", "cut", "key_of", "sendable"]

BYTES_PER_TOKEN = 4
"""What ``count_tokens`` reckons with."""


def sendable(text: str, prefix: str) -> str:
    """*text* after *prefix*, storable and never blank: servers refuse an empty input."""
    return clean(f"{prefix}{text}") if not is_blank(prefix + text) else " "


def key_of(text: str) -> bytes:
    """What a text is remembered by: 16 bytes of its hash."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()


def cut(text: str, max_tokens: int) -> str:
    """The beginning of *text* that counts at most *max_tokens*, by the service's count."""
    if count_tokens(text) <= max_tokens:
        return text
    beginning = text.encode("utf-8")[: max_tokens * BYTES_PER_TOKEN]
    return beginning.decode("utf-8", "ignore")


def batches(
    texts: Mapping[bytes, str], *, batch_size: int, max_batch_tokens: int
) -> Iterator[dict[bytes, str]]:
    """
    Cut *texts* into runs of at most *batch_size* texts and *max_batch_tokens* tokens.

    A text that counts more than *max_batch_tokens* is a batch of its own.
    """
    batch: dict[bytes, str] = {}
    tokens = 0
    for key, text in texts.items():
        cost = count_tokens(text)
        if batch and (len(batch) >= batch_size or tokens + cost > max_batch_tokens):
            yield batch
            batch, tokens = {}, 0
        batch[key] = text
        tokens += cost
    if batch:
        yield batch


class VectorCache:
    """
    Vectors by key, the least recently used first out. For one event loop at a time.

    Args:
        capacity: Rows that are kept; 0 keeps none. A row of d dimensions takes 4·d bytes.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._rows: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def found(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """What is known of *keys*, which now were used last."""
        known = {key: self._rows[key] for key in keys if key in self._rows}
        for key in known:
            self._rows.move_to_end(key)
        return known

    def keep(self, rows: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Keep *rows*, as far as they fit."""
        for key, row in rows.items():
            self._rows[key] = row
            self._rows.move_to_end(key)
            if len(self._rows) > self._capacity:
                self._rows.popitem(last=False)

"""Batches of texts for an embeddings endpoint, and the vectors of its reply."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import InvalidReply
from mnemo.runtime.text import clean, count_tokens, is_blank

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


# ── The reply ───────────────────────────────────────────────────────────────────────────


def read_rows(payload: Any, *, rows: int, dimensions: int, model: str) -> NDArray[np.float32]:
    """
    Read the vectors of *rows* texts out of *payload*; shape ``(rows, dimensions)``, unit rows.

    Vectors may be lists of numbers or base64 of little-endian float32; they are put in
    order by their ``index``.

    Raises:
        InvalidReply: A vector is missing, of another width, zero or not finite.
    """
    entries = _entries(payload, rows, model)
    vectors = [_vector(entry.get("embedding"), model) for entry in entries]
    widths = {len(vector) for vector in vectors}
    if widths - {dimensions}:
        raise _wrong_width(widths, dimensions, model)
    return _unit(np.stack(vectors), model)


def _entries(payload: Any, rows: int, model: str) -> list[Mapping[str, Any]]:
    data = payload.get("data") if isinstance(payload, Mapping) else None
    if not isinstance(data, list) or not all(isinstance(entry, Mapping) for entry in data):
        raise _invalid(
            f"the reply of {model!r} has no list of embeddings: is base_url the address of an "
            "OpenAI-compatible server, up to and including /v1?"
        )
    if len(data) != rows:
        raise _invalid(
            f"{model!r} gave {len(data)} vectors for {rows} texts: give a smaller batch_size, "
            "if the server takes fewer texts at once"
        )
    return _in_order(data, model)


def _in_order(data: Sequence[Mapping[str, Any]], model: str) -> list[Mapping[str, Any]]:
    indexes = [entry.get("index") for entry in data]
    if not all(isinstance(index, int | None) for index in indexes):
        raise _invalid(f"an index of {model!r}'s vectors is no number")
    by_index = dict(zip(indexes, data, strict=True))
    if by_index.keys() == {None}:
        return list(data)
    if by_index.keys() != set(range(len(data))):
        raise _invalid(f"the indexes of {model!r}'s vectors are not those of its texts")
    return [by_index[i] for i in range(len(data))]


def _vector(given: Any, model: str) -> NDArray[np.float32]:
    try:
        vector = _unpacked(given) if isinstance(given, str) else _plain(given)
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise _invalid(f"a vector of {model!r} cannot be read: {error}") from error
    if vector.ndim != 1:
        raise _invalid(
            f"{model!r} gave an array of shape {vector.shape} for one text, not a vector: "
            "set the server to pool its token vectors"
        )
    return vector


def _unpacked(packed: str) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(packed, validate=True), "<f4").astype(np.float32)


def _plain(numbers: Any) -> NDArray[np.float32]:
    # What overflows becomes infinite, and is refused as that.
    with np.errstate(over="ignore"):
        return np.asarray(numbers, dtype=np.float32)


def _unit(vectors: NDArray[np.float32], model: str) -> NDArray[np.float32]:
    # In double precision: the squares of large numbers leave float32.
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not np.all(np.isfinite(lengths)):
        raise _invalid(f"{model!r} gave a vector with NaN or infinity in it: try again")
    if not np.all(lengths > 0):
        raise _invalid(f"{model!r} gave a vector of length zero: is it an embedding model?")
    unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32)
    return unit


def _wrong_width(widths: set[int], dimensions: int, model: str) -> InvalidReply:
    given = ", ".join(map(str, sorted(widths)))
    return _invalid(
        f"{model!r} gives vectors of {given} dimensions, but {dimensions} were expected: make "
        f"the embedder with dimensions={given}, or with send_dimensions=True if the model can "
        "shorten its vectors; a repository keeps the dimensions it was made with"
    )


def _invalid(message: str) -> InvalidReply:
    return InvalidReply(message, purpose="embed")

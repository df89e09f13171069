"""Vectors: rows checked on the way in, and the passages of long texts they are of."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.errors import InvalidReply

COSINE_ROUNDING = 1e-6
"""What float32 may take from a cosine: "equal to the threshold" must not become "below"."""

K = TypeVar("K", bound=Hashable)


def unit_rows(reply: object, *, rows: int, dimensions: int) -> NDArray[np.float32]:
    """
    Give an embedder's reply, of any kind that NumPy takes, as float32 rows of length 1. *Raises*
    ``InvalidReply``: a row is missing, of wrong width, zero, not finite or no numbers.
    """
    try:
        vectors = np.asarray(reply, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidReply(f"the embedder gave what is no array of numbers: {error}") from error
    if vectors.shape != (rows, dimensions):
        raise InvalidReply(
            f"the embedder gave an array of shape {vectors.shape}, not {(rows, dimensions)}"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.all(np.isfinite(lengths)) or not np.all(lengths > 0):
        raise InvalidReply("the embedder gave a vector that is zero or not finite")
    unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32, copy=False)
    return unit


class VectorCache(Generic[K]):
    """At most *capacity* vectors by key, the least recently used first out. For one event loop."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._rows: OrderedDict[K, NDArray[np.float32]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def found(self, keys: Iterable[K]) -> dict[K, NDArray[np.float32]]:
        """What is known of *keys*, which now were used last."""
        known = {key: self._rows[key] for key in keys if key in self._rows}
        for key in known:
            self._rows.move_to_end(key)
        return known

    def keep(self, rows: Mapping[K, NDArray[np.float32]]) -> None:
        """Keep *rows*, as far as they fit."""
        for key, row in rows.items():
            self._rows[key] = row
            self._rows.move_to_end(key)
            if len(self._rows) > self._capacity:
                self._rows.popitem(last=False)


# ── Passages ───────────────────────────────────────────────────────────────────────────


MOST_PASSAGES = 8
"""Passages of one text, at most; of a longer text they are chosen evenly."""
MAX_CHARACTERS = 32_768
"""Characters of a text that passages are cut from."""
OVERLAP = 0.15
"""Share of a passage that the next one repeats, at least, while all of the text is covered."""
PASSAGE_KEYS = ("", *(f"#{n}" for n in range(1, MOST_PASSAGES)))
"""What the keys of the passages of one text end with, in order."""

SIDES = ("/observation", "/action")
"""What the keys of the documents of a step or message end with."""

# About a token of a WordPiece vocabulary: over prose, code and tool output the count is
# within 12 % of all-MiniLM-L6-v2's in 49 of 50 texts.
_TOKEN = re.compile(r"[A-Za-z]{1,6}|[0-9]{1,2}|\S")
_FIRST_WORD, _LAST_WORD = re.compile(r"\A\S{1,40}\s"), re.compile(r"\s\S{1,40}\Z")
_FURTHER = frozenset(PASSAGE_KEYS[1:])


def passages(text: str, tokens: int | None) -> list[str]:
    """
    Cut *text* into 1 to 8 overlapping passages of at most *tokens*; ``None``: it is one.
    Of a text that is too long for 8 they are evenly chosen.
    """
    text = text[:MAX_CHARACTERS]
    if tokens is None or len(text) <= tokens:
        return [text]
    if (spare := len(_TOKEN.findall(text)) - tokens) <= 0:
        return [text]
    starts = [found.start() for found in _TOKEN.finditer(text)]
    step = int(tokens * (1 - OVERLAP))
    last = min(MOST_PASSAGES - 1, -(-spare // step))
    firsts = [round(n * spare / last) for n in range(last + 1)]
    ends = [*starts, len(text)]
    return [_trimmed(text, ends[first], ends[first + tokens]) for first in firsts]


def _trimmed(text: str, begin: int, end: int) -> str:
    """``text[begin:end]`` without the parts of words at its ends, unless these are very long."""
    part = text[begin:end]
    if begin > 0 and not text[begin - 1].isspace():
        part = _FIRST_WORD.sub("", part)
    if end < len(text) and not text[end - 1].isspace():
        part = _LAST_WORD.sub("", part)
    return part


def passage_key(key: str, number: int) -> str:
    """The key of the vector of passage *number*, from 0, of the document with *key*."""
    return f"{key}{PASSAGE_KEYS[number]}"


def vector_keys(keys: Iterable[str]) -> list[str]:
    """The keys of the vectors of all passages of documents with *keys*."""
    return [f"{key}{end}" for key in keys for end in PASSAGE_KEYS]


SIDE_KEYS = tuple(vector_keys(SIDES))
"""What the keys of the vectors of a step or message end with."""


def keyed_passages(key: str, text: str, tokens: int | None) -> dict[str, str]:
    """The passages of the document with *key* by the keys of their vectors, in order."""
    first, *others = passages(text, tokens)
    return {key: first} | {passage_key(key, n): part for n, part in enumerate(others, 1)}


def passage_place(key: str) -> tuple[str, int]:
    """The document's key and the number of the passage, from 0, that the vector *key* is of."""
    if key[-2:] not in _FURTHER:
        return key, 0
    return key[:-2], int(key[-1])


def owner_of_vector(key: str) -> tuple[str, bool]:
    """The id behind the key of a vector, and whether it is of a step's or message's side."""
    document = passage_place(key)[0]
    for side in SIDES:
        if document.endswith(side):
            return document.removesuffix(side), True
    return document, False

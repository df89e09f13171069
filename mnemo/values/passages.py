"""Passages: the overlapping parts of a long text that get a vector each, and the keys of those."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    Cut *text* into overlapping passages, at white space where there is some.

    Args:
        tokens: Estimated tokens of a passage, at most (``EmbeddingSpace.passage_tokens``);
            ``None``: the text is one passage.

    Returns:
        1 to 8 passages in order; of a text that is too long for 8 of them evenly chosen ones.
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

"""Keyword search by plain means: which texts a query finds, and how much they say for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial

from mnemo._clock import Breather
from mnemo._text import composed, has_unspaced, index_words, lower_each
from mnemo.transcript.records import Group, Query

__all__ = [
    "SHORTEST_TRIPLE",
    "holds",
    "in_triples",
    "relevances_by_triples",
    "relevances_by_words",
    "stems",
]

# BM25's usual constants, those of the embedded store's full text too.
_K1 = 1.2
_B = 0.75
_LEAST_IDF = 1e-6
SHORTEST_TRIPLE = 3
"""Characters of an operand that an index of triples can look up."""

Words = tuple[str, ...]


def in_triples(operands: Iterable[str]) -> bool:
    """Whether these are looked for as parts of words: one is of a script without blanks."""
    return any(map(has_unspaced, operands))


@lru_cache(maxsize=200_000)
def stems(text: str) -> Words:
    """The words of *text*, folded and stemmed, in order."""
    return tuple(word for word, _, _ in index_words(text))


def holds(text: str, operand: str) -> bool:
    """Whether *text* holds *operand*, by the index that the operand alone is looked up in."""
    if has_unspaced(operand):
        return lower_each(operand) in lower_each(composed(text))
    return _count(stems(operand), stems(text)) > 0


def _count(phrase: Words, text: Words) -> int:
    """How often *phrase* occurs in *text*; an empty one never does."""
    if not phrase or phrase[0] not in text:
        return 0
    width = len(phrase)
    return sum(text[i : i + width] == phrase for i in range(len(text) - width + 1))


# ── Words ────────────────────────────────────────────────────────────────────────────


def relevances_by_words(query: Query, texts: Sequence[str]) -> list[float]:
    """BM25 of each text over all of them, 0 where the query does not match."""
    breather = Breather()
    split = []
    for text in texts:
        breather.breathe()
        split.append(stems(text))
    average = sum(map(len, split)) / max(len(split), 1) or 1.0
    phrases = [phrase for operand in query.wanted if (phrase := stems(operand))]
    weights = [_weight(phrase, split, breather) for phrase in phrases]
    scores = []
    for words in split:
        breather.breathe()
        matches = any(_group_matches(group, partial(_occurs, words)) for group in query.groups)
        scores.append(_score(phrases, weights, words, average) if matches else 0.0)
    return scores


def _occurs(words: Words, operand: str) -> bool:
    return _count(stems(operand), words) > 0


def _group_matches(group: Group, found: Callable[[str], bool]) -> bool:
    return all(map(found, group.wanted)) and not any(map(found, group.unwanted))


def _weight(phrase: Words, texts: Sequence[Words], breather: Breather) -> float:
    holding = 0
    for text in texts:
        breather.breathe()
        holding += _count(phrase, text) > 0
    return max(math.log((len(texts) - holding + 0.5) / (holding + 0.5)), _LEAST_IDF)


def _score(
    phrases: Sequence[Words], weights: Sequence[float], text: Words, average: float
) -> float:
    norm = _K1 * (1 - _B + _B * len(text) / average)
    counts = [_count(phrase, text) for phrase in phrases]
    return sum(
        weight * n * (_K1 + 1) / (n + norm) for weight, n in zip(weights, counts, strict=True)
    )


# ── Parts of words ───────────────────────────────────────────────────────────────────


def relevances_by_triples(query: Query, texts: Sequence[str]) -> list[float]:
    """
    How relevant each text is, 0 where the query does not match.

    A group of short operands alone gives 1; otherwise the best of the groups counts.
    """
    breather = Breather()
    lowered = []
    for text in texts:
        breather.breathe()
        lowered.append(lower_each(composed(text)))
    scores = [0.0] * len(texts)
    for group in query.groups:
        for place, score in enumerate(_of_group(group, lowered, breather)):
            scores[place] = max(scores[place], score)
    return scores


def _of_group(group: Group, texts: Sequence[str], breather: Breather) -> list[float]:
    lowered = Group(tuple(map(lower_each, group.wanted)), tuple(map(lower_each, group.unwanted)))
    long = [operand for operand in lowered.wanted if len(operand) >= SHORTEST_TRIPLE]
    average = sum(map(len, texts)) / max(len(texts), 1) or 1.0
    scores = []
    weights = [_triple_weight(operand, texts, breather) for operand in long]
    for text in texts:
        breather.breathe()
        norm = _K1 * (1 - _B + _B * len(text) / average)
        counts = [text.count(operand) for operand in long]
        score = sum(
            weight * n * (_K1 + 1) / (n + norm) for weight, n in zip(weights, counts, strict=True)
        )
        matches = _group_matches(lowered, text.__contains__)
        scores.append((score if long else 1.0) if matches else 0.0)
    return scores


def _triple_weight(operand: str, texts: Sequence[str], breather: Breather) -> float:
    holding = 0
    for text in texts:
        breather.breathe()
        holding += operand in text
    return max(math.log((len(texts) - holding + 0.5) / (holding + 0.5)), _LEAST_IDF)

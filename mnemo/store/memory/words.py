"""Keyword search by plain means: expressions of quoted words over stemmed texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from mnemo._text import fold, stem

__all__ = ["parse", "relevances", "stems"]

_TOKEN = re.compile(r'\s*(?:"((?:[^"]|"")*)"|(AND|OR|NOT)\b|([()]))')
_WORD = re.compile(r"[^\W_]+")
# BM25's usual constants, those of the embedded store's full text too.
_K1 = 1.2
_B = 0.75
_LEAST_IDF = 1e-6

Words = tuple[str, ...]
Test = Callable[[Words], bool]


@dataclass(frozen=True, slots=True)
class Expression:
    """Whether a text *matches*, and the *phrases* that speak for it."""

    matches: Test
    phrases: tuple[Words, ...] = field(default=())


@lru_cache(maxsize=50_000)
def stems(text: str) -> Words:
    """The words of *text*, folded and stemmed, in order."""
    return tuple(stem(word) for word in _WORD.findall(fold(text)))


def count(phrase: Words, text: Words) -> int:
    """How often *phrase* occurs in *text*; an empty one never does."""
    if not phrase:
        return 0
    width = len(phrase)
    return sum(text[i : i + width] == phrase for i in range(len(text) - width + 1))


def parse(match: str) -> Expression:
    """
    Read quoted words joined by ``NOT`` before ``AND`` before ``OR``; brackets group.

    Raises:
        ValueError: It is no such expression.
    """
    tokens = _tokens(match)
    expression = _either(tokens)
    if tokens:
        raise ValueError(f"not a search expression: {match!r}")
    return expression


def _tokens(match: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    text = match.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"not a search expression: {match!r}")
        quoted, operator, bracket = found.groups()
        tokens.append(operator or bracket or '"' + quoted.replace('""', '"'))
        at = found.end()
    tokens.reverse()
    return tokens


def _either(tokens: list[str]) -> Expression:
    expression = _all(tokens)
    while tokens and tokens[-1] == "OR":
        tokens.pop()
        expression = _joined(expression, _all(tokens), any)
    return expression


def _all(tokens: list[str]) -> Expression:
    expression = _without(tokens)
    while tokens and tokens[-1] not in ("OR", ")"):
        if tokens[-1] == "AND":
            tokens.pop()
        expression = _joined(expression, _without(tokens), all)
    return expression


def _without(tokens: list[str]) -> Expression:
    expression = _operand(tokens)
    while tokens and tokens[-1] == "NOT":
        tokens.pop()
        wanted, unwanted = expression, _operand(tokens)
        expression = Expression(_difference(wanted.matches, unwanted.matches), wanted.phrases)
    return expression


def _operand(tokens: list[str]) -> Expression:
    token = tokens.pop() if tokens else ""
    if token == "(":
        expression = _either(tokens)
        if not tokens or tokens.pop() != ")":
            raise ValueError("not a search expression: a bracket is not closed")
        return expression
    if not token.startswith('"'):
        raise ValueError(f"not a search expression: no operand before {token!r}")
    phrase = stems(token[1:])
    return Expression(lambda text: count(phrase, text) > 0, (phrase,))


def _joined(a: Expression, b: Expression, how: Callable[[tuple[bool, bool]], bool]) -> Expression:
    return Expression(lambda text: how((a.matches(text), b.matches(text))), a.phrases + b.phrases)


def _difference(wanted: Test, unwanted: Test) -> Test:
    return lambda text: wanted(text) and not unwanted(text)


def relevances(expression: Expression, texts: Sequence[Words]) -> list[float]:
    """BM25 of each text, 0 where the expression does not match."""
    average = sum(map(len, texts)) / max(len(texts), 1) or 1.0
    weights = [
        max(math.log((len(texts) - n + 0.5) / (n + 0.5)), _LEAST_IDF)
        for phrase in expression.phrases
        for n in [sum(count(phrase, text) > 0 for text in texts)]
    ]
    return [
        _score(expression.phrases, weights, text, average) if expression.matches(text) else 0.0
        for text in texts
    ]


def _score(
    phrases: Sequence[Words], weights: Sequence[float], text: Words, average: float
) -> float:
    norm = _K1 * (1 - _B + _B * len(text) / average)
    counts = [count(phrase, text) for phrase in phrases]
    return sum(
        weight * n * (_K1 + 1) / (n + norm) for weight, n in zip(weights, counts, strict=True)
    )

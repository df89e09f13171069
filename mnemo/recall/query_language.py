"""
What a keyword query means: words, phrases, ``OR`` and ``NOT``.

No string that a user or a model can type is a syntax error.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mnemo.runtime.text import STOP_WORDS, fold
from mnemo.transcript.records import Group, Query

__all__ = ["parse"]

MOST_OPERANDS = 64
"""Operands of a query that count; the rest is ignored."""


@dataclass(frozen=True, slots=True)
class _Operand:
    text: str
    quoted: bool


_OPERATORS = ("NOT", "OR", "AND")
"""Which of a run counts: the first of these that is in it."""
_CHUNK = re.compile(r'"([^"]*)"|([^\s"]+)')


def parse(query: str) -> Query:
    """
    Read *query*; every string means something, if only nothing.

    Words must all occur; ``"several words"`` is a phrase; ``OR`` separates groups,
    ``NOT`` excludes what follows, both (and ``AND``) exactly upper case between two
    operands. Function words are dropped where another operand stays.
    """
    items = _without_idle_operators(_items(_cleaned(query)))
    return Query(tuple(group for part in _alternatives(items) if (group := _group(part))))


def _cleaned(query: str) -> str:
    text = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cs") else c
        for c in unicodedata.normalize("NFC", query)
    )
    if text.count('"') % 2:
        head, _, tail = text.rpartition('"')
        text = f"{head} {tail}"
    return text


def _items(text: str) -> Iterator[_Operand | str]:
    """Operands and operators in order; what has no letter or digit is left out."""
    for quoted, word in _CHUNK.findall(text):
        bare = word.strip("()")
        if bare in _OPERATORS:
            yield bare
        elif any(map(str.isalnum, quoted or bare)):
            yield _Operand(quoted or bare, quoted=bool(quoted))


def _without_idle_operators(items: Iterable[_Operand | str]) -> Iterator[_Operand | str]:
    """*items* with one operator between two operands at most, and none at either end."""
    operands = 0
    waiting: list[str] = []
    for are_operators, run in groupby(items, key=lambda item: isinstance(item, str)):
        if are_operators:
            waiting = [item for item in run if isinstance(item, str)]
            continue
        if operands and waiting:
            yield next(operator for operator in _OPERATORS if operator in waiting)
        for item in run:
            if operands == MOST_OPERANDS:
                return
            operands += 1
            yield item


def _alternatives(items: Iterable[_Operand | str]) -> list[list[_Operand | str]]:
    parts: list[list[_Operand | str]] = [[]]
    for item in items:
        if item == "OR":
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


def _group(items: Sequence[_Operand | str]) -> Group | None:
    """The group that *items* say; ``None`` where nothing is wanted."""
    wanted: list[_Operand] = []
    unwanted: list[_Operand] = []
    for before, item in zip(("AND", *items), items, strict=False):
        if isinstance(item, _Operand):
            (unwanted if before == "NOT" else wanted).append(item)
    # Nothing but function words is a name now and then: The Who.
    telling = [operand for operand in wanted if not _is_function_word(operand)] or wanted
    if not telling:
        return None
    excluded = [operand.text for operand in unwanted if not _is_function_word(operand)]
    # A word said twice finds nothing else, and the index would count all its places again.
    return Group(tuple(dict.fromkeys(operand.text for operand in telling)), tuple(excluded))


def _is_function_word(operand: _Operand) -> bool:
    return not operand.quoted and fold(re.sub(r"^\W+|\W+$", "", operand.text)) in STOP_WORDS

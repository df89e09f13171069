"""The words by which something may come to mind in a turn."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from mnemo.runtime.clock import Breather
from mnemo.runtime.text import STOP_WORDS, fold, index_stem, unspaced_runs

__all__ = ["terms_of_turn"]

MOST_TERMS = 32
"""Terms of a turn that count."""
SHORTEST = 3
"""Characters of a term, at least; of an unspaced script, exactly."""
TASK_VERBS = frozenset(
    ("fix", "add", "create", "update", "remove", "implement", "check", "set", "get", "make", "use")
)
"""What is asked for in so many turns that it says nothing of any."""
_WORD = re.compile(r"[^\W_]+(?:['’.][^\W_]+)*")


def terms_of_turn(texts: Iterable[str]) -> tuple[str, ...]:
    """
    The distinct terms of *texts* in order, at most 32.

    Words of at least three characters that are neither function words nor bare task
    verbs; of scripts written without blanks every run of three characters.
    """
    found: dict[str, str] = {}
    breather = Breather()
    for text in texts:
        for key, term in _terms(unicodedata.normalize("NFC", text)):
            breather.breathe()
            found.setdefault(key, term)
            if len(found) == MOST_TERMS:
                return tuple(found.values())
    return tuple(found.values())


def _terms(text: str) -> Iterator[tuple[str, str]]:
    """Terms as they stand, each with what makes two of them the same one."""
    at = 0
    for start, end in unspaced_runs(text):
        yield from _words(text[at:start])
        yield from ((text[i : i + SHORTEST],) * 2 for i in range(start, end - SHORTEST + 1))
        at = end
    yield from _words(text[at:])


def _words(text: str) -> Iterator[tuple[str, str]]:
    for found in _WORD.finditer(text):
        word = found.group()
        folded = fold(word)
        if len(word) >= SHORTEST and folded not in STOP_WORDS and folded not in TASK_VERBS:
            yield index_stem(word), word

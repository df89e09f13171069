"""Concepts of a fact: who, which names, numbers and identifiers, then what it is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from mnemo._text import STOP_WORDS, fold, stem
from mnemo.extraction.embedded.lexicon import LIGHT, word_set
from mnemo.extraction.embedded.topics import phrases

__all__ = ["Frequencies", "concepts_of"]

MOST = 6
_LONGEST = 48  # characters of one concept
_NAME = re.compile(
    r"(?<!^)(?<![.!?\"“(] )\b[A-Z][\w'’&-]+(?:\s(?:of\s|the\s|de\s"
    r"|and\s(?=[A-Z]))?[A-Z][\w'’&-]+){0,3}"
)
_IDENTIFIER = re.compile(
    r"`([^`\n]{2,48})`|(?<![\w/.-])([A-Za-z_][\w-]*(?:[./_:-][\w-]+)+(?:\(\))?)(?![\w])"
)
_NUMBER = re.compile(
    r"(?<![\w.\[-])((?:[$€£]\s?\d[\d,.]*\d|\d[\d,.]*)\s?(?:%|°\w?|[A-Za-z]{2,12}\b)?)(?![\w\]-])"
)
_TITLE = re.compile(r"\"([^\"\n]{2,48})\"|“([^”\n]{2,48})”")
_DATED = re.compile(r"\[[^\]]*\]")
_NO_NAMES = word_set(
    """
    i asked output a the she he they it monday tuesday wednesday thursday friday saturday sunday
    mon tue tues wed thu thur thurs fri sat sun january february march april may june july august
    september october november december the tool
    """
)


class Frequencies:
    """How often each stem occurs in a trajectory's facts: the more, the better a concept."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._counts: Counter[str] = Counter()
        for text in texts:
            self._counts.update({_key(phrase) for phrase in phrases(text)})

    def of(self, phrase: str) -> int:
        return self._counts[_key(phrase)]


def concepts_of(text: str, speaker: str | None, frequencies: Frequencies) -> tuple[str, ...]:
    """At most six short terms of *text*, the *speaker* first, no two of them alike."""
    bare = _DATED.sub(" | ", text)
    found: dict[str, str] = {}
    if speaker and fold(speaker) in fold(bare):
        found[fold(speaker)] = speaker
    if text.startswith("Asked "):
        bare = bare.replace('"', " | ")
    if speaker:
        bare = re.sub(rf"\b{re.escape(speaker)}(?:['’]s)?(?!\w)", "|", bare)
    for term in (*_exact(bare), *_by_frequency(bare, frequencies)):
        _add(found, term)
    return tuple(list(found.values())[:MOST])


def _exact(text: str) -> Iterable[str]:
    for pattern in (_TITLE, _IDENTIFIER, _NAME, _NUMBER):
        for match in pattern.finditer(text):
            yield _without_stop_word(next((g for g in match.groups() if g), match.group()))


def _without_stop_word(term: str) -> str:
    """*term* without a stop word that the pattern of a unit took along ("12 of")."""
    head, blank, last = term.rpartition(" ")
    return head if blank and fold(last) in STOP_WORDS else term


def _by_frequency(text: str, frequencies: Frequencies) -> Iterable[str]:
    found = phrases(text)
    return sorted(
        found, key=lambda p: (-frequencies.of(p), -min(2, len(p.split())), found.index(p))
    )


def _add(found: dict[str, str], term: str) -> None:
    term = term.strip(" .,;:!?'’\"").removesuffix("'s").removesuffix("’s")
    key = fold(term)
    if not (1 < len(term) <= _LONGEST) or key in LIGHT or key in STOP_WORDS or key in _NO_NAMES:
        return
    if any(key == known or f" {key} " in f" {known} " for known in found):
        return
    found[key] = term


def _key(phrase: str) -> str:
    return " ".join(stem(word) for word in fold(phrase).split())

"""Concepts of a fact: speaker, names, numbers and identifiers first, then key phrases."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mnemo.english.topics import core, phrase_key, phrases
from mnemo.english.words import LIGHT, MONTHS, WEEKDAYS, word_set
from mnemo.runtime.text import STOP_WORDS, fold

__all__ = ["Frequencies", "Matter", "concepts_of", "matter_of"]

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
    "i asked output a the she he they it the tool mon tue tues wed thu thur thurs fri sat sun"
).union(MONTHS, WEEKDAYS)


@dataclass(frozen=True, slots=True)
class Matter:
    """
    What concepts are taken from.

    Attributes:
        speaker: Who said it, if the text names it.
        text: The fact without its speaker and its added dates.
        phrases: Its noun-like phrases, in order.
    """

    speaker: str | None
    text: str
    phrases: tuple[str, ...]


def matter_of(text: str, speaker: str | None) -> Matter:
    """Take apart a fact's *text*."""
    bare = _DATED.sub(" | ", text)
    named = speaker is not None and speaker != "" and speaker in bare
    if text.startswith("Asked "):
        bare = bare.replace('"', " | ")
    if speaker and named:
        bare = _without_name(bare, speaker)
    found = dict.fromkeys(p for phrase in phrases(bare) if (p := core(phrase)))
    return Matter(speaker if named else None, bare, tuple(found))


def _without_name(text: str, name: str) -> str:
    return text.replace(f"{name}'s ", "| ").replace(f"{name} ", "| ")


class Frequencies:
    """How often each phrase occurs in a trajectory's facts: the more, the better a concept."""

    def __init__(self, matters: Iterable[Matter]) -> None:
        self._counts: Counter[str] = Counter()
        for matter in matters:
            self._counts.update(map(phrase_key, matter.phrases))

    def of(self, phrase: str) -> int:
        """In how many facts *phrase* occurs."""
        return self._counts[phrase_key(phrase)]


def concepts_of(matter: Matter, frequencies: Frequencies) -> tuple[str, ...]:
    """At most six short terms, the speaker first, no two of them alike."""
    found: dict[str, str] = {}
    if matter.speaker:
        found[fold(matter.speaker)] = matter.speaker
    for term in (*_exact(matter.text), *_by_frequency(matter.phrases, frequencies)):
        _add(found, term)
    return tuple(found.values())[:MOST]


def _exact(text: str) -> Iterable[str]:
    for pattern in (_TITLE, _IDENTIFIER, _NAME, _NUMBER):
        for match in pattern.finditer(text):
            yield _without_stop_word(next((g for g in match.groups() if g), match.group()))


def _without_stop_word(term: str) -> str:
    """*term* without a stop word that the pattern of a unit took along ("12 of")."""
    head, blank, last = term.rpartition(" ")
    return head if blank and fold(last) in STOP_WORDS else term


def _by_frequency(found: Sequence[str], frequencies: Frequencies) -> list[str]:
    # Sorting is stable, so among equals the earlier phrase stays the first.
    return sorted(found, key=lambda p: (-frequencies.of(p), -min(2, p.count(" ") + 1)))


def _add(found: dict[str, str], term: str) -> None:
    term = term.strip(" .,;:!?'’\"").removesuffix("'s").removesuffix("’s")
    key = fold(term)
    if not (1 < len(term) <= _LONGEST) or key in LIGHT or key in STOP_WORDS or key in _NO_NAMES:
        return
    if any(key == known or f" {key} " in f" {known} " for known in found):
        return
    found[key] = term

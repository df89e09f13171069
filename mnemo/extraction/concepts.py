"""Concepts of facts: the names and nouns that a fact is found by, where nobody gave any."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mnemo.english.canonical import canonical_clauses, speaker_of, words_of
from mnemo.english.topics import core, phrase_key, phrases
from mnemo.english.verbs import DETERMINERS, finite_verb, is_gerund, tokens_of
from mnemo.english.words import LIGHT, MONTHS, PREPOSITIONS, WEEKDAYS, is_adverb, is_past, word_set
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import STOP_WORDS, fold

MOST = 6
"""Concepts of one fact, at most (S)."""
_LONGEST = 48  # characters of one concept

_NAME = re.compile(
    r"(?:(?<!^)(?<![.!?:\"“(] )\b[A-Z][\w'’&-]+|^[A-Z][\w'’&-]+(?=\s[A-Z]))"
    r"(?:\s(?:of\s|the\s|de\s|and\s(?=[A-Z]))?[A-Z][\w'’&-]+){0,3}"
)
_IDENTIFIER = re.compile(
    r"`([^`\n]{2,48})`|(?<![\w/.-])([A-Za-z_][\w-]*(?:[./_:][\w-]+)+(?:\(\))?)(?![\w])"
)
_TITLE = re.compile(r"\"([^\"\n]{2,48})\"|“([^”\n]{2,48})”")
_VERSION = re.compile(r"v?\d[\d.]*")
_TAIL = re.compile(r"['’](?:ve|re|ll|d|m|t)$")
_DATED = re.compile(r"\[[^\]]*\]")
_GOVERNING = PREPOSITIONS - {"to"}
# What stands behind a noun that stands alone; before another word it may be an adjective.
_CLOSED = STOP_WORDS | PREPOSITIONS | {"and", "or", "but", "|"}
_NO_CONCEPTS = word_set(
    """
    i im a the she he they it the tool mon tue tues wed thu thur thurs fri sat sun jan feb mar apr
    jun jul aug sep sept oct nov dec am pm heres theres
    black blue brown green grey gray orange pink purple red white yellow
    lift lifts load loads hold holds bunch bit pair number lack amount rest start end
    """
).union(MONTHS, WEEKDAYS)


@dataclass(frozen=True, slots=True)
class _Words:
    """
    What concepts may be made of.

    Attributes:
        names: Speaker, titles, identifiers and names: each is a concept.
        subjects: Nouns that a clause is about: each is a concept.
        nouns: Other nouns: concepts where two facts have them.
    """

    names: tuple[str, ...]
    subjects: tuple[str, ...]
    nouns: tuple[str, ...]


def concepts_of(propositions: Sequence[str]) -> list[tuple[str, ...]]:
    """
    The concepts of each of *propositions*, which were said together; at most six.

    Names, and nouns that a clause is about or that two propositions share. Numbers,
    colours, days and verbs are none.
    """
    breather = Breather()
    found: list[_Words] = []
    for proposition in propositions:
        breather.breathe()
        found.append(_words(proposition))
    counts = Counter(key for each in found for key in {*map(phrase_key, _all_nouns(each))})
    return [
        _distinct((*each.names, *each.subjects, *(n for n in each.nouns if _shared(n, counts))))
        for each in found
    ]


def _all_nouns(words: _Words) -> Iterable[str]:
    return (*words.subjects, *words.nouns)


def _shared(noun: str, counts: Counter[str]) -> bool:
    return counts[phrase_key(noun)] > 1


def _words(proposition: str) -> _Words:
    speaker = speaker_of(proposition)
    text = _DATED.sub(" | ", words_of(proposition))
    names = [match for pattern in (_TITLE, _IDENTIFIER, _NAME) for match in _matches(pattern, text)]
    clauses = canonical_clauses(_DATED.sub("", proposition))
    subjects = [subject for clause in clauses for subject in _subject(clause, speaker)]
    return _Words(
        names=tuple(filter(None, (speaker, *names))),
        subjects=tuple(subjects),
        nouns=tuple(_nouns(text)),
    )


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for match in pattern.finditer(text):
        yield next((group for group in match.groups() if group), match.group())


def _subject(clause: str, speaker: str | None) -> Iterator[str]:
    """The first noun before the verb of *clause* that is not its speaker, and its owner."""
    words = tokens_of(clause)
    verb = finite_verb(words)
    before = " ".join(words[:verb]) if verb else ""
    if speaker:
        before = re.sub(rf"{re.escape(speaker)}(?:'s)?", "|", before)
    owned = "'s " in before  # then the owner stands first
    yield from (core(phrase) for phrase in phrases(before)[: 1 + owned])


def _nouns(text: str) -> Iterator[str]:
    """The phrases of *text* that stand where nouns stand: behind an article or preposition."""
    end = 0
    for phrase in phrases(text):
        start = text.find(phrase, end)
        if start < 0:
            continue
        before, end = fold(text[:start]).split(), start + len(phrase)
        behind = text[end : end + 1].isspace() and text[end:].split()
        last = before[-1] if before else ""
        governed = last in DETERMINERS or last in _GOVERNING or last.endswith("'s")
        if governed and not (behind and fold(behind[0]) not in _CLOSED):
            yield core(phrase)


def _distinct(labels: Iterable[str]) -> tuple[str, ...]:
    """*labels* without what is none, and without what another one holds."""
    found: dict[str, str] = {}
    for label in labels:
        bare = _without_opening(label.strip(" .,;:!?'’\"").removesuffix("'s").removesuffix("’s"))
        key = fold(bare)
        if not 1 < len(bare) <= _LONGEST or not _means_something(key):
            continue
        if not any(key == known or f" {key} " in f" {known} " for known in found):
            found[key] = bare
    return tuple(found.values())[:MOST]


def _without_opening(label: str) -> str:
    """*label* without the words that only their place gave a capital: "Last", "During"."""
    parts = label.split()
    while len(parts) > 1 and parts[0].istitle() and _opens(fold(parts[0])):
        parts.pop(0)
    return " ".join(parts)


def _opens(word: str) -> bool:
    if word == "new":  # York
        return False
    closed = word in STOP_WORDS or word in LIGHT or word in PREPOSITIONS or word in _NO_CONCEPTS
    return closed or is_adverb(word) or is_past(word)


def _means_something(key: str) -> bool:
    if not any(map(str.isalpha, key)) or key[0].isdigit():
        return False
    if _VERSION.fullmatch(key) or is_adverb(key) or _TAIL.search(key):
        return False
    if " " not in key and is_gerund(key):
        return False
    return not (key in LIGHT or key in STOP_WORDS or key in _NO_CONCEPTS)

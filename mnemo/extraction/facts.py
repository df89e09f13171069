"""Clean extracted facts: drop the unsupported, unite duplicates, keep the most confident."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mnemo.english.canonical import canonical_clauses, speaker_of, words_of
from mnemo.english.verbs import DETERMINERS, finite_verb, is_gerund, tokens_of
from mnemo.english.words import (
    LIGHT,
    MONTHS,
    PREPOSITIONS,
    WEEKDAYS,
    core,
    is_adverb,
    is_past,
    phrase_key,
    phrases,
    word_set,
)
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import STOP_WORDS, clean, fold, one_line, plain, terms
from mnemo.values.graph import Vector
from mnemo.values.lookup import label_key
from mnemo.values.steps import Fact, Step

SAME_FACT = 0.95
"""Cosine from which two facts of one trajectory are one, if the guard holds (S)."""
STEPS_PER_BOUND = 4
"""Steps of a trajectory that each have a share in ``config.extraction.max_facts`` (S)."""
MAX_SUPPORT = 3
"""Steps that a fact without named steps rests on, at most (S)."""
MAX_CONCEPTS = 6
"""Concepts of one fact, at most (S)."""
MAX_CONCEPT_CHARACTERS = 80
"""Longest concept of a reply; beyond it is a sentence, not a term (S)."""
MAX_OWN_CHARACTERS = 48
"""Longest concept that is taken from a fact's own words (S)."""
COMPARED_CHARACTERS = 20_000
"""Head of a step's text that is searched for a fact's words; the rest is rarely speech (S)."""

_UNRESOLVED = word_set(
    """
    he she it they him her them his hers its their theirs this that these those i me my mine we us
    our ours you your yours
    """
)
_TYPE_LABELS = word_set(
    """
    concept date entity event fact location name number object organisation organization other
    people person place thing time type
    """
)
_COMPOUNDING = frozenset("/&+-")
"""What makes a first word part of a name: I/O, IT-department."""
_FIRST_WORD = re.compile(r"[\W_]*([^\W_]+)")


@dataclass(frozen=True, slots=True)
class CleanFacts:
    """Facts that may be kept, and how many were *dropped* alone."""

    facts: tuple[Fact, ...]
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class KnownFact:
    """A fact with the vector of its proposition, unit norm."""

    fact: Fact
    vector: Vector


def clean_facts(facts: Iterable[Fact], steps: Sequence[Step]) -> CleanFacts:
    """Drop what cannot stand alone, complete the rest (confidence in [0, 1]), join equal ones."""
    kept: dict[str, Fact] = {}
    dropped = 0
    support = _Support(steps)
    breather = Breather()
    for fact in facts:
        breather.breathe()
        if not _stands_alone(fact.proposition):
            dropped += 1
            continue
        fact = _completed(fact, support)
        key = plain(fact.proposition)
        kept[key] = _united(kept[key], fact) if key in kept else fact
    own = concepts_of([fact.proposition for fact in kept.values()])
    whole = (
        fact if fact.concepts else replace(fact, concepts=concepts)
        for fact, concepts in zip(kept.values(), own, strict=True)
    )
    return CleanFacts(tuple(whole), dropped)


def most_facts(max_facts: int, steps: int) -> int:
    """How many facts a trajectory of so many *steps* may give: the bound grows with them."""
    return max_facts * -(-steps // STEPS_PER_BOUND)


def distinct_facts(
    facts: Sequence[Fact],
    vectors: NDArray[np.float32],
    *,
    same_claim: Callable[[str, str], bool],
    limit: int,
) -> tuple[list[KnownFact], int]:
    """
    Unite facts that are one claim by *same_claim*, the guard of a commit, keep the *limit* most
    confident in their order, count the rest. *vectors*: One unit row per fact.
    """
    kept: list[KnownFact] = []
    breather = Breather()
    for fact, vector in zip(facts, vectors, strict=True):
        breather.breathe()
        known = KnownFact(fact, vector)
        at = _same(kept, known, same_claim)
        if at is None:
            kept.append(known)
        else:
            kept[at] = _united_known(kept[at], known)
    ranked = sorted(range(len(kept)), key=lambda i: -kept[i].fact.confidence)
    return [kept[i] for i in sorted(ranked[:limit])], max(0, len(kept) - limit)


def _stands_alone(proposition: str) -> bool:
    first = _FIRST_WORD.match(proposition)
    if first is None:
        return False
    word = first.group(1)
    if word.lower() not in _UNRESOLVED or proposition[first.end() :][:1] in _COMPOUNDING:
        return True
    # "IT" and "US" are names; a lone "I" is not.
    return len(word) > 1 and word.isupper() and not proposition.isupper()


def _completed(fact: Fact, support: _Support) -> Fact:
    proposition = one_line(clean(fact.proposition))
    return replace(
        fact,
        proposition=proposition,
        concepts=_concepts(fact.concepts),
        confidence=min(1.0, max(0.0, fact.confidence)),
        steps=support.of(proposition, fact.steps),
    )


def _concepts(labels: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for label in labels:
        text = one_line(clean(label))
        key = label_key(text)
        if 0 < len(text) <= MAX_CONCEPT_CHARACTERS and key not in _TYPE_LABELS:
            found.setdefault(key, text)
    return tuple(found.values())[:MAX_CONCEPTS]


class _Support:
    """Which steps a fact rests on; the words of the steps are looked at once, if at all."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._indexes = {step.index for step in steps}
        self._words: list[frozenset[str]] | None = None

    def of(self, proposition: str, named: Iterable[int]) -> tuple[int, ...]:
        if own := self._indexes.intersection(named):
            return tuple(sorted(own))
        if self._words is None:
            self._words = [_words_of(step) for step in self._steps]
        wanted = frozenset(terms(proposition))
        shared = [(len(wanted & words), -i) for i, words in enumerate(self._words)]
        best = max(shared)[0]
        # A step that shares a stray word with the fact beside one that shares five is no source.
        near = sorted((pair for pair in shared if 2 * pair[0] >= best), reverse=True)
        return tuple(sorted(self._steps[-i].index for _, i in near[:MAX_SUPPORT]))


def _words_of(step: Step) -> frozenset[str]:
    breather = Breather()
    found = set()
    for term in terms(step.text[:COMPARED_CHARACTERS]):
        breather.breathe()
        found.add(term)
    return frozenset(found)


def _same(
    kept: Sequence[KnownFact], known: KnownFact, same_claim: Callable[[str, str], bool]
) -> int | None:
    if not kept:
        return None
    cosines = np.stack([other.vector for other in kept]) @ known.vector
    for at in map(int, np.flatnonzero(cosines >= SAME_FACT)):
        if same_claim(kept[at].fact.proposition, known.fact.proposition):
            return at
    return None


def _united_known(a: KnownFact, b: KnownFact) -> KnownFact:
    fact = _united(a.fact, b.fact)
    return KnownFact(fact, a.vector if fact.proposition == a.fact.proposition else b.vector)


def _united(a: Fact, b: Fact) -> Fact:
    """One fact for two: longer wording, all steps and concepts, higher confidence."""
    longer = b if len(b.proposition) > len(a.proposition) else a
    concepts: dict[str, str] = {}
    for label in (*a.concepts, *b.concepts):
        concepts.setdefault(label_key(label), label)
    return replace(
        longer,
        concepts=tuple(concepts.values()),
        confidence=max(a.confidence, b.confidence),
        steps=tuple(sorted({*a.steps, *b.steps})),
        replaces=tuple(dict.fromkeys((*a.replaces, *b.replaces))),
    )


# ── Concepts ────────────────────────────────────────────────────────────────────────────


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
    jun jul aug sep sept oct nov dec am pm heres theres black blue brown green grey gray orange pink
    purple red white yellow lift lifts load loads hold holds bunch bit pair number lack amount rest
    start end
    """
).union(MONTHS, WEEKDAYS)


def concepts_of(propositions: Sequence[str]) -> list[tuple[str, ...]]:
    """At most six concepts of each of *propositions*, said together: names and key nouns."""
    breather = Breather()
    counts: Counter[str] = Counter()
    found = []
    for proposition in propositions:
        breather.breathe()
        names, subjects, nouns = _words(proposition)
        counts.update({*map(phrase_key, (*subjects, *nouns))})
        found.append(((*names, *subjects), nouns))
    return [
        _distinct((*sure, *(noun for noun in nouns if counts[phrase_key(noun)] > 1)))
        for sure, nouns in found
    ]


def _words(proposition: str) -> tuple[list[str], list[str], list[str]]:
    """Its names with its speaker, the nouns that a clause is about, and its other nouns."""
    speaker = speaker_of(proposition)
    text = _DATED.sub(" | ", words_of(proposition))
    names = [match for pattern in (_TITLE, _IDENTIFIER, _NAME) for match in _matches(pattern, text)]
    clauses = canonical_clauses(_DATED.sub("", proposition))
    subjects = [subject for clause in clauses for subject in _subject(clause, speaker)]
    return [*filter(None, (speaker, *names))], subjects, [*_nouns(text)]


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
        if not 1 < len(bare) <= MAX_OWN_CHARACTERS or not _means_something(key):
            continue
        if not any(key == known or f" {key} " in f" {known} " for known in found):
            found[key] = bare
    return tuple(found.values())[:MAX_CONCEPTS]


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

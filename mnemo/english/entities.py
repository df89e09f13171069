"""Numbers, dates, names, units and subject of a text, to compare wordings; English first."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from mnemo.english.verbs import DETERMINERS, finite_verb, is_gerund, tokens_of
from mnemo.english.words import (
    MONTHS,
    NUMBER_WORDS,
    PARTICIPLES,
    PREPOSITIONS,
    WEEKDAYS,
    is_adverb,
    is_past,
    word_set,
)
from mnemo.runtime.text import STOP_WORDS, fold, stem

BRACKETS = re.compile(r"\[([^\[\]]*\d[^\[\]]*)\]")
_ISO_DATE = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_WITH_DIGIT = re.compile(r"[\w]*\d(?:[\w]|[.,:/-](?=\w))*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_ORDINAL = re.compile(r"^(\d+)(?:st|nd|rd|th)$")
_KILO = re.compile(r"^(\d+(?:\.\d+)?)k$")
_NAME = re.compile(r"(?<![\w'’])[^\W\d_a-z][\w.-]*[\w]|(?<![\w'’])[A-Z](?![\w'’])")
_POSSESSIVE = re.compile(r"['’]s\b")
_TOKEN = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")


_CALENDAR = frozenset((*MONTHS, *WEEKDAYS))
_RELATIVE = frozenset(("today", "yesterday", "tomorrow", "tonight"))
# "one" is left out: it is a pronoun as often as a number.
_NUMBERS = {word: str(number) for word, number in NUMBER_WORDS.items() if number > 1} | {
    "zero": "0", "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "hundred": "100",
}  # fmt: skip

_UNITS = """
euro euros eur €; dollar dollars usd $; pound pounds gbp £; yen jpy ¥; second seconds s sec;
millisecond milliseconds ms; minute minutes min; hour hours h; day days; week weeks; month months;
year years; kg kilo kilos kilograms; lb lbs; metre metres meter meters m; km kilometres kilometers;
mile miles; mb megabytes; gb gigabytes; tb terabytes; percent %
"""
UNITS = {unit: same.split()[0] for same in _UNITS.split(";") for unit in same.split()}
"""Spelling of a unit → the first of those of its line."""
_UNIT = re.compile(r"([€$£¥])\s?\d|\d[\d.,]*\s?([€$£¥%]|[^\W\d_]+)")

LEADING = re.compile(r"^(?:(?:in|on|at|since|after|before|by|during|as of)\b[^,]*,|now,?)\s*", re.I)


@lru_cache(maxsize=256)
def numbers(text: str) -> frozenset[str]:
    """Numbers and identifiers with digits in *text*, dates in brackets aside, normalised."""
    bare = _ISO_DATE.sub(_spell_date, BRACKETS.sub(" ", text))
    found = {said_number(token) for token in _WITH_DIGIT.findall(_THOUSANDS.sub("", bare))}
    found.update(_NUMBERS[word] for word in tokens(bare) if word in _NUMBERS)
    return frozenset(found)


def _spell_date(found: re.Match[str]) -> str:
    year, month, day = map(int, found.groups())
    try:
        date(year, month, day)
    except ValueError:
        return found.group()
    return f"{day} {MONTHS[month - 1].capitalize()} {year}"


def said_number(token: str) -> str:
    """Normalise a word with digits: ``2,000``, ``2k`` and ``2000.0`` are one number."""
    token = fold(token)
    if ordinal := _ORDINAL.match(token):
        return ordinal.group(1).lstrip("0") or "0"
    kilo = _KILO.match(token)
    try:
        return f"{float(kilo.group(1)) * 1000 if kilo else float(token):g}"
    except ValueError:
        return token


@lru_cache(maxsize=256)
def dates(text: str) -> frozenset[str]:
    """Resolved dates in brackets, or, without any, the months, weekdays and relative days."""
    resolved = frozenset(fold(found).strip() for found in BRACKETS.findall(text))
    if resolved:
        return resolved
    said = _TOKEN.findall(_ISO_DATE.sub(_spell_date, text))
    # Capitals tell the month of May, and March, from what one may do and how one walks.
    named = {word.lower() for word in said if word[0].isupper()} & _CALENDAR
    return frozenset(named | (set(map(fold, said)) & _RELATIVE))


@lru_cache(maxsize=256)
def names(text: str) -> frozenset[str]:
    """Capitalised words of *text* but the first if it is an everyday word; folded."""
    found = (m.group().rstrip(".") for m in _NAME.finditer(_POSSESSIVE.sub("", text)))
    folded = (fold(word) for word in found)
    return frozenset(w for w in folded if w not in STOP_WORDS and w not in _CALENDAR)


@lru_cache(maxsize=256)
def subject(text: str) -> tuple[str, ...]:
    """
    The grammatical subject of *text*: its folded words before the finite verb, in the active voice.

    ``'s`` follows an owner, ``and`` joins two, ``the`` is kept; empty if no verb is recognised.
    """
    words, verb = _clause(text)
    found: list[str] = []
    for word in words[:verb] if verb is not None else ():
        if word[0].isalnum() and not is_adverb(word.lower()):
            owner = _POSSESSIVE.sub("", word)
            found += [fold(owner)] if owner == word else [fold(owner), "'s"]
    return _without_article(found)


@lru_cache(maxsize=256)
def verb_of(text: str) -> str:
    """The stem of the finite verb behind the ``subject`` of *text*; empty if none is recognised."""
    words, verb = _clause(text)
    return "" if verb is None else stem(fold(words[verb]))


def _clause(text: str) -> tuple[tuple[str, ...], int | None]:
    """The words of *text* in the active voice, what leads aside, and where its verb stands."""
    words = active(LEADING.sub("", BRACKETS.sub(" ", text).strip()))
    return words, finite_verb(words, sure=False)


def _without_article(words: list[str]) -> tuple[str, ...]:
    if words[:1] == ["the"]:
        return ("the", *map(stem, words[1:]))
    return tuple(words[1:] if words[:1] in (["a"], ["an"]) else words)


def is_measure(term: str) -> bool:
    """Whether a stemmed word is a number, a unit or a date, which have their own comparisons."""
    return not term.isalpha() or term in measures()


@lru_cache(maxsize=1)
def measures() -> frozenset[str]:
    """The stems of units, numbers and dates."""
    return frozenset(map(stem, (*UNITS, *_NUMBERS, *_CALENDAR, *_RELATIVE)))


def units(text: str) -> frozenset[str]:
    """The units that numbers of *text* are counted in, as far as they are known."""
    found = (fold(before or after) for before, after in _UNIT.findall(text))
    return frozenset(UNITS[unit] for unit in found if unit in UNITS)


def tokens(text: str) -> list[str]:
    """The words of *text*, folded, in order."""
    return [fold(word) for word in _TOKEN.findall(text)]


# ── The order of words ──────────────────────────────────────────────────────────────────


_BE = word_set("is are was were be been being am gets got")
_JOINS = frozenset(("and", "or", "&"))


class Place(NamedTuple):
    """Rank of a word in the active voice, and number of the "and" that joins it; 0: none does."""

    rank: int
    group: int


def same_order(a: str, b: str, *, leave_out: frozenset[str] = frozenset()) -> bool:
    """Whether the words that *a* and *b* share, less stems to *leave_out*, have one order."""
    mine, theirs = order(a), order(b)
    shared = sorted((key for key in mine.keys() & theirs.keys() if key[0] not in leave_out),
                    key=lambda key: mine[key].rank)  # fmt: skip
    return all(
        theirs[first].rank < theirs[second].rank
        and _joined(mine, first, second) == _joined(theirs, first, second)
        for first, second in itertools.pairwise(shared)
    )


Key = tuple[str, int]
"""A stem, and for which time it occurs."""


def _joined(places: Mapping[Key, Place], first: Key, second: Key) -> bool:
    return places[first].group == places[second].group != 0


@lru_cache(maxsize=256)
def order(text: str) -> Mapping[Key, Place]:
    """Place of each content word of *text* in the active voice; adverbs have none."""
    words = active(text)
    verb = finite_verb(words, sure=False)
    found: dict[Key, Place] = {}
    seen: Counter[str] = Counter()
    for at, group in _grouped(words, len(words) if verb is None else verb):
        word = fold(words[at])
        if not word[:1].isalpha() or word in STOP_WORDS or is_adverb(word):
            continue
        term = stem(word.removesuffix("'s"))
        seen[term] += 1
        found[term, seen[term]] = Place(len(found), group)
    return found


# ── What "and" joins ─────────────────────────────────────────────────────────────────


def _grouped(words: Sequence[str], verb: int) -> Iterator[tuple[int, int]]:
    """The indexes of all words, those of each group sorted by its members, with its number."""
    done, group = 0, 0
    joins = _JOINS.intersection(words)
    for at, word in enumerate(words if joins else ()):
        if at < done or word not in joins:
            continue
        members = [*_before(words, at, done, verb), _after(words, at + 1, verb)]
        start = members[0].start
        yield from ((i, 0) for i in range(done, start))
        group += 1
        members.sort(key=lambda member: [words[i].lower() for i in member])
        yield from ((i, group) for member in members for i in member)
        done = max(member.stop for member in members)
    yield from ((i, 0) for i in range(done, len(words)))


def _before(words: Sequence[str], join: int, least: int, verb: int) -> list[range]:
    """The members of a list that ends before the "and" at *join*: "A, B and"."""
    members: list[range] = []
    stop = join - 1 if words[join - 1 : join] == [","] else join
    while stop > least:
        start = _start_of(words, stop, max(least, verb + 1 if verb < stop else least))
        members.insert(0, range(start, stop))
        if start <= least or words[start - 1] != ",":
            break
        stop = start - 1
    return members or [range(join, join)]


def _start_of(words: Sequence[str], stop: int, least: int) -> int:
    """Where the name or the noun with its article begins that ends before *stop*."""
    start = stop - 1
    if words[start][:1].isupper():
        while start > least and words[start - 1][:1].isupper():
            start -= 1
        return start
    for at in range(start, max(least, stop - 4) - 1, -1):
        if words[at].lower() in DETERMINERS:
            return at
    return start


def _after(words: Sequence[str], start: int, verb: int) -> range:
    """The member that begins at *start*: to the verb, a preposition or a mark."""
    at = start
    while at < len(words) and at != verb and not _ends_member(words, start, at):
        at += 1
    return range(start, at)


def _ends_member(words: Sequence[str], start: int, at: int) -> bool:
    word = words[at].lower()
    if not word[0].isalnum() or word in PREPOSITIONS or word in _JOINS:
        return True
    return at > start and words[start][:1].isupper() and not words[at][:1].isupper()


# ── The active voice ─────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def active(text: str) -> tuple[str, ...]:
    """Turn a passive *text* into the active voice: the words and marks, the agent first."""
    words = tokens_of(text)
    if "by" not in words:
        return words
    lower = [word.lower() for word in words]
    done, by = _passive(lower), lower.index("by")
    if not 0 < done < by:
        return words
    end = _after(words, by + 1, len(words)).stop
    doer = words[by + 1 : end]
    if not doer or is_gerund(lower[by + 1]) or not lower[by + 1][0].isalpha():
        return words
    be = max(i for i in range(done) if lower[i] in _BE)
    return (*doer, words[done], *words[:be], *words[done + 1 : by], *words[end:])


def _passive(lower: Sequence[str]) -> int:
    """The index of the participle behind a form of "be"; 0 if there is none."""
    for at, word in enumerate(lower[1:], 1):
        if (is_past(word) or word in PARTICIPLES) and word not in _BE:
            before = at - 1
            while before > 0 and is_adverb(lower[before]):
                before -= 1
            if lower[before] in _BE:
                return at
    return 0

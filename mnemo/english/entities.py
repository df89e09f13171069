"""
Numbers, dates, names, units and the grammatical subject of a text, for comparing wordings.

Rules are English first; of a text in a language they do not know, its numbers and
names are found all the same.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date
from functools import lru_cache

from mnemo.english.order import active
from mnemo.english.verbs import finite_verb
from mnemo.english.words import MONTHS, NUMBER_WORDS, WEEKDAYS, is_adverb
from mnemo.runtime.text import STOP_WORDS, fold, one_line, stem

_FINAL = ".。!！"

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

UNITS = {
    unit: names[0]
    for names in (
        ("euro", "euros", "eur", "€"),
        ("dollar", "dollars", "usd", "$"),
        ("pound", "pounds", "gbp", "£"),
        ("yen", "jpy", "¥"),
        ("second", "seconds", "s", "sec"),
        ("millisecond", "milliseconds", "ms"),
        ("minute", "minutes", "min"),
        ("hour", "hours", "h"),
        ("day", "days"),
        ("week", "weeks"),
        ("month", "months"),
        ("year", "years"),
        ("kg", "kilo", "kilos", "kilograms"),
        ("lb", "lbs"),
        ("metre", "metres", "meter", "meters", "m"),
        ("km", "kilometres", "kilometers"),
        ("mile", "miles"),
        ("mb", "megabytes"),
        ("gb", "gigabytes"),
        ("tb", "terabytes"),
        ("percent", "%"),
    )
    for unit in names
}
_UNIT = re.compile(r"([€$£¥])\s?\d|\d[\d.,]*\s?([€$£¥%]|[^\W\d_]+)")

LEADING = re.compile(r"^(?:(?:in|on|at|since|after|before|by|during|as of)\b[^,]*,|now,?)\s*", re.I)


def plain(text: str) -> str:
    """Normalise *text*: blanks squeezed, case folded, the final point removed."""
    squeezed = one_line(unicodedata.normalize("NFC", text)).casefold()
    return squeezed.rstrip(_FINAL).rstrip() or squeezed


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

    ``'s`` follows an owner and ``and`` joins two; ``the`` is kept at the beginning
    for a thing without a name. Empty if no verb is recognised.
    """
    words = active(LEADING.sub("", BRACKETS.sub(" ", text).strip()))
    verb = finite_verb(words, sure=False)
    found: list[str] = []
    for word in words[:verb] if verb is not None else ():
        if word[0].isalnum() and not is_adverb(word.lower()):
            owner = _POSSESSIVE.sub("", word)
            found += [fold(owner)] if owner == word else [fold(owner), "'s"]
    return _without_article(found)


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

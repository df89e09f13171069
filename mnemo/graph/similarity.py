"""
When two texts may make the same claim. Pure: no model, no store.

A cosine near 1 cannot tell a budget of 2000 from one of 3000, nor a yes from a no:
here is what must agree besides. Rules are English first; a text in a language they
do not know is compared by its numbers and names alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import date
from functools import lru_cache

from mnemo._text import STOP_WORDS, fold, one_line, stem

__all__ = ["dates", "equal_text", "names", "numbers", "plain", "same_claim_guard", "subject"]

_FINAL = ".。!！"

_BRACKETS = re.compile(r"\[([^\[\]]*\d[^\[\]]*)\]")
_ISO_DATE = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_WITH_DIGIT = re.compile(r"[\w]*\d(?:[\w]|[.,:/-](?=\w))*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_ORDINAL = re.compile(r"^(\d+)(?:st|nd|rd|th)$")
_KILO = re.compile(r"^(\d+(?:\.\d+)?)k$")
_NAME = re.compile(r"(?<![\w'’])[^\W\d_a-z][\w.-]*[\w]|(?<![\w'’])[A-Z](?![\w'’])")
_POSSESSIVE = re.compile(r"['’]s\b")
_TOKEN = re.compile(r"[^\W_]+(?:['’.-][^\W_]+)*")
_CONTRACTED_NOT = re.compile(r"\b(\w+)n['’]t\b")


def _list(words: str) -> list[str]:
    return words.split()


_MONTHS = _list(
    "january february march april may june july august september october november december"
)
_DAYS = _list("monday tuesday wednesday thursday friday saturday sunday")
_CALENDAR = frozenset((*_MONTHS, *_DAYS))
_RELATIVE = frozenset(("today", "yesterday", "tomorrow", "tonight"))
# "one" is left out: it is a pronoun as often as a number.
_NUMBER_WORDS = {
    word: str(value)
    for value, word in enumerate(
        _list("two three four five six seven eight nine ten eleven twelve"), start=2
    )
} | {"zero": "0", "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "hundred": "100"}

_UNITS = {
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

_NEGATIONS = frozenset(_list("not no never without nobody nothing none neither nowhere"))
_ENDINGS = re.compile(
    r"\b(?:no longer|not any ?more|any ?more|any longer|stopped|quit|quits|ceased|gave up"
    r"|given up|used to|former|formerly|ex)\b"
)
# What stands on two sides of one question: texts that take different sides differ.
_OPPOSITES = (
    ("like love enjoy prefer adore", "dislike hate detest avoid"),
    ("enable activate", "disable deactivate"),
    ("open reopen", "close shut"),
    ("pass succeed success", "fail failure"),
    ("accept approve confirm", "reject refuse decline deny cancel"),
    ("start begin", "stop end finish"),
    ("increase raise grow", "decrease lower reduce shrink"),
    ("before", "after"),
    ("more", "less fewer"),
    ("always", "never rarely seldom"),
    ("buy purchase", "sell"),
    ("arrive", "depart leave"),
    ("win", "lose"),
    ("add install", "remove uninstall delete"),
    ("allow permit", "forbid block prohibit"),
    ("online", "offline"),
    ("left", "right"),
    ("morning", "afternoon evening night"),
    ("true", "false"),
    ("first", "last"),
    ("minimum", "maximum"),
    ("married", "divorced single"),
    ("gain", "drop"),
)

# The verbs that end a subject; others are recognised by nothing but their place.
_VERBS = frozenset(
    _list("""
    is are was were am be been has have had does do did will would can could may might must
    should lives works likes loves hates prefers wants needs uses moved lived worked joined
    left owns plays speaks studies visited adopted bought started stopped quit said asked
    told thinks planned plans enjoys drinks eats runs got made took went bakes teaches
    returned failed passed created fixed changed became turned costs contains supports
    no never not now also still just recently currently actually
    """)
)
_LEADING = re.compile(
    r"^(?:(?:in|on|at|since|after|before|by|during|as of)\b[^,]*,|now,?)\s*", re.I
)


# ── Equal words ──────────────────────────────────────────────────────────────────────


def plain(text: str) -> str:
    """*text* with blanks squeezed, case folded and the final point removed."""
    squeezed = one_line(unicodedata.normalize("NFC", text)).casefold()
    return squeezed.rstrip(_FINAL).rstrip() or squeezed


def equal_text(a: str, b: str) -> bool:
    """Whether *a* and *b* are the same text, case, blanks and the final point aside."""
    return a == b or plain(a) == plain(b)


# ── The guard ────────────────────────────────────────────────────────────────────────


def same_claim_guard(a: str, b: str) -> bool:
    """
    Decide whether *a* and *b* may be the same fact, however near their vectors are.

    ``False`` as soon as numbers, dates, negation or the named subject differ, or if
    each names somebody or something that the other does not. ``True`` is no proof.
    """
    if equal_text(a, b):
        return True
    return all(agree(a, b) for agree in _GUARDS)


def _numbers_agree(a: str, b: str) -> bool:
    return numbers(a) == numbers(b) and _share_a_side(_units(a), _units(b))


def _dates_agree(a: str, b: str) -> bool:
    return dates(a) == dates(b)


def _polarity_agrees(a: str, b: str) -> bool:
    if _negations(a) != _negations(b) or _ends(a) != _ends(b):
        return False
    mine, theirs = _sides(a), _sides(b)
    return all(mine[axis] & theirs[axis] for axis in mine.keys() & theirs.keys())


def _subjects_agree(a: str, b: str) -> bool:
    mine, theirs = subject(a), subject(b)
    if mine == theirs or not (mine and theirs):
        return True
    # "Ana" and "Ana Silva" may be one person; "Ana's dog", "Ana and Bo" are somebody else.
    short, long = sorted((mine, theirs), key=len)
    return set(short) <= set(long) and not {"'s", "and", "the"} & set(long)


def _names_agree(a: str, b: str) -> bool:
    return _share_a_side(names(a), names(b))


def _share_a_side(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether one of two sets holds nothing but what is in the other."""
    return a <= b or b <= a


_GUARDS: tuple[Callable[[str, str], bool], ...] = (
    _numbers_agree,
    _dates_agree,
    _polarity_agrees,
    _subjects_agree,
    _names_agree,
)


# ── What is compared ─────────────────────────────────────────────────────────────────


@lru_cache(maxsize=4_096)
def numbers(text: str) -> frozenset[str]:
    """Numbers and identifiers with digits in *text*, dates in brackets aside, normalised."""
    bare = _ISO_DATE.sub(_spell_date, _BRACKETS.sub(" ", text))
    found = {_number(token) for token in _WITH_DIGIT.findall(_THOUSANDS.sub("", bare))}
    found.update(_NUMBER_WORDS[word] for word in _lower(bare) if word in _NUMBER_WORDS)
    return frozenset(found)


def _spell_date(found: re.Match[str]) -> str:
    year, month, day = map(int, found.groups())
    try:
        date(year, month, day)
    except ValueError:
        return found.group()
    return f"{day} {_MONTHS[month - 1].capitalize()} {year}"


def _number(token: str) -> str:
    token = fold(token)
    if ordinal := _ORDINAL.match(token):
        return ordinal.group(1).lstrip("0") or "0"
    kilo = _KILO.match(token)
    try:
        return f"{float(kilo.group(1)) * 1000 if kilo else float(token):g}"
    except ValueError:
        return token


@lru_cache(maxsize=4_096)
def dates(text: str) -> frozenset[str]:
    """Resolved dates in brackets, or, without any, the months, weekdays and relative days."""
    resolved = frozenset(fold(found).strip() for found in _BRACKETS.findall(text))
    if resolved:
        return resolved
    said = _TOKEN.findall(_ISO_DATE.sub(_spell_date, text))
    # Capitals tell the month of May, and March, from what one may do and how one walks.
    named = {word.lower() for word in said if word[0].isupper()} & _CALENDAR
    return frozenset(named | (set(map(fold, said)) & _RELATIVE))


@lru_cache(maxsize=4_096)
def names(text: str) -> frozenset[str]:
    """Capitalised words of *text* but the first if it is an everyday word; folded."""
    found = (m.group().rstrip(".") for m in _NAME.finditer(_POSSESSIVE.sub("", text)))
    folded = (fold(word) for word in found)
    return frozenset(w for w in folded if w not in STOP_WORDS and w not in _CALENDAR)


@lru_cache(maxsize=4_096)
def subject(text: str) -> tuple[str, ...]:
    """
    What *text* speaks of: the folded words before its first verb.

    ``'s`` follows an owner and ``and`` joins two; ``the`` is kept at the beginning
    for a thing without a name. Empty if no verb is recognised within eight words.
    """
    head = _POSSESSIVE.sub(" 's ", _LEADING.sub("", _BRACKETS.sub(" ", text).strip()))
    found: list[str] = []
    for word in re.findall(r"'s|[^\W_]+(?:[’'.-][^\W_]+)*", head)[:9]:
        folded = fold(word)
        if folded in _VERBS or folded.endswith("n't"):
            return _without_article(found)
        found.append(folded)
    return ()


def _without_article(words: list[str]) -> tuple[str, ...]:
    if words[:1] == ["the"]:
        return ("the", *map(stem, words[1:]))
    return tuple(words[1:] if words[:1] in (["a"], ["an"]) else words)


def _units(text: str) -> frozenset[str]:
    found = (fold(before or after) for before, after in _UNIT.findall(text))
    return frozenset(_UNITS[unit] for unit in found if unit in _UNITS)


def _negations(text: str) -> int:
    spelled = _CONTRACTED_NOT.sub(r"\1 not", text.lower().replace("cannot", "can not"))
    spelled = spelled.replace("no longer", "ended")
    return sum(word in _NEGATIONS for word in _lower(spelled))


def _ends(text: str) -> bool:
    return _ENDINGS.search(text.lower()) is not None


@lru_cache(maxsize=1)
def _axes() -> dict[str, tuple[int, int]]:
    """Stem → (which question, which side of it)."""
    return {
        stem(word): (axis, side)
        for axis, sides in enumerate(_OPPOSITES)
        for side, words in enumerate(sides)
        for word in words.split()
    }


def _sides(text: str) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for word in _lower(text):
        if place := _axes().get(stem(word)):
            found.setdefault(place[0], set()).add(place[1])
    return found


def _lower(text: str) -> list[str]:
    return [fold(word) for word in _TOKEN.findall(text)]

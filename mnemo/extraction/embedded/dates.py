"""
Relative dates made absolute: ``yesterday`` becomes ``yesterday [2024-02-29]``.

The date is added, the words stay, and it is as precise as they are. Vague words
("recently", "a few weeks ago") are left alone.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

from mnemo.english.forms import NUMBER_WORDS

__all__ = ["with_dates"]

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY = {name: i for i, name in enumerate(_DAYS)}
_WEEKDAY |= {
    "mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5,
    "sun": 6,
}  # fmt: skip
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_FIXED = {
    "today": 0,
    "tonight": 0,
    "this morning": 0,
    "this afternoon": 0,
    "this evening": 0,
    "yesterday": -1,
    "last night": -1,
    "the day before yesterday": -2,
    "tomorrow": 1,
    "the day after tomorrow": 2,
}
_COUNT = r"(?P<count>\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_RELATIVE = re.compile(
    r"(?<![\w-])(?:"
    r"(?P<fixed>the day (?:before yesterday|after tomorrow)|today|tonight|tomorrow|last night"
    r"|yesterday|this (?:morning|afternoon|evening))"
    rf"|{_COUNT} (?P<unit>day|week|month|year)s? ago"
    r"|in (?P<ahead>\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
    r" (?P<ahead_unit>day|week|month|year)s?(?:['’] time)?"
    r"|(?P<which>last|next|this past|past|this coming|this) (?P<name>weekend|week|month|year"
    r"|mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:rs?(?:day)?)?|fri(?:day)?|sat(?:urday)?"
    r"|sun(?:day)?|january|february|march|april|may|june|july|august|september|october|november"
    r"|december)"
    r")(?![\w-])(?!\s?\[)",
    re.IGNORECASE,
)
_HINT = re.compile(r"day|night|morrow|week|month|year|ago|last|next|this|past", re.IGNORECASE)
_FUTURE = re.compile(
    r"\b(?:will|gonna|going to|due|starts?|leav(?:e|es|ing)|plan(?:s|ning)?|moving|arriv(?:e|es"
    r"|ing)"
    r"|is|are|have|has)\b|['’]ll\b|['’]re\b|['’]m\b",
    re.IGNORECASE,
)


def with_dates(text: str, at: datetime) -> str:
    """
    Add to every relative date of *text* what it means, seen from *at* in its own zone.

    Examples: ``last Friday [2024-02-23]`` (the latest before that day), ``next month
    [2024-04]``, ``two years ago [2022]``, ``last week [week of 2024-02-19]``.
    """
    if not _HINT.search(text):
        return text
    today = at.date()

    def add(match: re.Match[str]) -> str:
        try:
            meaning = _meaning(match, today, text)
        except (OverflowError, ValueError):  # before the year 1 or after 9999
            meaning = None
        return f"{match.group()} [{meaning}]" if meaning else match.group()

    return _RELATIVE.sub(add, text)


def _meaning(match: re.Match[str], today: date, text: str) -> str | None:
    if match["fixed"]:
        return str(today + timedelta(days=_FIXED[match["fixed"].lower()]))
    if match["unit"]:
        return _shifted(today, match["unit"], -_number(match["count"]))
    if match["ahead_unit"]:
        # "in two weeks" is a date only of what is to come; else it is a duration.
        future = _FUTURE.search(text) is not None
        return _shifted(today, match["ahead_unit"], _number(match["ahead"])) if future else None
    return _named(today, match["which"].lower(), match["name"].lower())


def _number(word: str) -> int:
    return int(word) if word.isdigit() else NUMBER_WORDS[word.lower()]


def _shifted(today: date, unit: str, count: int) -> str:
    unit = unit.lower()
    if unit == "day":
        return str(today + timedelta(days=count))
    if unit == "week":
        return _week(today + timedelta(weeks=count))
    if unit == "month":
        return _month(today.year, today.month + count)
    return f"{date(today.year + count, 1, 1).year:04d}"


def _named(today: date, which: str, name: str) -> str | None:
    step = {"last": -1, "this past": -1, "past": -1, "next": 1}.get(which, 0)
    if name in _WEEKDAY:
        return _weekday(today, _WEEKDAY[name], which)
    if (
        "past" in which and name != "weekend"
    ):  # "the past week" is a span that ends today, not the week before
        return None
    if name == "weekend":
        return _weekend(today, which)
    if name == "week":
        return _week(today + timedelta(weeks=step))
    if name == "month":
        return _month(today.year, today.month + step)
    if name == "year":
        return f"{today.year + step:04d}"
    return _month_named(today, _MONTHS.index(name) + 1, step)


def _weekday(today: date, weekday: int, which: str) -> str | None:
    ahead = (weekday - today.weekday()) % 7
    if which in ("last", "this past", "past"):
        return str(today + timedelta(days=ahead - 7))
    if which == "next":
        return str(today + timedelta(days=ahead or 7))
    return str(today + timedelta(days=ahead))


def _weekend(today: date, which: str) -> str:
    saturday = today + timedelta(days=5 - today.weekday())
    if which in ("last", "this past"):
        # Seen from a Sunday, the last weekend is the one before.
        saturday -= timedelta(weeks=1)
    elif which == "next":
        saturday += timedelta(weeks=1)
    return f"weekend of {saturday}"


def _week(day: date) -> str:
    return f"week of {day - timedelta(days=day.weekday())}"


def _month(year: int, month: int) -> str:
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    return f"{date(year, month, 1):%Y-%m}"


def _month_named(today: date, month: int, step: int) -> str | None:
    if step < 0:
        return _month(today.year - (month >= today.month), month)
    if step > 0:
        return _month(today.year + (month <= today.month), month)
    return None

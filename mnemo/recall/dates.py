"""
Dates in a query, as spans of time: absolute ones and relative ones.

What a question means by "last summer" or "in May" depends on when memories are from, so
both are read against the time span of what is stored: a month without a year is that
month of every year in it, and "yesterday" is the day before the latest memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta

from mnemo.runtime.clock import of_timestamp
from mnemo.runtime.text import fold

__all__ = ["spans_of"]

MAX_YEARS = 50
"""Years before the latest memory of which a month without a year is sought."""
_CALENDAR = (1100, 9900)
"""Years around which a thousand years of days can be counted."""

Days = tuple[date, date]
"""First day, and the first day after."""

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_AMBIGUOUS = frozenset(("march", "may", "spring", "fall"))
"""Also a verb or an auxiliary: a time only after a preposition, or beside a day or a year."""

_YEAR = r"(?:,? (?:of )?(?P<year>(?:19|20)\d\d)\b)?"
_ABSOLUTE = re.compile(
    r"(?P<told>\b(?:in|of|by|since|during|until|before|after|early|late|mid|the)[ -])?"
    r"(?:\b(?P<day>\d{1,2})(?:st|nd|rd|th)?(?: of)? )?"
    rf"\b(?P<name>{'|'.join((*_MONTHS, *_SEASONS))})\b"
    rf"(?: (?P<after>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d))?{_YEAR}"
)
_BARE_YEAR = re.compile(r"(?<![\d-])((?:19|20)\d\d)(?![\d-])")
_ISO = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_AGO = re.compile(
    rf"\b(?P<count>\d{{1,3}}|{'|'.join(_COUNTS)}) (?P<unit>day|week|month|year)s? ago\b"
)
_LAST = re.compile(
    r"\b(?P<which>last|this) (?P<name>week(?:end)?|month|year"
    rf"|{'|'.join((*_DAYS, *_MONTHS, *_SEASONS))})\b"
)
_NEAR = {"today": 0, "yesterday": 1}


def spans_of(query: str, first: float, last: float) -> list[tuple[float, float]]:
    """
    The spans of time that *query* names, in Unix seconds, the end of each excluded.

    Days are those of UTC. Vague words ("recently", "the other day") name none.

    Args:
        first, last: Of what is stored; finite.
    """
    told = fold(query)
    today = of_timestamp(last).date()
    if not _CALENDAR[0] <= today.year <= _CALENDAR[1]:
        return []
    oldest = max(of_timestamp(first).year, today.year - MAX_YEARS)
    years = range(oldest, today.year + 1)
    calendar = _LAST.sub(" ", told)
    found = dict.fromkeys([*_relative(told, today), *_absolute(calendar, years)])
    return [(_seconds(begin), _seconds(end)) for begin, end in found]


def _seconds(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


# ── Told from the end ────────────────────────────────────────────────────────────────


def _relative(told: str, today: date) -> Iterator[Days]:
    for word, back in _NEAR.items():
        if re.search(rf"\b{word}\b", told):
            yield _days(today - timedelta(back), 1)
    for match in _AGO.finditer(told):
        count = match["count"]
        yield _ago(_COUNTS.get(count) or int(count), match["unit"], today)
    for match in _LAST.finditer(told):
        yield _which(match["name"], match["which"] == "last", today)


def _ago(count: int, unit: str, today: date) -> Days:
    """As precise as the unit: a week ago is a week, two years ago a year."""
    match unit:
        case "day":
            return _days(today - timedelta(count), 1)
        case "week":
            return _days(_monday(today) - timedelta(weeks=count), 7)
        case "month":
            return _month(*_months_back(today, count))
        case _:
            return _year(max(today.year - count, 1))


def _which(name: str, before: bool, today: date) -> Days:
    match name:
        case "week":
            return _days(_monday(today) - timedelta(7 * before), 7)
        case "weekend":
            return _days(_monday(today) + timedelta(5 - 7 * before), 2)
        case "month":
            return _month(*_months_back(today, int(before)))
        case "year":
            return _year(today.year - before)
    if name in _DAYS:
        back = (today.weekday() - _DAYS.index(name)) % 7
        return _days(today - timedelta(back or 7 * before), 1)
    if name in _MONTHS:
        return _latest(lambda year: _month(year, _MONTHS.index(name) + 1), before, today)
    return _latest(lambda year: _season(year, name), before, today)


def _latest(of: Callable[[int], Days], before: bool, today: date) -> Days:
    """The latest that has begun; with *before*, that is over."""
    years = (today.year - back for back in range(3))
    return next(days for year in years if (days := of(year))[int(before)] <= today)


# ── Told by the calendar ─────────────────────────────────────────────────────────────


def _absolute(told: str, years: range) -> Iterator[Days]:
    for year, month, day in _ISO.findall(told):
        if whole := _day(int(year), int(month), int(day)):
            yield whole
    dated = False
    for match in _ABSOLUTE.finditer(told):
        name, day = match["name"], match["day"] or match["after"]
        if name in _AMBIGUOUS and not (match["told"] or day or match["year"]):
            continue
        dated = True
        for year in [int(match["year"])] if match["year"] else years:
            if found := _in_year(year, name, int(day) if day else None):
                yield found
    if not dated:
        yield from (_year(int(year)) for year in _BARE_YEAR.findall(told))


def _in_year(year: int, name: str, day: int | None) -> Days | None:
    if name in _SEASONS:
        return _season(year, name)
    month = _MONTHS.index(name) + 1
    return _month(year, month) if day is None else _day(year, month, day)


# ── Days ─────────────────────────────────────────────────────────────────────────────


def _days(begin: date, count: int) -> Days:
    return begin, begin + timedelta(count)


def _day(year: int, month: int, day: int) -> Days | None:
    try:
        return _days(date(year, month, day), 1)
    except ValueError:
        return None


def _month(year: int, month: int, count: int = 1) -> Days:
    end = month - 1 + count
    return date(year, month, 1), date(year + end // 12, end % 12 + 1, 1)


def _season(year: int, name: str) -> Days:
    """Of the northern hemisphere; a winter is that which begins in *year*."""
    return _month(year, _SEASONS[name], 3)


def _year(year: int) -> Days:
    return _month(year, 1, 12)


def _months_back(today: date, count: int) -> tuple[int, int]:
    months = max(today.year * 12 + today.month - 1 - count, 12)
    return months // 12, months % 12 + 1


def _monday(day: date) -> date:
    return day - timedelta(day.weekday())

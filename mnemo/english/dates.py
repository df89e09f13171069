"""Dates of English text as calendar periods as precise as their words; vague words name no time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from typing import Literal

from mnemo.english.words import MONTHS, NUMBER_WORDS, WEEKDAYS
from mnemo.runtime.clock import of_timestamp
from mnemo.runtime.text import fold

# ── Periods ──────────────────────────────────────────────────────────────────────────

_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""First month on the northern hemisphere; a winter is that which begins in its year."""


@dataclass(frozen=True, slots=True)
class _Period:
    """A day, week, weekend, month, season or year, by its first day."""

    begin: date
    unit: Literal["day", "week", "weekend", "month", "season", "year"]

    @property
    def end(self) -> date:
        """The first day after."""
        days = {"day": 1, "weekend": 2, "week": 7}.get(self.unit)
        if days is not None:
            return self.begin + timedelta(days)
        months = {"month": 1, "season": 3}.get(self.unit, 12)
        return _month(self.begin.year, self.begin.month + months).begin

    def __str__(self) -> str:
        match self.unit:
            case "week" | "weekend":
                return f"{self.unit} of {self.begin}"
            case "month":
                return f"{self.begin:%Y-%m}"
            case "year":
                return f"{self.begin.year:04d}"
            case _:
                return str(self.begin)


def _day(day: date) -> _Period:
    return _Period(day, "day")


def _monday(day: date) -> date:
    return day - timedelta(day.weekday())


def _month(year: int, month: int) -> _Period:
    """Months below 1 and above 12 are those of other years."""
    return _Period(date(year + (month - 1) // 12, (month - 1) % 12 + 1, 1), "month")


def _year(year: int) -> _Period:
    return _Period(date(year, 1, 1), "year")


def _of_year(year: int, name: str) -> _Period:
    """The month or season *name* of *year*."""
    if name in _SEASONS:
        return _Period(date(year, _SEASONS[name], 1), "season")
    return _month(year, MONTHS.index(name) + 1)


def _ago(count: int, unit: str, today: date) -> _Period:
    """The *unit* that was *count* units before; ahead, if *count* is negative."""
    match unit:
        case "day":
            return _day(today - timedelta(count))
        case "week":
            return _Period(_monday(today - timedelta(weeks=count)), "week")
        case "month":
            return _month(today.year, today.month - count)
        case _:
            return _year(today.year - count)


def _weekend(count: int, today: date) -> _Period:
    """The weekend of this week, or of *count* weeks before; a Sunday's own has begun."""
    return _Period(_monday(today) + timedelta(days=5 - 7 * count), "weekend")


def _weekday_before(weekday: int, today: date, *, strictly: bool) -> _Period:
    back = (today.weekday() - weekday) % 7
    return _day(today - timedelta(back or 7 * strictly))


def _latest(name: str, today: date, *, over: bool) -> _Period:
    """The latest month or season *name* that is *over*, or at least has begun."""
    periods = (_of_year(today.year - back, name) for back in range(3))
    return next(p for p in periods if (p.end if over else p.begin) <= today)


def _number(word: str) -> int:
    return int(word) if word.isdigit() else NUMBER_WORDS[word.lower()]


_COUNT = rf"\d{{1,3}}|{'|'.join(NUMBER_WORDS)}"

# ── Statements ───────────────────────────────────────────────────────────────────────

_WEEKDAY = {name: i for i, name in enumerate(WEEKDAYS)} | {
    "mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5,
    "sun": 6,
}  # fmt: skip
_FIXED = {
    "today": 0, "tonight": 0, "this morning": 0, "this afternoon": 0, "this evening": 0,
    "yesterday": -1, "last night": -1, "the day before yesterday": -2, "tomorrow": 1,
    "the day after tomorrow": 2,
}  # fmt: skip
_RELATIVE = re.compile(
    r"(?<![\w-])(?:"
    rf"(?P<fixed>{'|'.join(_FIXED)})"
    rf"|(?P<count>{_COUNT}) (?P<unit>day|week|month|year)s? ago"
    rf"|in (?P<ahead>{_COUNT}) (?P<ahead_unit>day|week|month|year)s?(?:['’] time)?"
    r"|(?P<which>last|next|this past|past|this coming|this)"
    rf" (?P<name>weekend|week|month|year|{'|'.join((*_WEEKDAY, *MONTHS))})"
    r")(?![\w-])(?!\s?\[)",
    re.IGNORECASE,
)
_HINT = re.compile(r"day|night|morrow|week|month|year|ago|last|next|this|past", re.IGNORECASE)
_FUTURE = re.compile(
    r"\b(?:will|gonna|going to|due|starts?|leav(?:e|es|ing)|plan(?:s|ning)?|moving"
    r"|arriv(?:e|es|ing)|is|are|have|has)\b|['’]ll\b|['’]re\b|['’]m\b",
    re.IGNORECASE,
)


def with_dates(text: str, at: datetime) -> str:
    """Add to each relative date of *text* what it means at *at*: ``last Friday [2024-02-23]``."""
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


def _meaning(match: re.Match[str], today: date, text: str) -> _Period | None:
    if match["fixed"]:
        return _day(today + timedelta(days=_FIXED[match["fixed"].lower()]))
    if match["unit"]:
        return _ago(_number(match["count"]), match["unit"].lower(), today)
    if match["ahead_unit"]:
        # "in two weeks" is a date only of what is to come; else it is a duration.
        future = _FUTURE.search(text) is not None
        return (
            _ago(-_number(match["ahead"]), match["ahead_unit"].lower(), today) if future else None
        )
    return _named(match["which"].lower(), match["name"].lower(), today)


def _named(which: str, name: str, today: date) -> _Period | None:
    count = {"last": 1, "this past": 1, "past": 1, "next": -1}.get(which, 0)
    if name in _WEEKDAY:
        return _weekday(count, _WEEKDAY[name], today)
    if name == "weekend":
        return _weekend(count, today)
    # "The past week" is a span that ends today, not the week before.
    if "past" in which:
        return None
    if name in MONTHS:
        return _month_named(count, name, today)
    return _ago(count, name, today)


def _weekday(count: int, weekday: int, today: date) -> _Period:
    if count > 0:
        return _weekday_before(weekday, today, strictly=True)
    ahead = (weekday - today.weekday()) % 7
    return _day(today + timedelta(ahead or -7 * count))


def _month_named(count: int, name: str, today: date) -> _Period | None:
    if count > 0:
        return _latest(name, today, over=True)
    month = MONTHS.index(name) + 1
    return _month(today.year + (month <= today.month), month) if count < 0 else None


# ── Questions ────────────────────────────────────────────────────────────────────────

MAX_YEARS = 50
"""Years before the latest memory of which a month without a year is sought."""
_CALENDAR = (1100, 9900)
"""Years around which a thousand years of days can be counted."""
_AMBIGUOUS = frozenset(("march", "may", "spring", "fall"))
"""Also a verb or an auxiliary: a time only after a preposition, or beside a day or a year."""

_ABSOLUTE = re.compile(
    r"(?P<told>\b(?:in|of|by|since|during|until|before|after|early|late|mid|the)[ -])?"
    r"(?:\b(?P<day>\d{1,2})(?:st|nd|rd|th)?(?: of)? )?"
    rf"\b(?P<name>{'|'.join((*MONTHS, *_SEASONS))})\b"
    r"(?: (?P<after>\d{1,2})(?:st|nd|rd|th)?\b(?!\d))?"
    r"(?:,? (?:of )?(?P<year>(?:19|20)\d\d)\b)?"
)
_BARE_YEAR = re.compile(r"(?<![\d-])((?:19|20)\d\d)(?![\d-])")
_ISO = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_AGO = re.compile(rf"\b(?P<count>{_COUNT}) (?P<unit>day|week|month|year)s? ago\b")
_LAST = re.compile(
    r"\b(?P<which>last|this) (?P<name>week(?:end)?|month|year"
    rf"|{'|'.join((*WEEKDAYS, *MONTHS, *_SEASONS))})\b"
)
_NEAR = {"today": 0, "yesterday": 1}


def spans_of(query: str, first: float, last: float) -> list[tuple[float, float]]:
    """
    The spans of time that *query* names, in Unix seconds, the end of each excluded.

    Days are those of UTC. What "last summer" or "in May" means depends on when memories
    are from: a month without a year is that month of every year of what is stored, and
    "yesterday" is the day before the latest memory.

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
    return [(_seconds(period.begin), _seconds(period.end)) for period in found]


def _seconds(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def _relative(told: str, today: date) -> Iterator[_Period]:
    for word, back in _NEAR.items():
        if re.search(rf"\b{word}\b", told):
            yield _day(today - timedelta(back))
    for match in _AGO.finditer(told):
        yield _ago(_number(match["count"]), match["unit"], today)
    for match in _LAST.finditer(told):
        yield _last(match["name"], match["which"] == "last", today)


def _last(name: str, before: bool, today: date) -> _Period:
    """What has begun or, with *before*, is over: questions are about the past."""
    if name in WEEKDAYS:
        return _weekday_before(WEEKDAYS.index(name), today, strictly=before)
    if name in MONTHS or name in _SEASONS:
        return _latest(name, today, over=before)
    return _weekend(before, today) if name == "weekend" else _ago(before, name, today)


def _absolute(told: str, years: range) -> Iterator[_Period]:
    for year, month, day in _ISO.findall(told):
        if whole := _date(int(year), int(month), int(day)):
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


def _in_year(year: int, name: str, day: int | None) -> _Period | None:
    if day is None or name in _SEASONS:
        return _of_year(year, name)
    return _date(year, MONTHS.index(name) + 1, day)


def _date(year: int, month: int, day: int) -> _Period | None:
    """``None`` for a day that does not exist, and for the last year, whose end does not."""
    try:
        return _day(date(year, month, day)) if year < MAXYEAR else None
    except ValueError:
        return None

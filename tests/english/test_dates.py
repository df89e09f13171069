"""Relative dates made absolute."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from mnemo.english.dates import with_dates

FRIDAY = datetime(2024, 3, 1, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("yesterday", "2024-02-29"),
        ("today", "2024-03-01"),
        ("tomorrow", "2024-03-02"),
        ("the day before yesterday", "2024-02-28"),
        ("last night", "2024-02-29"),
        ("last Friday", "2024-02-23"),
        ("last Fri", "2024-02-23"),
        ("last Thursday", "2024-02-29"),
        ("next Friday", "2024-03-08"),
        ("this Sunday", "2024-03-03"),
        ("next month", "2024-04"),
        ("last month", "2024-02"),
        ("two years ago", "2022"),
        ("3 days ago", "2024-02-27"),
        ("a month ago", "2024-02"),
        ("last week", "week of 2024-02-19"),
        ("two weeks ago", "week of 2024-02-12"),
        ("last weekend", "weekend of 2024-02-24"),
        ("the past weekend", "weekend of 2024-02-24"),
        ("last year", "2023"),
        ("last July", "2023-07"),
        ("next January", "2025-01"),
    ],
)
def test_the_date_is_added_and_the_words_stay(words, meaning):
    """Precision is that of the words, seen from Friday 1 March 2024."""
    assert with_dates(f"Ana moved {words}.", FRIDAY) == f"Ana moved {words} [{meaning}]."


@pytest.mark.parametrize(
    "text",
    [
        "Ana moved recently",
        "the other day",
        "a few weeks ago",
        "the last day of work",
        "this past week",
    ],
)
def test_vague_words_stay_as_they_are(text):
    """What no date can be given for gets none."""
    assert "[" not in with_dates(text, FRIDAY)


def test_a_span_ahead_is_a_date_only_of_the_future():
    """ "In two weeks" of something to come is a date, of something done a duration."""
    assert with_dates("Ana will move in two weeks", FRIDAY).endswith("[week of 2024-03-11]")
    assert with_dates("Ana finished in two weeks", FRIDAY).endswith("weeks")


def test_the_zone_of_the_step_decides_the_day():
    """Shortly after midnight in Tokyo it is still the day before in UTC."""
    tokyo = timezone(timedelta(hours=9))
    at = datetime(2024, 3, 1, 0, 30, tzinfo=tokyo)

    assert with_dates("yesterday", at) == "yesterday [2024-02-29]"
    assert with_dates("yesterday", at.astimezone(UTC)) == "yesterday [2024-02-28]"


def test_a_date_is_added_once():
    """Words that carry their date already get no second one."""
    once = with_dates("yesterday", FRIDAY)

    assert with_dates(once, FRIDAY) == once


def test_dates_out_of_range_are_left_alone():
    """A date before the first year does not exist and is not given."""
    assert with_dates("900 years ago", FRIDAY.replace(year=500)) == "900 years ago"

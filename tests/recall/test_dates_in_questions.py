"""The times that questions name, against the span of what is stored."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.english.dates import spans_of

FIRST = datetime(2022, 5, 3, tzinfo=UTC)
LAST = datetime(2024, 3, 13, 15, tzinfo=UTC)  # a Wednesday


def named(query: str) -> list[tuple[str, str]]:
    spans = spans_of(query, FIRST.timestamp(), LAST.timestamp())
    return [(_day(begin), _day(end)) for begin, end in spans]


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


@pytest.mark.parametrize(
    ("query", "begin", "end"),
    [
        ("What did Nate cook on 9 November, 2022?", "2022-11-09", "2022-11-10"),
        ("What happened on November 9th 2022?", "2022-11-09", "2022-11-10"),
        ("the 3rd of June 2023", "2023-06-03", "2023-06-04"),
        ("on 2024-02-29", "2024-02-29", "2024-03-01"),
        ("in December 2023", "2023-12-01", "2024-01-01"),
        ("all of 2023", "2023-01-01", "2024-01-01"),
        ("the summer of 2023", "2023-06-01", "2023-09-01"),
        ("winter 2022", "2022-12-01", "2023-03-01"),
        ("Who called yesterday?", "2024-03-12", "2024-03-13"),
        ("two weeks ago", "2024-02-26", "2024-03-04"),
        ("3 months ago", "2023-12-01", "2024-01-01"),
        ("seven months ago", "2023-08-01", "2023-09-01"),
        ("a year ago", "2023-01-01", "2024-01-01"),
        ("last Friday", "2024-03-08", "2024-03-09"),
        ("last Wednesday", "2024-03-06", "2024-03-07"),
        ("this Wednesday", "2024-03-13", "2024-03-14"),
        ("last week", "2024-03-04", "2024-03-11"),
        ("last weekend", "2024-03-09", "2024-03-11"),
        ("last month", "2024-02-01", "2024-03-01"),
        ("last summer", "2023-06-01", "2023-09-01"),
        ("last March", "2023-03-01", "2023-04-01"),
        ("this year", "2024-01-01", "2025-01-01"),
    ],
)
def test_a_named_time_is_a_span(query, begin, end):
    """Absolute ones by the calendar, relative ones from the latest memory, as precise as told."""
    assert named(query) == [(begin, end)]


def test_a_month_without_a_year_is_that_of_every_year():
    """The store's own span says which years there are."""
    years = [begin[:4] for begin, _ in named("Where did they go in May?")]
    assert years == ["2022", "2023", "2024"]


@pytest.mark.parametrize(
    "query",
    [
        "May I go?",
        "Who will march or fall?",
        "recently",
        "30 February 2023",
        "until 9999-12-31",
        "ago",
        "room 2024-7",
    ],
)
def test_what_names_no_time_has_no_span(query):
    """Verbs, vague words, days that do not exist, and numbers that are no years."""
    assert named(query) == []


@given(
    query=st.sampled_from(["999 years ago", "999 days ago", "in May", "last winter", "this month"]),
    ends=st.tuples(st.dates(), st.dates()),
)
def test_no_date_is_too_far(query, ends):
    """Whatever the store's span, spans run forwards and nothing overflows."""
    first, last = (datetime(d.year, d.month, d.day, tzinfo=UTC).timestamp() for d in sorted(ends))
    assert all(begin < end for begin, end in spans_of(query, first, last))

"""Encoding of values that columns hold as text."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

from mnemo.store.codec import utc_text


class Summer(tzinfo):
    """A clock that is set back by an hour; ``fold`` tells the second of two equal hours."""

    def utcoffset(self, at: datetime | None) -> timedelta:
        """Two hours, then one."""
        return timedelta(hours=1 if at is not None and at.fold else 2)

    def dst(self, at: datetime | None) -> timedelta:
        """What of it is daylight saving."""
        return self.utcoffset(at) - timedelta(hours=1)


def test_an_hour_that_comes_twice_is_two_times():
    """Python calls both equal; what is stored tells them apart."""
    first = datetime(2024, 10, 27, 2, 30, tzinfo=Summer())
    second = first.replace(fold=1)
    assert first == second
    assert utc_text(first) == "2024-10-27T00:30:00.000000+00:00"
    assert utc_text(second) == "2024-10-27T01:30:00.000000+00:00"

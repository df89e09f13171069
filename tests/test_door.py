"""The door for values from outside: limits, and characters that no store is trusted with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from mnemo._clock import in_utc, of_timestamp
from mnemo._door import (
    MOST_ID_BYTES,
    MOST_NUMBER,
    MOST_TEXT_BYTES,
    exact_id,
    finite_number,
    known_id,
    stored_id,
    stored_json,
    stored_text,
    stored_time,
    whole_number,
)

WEST, EAST = timezone(timedelta(hours=-12)), timezone(timedelta(hours=14))


@pytest.mark.parametrize(
    "at",
    [
        datetime.max,
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=WEST),
        datetime.min.replace(tzinfo=EAST),
        "2024-01-01",
        0,
    ],
)
def test_a_time_outside_the_calendar_of_utc_is_refused(at: object) -> None:
    """It could not be converted to UTC, or to seconds and back."""
    with pytest.raises(ValueError, match=r"^at must"):
        stored_time("at", at)


@pytest.mark.parametrize("at", [datetime.min, datetime(9999, 12, 31, 23, 59, 58, 999_999)])
def test_the_first_and_the_last_time_that_are_kept_survive_every_conversion(at: datetime) -> None:
    """Both ends are in range in UTC, and as Unix seconds."""
    kept = stored_time("at", at)
    assert kept == at.replace(tzinfo=UTC)
    assert abs(of_timestamp(kept.timestamp()) - kept) < timedelta(milliseconds=1)


def test_a_time_of_an_earlier_version_is_moved_to_the_end_that_it_lies_beyond() -> None:
    """Reading it must not fail."""
    last, first = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
    assert in_utc(datetime.max.replace(tzinfo=WEST)) == last
    assert in_utc(datetime.min.replace(tzinfo=EAST)) == first
    assert of_timestamp(1e300) == last
    assert of_timestamp(-1e300) == first


def test_a_text_may_have_64_mebibytes_and_no_more() -> None:
    """Bytes of UTF-8 count, whatever the characters are."""
    assert len(stored_text("text", "a" * MOST_TEXT_BYTES)) == MOST_TEXT_BYTES
    assert stored_text("text", "é" * (MOST_TEXT_BYTES // 2))
    for text in ("a" * (MOST_TEXT_BYTES + 1), "é" * (MOST_TEXT_BYTES // 2 + 1)):
        with pytest.raises(ValueError, match="67,108,864 bytes"):
            stored_text("text", text)


def test_an_id_may_have_512_bytes_and_no_more() -> None:
    """Bytes of UTF-8 count; what is looked up may be longer, and is not there."""
    assert stored_id("id", "é" * (MOST_ID_BYTES // 2))
    assert known_id("id", "a" * 1_000)
    for id in ("a" * 513, "é" * 257, " ", "", None, 5, float("nan")):
        with pytest.raises(ValueError, match=r"^id "):
            stored_id("id", id)


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b"])
def test_characters_that_no_store_can_be_trusted_with_are_replaced_or_refused(odd: str) -> None:
    """Texts and ids of what is said are changed, names of containers are not."""
    assert stored_text("text", odd) == stored_id("id", odd) == known_id("id", odd) == "a\ufffdb"
    assert stored_json("json", {odd: [odd, {"x": odd}]}) == {
        "a\ufffdb": ["a\ufffdb", {"x": "a\ufffdb"}]
    }
    with pytest.raises(ValueError, match="cannot hold"):
        exact_id("id", odd)


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    """Six characters that look like the escape of U+0000 are kept."""
    assert stored_json("json", {"a": "\\u0000"}) == {"a": "\\u0000"}


@pytest.mark.parametrize("value", [0, MOST_NUMBER + 1, -(2**70), True, 1.0, "1", None])
def test_a_whole_number_is_an_integer_that_a_store_can_hold(value: object) -> None:
    """Neither ``True`` nor ``1.0`` is one."""
    assert whole_number("k", MOST_NUMBER, 1) == MOST_NUMBER
    with pytest.raises(ValueError, match="k must be a whole number"):
        whole_number("k", value, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "1", None])
def test_a_finite_number_is_neither_nan_nor_infinite(value: object) -> None:
    """Text and ``True`` are no numbers either."""
    assert finite_number("x", 0.5) == 0.5
    with pytest.raises(ValueError, match="x must be a finite number"):
        finite_number("x", value)

"""The door for values from outside: limits, and characters that no store is trusted with."""

import enum
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.runtime.clock import in_utc, of_timestamp
from mnemo.runtime.validation import (
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
        "2024-13-01",
        "noon",
        0,
    ],
)
def test_a_time_outside_the_calendar_of_utc_is_refused(at):
    """It could not be converted to UTC, or to seconds and back."""
    with pytest.raises(ValueError, match=r"^at must"):
        stored_time("at", at)


@pytest.mark.parametrize("at", [datetime.min, datetime(9999, 12, 31, 23, 59, 58, 999_999)])
def test_the_first_and_the_last_time_that_are_kept_survive_every_conversion(at):
    """Both ends are in range in UTC, and as Unix seconds."""
    kept = stored_time("at", at)
    assert kept == at.replace(tzinfo=UTC)
    assert abs(of_timestamp(kept.timestamp()) - kept) < timedelta(milliseconds=1)


def test_a_time_of_an_earlier_version_is_moved_to_the_end_that_it_lies_beyond():
    """Reading it must not fail."""
    last, first = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
    assert in_utc(datetime.max.replace(tzinfo=WEST)) == last
    assert in_utc(datetime.min.replace(tzinfo=EAST)) == first
    assert of_timestamp(1e300) == last
    assert of_timestamp(-1e300) == first


@pytest.mark.long
def test_a_text_may_have_64_mebibytes_and_no_more():
    """Bytes of UTF-8 count, whatever the characters are."""
    assert len(stored_text("text", "a" * MOST_TEXT_BYTES)) == MOST_TEXT_BYTES
    assert stored_text("text", "é" * (MOST_TEXT_BYTES // 2))
    for text in ("a" * (MOST_TEXT_BYTES + 1), "é" * (MOST_TEXT_BYTES // 2 + 1)):
        with pytest.raises(ValueError, match="67,108,864 bytes"):
            stored_text("text", text)


def test_an_id_may_have_512_bytes_and_no_more():
    """Bytes of UTF-8 count; what is looked up may be longer, and is not there."""
    assert stored_id("id", "é" * (MOST_ID_BYTES // 2))
    assert known_id("id", "a" * 1_000)
    for id in ("a" * 513, "é" * 257, " ", "", None, 5, float("nan")):
        with pytest.raises(ValueError, match=r"^id "):
            stored_id("id", id)


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b"])
def test_characters_that_no_store_can_be_trusted_with_are_replaced_or_refused(odd):
    """Texts and ids of what is said are changed, names of containers are not."""
    assert stored_text("text", odd) == stored_id("id", odd) == known_id("id", odd) == "a\ufffdb"
    assert stored_json("json", {odd: [odd, {"x": odd}]}) == {
        "a\ufffdb": ["a\ufffdb", {"x": "a\ufffdb"}]
    }
    with pytest.raises(ValueError, match="cannot hold"):
        exact_id("id", odd)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text("ab") | st.integers() | st.booleans() | st.none(), inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_a_copy_of_json_is_what_writing_and_reading_it_gives(value):
    """Tuples become lists, keys become text, and nothing is shared."""
    copy = stored_json("json", value)
    assert json.dumps(copy) == json.dumps(json.loads(json.dumps(value)))
    if isinstance(value, list | dict):
        assert copy is not value


class Colour(str, enum.Enum):  # noqa: UP042 - a member's str() is not its text
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


def test_members_of_enumerations_are_stored_as_their_values():
    """As JSON has them, as values and as keys."""
    assert stored_json("json", {Colour.RED: [Colour.RED, Size.SMALL]}) == {"red": ["red", 1]}
    assert type(stored_json("json", Colour.RED)) is str


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [float("inf")],
        {"a": object()},
        {(1, 2): 1},
        {float("nan"): 1},
        b"x",
        pytest.param(10**5_000, id="5,001 digits"),
    ],
)
def test_what_json_has_no_word_for_is_refused(value):
    """The error says what it is."""
    with pytest.raises(ValueError, match="metadata must be JSON"):
        stored_json("metadata", value)


def test_json_that_contains_itself_is_refused():
    """Nor is anything nested deeper than the interpreter can follow."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="metadata must be JSON"):
        stored_json("metadata", endless)


def test_an_escaped_backslash_before_u0000_is_no_nul():
    """Six characters that look like the escape of U+0000 are kept."""
    assert stored_json("json", {"a": "\\u0000"}) == {"a": "\\u0000"}


@pytest.mark.parametrize("value", [0, MOST_NUMBER + 1, -(2**70), True, 1.0, "1", None])
def test_a_whole_number_is_an_integer_that_a_store_can_hold(value):
    """Neither ``True`` nor ``1.0`` is one."""
    assert whole_number("k", MOST_NUMBER, 1) == MOST_NUMBER
    with pytest.raises(ValueError, match="k must be a whole number"):
        whole_number("k", value, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "1", None])
def test_a_finite_number_is_neither_nan_nor_infinite(value):
    """Text and ``True`` are no numbers either."""
    assert finite_number("x", 0.5) == 0.5
    with pytest.raises(ValueError, match="x must be a finite number"):
        finite_number("x", value)

"""What calls cost, by the user's table."""

import pytest

from mnemo.errors import ConfigError
from mnemo.models.prices import Price, counted, price_table, usage_of
from mnemo.protocols import Usage


def test_cached_tokens_have_their_price_or_that_of_the_input():
    """Dollars per million tokens."""
    usage = Usage("m", input_tokens=1_000_000, output_tokens=500_000, cached_tokens=400_000)
    assert Price(2, 8).cost(usage) == 6.0
    assert Price(2, 8, 0.5).cost(usage) == pytest.approx(5.4)
    assert Price(2, 8, 0).cost(usage) == pytest.approx(5.2)


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "2", None, True])
def test_a_price_is_a_number_of_dollars(bad):
    """Checked where it is given."""
    with pytest.raises(ConfigError, match="a price must be"):
        Price(bad, 1)
    with pytest.raises(ConfigError, match="a price must be"):
        Price(1, bad)


def test_a_table_maps_names_to_prices():
    """Anything else is refused; the table is a copy."""
    given = {"m": Price(1, 1)}
    table = price_table(given)
    given.clear()
    assert table == {"m": Price(1, 1)}
    for bad in ({"m": 1}, {7: Price(1, 1)}):
        with pytest.raises(ConfigError, match="prices must map"):
            price_table(bad)  # type: ignore[arg-type]


def test_an_unknown_model_has_no_cost():
    """None is not zero."""
    table = {"other": Price(1, 1)}
    usage = usage_of("m", None, 5, 5, 9, prices=table)
    assert usage == Usage("m", 5, 5, 5, None)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ({"a": {"b": 3}}, 3),
        ({"a": {"b": 3.9}}, 3),
        ({"a": {"b": -3}}, 0),
        ({"a": {"b": float("nan")}}, 0),
        ({"a": {"b": 10**400}}, 10**12),
        ({"a": 3}, 0),
        (None, 0),
    ],
)
def test_counts_are_read_or_zero(value, count):
    """Nothing a server says about usage can raise."""
    assert counted(value, "a", "b") == count

"""How a viewport's tokens are divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.config import ViewportConfig
from mnemo.context.zones import Budget
from mnemo.errors import ConfigError


def test_a_thousand_tokens_are_divided_as_the_table_says():
    """The table of section 2, at b = 1,000."""
    assert Budget.of(1_000, ViewportConfig()) == Budget(
        total=1_000,
        long_term=50,
        recent=150,
        goals=50,
        recall=50,
        window=700,
        trigger=595,
        zone=233,
    )


def test_notes_have_a_share_of_the_window_where_they_are_asked_for():
    """0.05 of the whole by default; the window shrinks by it, whatever notes there are."""
    plain = Budget.of(1_000, ViewportConfig())
    noted = Budget.of(1_000, ViewportConfig(), notes=True)
    assert (plain.notes, noted.notes) == (0, 50)
    assert (noted.window, noted.trigger, noted.zone) == (650, 552, 216)
    assert (noted.long_term, noted.recent, noted.goals, noted.recall) == (50, 150, 50, 50)


def test_the_window_must_be_large_enough_with_notes_where_they_are_asked_for():
    """A share of notes that nobody asks for costs nothing."""
    config = ViewportConfig(notes_fraction=0.41)
    assert Budget.of(1_000, config).window == 700
    with pytest.raises(ConfigError, match=r"five fractions leave 0\.29"):
        Budget.of(1_000, config, notes=True)


def test_floating_point_dust_takes_no_token_away():
    """A third of 900 is 300, not 299, and 0.7 of 1,000 is 700."""
    config = ViewportConfig(l1_fraction=0.1, l2_fraction=0.0, goals_fraction=0.0, recall_fraction=0)
    assert Budget.of(1_000, config).window == 900
    assert Budget.of(1_000, config).zone == 300


@pytest.mark.parametrize("tokens", [0, -1, 1.5, True, "9"])
def test_a_budget_is_a_positive_whole_number(tokens):
    """Anything else is refused where the viewport is made."""
    with pytest.raises(ValueError, match="budget"):
        Budget.of(tokens, ViewportConfig())


@pytest.mark.parametrize(
    "settings",
    [
        {"l1_fraction": 0.5, "l2_fraction": 0.2, "goals_fraction": 0.05},
        {"snapshot_max_chars": 8_192, "max_output_tokens": 4_095},
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(settings):
    """Less than 0.3 for the window, or replies too short for a snapshot: ConfigError."""
    with pytest.raises(ConfigError):
        ViewportConfig(**settings)


@given(st.integers(min_value=1, max_value=10**9), st.booleans())
def test_the_parts_never_exceed_the_whole(tokens, notes):
    """The shares are caps inside the budget."""
    budget = Budget.of(tokens, ViewportConfig(), notes=notes)
    parts = budget.long_term + budget.recent + budget.goals + budget.recall + budget.window
    assert parts + budget.notes <= tokens
    assert budget.zone <= budget.trigger <= budget.window

"""What leaves the window next, and how the rest is seen."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_kit import START, answered, called, said, thread_of

from mnemo.config import ViewportConfig
from mnemo.context.zones import Budget, eviction_zone, inner_cuts, is_due, middle_and_recent, reach
from mnemo.errors import ConfigError
from mnemo.values.messages import Message
from mnemo.values.units import units_of

BUDGET = Budget.of(1_000, ViewportConfig())


def zone_of(messages, *, budget=BUDGET, now=START, deadline_s=180.0, from_seq=0):
    units = units_of(thread_of(messages))
    return eviction_zone(units, budget, from_seq=from_seq, now=now, deadline_s=deadline_s)


def test_the_zone_is_the_largest_cut_that_fits():
    """Of messages of 100 tokens two fit into 233."""
    zone = zone_of([said()] * 6)
    assert (zone.from_seq, zone.to_seq, zone.tokens) == (0, 1, 200)
    assert [message.seq for message in zone.messages] == [0, 1]


def test_a_first_unit_larger_than_the_zone_leaves_alone():
    """If even the first unit is larger, the zone is the first clean cut."""
    zone = zone_of([said(tokens=400), said(), said()])
    assert (zone.to_seq, zone.tokens) == (0, 400)


def test_the_newest_unit_never_leaves():
    """One unit alone has no zone, however large it is."""
    assert zone_of([said(tokens=5_000)]) is None
    assert zone_of([called("a"), answered("a"), answered("a")]) is None
    assert zone_of([]) is None


def test_the_zone_begins_at_the_boundary():
    """Zones leave no gap, though the first messages behind the boundary are gone."""
    units = units_of(thread_of([said()] * 6)[2:])
    zone = eviction_zone(units, BUDGET, from_seq=1, now=START, deadline_s=180)
    assert (zone.from_seq, zone.to_seq) == (1, 3)


def test_a_tool_group_is_not_cut():
    """A cut inside a group is not clean, so the zone ends before it."""
    zone = zone_of([said(), called("a", text="let me look"), answered("a"), said(), said()])
    assert (zone.from_seq, zone.to_seq) == (0, 0)


def test_an_open_group_forbids_cuts_behind_it_until_its_deadline():
    """A call without a result holds the window open for the deadline, then it is abandoned."""
    history = [said(tokens=10), called("a", tokens=10), said(), said(), said()]
    assert zone_of(history).to_seq == 0
    later = START + timedelta(seconds=180)
    assert zone_of(history, now=later).to_seq == 3
    assert zone_of(history, deadline_s=0).to_seq == 3


def test_mere_tool_groups_go_along_where_something_is_said_after_them():
    """The window starts with something said where that costs at most half of it."""
    history = [said(), said(), called("a", tokens=50), answered("a", tokens=50), said(), said()]
    assert zone_of(history).to_seq == 3
    dear = [said(), said(), called("a", tokens=100), answered("a", tokens=51), said(), said()]
    assert zone_of(dear).to_seq == 1


def test_mere_tool_groups_stay_where_nothing_is_said_after_them():
    """Without a spoken message behind them none of them is taken along."""
    assert zone_of([said(), said(), called("a"), answered("a", tokens=10)]).to_seq == 1


def test_either_all_following_tool_groups_go_along_or_none():
    """One that fits does not leave the next one behind."""
    pair = [called("a", tokens=50), answered("a", tokens=50)]
    more = [called("b", tokens=50), answered("b", tokens=50)]
    assert zone_of([said(), said(), *pair, *more, said()]).to_seq == 1


def test_due_is_above_the_trigger_and_takes_two_units():
    """A span of exactly 595 is not due, 596 is; one unit never is."""
    assert not is_due(595, 6, BUDGET)
    assert is_due(596, 6, BUDGET)
    assert not is_due(5_000, 1, BUDGET)


def test_nine_equal_units_make_three_zones_of_three():
    """With budget 1,290 three messages are in each zone."""
    budget = Budget.of(1_290, ViewportConfig())
    units = units_of(thread_of([said()] * 9))
    zone = eviction_zone(units, budget, from_seq=0, now=START, deadline_s=180)
    middle, recent = middle_and_recent(units[3:])
    assert (len(zone.messages), len(middle), len(recent)) == (3, 3, 3)


def test_one_unit_is_recent():
    """Given one message, it is recent, even if it costs nothing."""
    [unit] = units_of(thread_of([said()]))
    assert middle_and_recent([unit]) == ([], [unit])
    assert middle_and_recent([]) == ([], [])


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Speech, calls and results in any order, of any size."""
    tokens = st.integers(min_value=1, max_value=500)
    ids = st.sampled_from("abc")
    message = st.one_of(
        tokens.map(lambda n: said(tokens=n)),
        st.builds(lambda id, n: called(id, tokens=n), ids, tokens),
        st.builds(lambda id, n: answered(id, tokens=n), ids, tokens),
    )
    return draw(st.lists(message, max_size=20))


@pytest.mark.slow
@given(histories(), st.integers(min_value=1, max_value=5_000), st.sampled_from([0.0, 180.0]))
def test_no_zone_cuts_a_group_or_takes_the_newest_unit(history, tokens, deadline_s):
    """Whatever was said: a zone is whole units from the boundary on, and leaves the newest."""
    budget = Budget.of(tokens, ViewportConfig())
    units = units_of(thread_of(history))
    zone = eviction_zone(units, budget, from_seq=0, now=START, deadline_s=deadline_s)
    if zone is None:
        assert not inner_cuts(units, now=START, deadline_s=deadline_s)
        return
    inside = {message.seq for message in zone.messages}
    assert sorted(inside) == list(range(zone.to_seq + 1))
    assert all(
        inside.issuperset(seqs) or inside.isdisjoint(seqs)
        for seqs in ({m.seq for m in unit.messages} for unit in units)
    )
    assert units[-1].last_seq not in inside
    first = inner_cuts(units, now=START, deadline_s=deadline_s)[0] - 1
    assert zone.tokens <= max(budget.zone, budget.window / 2) or zone.to_seq == first


@pytest.mark.slow
@given(histories(), st.integers(min_value=1, max_value=5_000))
def test_only_the_beginning_of_a_window_decides_about_its_zone(history, tokens):
    """The zone of a long window is that of its beginning, if there is a cut within reach."""
    budget = Budget.of(tokens, ViewportConfig())
    units = units_of(thread_of(history))
    whole = eviction_zone(units, budget, from_seq=0, now=START, deadline_s=180)
    for length in range(2, len(units)):
        if sum(unit.tokens for unit in units[: length - 1]) > reach(budget):
            near = eviction_zone(units[:length], budget, from_seq=0, now=START, deadline_s=180)
            assert near in (whole, None)


@pytest.mark.slow
@given(histories())
def test_the_middle_holds_at_most_half_of_the_rest(history):
    """Every unit is in one of both parts, and the middle's cost is at most half."""
    units = units_of(thread_of(history))
    middle, recent = middle_and_recent(units)
    assert middle + recent == units
    assert sum(unit.tokens for unit in middle) <= math.floor(sum(u.tokens for u in units) / 2)


# ── How a viewport's tokens are divided ───────────────────────────────────────────────


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
    with pytest.raises(ConfigError, match=r"notes_fraction and recall_fraction leave 0\.29"):
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

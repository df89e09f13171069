"""Memory: the snapshots of what has left the window, within their shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_kit import snapshot

from mnemo.config import ViewportConfig
from mnemo.context.rendering import memory_text
from mnemo.context.zones import Budget
from mnemo.runtime.text import count_tokens

TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(st.sampled_from(["So. ", "one ", "。"]), max_size=90).map("".join),
)


@pytest.mark.slow
@pytest.mark.parametrize("count", [count_tokens, len, lambda text: len(text.split())])
@given(
    lower=st.lists(TEXTS, max_size=6),
    upper=st.lists(TEXTS, max_size=4),
    tokens=st.integers(1, 4_000),
)
def test_memory_keeps_within_its_shares(count, lower, upper, tokens):
    """However it is counted; each level holds its newest, oldest first."""
    budget = Budget.of(tokens, ViewportConfig())
    snapshots = [snapshot(100 + n, 100 + n, text) for n, text in enumerate(lower)]
    snapshots += [snapshot(n, n, text, level=2) for n, text in enumerate(upper)]
    told = memory_text(snapshots, budget, count)
    assert count(told) <= budget.long_term + budget.recent
    ranges = [line for line in told.split("\n") if line.startswith("[messages ")]
    assert told == "" or ranges
    places = [int(line.split("..")[1].split(",")[0]) for line in ranges]
    above, below = [n for n in places if n < 100], [n - 100 for n in places if n >= 100]
    assert above == list(range(len(upper)))[len(upper) - len(above) :]
    assert below == list(range(len(lower)))[len(lower) - len(below) :]
    assert told == memory_text(snapshots[::-1], budget, count)


def test_one_older_memory_is_told_in_the_singular():
    """The number of what is not shown is part of the text."""
    budget = Budget.of(1_000, ViewportConfig(l1_fraction=0.06))
    told = memory_text([snapshot(n, n, "x" * 60) for n in range(2)], budget, count_tokens)
    assert told.split("\n")[1] == "(1 older memory not shown; search reaches it)"


def test_a_share_too_small_for_a_sentence_shows_nothing():
    """Neither a heading nor a number of what is not shown."""
    budget = Budget.of(130, ViewportConfig())
    assert memory_text([snapshot(0, 0, "One sentence. " * 9)], budget, count_tokens) == ""

"""Goals and their pins, within their share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_kit import START

from mnemo.context.goals import goals_text
from mnemo.runtime.text import count_tokens
from mnemo.values.derived import Goal, Pin


def goal(id, description="goal", *, parent=None, status="active"):
    return Goal(
        thread_id="t",
        epoch=0,
        id=id,
        parent_id=parent,
        description=description,
        status=status,
        created_at=START,
    )


def pin(seq, *goals, excerpt="said"):
    return Pin(
        thread_id="t",
        epoch=0,
        seq=seq,
        message_id=f"m{seq}",
        excerpt=excerpt,
        goal_ids=goals,
        token_count=1,
    )


@st.composite
def trees(draw: st.DrawFn) -> list[Goal]:
    """Roots and sub-goals, active and completed."""
    goals: list[Goal] = []
    for id in range(1, draw(st.integers(0, 8)) + 1):
        roots = [each.id for each in goals if each.parent_id is None and each.is_live]
        parent = draw(st.sampled_from([None, *roots]))
        status = "active" if parent is None else draw(st.sampled_from(["active", "completed"]))
        text = draw(st.text(min_size=1, max_size=120))
        goals.append(goal(id, text, parent=parent, status=status))
    return goals


PINS = st.lists(
    st.tuples(st.integers(0, 40), st.sets(st.integers(1, 8), min_size=1), st.text(max_size=60)),
    max_size=10,
    unique_by=lambda each: each[0],
)


@pytest.mark.slow
@pytest.mark.parametrize("count", [count_tokens, len, lambda text: len(text.split())])
@given(goals=trees(), pins=PINS, share=st.integers(0, 400))
def test_goals_and_pins_keep_within_their_share(count, goals, pins, share):
    """However it is counted; no pin of a message in the window, no excerpt twice."""
    held = [pin(seq, *sorted(ids), excerpt=text) for seq, ids, text in pins]
    told = goals_text(goals, held, boundary=20, share=share, count=count)
    assert count(told) <= share
    lines = told.split("\n") if told else []
    assert all(line.lstrip().startswith(("## ", "- [", "📌", "(+")) for line in lines)
    shown = [line.split()[2].rstrip(":") for line in lines if "📌" in line.split()[:1]]
    excerpts = [seq for seq, line in zip(shown, (x for x in lines if x.lstrip()[0] == "📌"),
                                         strict=True) if not line.endswith("(above)")]  # fmt: skip
    assert set(map(int, shown)) <= {each.seq for each in held if each.seq < 20}
    assert len(set(excerpts)) == len(excerpts)


def test_nothing_is_told_where_nothing_is_pursued():
    """Completed roots are not shown, nor are pins without a goal that is."""
    told = goals_text(
        [goal(1, status="completed")], [pin(0, 1)], boundary=9, share=500, count=count_tokens
    )
    assert told == ""


def test_a_pin_that_a_completed_sub_goal_holds_too_is_told_once():
    """Under the goal that is still pursued."""
    goals = [goal(1), goal(2, parent=1, status="completed")]
    told = goals_text(goals, [pin(0, 1, 2)], boundary=9, share=500, count=count_tokens)
    assert told.split("\n") == [
        "## Goals",
        "- [ ] goal (goal 1)",
        "  📌 message 0: said",
        "  - [x] goal (goal 2)",
    ]


def test_no_share_shows_no_goal():
    """Not even a heading."""
    assert goals_text([goal(1)], [], boundary=0, share=3, count=count_tokens) == ""

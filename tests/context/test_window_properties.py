"""Whatever was said, at whatever size: what always holds of the window and its rendering."""

from collections.abc import Sequence
from typing import Any

import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from window_kit import Threads, answered, called, open_threads, said

from mnemo.config import ViewportConfig
from mnemo.context.rendering import Overview
from mnemo.context.zones import Budget
from mnemo.runtime.text import count_tokens
from mnemo.values.derived import EvictionOutcome, Snapshot
from mnemo.values.messages import VIEW
from mnemo.values.units import units_of

TOKENS = st.one_of(st.integers(1, 60), st.integers(1, 900))
IDS = st.sampled_from("abcd")
MESSAGES = st.one_of(
    st.builds(said, st.text(max_size=60), tokens=TOKENS),
    st.builds(lambda text, n: said(text, tokens=n, role="assistant"), st.text(max_size=60), TOKENS),
    st.builds(lambda ids, n: called(*ids, tokens=n), st.sets(IDS, min_size=1), TOKENS),
    st.builds(lambda id, n: answered(id, tokens=n), IDS, TOKENS),
)
ACTS = st.one_of(
    st.tuples(st.just("say"), st.lists(MESSAGES, min_size=1, max_size=6)),
    st.tuples(st.just("say"), st.lists(MESSAGES, min_size=1, max_size=6)),
    st.tuples(st.just("wait"), st.sampled_from([1, 179, 181])),
    st.tuples(st.just("goal"), st.text(min_size=1, max_size=200).filter(str.strip)),
    st.tuples(st.just("pin"), st.integers(0, 10)),
    st.tuples(st.just("complete"), st.integers(1, 3)),
    st.tuples(st.just("fold"), st.text(min_size=1, max_size=300)),
    st.tuples(st.just("read"), st.none()),
)
HISTORIES = st.lists(ACTS, max_size=14)
BUDGETS = st.sampled_from([60, 300, 1_000, 3_000])
NOTES = st.none() | st.lists(st.text(max_size=200), max_size=4)
"""What notes say, where they are asked for."""


def overview_of(notes: Sequence[str] | None) -> Overview | None:
    """Tells of the first of *notes* that fit."""
    if notes is None:
        return None

    async def overview(budget_tokens: int) -> str:
        lines = [f"- {note}" for note in notes]
        while lines and count_tokens("\n".join(lines)) > budget_tokens:
            lines.pop()
        return "\n".join(lines) if lines or not notes else "(none fits)"

    return overview


async def act(threads: Threads, budget: int, kind: str, what: Any) -> None:
    """One act of a history; what is not possible now is left."""
    row = await threads.row()
    goals = [goal.id for goal in await threads.goals().list(active_only=True)]
    match kind:
        case "say":
            await threads.say(*what)
        case "wait":
            threads.clock.advance(what)
        case "goal":
            await threads.goals().add(what)
        case "pin" if goals and row.next_seq:
            await threads.pins().attach([what % row.next_seq], [goals[what % len(goals)]])
        case "complete" if what in goals:
            await threads.goals().complete(what)
        case "fold" if row.boundary:
            lower = [s for s in await threads.kept(Snapshot) if s.level == 1 and s.is_live]
            if lower:
                first, last = lower[0], lower[-1]
                await threads.fold(what, from_seq=first.from_seq, to_seq=last.to_seq)
        case "read":
            await threads.viewport(budget).messages()


async def check_rendering(threads: Threads, budget: int, notes: Sequence[str] | None) -> None:
    """What holds of every rendering."""
    viewport = threads.viewport(budget, overview=overview_of(notes))
    rendered = await viewport.render()
    parts = Budget.of(budget, ViewportConfig(), notes=notes is not None)
    assert count_tokens(rendered.memory) <= parts.notes + parts.long_term + parts.recent
    row = await threads.row()
    left = await threads.parts.store.reading(lambda tx: tx.messages("t", from_seq=row.boundary))
    shown = sum(message.token_count or 0 for message in rendered.window)
    assert rendered.over_budget == (shown > parts.window)
    assert rendered.token_count <= budget or rendered.over_budget
    if rendered.over_budget:
        assert len(units_of(left)) == 1
    stored = {message.id for message in rendered.window if not is_made(message)}
    assert stored == {message.id for message in left}
    if units := units_of(left):
        assert {message.stored_id for message in units[-1].messages} <= stored
    check_groups(rendered.messages, has_open=bool(left) and units[-1].unanswered != ())


def is_made(message: Any) -> bool:
    """Whether it stands for what is missing, and so is in no log."""
    return message.metadata.get(VIEW) in ("no_result", "memory", "state")


def check_groups(messages: list[Any], *, has_open: bool) -> None:
    """Every result stands right behind its call, and every call has its result."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in waiting
            waiting.remove(message.tool_call_id)
        else:
            assert not waiting or has_open
            waiting = [call.id for call in message.tool_calls]
    assert not waiting or has_open


async def check_coverage(threads: Threads) -> None:
    """Outcomes are contiguous up to the boundary, each with a snapshot of its own range."""
    row = await threads.row()
    outcomes = await threads.kept(EvictionOutcome)
    assert [o.from_seq for o in outcomes] == [0, *(o.to_seq + 1 for o in outcomes)][: len(outcomes)]
    assert row.boundary == (outcomes[-1].to_seq + 1 if outcomes else 0)
    first = {s.id: (s.from_seq, s.to_seq) for s in await threads.kept(Snapshot) if s.level == 1}
    assert first == {o.snapshot_id: (o.from_seq, o.to_seq) for o in outcomes}


@pytest.mark.slow
@given(HISTORIES, BUDGETS, NOTES)
async def test_no_rendering_exceeds_its_budget_or_parts_a_call(history, budget, notes):
    """The newest unit is always in the window, and each message there or in an outcome."""
    async with open_threads(None) as threads:
        for kind, what in history:
            await act(threads, budget, kind, what)
            await check_rendering(threads, budget, notes)
            await check_coverage(threads)


@pytest.mark.slow
@given(HISTORIES, BUDGETS, st.lists(MESSAGES, max_size=3), NOTES)
async def test_appends_alone_leave_memory_and_prefix(history, budget, more, notes):
    """Between evictions the earlier window is a prefix, but for late results."""
    async with open_threads(None) as threads:
        for kind, what in history:
            await act(threads, budget, kind, what)
        overview = overview_of(notes)
        earlier, row = (
            await threads.viewport(budget, overview=overview).render(),
            await threads.row(),
        )
        await threads.say(*more)
        later = await threads.viewport(budget, overview=overview).render()
        if (await threads.row()).boundary != row.boundary:
            return
        assert later.memory == earlier.memory
        assert later.state == earlier.state or later.degraded
        ids = {call.id for m in earlier.window for call in m.tool_calls}
        answers = {m.tool_call_id for m in earlier.window if m.role == "tool" and not is_made(m)}
        # A second result takes the place of one that came before its call.
        if ids <= answers and not any(m.tool_calls or m.role == "tool" for m in more):
            assert later.window[: len(earlier.window)] == earlier.window


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(HISTORIES, BUDGETS)
async def test_the_same_history_gives_the_same_bytes(history, budget):
    """Two services, two stores: every message of the rendering is the same."""
    found = []
    for _ in range(2):
        async with open_threads(None) as threads:
            for name, what in history:
                await act(threads, budget, name, what)
            rendered = await threads.viewport(budget).render()
        found.append([(m.role, m.content, m.tool_call_id) for m in rendered.messages])
    assert found[0] == found[1]

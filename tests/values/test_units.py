"""Units: groups are found wherever their parts lie, and are never parted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mnemo.values.messages import VIEW, Message, StoredMessage, ToolCall, is_view_made
from mnemo.values.units import (
    NO_RESULT,
    Unit,
    clean_cuts,
    completed,
    nearest_whole_ranges,
    units_of,
)

AT = datetime(2024, 1, 1, tzinfo=UTC)
ITEM = '{"format": "responses", "item": {}}'
LATER = AT + timedelta(seconds=1_000)


def thread(shorthand: str) -> list[StoredMessage]:
    """
    Messages from a word each: ``u`` and ``s`` speak, ``c:a,b`` calls, ``r:a`` answers.

    ``m:a,b`` answers two calls in one message, ``i`` is an opaque item, ``t`` a reasoning item;
    ``o:a`` answers and ``p`` speaks for the system without content, by an item alone.
    A point is a seq that is not there.
    """
    return [message(seq, word) for seq, word in enumerate(shorthand.split()) if word != "."]


def message(seq: int, word: str) -> StoredMessage:
    """One message at *seq*."""
    kind, _, ids = word.partition(":")
    roles: dict[str, Any] = {"u": "user"} | dict.fromkeys("sp", "system")
    roles |= dict.fromkeys("rmo", "tool")
    text, names = f"{word}@{seq}", ids.split(",")
    results = [{"type": "tool_result", "tool_use_id": id, "content": text} for id in names]
    return StoredMessage(
        role=roles.get(kind, "assistant"),
        tool_calls=[ToolCall(id, "f") for id in names] if kind == "c" else (),
        tool_call_id=names[0] if kind in "rmo" else None,
        kind="thought" if kind == "t" else None,
        content={"m": results, **dict.fromkeys("iop")}.get(kind, text),
        extra=ITEM if kind in "itop" else None,
        id=f"m{seq}",
        token_count=1,
        thread_id="t",
        seq=seq,
        epoch=0,
        recorded_at=AT,
        at=AT,
    )


def members(units: list[Unit]) -> list[list[int]]:
    """The seqs of each unit."""
    return [[message.seq for message in unit.messages] for unit in units]


@pytest.mark.parametrize(
    ("shorthand", "expected"),
    [
        ("", []),
        ("u u", [[0], [1]]),
        ("c:a u r:a", [[0, 2], [1]]),
        ("c:a,b c:d r:b r:d u r:a", [[0, 2, 5], [1, 3], [4]]),
        ("r:a u c:a", [[0, 2], [1]]),
        ("r:x u", [[0], [1]]),
        ("c:a r:a r:a", [[0, 1, 2]]),
        ("c:a r:a c:a r:a", [[0, 1], [2, 3]]),
        ("c:a c:a r:a", [[0], [1, 2]]),
        ("r:a c:a r:a", [[0], [1, 2]]),
        ("r:a c:a c:a r:a", [[0, 1], [2, 3]]),
        ("c:a,b u m:a,b u", [[0, 2], [1], [3]]),
        ("m:a,b u c:a,b", [[0, 2], [1]]),
    ],
)
def test_results_find_their_calls(shorthand, expected):
    """A result answers the nearest call of its id before it, or the first one after it."""
    assert members(units_of(reversed(thread(shorthand)))) == expected


@pytest.mark.parametrize(
    ("shorthand", "expected"),
    [
        ("u i u", [[0], [1, 2]]),
        ("i t i c:a u r:a", [[0, 1, 2, 3, 5], [4]]),
        ("c:a t r:a i", [[0, 1, 2], [3]]),
        ("i s", [[0], [1]]),
        ("p u", [[0], [1]]),
        ("c:a o:a u", [[0, 1], [2]]),
    ],
)
def test_an_item_that_leads_belongs_to_what_follows(shorthand, expected):
    """Reasoning and opaque items do; what the system says and results are led by and lead none."""
    assert members(units_of(reversed(thread(shorthand)))) == expected


def test_an_item_that_leads_is_never_parted_from_what_follows():
    """While nothing follows it, no cut lies behind it until its deadline has passed."""
    units = units_of(thread("u t"))
    assert clean_cuts(units, now=AT, deadline_s=180) == [1]
    assert clean_cuts(units, now=LATER, deadline_s=180) == [1, 2]
    assert clean_cuts(units_of(thread("u t u")), now=LATER, deadline_s=180) == [1, 3]


@pytest.mark.parametrize(
    ("shorthand", "cuts"),
    [
        ("", []),
        ("u", [1]),
        ("u u u", [1, 2, 3]),
        ("u . . u", [3, 4]),
        ("u c:a r:a u", [1, 3, 4]),
        ("c:a u r:a u", [3, 4]),
        ("c:a c:b r:a r:b", [4]),
        ("r:x u", [1, 2]),
    ],
)
def test_a_clean_cut_parts_no_group(shorthand, cuts):
    """A cut lies before its seq; the last one behind everything."""
    assert clean_cuts(units_of(thread(shorthand)), now=LATER, deadline_s=180) == cuts


@pytest.mark.parametrize(
    ("shorthand", "while_open"),
    [("u c:a u u", [1]), ("c:a u", []), ("u c:a,b r:a u", [1]), ("u c:a r:a u c:b", [1, 3, 4])],
)
def test_an_open_group_forbids_cuts_behind_it(shorthand, while_open):
    """Until its deadline; with a deadline of 0 every group is abandoned at once."""
    units = units_of(thread(shorthand))
    almost = AT + timedelta(seconds=179.9)
    assert clean_cuts(units, now=almost, deadline_s=180) == while_open
    abandoned = clean_cuts(units, now=almost, deadline_s=0)
    assert abandoned == clean_cuts(units, now=LATER, deadline_s=180)
    assert abandoned[-1] == units[-1].last_seq + 1


@pytest.mark.parametrize(
    ("shorthand", "given", "ranges"),
    [
        ("u u u", (0, 1), [(0, 1)]),
        ("u c:a r:a u", (0, 1), [(0, 0), (0, 2)]),
        ("u c:a r:a u", (1, 2), [(1, 2)]),
        ("c:a r:a", (0, 0), [(0, 1)]),
        ("c:a u r:a u", (1, 3), [(3, 3), (0, 3)]),
        ("c:a c:b r:a r:b u", (2, 4), [(4, 4), (0, 4)]),
    ],
)
def test_the_nearest_whole_ranges_are_found(shorthand, given, ranges):
    """The widest inside, if one is left, and the narrowest around."""
    assert nearest_whole_ranges(units_of(thread(shorthand)), *given) == ranges


def test_a_unit_says_what_it_is():
    """Tokens, ends, calls without a result, and whether anything in it is speech."""
    group, user, orphan = units_of(thread("c:a,b u r:b r:zz"))
    assert (group.first_seq, group.last_seq, group.tokens, group.is_group) == (0, 2, 2, True)
    assert [call.id for call in group.unanswered] == ["a"]
    assert (user.is_group, user.spoken, user.unanswered) == (False, True, ())
    assert (orphan.is_group, orphan.spoken) == (False, False)
    assert group.is_open(AT, 1)
    assert not group.is_open(AT, 0)
    assert not user.is_open(AT, 180)


def shown(shorthand: str, *, newest_open: bool = False) -> list[str]:
    """What is shown of a thread, each by its content."""
    return [m.text for m in completed(units_of(thread(shorthand)), newest_open=newest_open)]


def test_groups_are_completed():
    """Results directly after their call in the order of the calls; what is missing is said."""
    assert shown("u c:a,b,c u r:c r:a u") == [
        *("u@0", "c:a,b,c@1", "r:a@4", NO_RESULT, "r:c@3", "u@2", "u@5")
    ]
    assert shown("u r:x") == ["u@0", "[late result of x] r:x@1"]
    assert shown("r:a u c:a") == ["u@1", "c:a@2", "r:a@0"]
    assert shown("t c:a u r:a") == ["t@0", "c:a@1", "r:a@3", "u@2"]


def test_a_message_that_answers_several_calls_is_shown_once():
    """Behind the call, however many of its calls it answers; what is missing is said."""
    view = completed(units_of(thread("c:a,b,c u m:a,b")), newest_open=False)
    assert [message.id for message in view] == ["m0", "m2", "no-result:m0:c", "m1"]


def test_the_newest_group_may_stay_open():
    """Only the last unit, and only if the caller says so."""
    assert shown("c:a u c:b", newest_open=True) == ["c:a@0", NO_RESULT, "u@1", "c:b@2"]
    assert shown("c:a u c:b")[-1] == NO_RESULT


def test_what_a_view_made_is_known():
    """By its marker, or as a summary; everything else is somebody's message."""
    views = completed(units_of(thread("c:a r:zz u")), newest_open=False)
    assert [is_view_made(message) for message in views] == [False, True, True, False]
    assert [message.metadata.get(VIEW) for message in views[1:3]] == ["no_result", "late_result"]
    assert is_view_made(Message(role="system", kind="summary", content="s"))


words = some.sampled_from(
    ["u", "s", ".", "c:a", "c:b", "c:a,b", "c:c,d", "r:a", "r:b", "r:c", "r:d", "r:x"]
)


@given(some.lists(words, max_size=24), some.booleans())
def test_no_view_parts_a_call_from_its_result(drawn, newest_open):
    """No tool message is bare, none is lost, and everything else stands in its order."""
    messages = thread(" ".join(drawn))
    view = completed(units_of(messages), newest_open=newest_open)
    waiting: list[str] = []
    for place in view:
        if place.role == "tool":
            assert waiting.pop(0) == place.tool_call_id
            continue
        assert not waiting
        waiting = [call.id for call in place.tool_calls]
        later = view[view.index(place) + 1 :]
        if newest_open and place.tool_calls and not any(m.role != "tool" for m in later):
            waiting = [i for i in waiting if i in {m.tool_call_id for m in later}]
    ids = [m.id for m in view if m.metadata.get(VIEW) != "no_result"]
    assert sorted(str(i) for i in ids) == sorted(str(m.id) for m in messages)
    spoken = [m.seq for m in view if isinstance(m, StoredMessage) and m.role != "tool"]
    assert spoken == sorted(spoken)


@given(some.lists(words, max_size=24))
def test_cuts_and_ranges_agree_with_their_definition(drawn):
    """A seq is a clean cut exactly if no group lies on both sides; ranges between are whole."""
    messages = thread(" ".join(drawn))
    units = units_of(messages)
    assert sorted(seq for unit in members(units) for seq in unit) == [m.seq for m in messages]
    cuts = clean_cuts(units, now=LATER, deadline_s=180)
    starts = [*(m.seq for m in messages[1:]), *(m.seq + 1 for m in messages[-1:])]
    assert cuts == [c for c in starts if not any(u.first_seq < c <= u.last_seq for u in units)]
    for start in [m.seq for m in messages[:1]] + cuts[:-1]:
        for cut in [c for c in cuts if c > start]:
            assert nearest_whole_ranges(units, start, cut - 1) == [(start, cut - 1)]


def test_a_view_leaves_what_it_shows_unchanged():
    """The stored message keeps its role, text and metadata."""
    [orphan] = thread("r:x")
    before = replace(orphan)
    completed(units_of([orphan]), newest_open=False)
    assert orphan == before

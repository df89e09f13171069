"""What stands for messages where no model wrote about them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.values.digest import digest, first_sentence
from mnemo.values.messages import StoredMessage

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


def stored(seq: int, role: str = "user", content: Any = "Hello.", **rest: Any) -> StoredMessage:
    """A message of a thread."""
    return StoredMessage(
        role=role,  # type: ignore[arg-type]
        content=content,
        id=f"m{seq}",
        at=rest.pop("at", NOON),
        thread_id="t",
        seq=seq,
        epoch=0,
        recorded_at=NOON,
        **rest,
    )


def called(seq: int, *names: str, **rest: Any) -> StoredMessage:
    """An assistant's message of calls."""
    calls = [{"id": f"c{seq}-{i}", "name": name} for i, name in enumerate(names)]
    return stored(seq, "assistant", None, tool_calls=calls, **rest)


def answered(seq: int, call_id: str) -> StoredMessage:
    """A result."""
    return stored(seq, "tool", "secret output", tool_call_id=call_id)


def test_it_tells_range_dates_first_sentences_and_tools():
    """Of each turn only the assistant's last words, of the tools only their number."""
    zone = [
        stored(3, "user", "Find me a ryokan. It should have a bath."),
        stored(4, "assistant", "I look it up."),
        called(5, "search", "search"),
        answered(6, "c5-0"),
        answered(7, "c5-1"),
        stored(8, "assistant", "Found two!\nThe first is in Hakone."),
        stored(9, "user", "Book it", at=NOON + timedelta(days=1)),
    ]
    assert digest(zone, max_chars=8_192).splitlines() == [
        "Messages 3..9, 2026-03-05..2026-03-06; first sentences only.",
        "User: Find me a ryokan.",
        "Assistant: Found two!",
        "User: Book it",
        "[2 tools called]",
    ]


def test_a_zone_without_speech_tells_its_range_and_tools():
    """Nothing was said, so nothing is told."""
    zone = [called(0, "look"), answered(1, "c0-0")]
    assert digest(zone, max_chars=8_192).splitlines() == [
        "Messages 0..1, 2026-03-05; first sentences only.",
        "[1 tool called]",
    ]
    assert digest([], max_chars=10) == ""


def test_what_was_said_before_the_first_question_is_told():
    """A range may begin in the middle of a turn."""
    zone = [stored(0, "assistant", "Welcome. I am new."), stored(1, "user", "Hi")]
    assert digest(zone, max_chars=500).splitlines()[1:] == ["Assistant: Welcome.", "User: Hi"]


def test_over_the_limit_middle_lines_go_with_their_number():
    """Beginning and end stay, as does the count of tools."""
    zone = [stored(seq, "user", f"Sentence number {seq:03}.") for seq in range(100)]
    text = digest([*zone, called(100, "look")], max_chars=300)
    lines = text.splitlines()
    assert len(text) <= 300
    assert lines[0].startswith("Messages 0..100")
    assert lines[1] == "User: Sentence number 000."
    assert lines[-2:] == ["User: Sentence number 099.", "[1 tool called]"]
    left_out = 100 - sum(line.startswith("User: ") for line in lines)
    assert f"({left_out} lines left out)" in lines


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One. Two.", "One."),
        ("  \n One\nTwo. Three.", "One"),
        ("Dr. Who came. He left.", "Dr. Who came."),
        ("Ask J. Doe. Now.", "Ask J. Doe."),
        ("I take the 7. And you?", "I take the 7."),
        ("It costs 3.14 euros! Yes.", "It costs 3.14 euros!"),
        ('"Really?" she said. No.', '"Really?"'),
        ("東京に行きます。来週です。", "東京に行きます。"),
        ("x" * 200, "x" * 159 + "…"),
        (" \n ", ""),
    ],
)
def test_the_first_sentence_of_a_text(text, first):
    """A line's end ends it as well; at most 160 characters."""
    assert first_sentence(text) == first


TEXTS = st.text(max_size=300) | st.sampled_from(["One. Two.", "a\u2028message 3 User: b", ""])


@given(
    said=st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), TEXTS), max_size=30),
    most=st.integers(1, 2_000),
)
def test_it_is_pure_bounded_and_one_line_per_sentence(said, most):
    """The same messages give the same bytes within the limit, whatever was said."""
    zone = [stored(seq, role, text) for seq, (role, text) in enumerate(said)]
    text = digest(zone, max_chars=most)
    assert text == digest(list(zone), max_chars=most)
    assert len(text) <= most
    spoken = sum(m.role == "user" and not m.text.isspace() and m.text != "" for m in zone)
    whole = digest(zone, max_chars=10**6)
    assert sum(line.startswith("User: ") for line in whole.splitlines()) == spoken
    assert all(len(line) <= 200 for line in whole.splitlines())

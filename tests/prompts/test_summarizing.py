"""The question for a summary, and the reading of its reply."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.conversation.compression import cut_to
from mnemo.errors import InvalidReply
from mnemo.prompts.profiles import Profile
from mnemo.prompts.question import read_block
from mnemo.prompts.summarize import (
    EARLIER,
    MESSAGES,
    SUMMARIES,
    shorter_request,
    summary_of,
    summary_request,
)
from mnemo.protocols import ChatReply, SummaryRequest
from mnemo.runtime.text import count_tokens
from mnemo.values.messages import StoredMessage

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def message(text: str, **fields: Any) -> StoredMessage:
    given = {"role": "user", "content": text, "id": text[:100], "at": NOON, **fields}
    return StoredMessage(**given, thread_id="t", seq=0, epoch=0, recorded_at=NOON)


def user_text(asked: SummaryRequest) -> str:
    return summary_request(asked).messages[1].content


def test_messages_are_lines_with_time_and_speaker():
    """``role: content``, who is named, when it was said; failed results say so."""
    messages = (
        message("hello", actor="Ana"),
        message("no route", role="tool", tool_call_id="c", is_error=True),
    )
    text = user_text(SummaryRequest(messages=messages, max_tokens=70))
    assert read_block(text, MESSAGES) == [
        {"at": "Wednesday 2024-05-01T12:00:00+00:00", "name": "Ana", "line": "user: hello"},
        {"at": "Wednesday 2024-05-01T12:00:00+00:00", "line": "tool: [failed] no route"},
    ]
    assert "at most 40 words" in text
    assert EARLIER not in text
    assert SUMMARIES not in text


def test_what_is_known_already_stands_apart():
    """Earlier summaries come in a block of their own, not to be told again."""
    asked = SummaryRequest(messages=(message("x"),), earlier=("Before.",), max_tokens=70)
    text = user_text(asked)
    assert read_block(text, EARLIER) == [{"summary": "Before."}]
    assert "do not tell it again" in text


def test_summaries_are_made_one():
    """Folding shows the summaries in order, and no messages."""
    text = user_text(SummaryRequest(summaries=("One.", "Two."), max_tokens=70))
    assert read_block(text, SUMMARIES) == [{"summary": "One."}, {"summary": "Two."}]
    assert f"BEGIN {MESSAGES}" not in text


def test_long_messages_are_shortened_together():
    """However much was said, the request stays within what a model can read."""
    messages = tuple(message(f"{n} " + "word " * 10_000) for n in range(30))
    text = user_text(SummaryRequest(messages=messages, max_tokens=70))
    assert len(text) < 200_000
    assert len(read_block(text, MESSAGES)) == 30


def test_a_profile_adds_its_overlay():
    """What a field of work says about summaries follows the standing instructions."""
    profile = Profile(name="law", overlays={"summarize": "Keep every clause number."})
    asked = SummaryRequest(messages=(message("x"),), max_tokens=70)
    system = summary_request(asked, profile).messages[0].content
    assert system.endswith("Keep every clause number.")


def test_the_shorter_one_is_asked_for_in_the_same_exchange():
    """The too long text is shown again as the model's own, then the demand."""
    first = summary_request(SummaryRequest(messages=(message("x"),), max_tokens=70))
    again = shorter_request(first, "too long", 70)
    assert again.messages[:2] == first.messages
    assert [m.role for m in again.messages[2:]] == ["assistant", "user"]
    assert again.messages[2].content == "too long"
    assert again.purpose == "summarize"


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (" They met.\n", "They met."),
        ("<think>who?</think>They met.", "They met."),
        ("<THINKING>\nwho?\n</THINKING>\n\nThey met.", "They met."),
        ("who was it?</think>\nThey met.", "They met."),
        ("They spoke of </think> tags.", "They spoke of </think> tags."),
        ("nul \0 byte", "nul \ufffd byte"),
    ],
)
def test_a_summary_is_the_text_without_the_thoughts(text, summary):
    """Thoughts before the text are left out; a tag within it is part of it."""
    assert summary_of(ChatReply(text=text)) == summary


@pytest.mark.parametrize(
    "reply",
    [
        ChatReply(text=""),
        ChatReply(text=" \u3000\n"),
        ChatReply(text="<think>They met."),
        ChatReply(text="They m", truncated=True),
    ],
)
def test_no_summary_is_a_typed_failure(reply):
    """Blank, only thought, or cut off."""
    with pytest.raises(InvalidReply) as failure:
        summary_of(reply)
    assert failure.value.purpose == "summarize"


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("One. Two.", 3, "One. Two."),
        ("One. Two and three.", 4, "One."),
        ("It costs 3.50 now. Then more words.", 6, "It costs 3.50 now."),
        ('He said "go." Then he went away.', 5, 'He said "go."'),
        ("一。二三四五六七八九十。", 3, "一。"),
        ("first line\nsecond line that is long", 4, "first line"),
        ("several words without an end", 3, "several"),
        ("x" * 100, 3, "x" * 12),
        ("x" * 100, 0, "x"),
    ],
)
def test_a_text_is_cut_at_the_last_sentence_that_fits(text, most, cut):
    """Sentences as a whole; without one, words; without one, characters."""
    assert cut_to(text, most, count_tokens) == cut


@given(text=st.text(min_size=1, max_size=200), most=st.integers(1, 30))
def test_what_is_cut_fits_and_is_a_beginning(text, most):
    """Whatever the text, the cut has at most so many tokens and begins like it."""
    cut = cut_to(text, most, count_tokens)
    assert count_tokens(cut) <= most
    assert text.startswith(cut)

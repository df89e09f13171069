"""Files of a chat: whatever is in them, they are read up to the first mistake."""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo import Message
from mnemo.importing.chats import stream_messages
from mnemo.importing.json_stream import ImportFileError

NAMED = ("role", "speaker", "actor", "name", "kind", "id", "tool_call_id", "function", "at")
SAID = ("content", "text", "observation", "action", "messages", "turns", "tool_calls", "arguments")
BESIDE = ("is_error", "token_count", "metadata", "seq", "extra")
KEYS = st.sampled_from([*NAMED, *SAID, *BESIDE])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
WORDS = st.sampled_from(["user", "assistant", "tool", "Ada", "2026-01-02", "think", "{}"])
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)


@dataclass
class Chat:
    """What was read before the first mistake, and that mistake."""

    messages: list[Message] = field(default_factory=list)
    problem: ImportFileError | None = None


def read(content: str) -> Chat:
    """What is read of a file with *content*."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.jsonl"
        file.write_text(content, encoding="utf-8", errors="surrogatepass")
        chat = Chat()
        try:
            for message in stream_messages(file):
                chat.messages.append(message)
        except ImportFileError as problem:
            chat.problem = problem
        return chat


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=6) | VALUES, min_size=1, max_size=3))
def test_no_file_breaks_the_reader(values):
    """What is no message is a mistake with a place, never another exception."""
    for content in (json.dumps(values), "\n".join(map(json.dumps, values))):
        chat = read(content)
        assert chat.problem is None or isinstance(chat.problem, ImportFileError)
        assert all(message.id for message in chat.messages)


def test_arguments_are_kept_as_they_were_written_where_they_are_no_json():
    """A model's broken arguments are text; so are those nested too deep to be read."""
    for written in ('{"a": ', "[" * 100_000):
        call = {"id": "c", "function": {"name": "f", "arguments": written}}
        (message,) = read(json.dumps({"role": "assistant", "tool_calls": [call]})).messages
        assert message.tool_calls[0].arguments == written


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("human", ("user", None)),
        ("USER", ("user", None)),
        ("Ada", ("user", "Ada")),
        ("AI", ("assistant", None)),
        ("developer", ("system", None)),
    ],
)
def test_whoever_speaks_has_a_role(role, expected):
    """Names that are no role are users, and keep their name."""
    (message,) = read(json.dumps({"role": role, "content": "x"})).messages
    assert (message.role, message.actor) == expected


def test_the_messages_of_a_list_are_all_or_none():
    """One that is wrong takes the others of its list along; lists before it stay."""
    good, bad = {"role": "user", "content": "a"}, {"role": "user"}
    chat = read(json.dumps([{"messages": [good, good]}, {"messages": [good, bad]}]))
    assert [message.id for message in chat.messages] == ["x#1#1", "x#1#2"]
    assert 'value 2: message 2: has no "text" or "content"' in str(chat.problem)


@pytest.mark.parametrize("id", [True, [], {}, " ", 1.5])
def test_an_id_is_text_or_a_number(id):
    """Anything else is a mistake."""
    assert "neither text nor a number" in str(read(json.dumps({"role": "user", "id": id})).problem)

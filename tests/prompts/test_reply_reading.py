"""Reading JSON out of whatever a model wraps around it."""

import json

import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemo.prompts.question import json_of
from mnemo.protocols import ChatReply

OBJECT = {"facts": [{"proposition": "a } in { a string"}]}
TEXT = json.dumps(OBJECT)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"  {TEXT}\n",
        f"```json\n{TEXT}\n```",
        f"<think>maybe {{}}</think>{TEXT}",
        f"<THINKING>\n{{\n</THINKING>\n{TEXT}",
        f"a thought without its beginning {{}}</think>\n{TEXT}",
        f'{{"facts": []}} No, better:\n{TEXT}',
        f"Here {{you}} go: {TEXT} Anything else?",
    ],
)
def test_the_last_complete_object_is_read(text):
    """Fences, thoughts, prose and earlier tries are passed over."""
    assert json_of(ChatReply(text=text)) == OBJECT


def test_a_text_that_speaks_of_thinking_is_left_alone():
    """Bare JSON is read as it stands, whatever its strings look like."""
    value = {"intent": "explain <think> and </think>"}
    assert json_of(ChatReply(text=json.dumps(value))) == value


@pytest.mark.parametrize("text", ["", " ", "[1]", '"facts"', "null", '{"facts": [', "<think>{}"])
def test_what_holds_no_complete_object_is_refused(text):
    """Lists, bare values, cut off objects and unfinished thoughts are no reply."""
    with pytest.raises(ValueError, match="reply"):
        json_of(ChatReply(text=text))


def test_parsed_is_taken_as_it_is():
    """What an adapter has parsed is not looked for in the text."""
    assert json_of(ChatReply(text='{"a": 1}', parsed={"b": [2]})) == {"b": [2]}


def test_texts_become_storable():
    """Escaped lone surrogates and U+0000 are replaced, however deep."""
    text = r'{"a": ["x\ud800", {"b": "\u0000"}]}'
    assert json_of(ChatReply(text=text)) == {"a": ["x\ufffd", {"b": "\ufffd"}]}


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    """No reply, however odd, raises anything but ``ValueError``."""
    try:
        assert isinstance(json_of(ChatReply(text=text)), dict)
    except ValueError as error:
        assert str(error)  # noqa: PT017 — refusing is as good as reading


@settings(max_examples=examples(30))
@given(st.dictionaries(st.sampled_from(["facts", "a", "b"]), json_values))
def test_any_object_in_a_fence_is_read(value):
    """What ``json`` writes is read back."""
    assert json_of(ChatReply(text=f"```\n{json.dumps(value)}\n```")) == value

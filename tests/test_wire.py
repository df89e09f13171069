"""``mnemo.wire``: every item of the SDKs' own types comes back as it was."""

import json
import re
import types
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from io import StringIO
from os import PathLike
from typing import (
    IO,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
)

import pytest
from anthropic.types import MessageParam
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam, ResponseOutputMessage
from pydantic import BaseModel, TypeAdapter
from typing_extensions import get_type_hints, is_typeddict

from mnemo import Message, ToolCall, wire
from mnemo.values.messages import answered_ids

# --- strategies over the SDKs' types ----------------------------------------------------------

TEXTS = st.sampled_from(
    (
        *("", " ", "a", "1", "call_1", "call_2", "Ada is in Rome.", "ünï", "\ud800", "\0"),
        *("{}", '{"city": "Rome"}', '{"a":1}', '"text"', "NaN", "not json {"),
        "data:image/png;base64,AAAA",
    )
)
LEVELS = 7
"""How deep generated items are nested; optional parts are left out below."""


@cache
def of_type(kind: Any, levels: int = LEVELS) -> st.SearchStrategy[Any]:
    """Values of *kind*: a type as the SDKs declare what a request is made of."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Annotated, Required, NotRequired):
        return of_type(inner[0], levels)
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(one, levels) for one in inner if can_be_sent(one)])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (list, tuple) or (isinstance(origin, type) and issubclass(origin, Iterable)):
        return listed(kind, inner, levels)
    if is_typeddict(kind):
        return st.deferred(lambda: mappings(kind, levels))
    return SIMPLE[kind]


def listed(kind: Any, inner: tuple[Any, ...], levels: int) -> st.SearchStrategy[Any]:
    if len(inner) == 2:  # a mapping
        return st.dictionaries(TEXTS, of_type(inner[1], levels - 1), max_size=2)
    if levels <= 0:
        return st.just([])
    return st.lists(of_type(inner[0], levels - 1), max_size=3)


def can_be_sent(kind: Any) -> bool:
    """Not the classes of replies, which some request types allow as well, and no open files."""
    is_class = isinstance(kind, type) and issubclass(kind, BaseModel | bytes | PathLike)
    return not is_class and get_origin(kind) not in (IO, PathLike)


def mappings(kind: Any, levels: int) -> st.SearchStrategy[dict[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    needed = {name for name, hint in hints.items() if get_origin(hint) is Required}
    values = {name: of_type(hint, levels - 1) for name, hint in hints.items()}
    return st.fixed_dictionaries(
        {name: values[name] for name in needed},
        optional={} if levels <= 0 else {n: v for n, v in values.items() if n not in needed},
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.just(0.5) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(-(2**70), 2**70),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    object: JSON,
    Any: JSON,
    type(None): st.none(),
}


# --- round trips ------------------------------------------------------------------------------


class Wire(NamedTuple):
    """One format: its item type, and the two functions of it."""

    items: Any
    read: Callable[[Any], list[Message]]
    write: Callable[[list[Message]], list[dict[str, Any]]]


WIRES = {
    "openai": Wire(ChatCompletionMessageParam, wire.from_openai, wire.to_openai),
    "responses": Wire(ResponseInputItemParam, wire.from_responses, wire.to_responses),
    "anthropic": Wire(MessageParam, wire.from_anthropic, wire.to_anthropic),
}
KINDS = [
    pytest.param(name, kind, id=f"{name}-{kind.__name__}")
    for name, format in WIRES.items()
    for kind in get_args(format.items)
]


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), KINDS)
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_every_item_of_the_sdk_comes_back(name: str, kind: Any, data: st.DataObject) -> None:
    """One item is one message, and writing it gives the item, whatever its type allows."""
    items = data.draw(st.lists(of_type(kind), min_size=1, max_size=2))
    format = WIRES[name]
    messages = format.read(items)
    assert len(messages) == len(items)
    assert same(format.write(messages), items)


@pytest.mark.slow
@pytest.mark.parametrize("name", WIRES)
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_items_appended_as_they_are_come_back(name: str, data: st.DataObject) -> None:
    """So do the messages that ``append`` makes of them, with the format named."""
    format = WIRES[name]
    items = data.draw(st.lists(of_type(format.items), max_size=3))
    assert same(format.write([*wire.messages_of(items, name)]), items)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("target", WIRES)
@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
def test_items_of_one_format_are_written_in_another(
    name: str, target: str, data: st.DataObject
) -> None:
    """Whatever an item holds, the other formats get JSON with a role or a type."""
    items = data.draw(st.lists(of_type(WIRES[name].items), max_size=3))
    written = WIRES[target].write(WIRES[name].read(items))
    json.dumps(written, allow_nan=False)
    assert all("role" in item or "type" in item for item in written if target != name)


def test_replies_of_the_sdks_are_taken_as_they_are() -> None:
    """Objects are dumped as the SDKs send them: what was set, by the names of the wire."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    chat = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "tool_calls": [call]}
    )
    [message] = wire.from_openai(chat)
    assert message.tool_calls == (ToolCall("c1", "f", {}),)
    assert wire.to_openai([message]) == [chat.model_dump(exclude_unset=True)]
    said = {"type": "output_text", "text": "Hello", "annotations": []}
    reply = ResponseOutputMessage.model_validate(
        {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [said],
        }
    )
    assert wire.to_responses(wire.messages_of([reply])) == [reply.model_dump(exclude_unset=True)]


@pytest.mark.parametrize("arguments", ['{"a": 1}', "{}", "", "NaN", "not json {", '{"a":1,"a":2}'])
def test_arguments_come_back_as_the_model_wrote_them(arguments: str) -> None:
    """Spaces, doubled keys and what is no JSON at all included."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    item = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert wire.to_openai(wire.from_openai([item])) == [item]


def test_iterables_become_lists() -> None:
    """Content blocks and calls may be tuples or generators, which are read once."""
    blocks = ({"type": "text", "text": text} for text in ("a", "b"))
    [message] = wire.from_openai(({"role": "user", "content": blocks},))
    assert wire.to_openai([message])[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]


def test_a_changed_message_is_written_as_it_is_now() -> None:
    """The kept item counts only while the fields still say what it says."""
    [message] = wire.from_openai([{"role": "developer", "content": "Be brief."}])
    assert message.extra is not None
    changed = replace(message, content="Be kind.")
    assert wire.to_openai([changed]) == [{"role": "system", "content": "Be kind."}]


# --- from one format to another ---------------------------------------------------------------

LOOP = [
    {"role": "user", "content": "Weather in Oslo and Rome?"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "two calls", "signature": "s"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
            {"type": "tool_use", "id": "t2", "name": "weather", "input": {"city": "Rome"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "3 degrees"},
            {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True},
            {"type": "text", "text": "And Lund?"},
        ],
    },
]


def test_one_message_answers_several_calls() -> None:
    """A user message with two results is one tool message; its words are searchable."""
    *_, message = wire.from_anthropic(LOOP)
    assert answered_ids(message) == ("t1", "t2")
    assert (message.kind, message.text) == ("reply", "And Lund?")


@pytest.mark.parametrize("name", ["openai", "responses"])
def test_a_tool_loop_of_anthropic_is_valid_for_the_others(name: str) -> None:
    """Each result stands under its own call id; the SDK's types accept what is written."""
    written = WIRES[name].write(wire.from_anthropic(LOOP))
    TypeAdapter(list[WIRES[name].items]).validate_python(written)
    answered = [item.get("tool_call_id") or item.get("call_id") for item in written[-3:]]
    assert answered == ["t1", "t2", None]
    assert (written[-1]["role"], written[-1]["content"][0]["text"]) == ("user", "And Lund?")
    assert "thinking" not in json.dumps(written)


def test_a_result_with_words_beside_it_is_two_messages_elsewhere() -> None:
    """Changed since it was made, it is one message of Anthropic's format all the same."""
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "3 degrees"}
    said = {"type": "text", "text": "And Lund?"}
    [message] = wire.from_anthropic({"role": "user", "content": [result, said]})
    assert wire.to_openai([message]) == [
        {"role": "tool", "tool_call_id": "t1", "content": "3 degrees"},
        {"role": "user", "content": [said]},
    ]
    assert wire.to_anthropic([replace(message, extra=None)]) == [
        {"role": "user", "content": [result, said]}
    ]


@pytest.mark.parametrize("name", WIRES)
def test_an_image_goes_from_format_to_format(name: str) -> None:
    """Sent along or by URL, it is written as the other format has images."""
    data = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    far = {"type": "url", "url": "https://example.org/a.png"}
    content = [{"type": "image", "source": source} for source in (data, far)]
    written = WIRES[name].write(wire.from_anthropic([{"role": "user", "content": content}]))
    TypeAdapter(list[WIRES[name].items]).validate_python(written)
    for shown in ("AAAA", "https://example.org/a.png"):
        assert shown in json.dumps(written)


# --- which format -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ({"role": "user", "content": "x"}, "openai"),
        ({"role": "developer", "content": "x"}, "openai"),
        ({"role": "assistant", "content": None, "refusal": "no"}, "openai"),
        ({"type": "item_reference", "id": "r1"}, "responses"),
        ({"role": "user", "content": [{"type": "input_text", "text": "x"}]}, "responses"),
        ({"role": "user", "content": [{"type": "document", "source": {}}]}, "anthropic"),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": ""}]}, "anthropic"),
    ],
)
def test_the_keys_tell_the_format(item: dict[str, Any], name: str) -> None:
    """What no key decides is chat completions."""
    [message] = wire.messages_of([item])
    assert message == WIRES[name].read([item])[0]
    assert WIRES[name].write([message]) == [item]


def test_our_fields_stand_beside_a_format() -> None:
    """An id, a time and metadata are ours; the rest is the item."""
    at = datetime(2026, 3, 2, tzinfo=UTC)
    item = {"role": "developer", "content": "x", "id": "m1", "at": at, "metadata": {"a": 1}}
    [message] = wire.messages_of([item])
    assert (message.id, message.at, message.metadata) == ("m1", at, {"a": 1})
    assert wire.to_openai([message]) == [{"role": "developer", "content": "x"}]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"text": "x", "speaker": "Ada"}, "'speaker', 'text'"),
        ({}, "none"),
        ([{"type": "reasoning"}, {"role": "user", "content": "x", "refusal": ""}], "mixes formats"),
        ({"role": "user", "content": "x", "metdata": {}}, "'metdata'"),
        ({"role": "robot", "content": "x"}, "'robot'"),
        ("x", "str"),
        ([1], "int"),
        ({"role": "user", "content": b"x"}, "content must be text"),
        ({"role": "user", "content": b"x", "audio": None}, "encode it as text"),
        ({"role": "user", "content": [{"type": "text", "text": float("nan")}]}, "nan"),
        ({"role": "user", "content": [StringIO("x")], "audio": None}, "open file"),
        ({"role": "user", "content": [{1: 2}], "audio": None}, "key"),
    ],
)
def test_what_is_no_message_is_refused(given: Any, told: str) -> None:
    """With an error that names what decided."""
    with pytest.raises(ValueError, match=re.escape(told)):
        list(wire.messages_of(given))


def test_a_named_format_keeps_unknown_keys() -> None:
    """Servers send keys of their own, which ``format`` lets through."""
    item = {"role": "assistant", "content": "x", "reasoning_content": "hm"}
    [message] = wire.messages_of(item, "openai")
    assert wire.to_openai([message]) == [item]


def test_an_unknown_format_is_refused() -> None:
    """The formats that there are are named."""
    with pytest.raises(ValueError, match="openai, responses, anthropic"):
        list(wire.messages_of([], "gemini"))  # type: ignore[arg-type]


def test_an_endless_nesting_is_refused() -> None:
    """It is an error of the value, not of Python's stack."""
    item: dict[str, Any] = {"role": "user", "content": []}
    inner = item["content"]
    for _ in range(100_000):
        inner.append([])
        inner = inner[0]
    with pytest.raises(ValueError, match="200 levels"):
        wire.from_openai([item])


@pytest.mark.parametrize("written", [wire.to_openai, wire.to_responses, wire.to_anthropic])
@pytest.mark.parametrize("other", [{"role": "user", "content": "x"}, "x", 3, None])
def test_only_messages_are_written(written: Callable[[Any], list[Any]], other: object) -> None:
    """A mapping is none: it is read first."""
    with pytest.raises(ValueError, match="a message must be Message, not"):
        written([other])

"""Anthropic's protocol on the wire: what is sent, and what is made of what comes back."""

from typing import Any

import pytest
from http_doubles import KEY, SCHEMA, Answers, ok, question

from mnemo.errors import ConfigError, InvalidReply, ModelUnavailable
from mnemo.models import AnthropicChatModel, Price
from mnemo.prompts.semantic import STANDING
from mnemo.protocols import ChatReply, Usage


def message(*content: Any, **rest: Any) -> dict[str, Any]:
    """A message of the model."""
    usage = {
        "input_tokens": 100,
        "cache_read_input_tokens": 700,
        "cache_creation_input_tokens": 200,
        "output_tokens": 50,
    }
    said = {"type": "message", "role": "assistant", "model": "c-1", "content": list(content)}
    return {**said, "stop_reason": "end_turn", "usage": usage, **rest}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def used(name: str, given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "t1", "name": name, "input": given}


async def replied(answer: Any, request: Any = None, **arguments: Any) -> tuple[ChatReply, Any]:
    """The reply made of *answer*, and the body that was sent."""
    server = Answers(ok(answer))
    async with AnthropicChatModel("c", KEY, transport=server, **arguments) as model:
        reply = await model.complete(request or question())
    return reply, server.bodies[0]


@pytest.mark.parametrize("base_url", ["https://api.anthropic.com", "https://api.anthropic.com/v1/"])
async def test_a_question_becomes_a_message(base_url):
    """System text apart, the key and the version in headers of their own."""
    server = Answers(ok(message(text("Bo."))))
    async with AnthropicChatModel("c", KEY, base_url=base_url, transport=server) as model:
        await model.complete(question(schema=None))
    (request,) = server.requests
    assert str(request.url) == "https://api.anthropic.com/v1/messages"
    assert request.headers["x-api-key"] == KEY
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in request.headers
    assert server.bodies == [
        {
            "model": "c",
            "max_tokens": 4096,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "Who?"}],
            "temperature": 0.0,
        }
    ]


async def test_a_schema_is_a_tool_that_must_be_called():
    """Named after the purpose; its input is the parsed reply and, as JSON, its text."""
    reply, body = await replied(message(used("semantic", {"facts": []})))
    assert body["tool_choice"] == {"type": "tool", "name": "semantic"}
    assert body["tools"][0]["input_schema"] == SCHEMA
    assert (reply.parsed, reply.text, reply.tool_calls) == ({"facts": []}, '{"facts": []}', ())


async def test_a_text_instead_of_the_call_is_left_to_the_reader():
    """The tolerant parsing of the caller finds JSON in it, or corrects."""
    reply, _ = await replied(message(text('It is {"facts": []}.')))
    assert (reply.parsed, reply.text) == (None, 'It is {"facts": []}.')


async def test_input_tokens_are_the_whole_input():
    """The API counts cached input apart; usage and cost have it together."""
    reply, _ = await replied(message(text("Bo.")), prices={"c": Price(3, 15, 0.3)})
    assert reply.usage.input_tokens == 1_000
    cost = (300 * 3 + 700 * 0.3 + 50 * 15) / 1e6
    assert reply.usage == Usage("c-1", 1_000, 50, 700, pytest.approx(cost))


async def test_a_conversation_keeps_its_roles():
    """Instructions from several messages are joined; unknown roles are the user's."""
    said = [("system", "a"), ("user", "b"), ("assistant", "c"), ("system", "d"), ("tool", "e")]
    _, body = await replied(message(), question(schema=None, messages=said))
    assert body["system"] == "a\n\nd"
    roles = [(m["role"], m["content"]) for m in body["messages"]]
    assert roles == [("user", "b"), ("assistant", "c"), ("user", "e")]


async def test_instructions_alone_are_asked_as_a_question():
    """The API wants a message."""
    _, body = await replied(message(), question(schema=None, messages=[("system", "Go.")]))
    assert body["messages"] == [{"role": "user", "content": "Go."}]
    assert "system" not in body


async def test_tool_calls_are_given_back():
    """Tools of the request are offered without force; text beside them stays."""
    tools = ({"type": "function", "function": {"name": "look", "parameters": SCHEMA}},)
    request = question("update_notes", schema=None, tools=tools)
    reply, body = await replied(message(text("Let me."), used("look", {"at": 1})), request)
    assert body["tools"] == [{"name": "look", "description": "", "input_schema": SCHEMA}]
    assert "tool_choice" not in body
    assert reply.text == "Let me."
    assert list(reply.tool_calls) == [{"id": "t1", "name": "look", "arguments": {"at": 1}}]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (message(), ""),
        (message(text("I will not."), stop_reason="refusal"), "I will not."),
        (message({"type": "thinking", "thinking": "hm"}, text("B"), text("o.")), "Bo."),
        (message(7, None, {"type": "text"}), ""),
        (message(text("Bo."), usage={"input_tokens": -1, "output_tokens": {}}), "Bo."),
    ],
)
async def test_what_the_model_says_is_passed_on(answer, said):
    """Refusals and blank replies are replies."""
    reply, _ = await replied(answer)
    assert (reply.text, reply.parsed) == (said, None)


@pytest.mark.parametrize("answer", [[], {}, {"content": "Bo."}, {"type": "error"}])
async def test_an_answer_of_another_shape_is_invalid(answer):
    """JSON of another API ends the call."""
    with pytest.raises(InvalidReply, match="no list of content"):
        await replied(answer)


@pytest.mark.parametrize("key", ["", " ", None])
def test_a_key_is_needed(key):
    """There is no server of this protocol without one."""
    with pytest.raises(ConfigError, match="api_key"):
        AnthropicChatModel("c", key)


def test_a_bound_of_the_output_is_needed():
    """The API refuses a request without one."""
    with pytest.raises(ConfigError, match="max_output_tokens"):
        AnthropicChatModel("c", KEY, max_output_tokens=None)  # type: ignore[arg-type]


def test_a_model_says_who_it_is():
    """For telemetry and logs."""
    model = AnthropicChatModel("c", KEY)
    assert (model.provider, model.server) == ("anthropic", ("api.anthropic.com", 443))
    assert repr(model) == "AnthropicChatModel('https://api.anthropic.com', 'c')"


async def test_it_speaks_to_a_real_server(server):
    """The scripted server insists on the version's header and on the key."""
    server.script("semantic", {"facts": []})
    server.keys = {KEY}
    request = question(messages=[("system", STANDING), ("user", "Who?")])
    async with AnthropicChatModel("c", KEY, base_url=server.url) as model:
        for cached in (False, True):
            reply = await model.complete(request)
            assert reply.parsed == {"facts": []}
            assert (reply.usage.cached_tokens > 0) is cached
            assert reply.usage.input_tokens >= reply.usage.cached_tokens
    async with AnthropicChatModel("c", "another", base_url=server.url) as model:
        with pytest.raises(ModelUnavailable, match="give api_key="):
            await model.complete(request)
    await server.until(lambda: server.connections == 0)

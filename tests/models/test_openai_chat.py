"""OpenAI's protocol on the wire: what is sent, and what is made of what comes back."""

from typing import Any

import pytest
from http_doubles import KEY, Answers, HastyClock, completion, ok, question

from mnemo.errors import ConfigError, InvalidReply
from mnemo.models import OpenAIChatModel, Price
from mnemo.protocols import ChatReply, Usage

URL = "http://x/v1"


async def replied(answer: Any, request: Any = None, **arguments: Any) -> tuple[ChatReply, Any]:
    """The reply made of *answer*, and the body that was sent."""
    server = Answers(ok(answer))
    async with OpenAIChatModel(URL, "m", transport=server, **arguments) as model:
        reply = await model.complete(request or question())
    return reply, server.bodies[0]


async def test_a_question_becomes_a_chat_completion():
    """Model, messages and temperature; address, key and type in their places."""
    server = Answers(ok(completion("Bo.")))
    async with OpenAIChatModel(f"{URL}/", "m", KEY, transport=server) as model:
        await model.complete(question(schema=None))
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("POST", f"{URL}/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    assert server.bodies == [{"model": "m", "messages": messages, "temperature": 0.0}]


async def test_a_corrective_exchange_keeps_its_order():
    """Assistant and user messages follow the instructions as they were said."""
    said = [("system", "a"), ("user", "b"), ("assistant", "c"), ("user", "d\ud800")]
    _, body = await replied(completion(), question(messages=said))
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"]
    assert body["messages"][-1]["content"] == "d\ufffd"


async def test_the_reply_carries_text_and_usage():
    """The model is the one that the server names; cached tokens are part of the input."""
    reply, _ = await replied(completion("Bo."))
    assert reply == ChatReply("Bo.", usage=Usage("m-2024", 1_000, 100, 400, None))


@pytest.mark.parametrize("named", ["m", "m-2024"])
async def test_the_cost_comes_from_the_users_table(named):
    """By the name that the server gives, or by the one that was asked for."""
    reply, _ = await replied(completion(), prices={named: Price(2.0, 8.0, 0.5)})
    assert reply.usage.cost_usd == pytest.approx((600 * 2 + 400 * 0.5 + 100 * 8) / 1e6)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        "many",
        {},
        {"prompt_tokens": -5, "completion_tokens": "9", "prompt_tokens_details": None},
        {"prompt_tokens": None, "completion_tokens": True, "prompt_tokens_details": []},
        {"prompt_tokens": 1e999, "prompt_tokens_details": {"cached_tokens": 7}},
    ],
)
async def test_nonsense_in_usage_counts_nothing(usage):
    """A reply is no worse for its server's bookkeeping."""
    import json

    import httpx

    answer = json.dumps({**completion("Bo."), "usage": usage, "model": {"not": "a name"}})
    server = Answers(httpx.Response(200, text=answer, headers={"content-type": "application/json"}))
    async with OpenAIChatModel(URL, "m", transport=server, prices={"m": Price(1, 1)}) as model:
        reply = await model.complete(question())
    assert reply == ChatReply("Bo.", usage=Usage("m", cost_usd=0.0))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"choices": []}, ""),
        (completion(None), ""),
        (completion(""), ""),
        (completion(" \n"), " \n"),
        (completion(None, refusal="I will not."), "I will not."),
        (completion([{"type": "text", "text": "B"}, {"type": "text", "text": "o."}, 7]), "Bo."),
        (completion("<think>hm</think>{}", reasoning_content="hm"), "<think>hm</think>{}"),
    ],
)
async def test_what_the_model_says_is_passed_on(answer, text):
    """Blank replies and refusals are replies: correcting them is the caller's affair."""
    reply, _ = await replied(answer)
    assert (reply.text, reply.parsed) == (text, None)


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ([], "no list of choices"),
        ("hello", "no list of choices"),
        ({"error": {"message": "quota"}}, "no list of choices"),
        ({"choices": "none"}, "no list of choices"),
        ({"choices": [7]}, "no message"),
        ({"choices": [{"text": "Bo."}]}, "no message"),
        (completion({"a": 1}), "neither a text nor a list"),
        (completion(None, tool_calls={"a": 1}), "tool_calls are no list"),
        (completion(None, tool_calls=["a"]), "has no function"),
    ],
)
async def test_an_answer_of_another_shape_is_invalid(answer, wrong):
    """JSON of another API ends the call at once, with what came."""
    server = Answers(ok(answer))
    async with OpenAIChatModel(URL, "m", transport=server) as model:
        with pytest.raises(InvalidReply, match=wrong) as caught:
            await model.complete(question("plan"))
    assert caught.value.raw
    assert caught.value.purpose == "plan"
    assert caught.value.__context__ is None
    assert len(server.requests) == 1


async def test_tools_are_offered_and_their_calls_given_back():
    """In either provider's form; arguments that are no JSON object come as their text."""
    looks = {"type": "object", "properties": {"at": {"type": "string"}}}
    tools = (
        {"type": "function", "function": {"name": "look", "parameters": looks}},
        {"name": "hear", "description": "Hears.", "input_schema": looks},
    )
    calls = [
        {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}},
        {"id": "2", "type": "function", "function": {"name": "hear", "arguments": '{"at": '}},
        {"id": "3", "type": "function", "function": {"name": "hear", "arguments": {"at": "x"}}},
    ]
    request = question("update_notes", schema=None, tools=tools)
    reply, body = await replied(completion(None, tool_calls=calls), request)
    functions = [tool["function"] for tool in body["tools"]]
    assert [f["name"] for f in functions] == ["look", "hear"]
    assert all(f["parameters"] == looks for f in functions)
    assert "tool_choice" not in body
    assert list(reply.tool_calls) == [
        {"id": "1", "name": "look", "arguments": {"at": "it"}},
        {"id": "2", "name": "hear", "arguments": '{"at": '},
        {"id": "3", "name": "hear", "arguments": {"at": "x"}},
    ]


# ── Settings ─────────────────────────────────────────────────────────────────────────


async def test_overrides_apply_to_their_purpose_only():
    """Unset values come from the model's own."""
    overrides = {"plan": {"model": "big", "max_output_tokens": 7}, "mode": {"temperature": None}}
    server = Answers(ok(completion()))
    async with OpenAIChatModel(
        URL, "m", transport=server, temperature=0.5, max_output_tokens=99, overrides=overrides
    ) as model:
        for purpose in ("plan", "mode", "semantic"):
            await model.complete(question(purpose))
        assert (model.model_for("plan"), model.model_for("mode")) == ("big", "m")
    sent = [(b["model"], b.get("temperature"), b["max_tokens"]) for b in server.bodies]
    assert sent == [("big", 0.5, 7), ("m", None, 99), ("m", 0.5, 99)]


@pytest.mark.parametrize(
    ("overrides", "request_timeout_s", "expected"),
    [({"plan": {"timeout_s": 3}}, 2.0, 3), ({}, 2.0, 2.0), ({}, None, 9.0)],
)
async def test_a_try_takes_the_time_of_override_request_or_model(
    overrides, request_timeout_s, expected
):
    """In this order."""
    async with OpenAIChatModel(URL, "m", timeout_s=9.0, overrides=overrides) as model:
        call = model._call(question("plan", timeout_s=request_timeout_s))
    assert call.timeout_s == expected


async def test_the_requests_bound_comes_before_the_models():
    """Override, request, model."""
    _, body = await replied(completion(), question(max_output_tokens=5), max_output_tokens=99)
    assert body["max_tokens"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": " "}, "model is blank"),
        ({"model": None}, "model is blank"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 2.1}, "temperature must be at most 2"),
        ({"temperature": "0"}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"overrides": {"sing": {}}}, "'sing' is no purpose; there are annotate, "),
        ({"overrides": {"plan": {"color": 1}}}, "'color' is no setting; there are model, "),
        ({"overrides": {"plan": {"timeout_s": 0}}}, r"overrides\['plan'\].timeout_s"),
        ({"overrides": {"plan": {"model": ""}}}, r"overrides\['plan'\].model is blank"),
        ({"overrides": {"plan": 7}}, "must be a dict"),
        ({"overrides": ["plan"]}, "must be a dict of purposes"),
        ({"prices": {"m": 3}}, "prices"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"base_url": "x"}, "base_url"),
    ],
)
def test_a_bad_argument_is_refused(arguments, message):
    """Before any call, by name."""
    given = {"base_url": URL, "model": "m", **arguments}
    with pytest.raises(ConfigError, match=message):
        OpenAIChatModel(**given)


def test_a_model_says_who_it_is():
    """For telemetry and logs: provider, name and server, never the key."""
    model = OpenAIChatModel("https://api.example.com/v1", "m", KEY)
    assert (model.provider, model.model, model.name) == ("openai", "m", "m")
    assert model.server == ("api.example.com", 443)
    assert model.keeps_time is True
    assert repr(model) == "OpenAIChatModel('https://api.example.com/v1', 'm')"
    assert KEY not in str(vars(model))


async def test_tokens_per_minute_are_charged_as_used():
    """The estimate is replaced by what the server counted."""
    clock = HastyClock()
    server = Answers(ok(completion()))
    async with OpenAIChatModel(
        URL, "m", transport=server, tokens_per_minute=1_200, clock=clock
    ) as model:
        await model.complete(question(schema=None))
        assert clock.slept == []
        await model.complete(question(schema=None, messages=[("user", "a" * 4_400)]))
    # 1,100 of 1,200 are used; 1,101 for the text and its empty schema leave a gap of a minute.
    assert clock.slept == [pytest.approx(50, abs=1)]

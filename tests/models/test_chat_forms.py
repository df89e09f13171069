"""How a schema is put to a server: forms in their order, and what is remembered of them."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import scripted_faults as faults
from http_doubles import SCHEMA, Answers, HastyClock, completion, ok, question, status
from scripted_server import ScriptedServer

from mnemo.errors import ModelUnavailable, RateLimited
from mnemo.models import AnthropicChatModel, OpenAIChatModel
from mnemo.models.chat import Form, Learned
from mnemo.models.failures import Failure

Make = Callable[..., OpenAIChatModel]
FACTS: dict[str, Any] = {"facts": []}


@pytest.fixture
async def make(server: ScriptedServer) -> AsyncIterator[Make]:
    """Makes models of the server that are closed at the end; their waits take no time."""
    made = []

    def one(**arguments: Any) -> OpenAIChatModel:
        made.append(OpenAIChatModel(f"{server.url}/v1", "m", clock=HastyClock(), **arguments))
        return made[-1]

    for purpose in ("semantic", "procedural", "merge_intent"):
        server.script(purpose, FACTS)
    yield one
    for model in made:
        await model.aclose()


def form_of(body: dict[str, Any]) -> str:
    """The form in which a body asks for JSON."""
    if "tool_choice" in body:
        return "tool"
    return str(body.get("response_format", {"type": "plain"})["type"])


async def forms_of(server: ScriptedServer, model: Any, purpose: Any = "semantic") -> list[str]:
    """The forms that one more call tried, in order."""
    before = len(server.requests)
    await model.complete(asking(purpose))
    return [form_of(request.body) for request in server.requests[before:]]


def asking(purpose: Any = "semantic") -> Any:
    """A question that the scripted server knows, also where nothing names its purpose."""
    from mnemo.prompts import procedural, semantic

    standing = {
        "semantic": semantic.STANDING,
        "procedural": procedural.STANDING,
        "merge_intent": procedural.MERGE_INTENT_STANDING,
    }
    return question(purpose, messages=[("system", standing[purpose]), ("user", "Who?")])


async def test_the_strictest_form_comes_first(server, make):
    """A server that knows JSON schemas takes one request, and sees the purpose as the name."""
    model = make()
    assert await forms_of(server, model) == ["json_schema"]
    named = server.requests[0].body["response_format"]["json_schema"]
    assert named == {"name": "semantic", "schema": SCHEMA}
    assert "JSON schema" not in server.requests[0].body["messages"][0]["content"]


@pytest.mark.parametrize("code", [400, 404, 415, 422, 500, 501, 503])
async def test_a_refused_form_gives_way_at_once(server, make, code):
    """A refusal and a server error (llama.cpp's answer) are both no reason to wait."""
    server.refuses = {"json_schema": code}
    model = make(max_retries=0)
    assert await forms_of(server, model) == ["json_schema", "json_object"]
    body = server.requests[1].body
    assert body["response_format"] == {"type": "json_object", "schema": SCHEMA}
    assert '"facts"' in body["messages"][0]["content"]


async def test_a_form_is_given_up_after_two_failures(server, make):
    """Two calls find out, each answered by the lesser form; all later ones take one request."""
    server.refuses = {"json_schema": 500}
    model = make()
    asked = [await forms_of(server, model) for _ in range(4)]
    assert asked == [["json_schema", "json_object"]] * 2 + [["json_object"]] * 2


async def test_every_form_has_its_turn(server, make):
    """Without response_format a tool must be called, without tools the prompt must do."""
    server.refuses = {"json_schema": 400, "json_object": 400}
    model = make()
    assert await forms_of(server, model) == ["json_schema", "json_object", "tool"]
    body = server.requests[-1].body
    assert body["tool_choice"] == {"type": "function", "function": {"name": "semantic"}}
    assert body["tools"][0]["function"]["parameters"] == SCHEMA
    server.refuses["tools"] = 400
    assert (await forms_of(server, make()))[-2:] == ["tool", "plain"]
    assert '"facts"' in server.requests[-1].body["messages"][0]["content"]


async def test_a_forced_tool_call_is_the_reply(server, make):
    """Its arguments are parsed and text of the reply, and no tool call is left to make."""
    server.refuses = {"json_schema": 400, "json_object": 400}
    reply = await make().complete(asking())
    assert reply.parsed == FACTS
    assert reply.text == '{"facts": []}'
    assert reply.tool_calls == ()


async def test_a_failure_that_passes_costs_no_form(server, make):
    """One bad moment at the first call: the second one begins with the strictest form again."""
    server.fail(faults.SERVER_ERROR)
    model = make()
    assert await forms_of(server, model) == ["json_schema", "json_object"]
    assert [await forms_of(server, model) for _ in range(3)] == [["json_schema"]] * 3


async def test_a_proven_form_is_tried_again_instead(server, make):
    """Once it has worked, a server error says nothing against the form."""
    model = make()
    await forms_of(server, model)
    for _ in range(3):
        server.fail(faults.SERVER_ERROR, faults.OVERLOADED)
        assert await forms_of(server, model) == ["json_schema"] * 3


async def test_one_questions_schema_costs_no_other_its_form(server, make):
    """A proven form that is refused for one purpose is given up for that purpose alone."""
    refused = faults.Status(status=400, message="this schema is too deep")
    model = make()
    await forms_of(server, model, "procedural")
    for _ in range(2):
        server.fail(refused, purpose="semantic")
        assert await forms_of(server, model) == ["json_schema", "json_object"]
    assert await forms_of(server, model) == ["json_object"]
    assert await forms_of(server, model, "procedural") == ["json_schema"]


async def test_what_one_model_refuses_another_may_take(server, make):
    """A proxy serves many models; each is learned for itself."""
    server.refuses = {"json_schema": 400}
    model = make(overrides={"procedural": {"model": "other"}})
    for _ in range(2):
        await forms_of(server, model)
    server.refuses = {}
    assert await forms_of(server, model) == ["json_object"]
    assert await forms_of(server, model, "procedural") == ["json_schema"]


async def test_a_server_that_asks_for_time_is_not_offered_lesser_forms():
    """With a Retry-After it is the server that is in trouble, not the form."""
    server, clock = Answers(status(503, retry_after="9"), ok(completion())), HastyClock()
    async with OpenAIChatModel("http://x/v1", "m", transport=server, clock=clock) as model:
        await model.complete(question())
    assert [form_of(body) for body in server.bodies] == ["json_schema"] * 2
    assert clock.slept == [9]


async def test_a_rate_limit_is_no_refusal():
    """429 is waited out in the same form."""
    server, clock = Answers(status(429), ok(completion())), HastyClock()
    async with OpenAIChatModel("http://x/v1", "m", transport=server, clock=clock) as model:
        await model.complete(question())
    assert [form_of(body) for body in server.bodies] == ["json_schema"] * 2
    assert len(clock.slept) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "retryable", "requests"),
    [
        (status(400, "too long"), ModelUnavailable, False, 4),
        (status(404, "no such model"), ModelUnavailable, False, 4),
        (status(500), ModelUnavailable, True, 4 + 3),
        (status(401), ModelUnavailable, False, 1),
        (status(429), RateLimited, True, 1 + 3),
        (httpx.ConnectError("refused"), ModelUnavailable, True, 1 + 3),
    ],
    ids=["400", "404", "500", "401", "429", "refused"],
)
async def test_where_no_form_helps_the_usual_rules_hold(answer, kind, retryable, requests):
    """All forms are tried once, the least one as often as any request; others not at all."""
    server = Answers(answer)
    async with OpenAIChatModel("http://x/v1", "m", transport=server, clock=HastyClock()) as model:
        with pytest.raises(kind) as caught:
            await model.complete(question("plan"))
    assert caught.value.retryable is retryable  # type: ignore[attr-defined]
    assert caught.value.purpose == "plan"  # type: ignore[attr-defined]
    assert len(server.requests) == requests


async def test_without_a_schema_there_is_one_form():
    """Free text is asked for plainly."""
    server = Answers(ok(completion("Bo.")))
    async with OpenAIChatModel("http://x/v1", "m", transport=server) as model:
        assert (await model.complete(question(schema=None))).text == "Bo."
    assert set(server.bodies[0]) == {"model", "messages", "temperature"}


async def test_tools_of_the_request_are_never_replaced():
    """A question with tools and a schema goes without the forced tool."""
    server = Answers(status(400), status(400), ok(completion()))
    tools = [{"name": "look", "description": "Looks.", "parameters": {"type": "object"}}]
    async with OpenAIChatModel("http://x/v1", "m", transport=server) as model:
        await model.complete(question(tools=tools))
    assert [form_of(body) for body in server.bodies] == ["json_schema", "json_object", "plain"]
    assert all(body["tools"][0]["function"]["name"] == "look" for body in server.bodies)


async def test_anthropics_forms_are_a_tool_and_the_prompt(server):
    """A model that may not be forced to call a tool is asked in words, and remembered."""
    server.script("semantic", FACTS)
    async with AnthropicChatModel("m", "k", base_url=server.url) as model:
        assert (await model.complete(asking())).parsed == FACTS
        server.refuses = {"tools": 400}
        before = len(server.requests)
        replies = [await model.complete(asking()) for _ in range(3)]
    assert len(server.requests) - before == 2 + 2 + 1
    assert replies[-1].parsed is None
    assert '"facts"' in server.requests[-1].body["system"]


# ── Parameters ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "words",
    [
        "Unsupported value: 'temperature' does not support 0 with this model.",
        "`temperature` is deprecated for this model.",
        "Unsupported parameter: 'temperature' is not supported with this model.",
    ],
)
async def test_a_refused_temperature_is_left_out_from_then_on(words):
    """Reasoning models take their own temperature only; asking once is enough to know."""
    server = Answers(status(400, words), ok(completion()))
    async with OpenAIChatModel("http://x/v1", "m", transport=server) as model:
        for _ in range(2):
            await model.complete(question())
    assert ["temperature" in body for body in server.bodies] == [True, False, False]
    assert {form_of(body) for body in server.bodies} == {"json_schema"}


async def test_a_bound_of_the_output_takes_the_name_that_the_model_wants():
    """Newer models call it max_completion_tokens."""
    words = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    server = Answers(status(400, words), ok(completion()))
    async with OpenAIChatModel("http://x/v1", "m", max_output_tokens=9, transport=server) as model:
        for _ in range(2):
            await model.complete(question())
    assert [body.get("max_tokens") for body in server.bodies] == [9, None, None]
    assert [body.get("max_completion_tokens") for body in server.bodies] == [None, 9, 9]


async def test_words_about_the_weather_cost_no_parameter():
    """A refusal that merely mentions a temperature is one of the form."""
    server = Answers(status(400, "your prompt on the temperature in Rome is too long"))
    async with OpenAIChatModel("http://x/v1", "m", transport=server) as model:
        with pytest.raises(ModelUnavailable):
            await model.complete(question())
    assert all("temperature" in body for body in server.bodies)


def test_a_late_success_rehabilitates_a_form():
    """A form that was given up for everybody is back as soon as it is seen to work."""
    learned = Learned()
    forms = [Form.JSON_SCHEMA, Form.PLAIN]
    for _ in range(2):
        learned.succeeded(Form.PLAIN, [Form.JSON_SCHEMA], "semantic")
    assert learned.ladder(forms, "semantic") == [Form.PLAIN]
    learned.succeeded(Form.JSON_SCHEMA, [], "semantic")
    assert learned.ladder(forms, "semantic") == forms


def test_only_answers_are_held_against_a_form():
    """A connection that broke says nothing about it."""
    broken = Failure(ModelUnavailable("broke"))
    assert not Learned().doubts(Form.JSON_SCHEMA, broken)

"""What a span tells of one call to a chat model."""

import contextlib
from typing import Any

import anyio
import pytest
from helpers import until
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as named
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode
from span_watch import Watch, content, facts

from mnemo.config import SessionConfig
from mnemo.errors import (
    BudgetExceeded,
    InvalidReply,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    RateLimited,
)
from mnemo.models import AnthropicChatModel, OpenAIChatModel, OpenAIEmbedder
from mnemo.prompts.calling import Asker
from mnemo.prompts.procedural import merge_intent_question
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatReply, Usage
from mnemo.runtime.spans import model_attributes
from mnemo.testing import ScriptedChatModel

QUESTION = merge_intent_question("sail to Zanzibar", "row to Zanzibar", None)


class Named(ScriptedChatModel):
    """A model that says who it is."""

    provider = "openai"
    model = "gpt-x"
    server = ("127.0.0.1", 8000)


def model(answer: Any, kind: type[ScriptedChatModel] = Named) -> ScriptedChatModel:
    return kind({"merge_intent": answer})


def asker(watch: Watch, asked: ScriptedChatModel, *, content: bool = False, **rest: Any) -> Asker:
    arguments = {"meter": UsageMeter(), "timeout_s": 5, **rest}
    return Asker(asked, spans=watch.spans(content=content), **arguments)


def replying(text: str, **usage: Any) -> ChatReply:
    return ChatReply(text=text, usage=Usage(**usage))


async def test_a_call_says_whom_it_asked_and_what_it_cost(watch):
    """Every attribute is the conventions', and what they do not name is mnemo's."""
    reply = replying(
        '{"intent": "travel"}',
        model="gpt-x-2026",
        input_tokens=70,
        output_tokens=9,
        cached_tokens=30,
        cost_usd=0.25,
    )
    assert await asker(watch, model(reply)).ask(QUESTION) == "travel"
    span = watch.one("chat gpt-x")
    assert facts(span) == {
        named.GEN_AI_OPERATION_NAME: "chat",
        named.GEN_AI_PROVIDER_NAME: "openai",
        named.GEN_AI_REQUEST_MODEL: "gpt-x",
        named.GEN_AI_RESPONSE_MODEL: "gpt-x-2026",
        named.GEN_AI_OUTPUT_TYPE: "json",
        named.GEN_AI_USAGE_INPUT_TOKENS: 70,
        named.GEN_AI_USAGE_OUTPUT_TOKENS: 9,
        named.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: 30,
        server_attributes.SERVER_ADDRESS: "127.0.0.1",
        server_attributes.SERVER_PORT: 8000,
        "mnemo.purpose": "merge_intent",
        "mnemo.usage.cost_usd": 0.25,
    }
    assert span.kind is SpanKind.CLIENT
    assert span.status.status_code is StatusCode.UNSET


async def test_a_model_that_says_nothing_of_itself_is_named_by_its_class(watch):
    """Nothing is invented: no model, no server, no tokens that were not told."""
    answer = replying('{"intent": "travel"}')
    await asker(watch, model(answer, ScriptedChatModel)).ask(QUESTION)
    assert facts(watch.one("chat")) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ScriptedChatModel",
        "gen_ai.output.type": "json",
        "mnemo.purpose": "merge_intent",
    }


async def test_a_models_attributes_of_other_kinds_are_left_out(watch):
    """A foreign object's ``model`` and ``server`` may be anything."""

    class Odd(ScriptedChatModel):
        provider = None
        model = object()
        server = "http://127.0.0.1"

    await asker(watch, model({"intent": "travel"}, Odd)).ask(QUESTION)
    said = facts(watch.one("chat"))
    assert said["gen_ai.provider.name"] == "Odd"
    assert not {"gen_ai.request.model", "server.address", "server.port"} & said.keys()


async def test_a_model_that_asks_another_for_a_purpose_names_that_one(watch):
    """The span of an overridden purpose has the model that was asked."""

    class Overridden(Named):
        def model_for(self, purpose: str) -> str:
            return {"merge_intent": "gpt-small"}[purpose]

    await asker(watch, model({"intent": "travel"}, Overridden)).ask(QUESTION)
    assert facts(watch.one("chat gpt-small"))["gen_ai.request.model"] == "gpt-small"


@pytest.mark.parametrize(
    ("kind", "provider"), [(OpenAIChatModel, "openai"), (AnthropicChatModel, "anthropic")]
)
async def test_the_models_over_http_say_who_they_are(watch, kind, provider):
    """Provider, server and the model of the purpose, also of a call that failed; no key."""
    asked = kind(
        base_url="http://127.0.0.1:9/v1",
        model="gpt-x",
        api_key="sk-very-secret-key",
        max_retries=0,
        overrides={"merge_intent": {"model": "gpt-small"}},
    )
    with pytest.raises(ModelUnavailable):
        await Asker(asked, meter=UsageMeter(), timeout_s=5, spans=watch.spans()).ask(QUESTION)
    await asked.aclose()
    said = facts(watch.one("chat gpt-small"))
    assert said["gen_ai.provider.name"] == provider
    assert said["gen_ai.request.model"] == "gpt-small"
    assert (said["server.address"], said["server.port"]) == ("127.0.0.1", 9)
    assert said["error.type"] == "ModelUnavailable"
    assert "sk-very" not in watch.dump()


def test_the_embedder_over_http_says_who_it_is():
    """By the names that its spans carry."""
    embedder = OpenAIEmbedder("http://127.0.0.1:9/v1", "embed-1", 8)
    assert model_attributes("embeddings", embedder) == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "embed-1",
        "server.address": "127.0.0.1",
        "server.port": 9,
    }


async def test_a_corrected_reply_is_two_calls(watch):
    """The first one ends with what was wrong with it, the corrective one well."""
    assert await asker(watch, model(["nonsense", {"intent": "travel"}])).ask(QUESTION) == "travel"
    first, second = watch.named("chat gpt-x")
    assert facts(first)[error_attributes.ERROR_TYPE] == "InvalidReply"
    assert facts(first)["gen_ai.usage.output_tokens"] > 0
    assert first.status.status_code is StatusCode.ERROR
    assert second.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (RateLimited("slow down"), "RateLimited"),
        (ModelTimeout("too late"), "ModelTimeout"),
        (InvalidReply("no choices"), "InvalidReply"),
        (ZeroDivisionError("foreign"), "ModelUnavailable"),
    ],
)
async def test_a_failed_call_says_which_error(watch, raised, told):
    """error.type is the class of mnemo's own error, whatever the model raised."""
    with contextlib.suppress(ModelError):
        await asker(watch, model(raised)).ask(QUESTION)
    span = watch.named("chat gpt-x")[0]
    assert facts(span)["error.type"] == told
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None


async def test_a_call_that_takes_too_long_is_a_timeout(watch):
    """Also where mnemo keeps the time itself."""
    silent = model({"intent": "travel"})
    silent.block()
    with pytest.raises(ModelTimeout):
        await asker(watch, silent, timeout_s=0.01).ask(QUESTION)
    assert facts(watch.one("chat gpt-x"))["error.type"] == "ModelTimeout"


async def test_a_cancelled_call_is_no_error(watch):
    """Its span ends with the cancellation, its status unset."""
    silent = model({"intent": "travel"})
    silent.block()
    async with anyio.create_task_group() as group:
        group.start_soon(asker(watch, silent).ask, QUESTION)
        await until(lambda: silent.waiting == 1)
        group.cancel_scope.cancel()
    span = watch.one("chat gpt-x")
    assert facts(span)["mnemo.cancelled"] is True
    assert span.status.status_code is StatusCode.UNSET


async def test_a_call_that_was_not_made_is_no_span(watch):
    """A budget that is used up lets nothing pass, so there is nothing to see."""
    meter = UsageMeter(SessionConfig(max_model_calls=0))
    with pytest.raises(BudgetExceeded):
        await asker(watch, model({"intent": "travel"}), meter=meter).ask(QUESTION)
    assert watch.all == []


async def test_messages_are_left_out_by_default(watch):
    """Neither the question nor the reply nor an error's words are told."""
    await asker(watch, model(["Zanzibar?", {"intent": "go to Zanzibar"}])).ask(QUESTION)
    with pytest.raises(ModelUnavailable):
        await asker(watch, model(ModelUnavailable("not in Zanzibar"))).ask(QUESTION)
    assert len(watch.all) == 3
    assert "Zanzibar" not in watch.dump()


async def test_messages_are_told_where_that_was_opted_in_to(watch):
    """Question and reply have the conventions' shape; an error has its message."""
    await asker(watch, model({"intent": "go to Zanzibar"}), content=True).ask(QUESTION)
    span = watch.one("chat gpt-x")
    asked = content(span, named.GEN_AI_INPUT_MESSAGES)
    assert [message["role"] for message in asked] == ["system", "user"]
    (part,) = asked[1]["parts"]
    assert part["type"] == "text"
    assert "Zanzibar" in part["content"]
    (reply,) = content(span, named.GEN_AI_OUTPUT_MESSAGES)
    assert reply["role"] == "assistant"
    assert reply["parts"] == [{"type": "text", "content": '{"intent": "go to Zanzibar"}'}]

    watch.clear()
    with pytest.raises(ModelUnavailable):
        await asker(watch, model(ModelUnavailable("not in Zanzibar")), content=True).ask(QUESTION)
    assert watch.one("chat gpt-x").status.description == "not in Zanzibar"

"""One call, one correction, typed failures."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mnemo.errors import InvalidReply, ModelUnavailable, RateLimited
from mnemo.prompts.ask import Asker
from mnemo.prompts.merge_intent import merge_intent_question
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, ChatReply, ChatRequest, Usage
from mnemo.testing import ScriptedChatModel

QUESTION = merge_intent_question("sail", "row", None)


def asker(model: ChatModel, meter: UsageMeter | None = None) -> Asker:
    return Asker(model, meter=meter or UsageMeter(), timeout_s=5)


class OddModel:
    """Answers with something that is no ``ChatReply``."""

    async def complete(self, request: ChatRequest) -> Any:
        return "sail"


async def test_a_good_reply_takes_one_call() -> None:
    """The request names its purpose and carries the schema."""
    model = ScriptedChatModel({"merge_intent": {"intent": "go by boat"}})
    assert await asker(model).ask(QUESTION) == "go by boat"
    (request,) = model.requests
    assert request.purpose == "merge_intent"
    assert request.response_schema == QUESTION.schema
    assert [message.role for message in request.messages] == ["system", "user"]


@pytest.mark.parametrize(
    ("bad", "wrong"),
    [
        ("", "the reply is blank"),
        ("sail", "no complete JSON object"),
        ('{"intent": "go by', "no complete JSON object"),
        ('{"aim": "go by boat"}', "intent: Field required"),
        ({"intent": 7}, "intent: Input should be a valid string"),
        ({"intent": " "}, "the intent is blank"),
        (QUESTION.schema, "the schema itself"),
        ("[" * 100_000, "no complete JSON object"),
        ('{"a":' * 5_000, "no complete JSON object"),
        ('{"intent": NaN}', "no complete JSON object"),
        ("x" * 200_001, "longer than"),
    ],
)
async def test_a_bad_reply_is_shown_again_with_what_is_wrong(bad: Any, wrong: str) -> None:
    """X19: not JSON, wrong shape, cut off, blank or the schema itself: one corrective call."""
    model = ScriptedChatModel({"merge_intent": [bad, {"intent": "go by boat"}]})
    assert await asker(model).ask(QUESTION) == "go by boat"
    reply, complaint = model.requests[1].messages[2:]
    assert (reply.role, complaint.role) == ("assistant", "user")
    assert len(reply.content) <= 2_000
    assert reply.content.strip()
    assert wrong in complaint.content


async def test_a_second_bad_reply_is_a_failure_with_the_raw_reply() -> None:
    """X20: the raw reply is the second one, cut to 2,000 characters; its error is the cause."""
    model = ScriptedChatModel({"merge_intent": ["first", "second" * 1_000]})
    with pytest.raises(InvalidReply) as caught:
        await asker(model).ask(QUESTION)
    assert caught.value.raw.startswith("secondsecond")
    assert len(caught.value.raw) == 2_000
    assert isinstance(caught.value.__cause__, ValueError)
    assert len(model.requests) == 2


async def test_a_parsed_reply_that_does_not_fit_is_shown_as_json() -> None:
    """A reply without text is shown by what was parsed."""
    bad = ChatReply(parsed={"aim": "gö"})
    model = ScriptedChatModel({"merge_intent": [bad, {"intent": "go"}]})
    await asker(model).ask(QUESTION)
    assert model.requests[1].messages[2].content == '{"aim": "gö"}'


async def test_a_model_error_is_not_corrected() -> None:
    """What the adapter could not mend is passed on, with the purpose filled in."""
    failure = RateLimited("slow down", retry_after_s=3)
    model = ScriptedChatModel({"merge_intent": failure})
    with pytest.raises(RateLimited) as caught:
        await asker(model).ask(QUESTION)
    assert caught.value is failure
    assert caught.value.purpose == "merge_intent"
    assert len(model.requests) == 1


async def test_a_foreign_exception_is_translated() -> None:
    """A user's model may raise anything; it becomes ``ModelUnavailable`` with its cause."""
    model = ScriptedChatModel({"merge_intent": KeyError("choices")})
    with pytest.raises(ModelUnavailable, match="KeyError") as caught:
        await asker(model).ask(QUESTION)
    assert isinstance(caught.value.__cause__, KeyError)
    assert not caught.value.retryable


async def test_an_answer_that_is_no_reply_is_translated() -> None:
    """A model that breaks the protocol is told so by type."""
    with pytest.raises(ModelUnavailable, match="str"):
        await asker(OddModel()).ask(QUESTION)


async def test_cancellation_passes() -> None:
    """A cancelled question is cancelled, not unavailable."""
    model = ScriptedChatModel()
    model.block()
    with anyio.move_on_after(0.01) as scope:
        await asker(model).ask(QUESTION)
    assert scope.cancelled_caught
    assert model.waiting == 0


async def test_costs_add_up_once_a_price_is_known() -> None:
    """The cost is unknown until one reply has a price."""
    meter = UsageMeter()
    meter.answered(Usage(input_tokens=5, output_tokens=2))
    before = meter.cost_usd
    meter.answered(Usage(input_tokens=1, cost_usd=0.25))
    meter.answered(Usage(cost_usd=0.5))
    assert (before, meter.cost_usd) == (None, 0.75)
    assert (meter.input_tokens, meter.output_tokens) == (6, 2)

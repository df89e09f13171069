"""One call, one correction, typed failures."""

import contextlib

import anyio
import pytest
from helpers import until

from mnemo.config import SessionConfig
from mnemo.errors import BudgetExceeded, InvalidReply, ModelTimeout, ModelUnavailable, RateLimited
from mnemo.prompts.calling import Asker
from mnemo.prompts.procedural import merge_intent_question
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, ChatReply, Usage
from mnemo.testing import ScriptedChatModel

QUESTION = merge_intent_question("sail", "row", None)


def asker(model: ChatModel, meter: UsageMeter | None = None) -> Asker:
    return Asker(model, meter=meter or UsageMeter(), timeout_s=120)


async def test_a_good_reply_takes_one_call():
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
async def test_a_bad_reply_is_shown_again_with_what_is_wrong(bad, wrong):
    """Not JSON, wrong shape, cut off, blank or the schema itself: one corrective call."""
    model = ScriptedChatModel({"merge_intent": [bad, {"intent": "go by boat"}]})
    assert await asker(model).ask(QUESTION) == "go by boat"
    reply, complaint = model.requests[1].messages[2:]
    assert (reply.role, complaint.role) == ("assistant", "user")
    assert len(reply.content) <= 2_000
    assert reply.content.strip()
    assert wrong in complaint.content


async def test_a_second_bad_reply_is_a_failure_with_the_raw_reply():
    """The raw reply is the second one, cut to 2,000 characters; its error is the cause."""
    model = ScriptedChatModel({"merge_intent": ["first", "second" * 1_000]})
    with pytest.raises(InvalidReply) as caught:
        await asker(model).ask(QUESTION)
    assert caught.value.raw.startswith("secondsecond")
    assert len(caught.value.raw) == 2_000
    assert isinstance(caught.value.__cause__, ValueError)
    assert len(model.requests) == 2


async def test_a_parsed_reply_that_does_not_fit_is_shown_as_json():
    """A reply without text is shown by what was parsed."""
    bad = ChatReply(parsed={"aim": "gö"})
    model = ScriptedChatModel({"merge_intent": [bad, {"intent": "go"}]})
    await asker(model).ask(QUESTION)
    assert model.requests[1].messages[2].content == '{"aim": "gö"}'


async def test_a_model_error_is_not_corrected():
    """What the adapter could not mend is passed on, with the purpose filled in."""
    failure = RateLimited("slow down", retry_after_s=3)
    model = ScriptedChatModel({"merge_intent": failure})
    with pytest.raises(RateLimited) as caught:
        await asker(model).ask(QUESTION)
    assert caught.value is failure
    assert caught.value.purpose == "merge_intent"
    assert len(model.requests) == 1


async def test_a_foreign_exception_is_translated():
    """A user's model may raise anything; it becomes ``ModelUnavailable`` with its cause."""
    model = ScriptedChatModel({"merge_intent": KeyError("choices")})
    with pytest.raises(ModelUnavailable, match="KeyError") as caught:
        await asker(model).ask(QUESTION)
    assert isinstance(caught.value.__cause__, KeyError)
    assert not caught.value.retryable


async def test_cancellation_passes():
    """A cancelled question is cancelled, not unavailable."""
    model = ScriptedChatModel()
    model.block()
    async with anyio.create_task_group() as group:
        group.start_soon(asker(model).ask, QUESTION)
        await until(lambda: model.waiting == 1)
        group.cancel_scope.cancel()
    assert group.cancel_scope.cancelled_caught
    assert model.waiting == 0


async def test_costs_add_up_by_purpose_once_a_price_is_known():
    """The cost is unknown until one reply has a price; every purpose has its own sum."""
    meter = UsageMeter()
    meter.answered("semantic", Usage(input_tokens=5, output_tokens=2))
    before = meter.total.cost_usd
    meter.answered("semantic", Usage(input_tokens=1, cached_tokens=1, cost_usd=0.25))
    meter.answered("returns", Usage(cost_usd=0.5))
    assert (before, meter.total.cost_usd) == (None, 0.75)
    assert (meter.total.input_tokens, meter.total.output_tokens) == (6, 2)
    assert meter.by_purpose["semantic"].cached_tokens == 1
    assert meter.by_purpose["returns"].cost_usd == 0.5


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (SessionConfig(max_model_calls=1), "session.max_model_calls"),
        (SessionConfig(max_model_tokens=10), "session.max_model_tokens"),
        (SessionConfig(max_model_cost_usd=0.01), "session.max_model_cost_usd"),
    ],
)
async def test_a_spent_budget_stops_the_next_call(budget, limit):
    """Calls, tokens and cost each have a bound; past it nothing is asked and nothing counted."""
    usage = Usage(input_tokens=8, output_tokens=2, cost_usd=0.02)
    model = ScriptedChatModel({"merge_intent": ChatReply(text='{"intent": "sail"}', usage=usage)})
    meter = UsageMeter(budget)
    assert await asker(model, meter).ask(QUESTION) == "sail"
    with pytest.raises(BudgetExceeded) as caught:
        await asker(model, meter).ask(QUESTION)
    assert (caught.value.limit, caught.value.purpose) == (limit, "merge_intent")
    assert (len(model.requests), meter.total.calls) == (1, 1)
    assert not caught.value.retryable


async def test_how_a_question_ended_is_counted():
    """A corrected reply is the model's; a question without an answer has failed."""
    model = ScriptedChatModel({"merge_intent": ["no", {"intent": "sail"}, "no", "no"]})
    meter = UsageMeter()
    await asker(model, meter).ask(QUESTION)
    with pytest.raises(InvalidReply):
        await asker(model, meter).ask(QUESTION)
    assert meter.stages == {"merge_intent": {"model": 1, "failed": 1}}
    assert meter.total.calls == 4


async def test_a_reply_that_its_model_refuses_is_corrected_once():
    """A model's own ``InvalidReply`` is answered by one correction, like any bad reply."""
    unusable = InvalidReply("the body has 5,000,000 bytes", raw="{{{{")
    model = ScriptedChatModel({"merge_intent": [unusable, {"intent": "sail"}]})
    assert await asker(model).ask(QUESTION) == "sail"
    assert "5,000,000 bytes" in model.requests[1].messages[3].content
    model = ScriptedChatModel({"merge_intent": unusable})
    with pytest.raises(InvalidReply) as caught:
        await asker(model).ask(QUESTION)
    assert (caught.value.raw, caught.value.purpose) == ("{{{{", "merge_intent")
    assert len(model.requests) == 2


class PunctualModel(ScriptedChatModel):
    """Keeps time itself, and takes its time."""

    keeps_time = True


async def test_a_model_that_keeps_time_is_told_and_not_cut_off():
    """Only a model that does not bound its tries itself is cut off from outside."""
    for kind, patience_s, ended in ((ScriptedChatModel, 120, True), (PunctualModel, 0.2, False)):
        model = kind({"merge_intent": {"intent": "sail"}})
        model.block()
        asking = Asker(model, meter=UsageMeter(), timeout_s=0.01)
        with anyio.move_on_after(patience_s) as waiting:
            with contextlib.suppress(ModelTimeout):
                await asking.ask(QUESTION)
        assert waiting.cancelled_caught is not ended
        assert model.requests[0].timeout_s == 0.01

"""A model at work with tools: every call answered, every end typed."""

import re
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.config import SessionConfig
from mnemo.errors import BudgetExceeded, ModelUnavailable
from mnemo.prompts.calling import Caller
from mnemo.prompts.tool_loop import Answered, ToolUse, Why, run_loop, uses_of
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatMessage, ChatReply
from mnemo.testing import Script, ScriptedChatModel, tool_call

ASKED = (ChatMessage("system", "Look after it."), ChatMessage("user", "Go."))
TOOLS = ({"name": "look", "description": "", "input_schema": {"type": "object"}},)


class Hands:
    """Carries out calls: ``done`` is terminal, anything else is told."""

    def __init__(self) -> None:
        self.uses: list[ToolUse] = []

    def __call__(self, use: ToolUse) -> Answered:
        self.uses.append(use)
        return Answered(f"{use.name} {use.arguments}", terminal=use.name == "done")


async def looped(
    script: Script, carry_out: Any = None, *, meter: UsageMeter | None = None, **rest: Any
) -> tuple[Why, ScriptedChatModel]:
    """A loop against a scripted model."""
    model = ScriptedChatModel({"update_notes": script})
    caller = Caller(model, meter=meter or UsageMeter(), timeout_s=120)
    given: dict[str, Any] = {
        "purpose": "update_notes",
        "messages": ASKED,
        "tools": TOOLS,
        "carry_out": carry_out or Hands(),
        "max_rounds": 4,
    }
    return await run_loop(caller.call, **given | rest), model


async def test_a_terminal_tool_ends_the_loop_after_its_reply():
    """All calls of that reply are carried out in order; no further request is made."""
    hands = Hands()
    calls = [tool_call("look", at=1), tool_call("done"), tool_call("look", at=2)]
    why, model = await looped({"tool_calls": calls}, hands)
    assert (why, len(model.requests)) == ("terminal", 1)
    assert [use.name for use in hands.uses] == ["look", "done", "look"]


async def test_calls_are_answered_and_the_model_asked_again():
    """The second request holds the first one, the reply and the answer, under the call's id."""
    why, model = await looped([tool_call("look", at=1), "That is all."])
    assert (why, len(model.requests)) == ("no_calls", 2)
    again = model.requests[1].messages
    assert tuple(again[:2]) == ASKED
    assert again[2].tool_calls[0]["arguments"] == {"at": 1}
    assert again[3] == ChatMessage(
        "tool", "look {'at': 1}", tool_call_id=again[2].tool_calls[0]["id"]
    )
    assert tuple(model.requests[1].tools) == TOOLS


async def test_a_reply_that_was_cut_off_is_not_carried_out():
    """Its last call may be half of one."""
    hands = Hands()
    reply = ChatReply(tool_calls=({"id": "a", "name": "done", "arguments": {}},), truncated=True)
    why, _ = await looped(reply, hands)
    assert (why, hands.uses) == ("truncated", [])


async def test_the_rounds_are_bounded():
    """The last round's calls are carried out still."""
    hands = Hands()
    why, model = await looped(tool_call("look"), hands, max_rounds=3)
    assert (why, len(model.requests), len(hands.uses)) == ("max_rounds", 3, 3)
    with pytest.raises(ValueError, match="max_rounds"):
        await looped("x", max_rounds=0)


async def test_whoever_watches_the_replies_may_end_it():
    """Before their calls are carried out, with the number of the request."""
    hands, seen = Hands(), list[int]()

    def after(reply: ChatReply, number: int) -> bool:
        seen.append(number)
        return number < 2

    why, _ = await looped(tool_call("look"), hands, after_reply=after)
    assert (why, seen, len(hands.uses)) == ("stopped", [1, 2], 1)


async def test_a_call_may_be_carried_out_asynchronously():
    """A coroutine function does as well."""

    async def carry_out(use: ToolUse) -> Answered:
        await anyio.lowlevel.checkpoint()
        return Answered("done", terminal=True)

    why, _ = await looped(tool_call("look"), carry_out)
    assert why == "terminal"


async def test_each_request_is_metered_and_may_be_refused():
    """Usage counts per round; a budget ends the loop with its own error."""
    meter = UsageMeter()
    await looped([tool_call("look"), "end"], meter=meter)
    assert meter.by_purpose["update_notes"].calls == 2
    assert meter.total.output_tokens > 0
    hands = Hands()
    with pytest.raises(BudgetExceeded):
        await looped(tool_call("look"), hands, meter=UsageMeter(SessionConfig(max_model_calls=2)))
    assert len(hands.uses) == 2


async def test_a_failing_model_ends_the_loop():
    """What was carried out before stays carried out."""
    hands = Hands()
    with pytest.raises(ModelUnavailable, match="OSError"):
        await looped([tool_call("look"), OSError("gone")], hands)
    assert len(hands.uses) == 1


@pytest.mark.parametrize(
    ("given", "name", "arguments"),
    [
        ({"id": "a", "name": "look", "arguments": {"at": 1}}, "look", {"at": 1}),
        ({"id": "a", "name": "look", "arguments": '{"at": 1}'}, "look", {"at": 1}),
        ({"id": "a", "name": "look", "arguments": "{broken"}, "look", None),
        ({"id": "a", "name": "look", "arguments": ""}, "look", {}),
        ({"id": "a", "name": "look", "arguments": None}, "look", {}),
        ({"id": "a", "function": {"name": "look", "arguments": '{"at": 1}'}}, "look", {"at": 1}),
        ({"id": "a", "name": "look", "arguments": [1]}, "look", None),
        ({"id": "a", "name": "look"}, "look", {}),
        ({"id": "a", "name": 7, "arguments": {}}, "", {}),
        (7, "", None),
        (None, "", None),
        ("look", "", None),
    ],
)
async def test_a_call_of_any_shape_is_answered(given, name, arguments):
    """What is no object becomes None; the model is shown its call in a shape servers take."""
    hands = Hands()
    why, model = await looped([ChatReply(tool_calls=(given,)), "end"], hands)
    assert [(use.name, use.arguments) for use in hands.uses] == [(name, arguments)]
    repeated = model.requests[1].messages[2].tool_calls[0]
    assert repeated["name"] == (name or "unknown")
    assert repeated["arguments"] == (arguments or {})
    assert model.requests[1].messages[3].tool_call_id == repeated["id"]
    assert why == "no_calls"


@pytest.mark.parametrize("calls", [None, 7, "look", {"name": "look"}, ()])
async def test_calls_that_are_no_list_are_none(calls):
    """The reply counts as one without calls."""
    why, _ = await looped(ChatReply(tool_calls=calls))
    assert why == "no_calls"


async def test_ids_are_unique_over_the_whole_exchange():
    """A model that repeats an id, or gives none, is answered all the same."""
    calls = tuple({"id": id, "name": "look", "arguments": {}} for id in ("a", "a", "", None))
    _, model = await looped([ChatReply(tool_calls=calls), ChatReply(tool_calls=calls), "end"])
    answered = [m.tool_call_id for m in model.requests[2].messages if m.role == "tool"]
    assert len(answered) == len(set(answered)) == 8


JUNK = st.recursive(
    st.none() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
CALLISH = JUNK | st.fixed_dictionaries({}, optional={"id": JUNK, "name": JUNK, "arguments": JUNK})


@given(calls=JUNK | st.lists(CALLISH, max_size=5))
def test_no_shape_of_calls_is_too_odd(calls):
    """As many uses as calls, with ids of their own and names that servers take."""
    uses = uses_of(ChatReply(tool_calls=calls), taken={"call_1"})
    assert len(uses) == (len(calls) if isinstance(calls, list) else 0)
    assert len({use.id for use in uses} | {"call_1"}) == len(uses) + 1
    for use in uses:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", use.as_said["name"])
        assert isinstance(use.as_said["arguments"], dict)

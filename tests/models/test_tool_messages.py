"""Calls of tools and their results over both protocols, there and back."""

from typing import Any

import pytest
from http_doubles import KEY, Answers, completion, ok
from scripted_server import ScriptedServer

from mnemo.errors import ModelUnavailable
from mnemo.models import AnthropicChatModel, OpenAIChatModel
from mnemo.prompts.calling import Caller
from mnemo.prompts.summarize import STANDING
from mnemo.prompts.tool_loop import Answered, ToolUse, run_loop
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatMessage, ChatReply, ChatRequest
from mnemo.testing import ScriptedChatModel, tool_call

ASKED = (ChatMessage("system", STANDING), ChatMessage("user", "Go."))
TOOLS = (
    {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}},
    {"name": "done", "description": "Ends.", "input_schema": {"type": "object"}},
)
EXCHANGE = (
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "Where is it?"),
    ChatMessage(
        "assistant",
        "",
        tool_calls=(
            {"id": "a", "name": "look", "arguments": {"at": "Kyōto \ud800"}},
            {"id": "b", "name": "look", "arguments": "no object"},
        ),
    ),
    ChatMessage("tool", "here", tool_call_id="a"),
    ChatMessage("tool", "Error: no", tool_call_id="b"),
    ChatMessage("user", "And now?"),
)


def openai(server: Any, **rest: Any) -> OpenAIChatModel:
    """A model over OpenAI's protocol."""
    if isinstance(server, ScriptedServer):
        return OpenAIChatModel(f"{server.url}/v1", "m", KEY, max_retries=0, **rest)
    return OpenAIChatModel("http://127.0.0.1:9", "m", KEY, transport=server, **rest)


def anthropic(server: Any, **rest: Any) -> AnthropicChatModel:
    """A model over Anthropic's protocol."""
    if isinstance(server, ScriptedServer):
        return AnthropicChatModel("m", KEY, base_url=server.url, max_retries=0, **rest)
    return AnthropicChatModel("m", KEY, transport=server, **rest)


BOTH = pytest.mark.parametrize("protocol", [openai, anthropic])


def asked(*messages: ChatMessage, **rest: Any) -> ChatRequest:
    """A request in free text."""
    return ChatRequest(messages or EXCHANGE, "update_notes", **rest)


async def test_openai_gets_calls_as_text_and_results_by_id():
    """Arguments are JSON in a string, an object in any case; no blank text beside calls."""
    server = Answers(ok(completion("It is there.")))
    async with openai(server) as model:
        await model.complete(asked())
    messages = server.bodies[0]["messages"]
    assert messages[2] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "look", "arguments": '{"at": "Kyōto \ufffd"}'},
            },
            {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ],
    }
    assert messages[3:5] == [
        {"role": "tool", "content": "here", "tool_call_id": "a"},
        {"role": "tool", "content": "Error: no", "tool_call_id": "b"},
    ]


async def test_anthropic_gets_all_results_in_the_one_message_after_the_calls():
    """Before what the user says next; roles take turns; inputs are objects."""
    server = Answers(ok({"content": [{"type": "text", "text": "There."}]}))
    async with anthropic(server) as model:
        await model.complete(asked())
    assert server.bodies[0]["messages"] == [
        {"role": "user", "content": "Where is it?"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "Kyōto \ufffd"}},
                {"type": "tool_use", "id": "b", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "here"},
                {"type": "tool_result", "tool_use_id": "b", "content": "Error: no"},
                {"type": "text", "text": "And now?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("protocol", "answer"),
    [
        (openai, lambda why: _finished(completion("half of"), why)),
        (
            anthropic,
            lambda why: {"content": [{"type": "text", "text": "half"}], "stop_reason": why},
        ),
    ],
)
@pytest.mark.parametrize(
    ("why", "truncated"),
    [("length", True), ("max_tokens", True), ("stop", False), ("end_turn", False), (None, False)],
)
async def test_a_free_reply_that_was_cut_off_says_so(protocol, answer, why, truncated):
    """By the reason that the protocol gives."""
    async with protocol(Answers(ok(answer(why)))) as model:
        reply = await model.complete(asked())
        assert reply.truncated is truncated
        # JSON shows by itself whether it is whole.
        structured = await model.complete(asked(response_schema={"type": "object"}))
    assert structured.truncated is False


def _finished(answer: dict[str, Any], why: Any) -> dict[str, Any]:
    answer["choices"][0]["finish_reason"] = why
    return answer


async def test_calls_count_as_input():
    """The estimate that limits go by holds arguments too."""
    bare = openai(Answers(ok(completion())))._call(asked())
    big = ChatMessage(
        "assistant", "", tool_calls=({"id": "a", "name": "look", "arguments": {"at": "x" * 4_000}},)
    )
    loaded = openai(Answers(ok(completion())))._call(asked(*EXCHANGE, big))
    assert loaded.tokens - bare.tokens >= 1_000


@BOTH
async def test_a_loop_of_tools_runs_over_http(server, protocol):
    """Calls come back with ids, results go there; a strict server takes every request."""
    script = [
        {"tool_calls": [tool_call("look", at=1), tool_call("look", at=2)], "text": "Let me see."},
        tool_call("done", well="ja"),
    ]
    server.script("summarize", script)
    seen: list[ToolUse] = []

    def carry_out(use: ToolUse) -> Answered:
        seen.append(use)
        return Answered(f"seen {dict(use.arguments or {})}", terminal=use.name == "done")

    async with protocol(server) as model:
        caller = Caller(model, meter=UsageMeter(), timeout_s=120)
        why = await run_loop(
            caller.call,
            purpose="summarize",
            messages=ASKED,
            tools=TOOLS,
            carry_out=carry_out,
            max_rounds=5,
        )
    assert (why, len(server.calls("summarize"))) == ("terminal", 2)
    assert [(use.name, use.arguments) for use in seen] == [
        ("look", {"at": 1}),
        ("look", {"at": 2}),
        ("done", {"well": "ja"}),
    ]
    received = server.calls("summarize")[1].chat
    assert received is not None
    assert [m.role for m in received.messages] == ["system", "user", "assistant", "tool", "tool"]
    assert [m.content for m in received.messages[2:]] == [
        "Let me see.",
        "seen {'at': 1}",
        "seen {'at': 2}",
    ]
    ids = [call["id"] for call in received.messages[2].tool_calls]
    assert [m.tool_call_id for m in received.messages[3:]] == ids
    assert len(received.tools) == 2


@BOTH
async def test_a_reply_with_calls_that_was_cut_off_says_so_over_http(server, protocol):
    """Its calls come back all the same; who asked must not carry them out."""
    server.script("summarize", ChatReply(tool_calls=(CALL,), truncated=True))
    async with protocol(server) as model:
        reply = await model.complete(ChatRequest(ASKED, "summarize", tools=TOOLS))
    assert reply.truncated
    assert [call["name"] for call in reply.tool_calls] == ["look"]


CALL = {"id": "c", "name": "look", "arguments": {}}


@BOTH
@pytest.mark.parametrize(
    "wrong",
    [
        [ChatMessage("assistant", "", tool_calls=(CALL,)), ChatMessage("user", "And?")],
        [ChatMessage("tool", "here", tool_call_id="c")],
        [ChatMessage("assistant", "", tool_calls=(CALL,))],
    ],
)
async def test_the_scripted_server_refuses_calls_without_answer(server, protocol, wrong):
    """As real ones do: so the tests above mean something."""
    messages = (*ASKED, *wrong)
    async with protocol(server) as model:
        with pytest.raises(ModelUnavailable, match="tool"):
            await model.complete(ChatRequest(messages, "summarize", tools=TOOLS))


async def test_a_scripted_model_makes_calls():
    """One, several with a text, with ids that do not repeat; JSON answers stay JSON."""
    model = ScriptedChatModel(
        {
            "summarize": [
                tool_call("look", at=1),
                {"tool_calls": [CALL, tool_call("done")]},
                {"a": 1},
            ]
        }
    )
    first, second, third = [await model.complete(_loop_request()) for _ in range(3)]
    [call] = first.tool_calls
    assert call == {"id": "call_1_1", "name": "look", "arguments": {"at": 1}}
    assert (first.text, first.usage.output_tokens > 0) == ("", True)
    assert [call["id"] for call in second.tool_calls] == ["c", "call_1_2"]
    assert (third.text, third.tool_calls) == ('{"a": 1}', ())


async def test_an_answering_model_takes_a_snapshot_where_it_can():
    """A short text where no tool is offered."""
    model = ScriptedChatModel.answering()
    with_tools = await model.complete(_loop_request(tools=TOOLS))
    assert with_tools.tool_calls[0]["name"] == "save_snapshot"
    assert with_tools.tool_calls[0]["arguments"]["text"]
    assert (await model.complete(_loop_request())).text == "They spoke with each other."


def _loop_request(**rest: Any) -> ChatRequest:
    return ChatRequest(ASKED, "summarize", **rest)

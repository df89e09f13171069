"""Two protocols for asking a chat model: what a request means, and how an answer is worded."""

import base64
import importlib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

import numpy as np
from scripted_faults import Answer

import mnemo.prompts
from mnemo.prompts.update_notes import INSTRUCTION_MARK
from mnemo.protocols import ChatMessage, ChatRequest, Purpose


@dataclass(frozen=True)
class Form:
    """How a request asks for structure: the name and schema it gives, if any."""

    name: str | None = None
    schema: Any = None


def openai_form(body: Mapping[str, Any]) -> Form:
    """What a body for ``/v1/chat/completions`` asks for."""
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        return Form(form["json_schema"]["name"], form["json_schema"]["schema"])
    tool = openai_tool(body)
    for offered in body.get("tools", ()):
        if offered["function"]["name"] == tool:
            return Form(tool, offered["function"]["parameters"])
    return Form(schema=form.get("schema"))


def openai_tool(body: Mapping[str, Any]) -> str | None:
    """The tool that it must call, if it must."""
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        return str(choice["function"]["name"])
    offered = body.get("tools") or ()
    return str(offered[0]["function"]["name"]) if choice == "required" else None


def anthropic_form(body: Mapping[str, Any]) -> Form:
    """What a body for ``/v1/messages`` asks for."""
    tool = anthropic_tool(body)
    for offered in body.get("tools", ()):
        if offered["name"] == tool:
            return Form(tool, offered["input_schema"])
    return Form(schema=((body.get("output_config") or {}).get("format") or {}).get("schema"))


def anthropic_tool(body: Mapping[str, Any]) -> str | None:
    """The tool that it must call, if it must."""
    choice = body.get("tool_choice") or {}
    if choice.get("type") == "any":
        return str(body["tools"][0]["name"])
    return choice.get("name")


def features_of(body: Mapping[str, Any]) -> list[str]:
    """What of the protocol a body uses that not every server has."""
    features = [
        key for key in ("tools", "max_completion_tokens", "encoding_format") if body.get(key)
    ]
    form = body.get("response_format") or {}
    return [*features, form["type"]] if "type" in form else features


def offered(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The tools that a model may call, if it is free to: none that it must."""
    return () if "tool_choice" in body else tuple(body.get("tools", ()))


def chat_of(
    said: Sequence[ChatMessage], form: Form, tools: Sequence[Mapping[str, Any]]
) -> ChatRequest:
    """The ``ChatRequest`` that an adapter made these messages of."""
    noting = any(INSTRUCTION_MARK in message.content for message in said)
    purpose = "update_notes" if noting else _purpose(form.name, said[0].content)
    return ChatRequest(tuple(said), purpose, response_schema=form.schema, tools=tuple(tools))


def openai_messages(body: Mapping[str, Any]) -> list[ChatMessage]:
    """The messages of a body for ``/v1/chat/completions``."""
    return [
        ChatMessage(
            m["role"],
            _plain(m["content"] or ""),
            tool_calls=tuple(
                {
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "arguments": json.loads(call["function"]["arguments"]),
                }
                for call in m.get("tool_calls", ())
            ),
            tool_call_id=m.get("tool_call_id"),
        )
        for m in body["messages"]
    ]


def anthropic_messages(body: Mapping[str, Any]) -> list[ChatMessage]:
    """The messages of a body for ``/v1/messages``, each result one of its own."""
    said = [ChatMessage("system", _plain(body.get("system", "")))]
    for m in body["messages"]:
        blocks = [] if isinstance(m["content"], str) else m["content"]
        for block in blocks:
            if block["type"] == "tool_result":
                answer = ChatMessage("tool", block["content"], tool_call_id=block["tool_use_id"])
                said.append(answer)
        calls = tuple(
            {"id": block["id"], "name": block["name"], "arguments": block["input"]}
            for block in blocks
            if block["type"] == "tool_use"
        )
        text = _plain(m["content"])
        if text or calls:
            said.append(ChatMessage(m["role"], text, tool_calls=calls))
    return said


def misplaced(path: str, body: Mapping[str, Any]) -> str | None:
    """What a strict server says of calls without answer and answers without call, if any."""
    check = {"/v1/chat/completions": _openai_misplaced, "/v1/messages": _anthropic_misplaced}
    return check[path](body["messages"]) if path in check else None


def _openai_misplaced(messages: Sequence[Mapping[str, Any]]) -> str | None:
    waiting: list[str] = []
    for m in messages:
        if m["role"] == "tool":
            if m.get("tool_call_id") not in waiting:
                return "messages with role 'tool' must answer one of the preceding 'tool_calls'"
            waiting.remove(m["tool_call_id"])
        elif waiting:
            break
        waiting += [call["id"] for call in m.get("tool_calls", ())]
    return "each tool_call_id must be followed by a tool message" if waiting else None


def _anthropic_misplaced(messages: Sequence[Mapping[str, Any]]) -> str | None:
    waiting: list[str] = []
    roles = [m["role"] for m in messages]
    if any(one == other for one, other in pairwise(roles)):
        return "roles must alternate between user and assistant"
    for m in messages:
        blocks = [] if isinstance(m["content"], str) else m["content"]
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return "text content blocks must contain non-whitespace text"
        kinds = [block["type"] for block in blocks]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting) or "tool_result" in kinds[len(results) :]:
            return "tool_use ids must be answered by tool_result blocks at once, and first"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return "tool_use ids must be answered by tool_result blocks at once" if waiting else None


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def _purpose(name: str | None, system: str) -> Purpose:
    for purpose in get_args(Purpose):
        if name == purpose:
            return purpose
    for purpose, standing in _STANDING:
        if standing in system:
            return purpose
    raise ValueError(f"no purpose is known for {name!r}, {system[:80]!r}")


def _standing_texts() -> list[tuple[Purpose, str]]:
    """The standing instructions of every question, longest first."""
    texts = []
    for info in pkgutil.iter_modules(mnemo.prompts.__path__):
        module = importlib.import_module(f"mnemo.prompts.{info.name}")
        standing = getattr(module, "STANDING", getattr(module, "_STANDING", {}))
        named = dict(standing) if isinstance(standing, Mapping) else {info.name: standing}
        others = (name for name in vars(module) if name.endswith("_STANDING"))
        named |= {name.removesuffix("_STANDING").lower(): vars(module)[name] for name in others}
        for purpose in get_args(Purpose):
            told = named.get(purpose, ())
            texts += [(purpose, text) for text in ([told] if isinstance(told, str) else told)]
    return sorted(texts, key=lambda pair: -len(pair[1]))


_STANDING = _standing_texts()


def openai_choice(answer: Answer, tool: str | None) -> dict[str, Any]:
    """*answer* as the one choice of a completion."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    finish: str = answer.finish
    if finish == "refusal":
        message |= {"content": None, "refusal": answer.text}
        finish = "stop"
    elif tool is not None:
        function = {"name": tool, "arguments": answer.text}
        calls = [{"id": "call_1", "type": "function", "function": function}]
        message |= {"content": None, "tool_calls": calls}
    elif answer.calls:
        message |= {
            "content": answer.text or None,
            "tool_calls": [_function_call(call) for call in answer.calls],
        }
        finish = "tool_calls" if finish == "stop" else finish
    return {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}


def _function_call(call: Mapping[str, Any]) -> dict[str, Any]:
    given = call["arguments"]
    arguments = given if isinstance(given, str) else json.dumps(given)
    function = {"name": call["name"], "arguments": arguments}
    return {"id": call["id"], "type": "function", "function": function}


def anthropic_blocks(answer: Answer, tool: str | None) -> tuple[list[dict[str, Any]], str]:
    """*answer* as content blocks, and why it ends."""
    stop = {"length": "max_tokens", "refusal": "refusal"}.get(answer.finish, "end_turn")
    if answer.finish == "empty":
        return [], stop
    if answer.calls and tool is None:
        text = [{"type": "text", "text": answer.text}] if answer.text else []
        uses = [
            {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]}
            for call in answer.calls
        ]
        return [*text, *uses], "tool_use" if stop == "end_turn" else stop
    if tool is None or answer.finish == "refusal":
        return [{"type": "text", "text": answer.text}], stop
    try:
        given = json.loads(answer.text)
    except ValueError:
        # A call that was cut off has lost its input; other text is no call at all.
        if answer.finish != "length":
            return [{"type": "text", "text": answer.text}], stop
        given = {}
    call = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": given}
    return [call], stop if answer.finish == "length" else "tool_use"


def key_of(headers: Mapping[str, str]) -> str | None:
    """The key that a request carries."""
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")


def as_base64(row: Any) -> str:
    """*row* as little-endian float32."""
    return base64.b64encode(np.asarray(row, "<f4").tobytes()).decode()


def as_list(row: Any) -> list[float]:
    """*row* as numbers."""
    return [float(number) for number in row]

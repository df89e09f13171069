"""Two protocols for asking a chat model: what a request means, and how an answer is worded."""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from scripted_faults import Answer

import mnemo.prompts
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


def chat_of(messages: Sequence[Mapping[str, Any]], form: Form) -> ChatRequest:
    """The ``ChatRequest`` that an adapter made these messages of."""
    said = tuple(ChatMessage(m["role"], _plain(m["content"])) for m in messages)
    return ChatRequest(said, _purpose(form.name, said[0].content), response_schema=form.schema)


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
        named = standing if isinstance(standing, Mapping) else {info.name: standing}
        texts += [(p, named[p]) for p in get_args(Purpose) if p in named]
    return sorted(texts, key=lambda pair: -len(pair[1]))


_STANDING = _standing_texts()


def openai_choice(answer: Answer, tool: str | None) -> dict[str, Any]:
    """*answer* as the one choice of a completion."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    finish = answer.finish
    if finish == "refusal":
        message |= {"content": None, "refusal": answer.text}
        finish = "stop"
    elif tool is not None:
        function = {"name": tool, "arguments": answer.text}
        calls = [{"id": "call_1", "type": "function", "function": function}]
        message |= {"content": None, "tool_calls": calls}
    return {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}


def anthropic_blocks(answer: Answer, tool: str | None) -> tuple[list[dict[str, Any]], str]:
    """*answer* as content blocks, and why it ends."""
    stop = {"length": "max_tokens", "refusal": "refusal"}.get(answer.finish, "end_turn")
    if answer.finish == "empty":
        return [], stop
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

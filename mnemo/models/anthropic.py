"""Chat models behind Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, ClassVar, Unpack

from pydantic import SecretStr

from mnemo.errors import ConfigError
from mnemo.models.chat import (
    Call,
    Form,
    HttpChatModel,
    Learned,
    Tool,
    WrongShape,
    as_text,
    few,
    written,
)
from mnemo.models.failures import secret_key
from mnemo.models.prices import Price, counted
from mnemo.models.transport import HttpSettings, Transport, whole, with_settings
from mnemo.protocols import ChatMessage, ChatReply
from mnemo.runtime.text import is_blank

VERSION = "2023-06-01"
"""Of the protocol, sent with every request."""


class AnthropicChatModel(HttpChatModel):
    """
    A ``ChatModel`` over HTTP, for Anthropic's Messages API.

    A reply with a schema is asked for by a tool that must be called; where the model
    refuses that, by the prompt alone.

    Args:
        api_key: Needed; kept as a ``SecretStr``.
        base_url: With or without ``/v1`` at its end.
        max_output_tokens: The API wants a bound in every request.

    All others are those of ``OpenAIChatModel``.

    Raises:
        ConfigError: An argument cannot be used; the message says what to do.
    """

    provider = "anthropic"
    forms: ClassVar[tuple[Form, ...]] = (Form.TOOL, Form.PLAIN)

    @with_settings
    def __init__(
        self,
        model: str,
        api_key: str | SecretStr,
        *,
        base_url: str = "https://api.anthropic.com",
        max_output_tokens: int = 4096,
        temperature: float | None = 0.0,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        prices: Mapping[str, Price] | None = None,
        **http: Unpack[HttpSettings],
    ) -> None:
        if secret_key(api_key) is None:
            raise ConfigError("api_key is blank: AnthropicChatModel needs one")
        transport = Transport(base_url, api_key, key_header=_key_header, **http)
        versioned = transport.endpoint.url.endswith("/v1")
        super().__init__(
            transport,
            "/messages" if versioned else "/v1/messages",
            model=model,
            temperature=temperature,
            max_output_tokens=whole("max_output_tokens", max_output_tokens, least=1),
            overrides=overrides,
            prices=prices,
        )

    def _body(self, call: Call, form: Form, learned: Learned) -> dict[str, Any]:
        system, rest = call.parts(form)
        body: dict[str, Any] = {"model": call.model, "max_tokens": call.max_output_tokens}
        # It wants at least one message.
        body["messages"] = _turns(rest) or [{"role": "user", "content": system}]
        if system and rest:
            body["system"] = system
        if call.temperature is not None and learned.accepts("temperature"):
            body["temperature"] = min(call.temperature, 1.0)
        if call.tools:
            body["tools"] = [_tool(tool) for tool in call.tools]
        if form is Form.TOOL and call.request.response_schema is not None:
            body["tools"] = [_tool(Tool(call.purpose, "Gives the answer.", call.schema))]
            body["tool_choice"] = {"type": "tool", "name": call.purpose}
        return body

    def _read(self, answer: Any, call: Call, form: Form) -> ChatReply:
        content = answer.get("content") if isinstance(answer, Mapping) else None
        if not isinstance(content, list):
            raise WrongShape("it has no list of content")
        few(content, "its content")
        text = as_text([b for b in content if _is(b, "text")], "its content")
        usage = answer.get("usage")
        cached = counted(usage, "cache_read_input_tokens")
        # Its input_tokens are those after the last cache breakpoint.
        fresh = counted(usage, "input_tokens") + counted(usage, "cache_creation_input_tokens")
        return call.reply(
            form,
            text,
            [_tool_call(block) for block in content if _is(block, "tool_use")],
            model=answer.get("model"),
            tokens=(fresh + cached, counted(usage, "output_tokens"), cached),
            reason=answer.get("stop_reason"),
        )


def _key_header(key: str) -> dict[str, str]:
    return {"x-api-key": key, "anthropic-version": VERSION}


def _turns(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """The messages in two roles in turn; a message's call results come first in the next."""
    turns = []
    for role, said in groupby(messages, key=_role):
        blocks = [block for message in said for block in _blocks(message)]
        blocks.sort(key=lambda block: block["type"] != "tool_result")
        alone = blocks[0]["text"] if [b["type"] for b in blocks] == ["text"] else None
        turns.append({"role": role, "content": blocks if alone is None else alone})
    return turns


def _role(message: ChatMessage) -> str:
    return "assistant" if message.role == "assistant" else "user"


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    if message.tool_call_id is not None:
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id}
        return [{**result, "content": message.content}]
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["name"],
            "input": json.loads(written(call.get("arguments"))),
        }
        for call in message.tool_calls
    ]
    # A blank text is refused, where there is anything else.
    if calls and is_blank(message.content):
        return calls
    return [{"type": "text", "text": message.content}, *calls]


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, Mapping) and block.get("type") == kind


def _tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.schema}


def _tool_call(block: Mapping[str, Any]) -> dict[str, Any]:
    given = block.get("input")
    arguments = given if isinstance(given, Mapping) else {}
    return {
        "id": str(block.get("id") or ""),
        "name": str(block.get("name") or ""),
        "arguments": arguments,
    }

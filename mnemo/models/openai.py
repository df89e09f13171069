"""Chat models of OpenAI's protocol: OpenAI, vLLM, Ollama, llama.cpp, LiteLLM and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from pydantic import SecretStr

from mnemo.models.chat import (
    Call,
    Form,
    HttpChatModel,
    Learned,
    Tool,
    WrongShape,
    arguments_of,
    as_text,
    few,
    written,
)
from mnemo.models.prices import Price, counted
from mnemo.models.transport import HttpSettings, Transport, with_settings
from mnemo.protocols import ChatMessage, ChatReply


class OpenAIChatModel(HttpChatModel):
    """
    A ``ChatModel`` over HTTP, for any server with ``/chat/completions``.

    Nothing is opened before the first call. A reply with a schema is asked for in the
    strictest form that the server accepts, found by trying and remembered. Safe for any
    number of tasks at once.

    Args:
        base_url: Up to and without ``/chat/completions``, e.g. ``"http://localhost:8000/v1"``.
        model: As the server names it.
        api_key: Kept as a ``SecretStr``; ``None`` for a server that wants none.
        timeout_s: Seconds of one try as a whole, where neither an override nor the
            request says; waiting for a turn and between tries does not count.
        max_retries: Further tries after one that may pass.
        max_wait_s: Seconds of waiting between tries, together; if the server asks for more,
            ``RateLimited`` at once.
        max_concurrency: Requests at once.
        requests_per_minute: ``None`` is no limit.
        tokens_per_minute: Input and output together; estimated before, corrected after.
        temperature: ``None`` is not sent; left out, too, once the model has refused it.
        max_output_tokens: ``None`` is the server's own bound.
        overrides: Purpose → ``{"model", "temperature", "max_output_tokens", "timeout_s"}``.
        prices: Model name → price; the cost of any other is ``None``.
        headers: Further headers of every request; their values are kept secret.
        transport: An ``httpx.AsyncBaseTransport`` instead of the network.
        clock: For waits and limits; tries are bounded in real time.

    Raises:
        ConfigError: An argument cannot be used; the message says what to do.
    """

    forms: ClassVar[tuple[Form, ...]] = (Form.JSON_SCHEMA, Form.JSON_OBJECT, Form.TOOL, Form.PLAIN)

    @with_settings
    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | SecretStr | None = None,
        *,
        temperature: float | None = 0.0,
        max_output_tokens: int | None = None,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        prices: Mapping[str, Price] | None = None,
        **http: Unpack[HttpSettings],
    ) -> None:
        super().__init__(
            Transport(base_url, api_key, **http),
            "/chat/completions",
            model=model,
            temperature=temperature,
            max_output_tokens=max_output_tokens,
            overrides=overrides,
            prices=prices,
        )

    def _body(self, call: Call, form: Form, learned: Learned) -> dict[str, Any]:
        system, rest = call.parts(form)
        first = [{"role": "system", "content": system}] if system else []
        body: dict[str, Any] = {"model": call.model, "messages": [*first, *map(_as_sent, rest)]}
        if call.temperature is not None and learned.accepts("temperature"):
            body["temperature"] = call.temperature
        if call.max_output_tokens is not None:
            known = learned.accepts("max_tokens")
            body["max_tokens" if known else "max_completion_tokens"] = call.max_output_tokens
        if call.tools:
            body["tools"] = [_function(tool) for tool in call.tools]
        return body | _schema_fields(call, form)

    def _read(self, answer: Any, call: Call, form: Form) -> ChatReply:
        choice = _choice(answer)
        message = _message(choice)
        text = as_text(message.get("content"), "its content")
        if not text and isinstance(message.get("refusal"), str):
            text = message["refusal"]
        usage = answer.get("usage")
        return call.reply(
            form,
            text,
            _tool_calls(message),
            model=answer.get("model"),
            tokens=(
                counted(usage, "prompt_tokens"),
                counted(usage, "completion_tokens"),
                counted(usage, "prompt_tokens_details", "cached_tokens"),
            ),
            reason=choice.get("finish_reason"),
        )


def _as_sent(message: ChatMessage) -> dict[str, Any]:
    if message.tool_calls:
        calls = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": written(call.get("arguments"))},
            }
            for call in message.tool_calls
        ]
        # A text beside calls is optional, a blank one is refused by some servers.
        return {"role": "assistant", "content": message.content or None, "tool_calls": calls}
    sent = {"role": message.role, "content": message.content}
    if message.tool_call_id is not None:
        sent["tool_call_id"] = message.tool_call_id
    return sent


def _function(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _schema_fields(call: Call, form: Form) -> dict[str, Any]:
    """What *form* adds to a body."""
    if call.request.response_schema is None or form is Form.PLAIN:
        return {}
    if form is Form.JSON_SCHEMA:
        named = {"name": call.purpose, "schema": call.schema}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if form is Form.JSON_OBJECT:
        return {"response_format": {"type": "json_object", "schema": call.schema}}
    answer = Tool(call.purpose, "Gives the answer.", call.schema)
    choice = {"type": "function", "function": {"name": call.purpose}}
    return {"tools": [_function(answer)], "tool_choice": choice}


def _choice(answer: Any) -> Mapping[str, Any]:
    """The first choice; an empty message where there is none."""
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    if not isinstance(choices, list):
        raise WrongShape("it has no list of choices")
    if not choices:
        return {"message": {}}
    return choices[0] if isinstance(choices[0], Mapping) else {}


def _message(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise WrongShape("its first choice has no message")
    return message


def _tool_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = message.get("tool_calls") or []
    if not isinstance(given, list):
        raise WrongShape("its tool_calls are no list")
    few(given, "its list of tool_calls")
    calls = []
    for call in given:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise WrongShape("one of its tool_calls has no function")
        arguments = arguments_of(function.get("arguments"))
        name = str(function.get("name") or "")
        calls.append({"id": str(call.get("id") or ""), "name": name, "arguments": arguments})
    return calls

"""What a span says of a call to a chat model; its texts only where that was opted in to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from mnemo.prompts.question import raw_text
from mnemo.prompts.tool_loop import uses_of
from mnemo.protocols import ChatMessage, ChatModel, ChatReply, ChatRequest, Purpose
from mnemo.runtime.spans import Span, Spans, Value, model_attributes

__all__ = ["CallSpans"]


class CallSpans:
    """
    The spans of one chat model's calls.

    A model that asks another one for some purposes says so by ``model_for(purpose)``.
    """

    def __init__(self, spans: Spans, model: ChatModel) -> None:
        self._spans = spans
        self._model = model_attributes("chat", model) if spans.active else {}
        self._model_for: Callable[[Purpose], str] | None = getattr(model, "model_for", None)

    def begin(self, request: ChatRequest) -> Span:
        """Give the span of one call."""
        if not self._spans.active:
            return self._spans.span("chat")
        asked = self._asked(request)
        name = f"chat {asked.get('gen_ai.request.model', '')}".strip()
        span = self._spans.span(name, kind="client", attributes=asked)
        span.set_content("gen_ai.input.messages", lambda: _as_json(request.messages))
        return span

    def _asked(self, request: ChatRequest) -> dict[str, Value]:
        attributes = {
            **self._model,
            "mnemo.purpose": request.purpose,
            "gen_ai.output.type": "json" if request.response_schema else "text",
        }
        if self._model_for is not None:
            attributes["gen_ai.request.model"] = self._model_for(request.purpose)
        if request.max_output_tokens is not None:
            attributes["gen_ai.request.max_tokens"] = request.max_output_tokens
        return attributes

    def answered(self, span: Span, reply: ChatReply) -> None:
        """Say on *span* what came back, and what it cost as far as the model tells."""
        usage = reply.usage
        told: dict[str, Value | None] = {
            "gen_ai.response.model": usage.model,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            "mnemo.usage.cost_usd": usage.cost_usd,
        }
        for name, value in told.items() if self._spans.active else ():
            if value:
                span.set(name, value)
        span.set_content(
            "gen_ai.output.messages",
            lambda: _as_json([_as_message(reply)]),
        )


def _as_message(reply: ChatReply) -> ChatMessage:
    calls = [use.as_said for use in uses_of(reply)]
    return ChatMessage("assistant", raw_text(reply), tool_calls=calls)


def _as_json(messages: Iterable[ChatMessage]) -> str:
    """*messages* in the conventions' shape."""
    shown = [{"role": message.role, "parts": _parts(message)} for message in messages]
    return json.dumps(shown, ensure_ascii=False, default=str)


def _parts(message: ChatMessage) -> list[dict[str, Any]]:
    if message.tool_call_id is not None:
        answer = {"type": "tool_call_response", "id": message.tool_call_id}
        return [{**answer, "response": message.content}]
    text = [{"type": "text", "content": message.content}] if message.content else []
    calls = [{"type": "tool_call", **call} for call in message.tool_calls]
    return [*text, *calls] or [{"type": "text", "content": ""}]

"""Call a chat model, or ask it a question with at most one correction; every failure is typed."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from mnemo.errors import InvalidReply, ModelError, ModelTimeout, ModelUnavailable
from mnemo.prompts.question import Question, is_short, json_of, raw_text, what_is_wrong
from mnemo.prompts.tool_loop import uses_of
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatMessage, ChatModel, ChatReply, ChatRequest, Purpose, Usage
from mnemo.runtime.spans import NO_SPANS, Span, Spans, Value, model_attributes
from mnemo.runtime.user_code import called, foreign

T = TypeVar("T")


class Caller:
    """
    A chat model, with a *meter* that counts every call and may refuse one. *timeout_s* is of each
    call: a model that keeps time itself is told, any other cut off.
    """

    def __init__(
        self, model: ChatModel, *, meter: UsageMeter, timeout_s: float, spans: Spans = NO_SPANS
    ) -> None:
        self._model = model
        self._meter = meter
        self._timeout_s = timeout_s
        self._spans = spans
        self._attributes = model_attributes("chat", model) if spans.active else {}
        self._model_for: Callable[[Purpose], str] | None = getattr(model, "model_for", None)
        self._patience_s = math.inf if getattr(model, "keeps_time", False) else timeout_s

    async def call(self, request: ChatRequest) -> ChatReply:
        """
        Put *request* once, with this caller's timeout.

        Raises:
            ModelTimeout: It took longer than the timeout.
            BudgetExceeded: The call may not be made.
            ModelError: Of the model; its foreign exceptions as ``ModelUnavailable``.
                *Cancellation*: safe; the call is dropped.
        """
        return await self.read(request, _as_it_is)

    async def read(
        self, request: ChatRequest, understand: Callable[[ChatReply], Awaitable[T]]
    ) -> T:
        """
        Put *request*, and give what *understand* makes of the reply, inside the call's span.
        *Raises* as ``call``, and what *understand* raises. *Cancellation*: safe.
        """
        self._meter.started(request.purpose)
        with self._span(request) as span:
            reply = await self._complete(replace(request, timeout_s=self._timeout_s))
            self._meter.answered(request.purpose, reply.usage)
            self._tell(span, reply)
            return await understand(reply)

    async def _complete(self, request: ChatRequest) -> ChatReply:
        purpose = request.purpose
        try:
            with anyio.fail_after(self._patience_s):
                reply: ChatReply = await called(self._model.complete, request)
        except ModelError as error:
            error.purpose = error.purpose or purpose
            raise
        except TimeoutError as error:
            late = f"no {purpose} reply within {self._timeout_s:g} s"
            raise ModelTimeout(late, purpose=purpose) from error
        except Exception as error:
            raise foreign("the chat model", error, purpose=purpose) from error
        whole = isinstance(reply, ChatReply) and isinstance(reply.text, str)
        if whole and isinstance(reply.usage, Usage):
            return reply
        what = f"the chat model answered with {type(reply).__name__}, not with a whole ChatReply"
        raise ModelUnavailable(what, purpose=purpose, retryable=False)

    # ── Spans ────────────────────────────────────────────────────────────────────────

    def _span(self, request: ChatRequest) -> Span:
        """The span of one call; a model that asks another one says so by ``model_for``."""
        if not self._spans.active:
            return self._spans.span("chat")
        asked = {
            **self._attributes,
            "mnemo.purpose": request.purpose,
            "gen_ai.output.type": "json" if request.response_schema else "text",
        }
        if self._model_for is not None:
            asked["gen_ai.request.model"] = self._model_for(request.purpose)
        if request.max_output_tokens is not None:
            asked["gen_ai.request.max_tokens"] = request.max_output_tokens
        name = f"chat {asked.get('gen_ai.request.model', '')}".strip()
        span = self._spans.span(name, kind="client", attributes=asked)
        span.set_content("gen_ai.input.messages", lambda: _as_json(request.messages))
        return span

    def _tell(self, span: Span, reply: ChatReply) -> None:
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
        span.set_content("gen_ai.output.messages", lambda: _as_json([_as_message(reply)]))


async def _as_it_is(reply: ChatReply) -> ChatReply:
    return reply


# ── Questions ───────────────────────────────────────────────────────────────────────────

SHOWN_CHARACTERS = 2_000
"""Characters of a bad reply that its model is shown again."""
READ_AT_ONCE_CHARACTERS = 2_000
"""Characters of a reply that are read on the event loop: a few milliseconds at worst (S)."""


class Asker(Caller):
    """A ``Caller`` that asks whole questions; its meter counts how each of them ended, too."""

    async def ask(self, question: Question[T]) -> T:
        """
        Answer *question*; a reply that does not fit is corrected by one more call.

        *Raises* ``InvalidReply``: the correction did not fit either; ``ModelError``: as of
        ``call``. *Cancellation*: safe; the call is dropped.
        """
        try:
            answer = await self._answer(question)
        except ModelError:
            self._meter.ran(question.purpose, "failed")
            raise
        self._meter.ran(question.purpose, "model")
        return answer

    async def _answer(self, question: Question[T]) -> T:
        try:
            return await self._read(question, question.messages)
        except InvalidReply as invalid:
            correction = _correction(invalid)
        return await self._read(question, (*question.messages, *correction))

    async def _read(self, question: Question[T], messages: Sequence[ChatMessage]) -> T:
        request = ChatRequest(tuple(messages), question.purpose, question.schema)
        return await self.read(request, partial(_understood, question))


async def _understood(question: Question[T], reply: ChatReply) -> T:
    if is_short(reply, READ_AT_ONCE_CHARACTERS):
        return _read_by(question, reply)
    # A long reply may hold many an opening brace that leads nowhere.
    return await anyio.to_thread.run_sync(_read_by, question, reply)


def _read_by(question: Question[T], reply: ChatReply) -> T:
    try:
        return question.read(json_of(reply))
    except ValueError as error:
        raise InvalidReply(
            f"the {question.purpose} reply cannot be used: {what_is_wrong(error)}",
            purpose=question.purpose,
            raw=raw_text(reply),
        ) from error


def _correction(invalid: InvalidReply) -> tuple[ChatMessage, ChatMessage]:
    shown = invalid.raw[:SHOWN_CHARACTERS].strip() or "(nothing)"
    wrong = invalid.__cause__ if isinstance(invalid.__cause__, ValueError) else None
    return ChatMessage("assistant", shown), ChatMessage(
        "user",
        f"That reply cannot be used: {what_is_wrong(wrong) if wrong else invalid}\n"
        "Answer the same question again with one JSON object that follows the schema, "
        "complete and with nothing around it.",
    )


# ── What spans hold ──────────────────────────────────────────────────────────────────────


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

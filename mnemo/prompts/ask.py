"""Asking a chat model: one call, one correction, every failure typed, every call counted."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TypeVar

import anyio
import anyio.to_thread

from mnemo._spans import NO_SPANS, Spans
from mnemo._tasks import is_cancelled
from mnemo._text import clean
from mnemo.errors import InvalidReply, ModelError, ModelTimeout, ModelUnavailable
from mnemo.prompts.call_spans import CallSpans
from mnemo.prompts.question import Question, is_short, json_of, raw_text, what_is_wrong
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatMessage, ChatModel, ChatReply, ChatRequest, Purpose, Usage

__all__ = ["Asker"]

SHOWN_CHARACTERS = 2_000
"""Characters of a bad reply that its model is shown again."""
READ_AT_ONCE_CHARACTERS = 2_000
"""Characters of a reply that are read on the event loop: a few milliseconds at worst (S)."""

T = TypeVar("T")


class Asker:
    """
    A chat model together with what it may take and what it has cost.

    Args:
        meter: Counts every call and how each question ended; may refuse one.
        timeout_s: Seconds per call. A model that keeps time itself is told, any other cut off.
        spans: One is made for every call, the corrective one included.
    """

    def __init__(
        self, model: ChatModel, *, meter: UsageMeter, timeout_s: float, spans: Spans = NO_SPANS
    ) -> None:
        self._model = model
        self._meter = meter
        self._timeout_s = timeout_s
        self._spans = CallSpans(spans, model)
        self._patience_s = math.inf if getattr(model, "keeps_time", False) else timeout_s

    async def ask(self, question: Question[T]) -> T:
        """
        Answer *question*; a reply that does not fit is corrected by one more call.

        Raises:
            InvalidReply: The correction did not fit either.
            ModelTimeout: A call took longer than the timeout.
            BudgetExceeded: The call may not be made.
            ModelError: Of the model; its foreign exceptions as ``ModelUnavailable``.
                *Cancellation*: safe; the call is dropped.
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
        request = ChatRequest(
            messages=tuple(messages),
            purpose=question.purpose,
            response_schema=question.schema,
            timeout_s=self._timeout_s,
        )
        self._meter.started(question.purpose)
        with self._spans.begin(request) as span:
            reply = await self._complete(request)
            self._meter.answered(question.purpose, reply.usage)
            self._spans.answered(span, reply)
            return await self._understood(question, reply)

    async def _understood(self, question: Question[T], reply: ChatReply) -> T:
        if is_short(reply, READ_AT_ONCE_CHARACTERS):
            return _read_by(question, reply)
        # A long reply may hold many an opening brace that leads nowhere.
        return await anyio.to_thread.run_sync(_read_by, question, reply)

    async def _complete(self, request: ChatRequest) -> ChatReply:
        purpose = request.purpose
        try:
            with anyio.fail_after(self._patience_s):
                reply = await self._model.complete(request)
        except ModelError as error:
            error.purpose = error.purpose or purpose
            raise
        except TimeoutError as error:
            raise _timed_out(purpose, self._timeout_s) from error
        except asyncio.CancelledError as error:
            # A model whose own work was cancelled must not pass for our caller's cancellation:
            # a task that it ends would leave its session waiting for ever.
            if is_cancelled():
                raise
            raise _foreign(purpose, error) from error
        except Exception as error:
            raise _foreign(purpose, error) from error
        if not isinstance(reply, ChatReply):
            raise _no_reply(purpose, reply)
        if not isinstance(reply.text, str) or not isinstance(reply.usage, Usage):
            raise _no_reply(purpose, reply)
        return reply


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


def _timed_out(purpose: Purpose, timeout_s: float) -> ModelTimeout:
    return ModelTimeout(f"no {purpose} reply within {timeout_s:g} s", purpose=purpose)


def _foreign(purpose: Purpose, error: BaseException) -> ModelUnavailable:
    what = f"the chat model raised {type(error).__name__}: {clean(str(error))}"
    return ModelUnavailable(what, purpose=purpose, retryable=False)


def _no_reply(purpose: Purpose, reply: object) -> ModelUnavailable:
    what = f"the chat model answered with {type(reply).__name__}, not with a whole ChatReply"
    return ModelUnavailable(what, purpose=purpose, retryable=False)

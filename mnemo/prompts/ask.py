"""Asking a chat model: one call, one correction, every failure typed, every call counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import anyio

from mnemo.errors import InvalidReply, ModelError, ModelTimeout, ModelUnavailable
from mnemo.prompts.question import Question, json_of, raw_text, what_is_wrong
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatMessage, ChatModel, ChatReply, ChatRequest, Purpose

__all__ = ["Asker"]

SHOWN_CHARACTERS = 2_000
"""Characters of a bad reply that its model is shown again."""

T = TypeVar("T")


class Asker:
    """
    A chat model together with what it may take and what it has cost.

    Args:
        timeout_s: Seconds per call.
    """

    def __init__(self, model: ChatModel, *, meter: UsageMeter, timeout_s: float) -> None:
        self._model = model
        self._meter = meter
        self._timeout_s = timeout_s

    async def ask(self, question: Question[T]) -> T:
        """
        Answer *question*; a reply that does not fit is corrected by one more call.

        Raises:
            InvalidReply: The correction did not fit either.
            ModelTimeout: A call took longer than the timeout.
            ModelError: Of the model; its foreign exceptions as ``ModelUnavailable``.
                *Cancellation*: safe; the call is dropped.
        """
        reply = await self._complete(question, question.messages)
        try:
            return question.read(json_of(reply))
        except ValueError as error:
            correction = _correction(reply, what_is_wrong(error))
        reply = await self._complete(question, (*question.messages, *correction))
        try:
            return question.read(json_of(reply))
        except ValueError as error:
            raise InvalidReply(
                f"the {question.purpose} reply cannot be used: {what_is_wrong(error)}",
                purpose=question.purpose,
                raw=raw_text(reply),
            ) from error

    async def _complete(self, question: Question[T], messages: Sequence[ChatMessage]) -> ChatReply:
        request = ChatRequest(
            messages=tuple(messages), purpose=question.purpose, response_schema=question.schema
        )
        self._meter.started()
        try:
            with anyio.fail_after(self._timeout_s):
                reply = await self._model.complete(request)
        except ModelError as error:
            error.purpose = error.purpose or question.purpose
            raise
        except TimeoutError as error:
            raise _timed_out(question.purpose, self._timeout_s) from error
        except Exception as error:
            raise _foreign(question.purpose, error) from error
        if not isinstance(reply, ChatReply):
            raise _no_reply(question.purpose, reply)
        self._meter.answered(reply.usage)
        return reply


def _correction(reply: ChatReply, wrong: str) -> tuple[ChatMessage, ChatMessage]:
    shown = raw_text(reply)[:SHOWN_CHARACTERS].strip() or "(nothing)"
    return ChatMessage("assistant", shown), ChatMessage(
        "user",
        f"That reply cannot be used: {wrong}\n"
        "Answer the same question again with one JSON object that follows the schema, "
        "complete and with nothing around it.",
    )


def _timed_out(purpose: Purpose, timeout_s: float) -> ModelTimeout:
    return ModelTimeout(f"no {purpose} reply within {timeout_s:g} s", purpose=purpose)


def _foreign(purpose: Purpose, error: Exception) -> ModelUnavailable:
    what = f"the chat model raised {type(error).__name__}: {error}"
    return ModelUnavailable(what, purpose=purpose, retryable=False)


def _no_reply(purpose: Purpose, reply: object) -> ModelUnavailable:
    what = f"the chat model answered with {type(reply).__name__}, not with a ChatReply"
    return ModelUnavailable(what, purpose=purpose, retryable=False)

"""Ask a chat model a question: one call, at most one correction, every failure typed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import anyio.to_thread

from mnemo.errors import InvalidReply, ModelError
from mnemo.prompts.calling import Caller
from mnemo.prompts.question import Question, is_short, json_of, raw_text, what_is_wrong
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatMessage, ChatModel, ChatReply, ChatRequest
from mnemo.runtime.spans import NO_SPANS, Spans

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
        self._meter = meter
        self._caller = Caller(model, meter=meter, timeout_s=timeout_s, spans=spans)

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
        )
        return await self._caller.read(request, partial(self._understood, question))

    async def _understood(self, question: Question[T], reply: ChatReply) -> T:
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

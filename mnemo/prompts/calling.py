"""One call of a chat model: counted, watched, bounded in time, every failure typed."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import anyio

from mnemo.errors import ModelError, ModelTimeout, ModelUnavailable
from mnemo.prompts.call_spans import CallSpans
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, ChatReply, ChatRequest, Purpose, Usage
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.runtime.text import clean
from mnemo.runtime.user_code import called

__all__ = ["Caller"]

T = TypeVar("T")


class Caller:
    """
    A chat model together with what a call of it may take and what all have cost.

    Args:
        meter: Counts every call; may refuse one.
        timeout_s: Seconds per call. A model that keeps time itself is told, any other cut off.
        spans: One is made for every call.
    """

    def __init__(
        self, model: ChatModel, *, meter: UsageMeter, timeout_s: float, spans: Spans = NO_SPANS
    ) -> None:
        self._model = model
        self._meter = meter
        self._timeout_s = timeout_s
        self._spans = CallSpans(spans, model)
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

        Raises:
            Exception: As of ``call``, and what *understand* raises. *Cancellation*: safe.
        """
        self._meter.started(request.purpose)
        with self._spans.begin(request) as span:
            reply = await self._complete(replace(request, timeout_s=self._timeout_s))
            self._meter.answered(request.purpose, reply.usage)
            self._spans.answered(span, reply)
            return await understand(reply)

    async def _complete(self, request: ChatRequest) -> ChatReply:
        purpose = request.purpose
        try:
            with anyio.fail_after(self._patience_s):
                reply = await called(self._model.complete, request)
        except ModelError as error:
            error.purpose = error.purpose or purpose
            raise
        except TimeoutError as error:
            raise _timed_out(purpose, self._timeout_s) from error
        except Exception as error:
            raise _foreign(purpose, error) from error
        if not isinstance(reply, ChatReply):
            raise _no_reply(purpose, reply)
        if not isinstance(reply.text, str) or not isinstance(reply.usage, Usage):
            raise _no_reply(purpose, reply)
        return reply


async def _as_it_is(reply: ChatReply) -> ChatReply:
    return reply


def _timed_out(purpose: Purpose, timeout_s: float) -> ModelTimeout:
    return ModelTimeout(f"no {purpose} reply within {timeout_s:g} s", purpose=purpose)


def _foreign(purpose: Purpose, error: BaseException) -> ModelUnavailable:
    what = f"the chat model raised {type(error).__name__}: {clean(str(error))}"
    foreign = ModelUnavailable(what, purpose=purpose, retryable=False)
    foreign.foreign = True
    return foreign


def _no_reply(purpose: Purpose, reply: object) -> ModelUnavailable:
    what = f"the chat model answered with {type(reply).__name__}, not with a whole ChatReply"
    return ModelUnavailable(what, purpose=purpose, retryable=False)

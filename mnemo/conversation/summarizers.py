"""The two summarizers: one asks a chat model, one takes sentences from the messages."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial

from mnemo.config import Config
from mnemo.english.sentences import sentence_ends
from mnemo.errors import ModelError
from mnemo.prompts.calling import Caller
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.summarize import shorter_request, summary_of, summary_request
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, ChatReply, ChatRequest, SummaryRequest
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.runtime.tasks import Threads
from mnemo.values.counting import Count
from mnemo.values.digest import digest

BYTES_PER_TOKEN = 4


class ChatSummarizer:
    """
    Asks a chat model; purpose ``summarize``, free text, no tools.

    A text that is too long is asked for once more, shorter, and then cut.

    Args:
        count: Counts the tokens of a text.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        config: Config,
        meter: UsageMeter,
        count: Count,
        spans: Spans = NO_SPANS,
    ) -> None:
        timeout_s = config.extraction.timeout_s
        self._caller = Caller(model, meter=meter, timeout_s=timeout_s, spans=spans)
        self._profile = resolve_profile(config.extraction.profile)
        self._meter = meter
        self._count = count
        self._threads = Threads()

    async def summarize(self, request: SummaryRequest) -> str:
        """Give the text. *Raises*: as ``Summarizer``; ``InvalidReply``: blank or cut off."""
        try:
            text = await self._summary(request)
        except ModelError:
            self._meter.ran("summarize", "failed")
            raise
        self._meter.ran("summarize", "model")
        return text

    async def _summary(self, asked: SummaryRequest) -> str:
        make = partial(summary_request, asked, self._profile)
        request = await self._threads.run(make)
        text = await self._answer(request)
        if self._count(text) > asked.max_tokens:
            text = await self._answer(shorter_request(request, text, asked.max_tokens))
        cut = partial(cut_to, text, asked.max_tokens, self._count)
        return await self._threads.run(cut)

    async def _answer(self, request: ChatRequest) -> str:
        return await self._caller.read(request, _understood)


async def _understood(reply: ChatReply) -> str:
    return summary_of(reply)


class EmbeddedSummarizer:
    """Needs no model: the same request gives the same text."""

    def __init__(self, *, meter: UsageMeter, count: Count) -> None:
        self._meter = meter
        self._count = count
        self._threads = Threads()

    async def summarize(self, request: SummaryRequest) -> str:
        """Give first sentences of messages, or the beginnings of summaries. Never raises."""
        work = partial(_extract, request, self._count)
        text = await self._threads.run(work)
        self._meter.ran("summarize", "embedded")
        return text


def _extract(asked: SummaryRequest, count: Count) -> str:
    if not asked.summaries:
        text = digest(asked.messages, max_chars=BYTES_PER_TOKEN * asked.max_tokens)
        return cut_to(text, asked.max_tokens, count)
    share = max(1, asked.max_tokens // len(asked.summaries))
    told = (cut_to(text, share, count) for text in asked.summaries)
    return cut_to("\n".join(told), asked.max_tokens, count)


def cut_to(text: str, most: int, count: Count) -> str:
    """
    Cut *text* at the last end of a sentence within *most* tokens.

    Where not even the first sentence fits, up to the last word that does; at least one
    character stays, whatever *count* says.
    """
    if count(text) <= most:
        return text
    ends = sentence_ends(text)
    fitting = bisect_right(ends, most, key=lambda end: count(text[:end]))
    if fitting:
        return text[: ends[fitting - 1]].rstrip()
    whole = bisect_right(range(1, len(text)), most, key=lambda end: count(text[:end]))
    words = text[: whole + 1].rsplit(None, 1) if whole else []
    return words[0] if len(words) == 2 else text[: max(1, whole)]

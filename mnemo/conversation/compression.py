"""
Compression in the background: summaries that stand for old messages.

What is read is summarised without any lock or transaction held, and recorded only if it
is still what was read. A failure changes nothing; the originals are always there.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from mnemo.config import Config
from mnemo.conversation.compaction import NewRecord, insert_record, tell_of_record
from mnemo.conversation.load import Uncovered
from mnemo.conversation.scope import ConversationParts, ThreadScope, ThreadSettings
from mnemo.conversation.summary import RangeSummary, summarise
from mnemo.english.sentences import sentence_ends
from mnemo.errors import Conflict, InvalidReply, ModelError, UsageError
from mnemo.events import CompressionFailed
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.log.units import Runs
from mnemo.prompts.calling import Caller
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.summarize import shorter_request, summary_of, summary_request
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, ChatReply, ChatRequest, Summarizer, SummaryRequest
from mnemo.runtime.flights import Backoff, Flights
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.runtime.tasks import Threads
from mnemo.runtime.text import clean, is_blank
from mnemo.runtime.user_code import called, traceback_of
from mnemo.values.counting import Count
from mnemo.values.derived import Compaction, Origin
from mnemo.values.digest import digest
from mnemo.values.messages import StoredMessage
from mnemo.values.strategies import Summary
from mnemo.values.units import clean_cuts

# ── The two summarizers: a chat model, and sentences taken from the messages ──────


BYTES_PER_TOKEN = 4


class ChatSummarizer:
    """Ask a chat model (``summarize``); a text too long is asked for once more, then cut."""

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
    """Cut *text* at the last sentence, or else word, within *most* tokens; never to nothing."""
    if count(text) <= most:
        return text
    ends = sentence_ends(text)
    fitting = bisect_right(ends, most, key=lambda end: count(text[:end]))
    if fitting:
        return text[: ends[fitting - 1]].rstrip()
    whole = bisect_right(range(1, len(text)), most, key=lambda end: count(text[:end]))
    words = text[: whole + 1].rsplit(None, 1) if whole else []
    return words[0] if len(words) == 2 else text[: max(1, whole)]


# ── Compression ───────────────────────────────────────────────────────────────────


log: logging.Logger = logging.getLogger("mnemo")

MOST_RUNNING = 4
"""Threads that are compressed at once (S)."""

Record: TypeAlias = RangeSummary[Any, NewRecord, Compaction]


class Compressing:
    """
    Compresses the threads of one repository, each at most once at a time.

    *summarizer* replaces the chat model or embedded one; a failing model has no substitute.
    """

    def __init__(self, parts: ConversationParts, *, summarizer: Summarizer | None = None) -> None:
        self._parts = parts
        self._config = parts.config.conversation
        self._count = self._config.count
        self._summarizer, self._origin = self._chosen(summarizer)
        self._flights = Flights(self._run, spawn=parts.spawn, limit=MOST_RUNNING)
        self._backoff = Backoff(
            parts.clock.sleep, parts.spawn, backoff_s=self._config.retry_backoff_s
        )
        self._triggered: dict[str, ThreadSettings] = {}

    def _chosen(self, given: Summarizer | None) -> tuple[Summarizer, Origin]:
        parts = self._parts
        if given is not None:
            return given, "model"
        if parts.chat_model is None:
            return EmbeddedSummarizer(meter=parts.meter, count=self._count), "fallback"
        summarizer = ChatSummarizer(
            parts.chat_model,
            config=parts.config,
            meter=parts.meter,
            count=self._count,
            spans=parts.spans,
        )
        return summarizer, "model"

    @property
    def under_way(self) -> int:
        """Threads that are being compressed, or wait for their turn."""
        return self._flights.under_way

    def appended(self, settings: ThreadSettings) -> None:
        """Compress the thread after an append if that is due; a plain call."""
        if settings.summaries:
            self._triggered[settings.thread_id] = settings
            if not self._backoff.holds(settings.thread_id):
                self._flights.poke(settings.thread_id)

    async def compress(self, settings: ThreadSettings) -> Compaction | None:
        """
        Compress now if that is due, or join the run in flight. *Cancellation*: only the wait ends.

        Gives the record that was made; ``None``: nothing was due, or the summary failed. *Raises*
        ``UsageError``: the repository was closed meanwhile.
        """
        if not settings.summaries:
            return None
        self._triggered[settings.thread_id] = settings
        self._backoff.end(settings.thread_id)
        return await self._flights.join(settings.thread_id)

    async def settled(self, thread_id: str) -> None:
        """Wait until nothing runs or is due, as a retry is at its time. *Cancellation*: safe."""
        await self._flights.settled(thread_id)

    async def _run(self, thread_id: str) -> Compaction | None:
        """Make one summary of messages, and one of records, in that order."""
        settings = self._triggered.pop(thread_id, None)
        if settings is None:
            return None  # the run before has seen to it
        made: Compaction | None = None
        try:
            for summary in settings.summaries:
                for kind in (self._of_messages, self._of_records):
                    found = await summarise(
                        kind(settings, summary),
                        self._parts.store,
                        self._backoff,
                        max_attempts=self._config.summary_max_attempts,
                    )
                    made = made or found
        except UsageError:
            raise
        except Exception as error:  # the store failed
            self._failed(thread_id, error)
            self._backoff.begin(thread_id, partial(self._flights.poke, thread_id))
        if made is not None or self._backoff.holds(thread_id):
            self._triggered.setdefault(thread_id, settings)
        if made is not None:
            self._flights.poke(thread_id)  # more may be due than one record can hold
        return made

    def _of_messages(self, settings: ThreadSettings, summary: Summary) -> Record:
        """Messages become a record."""
        deadline_s = self._config.tool_deadline_s

        def due(tx: TranscriptReader) -> DueRange | None:
            return due_range(tx, self._scope(tx, settings), summary, deadline_s=deadline_s)

        async def ask(due: DueRange, failed: int) -> NewRecord:
            asked = SummaryRequest(
                messages=due.messages,
                earlier=tuple(one.summary_text for one in due.earlier),
                max_tokens=summary.max_summary_tokens,
            )
            return await self._record(asked, due.start_seq, due.end_seq)

        def keep(tx: TranscriptWriter, due: DueRange, text: NewRecord) -> Compaction | None:
            scope = self._scope(tx, settings)
            return _recorded(tx, scope, text) if is_unchanged(tx, scope, due) else None

        return self._kind(settings.thread_id, due, ask, keep)

    def _of_records(self, settings: ThreadSettings, summary: Summary) -> Record:
        """Records become one of level 2."""

        def due(tx: TranscriptReader) -> tuple[Compaction, ...] | None:
            return due_fold(tx, self._scope(tx, settings), summary) or None

        async def ask(due: tuple[Compaction, ...], failed: int) -> NewRecord:
            asked = SummaryRequest(
                summaries=tuple(one.summary_text for one in due),
                max_tokens=summary.max_summary_tokens,
            )
            return await self._record(asked, due[0].start_seq, due[-1].end_seq, replacing=due)

        def keep(
            tx: TranscriptWriter, due: tuple[Compaction, ...], text: NewRecord
        ) -> Compaction | None:
            scope = self._scope(tx, settings)
            return _recorded(tx, scope, text) if due[0].epoch == scope.thread.epoch else None

        return self._kind(settings.thread_id, due, ask, keep)

    def _kind(self, thread_id: str, due: Any, ask: Any, keep: Any) -> Record:
        return RangeSummary(
            key=thread_id,
            due=due,
            about=lambda due: None,
            ask=ask,
            keep=keep,
            told=lambda due, text, made: tell_of_record(self._parts, made),
            failed=partial(self._failed, thread_id),
            again=partial(self._flights.poke, thread_id),
        )

    async def _record(
        self,
        asked: SummaryRequest,
        start_seq: int,
        end_seq: int,
        replacing: tuple[Compaction, ...] = (),
    ) -> NewRecord:
        text = await called(self._summarizer.summarize, asked)
        if not isinstance(text, str) or is_blank(text):
            raise InvalidReply("the summary is blank", purpose="summarize")
        text = cut_to(clean(text), asked.max_tokens, self._count)
        return NewRecord(
            start_seq=start_seq,
            end_seq=end_seq,
            text=text,
            tokens=self._count(text),
            origin=self._origin,
            replacing=replacing,
        )

    def _failed(self, thread_id: str, error: Exception) -> None:
        trace = traceback_of(error)
        log.warning("thread %r could not be compressed: %s", thread_id, error, exc_info=trace)
        what = clean(f"{type(error).__name__}: {error}")
        self._parts.tell(CompressionFailed, thread_id=thread_id, error=what)

    def _scope(self, tx: TranscriptReader, settings: ThreadSettings) -> ThreadScope:
        return ThreadScope.of(tx, settings, self._parts.config)


def _recorded(tx: TranscriptWriter, scope: ThreadScope, new: NewRecord) -> Compaction | None:
    """Insert the record; ``None``: it conflicts with a live one, or exists already."""
    try:
        made, inserted = insert_record(tx, scope, new)
    except Conflict:
        return None
    return made if inserted else None


# ── What is due: plain functions over a transaction ───────────────────────────────────

MOST_MESSAGES = 1_000
"""Messages of one summary (S): what was said before compression began is taken in portions."""
PAGE = 128
"""Messages that are looked at first (S)."""
MOST_TOKENS = 40_000
"""Tokens of one summary's messages, likewise, unless they are one unit: a model's window."""


@dataclass(frozen=True, slots=True)
class DueRange:
    """A range that is due for a summary, as it was read, and the live records before it."""

    epoch: int
    messages: tuple[StoredMessage, ...]
    earlier: tuple[Compaction, ...]

    @property
    def start_seq(self) -> int:
        """Its first seq."""
        return self.messages[0].seq

    @property
    def end_seq(self) -> int:
        """Its last seq."""
        return self.messages[-1].seq


def due_range(
    tx: TranscriptReader, scope: ThreadScope, summary: Summary, *, deadline_s: float
) -> DueRange | None:
    """
    The oldest uncovered messages that a summary is due for; ``None``: nothing is due.

    Due is one when the uncovered live messages have more than ``max_tokens`` and are more than
    ``keep_last`` units. The range ends at the last clean cut that leaves ``keep_last`` of them, and
    is never longer than a model can be shown. What this costs does not grow with what is covered.
    """
    records = scope.all(tx, Compaction, live=True)
    runs = scope.uncovered(records)
    if not _exceed(tx, scope, runs, summary.max_tokens):
        return None
    units = Uncovered(tx, scope, records).newest(summary.keep_last + 1, pinned=True)
    if len(units) <= summary.keep_last:
        return None
    kept_from = units[-summary.keep_last].first_seq if summary.keep_last else scope.thread.next_seq
    for place in range(len(runs)):
        messages = _portion(tx, scope, runs, place, kept_from, deadline_s)
        if messages:
            before = tuple(one for one in records if one.end_seq < messages[0].seq)
            return DueRange(scope.thread.epoch, messages, before)
    return None


def _exceed(tx: TranscriptReader, scope: ThreadScope, runs: Runs, most: int) -> bool:
    """Whether the messages of *runs* have more than *most* tokens together."""
    found = 0
    for start, end in reversed(runs):
        found += tx.span(scope.thread.id, from_seq=start, to_seq=end, since=scope.since)[1]
        if found > most:
            return True
    return False


def _holds_any(tx: TranscriptReader, scope: ThreadScope, start: int, end: int) -> bool:
    return bool(scope.messages(tx, from_seq=start, to_seq=end, newest=1))


def _portion(
    tx: TranscriptReader,
    scope: ThreadScope,
    runs: Runs,
    place: int,
    kept_from: int,
    deadline_s: float,
) -> tuple[StoredMessage, ...]:
    """
    Read a run up to the last clean cut that is allowed, from behind the groups that began before
    it; may be empty.
    """
    for window, is_all in _windows(tx, scope, *runs[place]):
        units = scope.units(tx, window, runs)
        # An open group forbids every cut behind it, so what lies there need not be read: a
        # call that nobody answers would cost each append as much as it holds up.
        if is_all or any(unit.is_open(tx.now, deadline_s) for unit in units):
            cuts = clean_cuts(units, now=tx.now, deadline_s=deadline_s)
            last = min(kept_from, window[-1].seq + 1)
            if units[0].first_seq < window[0].seq:
                start = cuts[0] if cuts else last
                window = [message for message in window if message.seq >= start]
            allowed = [cut for cut in cuts if window and window[0].seq < cut <= last]
            cut = _affordable(window, allowed)
            return tuple(message for message in window if message.seq < cut)
    return ()


def _windows(
    tx: TranscriptReader, scope: ThreadScope, start: int, end: int
) -> Iterator[tuple[list[StoredMessage], bool]]:
    """Yield the first messages of a run: one page, then as many as one summary may cover."""
    end = min(end, scope.thread.next_seq - 1)
    while start <= end:
        last = min(end, start + MOST_MESSAGES - 1)
        for stop in sorted({min(last, start + PAGE - 1), last}):
            window = scope.messages(tx, from_seq=start, to_seq=stop)
            if window:
                yield window, stop == last
        if window:
            return
        start = last + 1


def _affordable(window: Sequence[StoredMessage], cuts: Sequence[int]) -> int:
    """Return the last of *cuts* within the token bound, or the first; 0: there is none."""
    chosen = cuts[0] if cuts else 0
    tokens, place = 0, 0
    for cut in cuts:
        while place < len(window) and window[place].seq < cut:
            tokens += window[place].tokens
            place += 1
        if tokens <= MOST_TOKENS:
            chosen = cut
    return chosen


def is_unchanged(tx: TranscriptReader, scope: ThreadScope, due: DueRange) -> bool:
    """Whether the epoch, every message of *due*, and every record shown with it are unchanged."""
    if scope.thread.epoch != due.epoch:
        return False
    live = scope.all(tx, Compaction, live=True)
    # A record goes with what it tells of, which a text written with it in view may tell of too.
    if not all(one in live for one in due.earlier):
        return False
    return tuple(scope.messages(tx, from_seq=due.start_seq, to_seq=due.end_seq)) == due.messages


def due_fold(tx: TranscriptReader, scope: ThreadScope, summary: Summary) -> tuple[Compaction, ...]:
    """
    Return the oldest adjacent records to merge, at least two; or none.

    Due if the live summaries exceed half of ``max_tokens``; no more than a model can be shown.
    """
    records = scope.all(tx, Compaction, live=True)
    if 2 * sum(record.token_count for record in records) <= summary.max_tokens:
        return ()
    touching: list[Compaction] = []
    tokens = 0
    for record in records:
        tokens += record.token_count
        if touching and not _touch(tx, scope, touching[-1], record):
            if len(touching) > 1:
                break
            touching, tokens = [], record.token_count
        if len(touching) > 1 and tokens > MOST_TOKENS:
            break
        touching.append(record)
    return tuple(touching) if len(touching) > 1 else ()


def _touch(tx: TranscriptReader, scope: ThreadScope, one: Compaction, other: Compaction) -> bool:
    start, end = one.end_seq + 1, other.start_seq - 1
    return start > end or not _holds_any(tx, scope, start, end)

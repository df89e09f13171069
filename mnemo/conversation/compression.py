"""
Compression in the background: summaries that stand for old messages.

What is read is summarised without any lock or transaction held, and recorded only if it
is still what was read. A failure changes nothing; the originals are always there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from mnemo.conversation.compaction import NewRecord, insert_record, recorded_event
from mnemo.conversation.scope import ThreadScope, live_records
from mnemo.conversation.settings import ConversationParts, ThreadSettings
from mnemo.conversation.summarizers import ChatSummarizer, EmbeddedSummarizer, cut_to
from mnemo.conversation.uncovered import Uncovered
from mnemo.errors import Conflict, InvalidReply, UsageError
from mnemo.events import CompressionFailed
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.protocols import Summarizer, SummaryRequest
from mnemo.runtime.flights import Flights
from mnemo.runtime.text import clean, is_blank
from mnemo.runtime.user_code import called, traceback_of
from mnemo.values.derived import Compaction, Origin
from mnemo.values.messages import StoredMessage
from mnemo.values.strategies import Summary
from mnemo.values.units import clean_cuts, units_of

log = logging.getLogger("mnemo")

MOST_RUNNING = 4
"""Threads that are compressed at once (S)."""

Stage: TypeAlias = Callable[[ThreadSettings, Summary], Awaitable[Compaction | None]]


@dataclass(slots=True, eq=False)
class _Watch:
    """
    A thread that is being compressed.

    Attributes:
        triggers: How often it was triggered.
        failures: Failed attempts, one after the other.
        resting: Whether the next attempt waits for its time.
        wanted: Whether somebody asked for one now, whatever its time.
    """

    settings: ThreadSettings
    triggers: int = 0
    failures: int = 0
    resting: bool = False
    wanted: bool = False


class Compressing:
    """
    Compresses the threads of one repository, each at most once at a time.

    Args:
        summarizer: In place of the shipped ones: the chat model if there is one, else the
            embedded one. A model that fails is not replaced by the latter.
    """

    def __init__(self, parts: ConversationParts, *, summarizer: Summarizer | None = None) -> None:
        self._parts = parts
        self._count = parts.config.conversation.count
        self._summarizer, self._origin = self._chosen(summarizer)
        self._flights = Flights(self._run, spawn=parts.spawn, limit=MOST_RUNNING)
        self._watched: dict[str, _Watch] = {}

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
        if not _summaries(settings):
            return
        watch = self._watch(settings)
        if not watch.resting:
            self._flights.poke(settings.thread_id)

    async def compress(self, settings: ThreadSettings) -> Compaction | None:
        """
        Compress now if that is due, or join the run in flight.

        Returns:
            The record that was made; ``None``: nothing was due, or the summary failed.

        Raises:
            UsageError: The repository was closed meanwhile. *Cancellation*: safe; only
                the wait ends.
        """
        if not _summaries(settings):
            return None
        self._watch(settings).wanted = True
        return await self._flights.join(settings.thread_id)

    async def settled(self, thread_id: str) -> None:
        """
        Wait until nothing is running or due for the thread. *Cancellation*: safe.

        An attempt that waits for its time after a failure is not due before that.
        """
        await self._flights.settled(thread_id)

    def _watch(self, settings: ThreadSettings) -> _Watch:
        watch = self._watched.setdefault(settings.thread_id, _Watch(settings))
        watch.settings = settings
        watch.triggers += 1
        return watch

    # ── A run ────────────────────────────────────────────────────────────────────────

    async def _run(self, thread_id: str) -> Compaction | None:
        watch = self._watched.get(thread_id)
        if watch is None or (watch.resting and not watch.wanted):
            return None  # the run before has seen to it, or its time has not come
        seen = watch.triggers
        made = await self._attempt(watch)
        watch.wanted = False
        if made is not None:
            self._flights.poke(thread_id)  # more may be due than one record can hold
        elif watch.triggers == seen and not (watch.failures or watch.resting):
            del self._watched[thread_id]
        return made

    async def _attempt(self, watch: _Watch) -> Compaction | None:
        """Try one summary of messages and one of records, in that order."""
        made: Compaction | None = None
        stages: tuple[Stage, ...] = (self._compressed, self._folded)
        try:
            for summary in _summaries(watch.settings):
                for stage in stages:
                    found = await stage(watch.settings, summary)
                    made = made or found
        except UsageError as error:
            log.info("thread %r is not compressed: %s", watch.settings.thread_id, error)
        except Exception as error:
            self._failed(watch, error)
        else:
            watch.failures = 0
        return made

    def _failed(self, watch: _Watch, error: Exception) -> None:
        thread_id, config = watch.settings.thread_id, self._parts.config.conversation
        trace = traceback_of(error)
        log.warning("thread %r could not be compressed: %s", thread_id, error, exc_info=trace)
        what = clean(f"{type(error).__name__}: {error}")
        parts = self._parts
        parts.publish(
            CompressionFailed(
                repo_id=parts.repo_id, at=parts.clock.now(), thread_id=thread_id, error=what
            )
        )
        watch.failures += 1
        if watch.failures >= config.summary_max_attempts:
            watch.failures = 0  # the next append begins anew
        elif not watch.resting:
            watch.resting = True
            delay = config.retry_backoff_s * 2 ** (watch.failures - 1)
            due = self._parts.clock.monotonic() + delay
            self._parts.spawn(self._try_again, watch, due)

    async def _try_again(self, watch: _Watch, due: float) -> None:
        clock = self._parts.clock
        await clock.sleep(max(0.0, due - clock.monotonic()))
        watch.resting = False
        self._flights.poke(watch.settings.thread_id)

    # ── Messages become a record ─────────────────────────────────────────────────────

    async def _compressed(self, settings: ThreadSettings, summary: Summary) -> Compaction | None:
        store, deadline_s = self._parts.store, self._parts.config.conversation.tool_deadline_s

        def look(tx: TranscriptReader) -> DueRange | None:
            return due_range(tx, self._scope(tx, settings), summary, deadline_s=deadline_s)

        while (due := await store.reading(look)) is not None:
            asked = SummaryRequest(
                messages=due.messages,
                earlier=tuple(one.summary_text for one in due.earlier),
                max_tokens=summary.max_summary_tokens,
            )
            new = self._record(due.start_seq, due.end_seq, await self._text(asked))
            made = await store.writing(partial(self._keep, settings, due, new))
            if made is not None:
                return self._told(made)
        return None

    def _keep(
        self, settings: ThreadSettings, due: DueRange, new: NewRecord, tx: TranscriptWriter
    ) -> Compaction | None:
        scope = self._scope(tx, settings)
        return _recorded(tx, scope, new) if is_unchanged(tx, scope, due) else None

    # ── Records become one ───────────────────────────────────────────────────────────

    async def _folded(self, settings: ThreadSettings, summary: Summary) -> Compaction | None:
        store = self._parts.store

        def look(tx: TranscriptReader) -> tuple[Compaction, ...]:
            return due_fold(tx, self._scope(tx, settings), summary)

        while records := await store.reading(look):
            asked = SummaryRequest(
                summaries=tuple(one.summary_text for one in records),
                max_tokens=summary.max_summary_tokens,
            )
            first, last, text = records[0], records[-1], await self._text(asked)
            new = self._record(first.start_seq, last.end_seq, text, replacing=records)
            made = await store.writing(partial(self._fold, settings, new))
            if made is not None:
                return self._told(made)
        return None

    def _fold(
        self, settings: ThreadSettings, new: NewRecord, tx: TranscriptWriter
    ) -> Compaction | None:
        scope = self._scope(tx, settings)
        if new.replacing[0].epoch != scope.thread.epoch:
            return None
        return _recorded(tx, scope, new)

    # ── Both ─────────────────────────────────────────────────────────────────────────

    async def _text(self, asked: SummaryRequest) -> str:
        text = await called(self._summarizer.summarize, asked)
        if not isinstance(text, str) or is_blank(text):
            raise InvalidReply("the summary is blank", purpose="summarize")
        return cut_to(clean(text), asked.max_tokens, self._count)

    def _record(
        self, start_seq: int, end_seq: int, text: str, replacing: tuple[Compaction, ...] = ()
    ) -> NewRecord:
        return NewRecord(
            start_seq=start_seq,
            end_seq=end_seq,
            text=text,
            tokens=self._count(text),
            origin=self._origin,
            replacing=replacing,
        )

    def _told(self, made: Compaction) -> Compaction:
        self._parts.publish(recorded_event(self._parts, made))
        return made

    def _scope(self, tx: TranscriptReader, settings: ThreadSettings) -> ThreadScope:
        return ThreadScope.of(tx, settings, self._parts.config)


def _summaries(settings: ThreadSettings) -> list[Summary]:
    return [one for one in settings.compressions if isinstance(one, Summary)]


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
    """
    A range that is due for a summary, as it was read.

    Attributes:
        messages: The whole range, ascending; at least one.
        earlier: Live records before it, ascending.
    """

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


@dataclass(frozen=True, slots=True)
class _Gap:
    """Seqs that no record covers; *end* ``None``: up to the thread's end."""

    start: int
    end: int | None

    @property
    def is_small(self) -> bool:
        return self.end is not None and self.end - self.start < MOST_MESSAGES


def due_range(
    tx: TranscriptReader, scope: ThreadScope, summary: Summary, *, deadline_s: float
) -> DueRange | None:
    """
    The oldest uncovered messages that a summary is due for; ``None``: nothing is due.

    Due is one when the uncovered live messages have more than ``max_tokens`` and are more
    than ``keep_last`` units. The range ends at the last clean cut that leaves ``keep_last``
    of them, and is never longer than a model can be shown. What this costs does not grow
    with what is covered.

    Args:
        deadline_s: Seconds after which a call without a result is abandoned.
    """
    records = live_records(tx, scope)
    gaps = list(_gaps(records, scope.thread.epoch_start))
    if not _exceed(tx, scope, gaps, summary.max_tokens):
        return None
    units = Uncovered(tx, scope, records).newest(summary.keep_last + 1, pinned=True)
    if len(units) <= summary.keep_last:
        return None
    kept_from = units[-summary.keep_last].first_seq if summary.keep_last else scope.thread.next_seq
    for gap in gaps:
        messages = _portion(tx, scope, records, gap, kept_from, deadline_s)
        if messages:
            before = tuple(one for one in records if one.end_seq < messages[0].seq)
            return DueRange(scope.thread.epoch, messages, before)
    return None


def _gaps(records: Sequence[Compaction], start: int) -> Iterator[_Gap]:
    """Yield the gaps before, between and behind *records*; some may hold no message."""
    for record in records:
        if start < record.start_seq:
            yield _Gap(start, record.start_seq - 1)
        start = record.end_seq + 1
    yield _Gap(start, None)


def _exceed(tx: TranscriptReader, scope: ThreadScope, gaps: Sequence[_Gap], most: int) -> bool:
    """Whether the messages of *gaps* have more than *most* tokens together."""
    found = 0
    for gap in reversed(gaps):
        found += _tokens(tx, scope, gap)
        if found > most:
            return True
    return False


def _tokens(tx: TranscriptReader, scope: ThreadScope, gap: _Gap) -> int:
    if gap.is_small:
        return sum(message.tokens for message in _messages(tx, scope, gap.start, gap.end))
    if gap.end is not None and not _holds_any(tx, scope, gap.start, gap.end):
        return 0
    _, tokens = tx.span(scope.thread.id, from_seq=gap.start, since=scope.since)
    if gap.end is not None:
        tokens -= tx.span(scope.thread.id, from_seq=gap.end + 1, since=scope.since)[1]
    return tokens


def _holds_any(tx: TranscriptReader, scope: ThreadScope, start: int, end: int) -> bool:
    thread_id = scope.thread.id
    return bool(tx.messages(thread_id, from_seq=start, to_seq=end, newest=1, since=scope.since))


def _portion(
    tx: TranscriptReader,
    scope: ThreadScope,
    records: Sequence[Compaction],
    gap: _Gap,
    kept_from: int,
    deadline_s: float,
) -> tuple[StoredMessage, ...]:
    """Read the messages of *gap* up to the last clean cut that is allowed; may be empty."""
    for window, is_all in _windows(tx, scope, gap):
        known = {message.seq: message for message in window}
        known |= _partners(tx, scope, records, window)
        units = units_of(known.values())
        # An open group forbids every cut behind it, so what lies there need not be read: a
        # call that nobody answers would cost each append as much as it holds up.
        if is_all or any(unit.is_open(tx.now, deadline_s) for unit in units):
            cuts = clean_cuts(units, now=tx.now, deadline_s=deadline_s)
            last = min(kept_from, window[-1].seq + 1)
            allowed = [cut for cut in cuts if window[0].seq < cut <= last]
            cut = _affordable(window, allowed)
            return tuple(message for message in window if message.seq < cut)
    return ()


def _windows(
    tx: TranscriptReader, scope: ThreadScope, gap: _Gap
) -> Iterator[tuple[list[StoredMessage], bool]]:
    """
    Yield the first messages of *gap*: one page, then as many as one summary may cover.

    Where erased ones lie before them, these are passed over.
    """
    end = scope.thread.next_seq - 1 if gap.end is None else gap.end
    start = gap.start
    while start <= end:
        last = min(end, start + MOST_MESSAGES - 1)
        for stop in sorted({min(last, start + PAGE - 1), last}):
            window = _messages(tx, scope, start, stop)
            if window:
                yield window, stop == last
        if window:
            return
        start = last + 1


def _partners(
    tx: TranscriptReader,
    scope: ThreadScope,
    records: Sequence[Compaction],
    window: Sequence[StoredMessage],
) -> dict[int, StoredMessage]:
    """Results of calls in *window* that lie behind it: they forbid cuts before them."""
    ids = sorted({call.id for unit in units_of(window) for call in unit.unanswered})
    found = tx.of_calls(scope.thread.id, ids) if ids else []
    return {
        message.seq: message
        for message in found
        if message.seq > window[-1].seq
        and scope.shows(message)
        and not any(one.start_seq <= message.seq <= one.end_seq for one in records)
    }


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


def _messages(
    tx: TranscriptReader, scope: ThreadScope, start: int, end: int | None
) -> list[StoredMessage]:
    return tx.messages(scope.thread.id, from_seq=start, to_seq=end, since=scope.since)


def is_unchanged(tx: TranscriptReader, scope: ThreadScope, due: DueRange) -> bool:
    """Whether the epoch and every message of *due* are unchanged."""
    if scope.thread.epoch != due.epoch:
        return False
    return tuple(_messages(tx, scope, due.start_seq, due.end_seq)) == due.messages


def due_fold(tx: TranscriptReader, scope: ThreadScope, summary: Summary) -> tuple[Compaction, ...]:
    """
    Return the records that are due to be merged: the oldest adjacent ones; or none.

    Due are they when the live summaries have more than half of ``max_tokens``. No more
    are taken than a model can be shown, and at least two.
    """
    records = live_records(tx, scope)
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

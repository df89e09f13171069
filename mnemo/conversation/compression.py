"""
Compression in the background: summaries that stand for old messages.

What is read is summarised without any lock or transaction held, and recorded only if it
is still what was read. A failure changes nothing; the originals are always there.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from mnemo.conversation.compaction import NewRecord, record
from mnemo.conversation.due import DueRange, due_fold, due_range, is_unchanged
from mnemo.conversation.scope import Scope
from mnemo.conversation.settings import ConversationParts, ThreadSettings
from mnemo.conversation.summarizers import ChatSummarizer, EmbeddedSummarizer, cut_to
from mnemo.errors import Conflict, InvalidReply, MnemoError, UsageError
from mnemo.events import CompactionRecorded, CompressionFailed
from mnemo.protocols import Summarizer, SummaryRequest, TranscriptReader, TranscriptWriter
from mnemo.runtime.flights import Flights
from mnemo.runtime.text import clean, is_blank
from mnemo.runtime.user_code import called
from mnemo.values.derived import Compaction, Origin
from mnemo.values.strategies import Summary

__all__ = ["Compressing"]

log = logging.getLogger("mnemo")

MOST_AT_ONCE = 4
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
        self._flights = Flights(self._run, spawn=parts.spawn, limit=MOST_AT_ONCE)
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
        """Something was appended: compress if that is due. A plain call."""
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
        # What is ours says what to do; of what is not, the place is wanted.
        trace = None if isinstance(error, MnemoError) else error
        log.warning("thread %r could not be compressed: %s", thread_id, error, exc_info=trace)
        what = clean(f"{type(error).__name__}: {error}")
        self._publish(CompressionFailed, thread_id=thread_id, error=what)
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
        self._publish(
            CompactionRecorded,
            thread_id=made.thread_id,
            start_seq=made.start_seq,
            end_seq=made.end_seq,
            level=made.level,
        )
        return made

    def _publish(self, kind: type[CompactionRecorded | CompressionFailed], **facts: object) -> None:
        parts = self._parts
        parts.publish(kind(repo_id=parts.repo_id, at=parts.clock.now(), **facts))  # type: ignore[arg-type]

    def _scope(self, tx: TranscriptReader, settings: ThreadSettings) -> Scope:
        return Scope.of(tx, settings, self._parts.config)


def _summaries(settings: ThreadSettings) -> list[Summary]:
    return [one for one in settings.compressions if isinstance(one, Summary)]


def _recorded(tx: TranscriptWriter, scope: Scope, new: NewRecord) -> Compaction | None:
    """The record; ``None``: something is in its way, or somebody made the same."""
    try:
        made, inserted = record(tx, scope, new)
    except Conflict:
        return None
    return made if inserted else None

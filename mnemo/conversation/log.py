"""One thread's message log; a message is new if its id is not in the thread."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar

from mnemo.conversation import compaction
from mnemo.conversation.load import Nearness, asks_for_meaning, load
from mnemo.conversation.scope import ConversationParts, OfThread, ThreadScope, ThreadSettings
from mnemo.errors import Conflict, StoreCorrupt, StoreError
from mnemo.events import RecallFailed
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.clock import Breather, new_id
from mnemo.runtime.flights import Flights
from mnemo.runtime.spans import memory_attributes
from mnemo.runtime.tasks import Threads, computed
from mnemo.runtime.text import clean, is_blank
from mnemo.runtime.transactions import transacted
from mnemo.runtime.validation import is_small, stored_text, whole_number
from mnemo.values.counting import Count, tokens_of
from mnemo.values.derived import Compaction, Thread
from mnemo.values.erasure import ErasureReport, Selection
from mnemo.values.messages import COMPARED_FIELDS, Message, StoredMessage, is_view_made
from mnemo.wire import Format, Given, listed, messages_of


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """A valid message that is to be stored, with its token count and the id it would get."""

    message: Message
    id: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Appended:
    """
    The result of an append: *messages*, one per message of the batch that was not left out, in
    order; how many of them are new (*stored*); whether their job was *demanded*, and is due now.
    """

    messages: list[StoredMessage]
    stored: int
    is_due: bool = False
    demanded: bool = False


def drafts_of(
    messages: Iterable[Message], count: Count, *, pause: Callable[[], None] | None = None
) -> list[MessageDraft]:
    """Leave out what views made, and count the tokens of the others, with a *pause* after each."""
    drafts = []
    for message in messages:
        if not is_view_made(message):
            tokens = message.token_count or tokens_of(message, count)
            drafts.append(MessageDraft(message, message.id or new_id("message"), tokens))
        if pause is not None:
            pause()
    return drafts


def append_drafts(
    tx: TranscriptWriter,
    scope: ThreadScope,
    drafts: Sequence[MessageDraft],
    *,
    expected_seq: int | None = None,
    search_tools: bool = False,
) -> Appended:
    """
    Store the new messages of a batch at the end of the thread; what is there already is given as it
    is stored, an id that was erased, or whose message has expired, is left out.

    *search_tools*: Whether calls and results are searched for as well. *Raises* ``Conflict``: an id
    stands for something else already, or *expected_seq* is not next.
    """
    ids = [draft.id for draft in drafts if draft.message.id is not None]
    known = tx.by_id(scope.thread.id, ids) if ids else {}
    erased = tx.erased_ids(scope.thread.id, ids) if len(known) < len(ids) else frozenset()
    entries: list[StoredMessage] = []
    new: dict[str, StoredMessage] = {}
    for draft in drafts:
        there = known.get(draft.id) or new.get(draft.id)
        if there is None and draft.id not in erased:
            there = new[draft.id] = _stored(draft, scope.thread, len(new), tx.now)
        elif there is None or not scope.is_alive(there):
            continue
        else:
            _require_same(there, draft.message)
        entries.append(there)
    if new:
        _require_next(scope.thread, expected_seq)
        tx.add(list(new.values()), search_tools=search_tools)
    if new or scope.is_stale:
        tx.keep(replace(scope.thread, next_seq=scope.thread.next_seq + len(new)))
    return Appended(entries, len(new))


def _stored(draft: MessageDraft, thread: Thread, place: int, now: datetime) -> StoredMessage:
    values = {name: getattr(draft.message, name) for name in _GIVEN}
    values["at"] = draft.message.at or now
    return StoredMessage.restored(
        **values,
        id=draft.id,
        token_count=draft.tokens,
        thread_id=thread.id,
        seq=thread.next_seq + place,
        epoch=thread.epoch,
        recorded_at=now,
    )


def _require_same(there: StoredMessage, given: Message) -> None:
    differing = [name for name in COMPARED_FIELDS if getattr(there, name) != getattr(given, name)]
    if differing:
        raise Conflict(
            f"message {there.id!r} is in thread {there.thread_id!r} with another "
            f"{' and '.join(differing)}; give what is new an id of its own"
        )


def _require_next(thread: Thread, expected_seq: int | None) -> None:
    if expected_seq is not None and expected_seq != thread.next_seq:
        raise Conflict(
            f"the next seq of thread {thread.id!r} is {thread.next_seq}, not {expected_seq}: "
            "somebody else has appended; read the history and decide again"
        )


_GIVEN = tuple(f.name for f in fields(Message) if f.name not in ("id", "token_count"))


log: logging.Logger = logging.getLogger("mnemo")

MOST_READ = 8_192
"""Characters of a query that are read."""
T = TypeVar("T")


class MessageLog(OfThread):
    """
    The history of one thread; all handles of a thread share everything.

    Making one touches nothing. A ``ttl_s`` that the handle was given is stored with its
    next write or reading, if the thread has another one.
    """

    def __init__(self, parts: ConversationParts, settings: ThreadSettings) -> None:
        super().__init__(parts, settings)
        self._count = parts.config.conversation.count
        self._threads = Threads()

    def __repr__(self) -> str:
        return f"<Conversation {self.thread_id!r}>"

    @property
    def thread_id(self) -> str:
        """The thread's id, as given."""
        return self._thread_id

    async def append(
        self,
        messages: Given | Iterable[Given],
        *,
        expected_seq: int | None = None,
        format: Format | None = None,
    ) -> list[StoredMessage]:
        """
        Store one message, or several in one transaction, and give them as they are stored.

        What is there already by its id is not stored again. What ``load`` made, and what
        was erased or has expired, is left out of the result. Durable and searchable once it
        returns.

        Args:
            messages: One or several: ``Message`` values, mappings of the same keys, or
                mappings and SDK objects of a wire format; see ``mnemo.wire``.
            format: Of the mappings; ``None``: told by their keys, for the whole batch.
            expected_seq: What the next seq must be, if anything of the batch is new.

        Raises:
            ValueError: A message, or *expected_seq*, is invalid, or there are more than 1,000
                messages; nothing was stored.
            Conflict: An id stands for another message already, or *expected_seq* is not
                next; nothing was stored. *Cancellation*: the batch is stored as a whole or
                not at all; appending it again with the same ids is safe.
        """
        if expected_seq is not None:
            whole_number("expected_seq", expected_seq, 0)
        return await self._append(listed(messages), expected_seq=expected_seq, format=format)

    async def _append(
        self,
        batch: Sequence[Given],
        *,
        expected_seq: int | None = None,
        format: Format | None = None,
        at_once: bool = False,
    ) -> list[StoredMessage]:
        """Append *batch*, of a handle that remembers with its job; *at_once*: due now."""
        if not batch:
            return []
        parts, drafts = self._parts, await self._drafts(batch, format)

        def work(tx: TranscriptWriter, scope: ThreadScope) -> Appended:
            search_tools = parts.config.recall.index_tool_results
            done = append_drafts(
                tx, scope, drafts, expected_seq=expected_seq, search_tools=search_tools
            )
            if not (self._settings.remember and parts.demand and done.messages):
                return done
            is_due = parts.demand(tx, done.messages, at_once=at_once)
            return replace(done, is_due=is_due, demanded=True)

        named = memory_attributes("create_memory", parts.repo_id)
        with parts.spans.span("create_memory", attributes=named) as span:
            span.set("mnemo.thread.id", self.thread_id)
            appended = await self._write(work, self._was_appended, written=self._holds)
            span.set("gen_ai.memory.record.count", len(appended.messages))
        return appended.messages

    def _was_appended(self, appended: Appended) -> None:
        if appended.stored:
            self._parts.appended(self._settings)
        if appended.is_due:
            self._parts.poke_jobs()

    def _holds(self, tx: TranscriptReader, appended: Appended) -> bool:
        if appended.demanded and not appended.stored:
            return False  # that they are there says nothing of the demand
        ids = {str(message.id) for message in appended.messages}
        return ids == tx.by_id(self.thread_id, sorted(ids)).keys()

    async def _drafts(self, batch: Sequence[Given], format: Format | None) -> list[MessageDraft]:
        given = messages_of(batch, format)
        if self._parts.config.conversation.token_counter is None and is_small(batch):
            return drafts_of(given, self._count)
        work = partial(drafts_of, given, self._count, pause=Breather().breathe)
        return await self._threads.run(work)

    async def history(self, *, from_seq: int = 0, to_seq: int | None = None) -> list[StoredMessage]:
        """
        The originals of a range, ascending, of all epochs; expired and purged ones are absent.

        Args:
            from_seq: At least 0; inclusive, like *to_seq*. ``None``: to the end.

        Raises:
            ValueError: A seq is negative, or the range is turned round.
                *Cancellation*: safe.
        """
        _require_range(from_seq, to_seq)
        return await self._read(
            lambda tx, scope: scope.messages(tx, from_seq=from_seq, to_seq=to_seq)
        )

    async def recent(self, count: int | None = None) -> list[StoredMessage]:
        """
        The newest originals of the present epoch, ascending, without summaries.

        Args:
            count: At least 1; ``None``: all.

        Raises:
            ValueError: *count* is below 1. *Cancellation*: safe.
        """
        if count is not None:
            whole_number("count", count, 1)
        return await self._read(
            lambda tx, scope: scope.messages(tx, from_seq=scope.thread.epoch_start, newest=count)
        )

    async def load(
        self, *, query: str | None = None, budget_tokens: int | None = None
    ) -> list[Message]:
        """
        What the agent is to read, ascending: summaries in place of what was compacted, system
        messages, and what the retrieval strategy chooses, tool groups whole and complete.

        Nothing is written, and no model is asked; a query under ``Nearest`` is embedded.
        If that fails, the newest messages are given, and ``RecallFailed`` is sent.

        Args:
            query: What ``Nearest`` looks for; blank is the same as none.
            budget_tokens: At least 1. Pinned messages and the newest unit are required;
                then whole units are taken newest first as long as they fit.

        Raises:
            ValueError: The budget is below 1, or the query is no text.
            UsageError: What is required exceeds the budget; both numbers are named.
                *Cancellation*: safe.
        """
        if budget_tokens is not None:
            whole_number("budget_tokens", budget_tokens, 1)
        if query is not None and not isinstance(query, str):
            raise ValueError(f"query must be text or None, not {type(query).__name__}")
        near = await self._nearness(query)
        config = self._parts.config.conversation
        loaded = await self._read(
            lambda tx, scope: load(tx, scope, self._settings, config, near, budget_tokens)
        )
        if near.failure is not None:
            self._parts.tell(RecallFailed, query=query or "", error=str(near.failure))
        return loaded

    async def _nearness(self, query: str | None) -> Nearness:
        if query is None or is_blank(query) or not asks_for_meaning(self._settings.retrieval):
            return Nearness()
        try:
            rows = await self._parts.embedder.embed([clean(query[:MOST_READ])], kind="query")
            return Nearness(vector=rows[0])
        except Exception as error:
            return Nearness(failure=error)

    async def compactions(self, *, include_superseded: bool = False) -> list[Compaction]:
        """
        The records of the present epoch, ascending by range.

        Args:
            include_superseded: Also those that a level-2 record took the place of.
                *Cancellation*: safe.
        """
        return await self._read(
            partial(compaction.compactions, include_superseded=include_superseded)
        )

    async def compact(self, start_seq: int, end_seq: int, summary_text: str) -> Compaction:
        """
        Have a summary stand for a range of messages, both ends inclusive; they stay.

        The same range and text again gives the record that exists.

        Raises:
            ValueError: The text is blank; the range is none, is not all given yet, reaches
                into an earlier epoch, has no message left, or cuts a tool group (whole ranges
                are named).
            Conflict: A live record shares a seq with it; it is named. *Cancellation*:
                completes; calling again is safe.
        """
        _require_range(start_seq, whole_number("the last seq", end_seq, 0, math.inf))
        if not isinstance(summary_text, str) or is_blank(summary_text):
            raise ValueError("a summary cannot be blank")
        text = stored_text("a summary", summary_text)
        new = compaction.NewRecord(
            start_seq=start_seq,
            end_seq=end_seq,
            text=text,
            tokens=await computed(partial(self._count, text), text),
            origin="caller",
        )
        known = await self._read(partial(_prospect, new=new))
        if known is not None:
            return known
        work = partial(compaction.insert_record, new=new)
        made, _ = await self._write(work, self._was_compacted, written=self._has_record)
        return made

    def _has_record(self, tx: TranscriptReader, recorded: tuple[Compaction, bool]) -> bool:
        return any(recorded[0].id == one.id for one in tx.all(Compaction, self.thread_id))

    def _was_compacted(self, recorded: tuple[Compaction, bool]) -> None:
        made, is_new = recorded
        if is_new:
            compaction.tell_of_record(self._parts, made)

    async def clear(self) -> None:
        """
        Begin the thread anew: nothing from before is loaded; ``history`` is kept whole.

        Raises:
            StoreError: Nothing was changed. *Cancellation*: completes.
        """
        await self._write(
            _clear, written=lambda tx, epoch: tx.thread(self.thread_id).epoch >= epoch
        )

    async def next_seq(self) -> int:
        """The seq that the next stored message gets. *Cancellation*: safe."""
        return await self._read(lambda tx, scope: scope.thread.next_seq)

    async def withdraw(self, count: int = 1) -> list[StoredMessage]:
        """
        Take back the newest messages of the present epoch, as if they had not been said.

        They are chosen and erased in one transaction, so two callers, of two processes too,
        never get the same message. What was derived from them alone goes as ``forget`` with
        ``message_ids`` has it: vectors, summaries of their range, steps and what extraction
        made of these; sessions that lose steps are ended. The rest of a tool group stays.
        Their bytes go with the next scrub.

        Args:
            count: At least 1.

        Returns:
            The messages, ascending; fewer than *count* if the epoch has no more.

        Raises:
            ValueError: *count* is below 1.
            StoreError: Nothing was erased. *Cancellation*: completes.
        """
        whole_number("count", count, 1)
        since = await self._read(lambda tx, scope: scope.since)
        newest = Selection(thread_id=self.thread_id, newest=count, since=since, scrub=False)
        return list((await self._parts.forget(newest)).messages)

    async def purge(self, *, scrub: bool = True) -> ErasureReport:
        """
        Erase the thread and all that was derived from it alone; its seqs go on.

        Args:
            scrub: False: return once it is erased; the bytes go with the next scrub.

        Raises:
            StoreError: Nothing was erased. *Cancellation*: the transaction completes.
        """
        return (await self._parts.forget(Selection(thread_id=self.thread_id, scrub=scrub))).report

    async def _read(self, work: Callable[[TranscriptReader, ThreadScope], T]) -> T:
        def within(tx: TranscriptReader) -> tuple[T, bool]:
            scope = self._scope(tx)
            return work(tx, scope), scope.is_stale

        result, is_stale = await self._parts.store.reading(within)
        if is_stale:
            await self._keep_ttl()
        return result

    async def _keep_ttl(self) -> None:
        try:
            await self._write(_keep)
        except StoreError as error:
            log.warning(
                "the ttl of thread %r is kept with the next write: %s", self.thread_id, error
            )

    async def _write(
        self,
        work: Callable[[TranscriptWriter, ThreadScope], T],
        then: Callable[[T], object] = lambda result: None,
        *,
        written: Callable[[TranscriptReader, T], bool] = lambda tx, result: False,
    ) -> T:
        """Run *work* in a transaction; *then* is as of ``transacted``, *written* its ``made``."""
        store = self._parts.store
        return await transacted(
            partial(store.writing, thread_id=self._thread_id),
            store.reading,
            lambda tx: work(tx, self._scope(tx)),
            written,
            then,
        )


def _prospect(
    tx: TranscriptReader, scope: ThreadScope, *, new: compaction.NewRecord
) -> Compaction | None:
    existing = compaction.existing_record(tx, scope, new)
    if existing is None:
        compaction.require_whole(tx, scope, new.start_seq, new.end_seq)
    return existing


def _clear(tx: TranscriptWriter, scope: ThreadScope) -> int:
    """Begin the next epoch of a thread that has messages; the present one."""
    thread = scope.thread
    if not scope.is_new:
        begin = thread.next_seq
        thread = replace(thread, epoch=thread.epoch + 1, epoch_start=begin, boundary=begin)
        tx.keep(thread)
    return thread.epoch


def _keep(tx: TranscriptWriter, scope: ThreadScope) -> None:
    if scope.is_stale:
        tx.keep(scope.thread)


def _require_range(from_seq: object, to_seq: object) -> None:
    first = whole_number("the first seq", from_seq, 0, math.inf)
    if to_seq is not None and first > whole_number("the last seq", to_seq, 0, math.inf):
        raise ValueError(f"the range {from_seq}..{to_seq} is turned round")


# ── The expiry sweep: readers never see an expired message, swept or not ──────────


BATCH = 128
"""Messages that one transaction looks at, or deletes (S)."""
MOST_KNOWN = 10_000
"""Threads whose oldest message is remembered at most, the last ones swept (S)."""
MOST_RUNNING = 1
"""Threads that are swept at once: other writers wait for one batch, not for several."""


class _Swept(NamedTuple):
    """A swept thread: nothing is left before *from_seq*, when the *oldest*, if any, came."""

    from_seq: int
    oldest: datetime | None


class _Found(NamedTuple):
    """
    What one reading of a thread found: seq and time of what has *expired*, ascending; *then*: what
    is known once that is deleted; *done*: nothing else can have expired.
    """

    expired: tuple[tuple[int, datetime], ...]
    then: _Swept
    done: bool


class ExpirySweep:
    """Sweeps the threads of one repository, each at most once at a time."""

    def __init__(self, parts: ConversationParts) -> None:
        self._parts = parts
        self._flights = Flights(self._run, spawn=parts.spawn, limit=MOST_RUNNING)
        self._known: dict[str, _Swept] = {}

    def appended(self, settings: ThreadSettings) -> None:
        """Sweep the thread after an append, if its messages expire; a plain call."""
        ttl_s = settings.ttl_s
        if ttl_s or self._parts.config.conversation.ttl_s or settings.thread_id in self._known:
            self._flights.poke(settings.thread_id)

    async def sweep(self) -> int:
        """
        Sweep every thread; how many messages were deleted. A damaged one is logged, and stays.

        *Raises* ``StoreError``: what was deleted before stays so. *Cancellation*: safe; likewise.
        """
        threads = await self._parts.store.reading(lambda tx: tx.threads())
        default = self._parts.config.conversation.ttl_s
        expiring = [one.id for one in threads if one.ttl_s or (one.ttl_s is None and default)]
        deleted = 0
        for thread_id in expiring:
            with suppress(StoreCorrupt):  # the flight has logged it
                deleted += await self._flights.join(thread_id)
        return deleted

    async def _run(self, thread_id: str) -> int:
        deleted = 0
        while True:
            known = self._known.pop(thread_id, _Swept(0, None))
            found = await self._parts.store.reading(partial(self._look, thread_id, known))
            if found is None:
                return deleted
            if found.expired:
                erase = partial(self._erase, thread_id, found.expired)
                erased = await self._parts.store.writing(erase, thread_id=thread_id)
                deleted += erased
                if erased < len(found.expired):
                    continue  # they may live longer now: what is left is looked at anew
            self._known[thread_id] = found.then
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
            if found.done:
                return deleted

    def _look(self, thread_id: str, known: _Swept, tx: TranscriptReader) -> _Found | None:
        """Find the next batch to delete; ``None``: the messages of this thread never expire."""
        since = self._since(tx, thread_id)
        if since is None:
            return None
        if known.oldest is not None and known.oldest >= since:
            return _Found((), known, True)
        batch = tx.recorded(thread_id, from_seq=known.from_seq, limit=BATCH)
        expired = tuple((seq, at) for seq, at in batch if at < since)
        alive = next((_Swept(seq, at) for seq, at in batch if at >= since), None)
        if alive is not None:
            return _Found(expired, alive, True)
        end = batch[-1][0] + 1 if batch else tx.thread(thread_id).next_seq
        return _Found(expired, _Swept(end, None), not batch)

    def _erase(
        self, thread_id: str, expired: Sequence[tuple[int, datetime]], tx: TranscriptWriter
    ) -> int:
        # How long messages live may have been changed since they were looked at.
        since = self._since(tx, thread_id)
        seqs = [seq for seq, at in expired if since is not None and at < since]
        return tx.erase(thread_id, seqs).messages

    def _since(self, tx: TranscriptReader, thread_id: str) -> datetime | None:
        return ThreadScope.stored(tx, thread_id, self._parts.config).since

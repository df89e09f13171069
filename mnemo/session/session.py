"""
The session: the write side of a repository.

Awaited calls act now or raise; queued calls are accepted or raise, and are run by the session's own
task, one at a time. What is legal is in ``machine``; what they do, in ``core`` (appends) and
``work`` (all else).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import anyio

from mnemo.errors import (
    Conflict,
    NotToFeed,
    RateLimited,
    SessionClosed,
    SessionError,
    StoreError,
    StoreLocked,
)
from mnemo.events import SessionExpired
from mnemo.prompts.usage import UsageMeter
from mnemo.runtime.clock import new_id
from mnemo.runtime.operations import Callback, PendingOperation
from mnemo.runtime.spans import Span
from mnemo.runtime.tasks import Home, completed, computed, on_clock
from mnemo.runtime.text import is_blank
from mnemo.runtime.validation import (
    one_of,
    stored_id,
    stored_object,
    stored_text,
    stored_time,
    whole_number,
)
from mnemo.session.core import Appending
from mnemo.session.episode import step_drafts
from mnemo.session.parts import CommitReceipt, SessionContext, SessionParts, SessionStatistics
from mnemo.session.work import EpisodeWork, failure_of
from mnemo.values.journal import Journal, SessionState
from mnemo.values.messages import StoredMessage
from mnemo.values.steps import Step, StepDraft
from mnemo.wire import Given, listed

log: logging.Logger = logging.getLogger("mnemo")

CONTEXT_LINES = 5
"""Steps that ``context()`` shows."""

MAX_RATE_LIMIT_PAUSE_S = 30.0
"""Longest pause between two tries of ``close_and_commit``, in seconds of the clock."""

_RELEASES = 3
"""Times that a session is given up while others hold the write lock, 10 s each by default (S)."""


def checked_goal(goal: str) -> str:
    """Return *goal*, storable. *Raises* ``ValueError``: it is blank, no text or too long."""
    if not isinstance(goal, str) or is_blank(goal):
        raise ValueError("goal cannot be blank")
    return stored_text("goal", goal)


class Session:
    """
    Collects one episode at a time and turns it into memory; made by ``Repository``.

    Awaited calls raise ``SessionError`` (with ``reason``, ``state``, ``operation``) where
    they are not legal, and change nothing then.
    """

    def __init__(self, parts: SessionParts, journal: Journal) -> None:
        self._home = Home(f"session {journal.record.id!r}")
        self._parts = parts
        self._work = EpisodeWork(parts, journal, self._expire)
        self._named = parts.named
        self._shut: anyio.Event | None = None
        if journal.error is not None:
            self._work.error = failure_of(journal, journal.record.episode_id)

    def _begin(self) -> None:
        """Start the session's task and take up what the journal left unfinished."""
        self._parts.spawn(_drive, self._work)
        work = self._work
        work.set_timers()
        if work.life.state is SessionState.EXTRACTING:
            self._work.begin_extraction()
        elif work.lane is not None and work.life.state is SessionState.COLLECTING:
            work.lane.wake()

    def __repr__(self) -> str:
        steps = len(self._work.book.steps) if self._work.book else 0
        ended = ", ended" if self._work.life.closing else ""
        return f"<Session {self.id!r} {self.state}, {steps} step{'s' * (steps != 1)}{ended}>"

    # ── What it is ───────────────────────────────────────────────────────────────────

    @property
    def id(self) -> str:
        """Unique in the repository."""
        return self._work.id

    @property
    def repo_id(self) -> str:
        """The repository it writes."""
        return self._parts.repo_id

    @property
    def goal(self) -> str:
        """The goal of the present, or else the last, episode."""
        return self._work.goal

    @property
    def state(self) -> SessionState:
        """The state that the last durable act led to; kept when the session has ended."""
        return self._work.life.state

    @property
    def _ending(self) -> bool:
        """Whether it refuses every call, because it has ended or is about to."""
        return self._work.life.closing

    @property
    def busy(self) -> bool:
        """Whether an extraction, background trajectory work or a commit is in flight."""
        return self._work.life.busy

    @property
    def episode_id(self) -> str | None:
        """The open episode's; ``None`` when idle."""
        return self._work.book.id if self._work.book else None

    @property
    def error(self) -> Exception | None:
        """The last failure; cleared by the next success, discard or new episode."""
        return self._work.error

    @property
    def _meter(self) -> UsageMeter:
        """Counts what its calls of models cost, and what is done at its expense."""
        return self._parts.meter

    def context(self) -> SessionContext | None:
        """The goal and the last five durable steps; ``None`` when idle."""
        book = self._work.book
        if book is None:
            return None
        lines = (f"{step.observation} -> {step.action}" for step in book.steps[-CONTEXT_LINES:])
        return SessionContext(goal=book.goal, steps=tuple(lines))

    def recent_steps(self, count: int) -> tuple[Step, ...]:
        """
        The last *count* durable steps of the present episode, ascending.

        They tell whoever resumes a session how far it came: with their keys, times and
        annotations, which ``context`` leaves out.

        Raises:
            ValueError: *count* is no whole number from 1.
        """
        book, most = self._work.book, whole_number("count", count, 1)
        return tuple(book.steps[-most:]) if book else ()

    def statistics(self) -> SessionStatistics:
        """Levels of every bounded thing, and what models have cost."""
        work, meter = self._work, self._parts.meter
        return SessionStatistics(
            state=work.life.state,
            steps=len(work.book.steps) if work.book else 0,
            pending_operations=len(work.queue),
            append_backlog=work.book.backlog if work.book else 0,
            running_workers=work.running_workers,
            model_calls=meter.total.calls,
            input_tokens=meter.total.input_tokens,
            output_tokens=meter.total.output_tokens,
            cost_usd=meter.total.cost_usd,
            cached_tokens=meter.total.cached_tokens,
            usage=meter.by_purpose,
            stages=meter.stages,
            left_out=meter.left_out,
            queue=work.queue.names,
        )

    # ── Awaited calls ────────────────────────────────────────────────────────────────

    async def start_episode(self, goal: str) -> None:
        """
        Collect for a new goal; legal in ``idle``.

        Raises:
            ValueError: Blank goal.
            SessionError: ``not_idle``, ``extraction_in_progress``, ``session_failed``.
                *Cancellation*: safe; started or not, never half.
        """
        goal = checked_goal(goal)
        self._check_usable("start_episode")
        await self._work.start_episode(goal)

    async def append(
        self,
        observation: str,
        action: str,
        *,
        at: datetime | str | None = None,
        actor: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Step:
        """
        Add a step; returns once it is durable. No model stands in between.

        Waits only for the disk and, when ``config.session.max_append_backlog`` steps
        wait for annotation, for room.

        Args:
            observation: What was said or seen; may be empty if *action* is not.
            action: What the agent did about it.
            at: When, a ``datetime`` or ISO 8601 text; without a zone UTC; default: now.
            actor: Whose words the observation is; default ``config.extraction.default_actor``.
            key: Makes it idempotent: the same key again gives the first step, in any state.
            metadata: A JSON object, kept and given back.

        Raises:
            ValueError: Both texts blank, or an argument that cannot be stored.
            SessionError: ``not_collecting``, ``extraction_in_progress``.
            Conflict: Another service owns the session by now.
            StoreError: The step could not be written; the session can go on.
                *Cancellation*: safe; the step is durable with its index, or left no
                trace. Ask again with the same *key* to know.
        """
        with self._parts.spans.span("append", attributes=self._named) as span:
            self._check_usable("append")
            drafting = partial(self._draft, observation, action, at, actor, key, metadata)
            draft = await computed(drafting, observation, action, metadata)
            return await self._work.append(draft, span)

    async def append_messages(self, messages: Given | Iterable[Given]) -> list[Step]:
        """
        Add chat messages as steps, in order; each is durable before the next is written.

        What a user, the system or a tool says is observed; what an assistant says, thinks
        and calls is acted. Summaries, messages that say nothing, and those of a thread that
        ``remember`` has had extracted are left out. A step's key is its message's id
        (``<id>@<thread>`` for one of a second thread), so that the same messages again give
        the same steps; of a message without an id, another one.

        Args:
            messages: One or several, as ``Conversation.append`` takes them or ``history``
                gives them.

        Returns:
            The step of each message that became one, in order.

        Raises:
            ValueError: One of them is no message, or there are more than 1,000; nothing was
                added.
            SessionError: As ``append``.
            StoreError: A step could not be written. Those before it are durable, none
                after it was tried: the same messages again add the rest.
                *Cancellation*: as for a failure; the step being written is durable or not.
        """
        steps: list[Step] = []
        for draft in await self._drafts(listed(messages), is_fed=False):
            with (
                self._parts.spans.span("append", attributes=self._named) as span,
                suppress(NotToFeed),
            ):
                self._check_usable("append")
                steps.append(await self._work.append(draft, span))
        return steps

    async def _take_fed(self, messages: Sequence[StoredMessage]) -> None:
        """See ``FeedTarget``. *Cancellation*: each step is durable or not."""
        with self._parts.spans.span("append", attributes=self._named):
            drafts = await self._drafts(messages, is_fed=True)
            # Handed over in one turn of the loop, so written together.
            taken = [await self._work.take(draft) for draft in drafts]
            for one in taken:
                with suppress(NotToFeed):
                    if isinstance(one, Appending):
                        await one.wait()

    async def _drafts(self, given: Sequence[Given], *, is_fed: bool) -> list[StepDraft]:
        self._check_usable("append")
        make = partial(
            step_drafts,
            given,
            now=self._parts.clock.now(),
            default_actor=self._parts.config.extraction.default_actor,
            is_fed=is_fed,
        )
        drafts = await computed(make, *given)
        self._check_usable("append")
        return drafts

    def held_messages(self, thread_id: str) -> list[str]:
        """
        Ids of a conversation thread's messages that it has steps of, the last step first.

        Of all its episodes; what is still on its way to the store is not among them. It tells
        where a feed begins that is to take the whole thread: at ``from_seq=0`` if none is held,
        otherwise behind the last one, which is the default.
        """
        known = [step for step in self._work.keys.values() if isinstance(step, Step)]
        steps = [step for step in known if step.thread_id == thread_id and step.message_id]
        steps.sort(key=lambda step: step.ordinal, reverse=True)
        return [str(step.message_id) for step in steps]

    async def close(self) -> None:
        """
        End the episode; returns once that is durable and extraction has been started.

        Raises:
            SessionError: ``not_collecting``; ``extraction_in_progress``, also while
                auto-commit works in the background. *Cancellation*: safe; a close that
                is durable is extracted.
        """
        self._check_usable("close")
        await self._work.close()

    async def commit(self, *, use_model: bool | None = None) -> CommitReceipt:
        """
        Write the staged changeset in one transaction; in ``failed``, start the retry.

        Args:
            use_model: False: a retry extracts what is not extracted yet without the chat model, in
                this process. If that dies meanwhile, the episode is extracted as ever. Anything
                else: with it, if there is one.

        Returns:
            ``status == "committed"`` after the transaction, ``"retrying"`` in ``failed``.

        Raises:
            SessionError: ``not_ready``, ``extraction_in_progress``, ``commit_in_progress``.
            CommitFailed: Nothing was written; state, changeset and its id are unchanged.
                *Cancellation*: completes; ``CancelledError`` is raised after the end.
        """
        self._check_usable("commit")
        if await self._work.resolve_doubt("commit"):
            return CommitReceipt(status="retrying")
        self._work.life.require("commit")
        return await completed(self._work.begin_commit(use_model=use_model is not False))

    async def discard(self) -> None:
        """
        End the episode without committing; its steps leave recall, not the record.

        Raises:
            SessionError: ``not_discardable``, ``extraction_in_progress``.
                *Cancellation*: safe; discarded or not, never half.
        """
        self._check_usable("discard")
        await self._work.discard()

    async def close_and_commit(
        self, *, max_retries: int = 2, timeout_s: float | None = None
    ) -> CommitReceipt:
        """
        Close, wait for extraction (retrying it if it fails) and commit.

        Under auto-commit the receipt covers the whole episode.

        Args:
            max_retries: Extractions after the first, at most; ≥ 0.
            timeout_s: Seconds of the clock to wait; it bounds the waiting, not the work.

        Raises:
            ValueError: A number is out of range.
            ExtractionFailed: The last one; the state is ``failed``.
            TimeoutError: Extraction goes on; the session is as it would have been.
                *Cancellation*: only the wait ends.
        """
        whole_number("max_retries", max_retries, 0)
        self._check_usable("close")
        whole = partial(self._close_and_commit, max_retries)
        return await on_clock(self._parts.clock.sleep, timeout_s, whole)

    async def _close_and_commit(self, max_retries: int) -> CommitReceipt:
        work = self._work
        await work.until(lambda: work.life.closing or not work.life.background)
        await self.close()
        for tries in range(max_retries + 1):
            state = await self.wait_for(SessionState.READY, SessionState.FAILED, SessionState.IDLE)
            if state is SessionState.READY:
                work.life.require("commit")
                return await self._work.begin_commit()
            if state is SessionState.IDLE:
                assert work.receipt is not None
                return work.receipt
            if tries < max_retries:
                await self._pause_before_retry()
                await self.commit()
        assert work.error is not None
        raise work.error

    async def _pause_before_retry(self) -> None:
        cause = self._work.error.__cause__ if self._work.error else None
        if isinstance(cause, RateLimited) and cause.retry_after_s:
            await self._parts.clock.sleep(min(cause.retry_after_s, MAX_RATE_LIMIT_PAUSE_S))

    async def wait_for(
        self, *states: SessionState | str, timeout_s: float | None = None
    ) -> SessionState:
        """
        Wait until the session is in one of *states*, without polling.

        A state that is held for an instant only is not missed.

        Raises:
            ValueError: No state, or none of the five.
            SessionClosed: The session ended first.
            TimeoutError: *timeout_s* seconds of the clock are over.
                *Cancellation*: safe.
        """
        wanted = frozenset(one_of("a state", one, tuple(SessionState)) for one in states)
        if not wanted:
            raise ValueError("wait_for needs at least one state")
        self._check_usable("wait_for")
        if self.state in wanted:
            return self.state
        return await on_clock(
            self._parts.clock.sleep, timeout_s, partial(self._work.waiters.wait, wanted)
        )

    # ── Queued calls ─────────────────────────────────────────────────────────────────

    def append_async(
        self,
        observation: str,
        action: str,
        callback: Callback | None = None,
        *,
        at: datetime | str | None = None,
        actor: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> PendingOperation:
        """
        Queue an ``append``; ends with ``"appended"``.

        With nothing ahead of it in ``collecting`` it goes straight to the store, in one
        order with awaited appends, also while background trajectories run.

        Raises:
            ValueError: As ``append``.
            SessionError: ``invalid_operation``, ``invalid_queued_operation``,
                ``pending_queue_full``, ``append_backlog_full``; nothing was accepted.
        """
        self._check_usable("append")
        draft = self._draft(observation, action, at, actor, key, metadata)
        append = partial(self._work.append_queued, draft)
        operation = PendingOperation("append", append, callback)
        known = self._work.keys.get(draft.key) if draft.key is not None else None
        if known is None and not self._goes_straight():
            return self._accept(operation)
        operation._begun = True
        if known is None:
            self._work.refuse_full_backlog()
        span = self._parts.spans.span("append", attributes=self._named)
        ended = partial(self._append_ended, operation, span)
        if isinstance(known, Step):
            ended(known)
        else:
            (known or self._work.submit(draft)).listeners.append(ended)
        return operation

    def close_async(self, callback: Callback | None = None) -> PendingOperation:
        """Queue a ``close``; ends with ``"closed"`` once it is durable. *Raises* as the others."""
        return self._accept(PendingOperation("close", self._work.close, callback))

    def commit_async(self, callback: Callback | None = None) -> PendingOperation:
        """
        Queue a ``commit``; ends with ``"committed"`` once everything is written.

        In ``failed`` it retries the extraction and commits the result, as one operation.
        *Raises* as the others.
        """
        return self._accept(PendingOperation("commit", self._work.commit_queued, callback))

    def discard_async(self, callback: Callback | None = None) -> PendingOperation:
        """Queue a ``discard``; ends with ``"discarded"``. *Raises* as the others."""
        return self._accept(PendingOperation("discard", self._work.discard, callback))

    def start_episode_async(self, goal: str, callback: Callback | None = None) -> PendingOperation:
        """Queue a ``start_episode``; ends with ``"started"``. *Raises* as the others."""
        start = partial(self._work.start_episode, checked_goal(goal))
        return self._accept(PendingOperation("start_episode", start, callback))

    def _accept(self, operation: PendingOperation) -> PendingOperation:
        self._check_usable(operation.name)
        operation._place = self._parts.spans.here()
        return self._work.queue.accept(operation, self._work.life)

    def _goes_straight(self) -> bool:
        work = self._work
        return work.queue.nothing_waits and work.life.accepts_appends and not work.in_doubt

    def _append_ended(
        self, operation: PendingOperation, span: Span, result: Step | BaseException
    ) -> None:
        error = None if isinstance(result, Step) else result
        if isinstance(result, Step):
            span.set("mnemo.step.index", result.index)
        span.end(error)
        self._work.queue.end(operation, error)

    # ── Carrying out ─────────────────────────────────────────────────────────────────

    def _check_usable(self, operation: str) -> None:
        if self._work.life.closing:
            above = self._parts.closed_above()
            help = f"{above}; repo.resume_session({self.id!r}) opens its durable work again"
            raise SessionClosed(state=self.state, operation=operation, help=help if above else None)
        self._home.check()

    def _draft(
        self,
        observation: str,
        action: str,
        at: datetime | str | None,
        actor: str | None,
        key: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> StepDraft:
        """Make a storable step. *Raises* ``ValueError``: an argument is of no use or too large."""
        observed, acted = stored_text("observation", observation), stored_text("action", action)
        if is_blank(observed) and is_blank(acted):
            raise ValueError("observation and action cannot both be blank")
        if actor is not None and (not isinstance(actor, str) or is_blank(actor)):
            raise ValueError("actor must be text that is not blank, or None")
        default_actor = self._parts.config.extraction.default_actor
        return StepDraft(
            observation=observed,
            action=acted,
            at=stored_time("at", at) if at is not None else self._parts.clock.now(),
            actor=stored_text("actor", actor) if actor is not None else default_actor,
            node_id=new_id("episodic"),
            key=stored_id("key", key) if key is not None else None,
            metadata={} if metadata is None else stored_object("metadata", metadata),
        )

    # ── The end ──────────────────────────────────────────────────────────────────────

    async def _expire(self) -> None:
        """Commit the rest and end, as the session timer is due, unless a step arrives meanwhile."""
        work = self._work
        await work.until(
            lambda: work.life.closing or (not work.life.occupied and work.queue.nothing_ahead)
        )
        if work.life.closing or work.expiry_timer.armed or not work.life.accepts_appends:
            return
        try:
            await self.close()
        except (SessionError, StoreError):  # as of work that has begun while doubt was resolved
            log.exception("session %s could not be closed at its expiry; later again", self.id)
            work.set_timers()
            return
        except Conflict as conflict:
            # Another service has it by now, and expires it.
            log.info("session %s ends here: %s", self.id, conflict)
            await self.aclose()
            return
        await self.wait_for(SessionState.IDLE, SessionState.READY, SessionState.FAILED)
        work.parts.tell(SessionExpired)
        await self.aclose()

    def _stop_starting(self) -> None:
        """Refuse new operations and stop the timers; what runs goes on. For shutting down."""
        self._work.stop_starting()

    async def _settle_down(self) -> None:
        """Wait until nothing is in flight here. *Cancellation*: safe."""
        work = self._work
        await work.until(lambda: work.waits_for_others or not work.life.occupied)

    async def aclose(self) -> None:
        """
        End the session; its durable work stays resumable. Idempotent, never raises for a state.

        Running transactions end, extraction is stopped, waiting operations end with
        ``session_closed``, their callbacks run.

        Raises:
            UsageError: It belongs to another event loop; nothing was ended.
                *Cancellation*: completes; only the wait ends.
        """
        self._home.check()
        self._work.stop_starting()
        if self._shut is None:
            self._shut = anyio.Event()
            self._parts.spawn(self._shut_down, self._shut)
        if anyio.get_current_task().id != self._work.callbacks.task_id:
            await self._shut.wait()

    async def _shut_down(self, shut: anyio.Event) -> None:
        work = self._work
        try:
            with anyio.CancelScope(shield=True):
                await work.stop_working()
                work.waiters.close(work.life.state)
                await work.until(lambda: work.queue.nothing_runs)
                work.queue.close(work.life.state)
                with anyio.move_on_after(self._parts.config.shutdown_grace_s):
                    await work.callbacks.drained()
                work.callbacks.stop()
                await self._release()
        finally:
            self._parts.ended()
            shut.set()

    async def _release(self) -> None:
        """Give the session up: else nobody goes on with it as long as the service lives."""
        for left in reversed(range(_RELEASES)):
            try:
                await self._parts.store.release(self._parts.owner, self.id)
                return
            except StoreLocked:
                if not left:
                    raise


# ── The session task: runs queued operations, strictly one after the other ───────────


async def _drive(work: EpisodeWork) -> None:
    """Run what the queue hands out, each when nothing is in flight, until the session closes."""

    def due() -> bool:
        return not work.life.occupied and work.queue.next() is not None

    while True:
        await work.until(lambda: work.life.closing or due())
        if work.life.closing:
            return
        operation = work.queue.next()
        assert operation is not None
        assert operation._work is not None
        operation._begun = True
        try:
            with work.parts.spans.at(operation._place):
                await operation._work()
        except Exception as error:
            work.queue.fail(operation, error)
        else:
            work.queue.end(operation)

"""
Mneme: the background agent that evicts from the windows of a repository's threads.

Per thread at most one run; what is due is read from the store each time, so nothing is
lost with the process. A run asks a model what to keep; where it brings no verdict the
range is tried again, and then leaves with a text by rule. Whoever appends or reads never
waits for any of it, and never hears of its failures but by events and counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

import anyio.lowlevel

from mnemo.context.eviction import Committed, DueEviction, EvictionVerdict, commit, due, events_of
from mnemo.context.folding import Folding
from mnemo.context.runs import NoOutcome, Runs
from mnemo.context.zones import Zone
from mnemo.conversation.settings import ConversationParts, ThreadSettings
from mnemo.errors import UsageError
from mnemo.events import Event, EvictionFailed
from mnemo.log.transcript import TranscriptWriter
from mnemo.runtime.flights import Backoff, Flights
from mnemo.values.derived import EvictionOutcome, Thread

log = logging.getLogger("mnemo")

UNWATCHED_S = 60.0
"""Seconds for which a thread that has no viewport is not looked at again (S)."""
UNWATCHED_KNOWN = 10_000
"""Threads without a viewport that are remembered at most (S)."""
NOTED_KNOWN = 10_000
"""Threads whose viewports show notes that are remembered at most (S)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MnemeStatistics:
    """
    Levels of Mneme's work.

    Attributes:
        running: Threads that it looks at, or that wait for their turn.
        waiting: Ranges and levels that wait for their next attempt.
        evictions: Ranges that it let leave a window since it was made.
        failures: Runs without an outcome since then, of whatever reason.
    """

    running: int
    waiting: int
    evictions: int
    failures: int


@dataclass(frozen=True, slots=True)
class _Stale:
    """The result of a run was dropped: its range had changed meanwhile."""


class Mneme:
    """
    Background eviction and snapshot folding of one repository.

    Args:
        parts: The repository's conversations; without a chat model every text is by rule.
    """

    def __init__(self, parts: ConversationParts) -> None:
        self._parts = parts
        self._config = parts.config.viewport
        self._runs = Runs(parts, parts.chat_model) if parts.chat_model is not None else None
        self._flights: Flights[str, EvictionOutcome | None] = Flights(
            self._fly, spawn=parts.spawn, limit=self._config.max_parallel_runs
        )
        self._backoff = Backoff(
            parts.clock.sleep, parts.spawn, backoff_s=self._config.retry_backoff_s
        )
        self._folding = Folding(parts, self._runs, self._backoff, self._publish, self._failed)
        self._budgets: dict[str, int] = {}
        self._unwatched: dict[str, float] = {}
        self._noted: set[str] = set()
        self._evictions = 0
        self._failures = 0

    # ── Called by others ─────────────────────────────────────────────────────────────

    def watch(self, thread_id: str, budget_tokens: int, *, notes: bool = False) -> None:
        """
        Watch a thread with this budget from now on; a plain call, the latest one wins.

        The budget is stored as soon as the thread is next looked at.

        Args:
            notes: Whether its viewport shows notes. That is not stored: until there is such
                a viewport again, the window counts as larger by their share.
        """
        self._budgets[thread_id] = budget_tokens
        self._unwatched.pop(thread_id, None)
        self._noted.discard(thread_id)
        if notes:
            if len(self._noted) >= NOTED_KNOWN:
                self._noted.clear()
            self._noted.add(thread_id)

    def appended(self, settings: ThreadSettings) -> None:
        """Check after an append whether the thread is due; a plain call."""
        if not self._config.auto_evict:
            return
        thread_id = settings.thread_id
        found_at = self._unwatched.get(thread_id)
        if found_at is not None and self._parts.clock.monotonic() - found_at < UNWATCHED_S:
            return
        if not self._backoff.holds(_eviction(thread_id)):
            self._flights.poke(thread_id)

    def poke(self, thread_id: str) -> None:
        """Check whether a thread is due, also one found unwatched lately; a plain call."""
        if not self._config.auto_evict:
            return
        self._unwatched.pop(thread_id, None)
        self._look_at_levels(thread_id)
        self._flights.poke(thread_id)

    async def evict(self, thread_id: str) -> EvictionOutcome | None:
        """
        Run now if the thread is due, or join the run in flight.

        Returns:
            The last outcome of it; ``None``: the thread was not due, or there was none.

        Raises:
            UsageError: The repository was closed meanwhile. *Cancellation*: safe; only the
                wait ends.
        """
        self._unwatched.pop(thread_id, None)
        self._backoff.end(_eviction(thread_id))
        self._look_at_levels(thread_id)
        return await self._flights.join(thread_id)

    async def settled(self, thread_id: str) -> None:
        """
        Wait until nothing of the thread runs, is due, or waits for another attempt.

        What an earlier process left due counts, too. *Cancellation*: safe.
        """
        await self._flights.settled(thread_id)
        if thread_id not in self._unwatched and not self._backoff.holds(_eviction(thread_id)):
            self.poke(thread_id)
        keys = (_eviction(thread_id), *self._folding.keys(thread_id))
        while True:
            await self._flights.settled(thread_id)
            waiting = [key for key in keys if self._backoff.holds(key)]
            if not waiting:
                return
            await self._backoff.over(waiting[0])

    async def resume(self) -> None:
        """
        Check every watched thread, as at opening: what is due is read from the store.

        Raises:
            StoreError: The threads could not be read. *Cancellation*: safe.
        """
        if not self._config.auto_evict:
            return
        watched = await self._parts.store.reading(lambda tx: tx.threads(watched=True))
        self._parts.spawn(self._look_at, [thread.id for thread in watched])

    def statistics(self) -> MnemeStatistics:
        """Return the present counts of its work."""
        return MnemeStatistics(
            running=self._flights.under_way,
            waiting=self._backoff.pending,
            evictions=self._evictions,
            failures=self._failures,
        )

    def _look_at_levels(self, thread_id: str) -> None:
        self._folding.look_at(thread_id, lambda: self.poke(thread_id))

    async def _look_at(self, thread_ids: Iterable[str]) -> None:
        for thread_id in thread_ids:
            self.poke(thread_id)
            await anyio.lowlevel.checkpoint()

    # ── One flight ───────────────────────────────────────────────────────────────────

    async def _fly(self, thread_id: str) -> EvictionOutcome | None:
        try:
            return await self._make_room(thread_id)
        except UsageError:  # the repository closes, which is no failure of an eviction
            raise
        except Exception as error:
            # The store failed: who appends or reads is told by their own calls.
            self._failed(thread_id, error)
            return None

    async def _make_room(self, thread_id: str) -> EvictionOutcome | None:
        """Evict as long as the thread is due; then fold its snapshots."""
        await self._keep_budget(thread_id)
        last: EvictionOutcome | None = None
        while not self._backoff.holds(_eviction(thread_id)):
            found = await self._due(thread_id)
            if found is None:
                break
            ended = await self._run(found)
            if isinstance(ended, Committed):
                last = ended.outcome
                await self._after(found, ended)
        await self._folding.follow(thread_id)
        return last

    async def _due(self, thread_id: str) -> DueEviction | None:
        config, notes = self._parts.config, thread_id in self._noted
        watched, found = await self._parts.store.reading(
            lambda tx: (
                tx.thread(thread_id).budget_tokens is not None,
                due(tx, thread_id, config, notes=notes),
            )
        )
        if not watched:
            self._found_unwatched(thread_id)
        return found

    def _found_unwatched(self, thread_id: str) -> None:
        if len(self._unwatched) >= UNWATCHED_KNOWN:
            self._unwatched.clear()
        if thread_id not in self._budgets:
            self._unwatched[thread_id] = self._parts.clock.monotonic()

    async def _keep_budget(self, thread_id: str) -> None:
        """Store the budget that the thread is to be watched with, once the thread exists."""
        budget = self._budgets.get(thread_id)
        if budget is None:
            return

        def work(tx: TranscriptWriter) -> bool:
            thread = tx.thread(thread_id)
            if thread == Thread(id=thread_id):
                return False
            if thread.budget_tokens != budget:
                tx.keep(replace(thread, budget_tokens=budget))
            return True

        if await self._parts.store.writing(work) and self._budgets.get(thread_id) == budget:
            del self._budgets[thread_id]

    async def _run(self, found: DueEviction) -> Committed | _Stale | None:
        """Run once over the range that is due; ``None``: it brought no outcome."""
        thread_id, about = found.thread.id, (found.thread.epoch, found.thread.boundary)
        key = _eviction(thread_id)
        failed = self._backoff.attempts(key, about)
        if self._runs is None:
            return await self._fall_back(found, attempts=0)
        try:
            zone, verdict = await self._runs.evict(found, attempt=failed + 1)
            return await self._commit(found, zone, verdict)
        except UsageError:  # the repository closes: the next who opens it finds what is due
            raise
        except Exception as error:
            self._failed(thread_id, error)
            failed = self._backoff.failed(key, about)
            final = isinstance(error, NoOutcome) and not error.retryable
        if final or failed >= self._config.max_attempts:
            return await self._fall_back(found, attempts=failed)
        self._backoff.begin(key, lambda: self.poke(thread_id))
        return None

    async def _fall_back(self, found: DueEviction, *, attempts: int) -> Committed | _Stale:
        self._backoff.done(_eviction(found.thread.id))
        zone = found.zone()
        return await self._commit(found, zone, EvictionVerdict(kind="fallback", attempts=attempts))

    async def _commit(
        self, found: DueEviction, zone: Zone, verdict: EvictionVerdict
    ) -> Committed | _Stale:
        config = self._parts.config
        committed = await self._parts.store.writing(
            lambda tx: commit(tx, found.thread, zone, verdict, config)
        )
        if committed is None:
            return _Stale()
        self._parts.meter.ran("snapshot", "embedded" if verdict.kind == "fallback" else "model")
        self._backoff.done(_eviction(found.thread.id))
        self._evictions += committed.moved
        self._publish(events_of(self._parts.repo_id, self._parts.clock.now(), committed))
        return committed

    async def _after(self, found: DueEviction, committed: Committed) -> None:
        self._look_at_levels(found.thread.id)
        if committed.outcome.kind != "fallback":
            await self._folding.offer(found)

    # ── Events ─────────────────────────────────────────────────────────────────

    def _publish(self, events: Iterable[Event]) -> None:
        for event in events:
            self._parts.publish(event)

    def _failed(self, thread_id: str, error: Exception) -> None:
        self._failures += 1
        self._parts.meter.ran("snapshot", "failed")
        if not isinstance(error, NoOutcome):
            log.warning("making room in thread %r failed", thread_id, exc_info=error)
        self._parts.publish(
            EvictionFailed(
                repo_id=self._parts.repo_id,
                at=self._parts.clock.now(),
                thread_id=thread_id,
                error=f"{type(error).__name__}: {error}",
            )
        )


def _eviction(thread_id: str) -> tuple[str, str]:
    """The key under which a thread's attempts at eviction are counted."""
    return ("eviction", thread_id)

"""The job worker of a repository: claims what is due and runs it, a bounded number at once."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TypeVar

import anyio

from mnemo.config import Config
from mnemo.errors import MnemoError, SessionBusy, StoreReadOnly, UsageError
from mnemo.jobs.slots import JobSlots
from mnemo.log.job_rules import (
    cancel_jobs,
    claim_jobs,
    defer_job,
    fail_job,
    hasten_jobs,
    postpone_job,
    retry_jobs,
    waiting_jobs,
)
from mnemo.log.transcript import StoredTranscript, TranscriptReader, TranscriptWriter
from mnemo.protocols import Clock
from mnemo.runtime.spans import Spans, Value
from mnemo.runtime.tasks import Branch, CancelHandle, on_clock
from mnemo.runtime.text import clean
from mnemo.runtime.traffic import traffic
from mnemo.runtime.user_code import traceback_of
from mnemo.runtime.validation import known_ids
from mnemo.values.jobs import Job, JobKind, JobLevels, JobState
from mnemo.values.journal import Owner

log = logging.getLogger("mnemo")

MOST_ERRORS = 100
"""Dead jobs whose error the levels show."""
LOOK_S = 0.05
"""Seconds between two looks whether there are fewer writes (S)."""
MOST_LOOKS = 40
"""Looks after which jobs are claimed although very much is being written (S)."""
T = TypeVar("T")

Work = Callable[[Job], Awaitable[datetime | None]]
"""
Does what a job is about. The transaction that writes the result finishes the job, with its
fence checked there; or the time is returned at which it is to be claimed again.
"""


class Jobs:
    """
    Works off the jobs of one repository, whichever process they came from.

    Args:
        work: What is done for a job of each kind.
        tasks: Where it runs; what is cancelled is given back.
        slots: The service's places for jobs.
        able: Whether this service has what a job needs; called on the store's thread.
        space: Gives the embedding space that it works in.
    """

    def __init__(
        self,
        *,
        store: StoredTranscript,
        owner: Owner,
        clock: Clock,
        config: Config,
        tasks: Branch,
        work: Mapping[JobKind, Work],
        slots: JobSlots,
        repo_id: str,
        spans: Spans,
        able: Callable[[Job], bool],
        space: Callable[[], object],
    ) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock
        self._config = config.jobs
        self._most = config.extraction.max_parallel if slots.most is None else slots.most
        self._tasks = tasks
        self._work = work
        self._slots = slots
        self._spans = spans
        self._able = able
        self._space = space
        self._repo_id = repo_id
        self._named: dict[str, Value] = {"mnemo.repo.id": repo_id}
        self._running: set[tuple[str, str]] = set()
        self._nap = CancelHandle()
        self._beat = anyio.Event()
        self._traffic = traffic()
        self._stopped = False
        slots.wakeful.add(self)

    def poke(self) -> None:
        """Look for jobs now; a plain call."""
        self._nap.cancel()

    def wake(self) -> None:
        """Look for jobs now, and for those that others have done; a plain call."""
        self.poke()
        self._pulse()

    async def end(self, grace_s: float) -> float:
        """
        Claim nothing more, and wait up to *grace_s* seconds for what runs; what is left of them.

        *Cancellation*: safe.
        """
        self._stopped = True
        self.poke()
        self._pulse()
        until = anyio.current_time() + grace_s
        with anyio.move_on_after(grace_s):
            while self._running:
                await self._beat.wait()
        return max(0.0, until - anyio.current_time())

    def watch(self) -> Callable[[], Awaitable[None]]:
        """Give what waits until a job has ended here since, or may have elsewhere."""
        return partial(self._changed, self._beat)

    async def _changed(self, beat: anyio.Event) -> None:
        with suppress(TimeoutError):
            await on_clock(self._clock.sleep, self._config.poll_s, beat.wait)

    async def levels(self) -> JobLevels:
        """Count the jobs by state, of all processes. *Cancellation*: safe."""
        return await self._store.reading(_levels)

    async def hasten(self) -> None:
        """Have everything that waits be due now. *Cancellation*: completes."""
        if (await self.levels()).waiting:
            await self._store.writing(hasten_jobs)
        self.poke()

    async def retry(self, thread_ids: Sequence[str] | None) -> tuple[str, ...]:
        """See ``Repository.retry_jobs``."""
        known = None if thread_ids is None else known_ids(thread_ids)
        space = str(self._space())
        again = await self._store.writing(lambda tx: retry_jobs(tx, known, space=space))
        self.poke()
        return tuple(again)

    async def cancel(self, thread_ids: Sequence[str]) -> tuple[str, ...]:
        """See ``Repository.cancel_jobs``."""
        known = known_ids(thread_ids)
        cancelled = await self._store.writing(lambda tx: cancel_jobs(tx, known))
        self._pulse()
        return tuple(cancelled)

    # ── The worker ───────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Claim and start what is due, until it is stopped or cancelled."""
        if self._slots.most != 0:
            with self._slots.poking(self.poke):
                await self._claim_until_stopped()

    async def _claim_until_stopped(self) -> None:
        while not self._stopped:
            nap, began = CancelHandle(), self._clock.monotonic()
            self._nap = nap
            try:
                pause_s = await self._round()
            except StoreReadOnly:
                return
            except MnemoError as error:
                log.warning("jobs are looked for again: %s", error)
                pause_s = self._config.poll_s
            # From before the look: if the clock has moved meanwhile, that is not slept again.
            with nap:
                await self._clock.sleep(max(0.0, began + pause_s - self._clock.monotonic()))

    async def _round(self) -> float:
        """Start what is due and there is room for; seconds until the next look."""
        if len(self._running) >= self._most:
            return self._config.poll_s
        pause_s = await self._store.reading(self._pause)
        if pause_s:
            return min(pause_s, self._config.poll_s)
        await self._let_writes_go_first()
        places = self._slots.take(self._most - len(self._running))
        if not places:
            return self._config.poll_s
        claimed = await self._claim(places)
        return 0 if claimed == places else self._config.poll_s

    async def _let_writes_go_first(self) -> None:
        """Wait while very much is being written: extraction would take its callers' time."""
        for _ in range(MOST_LOOKS):
            if self._stopped or not self._traffic.is_busy:
                return
            await anyio.sleep(LOOK_S)

    async def _claim(self, places: int) -> int:
        """Claim and start up to *places* jobs, whose places in the service are taken."""
        held = frozenset(self._running)
        claim = partial(
            claim_jobs, owner=self._owner, limit=places, held=held, fits=self._is_for_us
        )
        jobs: Sequence[Job] = ()
        # What was claimed is started or given back, whoever is cancelled.
        with anyio.CancelScope(shield=True):
            try:
                jobs = await self._store.writing(lambda tx: claim(tx))
            finally:
                self._slots.give_back(places - len(jobs))
            for job in jobs:
                await self._start(job)
        return len(jobs)

    def _is_for_us(self, job: Job) -> bool:
        kinds = self._slots.kinds
        return (kinds is None or job.kind in kinds) and self._able(job)

    def _is_free(self, job: Job) -> bool:
        return self._is_for_us(job) and job.key not in self._running

    def _pause(self, tx: TranscriptReader) -> float:
        """Seconds until the next job may be claimed; 0: one is due."""
        for job in tx.jobs(JobState.RUNNING):
            if self._is_free(job) and not tx.is_owned_elsewhere(job.owner, self._owner):
                return 0
        first = waiting_jobs(tx, self._is_free, limit=1)
        return max(0.0, (first[0].due_at - tx.lease_now).total_seconds()) if first else math.inf

    async def _start(self, job: Job) -> None:
        if self._stopped or self._tasks.ended:
            await self._note(partial(postpone_job, job=job, due_at=job.due_at))
            self._slots.give_back(1)
            return
        self._running.add(job.key)
        self._slots.busy[self._repo_id] += 1
        self._tasks.spawn(self._run_one, job)

    async def _run_one(self, job: Job) -> None:
        again: datetime | None = job.due_at
        note: Callable[[TranscriptWriter], None] | None = None
        try:
            again = await self._worked(job)
        except Exception as error:
            note = self._failed(job, error)
        finally:
            if note is None and again is not None:
                note = partial(postpone_job, job=job, due_at=again)
            with anyio.CancelScope(shield=True):
                if note is not None:
                    await self._note(note)
            self._running.discard(job.key)
            self._slots.busy[self._repo_id] -= 1
            self._slots.give_back(1)
            self._pulse()
            self.poke()

    def _failed(self, job: Job, error: Exception) -> Callable[[TranscriptWriter], None]:
        """What is noted of a try that raised."""
        backoff_s = self._config.retry_backoff_s
        if self._is_put_back(error):
            log.info("the %s job of %r is put back: %s", job.kind, job.subject, error)
            return partial(defer_job, job=job, pause_s=0.0 if self._stopped else backoff_s)
        trace = traceback_of(error)
        log.warning("the %s job of %r failed: %s", job.kind, job.subject, error, exc_info=trace)
        said, most = clean(str(error)) or type(error).__name__, self._config.max_tries
        return partial(fail_job, job=job, error=said, backoff_s=backoff_s, max_tries=most)

    def _is_put_back(self, error: Exception) -> bool:
        """Whether *error* is no failure of the job: others have its session, or all is closing."""
        if self._stopped and isinstance(error, UsageError):
            return True
        return isinstance(error, SessionBusy) and error.reason == "owned_elsewhere"

    async def _worked(self, job: Job) -> datetime | None:
        """Run *job* in a span of its own."""
        with self._spans.span(f"job {job.kind}", attributes=self._named) as span:
            span.set("mnemo.job.subject", job.subject)
            span.set("mnemo.job.tries", job.tries)
            waited = self._clock.now() - job.due_at
            span.set("mnemo.job.waited_s", max(0.0, waited.total_seconds()))
            try:
                again = await self._work[job.kind](job)
            except Exception as error:
                self._slots.failed += not self._is_put_back(error)
                raise
            self._slots.done += again is None
            span.set("mnemo.job.finished", again is None)
            return again

    async def _note(self, note: Callable[[TranscriptWriter], None]) -> None:
        try:
            await self._store.writing(note)
        except MnemoError as error:
            # It stays claimed, and is claimed anew by whoever finds that nobody works on it.
            log.warning("the outcome of a job could not be written: %s", error)

    def _pulse(self) -> None:
        self._beat.set()
        self._beat = anyio.Event()


def _levels(tx: TranscriptReader) -> JobLevels:
    counts = tx.job_counts()
    dead = tx.jobs(JobState.DEAD, limit=MOST_ERRORS)
    return JobLevels(
        waiting=counts.get(JobState.WAITING, 0),
        running=counts.get(JobState.RUNNING, 0),
        dead=counts.get(JobState.DEAD, 0),
        errors={job.key: job.error or "" for job in dead},
    )

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
from mnemo.errors import MnemoError, StoreReadOnly
from mnemo.protocols import Clock, TranscriptReader, TranscriptStore, TranscriptWriter
from mnemo.runtime.tasks import Branch, CancelHandle, on_clock
from mnemo.runtime.text import clean
from mnemo.runtime.user_code import traceback_of
from mnemo.runtime.validation import known_id
from mnemo.values.job_rules import (
    cancel_jobs,
    claim_jobs,
    fail_job,
    hasten_jobs,
    postpone_job,
    retry_jobs,
)
from mnemo.values.jobs import Job, JobKind, JobLevels, JobState
from mnemo.values.journal import Owner

__all__ = ["Jobs", "Work"]

log = logging.getLogger("mnemo")

MOST_ERRORS = 100
"""Dead jobs whose error the levels show."""
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
    """

    def __init__(
        self,
        *,
        store: TranscriptStore,
        owner: Owner,
        clock: Clock,
        config: Config,
        tasks: Branch,
        work: Mapping[JobKind, Work],
    ) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock
        self._config = config.jobs
        self._most = config.extraction.max_parallel
        self._tasks = tasks
        self._work = work
        self._running: set[tuple[str, str]] = set()
        self._nap = CancelHandle()
        self._beat = anyio.Event()
        self._stopped = False

    def poke(self) -> None:
        """Look for jobs now; a plain call."""
        self._nap.cancel()

    def stop(self) -> None:
        """Claim nothing more; a plain call."""
        self._stopped = True
        self.poke()
        self._pulse()

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
        known = None if thread_ids is None else _known(thread_ids)
        again = await self._store.writing(lambda tx: retry_jobs(tx, known))
        self.poke()
        return tuple(again)

    async def cancel(self, thread_ids: Sequence[str]) -> tuple[str, ...]:
        """See ``Repository.cancel_jobs``."""
        known = _known(thread_ids)
        cancelled = await self._store.writing(lambda tx: cancel_jobs(tx, known))
        self._pulse()
        return tuple(cancelled)

    # ── The worker ───────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Claim and start what is due, until it is stopped or cancelled."""
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
        room = self._most - len(self._running)
        if room <= 0:
            return self._config.poll_s
        pause_s = await self._store.reading(self._pause)
        if pause_s:
            return min(pause_s, self._config.poll_s)
        held = frozenset(self._running)
        claim = partial(claim_jobs, owner=self._owner, limit=room, held=held)
        # What was claimed is started or given back, whoever is cancelled.
        with anyio.CancelScope(shield=True):
            jobs = await self._store.writing(lambda tx: claim(tx))
            for job in jobs:
                await self._start(job)
        return 0 if len(jobs) == room else self._config.poll_s

    def _pause(self, tx: TranscriptReader) -> float:
        """Seconds until the next job may be claimed; 0: one is due."""
        for job in tx.jobs(JobState.RUNNING):
            if job.key not in self._running and not tx.is_owned_elsewhere(job.owner, self._owner):
                return 0
        first = tx.jobs(JobState.WAITING, limit=1)
        return max(0.0, (first[0].due_at - tx.now).total_seconds()) if first else math.inf

    async def _start(self, job: Job) -> None:
        if self._stopped or self._tasks.ended:
            await self._note(partial(postpone_job, job=job, due_at=job.due_at))
            return
        self._running.add(job.key)
        self._tasks.spawn(self._run_one, job)

    async def _run_one(self, job: Job) -> None:
        again: datetime | None = job.due_at
        note: Callable[[TranscriptWriter], None] | None = None
        try:
            again = await self._work[job.kind](job)
        except Exception as error:
            trace = traceback_of(error)
            log.warning("the %s job of %r failed: %s", job.kind, job.subject, error, exc_info=trace)
            config = self._config
            note = partial(
                fail_job,
                job=job,
                error=clean(str(error)) or type(error).__name__,
                backoff_s=config.retry_backoff_s,
                max_tries=config.max_tries,
            )
        finally:
            if note is None and again is not None:
                note = partial(postpone_job, job=job, due_at=again)
            with anyio.CancelScope(shield=True):
                if note is not None:
                    await self._note(note)
            self._running.discard(job.key)
            self._pulse()
            self.poke()

    async def _note(self, note: Callable[[TranscriptWriter], None]) -> None:
        try:
            await self._store.writing(note)
        except MnemoError as error:
            # It stays claimed, and is claimed anew by whoever finds that nobody works on it.
            log.warning("the outcome of a job could not be written: %s", error)

    def _pulse(self) -> None:
        self._beat.set()
        self._beat = anyio.Event()


def _known(thread_ids: Sequence[str]) -> list[str]:
    if isinstance(thread_ids, str):
        raise ValueError(f"thread_ids must be a list of ids, not one text: give [{thread_ids!r}]")
    return [known_id("a thread id", id) for id in thread_ids]


def _levels(tx: TranscriptReader) -> JobLevels:
    counts = tx.job_counts()
    dead = tx.jobs(JobState.DEAD, limit=MOST_ERRORS)
    return JobLevels(
        waiting=counts.get(JobState.WAITING, 0),
        running=counts.get(JobState.RUNNING, 0),
        dead=counts.get(JobState.DEAD, 0),
        errors={job.key: job.error or "" for job in dead},
    )

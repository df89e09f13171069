"""The job worker of a repository: claims what is due and runs it, a bounded number at once."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import anyio

from mnemo.config import Config
from mnemo.errors import EmbeddingSpaceMismatch, MnemoError, SessionBusy, StoreReadOnly, UsageError
from mnemo.log import job_rules as rules
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.prompts.profiles import PROFILES, resolve_profile
from mnemo.repository.parts import RepositoryParts
from mnemo.runtime.clock import elapsed
from mnemo.runtime.flights import Errand
from mnemo.runtime.tasks import Branch, CancelHandle, on_clock
from mnemo.runtime.text import clean
from mnemo.runtime.traffic import traffic
from mnemo.runtime.user_code import traceback_of
from mnemo.runtime.validation import known_ids
from mnemo.values.jobs import Job, JobKind, JobLevels, JobState
from mnemo.values.messages import StoredMessage

log: logging.Logger = logging.getLogger("mnemo")

MOST_ERRORS = 100
"""Dead jobs whose error the levels show."""
RATE_S = 60.0
"""Seconds over which the rate of extraction is measured (S)."""
MOST_TAKEN = 1_000
"""Portions of messages that it is measured by, the last ones (S)."""
LOOK_S = 0.05
"""Seconds between two looks whether there are fewer writes (S)."""
MOST_LOOKS = 40
"""Looks after which jobs are claimed although very much is being written (S)."""
EMBED = ("embed", "")
"""The key of the one job of a repository that embeds."""
T = TypeVar("T")

Work = Callable[[Job], Awaitable[datetime | None]]
"""
Does what a job is about. The transaction that writes the result finishes the job, with its
fence checked there; or the time is returned at which it is to be claimed again.
"""


_CARRIED = {"extraction", "annotation", "commit"}
"""Sections of the config that a job carries."""


def carried_of(config: Config) -> dict[str, Any]:
    """What a job carries of *config*."""
    sections = config.model_dump(mode="json", include=_CARRIED, exclude_unset=True)
    sections.get("extraction", {}).pop("profile", None)
    profile = resolve_profile(config.extraction.profile)
    named = {"profile": profile.name} if profile else {}
    return {"config": sections, **named}


def config_of(needs: Mapping[str, Any], own: Config) -> Config:
    """The config to do a job with. *Raises* ``ConfigError``: another version wrote it."""
    config, profile = dict(needs.get("config", {})), needs.get("profile")
    if "config" in needs and (profile is None or profile in PROFILES):
        config["extraction"] = {**config.get("extraction", {}), "profile": profile}
    return own.overlaid(Config(**config))


class Jobs:
    """Works off a repository's jobs, whichever process they came from; gives back the cancelled."""

    def __init__(
        self, parts: RepositoryParts, tasks: Branch, follow_space: Callable[[], Awaitable[None]]
    ) -> None:
        slots, config = parts.slots, parts.config
        self._parts = parts
        self._store = parts.transcript
        self._clock = parts.clock
        self._slots = slots
        self._config = config.jobs
        self._most = config.extraction.max_parallel if slots.most is None else slots.most
        self._tasks = tasks
        self._follow_space, self._has_moved = follow_space, False
        self._work: Mapping[JobKind, Work] = {}
        self._carried = carried_of(config)
        self.renew()
        self.running: dict[tuple[str, str], Sequence[str]] = {}
        """The ids of the messages that each job at work has read, which its error may quote."""
        spawn = partial(parts.spans.spawn_apart, tasks.spawn)
        self._claiming = Errand(spawn, self._claim_due)
        self._nap = CancelHandle()
        self._beat: anyio.Event | None = None
        self._traffic = traffic()
        self.stopped: bool = False
        self._taken: deque[tuple[float, float, int]] = deque(maxlen=MOST_TAKEN)

    def took(self, messages: int, began: float) -> None:
        """Count *messages* that were extracted since *began*; a plain call."""
        self._taken.append((elapsed(), began, messages))

    def _per_s(self) -> float | None:
        """Messages per second that were extracted here within ``RATE_S``; ``None``: none were."""
        now = elapsed()
        last = [one for one in self._taken if now - one[0] <= RATE_S]
        if not last:
            return None
        return sum(count for *_, count in last) / (now - min(began for _, began, _ in last))

    def renew(self) -> None:
        """Take up the embedder's present space; a plain call."""
        self._here = {"space": str(self._parts.embedder.space)}

    def needs(self, carried: Mapping[str, Any]) -> dict[str, Any]:
        """What a worker must have to do a job as this service would; see ``Job.needs``."""
        return {**self._here, **carried}

    def demand(
        self, tx: TranscriptWriter, messages: Sequence[StoredMessage], *, at_once: bool
    ) -> bool:
        """Demand the job of *messages*, in their transaction; see ``demand_extraction``."""
        return rules.demand_extraction(
            tx,
            messages,
            quiet_s=self._config.quiet_s,
            most_waiting=self._config.most_waiting,
            at_once=at_once,
            needs=self.needs(self._carried),
        )

    def begin(self, work: Mapping[JobKind, Work], *, now: bool) -> None:
        """Claim what is due, *now* and whenever the service finds some; *work* does a job."""
        if self._slots.most != 0:
            self._work = work
            self._slots.enter(self._parts.repo_id, self.poke, self._config.poll_s)
            if now:
                self._parts.spans.spawn_apart(self._tasks.spawn, self._take_up)
                self.poke()

    def poke(self) -> None:
        """Look for jobs now; a plain call."""
        if self._work and not self.stopped:
            self._nap.cancel()
            self._claiming.poke()

    async def end(self, grace_s: float) -> float:
        """Claim no more, wait up to *grace_s* s, give what still runs. *Cancellation*: safe."""
        self.stopped = True
        self._slots.leave(self._parts.repo_id, self.poke)
        self.pulse()
        until = anyio.current_time() + grace_s
        with anyio.move_on_after(grace_s):
            while self.running:
                await self._next_beat().wait()
        return max(0.0, until - anyio.current_time())

    def watch(self) -> Callable[[], Awaitable[None]]:
        """Give what waits until a job has ended here since, or may have elsewhere."""
        return partial(self._changed, self._next_beat())

    def _next_beat(self) -> anyio.Event:
        self._beat = self._beat or anyio.Event()
        self._slots.watched.add(self)
        return self._beat

    def pulse(self) -> None:
        """Have all that watch look: a job has ended here, or may have elsewhere. A plain call."""
        beat, self._beat = self._beat, None
        if beat is not None:
            beat.set()
            self._slots.watched.discard(self)

    async def _changed(self, beat: anyio.Event) -> None:
        with suppress(TimeoutError):
            await on_clock(self._clock.sleep, self._config.poll_s, beat.wait)

    async def levels(self) -> JobLevels:
        """Count the jobs by state, of all processes. *Cancellation*: safe."""
        levels, per_s = await self._store.reading(_levels), self._per_s()
        left_s = levels.messages / per_s if per_s else None
        return replace(levels, per_s=per_s, seconds_left=left_s if levels.messages else 0.0)

    async def hasten(self) -> None:
        """Have everything that waits be due now. *Cancellation*: completes."""
        if (await self.levels()).waiting:
            await self._store.writing(rules.hasten_jobs)
        self.poke()

    async def retry(self, thread_ids: Sequence[str] | None) -> tuple[str, ...]:
        """See ``Repository.retry_jobs``."""
        known = None if thread_ids is None else known_ids(thread_ids)
        again = await self._store.writing(lambda tx: rules.retry_jobs(tx, known, self._here))
        self.poke()
        return tuple(again)

    async def cancel(self, thread_ids: Sequence[str]) -> tuple[str, ...]:
        """See ``Repository.cancel_jobs``."""
        known = known_ids(thread_ids)
        cancelled = await self._store.writing(lambda tx: rules.cancel_jobs(tx, known))
        self.pulse()
        return tuple(cancelled)

    async def embed(self) -> bool:
        """
        Owe what has no vector to a job, which begins here, without a place, if it may; False: it
        waits for somebody to do it.
        """
        kinds, is_here = self._slots.kinds, EMBED in self.running
        free = bool(self._work) and not self.stopped and not is_here
        claims = free and (kinds is None or "embed" in kinds)
        given: Any = {"owner": self._parts.owner, "needs": self._here, "claims": claims}
        try:
            # Each append asks, and few have something to write.
            stored, job = await self._store.reading(partial(rules.owed_embedding, **given))
            if job == stored:
                return job.state is JobState.RUNNING or is_here
            demand = partial(rules.demand_embedding, **given)
            with anyio.CancelScope(shield=True):
                job, is_ours = await self._store.writing(demand)
                if is_ours:
                    self._slots.running += 1
                    await self._start(job)
        except MnemoError as error:
            log.info("texts to embed are owed to no job: %s", error)
            return False
        # What runs here although the claim on it is lost ends soon, and what waits is claimed then.
        return job.state is JobState.RUNNING or is_here

    async def _take_up(self) -> None:
        """Have what was owed in another space than the repository's be owed in that."""
        with suppress(MnemoError):  # who opens it next looks again
            if await self._store.reading(partial(rules.is_owed_in_another_space, needs=self._here)):
                await self.embed()

    # ── The worker ───────────────────────────────────────────────────────────────────

    async def _claim_due(self) -> None:
        """Claim and start what is due, or will be before the service looks again."""
        try:
            while not self.stopped:
                self._nap, began = CancelHandle(), self._clock.monotonic()
                pause_s = await self._round()
                if pause_s >= self._config.poll_s:
                    return
                # From before the look: if the clock has moved meanwhile, that is not slept again.
                with self._nap:
                    await self._clock.sleep(max(0.0, began + pause_s - self._clock.monotonic()))
        except StoreReadOnly:
            self._slots.leave(self._parts.repo_id, self.poke)
        except MnemoError as error:
            log.warning("jobs are looked for again: %s", error)

    @property
    def _free(self) -> int:
        """Places of this repository; the job that embeds has none."""
        return self._most - len(self.running.keys() - {EMBED})

    async def _round(self) -> float:
        """Start what is due and there is room for; seconds until the next look is worth it."""
        if self._free <= 0:
            return math.inf  # who ends pokes
        self._has_moved = False
        pause_s = await self._store.reading(self._pause)
        if self._has_moved:
            with suppress(EmbeddingSpaceMismatch):  # whoever reads is told
                await self._follow_space()
            pause_s = await self._store.reading(self._pause)
        if pause_s:
            self._slots.go_on()
            return pause_s
        await self._let_writes_go_first()
        places = self._slots.take(self._parts.repo_id, self._free)
        return 0 if places and await self._claim(places) == places else math.inf

    async def _let_writes_go_first(self) -> None:
        """Wait while very much is being written: extraction would take its callers' time."""
        for _ in range(MOST_LOOKS):
            if self.stopped or not self._traffic.is_busy:
                return
            await anyio.sleep(LOOK_S)

    async def _claim(self, places: int) -> int:
        """Claim and start up to *places* jobs, whose places in the service are taken."""
        held = frozenset(self.running)
        claim = partial(
            rules.claim_jobs, owner=self._parts.owner, limit=places, held=held, fits=self._is_for_us
        )
        jobs: Sequence[Job] = ()
        # What was claimed is started or given back, whoever is cancelled.
        with anyio.CancelScope(shield=True):
            try:
                jobs = await self._store.writing(claim)
            finally:
                self._slots.give_back(places - len(jobs))
            for job in jobs:
                await self._start(job)
        return len(jobs)

    def _is_for_us(self, job: Job) -> bool:
        kinds, needs = self._slots.kinds, {**self._here, **job.needs}
        known = {None, *PROFILES, self._carried.get("profile")}
        is_here = needs["space"] == self._here["space"]
        self._has_moved = self._has_moved or not is_here
        able = is_here and needs.get("profile") in known
        may = job.kind != "embed" or self._slots.may_embed
        return able and may and (kinds is None or job.kind in kinds)

    def _is_free(self, job: Job) -> bool:
        return self._is_for_us(job) and job.key not in self.running

    def _pause(self, tx: TranscriptReader) -> float:
        """Seconds until the next job may be claimed; 0: one is due."""
        if rules.lost_jobs(tx, self._parts.owner, self._is_free):
            return 0
        first = rules.waiting_jobs(tx, self._is_free, limit=1)
        return max(0.0, (first[0].due_at - tx.lease_now).total_seconds()) if first else math.inf

    async def _start(self, job: Job) -> None:
        if self.stopped or self._tasks.ended or job.key in self.running:
            await self._note(partial(rules.postpone_job, job=job, due_at=job.due_at))
            self._slots.give_back(1)
            return
        self.running[job.key] = ()
        self._slots.begin(self._parts.repo_id, job.kind)
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
                note = partial(rules.postpone_job, job=job, due_at=again)
            try:
                with anyio.CancelScope(shield=True):
                    if note is not None:
                        await self._note(note)
            finally:
                del self.running[job.key]
                self._slots.end(self._parts.repo_id, job.kind)
                self.pulse()
                self.poke()

    def _failed(self, job: Job, error: Exception) -> Callable[[TranscriptWriter], None]:
        """What is noted of a try that raised."""
        backoff_s = self._config.retry_backoff_s
        if self._is_put_back(error):
            log.info("the %s job of %r is put back: %s", job.kind, job.subject, error)
            return partial(rules.defer_job, job=job, pause_s=0.0 if self.stopped else backoff_s)
        trace = traceback_of(error)
        log.warning("the %s job of %r failed: %s", job.kind, job.subject, error, exc_info=trace)
        return partial(
            rules.fail_job,
            job=job,
            error=clean(str(error)) or type(error).__name__,
            about=self.running[job.key],
            backoff_s=backoff_s,
            max_tries=self._config.max_tries,
        )

    def _is_put_back(self, error: Exception) -> bool:
        """Whether *error* is no failure of the job: others have its session, or all is closing."""
        if self.stopped and isinstance(error, UsageError):
            return True
        return isinstance(error, SessionBusy) and error.reason == "owned_elsewhere"

    async def _worked(self, job: Job) -> datetime | None:
        """Run *job* in a span of its own."""
        with self._parts.spans.span(
            f"job {job.kind}", attributes={"mnemo.repo.id": self._parts.repo_id}
        ) as span:
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


def _levels(tx: TranscriptReader) -> JobLevels:
    dead = tx.jobs(JobState.DEAD, limit=MOST_ERRORS)
    return replace(tx.job_levels(), errors={job.key: job.error or "" for job in dead})

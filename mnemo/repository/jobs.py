"""The job worker of a repository: claims what is due and runs it, a bounded number at once."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeVar

import anyio

from mnemo.config import Config
from mnemo.errors import MnemoError, NotFound, SessionBusy, StoreReadOnly, UsageError
from mnemo.jobs.slots import JobSlots
from mnemo.log import job_rules as rules
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.prompts.profiles import PROFILES, resolve_profile
from mnemo.protocols import Clock
from mnemo.repository.parts import RepositoryParts
from mnemo.runtime.tasks import Branch, CancelHandle, on_clock
from mnemo.runtime.text import clean, is_blank
from mnemo.runtime.traffic import traffic
from mnemo.runtime.user_code import called, traceback_of
from mnemo.runtime.validation import known_ids
from mnemo.values.jobs import JOB_KINDS, Job, JobKind, JobLevels, JobState, WorkerStatistics
from mnemo.values.messages import StoredMessage

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

    def __init__(self, parts: RepositoryParts, tasks: Branch) -> None:
        slots, config = parts.slots, parts.config
        self._parts = parts
        self._store = parts.transcript
        self._clock = parts.clock
        self._slots = slots
        self._config = config.jobs
        self._most = config.extraction.max_parallel if slots.most is None else slots.most
        self._tasks = tasks
        self._work: Mapping[JobKind, Work] = {}
        self._carried = carried_of(config)
        self.renew()
        self.running: dict[tuple[str, str], Sequence[str]] = {}
        """The ids of the messages that each job at work has read, which its error may quote."""
        self._nap = CancelHandle()
        self._beat = anyio.Event()
        self._traffic = traffic()
        self._stopped = False
        slots.wakeful.add(self)

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

    def poke(self) -> None:
        """Look for jobs now; a plain call."""
        self._nap.cancel()

    def wake(self) -> None:
        """Look for jobs now, and for those that others have done; a plain call."""
        self.poke()
        self._pulse()

    async def end(self, grace_s: float) -> float:
        """Claim no more, wait up to *grace_s* s, give what still runs. *Cancellation*: safe."""
        self._stopped = True
        self.poke()
        self._pulse()
        until = anyio.current_time() + grace_s
        with anyio.move_on_after(grace_s):
            while self.running:
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
        self._pulse()
        return tuple(cancelled)

    # ── The worker ───────────────────────────────────────────────────────────────────

    async def run(self, work: Mapping[JobKind, Work]) -> None:
        """Claim and start what is due, until it is stopped or cancelled; *work* does a job."""
        self._work = work
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
        if len(self.running) >= self._most:
            return self._config.poll_s
        pause_s = await self._store.reading(self._pause)
        if pause_s:
            return min(pause_s, self._config.poll_s)
        await self._let_writes_go_first()
        places = self._slots.take(self._most - len(self.running))
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
        able = needs["space"] == self._here["space"] and needs.get("profile") in known
        return able and (kinds is None or job.kind in kinds)

    def _is_free(self, job: Job) -> bool:
        return self._is_for_us(job) and job.key not in self.running

    def _pause(self, tx: TranscriptReader) -> float:
        """Seconds until the next job may be claimed; 0: one is due."""
        if rules.lost_jobs(tx, self._parts.owner, self._is_free):
            return 0
        first = rules.waiting_jobs(tx, self._is_free, limit=1)
        return max(0.0, (first[0].due_at - tx.lease_now).total_seconds()) if first else math.inf

    async def _start(self, job: Job) -> None:
        if self._stopped or self._tasks.ended:
            await self._note(partial(rules.postpone_job, job=job, due_at=job.due_at))
            self._slots.give_back(1)
            return
        self.running[job.key] = ()
        self._slots.busy[self._parts.repo_id] += 1
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
            with anyio.CancelScope(shield=True):
                if note is not None:
                    await self._note(note)
            del self.running[job.key]
            self._slots.busy[self._parts.repo_id] -= 1
            self._slots.give_back(1)
            self._pulse()
            self.poke()

    def _failed(self, job: Job, error: Exception) -> Callable[[TranscriptWriter], None]:
        """What is noted of a try that raised."""
        backoff_s = self._config.retry_backoff_s
        if self._is_put_back(error):
            log.info("the %s job of %r is put back: %s", job.kind, job.subject, error)
            return partial(rules.defer_job, job=job, pause_s=0.0 if self._stopped else backoff_s)
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
        if self._stopped and isinstance(error, UsageError):
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


# ── The worker of many repositories ───────────────────────────────────────────────


MOST_OPEN = 16
"""Repositories that are open for their jobs at once (S)."""
TURN_S = 30.0
"""Seconds after which an open repository makes room for one that waits (S)."""
LINGER_S = 5.0
"""Seconds that a repository without jobs stays open; more may come (S)."""
REFUSED_S = 60.0
"""Seconds after which a repository that could not be opened is tried again (S)."""


@dataclass(slots=True)
class _Open:
    """When a repository was opened, and when it last had a job."""

    since: float
    busy_at: float


@dataclass(eq=False, kw_only=True)
class Worker:
    """Works off the jobs that *owing* finds; *open_repo* gives False for what is open already."""

    clock: Clock
    poll_s: float
    slots: JobSlots
    owing: Callable[[Collection[JobKind] | None], Awaitable[list[str]]]
    open_repo: Callable[[str], Awaitable[bool]]
    close_repo: Callable[[str], Awaitable[None]]
    _open: dict[str, _Open] = field(default_factory=dict)
    _refused: dict[str, tuple[float, str]] = field(default_factory=dict)
    _nap: CancelHandle = field(default_factory=CancelHandle)

    def __post_init__(self) -> None:
        self.slots.wakeful.add(self)

    def wake(self) -> None:
        """Look for jobs now; a plain call."""
        self._nap.cancel()

    async def run(
        self,
        pattern: str,
        kinds: Sequence[JobKind] | None,
        on_look: Callable[[WorkerStatistics], Any] | None,
    ) -> None:
        """Look for jobs again and again; see ``Mnemo.work``."""
        if not isinstance(pattern, str) or is_blank(pattern):
            raise ValueError(f"repos must be a pattern of ids, such as '*', not {pattern!r}")
        with self.slots.working(_checked(kinds)):
            while True:
                self._nap = nap = CancelHandle()
                await self._look(pattern)
                if on_look is not None:
                    await self._report(on_look)
                with nap:
                    await self.clock.sleep(self.poll_s)

    async def _look(self, pattern: str) -> None:
        try:
            owing = await self.owing(self.slots.kinds)
        except MnemoError as error:
            log.warning("repositories with jobs are looked for again: %s", error)
            return
        due = [id for id in owing if fnmatchcase(id, pattern)]
        now = self.clock.monotonic()
        for id, opened in self._open.items():
            if id in due or self.slots.busy[id]:
                opened.busy_at = now
        waiting = [id for id in due if id not in self._open and not self._is_refused(id, now)]
        await self._make_room(now, len(waiting))
        for id in waiting[: MOST_OPEN - len(self._open)]:
            await self._enter(id, now)

    async def _make_room(self, now: float, wanted: int) -> None:
        """Close what has no jobs and, where others wait, what has had its turn."""
        missing = wanted - (MOST_OPEN - len(self._open))
        for id, opened in sorted(self._open.items(), key=lambda item: item[1].since):
            had_turn = missing > 0 and now - opened.since >= TURN_S
            if had_turn or now - opened.busy_at >= LINGER_S:
                missing -= 1
                del self._open[id]
                with suppress(NotFound):  # somebody else has closed it
                    await self.close_repo(id)

    async def _enter(self, id: str, now: float) -> None:
        try:
            opened = await self.open_repo(id)
        except MnemoError as error:
            log.warning("the jobs of repository %r are left to others: %s", id, error)
            self._refused[id] = (now, str(error))
            return
        if opened:
            self._open[id] = _Open(since=now, busy_at=now)

    def _is_refused(self, id: str, now: float) -> bool:
        if id in self._refused and now - self._refused[id][0] >= REFUSED_S:
            del self._refused[id]
        return id in self._refused

    async def _report(self, on_look: Callable[[WorkerStatistics], Any]) -> None:
        slots = self.slots
        found = WorkerStatistics(
            repos=tuple(sorted(self._open)),
            running=slots.running,
            done=slots.done,
            failed=slots.failed,
            refused={id: why for id, (_, why) in self._refused.items()},
        )
        try:
            await called(on_look, found)
        except Exception as error:
            log.error("on_look of a worker failed: %s", error, exc_info=traceback_of(error))


def _checked(kinds: Sequence[JobKind] | None) -> frozenset[JobKind] | None:
    if kinds is None:
        return None
    if isinstance(kinds, str):
        raise ValueError(f"kinds must be a list, not one text: give [{kinds!r}]")
    if unknown := [kind for kind in kinds if kind not in JOB_KINDS]:
        raise ValueError(f"there are no jobs of kind {unknown[0]!r}, only {', '.join(JOB_KINDS)}")
    return frozenset(kinds)

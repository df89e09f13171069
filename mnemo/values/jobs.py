"""Jobs: work that a repository owes, and the pure rules of claims, retries and fences."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, TypeAlias, get_args

MOST_DOUBLINGS = 16
"""Retries after which the pause between two of them does not grow any more (S)."""

JobKind: TypeAlias = Literal["extract", "session", "embed", "call"]
"""
What is to be done about the subject: ``extract`` takes in what a thread has new, ``session``
extracts the closed episode of a session whose process leaves that to others, ``embed`` makes the
vectors of what has none. A ``call`` is of the store and not of a repository: see ``LongCall``.
"""

JOB_KINDS: tuple[JobKind, ...] = get_args(JobKind)[:-1]
"""Those that workers claim."""


class JobState(StrEnum):
    """Where a job stands; a ``done`` one is kept, so that its token goes on counting."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    One piece of work that is owed; there is one of a kind and subject in a repository.

    A claim is a lease: it holds as long as the lease of the service that is ``owner``.

    Attributes:
        subject: What it is about: of ``extract``, a thread's id, of ``session``, a session's;
            of ``embed``, which a repository has one of, ``""``.
        due_at: When it may be claimed; of a running one, when what came meanwhile may be.
        tries: Claims since the last success; one that was given back is not counted.
        token: Raised by every claim. A write of the job's worker names it, and is refused
            if it is another by then.
        owner: Token of the service that runs it.
        error: Why the last try failed.
        needs: What a worker must have: ``space`` of embeddings, ``profile`` by name, and
            ``config``, the fields that it works with; of ``session`` also ``home``, the token
            of the service that waits for it, of ``embed`` ``until``, the feed's cursor up to which
            all had vectors, and ``again``, if more came since. What is not named is the worker's
            own.
    """

    kind: JobKind
    subject: str
    due_at: datetime
    state: JobState = JobState.WAITING
    tries: int = 0
    token: int = 0
    owner: str | None = None
    error: str | None = None
    needs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Its kind and subject."""
        return self.kind, self.subject

    def is_held(self, token: int) -> bool:
        """Whether the claim that was given *token* still holds."""
        return self.state is JobState.RUNNING and self.token == token

    def demanded(self, due_at: datetime, *, now: datetime, at_once: bool) -> Job:
        """
        More work, due at *due_at*; a dead job's tries begin anew.
        A pause after a failure is not made shorter, unless *at_once*, which forgets the failure.
        """
        error = None if at_once else self.error
        if self.state in (JobState.DONE, JobState.DEAD):
            return replace(self, state=JobState.WAITING, due_at=due_at, tries=0, error=error)
        keeps_time = self.tries > 0 or self.due_at <= now
        if self.state is JobState.WAITING and not at_once and keeps_time:
            return self
        return replace(self, due_at=due_at, error=error)

    def claimed(self, owner: str) -> Job:
        """The job as *owner* holds it from now on."""
        return replace(
            self, state=JobState.RUNNING, tries=self.tries + 1, token=self.token + 1, owner=owner
        )

    def finished(self, *, more: bool) -> Job:
        """The job after a success; *more*: what came meanwhile is left."""
        state = JobState.WAITING if more else JobState.DONE
        return replace(self, state=state, tries=0, owner=None, error=None)

    def retried(self, now: datetime) -> Job:
        """The job due now, its failures forgotten."""
        return replace(self.demanded(now, now=now, at_once=True), tries=0)

    def cancelled(self) -> Job:
        """The job without anything left to do; a claim on it holds no more."""
        token = self.token + 1
        return replace(self, state=JobState.DONE, tries=0, token=token, owner=None, error=None)

    def postponed(self, due_at: datetime) -> Job:
        """The job given back untried, to be claimed again at *due_at*."""
        return replace(
            self, state=JobState.WAITING, due_at=due_at, tries=max(0, self.tries - 1), owner=None
        )

    def failed(self, error: str, *, now: datetime, backoff_s: float, max_tries: int) -> Job:
        """The job after a failure: dead after *max_tries*, else due after a pause."""
        if self.tries >= max_tries:
            return replace(self, state=JobState.DEAD, owner=None, error=error)
        pause = timedelta(seconds=backoff_s * 2 ** min(self.tries - 1, MOST_DOUBLINGS))
        return replace(self, state=JobState.WAITING, due_at=now + pause, owner=None, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongCall:
    """
    A call that goes on after its request was answered, as all processes of the store see it.

    Attributes:
        operation: Its name, as ``mnemo.operations`` has it.
        repo_id: The repository; ``None``: it is of the whole store.
        by: The name of the token.
        state: A call whose process ended is ``failed``: it can be made again.
        done: How far it is, of *total*.
        total: What there is to do; ``null``: it is not known.
        ended_at: ``None``: it runs.
        result: What the call returned, as JSON. It is kept with the record, up to seven days: ids
            of what the call deleted stand in it until then, or until one of them is erased.
        problem: Why it failed, as a problem document.
        version: Raised by every change.
    """

    id: str
    operation: str
    repo_id: str | None
    by: str | None
    state: Literal["running", "done", "failed", "cancelled"] = "running"
    done: int = 0
    total: int | None = None
    created_at: datetime
    ended_at: datetime | None = None
    result: Any = None
    problem: Mapping[str, Any] | None = None
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLevels:
    """
    How many jobs of a repository stand where.

    Attributes:
        dead: Given up after ``config.jobs.max_tries``.
        errors: Kind and subject → the last error, of those that are dead; 100 at most.
        messages: Of conversations, that wait to be extracted or are being.
        oldest_at: When the first of them was stored, aware; ``None``: there is none.
        per_s: Messages that were extracted per second within the last minute, by this process;
            ``None``: none were.
        seconds_left: Until *messages* are extracted at that rate, the pauses that they wait for
            aside; ``None``: it cannot be told.
    """

    waiting: int = 0
    running: int = 0
    dead: int = 0
    errors: Mapping[tuple[str, str], str] = field(default_factory=dict)
    messages: int = 0
    oldest_at: datetime | None = None
    per_s: float | None = None
    seconds_left: float | None = None

    @property
    def owed(self) -> int:
        """How many wait or run."""
        return self.waiting + self.running

    def __add__(self, other: JobLevels) -> JobLevels:
        """Those of both."""
        times = [one.oldest_at for one in (self, other) if one.oldest_at is not None]
        return JobLevels(
            waiting=self.waiting + other.waiting,
            running=self.running + other.running,
            dead=self.dead + other.dead,
            errors={**self.errors, **other.errors},
            messages=self.messages + other.messages,
            oldest_at=min(times, default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatistics:
    """
    What ``Mnemo.work`` is doing.

    Attributes:
        repos: Repositories that are open for their jobs now, sorted.
        running: Jobs that run now.
        done: Jobs that ended since the service was opened; *failed*: tries that failed.
        refused: Id of a repository that could not be opened → why, until it is tried again.
    """

    repos: tuple[str, ...] = ()
    running: int = 0
    done: int = 0
    failed: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """
    What the ``extract`` job of a thread took in by the claim *token*: everything before *to_seq*.
    The transaction that commits it is refused unless all of *message_ids* are still there, and of
    what was *shown* besides, by when it was recorded, all that has not expired. *ttl_s*: Of threads
    without one of their own.
    """

    thread_id: str
    token: int
    to_seq: int
    message_ids: Collection[str]
    shown: Mapping[str, datetime] = field(default_factory=dict)
    ttl_s: float | None = None

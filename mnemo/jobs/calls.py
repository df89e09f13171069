"""
Calls that go on after their request was answered: records in the store, seen by all processes.

The process that took the call runs it and writes how far it is. Where that process has ended, the
call is told as failed; nothing runs it again by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import anyio

from mnemo.errors import MnemoError, NotFound
from mnemo.jobs.job_rows import LeaseTime, is_held_by
from mnemo.protocols import Clock
from mnemo.runtime.clock import new_id
from mnemo.runtime.progress import PROGRESS, Progress
from mnemo.runtime.tasks import CancelHandle, ended_within, owned
from mnemo.store.engine import Engine
from mnemo.store.tables import JOBS
from mnemo.store.tx import Tx
from mnemo.values.codec import utc_text
from mnemo.values.jobs import Job, JobState, LongCall
from mnemo.values.journal import Owner

log = logging.getLogger("mnemo")
T = TypeVar("T")

OF_THE_STORE = -1
"""In the place of a repository's number, which it never is."""
LOCKS = (("calls", ""),)
BEAT_S = 0.5
"""Seconds between two looks whether it was cancelled, at which its progress is written (S)."""
MOST_KEPT, KEPT_FOR = 1_000, timedelta(days=7)
"""Records that are kept, the newest, and for how long (S)."""
_OLD = f"""
DELETE FROM jobs WHERE repo = {OF_THE_STORE} AND kind = 'call' AND (due_at < ? OR due_at <
(SELECT min(due_at) FROM (SELECT due_at FROM jobs WHERE repo = {OF_THE_STORE} AND kind = 'call'
ORDER BY due_at DESC LIMIT {MOST_KEPT - 1}) x))
"""
_ALL = f"{JOBS.select} AND kind = 'call'"
INTERRUPTED: dict[str, Any] = {
    "type": "urn:mnemo:interrupted",
    "title": "Service Unavailable",
    "status": 503,
    "detail": "the process that ran the call has ended: make it again",
    "reason": "interrupted",
    "error": "UsageError",
    "facts": {},
}


@dataclass(slots=True, eq=False)
class _Running:
    id: str
    work: asyncio.Future[Any]
    handle: CancelHandle
    progress: Progress
    encoded: Callable[[Any], Any]
    problem_of: Callable[[Exception], Mapping[str, Any]]
    cancelled: bool = field(default=False)


class LongCalls:
    """
    Runs calls for the service *owner*, and knows those of all. *spawn*: Starts a task that ends
    with the service.
    """

    def __init__(
        self,
        engine: Engine,
        owner: Owner,
        spawn: Callable[..., asyncio.Task[None]],
        clock: Clock,
        lease_time: LeaseTime,
    ) -> None:
        self._engine, self._owner, self._spawn = engine, owner, spawn
        self._clock, self._lease_time = clock, lease_time
        self._running: dict[str, _Running] = {}

    @property
    def running(self) -> int:
        """How many this process runs."""
        return len(self._running)

    async def run(
        self,
        call: LongCall,
        work: Callable[[], Awaitable[T]],
        encoded: Callable[[T], Any],
        problem_of: Callable[[Exception], Mapping[str, Any]],
        *,
        patience_s: float,
    ) -> T | LongCall:
        """
        The result of *work*, or after *patience_s* the record of what goes on then.

        *Raises* what *work* raises until then; ``StoreError``: no record could be written, and the
        work was cancelled. *Cancellation*: cancels the work until there is a record.
        """
        progress, handle = Progress(), CancelHandle()

        async def followed() -> T:
            PROGRESS.set(progress)
            return await work()

        task = owned(partial(self._spawn, handle=handle), followed)
        running = _Running(call.id, task, handle, progress, encoded, problem_of)
        try:
            if await ended_within(running.work, patience_s):
                found: T = running.work.result()
                return found
            self._running[call.id] = running
            call = replace(call, done=progress.done, total=progress.total)
            await self._write(partial(_begin, job=self._as_job(call), now=self._clock.now()))
        except BaseException:
            handle.cancel()
            self._running.pop(call.id, None)
            running.work.add_done_callback(lambda work: work.cancelled() or work.exception())
            raise
        self._spawn(self._follow, running)
        return call

    def new(self, operation: str, repo_id: str | None, by: str | None) -> LongCall:
        """A record that is not written yet; a plain call."""
        now = self._clock.now()
        return LongCall(
            id=new_id("job"), operation=operation, repo_id=repo_id, by=by, created_at=now
        )

    async def find(self, id: str) -> LongCall:
        """
        The record of a call, by whatever process. *Raises* ``NotFound``: there is none, or it is no
        longer kept. *Cancellation*: safe.
        """
        job, is_held = await self._engine.reading(partial(self._look, id))
        call = _call_of(job)
        if call.state == "running" and not (is_held and self._may_run(job)):
            return replace(call, state="failed", problem=INTERRUPTED, version=call.version + 1)
        return call

    def _may_run(self, job: Job) -> bool:
        return job.owner != self._owner.token or job.subject in self._running

    def _look(self, id: str, tx: Tx) -> tuple[Job, bool]:
        job = _job(tx, id)
        now = self._lease_time(tx)
        return job, job.owner is not None and is_held_by(tx, job.owner, me=self._owner, now=now)

    async def cancel(self, id: str) -> LongCall:
        """
        Have a call end at its next pause; one that has ended stays as it is. Gives its record.

        *Raises* ``NotFound``. *Cancellation*: completes.
        """

        def ask(tx: Tx) -> None:
            job = _job(tx, id)
            if job.state is JobState.RUNNING:
                _put(tx, replace(job, needs={**job.needs, "cancel": True}))

        await self._write(ask)
        if (running := self._running.get(id)) is not None:
            _stop(running)
        return await self.find(id)

    # ── Following one ────────────────────────────────────────────────────────────────

    async def _follow(self, running: _Running) -> None:
        try:
            while not await ended_within(running.work, BEAT_S):
                try:
                    await self._beat(running)
                except MnemoError as error:
                    log.warning("the progress of %s could not be written: %s", running.id, error)
        finally:
            running.handle.cancel()
            with anyio.CancelScope(shield=True):
                while not await ended_within(running.work, BEAT_S):
                    pass
                try:
                    await self._end(running)
                finally:
                    del self._running[running.id]

    async def _beat(self, running: _Running) -> None:
        job, _ = await self._engine.reading(partial(self._look, running.id))
        if job.needs.get("cancel"):
            _stop(running)
        now = running.progress.done, running.progress.total
        if now != (job.needs["done"], job.needs["total"]):
            await self._write(partial(_note, id=running.id, more={"done": now[0], "total": now[1]}))

    async def _end(self, running: _Running) -> None:
        said: dict[str, Any] = {"ended_at": utc_text(self._clock.now())}
        error = running.work.exception()
        if error is None:
            said |= {"state": "done", "result": running.encoded(running.work.result())}
            said |= {"done": running.progress.done, "total": running.progress.total}
        elif running.cancelled:
            said["state"] = "cancelled"
        else:
            assert isinstance(error, Exception)
            said |= {"state": "failed", "problem": dict(running.problem_of(error))}
        try:
            await self._write(partial(_note, id=running.id, more=said))
        except (MnemoError, NotFound) as failed:
            log.warning("the end of %s could not be written: %s", running.id, failed)

    async def _write(self, work: Callable[[Tx], None]) -> None:
        await self._engine.writing(work, locks=LOCKS)

    def _as_job(self, call: LongCall) -> Job:
        names = ("operation", "repo_id", "by", "state", "done", "total")
        return Job(
            kind="call",
            subject=call.id,
            due_at=call.created_at,
            state=JobState.RUNNING,
            token=call.version,
            owner=self._owner.token,
            needs={name: getattr(call, name) for name in names},
        )


def _stop(running: _Running) -> None:
    running.cancelled = True
    running.handle.cancel()


# ── Rows ─────────────────────────────────────────────────────────────────────────────


def _job(tx: Tx, id: str) -> Job:
    job = JOBS.get(tx, OF_THE_STORE, "call", id)
    if job is None:
        raise NotFound("job", id)
    return job


def _put(tx: Tx, job: Job) -> None:
    JOBS.put(tx, OF_THE_STORE, replace(job, token=job.token + 1))


def _begin(tx: Tx, job: Job, now: datetime) -> None:
    tx.run(_OLD, (utc_text(now - KEPT_FOR),))
    JOBS.add(tx, OF_THE_STORE, job)


def _note(tx: Tx, id: str, more: Mapping[str, Any]) -> None:
    job = _job(tx, id)
    is_over = more.get("state", "running") != "running"
    state = JobState.DONE if is_over else job.state
    _put(tx, replace(job, state=state, needs={**job.needs, **more}))


def _call_of(job: Job) -> LongCall:
    said = {name: one for name, one in job.needs.items() if name not in ("cancel", "ended_at")}
    ended_at = job.needs.get("ended_at")
    return LongCall(
        id=job.subject,
        created_at=job.due_at,
        ended_at=datetime.fromisoformat(ended_at) if ended_at else None,
        version=job.token,
        **said,
    )


def drop_calls(tx: Tx, repo_id: str) -> None:
    """Delete the records of calls about a repository, what they returned included."""
    _drop(tx, lambda call: call.needs.get("repo_id") == repo_id)


def leave_calls(tx: Tx, repo: int, ids: Sequence[str], expired: bool) -> None:
    """Delete the records of calls that returned one of *ids*, which leave recall."""
    gone = frozenset(ids)

    def names(call: Job) -> bool:
        result = call.needs.get("result")
        return isinstance(result, dict) and not gone.isdisjoint(
            (*result.get("deleted_ids", ()), *result.get("merged", ()))
        )

    _drop(tx, names)


def _drop(tx: Tx, which: Callable[[Job], bool]) -> None:
    for job in JOBS.rows.intact(tx.run(_ALL, (OF_THE_STORE,)).fetchall()):
        if which(job):
            JOBS.drop(tx, OF_THE_STORE, job)

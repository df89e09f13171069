"""Claims, fences and results of jobs, within one transaction of a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, replace
from datetime import datetime, timedelta
from typing import Any

from mnemo.errors import Conflict, NotFound
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.values.derived import alive_since
from mnemo.values.feed import FeedCursor
from mnemo.values.jobs import Intake, Job, JobState
from mnemo.values.journal import Owner
from mnemo.values.messages import StoredMessage

MOST_LOOKED_AT = 1_000
"""Waiting jobs among which those that fit a worker are looked for (S)."""


def claim_jobs(
    tx: TranscriptWriter,
    owner: Owner,
    *,
    limit: int,
    held: Collection[tuple[str, str]] = (),
    fits: Callable[[Job], bool] = lambda job: True,
) -> list[Job]:
    """
    Claim at most *limit* due jobs that fit, those first whose worker is dead or lost its lease.

    *held*: Kinds and subjects that this service works on now. One that waits again already, because
    its worker has written the result and not yet returned, is passed over. *fits*: Whether this
    service can do a job; called on the store's thread.
    """

    def is_free(job: Job) -> bool:
        return job.key not in held and fits(job)

    lost = lost_jobs(tx, owner, is_free)
    due = waiting_jobs(tx, is_free, limit=limit, due=tx.lease_now) if len(lost) < limit else []
    claimed = [job.claimed(owner.token) for job in (*lost, *due)[:limit]]
    for job in claimed:
        tx.put_job(job)
    return claimed


def lost_jobs(tx: TranscriptReader, owner: Owner, fits: Callable[[Job], bool]) -> list[Job]:
    """List the running jobs that fit, whose worker is dead or has lost its lease to *owner*."""
    running = tx.jobs(JobState.RUNNING)
    return [job for job in running if fits(job) and not tx.is_owned_elsewhere(job.owner, owner)]


def waiting_jobs(
    tx: TranscriptReader, fits: Callable[[Job], bool], *, limit: int, due: datetime | None = None
) -> list[Job]:
    """List the first *limit* waiting jobs that fit, by the time when they are due."""
    first = tx.jobs(JobState.WAITING, due=due, limit=limit)
    if len(first) == limit and not all(map(fits, first)):
        first = tx.jobs(JobState.WAITING, due=due, limit=MOST_LOOKED_AT)
    return [job for job in first if fits(job)][:limit]


def postpone_job(tx: TranscriptWriter, job: Job, due_at: datetime) -> None:
    """Give *job* back untried, if the claim still holds."""
    present = held_job(tx, job)
    if present is not None:
        tx.put_job(present.postponed(due_at))


def defer_job(tx: TranscriptWriter, job: Job, *, pause_s: float) -> None:
    """Give *job* back untried, to be claimed again after *pause_s*, if the claim still holds."""
    postpone_job(tx, job, tx.lease_now + timedelta(seconds=pause_s))


def fail_job(
    tx: TranscriptWriter,
    job: Job,
    error: str,
    *,
    about: Sequence[str] = (),
    backoff_s: float,
    max_tries: int,
) -> None:
    """
    Note that a try of *job* failed, if the claim still holds.

    *about*: Ids of the messages that *error* may quote: where one was erased meanwhile, the job is
    given back untried.
    """
    present = held_job(tx, job)
    if present is None:
        return
    if len(tx.by_id(job.subject, about)) < len(about):
        tx.put_job(present.postponed(tx.lease_now))
    else:
        tx.put_job(
            present.failed(error, now=tx.lease_now, backoff_s=backoff_s, max_tries=max_tries)
        )


def held_job(tx: TranscriptReader, job: Job) -> Job | None:
    """*job* as it is stored, if the claim on it still holds."""
    present = tx.job(job.kind, job.subject)
    return present if present is not None and present.is_held(job.token) else None


def hasten_jobs(tx: TranscriptWriter) -> None:
    """Have everything that waits be due now."""
    for job in tx.jobs(JobState.WAITING):
        if job.due_at > tx.lease_now:
            tx.put_job(replace(job, due_at=tx.lease_now))


def retry_jobs(
    tx: TranscriptWriter, thread_ids: Sequence[str] | None, here: Mapping[str, Any]
) -> list[str]:
    """
    Have jobs of *thread_ids* that wait or are dead be due now, and name them; ``None``: all dead.

    They need what *here* names then, such as the space, whatever they were owed with.

    *Raises* ``NotFound``: a thread never had a job.
    """
    jobs = tx.jobs(JobState.DEAD) if thread_ids is None else _jobs_of(tx, thread_ids)
    again = [job for job in jobs if job.state in (JobState.WAITING, JobState.DEAD)]
    for job in again:
        needs = {**job.needs, **here} if job.needs else job.needs
        tx.put_job(replace(job, needs=needs).retried(tx.lease_now))
    return [job.subject for job in again]


def cancel_jobs(tx: TranscriptWriter, thread_ids: Sequence[str]) -> list[str]:
    """
    Take the messages of *thread_ids* for extracted; the workers of their jobs lose the claim.

    Gives the threads that had a job to do. *Raises* ``NotFound``: a thread never had a job.
    """
    owed = [job for job in _jobs_of(tx, thread_ids) if job.state is not JobState.DONE]
    for job in owed:
        thread = tx.thread(job.subject)
        tx.keep(replace(thread, extracted_seq=thread.next_seq))
        tx.put_job(job.cancelled())
    return [job.subject for job in owed]


def _jobs_of(tx: TranscriptWriter, thread_ids: Sequence[str]) -> list[Job]:
    found = {id: tx.job("extract", id) for id in thread_ids}
    for id, job in found.items():
        if job is None:
            raise NotFound("job", id)
    return [job for job in found.values() if job is not None]


def demand_extraction(
    tx: TranscriptWriter,
    messages: Sequence[StoredMessage],
    *,
    quiet_s: float,
    most_waiting: int,
    at_once: bool,
    needs: Mapping[str, Any] | None = None,
) -> bool:
    """
    Have *messages* of one thread be extracted, with all that is still due there.

    Due after *quiet_s* seconds without another demand, or now: if *most_waiting* messages wait, or
    *at_once*. A thread's first demand begins here. *needs*: What the worker must have. Gives
    whether it is due now; not if all of them are extracted.
    """
    thread = tx.thread(messages[0].thread_id)
    start = thread.extracted_seq
    waiting = [message.seq for message in messages if start is None or message.seq >= start]
    if not waiting:
        return False
    if start is None:
        start = min(waiting)
        tx.keep(replace(thread, extracted_seq=start))
    is_due = at_once or thread.next_seq - start >= most_waiting
    due_at = tx.lease_now if is_due else tx.lease_now + timedelta(seconds=quiet_s)
    job = tx.job("extract", thread.id)
    if job is None:
        job = Job(kind="extract", subject=thread.id, due_at=due_at)
    job = replace(job, needs=needs or {})
    tx.put_job(job.demanded(due_at, now=tx.lease_now, at_once=at_once))
    return is_due


def demand_session(tx: TranscriptWriter, session_id: str, needs: Mapping[str, Any]) -> None:
    """Have the closed episode of a session be extracted by whoever has what *needs* names."""
    known = tx.job("session", session_id)
    job = known or Job(kind="session", subject=session_id, due_at=tx.lease_now)
    tx.put_job(replace(job, needs=needs).retried(tx.lease_now))


def owed_embedding(
    tx: TranscriptReader, owner: Owner, needs: Mapping[str, Any], *, claims: bool
) -> tuple[Job | None, Job]:
    """
    The embed job, and what it is to be once what has no vector is owed; *claims*: *owner* is to
    claim it, if it is due and nobody does it. *Raises* ``Conflict``: *needs* another space than
    that of the repository, whose job stays with those who can do it.
    """
    stored, space = tx.job("embed", ""), tx.space
    if space not in (None, needs["space"]):
        raise Conflict(f"the repository is of the space {space}, not {needs['space']}")
    is_able = stored is not None and stored.needs.get("space") == needs["space"]
    if stored is not None and (is_able or space is None) and _is_at_work(tx, stored, owner):
        return stored, replace(stored, needs={**stored.needs, "again": True})
    if stored is None or not is_able:
        token = 0 if stored is None else stored.token
        job = Job(kind="embed", subject="", due_at=tx.lease_now, token=token, needs=needs)
    elif stored.state is JobState.WAITING and not (claims and stored.due_at <= tx.lease_now):
        return stored, stored
    else:
        job = stored.retried(tx.lease_now)
    return stored, job.claimed(owner.token) if claims else job


def demand_embedding(
    tx: TranscriptWriter, owner: Owner, needs: Mapping[str, Any], *, claims: bool
) -> tuple[Job, bool]:
    """Write ``owed_embedding``; give the job, and whether *owner* has just claimed it."""
    stored, job = owed_embedding(tx, owner, needs, claims=claims)
    if job != stored:
        tx.put_job(job)
    return job, job.token != (stored.token if stored else 0)


def is_owed_in_another_space(tx: TranscriptReader, needs: Mapping[str, Any]) -> bool:
    """Whether the embed job that is owed is of another space than the repository and *needs*."""
    job = tx.job("embed", "")
    if job is None or job.state is JobState.DONE or tx.space != needs["space"]:
        return False
    return bool(job.needs.get("space") != needs["space"])


def _is_at_work(tx: TranscriptReader, job: Job, me: Owner) -> bool:
    is_live = job.owner == me.token or tx.is_owned_elsewhere(job.owner, me)
    return job.state is JobState.RUNNING and is_live


def finish_embedding(tx: TranscriptWriter, job: Job, until: FeedCursor) -> None:
    """Finish *job*, if the claim still holds: up to *until* all that is there has its vectors."""
    present = held_job(tx, job)
    if present is not None:
        needs = {name: need for name, need in present.needs.items() if name != "again"}
        done = replace(present, needs={**needs, "until": astuple(until)})
        tx.put_job(done.finished(more="again" in present.needs))


def finish_job(tx: TranscriptWriter, job: Job) -> None:
    """Finish *job*, if the claim still holds."""
    present = held_job(tx, job)
    if present is not None:
        tx.put_job(present.finished(more=False))


def finish_extraction(tx: TranscriptWriter, done: Intake) -> None:
    """
    Advance the thread's ``extracted_seq`` and finish its job.

    *Raises* ``Conflict``: another worker has claimed the job since, or a message was erased.
    """
    job = tx.job("extract", done.thread_id)
    if job is None or not job.is_held(done.token):
        raise Conflict(f"the job of thread {done.thread_id!r} was taken over by another worker")
    thread = tx.thread(done.thread_id)
    since = alive_since(thread.ttl_s, done.ttl_s, tx.now)
    shown = [id for id, at in done.shown.items() if since is None or at >= since]
    needed = {*done.message_ids, *shown}
    if len(tx.by_id(done.thread_id, list(needed))) < len(needed):
        raise Conflict(f"messages of thread {done.thread_id!r} were erased meanwhile")
    tx.keep(replace(thread, extracted_seq=done.to_seq))
    tx.put_job(job.finished(more=done.to_seq < thread.next_seq))

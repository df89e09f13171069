"""Jobs under any order of claims, ends, deaths and erasures: no message twice, none forgotten."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

from contracts.talk import said
from engines import OverEngines, bare_transaction, on_postgres
from helpers import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from world import NOON

from mnemo.errors import Conflict
from mnemo.jobs.job_rows import register, unregister
from mnemo.log.job_rules import (
    claim_jobs,
    demand_extraction,
    fail_job,
    finish_extraction,
    hasten_jobs,
    postpone_job,
)
from mnemo.log.transcript import TranscriptWriter
from mnemo.values.jobs import Intake, Job, JobState
from mnemo.values.journal import Owner

LEASE_S, MAX_TRIES = 30, 2
THREADS, WORKERS = st.sampled_from(["s", "t"]), st.sampled_from([0, 1, 2])
T = TypeVar("T")


@dataclass(frozen=True)
class Claim:
    """A job as a worker got it, with the messages that it read then."""

    job: Job
    done: Intake


class JobMachine(OverEngines):
    """Three services on other hosts, whose leases alone say that they live, and two threads."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.tx = self.stack.enter_context(bare_transaction(self.url))
        self.now = NOON + timedelta(days=1)
        self.owners = [self.owner(n) for n in range(3)]
        self.claims: list[list[Claim]] = [[], [], []]
        self.holder: dict[str, tuple[int, int]] = {}
        self.leases = [self.now] * 3
        self.extracted: dict[str, list[str]] = {"s": [], "t": []}
        self.erased: dict[str, set[str]] = {"s": set(), "t": set()}
        self.tokens = {"s": 0, "t": 0}
        for worker in range(3):
            self.renew(worker)

    def owner(self, number: int) -> Owner:
        return Owner(token=f"o{number}", host=f"host {number}", pid=1, started=1)

    def write(self, work: Callable[[TranscriptWriter], T]) -> T:
        tx = self.tx
        tx.run("BEGIN")
        try:
            writer = TranscriptWriter(tx, "r", self.now)
            result = work(writer)
            writer.flush()
        except BaseException:
            tx.run("ROLLBACK")
            raise
        tx.run("COMMIT")
        return result

    def is_holder(self, worker: int, claim: Claim) -> bool:
        return self.holder.get(claim.job.subject) == (worker, claim.job.token)

    # ── What happens ─────────────────────────────────────────────────────────────────

    @rule(thread=THREADS, at_once=st.booleans())
    def say(self, thread: str, at_once: bool) -> None:
        """A message is stored, and its extraction demanded."""

        def work(tx: TranscriptWriter) -> None:
            row = tx.thread(thread)
            message = said(row.next_seq, thread=thread)
            tx.add([message])
            tx.keep(replace(row, next_seq=row.next_seq + 1))
            demand_extraction(tx, [message], quiet_s=5, most_waiting=3, at_once=at_once)

        self.write(work)

    @rule(worker=WORKERS, limit=st.integers(1, 2))
    def claim(self, worker: int, limit: int) -> None:
        """A worker claims: nothing that another one holds by a lease that runs."""
        held = {claim.job.key for claim in self.claims[worker]}

        def work(tx: TranscriptWriter) -> list[Claim]:
            jobs = claim_jobs(tx, self.owners[worker], limit=limit, held=held)
            return [Claim(job, self.portion(tx, job)) for job in jobs]

        for claim in self.write(work):
            before = self.holder.get(claim.job.subject)
            if before is not None and before[0] != worker:
                assert self.leases[before[0]] <= self.now
            assert claim.job.token == self.tokens[claim.job.subject] + 1
            self.tokens[claim.job.subject] += 1
            self.holder[claim.job.subject] = (worker, claim.job.token)
            self.claims[worker].append(claim)

    def portion(self, tx: TranscriptWriter, job: Job) -> Intake:
        thread = tx.thread(job.subject)
        assert thread.extracted_seq is not None
        messages = tx.messages(thread.id, from_seq=thread.extracted_seq)
        return Intake(
            thread_id=thread.id,
            token=job.token,
            to_seq=thread.next_seq,
            message_ids=tuple(message.stored_id for message in messages),
        )

    @rule(worker=WORKERS, data=st.data())
    def finish(self, worker: int, data: st.DataObject) -> None:
        """A result is written if the claim still holds and every message is there."""
        if not self.claims[worker]:
            return
        claim = self.claims[worker].pop(data.draw(st.integers(0, len(self.claims[worker]) - 1)))
        thread = claim.job.subject
        whole = not self.erased[thread] & set(claim.done.message_ids)
        try:
            self.write(lambda tx: finish_extraction(tx, claim.done))
        except Conflict:
            assert not (self.is_holder(worker, claim) and whole)
            return
        assert self.is_holder(worker, claim)
        assert whole
        del self.holder[thread]
        self.extracted[thread] += claim.done.message_ids

    @rule(worker=WORKERS, fails=st.booleans())
    def give_up(self, worker: int, fails: bool) -> None:
        """A try fails or is given back; from a worker that lost its claim, that changes nothing."""
        if not self.claims[worker]:
            return
        claim = self.claims[worker].pop()
        job = claim.job
        before = self.write(lambda tx: tx.job("extract", job.subject))
        if fails:
            self.write(lambda tx: fail_job(tx, job, "no", backoff_s=5, max_tries=MAX_TRIES))
        else:
            self.write(lambda tx: postpone_job(tx, job, self.now))
        if self.is_holder(worker, claim):
            del self.holder[job.subject]
        else:
            assert self.write(lambda tx: tx.job("extract", job.subject)) == before

    @rule(worker=WORKERS, leaves=st.booleans())
    def die(self, worker: int, leaves: bool) -> None:
        """A worker forgets what it held: it starts anew, or its service is gone."""
        self.claims[worker].clear()
        if leaves:
            self.write(lambda tx: unregister(tx._tx, self.owners[worker].token))
            self.leases[worker] = self.now
        for thread, (holder, _) in list(self.holder.items()):
            if holder == worker and leaves:
                del self.holder[thread]

    @rule(worker=WORKERS)
    def renew(self, worker: int) -> None:
        """A service prolongs its lease."""
        self.leases[worker] = self.now + timedelta(seconds=LEASE_S)
        me = self.owners[worker]
        self.write(lambda tx: register(tx._tx, me, now=self.now, lease_s=LEASE_S))

    @rule(seconds=st.sampled_from([1, 5, 12, 31]))
    def wait(self, seconds: int) -> None:
        """Time passes."""
        self.now += timedelta(seconds=seconds)

    @rule(thread=THREADS, seq=st.integers(0, 5))
    def erase(self, thread: str, seq: int) -> None:
        """A message is erased."""
        if self.write(lambda tx: tx.erase(thread, [seq])).messages:
            self.erased[thread].add(f"m{seq}")

    @rule()
    def hasten(self) -> None:
        """Everything that waits is due now."""
        self.write(hasten_jobs)

    # ── What holds ───────────────────────────────────────────────────────────────────

    @invariant()
    def each_message_is_extracted_once_and_in_order(self) -> None:
        """What was committed ascends, and ends where the thread says."""
        for thread, ids in self.extracted.items():
            seqs = [int(id[1:]) for id in ids]
            assert seqs == sorted(set(seqs))
            row = self.write(lambda tx, t=thread: tx.thread(t))
            assert all(seq < (row.extracted_seq or 0) for seq in seqs)

    @invariant()
    def no_message_is_forgotten(self) -> None:
        """Where messages are left, a job is owed, runs or is visibly dead."""
        for thread in ("s", "t"):
            row, job = self.write(lambda tx, t=thread: (tx.thread(t), tx.job("extract", t)))
            if row.extracted_seq is not None and row.extracted_seq < row.next_seq:
                assert job is not None
                assert job.state is not JobState.DONE

    def teardown(self) -> None:
        self.stack.close()


TestJobs = JobMachine.TestCase
TestJobs.settings = settings(max_examples=examples(60), stateful_step_count=30)
TestJobsOnPostgres = on_postgres(JobMachine, tries=20, steps=25)

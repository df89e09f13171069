"""The contract of jobs: one worker at a time, and nothing is written by one that lost its claim."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

import pytest
from contracts.talk import said
from world import NOON, Kit, StoreContract

from mnemo.errors import Conflict
from mnemo.log.job_rules import (
    claim_jobs,
    demand_extraction,
    demand_session,
    fail_job,
    finish_extraction,
    hasten_jobs,
    postpone_job,
)
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.values.derived import Thread
from mnemo.values.erasure import Selection
from mnemo.values.graph import Tag
from mnemo.values.jobs import Intake, Job, JobKind, JobLevels, JobState
from mnemo.values.journal import Owner, SessionState

T = TypeVar("T")
SECOND = timedelta(seconds=1)


class JobContract(StoreContract):
    """Jobs in a ``StoredTranscript``: rows, claims, and the fence of a commit."""

    async def _write(self, kit: Kit, work: Callable[[TranscriptWriter], T], repo: str = "r") -> T:
        return await kit.store.transcript(repo).writing(work)

    async def _read(self, kit: Kit, work: Callable[[TranscriptReader], T], repo: str = "r") -> T:
        return await kit.store.transcript(repo).reading(work)

    async def _say(self, kit: Kit, *seqs: int, thread: str = "t", at_once: bool = False) -> None:
        """Store messages and demand their extraction."""

        def work(tx: TranscriptWriter) -> None:
            messages = [said(seq, thread=thread) for seq in seqs]
            before = tx.thread(thread)
            tx.add(messages)
            tx.keep(Thread(id=thread, next_seq=seqs[-1] + 1, extracted_seq=before.extracted_seq))
            demand_extraction(tx, messages, quiet_s=5, most_waiting=12, at_once=at_once)

        await self._write(kit, work)

    async def _claim(
        self,
        kit: Kit,
        owner: Owner | None = None,
        *,
        limit: int = 10,
        held: Collection[tuple[str, str]] = (),
    ) -> list[Job]:
        claim = partial(claim_jobs, owner=owner or kit.owner, limit=limit, held=held)
        return await self._write(kit, claim)

    async def _job(self, kit: Kit, thread: str = "t") -> Job:
        job = await self._read(kit, lambda tx: tx.job("extract", thread))
        assert job is not None
        return job

    # ── Due times ────────────────────────────────────────────────────────────────────

    async def test_a_job_comes_back_as_it_was_written(self, kit):
        """Every field of a job is kept, each kind and subject once."""
        job = Job(
            kind="extract",
            subject="t",
            due_at=kit.clock.now(),
            state=JobState.RUNNING,
            tries=2,
            token=7,
            owner="o",
            error="why",
            needs={"space": "s", "config": {"extraction": {"max_facts": 1}}},
        )
        for token in (6, 7):
            kept = Job(**{f: getattr(job, f) for f in job.__slots__} | {"token": token})
            await self._write(kit, lambda tx, kept=kept: tx.put_job(kept))  # type: ignore[misc]
        assert await self._job(kit) == job
        assert await self._read(kit, lambda tx: tx.jobs(JobState.RUNNING)) == [job]
        assert await self._read(kit, lambda tx: tx.job("extract", "T")) is None
        assert await self._read(kit, lambda tx: tx.jobs(JobState.RUNNING), "other") == []

    async def test_a_job_that_does_not_fit_is_left_and_stands_in_no_other_ones_way(self, kit):
        """It waits for a worker that has what it needs; later jobs are claimed before it."""
        for thread in ("a", "b", "c"):
            await self._say(kit, 0, thread=thread, at_once=True)
            kit.clock.advance(1)

        def claim(tx: TranscriptWriter, held: Collection[tuple[str, str]] = ()) -> list[Job]:
            def fits(job: Job) -> bool:
                return job.subject == "c"

            return claim_jobs(tx, kit.owner, limit=1, held=held, fits=fits)

        (claimed,) = await self._write(kit, claim)
        assert claimed.subject == "c"
        assert await self._write(kit, partial(claim, held=[claimed.key])) == []
        rest = await self._claim(kit, held=[claimed.key])
        assert [job.subject for job in rest] == ["a", "b"]

    async def test_repositories_that_owe_something_are_told_the_longest_due_first(self, kit):
        """What is not due, held by a live service, or of another kind, is nothing to claim."""

        async def owing(owner: Owner, *kinds: JobKind) -> list[str]:
            return [*(await kit.store.owing(owner, kinds or None)).repos]

        for repo in ("r", "q"):
            await self._write(kit, partial(demand_session, session_id="s", needs={}), repo)
            kit.clock.advance(1)
        await self._say(kit, 0, thread="later")
        assert await owing(kit.owner) == ["r", "q"]
        assert await owing(kit.owner, "extract") == []
        store, other = await kit.another()
        assert len(await self._claim(kit)) == 1
        assert [*(await store.owing(other, None)).repos] == ["q"]
        kit.clock.advance(30)
        await store.renew(other, 30)
        assert [*(await store.owing(other, None)).repos] == ["r", "q"]
        assert [*(await store.owing(other, ["extract"])).repos] == ["r"]

    async def test_a_thread_is_due_after_quiet_or_with_enough_messages(self, kit):
        """Each message puts the time off, until twelve of them wait."""
        await self._say(kit, 0)
        kit.clock.advance(4)
        await self._say(kit, 1)
        kit.clock.advance(4)
        assert await self._claim(kit) == []
        await self._say(kit, *range(2, 12))
        assert [job.subject for job in await self._claim(kit)] == ["t"]

    async def test_the_longest_due_are_claimed_first_and_no_more_than_asked_for(self, kit):
        """A batch is bounded, and what it leaves is claimed by the next one."""
        for thread in ("a", "b", "c"):
            await self._say(kit, 0, thread=thread)
            kit.clock.advance(1)
        kit.clock.advance(5)
        first = await self._claim(kit, limit=2)
        rest = await self._claim(kit, limit=2, held=[job.key for job in first])
        assert [[job.subject for job in jobs] for jobs in (first, rest)] == [["a", "b"], ["c"]]
        assert {job.token for job in (*first, *rest)} == {1}
        levels = await self._read(kit, lambda tx: tx.job_levels())
        assert (levels.waiting, levels.running, levels.dead) == (0, 3, 0)
        assert levels.messages == 3

    async def test_a_job_that_waits_again_while_it_is_held_is_not_claimed_twice(self, kit):
        """A worker that wrote its result has to return first; another worker need not wait."""
        await self._say(kit, 0, at_once=True)
        (job,) = await self._claim(kit)
        done = Intake(thread_id="t", token=job.token, to_seq=1, message_ids=("m0",))
        await self._write(kit, partial(finish_extraction, done=done))
        await self._say(kit, 1, at_once=True)
        assert await self._claim(kit, held=[job.key]) == []
        assert [again.token for again in await self._claim(kit)] == [job.token + 1]

    async def test_a_failed_job_waits_longer_each_time_and_dies(self, kit):
        """After the last try it is dead, is counted so, and says why; a demand revives it."""
        await self._say(kit, 0, at_once=True)
        for pause_s in (5, 10):
            (job,) = await self._claim(kit)
            await self._write(kit, partial(fail_job, job=job, error="no", backoff_s=5, max_tries=3))
            assert (await self._job(kit)).due_at == kit.clock.now() + pause_s * SECOND
            await self._say(kit, job.tries)  # which does not make the pause shorter
            kit.clock.advance(pause_s)
        (job,) = await self._claim(kit)
        await self._write(kit, partial(fail_job, job=job, error="no", backoff_s=5, max_tries=3))
        dead = await self._job(kit)
        assert (dead.state, dead.error, dead.tries) == (JobState.DEAD, "no", 3)
        assert await self._read(kit, lambda tx: tx.job_levels()) == JobLevels(dead=1)
        await self._say(kit, 9)
        assert (await self._job(kit)).tries == 0
        await self._write(kit, hasten_jobs)
        assert [job.token for job in await self._claim(kit)] == [4]

    async def test_why_a_job_failed_goes_with_what_it_may_quote(self, kit):
        """Erasing a message of the thread takes the error along; the job stays."""
        await self._say(kit, 0, 1, at_once=True)
        (job,) = await self._claim(kit)
        fail = partial(fail_job, job=job, error="hunter2", backoff_s=5, max_tries=1)
        await self._write(kit, fail)
        await self._write(kit, lambda tx: tx.erase("t", [0]))
        dead = await self._job(kit)
        assert (dead.state, dead.error) == (JobState.DEAD, None)

    async def test_why_a_job_failed_is_not_told_once_what_it_may_quote_is_gone(self, kit):
        """It was about a message that was erased: the job is given back untried, without error."""
        await self._say(kit, 0, 1, at_once=True)
        (job,) = await self._claim(kit)
        fail = partial(fail_job, job=job, error="hunter2", backoff_s=5, max_tries=1)
        await self._write(kit, lambda tx: tx.erase("t", [0]))
        await self._write(kit, partial(fail, about=["m0", "m1"]))
        left = await self._job(kit)
        assert (left.state, left.error, left.tries) == (JobState.WAITING, None, 0)
        (job,) = await self._claim(kit)
        await self._write(kit, partial(fail, job=job, error="bees", about=["m1"]))
        assert (await self._job(kit)).error == "bees"

    @pytest.mark.parametrize("fails", ["before", "after"])
    async def test_why_a_session_failed_goes_with_the_steps_it_may_quote(self, kit, fails):
        """So it does of a session that is shortened; a worker of then writes no error after."""
        await kit.start()
        for text, at in (("hunter2", NOON), ("bees", NOON + SECOND)):
            await kit.append(text, at=at)
        await self._write(kit, partial(demand_session, session_id="s", needs={}))
        (job,) = await self._claim(kit)
        fail = partial(fail_job, job=job, error="hunter2", backoff_s=5, max_tries=1)
        forget = partial(kit.store.overhaul("r").erase, Selection(before=NOON + SECOND))
        steps = [partial(self._write, kit, fail), forget]
        for step in steps if fails == "before" else steps[::-1]:
            await step()
        left = await self._read(kit, lambda tx: tx.job("session", "s"))
        state = JobState.DEAD if fails == "before" else JobState.WAITING
        assert (left.state, left.owner, left.error) == (state, None, None)

    async def test_what_is_given_back_was_not_tried(self, kit):
        """A job that is given back is claimed at its time, under another token."""
        await self._say(kit, 0, at_once=True)
        (job,) = await self._claim(kit)
        due_at = kit.clock.now() + 3 * SECOND
        await self._write(kit, partial(postpone_job, job=job, due_at=due_at))
        assert await self._claim(kit) == []
        kit.clock.advance(3)
        (again,) = await self._claim(kit)
        assert (again.tries, again.token) == (1, 2)

    async def test_what_falls_due_next_is_known_by_its_repository(self, kit):
        """The soonest first, of all repositories."""
        for repo, seconds in (("r", 5), ("q", 3)):
            job = Job(kind="session", subject="s", due_at=kit.clock.now() + seconds * SECOND)
            await self._write(kit, lambda tx, job=job: tx.put_job(job), repo=repo)
        assert [*(await kit.store.owing(kit.owner, None)).soon] == [("q", 3), ("r", 5)]
        kit.clock.advance(3)
        assert [*(await kit.store.owing(kit.owner, None)).soon] == [("r", 2)]

    # ── Claims and fences ────────────────────────────────────────────────────────────

    async def test_what_is_claimed_is_nobody_elses_while_its_owner_lives(self, kit):
        """Another service claims it when the lease is over; the first then writes nothing."""
        _, stranger = await kit.another()
        await self._say(kit, 0, at_once=True)
        (job,) = await self._claim(kit)
        assert await self._claim(kit, stranger) == []
        kit.clock.advance(29)
        assert await self._claim(kit, stranger) == []
        kit.clock.advance(2)
        (taken,) = await self._claim(kit, stranger)
        assert taken.token == job.token + 1
        done = partial(Intake, thread_id="t", to_seq=1, message_ids=("m0",))
        with pytest.raises(Conflict, match="taken over"):
            await self._write(kit, partial(finish_extraction, done=done(token=job.token)))
        await self._write(kit, partial(fail_job, job=job, error="x", backoff_s=5, max_tries=1))
        await self._write(kit, partial(postpone_job, job=job, due_at=kit.clock.now()))
        assert await self._job(kit) == taken
        await self._write(kit, partial(finish_extraction, done=done(token=taken.token)))
        assert (await self._job(kit)).state is JobState.DONE

    async def test_an_owner_that_left_is_followed_at_once(self, kit):
        """The jobs of a service that has released everything are claimed without waiting."""
        store, stranger = await kit.another()
        await self._say(kit, 0, at_once=True)
        await self._claim(kit, stranger)
        await store.release(stranger)
        assert [job.token for job in await self._claim(kit)] == [2]

    async def test_what_came_meanwhile_is_due_after_a_success(self, kit):
        """A message stored while the job runs is taken in by the next claim, not lost."""
        await self._say(kit, 0, at_once=True)
        (job,) = await self._claim(kit)
        await self._say(kit, 1)
        done = Intake(thread_id="t", token=job.token, to_seq=1, message_ids=("m0",))
        await self._write(kit, partial(finish_extraction, done=done))
        assert (await self._read(kit, lambda tx: tx.thread("t"))).extracted_seq == 1
        assert await self._claim(kit) == []
        kit.clock.advance(5)
        assert [job.token for job in await self._claim(kit)] == [2]

    async def test_a_commit_whose_claim_or_message_is_gone_writes_nothing(self, kit):
        """The fence and the messages are looked at in the transaction of the graph."""
        await self._say(kit, 0, 1, at_once=True)
        (job,) = await self._claim(kit)
        await kit.start("s", thread_id="t")
        done = Intake(thread_id="t", token=job.token, to_seq=2, message_ids=("m0", "m1"))
        stale = Intake(thread_id="t", token=0, to_seq=2, message_ids=())
        await self._refused(kit, stale, "taken over")
        await self._write(kit, lambda tx: tx.erase("t", [1]))
        await self._refused(kit, done, "erased")
        kept = Intake(thread_id="t", token=job.token, to_seq=2, message_ids=("m0",))
        await self._commit(kit, kept)
        assert (await self._read(kit, lambda tx: tx.thread("t"))).extracted_seq == 2
        assert (await kit.load()).record.state is SessionState.IDLE

    async def test_what_was_only_shown_may_expire_meanwhile(self, kit):
        """A message before the portion that is gone before its time was erased: nothing is kept."""
        await self._say(kit, 0, 1, at_once=True)
        (job,) = await self._claim(kit)
        await kit.start("s", thread_id="t")
        shown = {"m0": kit.clock.now()}
        done = Intake(
            thread_id="t", token=job.token, to_seq=2, message_ids=("m1",), shown=shown, ttl_s=60
        )
        await self._write(kit, lambda tx: tx.erase("t", [0]))
        await self._refused(kit, replace(done, ttl_s=None), "erased")
        await self._refused(kit, done, "erased")
        kit.clock.advance(61)
        await self._refused(kit, replace(done, message_ids=("m0", "m1")), "erased")
        await self._commit(kit, done)
        assert (await self._read(kit, lambda tx: tx.thread("t"))).extracted_seq == 2

    async def test_sessions_of_jobs_are_known_by_their_thread(self, kit):
        """They are found by the thread, are no unfinished sessions, and by-hand ones are."""
        await kit.start("s", thread_id="t")
        await kit.start("by-hand")
        assert await self._read(kit, lambda tx: tx.extracting("t")) == ["s"]
        assert await self._read(kit, lambda tx: tx.extracting("by-hand")) == []
        unfinished = await kit.store.sessions("r").records(unfinished=True)
        assert [record.id for record in unfinished] == ["by-hand"]

    async def test_it_is_known_what_came_of_messages(self, kit):
        """Messages of sessions by hand are fed; those of a job lead to its receipt."""
        await self._say(kit, 0, 1, 2, at_once=True)
        (job,) = await self._claim(kit)
        await kit.start("s", thread_id="t")
        await kit.start("by-hand")
        await kit.append("message 0", thread_id="t", message_id="m0")
        await kit.append("message 1", session="by-hand", thread_id="t", message_id="m1")
        await self._commit(
            kit, Intake(thread_id="t", token=job.token, to_seq=3, message_ids=("m0",))
        )
        ids = ["m0", "m1", "m2"]
        assert await self._read(kit, lambda tx: tx.fed("t", ids)) == {"m1"}
        assert await self._read(kit, lambda tx: tx.made_of("t", ids)) == ["tag"]
        assert await self._read(kit, lambda tx: tx.made_of("t", ["m1"])) == []

    async def _commit(self, kit: Kit, done: Intake) -> None:
        settlement = kit.settlement(ends=True)
        values = {name: getattr(settlement, name) for name in settlement.__slots__}
        whole = type(settlement)(**values | {"intake": done})
        tag = Tag("tag", id="tag", created_at=kit.clock.now())
        await kit.apply(tag, settlement=whole)

    async def _refused(self, kit: Kit, done: Intake, why: str) -> None:
        with pytest.raises(Conflict, match=why):
            await self._commit(kit, done)
        assert await kit.store.graph("r").nodes() == []
        assert (await kit.load()).record.state is SessionState.COLLECTING

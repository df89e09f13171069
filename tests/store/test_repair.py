"""What earlier versions left in a store is put right, and nothing else is touched."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from contracts.talk import said
from engines import emptied
from postgres_server import ON_POSTGRES
from world import SPACE, Kit, opened, unit_vector

from mnemo.log.job_rules import claim_jobs, demand_extraction, finish_extraction
from mnemo.log.transcript import TranscriptWriter
from mnemo.store.tx import Tx
from mnemo.testing import ManualClock
from mnemo.values.derived import Thread
from mnemo.values.jobs import Intake, JobState


@pytest.fixture(params=["file", ON_POSTGRES])
async def kit(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kit]:
    """An opened store."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    place, clock = emptied(url, tmp_path), ManualClock()
    async with opened(place, clock) as kit:
        yield kit


async def remember(kit: Kit, thread: str, *seqs: int) -> None:
    """Store messages and have them extracted."""

    def work(tx: TranscriptWriter) -> None:
        messages = [said(seq, thread=thread) for seq in seqs]
        tx.add(messages)
        tx.keep(Thread(id=thread, next_seq=seqs[-1] + 1, extracted_seq=seqs[0]))
        demand_extraction(tx, messages, quiet_s=5, most_waiting=12, at_once=True)

    await kit.store.transcript("r").writing(work)


async def finish(kit: Kit, thread: str, to_seq: int) -> None:
    """Claim the job of a thread and finish it up to *to_seq*."""

    def work(tx: TranscriptWriter) -> None:
        (job,) = claim_jobs(tx, kit.owner, limit=1, fits=lambda job: job.subject == thread)
        done = Intake(thread_id=thread, token=job.token, to_seq=to_seq, message_ids=())
        finish_extraction(tx, done)

    await kit.store.transcript("r").writing(work)


async def set_back(kit: Kit, thread: str, seq: int) -> None:
    """Undo in a thread's row, and in its job, what was said from *seq* on."""

    def damage(tx: Tx) -> None:
        tx.run("UPDATE threads SET next_seq = ? WHERE id = ?", (seq, thread))
        tx.run("UPDATE jobs SET state = 'done' WHERE subject = ?", (thread,))

    await kit.store.engine.writing(damage)


async def test_a_thread_that_was_set_back_takes_messages_again(kit):
    """Its next seq is behind its messages, and the job of the later ones due."""
    await remember(kit, "t", 0, 1, 2)
    await finish(kit, "t", 2)
    await set_back(kit, "t", 2)
    (problem,) = (await kit.store.check()).problems
    assert problem == "1 threads with a gap in their seqs, e.g. t"
    report = await kit.store.check(repair=True)
    assert report.problems == ()
    assert report.repaired == ("1 threads whose next seq was behind, e.g. t",)
    thread, job = await kit.store.transcript("r").reading(
        lambda tx: (tx.thread("t"), tx.job("extract", "t"))
    )
    assert (thread.next_seq, thread.extracted_seq) == (3, 2)
    assert (job.state, job.due_at) == (JobState.WAITING, kit.clock.now())
    await remember(kit, "t", 3)
    assert (await kit.store.check(repair=True)).repaired == ()


async def test_a_thread_whose_messages_were_all_extracted_owes_nothing(kit):
    """Its row is put right, its job stays done."""
    await remember(kit, "t", 0, 1)
    await finish(kit, "t", 2)
    await set_back(kit, "t", 1)
    assert len((await kit.store.check(repair=True)).repaired) == 1
    job = await kit.store.transcript("r").reading(lambda tx: tx.job("extract", "t"))
    assert job.state is JobState.DONE


async def test_a_thread_that_ends_with_erased_messages_keeps_its_next_seq(kit):
    """Seqs are never given twice, so that it is no damage; set back, it gets that one again."""
    await remember(kit, "t", 0, 1, 2)
    await kit.store.transcript("r").writing(lambda tx: tx.erase("t", [2]))
    assert (await kit.store.check(repair=True)).repaired == ()
    await set_back(kit, "t", 1)
    assert (await kit.store.check(repair=True)).problems == ()
    thread = await kit.store.transcript("r").reading(lambda tx: tx.thread("t"))
    assert thread.next_seq == 3


async def test_vectors_of_what_is_gone_are_deleted(kit):
    """Those of steps that are there stay."""
    await kit.start()
    kept, gone = [await kit.append(text) for text in ("kept", "gone")]
    keys = [f"{step.node_id}/observation" for step in (kept, gone)]
    vectors = dict.fromkeys(keys, unit_vector(1, 0, 0, 0))
    await kit.store.feed("r").save_vectors(SPACE, vectors)
    await kit.store.engine.writing(
        lambda tx: tx.run("UPDATE steps SET gone = 1 WHERE node_id = ?", (gone.node_id,))
    )
    assert len((await kit.store.check()).problems) == 1
    report = await kit.store.check(repair=True)
    assert report.problems == ()
    assert report.repaired == ("1 vectors whose node, step or message is gone",)
    assert report.counts["vectors"] == 1


async def test_a_damaged_job_holds_up_no_thread(kit):
    """Nothing of it is decoded: its thread, and the one beside it, take messages again."""
    for thread in ("t", "u"):
        await remember(kit, thread, 0, 1)
        await set_back(kit, thread, 1)
    damage = "UPDATE jobs SET needs = 'garbage' WHERE subject = 't'"
    await kit.store.engine.writing(lambda tx: tx.run(damage))
    report = await kit.store.check(repair=True)
    assert report.repaired == ("2 threads whose next seq was behind, e.g. t",)
    assert report.problems == ("damaged row: jobs '1/extract/t'",)

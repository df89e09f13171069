"""Inspection: following what is written, and looking at sessions without opening them."""

import pytest

from mnemo import JobState, Mnemo, NotFound
from mnemo.log import feed
from mnemo.testing import HashingEmbedder


async def followed(repo, cursor):
    """Everything behind *cursor*, page by page, and where that ends."""
    pages = [await repo.inspection.changes(cursor, limit=2)]
    while pages[-1].more:
        pages.append(await repo.inspection.changes(pages[-1].cursor, limit=2))
    return pages


async def test_changes_are_followed_from_cursor_to_cursor(open_kit):
    """Every message, step, node and removal is listed once, in pages, and nothing from before."""
    repo = (await open_kit(embedded=True)).repo
    await repo.conversation("t").append([{"role": "user", "content": "before"}])
    start = await repo.inspection.changes()
    assert (start.messages, start.more) == ((), False)
    said = [{"role": "user", "content": f"Ada has {n} cats."} for n in range(5)]
    await repo.conversation("t").append(said)
    memory = await repo.add_memory("Ada lives in Bern.")
    session = await repo.start_session("g", session_id="s")
    await session.append("seen", "done")
    pages = await followed(repo, start.cursor)
    assert [m for page in pages for m in page.messages] == [("t", n) for n in range(1, 6)]
    assert [(s, i) for page in pages for s, _, i in page.steps] == [("s", 0)]
    assert (memory.id, "semantic") in [n for page in pages for n in page.nodes]
    await repo.forget(memory_ids=[memory.id])
    last = await followed(repo, pages[-1].cursor)
    assert memory.id in [id for page in last for id in page.removed]
    end = await repo.inspection.changes(last[-1].cursor)
    assert (end.cursor, end.nodes, end.messages) == (last[-1].cursor, (), ())


async def test_a_reader_that_is_too_far_behind_is_told(open_kit, monkeypatch):
    """What went since its cursor is listed no more: it has to look anew at what it keeps."""
    monkeypatch.setattr(feed, "KEPT", 2)
    repo = (await open_kit(embedded=True)).repo
    memories = [await repo.add_memory(f"Ada has a cat named {name}.") for name in "PQRSTU"]
    start = await repo.inspection.changes()
    for memory in memories:
        await repo.forget(memory_ids=[memory.id])
    behind = await repo.inspection.changes(start.cursor)
    assert behind.missed
    assert memories[0].id not in behind.removed
    assert not (await repo.inspection.changes(behind.cursor)).missed


@pytest.mark.parametrize("after", ["", "1", "a.b.c.d", "1.2.3.-4", "1.2.3.4.5", "1.2.3.²", 7])
async def test_what_is_no_cursor_is_refused(open_kit, after):
    """A cursor is what a call before gave."""
    repo = (await open_kit(embedded=True)).repo
    with pytest.raises(ValueError, match="cursor"):
        await repo.inspection.changes(after)


async def test_another_service_s_writes_and_sessions_are_seen(db):
    """A reader follows what a second service writes, and looks at a session that this one owns."""
    async with (
        Mnemo(db, embedder=HashingEmbedder()) as mine,
        Mnemo(db, embedder=HashingEmbedder()) as others,
    ):
        reader, writer = await mine.open_repo("r"), await others.open_repo("r")
        start = await reader.inspection.changes()
        session = await writer.start_session("plan", session_id="s")
        await session.append("seen", "done")
        page = await reader.inspection.changes(start.cursor)
        assert [step[0] for step in page.steps] == ["s"]
        look = await reader.inspection.session("s")
        assert (look.record.goal, [step.observation for step in look.steps]) == ("plan", ["seen"])
        await session.close()
        await session.wait_for("ready")
        changeset = (await reader.inspection.session("s")).changeset
        assert changeset is not None
        assert changeset.nodes
        elsewhere = await mine.open_repo("other")
        with pytest.raises(NotFound):
            await elsewhere.inspection.session("s")


async def test_work_that_is_owed_is_listed_until_it_is_done(open_kit):
    """A conversation that waits for extraction is a job; once it is extracted there is none."""
    repo = (await open_kit(embedded=True)).repo
    await repo.remember("Ada plays the cello.", thread_id="chat")
    (job,) = await repo.inspection.jobs()
    assert (job.kind, job.subject, job.state) == ("extract", "chat", JobState.WAITING)
    await repo.settle()
    assert await repo.inspection.jobs() == []
    with pytest.raises(ValueError, match="limit"):
        await repo.inspection.jobs(limit=0)


async def test_messages_that_no_session_has_are_told_apart(open_kit):
    """A message counts once, however many sessions took it; of a forgotten one nothing is left."""
    repo = (await open_kit(embedded=True)).repo
    chat = repo.conversation("t")
    said = [{"role": "user", "content": f"Ada has {n} cats."} for n in range(3)]
    stored = await chat.append(said)
    for name in ("a", "b"):
        session = await repo.start_session("g", session_id=name)
        await session.append_messages(stored[:2])
        await session.append("no message", "")
    counted = await repo.statistics()
    assert (counted.messages, counted.messages_in_sessions, counted.steps) == (3, 2, 6)
    await repo.forget(message_ids=[stored[0].id])
    counted = await repo.statistics()
    assert (counted.messages, counted.messages_in_sessions) == (2, 1)

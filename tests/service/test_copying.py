"""Repositories are copied from one store to another, whole, and compared."""

import sys
from pathlib import Path

import anyio
import pytest
from damaged_stores import damage
from helpers import lines_of

from mnemo import Config, Mnemo, RepositoryCopy, StoreCorrupt, UsageError
from mnemo.testing import HashingEmbedder

CONFIG = Config(jobs={"background": False}, recall={"record_access": False})
PROGRAM = """
import asyncio, sys
from mnemo import Mnemo
from mnemo.testing import HashingEmbedder

async def main(source, target):
    async with Mnemo(source, embedder=HashingEmbedder(), workers=0) as memory:
        def told(one):
            print(one.repo_id, flush=True)
            sys.stdin.readline()
        await memory.copy_to(target, on_copied=told)

asyncio.run(main(*sys.argv[1:]))
"""


def service(store: str | Path) -> Mnemo:
    """One that changes nothing by itself."""
    return Mnemo(store, config=CONFIG, embedder=HashingEmbedder())


async def fill(memory: Mnemo, id: str) -> None:
    """Sessions, a conversation whose job is due, a note and an item."""
    repo = await memory.open_repo(id)
    session = await repo.start_session("Talk", session_id=f"{id} done")
    await session.append(f"Mara of {id} lives in Osaka.", "Noted it", key="k", metadata={"n": 1})
    await session.close_and_commit()
    open_session = await repo.start_session("More", session_id=f"{id} open")
    await open_session.append("The harbour is closed on Mondays.", "Wrote it down")
    await repo.remember(["I play the cello.", "I own a boat."], thread_id="t")
    await repo.notes.write("harbour", "Closed on Mondays.", "Opening hours")
    await repo.items.put(("a",), "k", {"text": "A pear."})
    await memory.close_repo(id)


async def archive(memory: Mnemo, id: str) -> list[str]:
    """Its lines."""
    return await lines_of(memory, id)


@pytest.mark.slow
async def test_a_copy_there_and_back_is_the_same_archive(db):
    """From memory to a file and back: same lines, sessions can be resumed, jobs are due."""
    async with service("memory:") as here:
        for id in ("a", "b"):
            await fill(here, id)
        before = {id: await archive(here, id) for id in ("a", "b")}
        copied = await here.copy_to(db)
    assert [(one.repo_id, one.fresh, one.damaged) for one in copied] == [
        ("a", True, ()),
        ("b", True, ()),
    ]
    assert copied[0].counts["message"] == 2
    async with service(db) as file:
        assert {id: await archive(file, id) for id in ("a", "b")} == before
        back = db.with_name("back.db")
        returned = await file.copy_to(back, repos="[b-z]")
        assert [one.digest for one in returned] == [copied[1].digest]
    async with service(back) as there:
        assert await archive(there, "b") == before["b"]
        assert [one.id for one in await there.repos()] == ["b"]
        repo = await there.open_repo("b")
        assert (await repo.resume_session("b open")).state == "collecting"
        assert (await repo.statistics()).jobs.waiting == 1


@pytest.mark.slow
async def test_what_was_copied_is_compared_and_not_copied_again(db):
    """Another call finds the same; something else there is refused and stays."""
    async with service("memory:") as here:
        await fill(here, "a")
        (first,) = await here.copy_to(db)
        (again,) = await here.copy_to(db)
        assert (again.fresh, again.digest, again.counts) == (False, first.digest, first.counts)
        await (await here.open_repo("a")).remember("I moved to Bern.", thread_id="u")
        with pytest.raises(UsageError, match="something else"):
            await here.copy_to(db)
        with pytest.raises(UsageError, match="matches 'x"):
            await here.copy_to(db, repos="x*")
    async with service(db) as file:
        assert len(await (await file.open_repo("a")).threads()) == 1


async def test_another_repository_may_have_a_session_of_the_same_id(db):
    """Ids are unique in a repository: both are there."""
    async with service(db) as file:
        other = await file.open_repo("other")
        await other.start_session("Talk", session_id="a done")
    async with service("memory:") as here:
        await fill(here, "a")
        assert [copy.fresh for copy in await here.copy_to(db)] == [True]
    async with service(db) as file:
        of_a, of_other = [await (await file.open_repo(id)).sessions() for id in ("a", "other")]
        assert {(s.id, s.steps) for s in of_a} >= {("a done", 1)}
        assert [(s.id, s.steps) for s in of_other] == [("a done", 0)]
        assert (await file.check()).problems == ()


async def test_a_damaged_record_stops_a_copy_unless_it_is_skipped(db):
    """It is named; without it, the rest is there."""
    async with service(db) as file:
        await fill(file, "a")
    target = db.with_name("target.db")
    assert damage(db, "messages", "content", "x'00'")
    async with service(db) as file:
        with pytest.raises(StoreCorrupt, match="skip_damaged") as stopped:
            await file.copy_to(target)
        assert stopped.value.table == "message"
        (copied,) = await file.copy_to(target, skip_damaged=True)
    assert [kind for kind, _ in copied.damaged] == ["message"]
    assert copied.counts["message"] == 1
    async with service(target) as there:
        assert (await there.check()).problems == ()


@pytest.mark.slow
async def test_a_cancelled_copy_leaves_whole_repositories(db):
    """The one that was copied stays; the next call copies the others."""
    async with service("memory:") as here:
        for id in ("a", "b", "c"):
            await fill(here, id)
        with anyio.CancelScope() as scope:

            def stop(_: RepositoryCopy) -> None:
                scope.cancel()

            await here.copy_to(db, on_copied=stop)
        assert scope.cancelled_caught
        copied = await here.copy_to(db)
        assert [one.fresh for one in copied] == [False, True, True]


async def test_a_failing_callback_is_logged(db, caplog):
    """What ``on_copied`` raises ends no copy."""

    def fail(_: RepositoryCopy) -> None:
        raise LookupError("no progress")

    async with service("memory:") as here:
        await fill(here, "a")
        assert len(await here.copy_to(db, on_copied=fail)) == 1
    assert "no progress" in caplog.text


@pytest.mark.slow
@pytest.mark.long
async def test_a_killed_copy_is_gone_on_with(db):
    """Killed after the first repository: that is there whole, the others are copied then."""
    target = db.with_name("target.db")
    async with service(db) as file:
        for id in ("a", "b", "c"):
            await fill(file, id)
        before = [await archive(file, id) for id in ("a", "b", "c")]
    command = [sys.executable, "-c", PROGRAM, str(db), str(target)]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert (await process.stdout.receive()).startswith(b"a")
        await process.stdin.send(b"\n")
        process.kill()
    async with service(db) as file:
        copied = await file.copy_to(target)
    assert copied[0].fresh is False
    async with service(target) as there:
        assert [await archive(there, id) for id in ("a", "b", "c")] == before

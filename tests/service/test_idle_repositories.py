"""An open repository that is idle has no task, and one look finds the jobs of all."""

import asyncio
import gc
import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mnemo import Config, Mnemo, Repository
from mnemo.jobs import job_rows
from mnemo.store.sqlite.connection import SqliteTx
from mnemo.store.sqlite.dialect import spelled
from mnemo.store.sqlite.engine import SqliteEngine
from mnemo.testing import HashingEmbedder, ManualClock, ScriptedChatModel

CONFIG = Config(jobs={"quiet_s": 0}, recall={"record_access": False})


def service(path: Path, clock: ManualClock, **options: Any) -> Mnemo:
    options = {"config": CONFIG, "chat_model": ScriptedChatModel.answering()} | options
    return Mnemo(path, embedder=HashingEmbedder(), clock=clock, **options)


async def opened(memory: Mnemo, number: int) -> list[Repository]:
    return [await memory.open_repo(str(id)) for id in range(number)]


async def quiet() -> list[str]:
    """The names of the tasks, once no more of them end."""
    with anyio.fail_after(120):
        while True:
            before = asyncio.all_tasks()
            await anyio.sleep(0.05)
            if asyncio.all_tasks() == before:
                return sorted(task.get_name() for task in before)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is asked of SQLite stores from now on."""
    asked: list[str] = []
    run = SqliteTx.run

    def counted(tx: SqliteTx, statement: str, *values: Any) -> sqlite3.Cursor:
        asked.append(statement)
        return run(tx, statement, *values)

    monkeypatch.setattr(SqliteTx, "run", counted)
    return asked


async def test_fifty_idle_repositories_have_the_tasks_of_one(db):
    """Whatever was done in them before."""
    async with service(db, ManualClock()) as memory:
        first = await memory.open_repo("first")
        await first.settle()
        alone = await quiet()
        for repo in await opened(memory, 50):
            await repo.conversation("t").append({"role": "user", "content": "Ada rows."})
            await repo.recall("Who rows?")
            await repo.settle()
        assert await quiet() == alone


async def test_a_look_costs_the_same_however_many_are_open(db, statements):
    """Two statements each second, beside the lease; nobody asks for each repository."""
    clock = ManualClock()
    async with service(db, clock) as memory:
        asked = list[int]()
        for number in (1, 30):
            for repo in [await memory.open_repo(f"{number} {id}") for id in range(number)]:
                await repo.settle()
            await quiet()
            statements.clear()
            for _ in range(5):
                await clock.advance(1)
                await quiet()
            asked.append(len([one for one in statements if "INTO owners" not in one]))
        assert asked == [10, 10]


async def test_a_service_without_repositories_does_not_look(db, statements):
    """Nor one that leaves the jobs to others."""
    clock = ManualClock()
    async with service(db, clock) as memory, service(db, clock, workers=0) as other:
        await opened(other, 3)
        await (await memory.open_repo("r")).settle()
        await memory.close_repo("r")
        await quiet()
        statements.clear()
        await clock.advance(5)
        await quiet()
        assert statements == []


async def test_the_job_of_one_among_many_is_found_by_the_next_look(db):
    """Another process has written it; the other repositories are not woken."""
    clock = ManualClock()
    async with service(db, clock) as memory, service(db, clock, workers=0) as app:
        repos = await opened(memory, 200)
        await quiet()
        woken = list[str]()
        for repo in repos:
            watch(repo, woken)
        await (await app.open_repo("77")).remember("Ada rows.")
        assert woken == []
        await clock.advance(1)
        with anyio.fail_after(120):
            while not await repos[77].get_nodes(["semantic"]):
                await anyio.lowlevel.checkpoint()
        assert set(woken) == {"77"}


def watch(repo: Repository, woken: list[str]) -> None:
    """Note when the service has *repo* look for jobs."""
    slots, poke = repo._parts.slots, repo._jobs.poke
    slots.leave(repo.id, poke)
    slots.enter(repo.id, lambda: (woken.append(repo.id), poke()), repo.config.jobs.poll_s)


async def test_what_is_due_when_a_repository_opens_is_done_at_once(db):
    """Nobody looks for an hour, and the clock stands still."""
    clock, seldom = ManualClock(), CONFIG.overlaid(Config(jobs={"poll_s": 3_600}))
    async with service(db, clock, workers=0) as app:
        await (await app.open_repo("r")).remember("Ada rows.")
    async with service(db, clock, config=seldom) as memory:
        await memory.open_repo("other")
        repo = await memory.open_repo("r")
        with anyio.fail_after(120):
            while not await repo.get_nodes(["semantic"]):
                await anyio.lowlevel.checkpoint()


@pytest.mark.long
async def test_opening_reads_once_and_leaves_no_task(db, monkeypatch):
    """Of a repository where nothing is due, the hundredth as the first."""
    clock = ManualClock()
    async with service(db, clock) as memory:
        for repo in await opened(memory, 100):
            await repo.conversation("t").append({"role": "user", "content": "Ada rows."})
            await repo.settle()
    async with service(db, clock) as memory:
        await memory.open_repo("first")
        tasks, reads, read = await quiet(), list[Any](), SqliteEngine.reading

        async def counted(engine: SqliteEngine, work: Any) -> Any:
            reads.append(work)
            return await read(engine, work)

        monkeypatch.setattr(SqliteEngine, "reading", counted)
        await opened(memory, 100)
        assert sorted(task.get_name() for task in asyncio.all_tasks()) == tasks
        assert len(reads) == 100


@pytest.mark.slow
async def test_an_idle_repository_takes_less_than_twenty_kilobytes(db):
    """Of Python's objects; what was read of it is under the budget of the index."""
    async with service(db, ManualClock()) as memory:
        await opened(memory, 100)
        await quiet()
        tracemalloc.start()
        try:
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            for number in range(200):
                await memory.open_repo(f"idle {number}")
            await quiet()
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (after - before) / 200 < 20_000


async def say(repo: Repository) -> None:
    await repo.conversation("t").append({"role": "user", "content": "Ada rows."})


async def act(repo: Repository) -> None:
    await (await repo.start_session("rowing")).append("Ada rows.", "")


@pytest.mark.parametrize("write", [say, act])
async def test_what_an_earlier_run_left_without_vectors_gets_them(db, write):
    """As soon as the repository is opened, whether or not anybody recalls."""
    clock, background = ManualClock(), Config(jobs={"background": False})
    async with service(db, clock, config=background, workers=0) as memory:
        await write(await memory.open_repo("r"))
    async with service(db, clock, workers=0) as memory:
        repo = await memory.open_repo("r")
        with anyio.fail_after(120):
            while not (await repo._parts.feed.counts())["vectors"]:
                await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("statement", [job_rows._OWING, job_rows._SOON])
async def test_a_look_reads_no_job_that_is_done_or_waits(db, statement):
    """It goes by state and time over all repositories, as the index has them."""
    async with service(db, ManualClock()):
        pass
    with closing(sqlite3.connect(db)) as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {spelled(statement)}", ("",)).fetchall()
    jobs = [detail for *_, detail in rows if "jobs" in detail.split("USING")[0] or " j " in detail]
    assert jobs
    assert all("jobs_due (state=?" in detail for detail in jobs)

"""Workers and copies on PostgreSQL: several machines, whose clocks may be wrong, share a store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from helpers import lines_of, ran

from mnemo import Config, Mnemo, WorkerStatistics
from mnemo.jobs import job_rows
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.runtime.clock import SystemClock
from mnemo.testing import HashingEmbedder, ScriptedChatModel

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

BENCH = Path(__file__).parents[2] / "scripts" / "bench.py"
CONFIG = Config(jobs={"quiet_s": 0, "poll_s": 0.02}, recall={"record_access": False})
HOUR = timedelta(hours=1)


class WrongClock(SystemClock):
    """The clock of a machine that is off."""

    def __init__(self, off: timedelta) -> None:
        super().__init__()
        self._off = off

    def now(self) -> datetime:
        return super().now() + self._off


class GatedModel(ScriptedChatModel):
    """Tells when facts are asked for, and answers when it may."""

    def __init__(self, *scripts: Any) -> None:
        super().__init__(*scripts)
        self.asked, self.go_on = anyio.Event(), anyio.Event()

    async def complete(self, request: ChatRequest) -> ChatReply:
        if request.purpose == "semantic":
            self.asked.set()
            await self.go_on.wait()
        return await super().complete(request)


def service(
    store: str | Path,
    *,
    model: ScriptedChatModel | None = None,
    off: timedelta | None = None,
    **options: Any,
) -> Mnemo:
    """A service whose clock is *off*; its model answers."""
    return Mnemo(
        store,
        config=CONFIG,
        embedder=HashingEmbedder(),
        chat_model=model or ScriptedChatModel.answering(),
        clock=WrongClock(off or timedelta()),
        **options,
    )


@asynccontextmanager
async def working(memory: Mnemo, looks: int) -> AsyncIterator[None]:
    """Work while the block runs, which begins after so many looks."""
    begun, seen = anyio.Event(), 0

    def looked(_: WorkerStatistics) -> None:
        nonlocal seen
        seen += 1
        if seen >= looks:
            begun.set()

    async with anyio.create_task_group() as group:

        async def work() -> None:
            await memory.work(on_look=looked)

        group.start_soon(work)
        with anyio.fail_after(120):
            await begun.wait()
        yield
        group.cancel_scope.cancel()


async def archive(memory: Mnemo) -> list[str]:
    """The lines of the repository ``r``."""
    return await lines_of(memory, "r")


async def test_a_repository_goes_into_the_database_and_comes_back_the_same(
    postgres_url: str, tmp_path: Path
):
    """File, PostgreSQL, file: identical archives; its sessions are resumed there."""
    async with service(tmp_path / "one.db") as file:
        repo = await file.open_repo("r")
        own = await repo.start_session("Talk", chat_model=ScriptedChatModel.answering())
        await own.append("Mara lives in Osaka お茶.", "Noted it", key="k", metadata={"n": [1, 0.1]})
        await own.close_and_commit()
        unfinished = await repo.start_session("More", session_id="open")
        await unfinished.append("The harbour is closed on Mondays.", "Wrote it down")
        await repo.remember("I play the cello.", thread_id="t")
        await repo.notes.write("harbour", "Closed on Mondays.", "Opening hours")
        await repo.items.put(("a",), "k", {"text": "A pear."})
        # What writes in the background is over by then: each archive is of a moment of its own.
        await repo.settle(timeout_s=120)
        await file.close_repo("r")
        # A job that waits, beside no such writer.
        repo = await file.open_repo("r", config=Config(jobs={"background": False}))
        await repo.remember("I own a boat.", thread_id="t")
        await file.close_repo("r")
        before = await archive(file)
        (there,) = await file.copy_to(postgres_url)
    async with service(postgres_url, workers=0) as database:
        assert await archive(database) == before
        (back,) = await database.copy_to(tmp_path / "two.db")
        assert back.digest == there.digest
        repo = await database.open_repo("r")
        assert (await repo.resume_session("open")).state == "collecting"
    async with service(tmp_path / "two.db", workers=0) as file:
        assert await archive(file) == before


@pytest.mark.parametrize("off", [HOUR, -HOUR])
async def test_the_work_of_a_machine_with_a_wrong_clock_is_done_once(
    postgres_url: str, off: timedelta
):
    """Leases and due times are the database's: nothing waits an hour, no claim is taken early."""
    model = GatedModel.answering()
    async with (
        service(postgres_url, off=off, workers=0) as app,
        service(postgres_url, model=model, off=-off) as holder,
        service(postgres_url, off=off) as other,
    ):
        repo = await app.open_repo("r")
        await repo.remember("Ada owns a boat.", key="k")
        async with working(holder, 1):
            with anyio.fail_after(120):
                await model.asked.wait()
            async with working(other, 5):
                assert (await repo.statistics()).jobs.running == 1
                model.go_on.set()
                await repo.settle(timeout_s=120)
        assert len(model.calls("semantic")) == 1
        assert [getattr(n, "key", None) for n in await repo.get_nodes(["episodic"])] == ["k"]


@pytest.mark.long
def test_workers_killed_and_stopped_on_postgres_lose_and_double_nothing(postgres_url: str):
    """Each episode is committed once, no late write is taken, nothing stays claimed."""
    assert found_wrong("workers-chaos", postgres_url, rounds=9) == {}


def found_wrong(part: str, store: str, **sizes: int) -> dict[str, float]:
    """What the bench of workers finds in one of its rows that should not be."""
    settings = [f"{name}={size}" for name, size in sizes.items()]
    done = ran(BENCH, "--json", part, f"store={store}", *settings, check=True)
    figures = json.loads(done.stdout)["phases"][part]
    assert figures
    return {figure["name"]: figure["value"] for figure in figures if figure["value"]}


_JOBS = """
INSERT INTO jobs (repo, kind, subject, due_at, state, tries, token, needs)
SELECT r.no, 'extract', n::text, '{due}', '{state}', 0, 0, '{{}}'
FROM repos r, generate_series({first}, {last}) n
"""


async def test_a_look_reads_no_job_that_is_done_or_waits(postgres_url):
    """Among many thousands it goes by state and time, over all repositories."""
    async with service(postgres_url, workers=0) as memory:
        await (await memory.open_repo("r")).remember("Ada rows.")
        engine = memory._usable()[0].engine
        for first, state, due in ((1, "done", "2024"), (20_001, "waiting", "9999")):
            rows = _JOBS.format(first=first, last=first + 19_999, state=state, due=due)
            await engine.writing(lambda tx, rows=rows: tx.run(rows) and None)
        await engine.writing(lambda tx: tx.run("ANALYZE jobs") and None)
        for statement in (job_rows._OWING, job_rows._SOON):
            plan = await engine.reading(
                lambda tx, one=statement: tx.run(f"EXPLAIN {one}", ("2025",)).fetchall()
            )
            said = "\n".join(line for (line,) in plan)
            assert "jobs_due" in said
            assert "Seq Scan on jobs" not in said

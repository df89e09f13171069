"""On PostgreSQL a worker hears of jobs that another process has posted, and of their ends."""

from functools import partial

import anyio
import anyio.lowlevel
import pytest
from postgres_server import execute

from mnemo import Config, Mnemo
from mnemo.testing import HashingEmbedder, ScriptedChatModel

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

NEVER = Config(jobs={"quiet_s": 0, "poll_s": 3_600})
"""Jobs are not looked for again within the test."""


def service(url: str, **options: int) -> Mnemo:
    model = ScriptedChatModel.answering()
    return Mnemo(url, config=NEVER, embedder=HashingEmbedder(), chat_model=model, **options)


async def begun(worker: Mnemo, tasks: anyio.abc.TaskGroup) -> None:
    """Have *worker* work, and return once it has found nothing to do."""
    looked = anyio.Event()
    tasks.start_soon(partial(worker.work, on_look=lambda _: looked.set()))
    await looked.wait()


async def test_a_job_is_claimed_without_waiting_for_the_next_look(postgres_url):
    """The worker looks once an hour, and so does who waits: both are woken."""
    async with (
        service(postgres_url, workers=0) as app,
        service(postgres_url) as worker,
        anyio.create_task_group() as tasks,
    ):
        await begun(worker, tasks)
        repo = await app.open_repo("r")
        for number in range(3):
            with anyio.fail_after(120):
                made = await repo.remember(f"I play the cello {number}.", wait=True)
            assert made.node_ids
        tasks.cancel_scope.cancel()


_END_LISTENERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name = 'mnemo' AND query LIKE 'LISTEN%'
"""


async def test_a_listener_that_was_ended_listens_again(postgres_url, postgres_server, monkeypatch):
    """The administrator ends its connection; the next job wakes the worker all the same."""
    monkeypatch.setattr("mnemo.store.postgres.engine._LISTEN_AGAIN_S", 0)
    async with (
        service(postgres_url, workers=0) as app,
        service(postgres_url) as worker,
        anyio.create_task_group() as tasks,
    ):
        await begun(worker, tasks)
        while execute(postgres_server, _END_LISTENERS) != [(2,)]:
            await anyio.lowlevel.checkpoint()
        repo = await app.open_repo("r")
        with anyio.fail_after(120):
            assert (await repo.remember("I play the cello.", wait=True)).node_ids
        tasks.cancel_scope.cancel()

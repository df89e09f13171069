"""A process that was asleep for long, as on a closed laptop: when it goes on, it misses nothing."""

import signal
from pathlib import Path

import anyio.lowlevel
import pytest
from postgres_server import execute
from scenarios.other_service import Other, another_process

from mnemo import Config, Mnemo, Repository
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

CONFIG = Config(
    session={"lease_s": 2.0},
    jobs={"poll_s": 0.05, "quiet_s": 0, "retry_backoff_s": 0.1},
    store={"busy_timeout_s": 1.6},
)
"""What times out does so before the lease ends."""
MOST = 20
_LAPSED = """
SELECT count(*) FROM {0}.owners
WHERE pid = {1} AND lease_until + 1 < extract(epoch FROM clock_timestamp())
"""
_CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'asleep' AND pid <> pg_backend_pid()
"""
_BUSY = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'asleep' AND state <> 'idle' AND pid <> pg_backend_pid()
"""


async def asleep(other: Other, server: str, schema: str) -> None:
    """
    Stop the process outside its transactions, and wait until its lease is over by a second.

    Within one it would hold locks, which others are refused for until the server ends it.
    """
    pid = other.process.pid
    while True:
        other.process.send_signal(signal.SIGSTOP)
        while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "T":
            await anyio.lowlevel.checkpoint()
        if execute(server, _BUSY) == [(0,)]:
            break
        other.process.send_signal(signal.SIGCONT)
        await anyio.lowlevel.checkpoint()
    while execute(server, _LAPSED.format(schema, pid)) != [(1,)]:
        await anyio.lowlevel.checkpoint()


async def write(url: str, repo: Repository) -> None:
    """Steps with their commit, messages whose jobs are left to others, and something erased."""
    async with Mnemo(url, embedder=HashingEmbedder()) as third:
        session = await (await third.open_repo("r")).start_session("Talk")
        for number in range(MOST):
            await session.append(f"Boat {number} lies in the harbour of Porto", "")
        await session.close_and_commit()
    for number in range(MOST):
        await repo.remember(f"I own house {number} in Leeds.", thread_id=f"t{number % 3}")
    await repo.forget(session_id="before")


@pytest.mark.parametrize("is_cut", [False, True], ids=["asleep", "cut off"])
async def test_who_was_asleep_sees_everything_once(postgres_url, postgres_server, is_cut):
    """Beyond its lease and all timeouts, with its connections or without: recall, jobs, writes."""
    schema = postgres_url.rpartition("=")[2]
    name = f"{postgres_url}&application_name=asleep"
    async with (
        Mnemo(postgres_url, embedder=HashingEmbedder(), config=CONFIG, workers=0) as memory,
        another_process(name, CONFIG.model_dump_json(exclude_unset=True)) as other,
    ):
        repo = await memory.open_repo("r")
        before = await repo.start_session("Talk", session_id="before")
        await before.append("The old boat is gone", "")
        await other.ask("start", "kept")
        await other.ask("start", "taken")
        assert "The old boat is gone" in await other.ask("found", "boat")
        await asleep(other, postgres_server, schema)
        await write(postgres_url, repo)
        taken = await repo.resume_session("taken")
        if is_cut:
            execute(postgres_server, _CUT)
        other.process.send_signal(signal.SIGCONT)
        boats = await other.ask("found", "boat in the harbour")
        assert "The old boat is gone" not in boats
        for number in range(MOST):
            text = f"Boat {number} lies in the harbour of Porto"
            assert sum(text in found for found in boats) == 1, boats
        assert await other.ask("search", "harbour") == MOST
        await repo.settle(timeout_s=120)
        facts = [node.text for node in await repo.get_nodes(["semantic"])]
        for number in range(MOST):
            assert sum(f"house {number} " in fact for fact in facts) == 1, facts
        assert await other.ask("append", "kept", "It went on") == 0
        assert await other.ask("append", "taken", "Too late") == "Conflict"
        assert (await taken.append("It was taken over", "")).index == 0
        seen = await other.ask("indexed", "anything")
    async with Mnemo(postgres_url, embedder=HashingEmbedder(), workers=0) as memory:
        repo = await memory.open_repo("r")
        await repo.recall("anything")
        assert seen == (await repo.statistics()).index.documents
        assert (await memory.check()).problems == ()

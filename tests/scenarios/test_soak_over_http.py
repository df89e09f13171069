"""Many sessions at once over a model server that fails every twentieth request somehow."""

import asyncio
import gc
import os
from collections import Counter
from typing import Any

import anyio
import pytest
import scripted_faults as faults
from http_kit import ANTHROPIC, OPENAI, HttpKit, embedder_of, http_kit
from scripted_server import ScriptedServer

from mnemo import Config, Repository, SessionState

SESSIONS = 200
STEPS = 20
SHARE = 0.05
RETRIES = 8
"""Of a user who wants the session committed; far more than it takes."""
TIMEOUT_S = 3.0
"""Seconds per request: what never comes is given up, what is only slow on a busy machine comes."""
AT_ONCE = 16


def open_files() -> int:
    """How many files and sockets this process has open."""
    return len(os.listdir("/dev/fd"))


def fail_sometimes(server: ScriptedServer) -> None:
    """A twentieth of all requests by chance, and besides every kind of fault at least once."""
    server.fail_by_chance(SHARE, faults.EVERY_KIND, seed=20)
    for turn, fault in enumerate(faults.EVERY_KIND):
        purpose = "embed" if fault in faults.VECTORS else None
        server.fail(fault, purpose=purpose, after=3 * turn)


async def live(repo: Repository, number: int) -> str:
    """What a user's agent does: say all, then insist on the commit."""
    session = await repo.start_session(f"errand {number}: find out about city {number}")
    for step in range(STEPS):
        await session.append(f"fact {step} of city {number} is {number * step}", f"noted {step}")
    receipt = await session.close_and_commit(max_retries=RETRIES)
    assert receipt.status == "committed"
    assert session.state is SessionState.IDLE
    await session.aclose()
    return session.id


async def soak(kit: HttpKit, server: ScriptedServer) -> dict[str, list[str]]:
    """Half of the sessions ask by one protocol, half by the other; their ids by repository."""
    ids: dict[str, list[str]] = {}

    async def one(repo: Repository, number: int) -> None:
        ids[repo.id].append(await live(repo, number))

    async with anyio.create_task_group() as group:
        for provider in (OPENAI, ANTHROPIC):
            model = provider.model(server, max_concurrency=AT_ONCE, max_retries=3)
            repo = await kit.memory.open_repo(provider.name, chat_model=model)
            ids[repo.id] = []
            for number in range(SESSIONS // 2):
                group.start_soon(one, repo, number)
    return ids


@pytest.mark.long
@pytest.mark.slow
async def test_two_hundred_sessions_survive_a_failing_server(tmp_path):
    """All commit, every step is in the graph exactly once, and nothing stays open."""
    with ScriptedServer() as server:
        gc.collect()
        files, tasks = open_files(), len(asyncio.all_tasks())
        fail_sometimes(server)
        config = Config(extraction={"timeout_s": TIMEOUT_S})
        embedder = embedder_of(server, timeout_s=TIMEOUT_S, max_retries=3)
        store = tmp_path / "memory.db"
        async with http_kit(server, embedder=embedder, config=config, store=store) as kit:
            ids = await soak(kit, server)
            for name, expected in ids.items():
                await expect_each_step_once(kit.memory.repo(name), expected)
            assert await kit.healthy()
        met = Counter(call.fault.name for call in server.requests)
        assert met.keys() == {"none", *(fault.name for fault in faults.EVERY_KIND)}
        await server.until(lambda: server.connections == 0 and server.in_flight == 0)
        gc.collect()
        assert len(asyncio.all_tasks()) == tasks
        assert open_files() == files


async def expect_each_step_once(repo: Repository, ids: list[str]) -> None:
    """Every step of every session is in the graph, once; and no session is left over."""
    nodes: list[Any] = await repo.get_nodes(["episodic"])
    found = Counter((node.session_id, node.step_index) for node in nodes)
    assert found == Counter((id, step) for id in ids for step in range(STEPS))
    assert len(ids) == SESSIONS // 2
    assert await repo.unfinished_sessions() == []

"""What a long write to a PostgreSQL store keeps waiting, and what it does not."""

from __future__ import annotations

import anyio
import anyio.to_thread
import psycopg
import pytest
from postgres_server import execute

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


async def exported() -> list[str]:
    """The lines of a repository with a step."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        session = await repo.start_session("Count")
        await session.append("number 1", "noted")
        async with memory.export_repo("r") as lines:
            return [line async for line in lines]


async def test_an_import_keeps_no_other_repository_waiting(
    postgres_url: str, postgres_server: str
) -> None:
    """In the middle of its transaction others open and close the store, and write to theirs."""
    lines, schema = await exported(), postgres_url.rpartition("=")[2]
    async with (
        Mnemo(postgres_url, embedder=HashingEmbedder()) as memory,
        anyio.create_task_group() as tasks,
    ):
        with psycopg.connect(postgres_server) as holder:
            holder.execute(f"LOCK TABLE {schema}.item_vectors IN EXCLUSIVE MODE")
            tasks.start_soon(memory.import_repo, "imported", lines)
            while await anyio.to_thread.run_sync(execute, postgres_server, _WAITING) == [(0,)]:
                pass
            async with Mnemo(postgres_url, embedder=HashingEmbedder()) as other:
                repo = await other.open_repo("other")
                session = await repo.start_session("Write")
                await session.append("not kept waiting", "noted")
                assert (await other.check()).problems == ()
            assert execute(postgres_server, _WAITING) == [(1,)]
    async with Mnemo(postgres_url, embedder=HashingEmbedder()) as memory:
        found = {record.id: record.sessions for record in await memory.repos()}
        assert found == {"imported": 1, "other": 1}

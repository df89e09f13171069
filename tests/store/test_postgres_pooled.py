"""A store behind PgBouncer in transaction mode: each transaction may have another connection."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.lowlevel
import psycopg
import pytest
from helpers import committed, lines_of
from postgres_server import execute

from mnemo import Conflict, Mnemo
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.long]

CLIENTS = 4
CONNECTIONS = 2
"""Of the pooler with the server: fewer than its clients have with it."""
_POOLER = """
[databases]
postgres = host={server} port=5432 dbname=postgres user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
"""


@pytest.fixture(scope="module")
def pooler(postgres_server: str) -> Iterator[str]:
    """The URL of a PgBouncer before the server."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("there is no pgbouncer: apt-get install pgbouncer")
    (server,) = parse_qs(urlsplit(postgres_server).query)["host"]
    folder = Path(tempfile.mkdtemp(prefix="mnemo-pool-"))
    settings = folder / "pgbouncer.ini"
    settings.write_text(_POOLER.format(server=server, folder=folder, connections=CONNECTIONS))
    owner = Path(server).owner()
    shutil.chown(folder, owner)
    shutil.chown(settings, owner)
    with subprocess.Popen([program, "-q", str(settings)], user=owner) as process:
        url = f"{postgres_server.partition('?')[0]}?host={folder}&port=6432"
        while True:
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                assert process.poll() is None
        yield url
        process.terminate()
    shutil.rmtree(folder)


async def an_archive() -> list[str]:
    """The lines of a repository with a session and a note."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        await committed(repo, "The harbour is closed on Mondays.", "Noted it", goal="Note it")
        await repo.notes.write("harbour", "Closed on Mondays.", "Opening hours")
        return await lines_of(memory, "r")


async def test_everything_goes_behind_a_pooler(pooler, postgres_server, postgres_url):
    """Four services on two connections: what is told is there, for export, import and scrub too."""
    url = f"{pooler}&schema={postgres_url.rpartition('schema=')[2]}"

    async def live(number: int) -> None:
        async with Mnemo(url, embedder=HashingEmbedder()) as memory:
            repo = await memory.open_repo(f"r{number}")
            session = await repo.start_session("Note it")
            for step in range(20):
                await session.append(f"note {step} of {number}", "Kept it")
                assert len(await repo.search("note", limit=50)) == step + 1
            await session.close_and_commit()
            await repo.remember("I live in Bern.", wait=True)
            assert "Bern" in (await repo.recall("Where does the user live?")).as_text()
            async with memory.export_repo(f"r{number}") as lines:
                assert len([line async for line in lines]) > 20
            await repo.forget(session_id=session.id)
            assert await repo.search("note") == []

    async with anyio.create_task_group() as tasks:
        for number in range(CLIENTS):
            tasks.start_soon(live, number)
    async with Mnemo(url, embedder=HashingEmbedder()) as memory:
        archive = await an_archive()
        await memory.import_repo("copy", archive)
        with pytest.raises(Conflict, match="in this store already"):
            await memory.import_repo("another", archive)
        repo = await memory.open_repo("copy")
        assert (await repo.search("harbour"))[0].snippet == "The harbour is closed on Mondays."
        with anyio.fail_after(120):
            # The server's own upkeep may still read what was deleted.
            while not await memory.scrub():
                await anyio.lowlevel.checkpoint()
        assert (await memory.check()).problems == ()
    left = "SELECT relname FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'"
    assert execute(postgres_server, left) == []


async def test_jobs_are_found_where_no_notice_arrives(pooler, postgres_url):
    """A service without workers of its own and another one with: the message is extracted."""
    url = f"{pooler}&schema={postgres_url.rpartition('schema=')[2]}"
    async with (
        Mnemo(url, embedder=HashingEmbedder(), workers=0) as app,
        Mnemo(url, embedder=HashingEmbedder()) as worker,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(worker.work)
        repo = await app.open_repo("r")
        with anyio.fail_after(120):
            made = await repo.remember("I play the cello.", wait=True)
        assert made.node_ids
        tasks.cancel_scope.cancel()

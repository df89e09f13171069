"""Two repositories of one store use the same session ids: each is as if it were alone."""

import sys
from pathlib import Path

import anyio
import pytest
from engines import emptied
from helpers import lines_of

from mnemo import Mnemo, Repository
from mnemo.testing import HashingEmbedder

REPOS = {"ada": "Osaka", "bea": "Lisbon"}
"""Each repository, and where its Mara lives."""
KILLED = """
import asyncio, os, signal, sys
from mnemo import Mnemo
from mnemo.testing import HashingEmbedder

async def main(store):
    async with Mnemo(store, embedder=HashingEmbedder()) as memory:
        for name, town in (("ada", "Osaka"), ("bea", "Lisbon")):
            repo = await memory.open_repo(name)
            session = await repo.start_session(f"Talk in {name}", session_id="s")
            await session.append(f"Mara lives in {town}.", "Noted", key="k")
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(sys.argv[1]))
"""


async def lived(store: str | Path) -> None:
    """Resume, extract, commit, recall, export, import and forget; each leaves the others."""
    async with Mnemo(store, embedder=HashingEmbedder()) as memory:
        for name in REPOS:
            repo = await memory.open_repo(name)
            (left,) = await repo.unfinished_sessions()
            assert (left.id, left.goal, left.steps) == ("s", f"Talk in {name}", 1)
            session = await repo.resume_session("s")
            again = await session.append(f"Mara lives in {REPOS[name]}.", "Noted", key="k")
            assert again.index == 0
            assert (await session.close_and_commit()).status == "committed"
        for name in REPOS:
            await recalls(memory.repo(name), name)
        archive = await lines_of(memory, "ada")
        await memory.import_repo("copy", archive)
        copy = await memory.open_repo("copy")
        await recalls(copy, "ada")
        assert (await memory.repo("ada").forget(session_id="s")).sessions == 1
        await recalls(copy, "ada")
        await recalls(memory.repo("bea"), "bea")
        assert await memory.repo("ada").search("Mara") == []
        assert (await memory.check()).problems == ()


async def recalls(repo: Repository, name: str) -> None:
    """What was said in its session, and nothing of the other's."""
    found = await repo.recall("Where does Mara live?")
    assert {source.session_id for source in found.sources} == {"s"}
    told = found.as_text()
    assert [town in told for town in REPOS.values()] == [one == name for one in REPOS]


async def killed(store: str | Path) -> None:
    """A process that started both sessions and was killed."""
    await anyio.run_process([sys.executable, "-c", KILLED, str(store)], check=False)


@pytest.mark.slow
async def test_sessions_of_one_id_live_on_after_a_kill(db):
    """In a file."""
    await killed(db)
    await lived(db)


@pytest.mark.slow
@pytest.mark.postgres
async def test_sessions_of_one_id_live_on_after_a_kill_on_postgres(postgres_url):
    """In a schema."""
    url = emptied(postgres_url, "")
    await killed(url)
    await lived(url)

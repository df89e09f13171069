"""A process that dies while it imports leaves nothing of the archive behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mnemo import Changeset, Mnemo, NotFound, Semantic
from mnemo.testing import HashingEmbedder

CHILD = """
import asyncio, sys, time
from mnemo import Mnemo
from mnemo.testing import HashingEmbedder

def lines(file):
    whole = open(file, encoding="ascii").readlines()
    yield from whole[:-1]
    print("waiting", flush=True)
    time.sleep(60)

async def main(store, file):
    async with Mnemo(store, embedder=HashingEmbedder()) as memory:
        await memory.import_repo("copy", lines(file))

asyncio.run(main(*sys.argv[1:]))
"""


async def lines_of(memory: Mnemo, repo_id: str) -> list[str]:
    async with memory.export_repo(repo_id) as lines:
        return [line async for line in lines]


def die_while_waiting(command: list[str]) -> None:
    """Run it until it says that it waits, and kill it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        child.kill()


@pytest.mark.slow
async def test_a_killed_import_leaves_the_store_as_it_was(tmp_path: Path):
    """Nothing is imported, nothing lies about, and the same import works afterwards."""
    store, file = tmp_path / "memory.db", tmp_path / "r.jsonl"
    facts = [Semantic(f"The pier number {number} is closed.") for number in range(1_200)]
    async with Mnemo(store, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        await repo.apply(Changeset(tuple(facts)))
        before = await lines_of(memory, "r")
    file.write_text("".join(before), encoding="ascii")
    command = [sys.executable, "-c", CHILD, str(store), str(file)]
    die_while_waiting(command)
    async with Mnemo(store, embedder=HashingEmbedder()) as memory:
        with pytest.raises(NotFound):
            await lines_of(memory, "copy")
        assert await lines_of(memory, "r") == before
        with file.open(encoding="ascii") as lines:
            await memory.import_repo("copy", lines)
        assert await lines_of(memory, "copy") == before
        assert (await memory.check()).problems == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory.db", "r.jsonl"]

"""A process that dies while it imports leaves nothing of the archive behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.lives import Lives

from mnemo import Changeset, Mnemo, NotFound, Semantic
from mnemo.testing import HashingEmbedder


async def lines_of(memory: Mnemo, repo_id: str) -> list[str]:
    async with memory.export_repo(repo_id) as lines:
        return [line async for line in lines]


@pytest.mark.slow
async def test_a_killed_import_leaves_the_store_as_it_was(tmp_path: Path, lives: Lives):
    """Nothing is imported, nothing lies about, and the same import works afterwards."""
    store, file = tmp_path / "memory.db", tmp_path / "r.jsonl"
    facts = [Semantic(f"The pier number {number} is closed.") for number in range(1_200)]
    async with Mnemo(store, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        await repo.apply(Changeset(tuple(facts)))
        before = await lines_of(memory, "r")
    file.write_text("".join(before), encoding="ascii")
    lives.killed(
        "import_lines", when=lambda told: ["waiting"] in told, path=str(store), file=str(file)
    )
    async with Mnemo(store, embedder=HashingEmbedder()) as memory:
        with pytest.raises(NotFound):
            await lines_of(memory, "copy")
        assert await lines_of(memory, "r") == before
        with file.open(encoding="ascii") as lines:
            await memory.import_repo("copy", lines)
        assert await lines_of(memory, "copy") == before
        assert (await memory.check()).problems == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory.db", "r.jsonl"]

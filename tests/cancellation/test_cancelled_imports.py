"""An import that is cancelled at any moment is whole or not there; an export holds nothing."""

import anyio
import anyio.lowlevel
import pytest
from helpers import lines_of

from mnemo import Changeset, Edge, EdgeKind, Mnemo, NotFound, Semantic, Tag
from mnemo.testing import HashingEmbedder


@pytest.mark.slow
async def test_a_cancelled_import_is_whole_or_not_there(tmp_path):
    """Cancelled after k turns of the loop, for ever larger k up to the end of it."""
    async with Mnemo(tmp_path / "a.db", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        fact, tag = Semantic("The pier is closed."), Tag("pier")
        await repo.apply(Changeset((fact, tag), (Edge(tag.id, fact.id, EdgeKind.MEMBERSHIP),)))
        await memory.close_repo("r")
        lines = await lines_of(memory, "r")
        outcomes = []
        turns = 0
        while outcomes[-3:] != [True] * 3:
            # It waits for threads: hundreds of turns are spent in one and the same await.
            copy, turns = f"copy {turns}", turns + 1 + turns // 4
            async with anyio.create_task_group() as group:
                group.start_soon(memory.import_repo, copy, lines)
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            try:
                found = await lines_of(memory, copy)
            except NotFound:
                outcomes.append(False)
                await memory.import_repo(copy, lines)
                found = await lines_of(memory, copy)
            else:
                outcomes.append(True)
            assert found == lines
        assert False in outcomes
        assert (await memory.check()).problems == ()


async def test_a_cancelled_export_holds_nothing(tmp_path):
    """The service closes at once, and the log goes with it."""
    async with Mnemo(tmp_path / "a.db", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        await repo.apply(Changeset((Semantic("The pier is closed."),)))
        with anyio.CancelScope() as scope:
            async with memory.export_repo("r") as lines:
                scope.cancel()
                await anext(lines)
                await anext(lines)
        assert scope.cancelled_caught
        await repo.apply(Changeset((Semantic("The pier is open."),)))
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]

"""Recalls at once: one after the other where they compute here, side by side where they wait."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from helpers import repository

from mnemo import Repository
from mnemo.models.local import WordLlamaEmbedder
from mnemo.testing import HashingEmbedder, ScriptedChatModel


class Watched:
    """The index of a repository, which says how many recalls read it at once."""

    def __init__(self, repo: Repository) -> None:
        self._recall = repo._recall
        self._index = self._recall.index
        self._recall.index = self  # type: ignore[assignment]
        self.mended = self._index.mended
        self._running = 0
        self.most = 0

    async def corpus(self, *, embedded: bool = False, query: str = "") -> Any:
        """Read it, slowly."""
        self._running += 1
        self.most = max(self.most, self._running)
        try:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            return await self._index.corpus(embedded=embedded, query=query)
        finally:
            self._running -= 1


async def asked(repo: Repository, count: int, **keywords: Any) -> Watched:
    """Recall so many times at once; each of them answers."""
    watched, found = Watched(repo), []

    async def ask() -> None:
        found.append(await repo.recall("Where does Ada live?", **keywords))

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(ask)
    assert ["Lund" in result.as_text() for result in found] == [True] * count
    return watched


@pytest.mark.parametrize("waits", [False, True])
async def test_recalls_that_compute_here_go_one_after_the_other(waits):
    """Those whose embedder may be a server do not wait for each other's."""
    embedder = HashingEmbedder() if waits else WordLlamaEmbedder()
    async with repository(embedder=embedder) as repo:
        await repo.remember("Ada lives in Lund.")
        watched = await asked(repo, 4)
    assert watched.most == (4 if waits else 1)


async def test_recalls_that_ask_a_model_wait_for_nobody():
    """A plan by a model may take seconds."""
    model = ScriptedChatModel.answering()
    async with repository(embedder=WordLlamaEmbedder(), chat_model=model) as repo:
        await repo.remember("Ada lives in Lund.")
        watched = await asked(repo, 4, use_model=True)
    assert watched.most > 1


async def test_who_is_cancelled_gives_its_turn_to_the_next():
    """Also in the middle."""
    async with repository(embedder=WordLlamaEmbedder()) as repo:
        await repo.remember("Ada lives in Lund.")
        with anyio.move_on_after(0) as scope:
            await repo.recall("Where does Ada live?")
        assert scope.cancelled_caught
        async with anyio.create_task_group() as group:
            group.start_soon(repo.recall, "Where does Ada live?")
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        await asked(repo, 2)

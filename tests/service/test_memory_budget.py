"""A service that holds little of its repositories in memory answers as one that holds all."""

from typing import Any

import anyio
import numpy as np
import pytest

from mnemo import Changeset, Config, Mnemo, Semantic
from mnemo.runtime.budget import MemoryBudget
from mnemo.testing import HashingEmbedder, ManualClock

NAMES = ("Ana", "Bo", "Cleo", "Dov", "Eva")
DONE = ("keeps bees", "sold a boat", "moved to Bern", "plays the cello", "bakes rye bread")
QUIET = {"background": False}
REPOS = 5


class Twin:
    """Does the same in a service of its own, and tells what it found."""

    def __init__(self, memory: Mnemo) -> None:
        self.memory = memory
        self.said = dict[str, list[str]]()

    async def open(self) -> None:
        for number in range(REPOS):
            await self.memory.open_repo(f"r{number}")

    async def do(self, act: str, name: str, number: int, text: str) -> Any:
        """One *act* in the repository *name*; *number* and *text* say which."""
        repo = self.memory.repo(name)
        index = repo._parts.index
        match act:
            case "remember":
                (message,) = (await repo.remember(text, thread_id=f"t{number % 3}")).messages
                self.said.setdefault(name, []).append(message.id)
            case "apply":
                await repo.apply(Changeset((Semantic(text),)))
            case "put":
                await repo.items.put(("notes",), str(number), {"n": number}, texts={"t": text})
            case "forget":
                said = self.said.get(name, [])
                if not said:
                    return None
                report = await repo.forget(message_ids=[said.pop(number % len(said))])
                await index.renew()
                return report.messages
            case "search":
                return [item.key for item in await repo.items.search(("notes",), query=text)]
            case _:
                found = await repo.recall(text, types=("episodic", "semantic", "item"))
                return [(c.node.text, round(c.score, 6)) for c in found.candidates]
        await index.embed_waiting()
        return None


ACTS = ("remember", "remember", "remember", "recall", "recall", "apply", "put", "forget", "search")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
async def test_answers_do_not_depend_on_what_is_held(seed):
    """Whatever was said, forgotten and asked in which repository before."""
    random, embedder = np.random.default_rng(seed), HashingEmbedder(32)
    config = Config(jobs=QUIET)
    async with (
        Mnemo("memory:", embedder=embedder, clock=ManualClock(), config=config) as large,
        Mnemo("memory:", embedder=embedder, clock=ManualClock(), config=config) as small,
    ):
        small._budget = MemoryBudget(1)
        twins = Twin(large), Twin(small)
        for twin in twins:
            await twin.open()
        held = 0
        for number in range(120):
            text = f"{random.choice(NAMES)} {random.choice(DONE)} ({number})."
            call = random.choice(ACTS), f"r{random.integers(REPOS)}", number, text
            expected, found = [await twin.do(*map(_plain, call)) for twin in twins]
            assert found == expected, call
            indexes = [small.repo(id)._parts.index for id in small.list_repos()]
            held = max(held, sum(index.is_held for index in indexes))
        assert held <= 2
        assert sum(large.repo(id)._parts.index.is_held for id in large.list_repos()) == REPOS


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


async def test_recalls_in_many_repositories_at_once_find_their_own():
    """Each lets the others go while they read."""
    async with Mnemo("memory:", embedder=HashingEmbedder(32)) as memory:
        memory._budget = MemoryBudget(1)
        repos = [await memory.open_repo(f"r{number}") for number in range(8)]
        for repo, number in zip(repos, range(8), strict=True):
            await repo.remember([f"{name} has the key {number}{name}." for name in NAMES])
        wrong: list[str] = []

        async def ask(number: int) -> None:
            for name in NAMES:
                found = (await repos[number].recall(f"Which key has {name}?")).as_text()
                wrong.extend([found] if f"{number}{name}" not in found else [])

        async with anyio.create_task_group() as group:
            for number in (*range(8), *range(8)):
                group.start_soon(ask, number)
        assert not wrong
        for repo in repos:
            await repo.settle()
            assert (await repo.statistics()).vectors >= len(NAMES)
        assert sum(repo._parts.index.is_held for repo in repos) <= 2


async def test_what_is_held_is_told_and_bounded():
    """By the statistics of a repository, keyed items among it; a closed one holds nothing."""
    config = Config(index={"memory_mb": 1}, jobs=QUIET)
    async with Mnemo("memory:", embedder=HashingEmbedder(512), config=config) as memory:
        total = 0
        for number in range(12):
            repo = await memory.open_repo(f"r{number}")
            assert (await repo.statistics()).index.bytes == 0
            await repo.remember([f"{name} {what}." for name in NAMES for what in DONE])
            await repo.recall("Who keeps bees?")
            alone = (await repo.statistics()).index.bytes
            await repo.items.put(("n",), "k", {}, texts={"t": "the spare key"})
            await repo.items.search(("n",), query="key")
            with_items = (await repo.statistics()).index.bytes
            assert alone < with_items < 1_000_000
            repos = [memory.repo(id) for id in memory.list_repos()]
            total = sum([(await one.statistics()).index.bytes for one in repos])
            assert total <= 1_000_000
            assert total == memory._budget.bytes
        assert total > 700_000
        for id in memory.list_repos():
            await memory.close_repo(id)
        assert memory._budget.bytes == 0

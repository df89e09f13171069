"""Remembering in several processes: whoever lives works off what is owed, each message once."""

import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest

from mnemo import Config, Mnemo, Repository
from mnemo.testing import HashingEmbedder, ScriptedChatModel

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("remembering_process.py")
FIVE_LINES = """
import asyncio
from mnemo import Mnemo

async def main():
    async with Mnemo("memory.db", embedder="static") as memory:
        ada = await memory.open_repo("ada", exist_ok=True)
        await ada.remember("I am allergic to peanuts.")
        print((await ada.recall("What must she not eat?")).as_text())
        print((await ada.recall("What must she not eat?")).as_text())

asyncio.run(main())
"""
LATER = """
import asyncio
from mnemo import Mnemo

async def main():
    async with Mnemo("memory.db", embedder="static") as memory:
        ada = await memory.open_repo("ada")
        await ada.settle()
        (fact,) = (await ada.recall("What must she not eat?", types=["semantic"])).candidates
        print(fact.node.proposition, "|", fact.sources[0].text)

asyncio.run(main())
"""


def opened(path: Path, **options: Any) -> Mnemo:
    """A service of this process on the file, whose model answers."""
    config = Config(jobs={"quiet_s": 0, "poll_s": 0.05}, session={"lease_s": 2})
    model = ScriptedChatModel.answering()
    return Mnemo(path, embedder=HashingEmbedder(), chat_model=model, config=config, **options)


@asynccontextmanager
async def service(path: Path, **options: Any) -> AsyncIterator[Repository]:
    """The repository of such a service."""
    async with opened(path, **options) as memory:
        yield await memory.open_repo("r")


class Other:
    """The other process, whose lines are heard."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self.told: list[str] = []

    async def heard(self, line: str) -> None:
        """Listen until it has told *line*."""
        assert self._process.stdout is not None
        rest = b""
        while line not in self.told:
            *lines, rest = (rest + await self._process.stdout.receive()).split(b"\n")
            self.told += [one.decode() for one in lines]

    async def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def another(path: Path, what: str, name: str, number: int) -> AsyncIterator[Other]:
    """Start the other process."""
    command = [sys.executable, str(PROGRAM), str(path), what, name, str(number)]
    with anyio.fail_after(60):
        async with await anyio.open_process(command, stderr=None) as process:
            try:
                yield Other(process)
            finally:
                if process.returncode is None:
                    process.kill()


async def said(repo: Repository) -> Counter[str]:
    """The keys of all steps, each with its number."""
    nodes = await repo.get_nodes(["episodic"])
    return Counter(str(node.key) for node in nodes)  # type: ignore[union-attr]


def run(program: str, folder: Path) -> str:
    """Run a program in *folder*, to its end; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_first_lines_run_and_a_new_process_finds_the_fact(tmp_path):
    """What a process has remembered and not extracted is a fact in the next one."""
    assert "I am allergic to peanuts." in run(FIVE_LINES, tmp_path)
    fact, source = run(LATER, tmp_path).split(" | ")
    assert ("peanuts" in fact, source) == (True, "I am allergic to peanuts.")


@pytest.mark.long
async def test_a_job_whose_process_was_killed_is_gone_on_with(db):
    """The death is noticed at once, without waiting for a lease; each message is one step."""
    async with (
        service(db, workers=0) as looked_at,
        opened(db) as memory,
        another(db, "hang", "a", 3) as other,
    ):
        await other.heard("asked")
        assert (await looked_at.statistics()).jobs.running
        await other.kill()
        repo = await memory.open_repo("r")
        await repo.settle(timeout_s=120)
        stored = {key for key in other.told if key.startswith("a") and key != "asked"}
        counted = await said(repo)
        assert stored <= counted.keys()
        assert set(counted.values()) == {1}
        assert await repo.unfinished_sessions() == []


@pytest.mark.long
async def test_nothing_acknowledged_is_lost_by_processes_killed_at_any_moment(db):
    """Three lives that end anywhere, and a last one that settles."""
    acknowledged: set[str] = set()
    for life in range(3):
        async with another(db, "work", f"life{life}x", 30) as other:
            await other.heard("open")
            await other.heard(f"life{life}x{5 * life}")
            await other.kill()
        acknowledged |= {line for line in other.told if line.startswith("life")}
    async with service(db) as repo:
        await repo.settle(timeout_s=120)
        counted = await said(repo)
        assert acknowledged <= counted.keys()
        assert set(counted.values()) == {1}
        facts = Counter(n.proposition for n in await repo.get_nodes(["semantic"]))
        assert set(facts.values()) == {1}


@pytest.mark.long
async def test_two_processes_remember_in_the_same_threads(db):
    """Both write to forty threads and work off what both have said: nothing is taken twice."""
    async with service(db) as repo, another(db, "work", "b", 40) as other:
        for n in range(40):
            await repo.remember(f"The taste of c{n} is fine.", thread_id=f"thread {n}", key=f"c{n}")
        await other.heard("settled")
        await repo.settle(timeout_s=120)
        counted = await said(repo)
        assert counted == Counter(f"{name}{n}" for name in "bc" for n in range(40))
        assert (await repo.statistics()).jobs.dead == 0


@pytest.mark.long
async def test_a_thousand_messages_are_found_as_they_are_said(db):
    """Recall asks meanwhile: every message is found when ``remember`` returned, none twice."""
    async with service(db) as repo:
        said_last = -1
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                while True:
                    newest = said_last
                    if newest >= 0:
                        found = await repo.recall(f"word{newest}", k=5)
                        texts = [
                            c.node.observation  # type: ignore[union-attr]
                            for c in found.candidates
                            if c.node.type == "episodic"
                        ]
                        assert texts.count(f"The password of day {newest} is word{newest}.") == 1
                    await anyio.lowlevel.checkpoint()

            group.start_soon(ask)
            for n in range(1_000):
                await repo.remember(f"The password of day {n} is word{n}.")
                said_last = n
            group.cancel_scope.cancel()
        await repo.settle(timeout_s=60)
        assert sum((await said(repo)).values()) == 1_000

"""
Workers of one store: how much faster two are than one, and that none loses or doubles anything.

The applications remember and leave the jobs to workers, each a process of its own with a scripted
model that takes 100 ms. ``workers-chaos`` remembers, or says in a session, in every round, and one
of three workers is killed and replaced, or stopped for longer than its lease; their model fails one
time in twenty. ``threads`` remembers one message in each of many threads in two processes, one of
which is killed at half of its share and started anew, and remembers all of it again under the same
keys. In the end each of it must be one step, every fact there once, and nothing may be claimed any
more. ``scripts/soak`` kills applications, too.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time

import anyio
from bench_kit import (
    Child,
    Figure,
    Figures,
    Row,
    SlowModel,
    be_child,
    resident_bytes,
    store_on,
    tell,
    wrongs,
)

from mnemo import Config, Mnemo, Repository
from mnemo.testing import HashingEmbedder

LEASE_S, STOPPED_S = 1.0, 1.5
"""Seconds of a lease, and for which a worker is stopped."""
AT_ONCE = Config(
    jobs={"quiet_s": 0, "poll_s": 0.05, "retry_backoff_s": 0.1},
    session={"lease_s": LEASE_S},
)
STEADY = AT_ONCE.overlaid(Config(session={"lease_s": 30.0}, jobs={"poll_s": 0.25}))
IN_THREADS = Config(jobs={"quiet_s": 0, "poll_s": 0.2}, session={"lease_s": 5})
FAULTS = 0.05
"""Share of the calls that fail where workers are killed."""
NAMES = ("Ana", "Bo", "Chen", "Dara", "Eve", "Finn", "Gita", "Hugo")
PARTS = 4


def said(number: int) -> str:
    """What is said in the thread of this number; no two say the same."""
    name = NAMES[number % len(NAMES)]
    return f"{name} keeps the key of house {number} in drawer {7 * number}."


@asynccontextmanager
async def application(store: str, config: Config, repo: str) -> AsyncIterator[Repository]:
    """A service that remembers, and leaves the jobs to workers."""
    async with Mnemo(store, embedder=HashingEmbedder(), config=config, workers=0) as memory:
        yield await memory.open_repo(repo)


async def work(store: str, kind: str) -> None:
    """Work off jobs until the end; tell of each look."""
    config, faults = (STEADY, 0.0) if kind == "steady" else (AT_ONCE, FAULTS)
    async with Mnemo(
        store,
        embedder=HashingEmbedder(),
        chat_model=SlowModel.failing(faults),
        config=config,
        workers=2,
    ) as memory:
        await memory.work(on_look=lambda _: tell("looked"))


async def talk(path: str, first: int, end: int) -> None:
    """Remember the messages of these numbers and settle; tell how far it is."""
    async with Mnemo(path, config=IN_THREADS, embedder="static") as memory:
        repo = await memory.open_repo("threads")
        for number in range(first, end):
            await remember(repo, number)
            tell(number)
        await repo.settle()
        tell(end)


async def remember(repo: Repository, number: int) -> None:
    """One message in the thread of its number."""
    await repo.remember(said(number), thread_id=f"thread {number}", key=f"key {number}")


class Workers:
    """So many workers of one kind, whose lines are read in *group*."""

    def __init__(
        self, stack: AsyncExitStack, group: anyio.abc.TaskGroup, store: str, kind: str
    ) -> None:
        self._stack, self._group, self._given = stack, group, (store, kind)
        self.children: list[Child] = []

    async def begin(self, place: int) -> None:
        """Start one in this place, and wait for its first look; the one before is killed."""
        for before in self.children[place : place + 1]:
            await before.kill()
        child = await Child.begin(self._stack, work, *self._given)
        await child.line()
        self.children[place : place + 1] = [child]
        self._group.start_soon(child.drain)

    def pause(self, place: int) -> None:
        """Stop one for longer than its lease."""
        self._group.start_soon(self.children[place].pause, STOPPED_S)


@asynccontextmanager
async def working(
    store: str, kind: str, count: int, config: Config, repo: str
) -> AsyncIterator[tuple[Repository, Workers]]:
    """An application and its workers."""
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(application(store, config, repo))
        group = await stack.enter_async_context(anyio.create_task_group())
        workers = Workers(stack, group, store, kind)
        for place in range(count):
            await workers.begin(place)
        yield opened, workers
        group.cancel_scope.cancel()


async def speed(folder: Path, *, store: str, threads: int) -> Figures:
    """How long one worker and two take for messages, each of its own thread."""
    took: list[float] = []
    with store_on(store, folder) as url:
        for count in (1, 2):
            async with working(url, "steady", count, STEADY, f"speed {count}") as (repo, _):
                began = perf_counter()
                for number in range(threads):
                    await remember(repo, number)
                await repo.settle()
                took.append(perf_counter() - began)
    return [
        Figure(f"{threads} threads, one worker", took[0], "s"),
        Figure(f"{threads} threads, two workers", took[1], "s"),
        Figure("two workers are faster by", took[0] / took[1], "x", least=1.5),
    ]


async def chaos(folder: Path, *, store: str, rounds: int) -> Figures:
    """Remember, and kill or stop one of three workers in every round."""
    chance, done = random.Random(7), Counter[str]()
    ended = [anyio.Event() for number in range(0, rounds, 3)]

    async def through_a_session(repo: Repository, number: int) -> None:
        session = await repo.start_session("Talk")
        await session.append(said(number), "Noted it", key=f"key {number}")
        await session.close_and_commit(max_retries=100)
        await session.aclose()
        ended[number // 3].set()

    with store_on(store, folder) as url:
        async with (
            working(url, "faulty", 3, AT_ONCE, "chaos") as (repo, workers),
            anyio.create_task_group() as group,
        ):
            for number in range(rounds):
                if number % 3:
                    thread, key = f"t {number % 7}", f"key {number}"
                    await repo.remember(said(number), thread_id=thread, key=key)
                else:
                    group.start_soon(through_a_session, repo, number)
                await anyio.sleep(chance.uniform(0.1, 0.5))
                victim = chance.randrange(3)
                if chance.random() < 0.4:
                    await workers.begin(victim)
                    done["killed"] += 1
                else:
                    workers.pause(victim)
                    done["stopped"] += 1
            with anyio.fail_after(120):
                for event in ended:
                    await event.wait()
            await repo.settle(timeout_s=120)
            wrong = await found_wrong(repo, {f"key {number}" for number in range(rounds)})
    killed = f"{done['killed']} workers killed, {done['stopped']} stopped"
    return wrongs(f"{rounds} rounds, {killed}", wrong)


async def found_wrong(repo: Repository, keys: Collection[str]) -> dict[str, int]:
    """What is not as it should be, with its number; *keys* were acknowledged."""
    steps = Counter(getattr(node, "key", None) for node in await repo.get_nodes(["episodic"]))
    facts = Counter(node.text for node in await repo.get_nodes(["semantic"]))
    jobs = (await repo.statistics()).jobs
    return {
        "messages that are not one step": sum(steps[key] != 1 for key in keys),
        "steps of no message": len(steps.keys() - keys),
        "facts that are there twice": sum(times > 1 for times in facts.values()),
        "sessions left": len(await repo.unfinished_sessions()),
        "jobs left or given up": jobs.waiting + jobs.running + jobs.dead,
    }


async def threads(folder: Path, *, count: int) -> Figures:
    """Remember, kill, remember again, settle, and count; memory after each settled quarter."""
    path, half = str(folder / "threads.db"), count // 2
    resident: list[float] = []

    def look() -> None:
        gc.collect()
        resident.append(resident_bytes() / 2**20)

    async def heard(child: Child, number: int) -> None:
        while f"[{number}]" not in await child.line():
            pass

    async with (
        Mnemo(path, config=IN_THREADS, embedder="static") as memory,
        AsyncExitStack() as stack,
    ):
        repo = await memory.open_repo("threads")
        killed = await Child.begin(stack, talk, path, half, count)
        await heard(killed, half + half // 2)
        await killed.kill()
        look()
        wall, used = perf_counter(), process_time()
        other = await Child.begin(stack, talk, path, half, count)
        for part in range(PARTS):
            for number in range(part * half // PARTS, (part + 1) * half // PARTS):
                await remember(repo, number)
            await repo.settle()
            look()
        await heard(other, count)
        wall, used = perf_counter() - wall, process_time() - used
        await repo.settle()
        look()
        documents = (await repo.statistics()).index.documents
        facts = len(await repo.get_nodes(["semantic"]))
        found = await found_wrong(repo, {f"key {number}" for number in range(count)})
    name, grown_kb = f"{count:,} threads", 1_024 * max(0.0, resident[-1] - resident[0])
    wrong = sum(found.values()) + abs(count - facts)
    return [
        Figure(f"{name}: messages or facts not there exactly once", wrong, "", most=0),
        Figure(f"{name}: remembered and settled by two processes", wall, "s"),
        Figure(f"{name}: processor time of one of them, per thread", 2_000 * used / count, "ms"),
        Figure(f"{name}: resident at the beginning", resident[0], "MB"),
        *(
            Figure(f"{name}: resident after quarter {part} of its own", resident[part], "MB")
            for part in range(1, PARTS + 1)
        ),
        Figure(f"{name}: resident at the end", resident[-1], "MB"),
        Figure(f"{name}: documents in the index, per thread", documents / count, ""),
        Figure(f"{name}: growth per document of the index", grown_kb / max(1, documents), "KB"),
    ]


ROWS = {
    "threads": Row(threads, count=(10_000, 8)),
    "workers-speed": Row(speed, store="sqlite", threads=(40, 4)),
    "workers-chaos": Row(chaos, store="sqlite", rounds=(200, 12)),
}


if __name__ == "__main__":
    be_child(globals())

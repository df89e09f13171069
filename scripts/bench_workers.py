"""
Workers of one store: how much faster two are than one, and that none loses or doubles anything.

This process remembers and leaves the jobs to others; each worker is this file run as a program,
with a scripted model that takes 100 ms. In every round of the second part something is
remembered, or said in a session, and one of three workers is killed and replaced, or stopped for
longer than its lease. In the third part four processes drive sessions of 20 steps, two workers
extract them with a model that fails one time in twenty, and workers are killed. Then each of it
must be one step, every fact there once, and nothing may be claimed any more.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import anyio.abc
from bench_kit import Figure, machine

from mnemo import Config, Mnemo, Repository
from mnemo.errors import ModelUnavailable
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.testing import HashingEmbedder, ScriptedChatModel

MODEL_S = 0.1
LEASE_S = 1.0
STOPPED_S = 1.5
"""Seconds that a worker is stopped: longer than its lease."""
AT_ONCE = Config(
    jobs={"quiet_s": 0, "poll_s": 0.05, "retry_backoff_s": 0.1},
    session={"lease_s": LEASE_S},
)
STEADY = AT_ONCE.overlaid(Config(session={"lease_s": 30.0}, jobs={"poll_s": 0.25}))
STEPS, APPLICATIONS, SIDE_BY_SIDE, FAULTS = 20, 4, 4, 0.05
"""Steps of a session, processes with sessions, sessions in each at once, and failing calls."""
NAMES = ("Ana", "Bo", "Chen", "Dara", "Eve", "Finn", "Gita", "Hugo")


Phases = dict[str, list[Figure]]


def said(number: int) -> str:
    """What is said in the thread of this number; no two say the same."""
    name = NAMES[number % len(NAMES)]
    return f"{name} keeps the key of house {number} in drawer {7 * number}."


class SlowModel(ScriptedChatModel):
    """A model that takes its time, and that may fail in a share of its calls."""

    faults = 0.0

    async def complete(self, request: ChatRequest) -> ChatReply:
        await anyio.sleep(MODEL_S)
        if random.random() < self.faults:
            raise ModelUnavailable("the model is down", retryable=random.random() < 0.5)
        return await super().complete(request)


@asynccontextmanager
async def application(store: str, config: Config, repo: str) -> AsyncIterator[Repository]:
    """A service that remembers, and leaves the jobs to workers."""
    async with Mnemo(store, embedder=HashingEmbedder(), config=config, workers=0) as memory:
        yield await memory.open_repo(repo)


# ── The workers ──────────────────────────────────────────────────────────────────────


async def work(store: str, kind: str) -> None:
    """Work off jobs until the end; tell when it has begun."""
    config = STEADY if kind == "steady" else AT_ONCE
    model = SlowModel.answering()
    model.faults = FAULTS if kind == "faulty" else 0.0

    def looked(_: object) -> None:
        print("looked", flush=True)

    async with Mnemo(
        store, embedder=HashingEmbedder(), chat_model=model, config=config, workers=2
    ) as memory:
        await memory.work(on_look=looked)


async def drive(store: str, name: str, count: int) -> None:
    """Take *count* sessions through their steps and their commit; tell what is acknowledged."""
    limit = anyio.CapacityLimiter(SIDE_BY_SIDE)
    async with application(store, AT_ONCE, "soak") as repo, anyio.create_task_group() as group:

        async def one(number: int) -> None:
            async with limit:
                session = await repo.start_session("Talk", session_id=f"{name}-{number}")
                for place in range(STEPS):
                    key = f"{name}-{number}-{place}"
                    house = STEPS * number + place
                    await session.append(f"{name}: {said(house)}", "Noted it", key=key)
                    print(key, flush=True)
                await session.close_and_commit(max_retries=100)
                await session.aclose()

        for number in range(count):
            group.start_soon(one, number)


class Worker:
    """A worker process, begun."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, stack: AsyncExitStack, store: str, kind: str) -> Worker:
        """Start one, which is killed when *stack* ends, and wait for its first look."""
        command = [sys.executable, __file__, "--inside", kind, "--store", store]
        process = await anyio.open_process(command, stderr=None)
        worker = cls(process)
        stack.push_async_callback(worker.kill)
        assert process.stdout is not None
        await process.stdout.receive()
        return worker

    async def drain(self) -> None:
        """Read what it tells, so that it never waits."""
        assert self.process.stdout is not None
        with suppress(anyio.ClosedResourceError):
            async for _ in self.process.stdout:
                pass

    async def kill(self) -> None:
        """SIGKILL, which a stopped process gets as well."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.aclose()


# ── The parts ────────────────────────────────────────────────────────────────────────


async def seconds(store: str, workers: int, threads: int) -> float:
    """How long *workers* take for *threads* messages, each of its own thread."""
    async with AsyncExitStack() as stack:
        repo = await stack.enter_async_context(application(store, STEADY, f"speed {workers}"))
        group = await stack.enter_async_context(anyio.create_task_group())
        for _ in range(workers):
            worker = await Worker.start(stack, store, "steady")
            group.start_soon(worker.drain)
        began = perf_counter()
        for number in range(threads):
            await repo.remember(said(number), thread_id=f"thread {number}", key=f"key {number}")
        await repo.settle()
        took = perf_counter() - began
        group.cancel_scope.cancel()
    return took


async def chaos(store: str, rounds: int) -> list[Figure]:
    """Remember, and kill or stop one of three workers in every round."""
    chance = random.Random(7)
    killed = stopped = 0
    async with AsyncExitStack() as stack:
        repo = await stack.enter_async_context(application(store, AT_ONCE, "chaos"))
        group = await stack.enter_async_context(anyio.create_task_group())

        async def started() -> Worker:
            worker = await Worker.start(stack, store, "short")
            group.start_soon(worker.drain)
            return worker

        async def resume(worker: Worker) -> None:
            await anyio.sleep(STOPPED_S)
            if worker.process.returncode is None:
                worker.process.send_signal(signal.SIGCONT)

        workers = [await started() for _ in range(3)]
        ended = [anyio.Event() for number in range(rounds) if number % 3 == 0]
        for number in range(rounds):
            if number % 3:
                await repo.remember(said(number), thread_id=f"t {number % 7}", key=f"key {number}")
            else:
                group.start_soon(through_a_session, repo, number, ended[number // 3])
            await anyio.sleep(chance.uniform(0.1, 0.5))
            victim = chance.randrange(3)
            if chance.random() < 0.4:
                killed += 1
                await workers[victim].kill()
                workers[victim] = await started()
            else:
                stopped += 1
                workers[victim].process.send_signal(signal.SIGSTOP)
                group.start_soon(resume, workers[victim])
        with anyio.fail_after(120):
            for event in ended:
                await event.wait()
        await repo.settle(timeout_s=120)
        wrong = await found_wrong(repo, {f"key {number}" for number in range(rounds)})
        group.cancel_scope.cancel()
    name = f"{rounds} rounds, {killed} workers killed, {stopped} stopped"
    return [Figure(f"{name}: {what}", value, "", most=0) for what, value in wrong.items()]


async def soak(store: str, sessions: int) -> list[Figure]:
    """Sessions of four processes, which two workers extract; one of these is killed at times."""
    chance, acknowledged, killed = random.Random(9), [], 0
    each = [len(range(place, sessions, APPLICATIONS)) for place in range(APPLICATIONS)]
    running, over = APPLICATIONS, anyio.Event()

    async def drives(name: str, count: int) -> None:
        nonlocal running
        command = [sys.executable, __file__, "--inside", "drive", "--store", store]
        driving = [*command, "--name", name, "--soak", str(count)]
        done = await anyio.run_process(driving, stderr=None)
        acknowledged.extend(done.stdout.decode().split())
        running -= 1
        if not running:
            over.set()

    async with AsyncExitStack() as stack:
        repo = await stack.enter_async_context(application(store, AT_ONCE, "soak"))
        group = await stack.enter_async_context(anyio.create_task_group())
        workers = [await Worker.start(stack, store, "faulty") for _ in range(2)]
        for worker in workers:
            group.start_soon(worker.drain)
        for place, count in enumerate(each):
            group.start_soon(drives, NAMES[place], count)
        while not over.is_set():
            with anyio.move_on_after(chance.uniform(1, 4)):
                await over.wait()
                continue
            victim = chance.randrange(2)
            await workers[victim].kill()
            workers[victim] = await Worker.start(stack, store, "faulty")
            group.start_soon(workers[victim].drain)
            killed += 1
        await repo.settle(timeout_s=120)
        wrong = await found_wrong(repo, set(acknowledged))
        wrong["steps not acknowledged once"] = abs(sessions * STEPS - len(acknowledged))
        wrong["sessions not committed"] = sum(
            record.state != "idle" or record.steps != STEPS for record in await repo.sessions()
        )
        group.cancel_scope.cancel()
    name = f"{sessions} sessions × {STEPS} steps, {killed} workers killed"
    return [Figure(f"{name}: {what}", value, "", most=0) for what, value in wrong.items()]


async def through_a_session(repo: Repository, number: int, ended: anyio.Event) -> None:
    """Have a worker extract what a session says, and commit it."""
    session = await repo.start_session("Talk")
    await session.append(said(number), "Noted it", key=f"key {number}")
    await session.close_and_commit(max_retries=0)
    await session.aclose()
    ended.set()


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


async def measured(store: str, threads: int, rounds: int, sessions: int) -> Phases:
    """All parts; one without threads, rounds or sessions is left out."""
    found: Phases = {}
    if threads:
        alone, both = [await seconds(store, workers, threads) for workers in (1, 2)]
        found["speed"] = [
            Figure(f"{threads} threads, one worker", alone, "s"),
            Figure(f"{threads} threads, two workers", both, "s"),
            Figure("two workers are faster by", alone / both, "x", least=1.5),
        ]
    if rounds:
        found["chaos"] = await chaos(store, rounds)
    if sessions:
        found["soak"] = await soak(store, sessions)
    return found


@contextmanager
def store_for(given: argparse.Namespace) -> Iterator[str]:
    """Where to keep things: as given, on a server started for it, or in a temporary file."""
    if given.postgres:
        from postgres_server import new_schema, running_server

        with running_server() as server, new_schema(server.url) as url:
            yield url
        return
    with tempfile.TemporaryDirectory(prefix="mnemo-bench-") as folder:
        yield given.store or str(Path(folder) / "workers.db")


def main() -> None:
    """Read the arguments, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--store", help="A store that may be written; default: a temporary file.")
    parser.add_argument("--postgres", action="store_true", help="On a server started for it.")
    parser.add_argument("--threads", type=int, default=40, help="Episodes to extract; 0: none.")
    parser.add_argument("--rounds", type=int, default=200, help="Of kills and stops; 0: none.")
    parser.add_argument("--soak", type=int, default=200, help="Sessions of 20 steps; 0: none.")
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument(
        "--inside", choices=("short", "steady", "faulty", "drive"), help=argparse.SUPPRESS
    )
    parser.add_argument("--name", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside == "drive":
        anyio.run(drive, given.store, given.name, given.soak)
        return
    if given.inside:
        anyio.run(work, given.store, given.inside)
        return
    with store_for(given) as store:
        parts = anyio.run(measured, store, given.threads, given.rounds, given.soak)
    if given.json:
        data: dict[str, Any] = {"machine": machine()}
        phases = {name: [figure.as_json() for figure in part] for name, part in parts.items()}
        print(json.dumps(data | {"phases": phases}))
        return
    for figure in (figure for part in parts.values() for figure in part):
        missed = " (missed)" if figure.met is False else ""
        print(f"{figure.name}: {figure.value:.2f} {figure.unit}{missed}")


if __name__ == "__main__":
    main()

"""
Many threads of one message each, remembered by two processes, one of which is killed midway.

The other process is this file run as a program: it remembers its share, says how far it is,
and settles. It is killed at half of its share and started anew, and remembers all of it again
under the same keys. Then every message must be one step, and every fact there once.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter, process_time

import anyio
import anyio.abc
from bench_kit import Figure, Sizes, resident_bytes

from mnemo import Config, Mnemo
from mnemo.repository import Repository

REPO = "threads"
NAMES = ("Ana", "Bo", "Chen", "Dara", "Eve", "Finn", "Gita", "Hugo")
PARTS = 4
AT_ONCE = Config(jobs={"quiet_s": 0, "poll_s": 0.2}, session={"lease_s": 5})


def said(number: int) -> str:
    """What is said in the thread of this number; no two say the same."""
    name = NAMES[number % len(NAMES)]
    return f"{name} keeps the key of house {number} in drawer {7 * number}."


async def remember(repo: Repository, numbers: range) -> None:
    """One message in the thread of each number."""
    for number in numbers:
        await repo.remember(said(number), thread_id=f"thread {number}", key=f"key {number}")


async def threads(sizes: Sizes, folder: Path) -> list[Figure]:
    """Remember, kill, remember again, settle, and count; memory after each settled quarter."""
    path, count = folder / "threads.db", sizes.threads
    half, other = count // 2, (str(folder / "threads.db"), str(count // 2), str(count))
    async with Mnemo(path, config=AT_ONCE, embedder="static") as memory:
        repo = await memory.open_repo(REPO)
        async with _program(*other) as killed:
            await _heard(killed, half + half // 2)
            killed.kill()
        resident, wall, used = [_resident_mb()], perf_counter(), process_time()
        async with _program(*other) as process:
            for part in range(PARTS):
                await remember(repo, range(part * half // PARTS, (part + 1) * half // PARTS))
                await repo.settle()
                resident.append(_resident_mb())
            await _heard(process, count)
        wall, used = perf_counter() - wall, process_time() - used
        await repo.settle()
        resident.append(_resident_mb())
        documents = (await repo.statistics()).index.documents
        wrong = await _wrong(repo, count)
    name = f"{count:,} threads"
    grown_kb = 1_024 * max(0.0, resident[-1] - resident[0])
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


def _resident_mb() -> float:
    gc.collect()
    return resident_bytes() / 2**20


async def _wrong(repo: Repository, count: int) -> int:
    """How many messages are not one step, and how many facts are missing or there twice."""
    steps = Counter(getattr(node, "key", None) for node in await repo.get_nodes(["episodic"]))
    facts = Counter(node.text for node in await repo.get_nodes(["semantic"]))
    lost = sum(steps[f"key {number}"] != 1 for number in range(count))
    return lost + sum(times > 1 for times in facts.values()) + abs(count - len(facts))


# ── The other process ────────────────────────────────────────────────────────────────


@asynccontextmanager
async def _program(*arguments: str) -> AsyncIterator[anyio.abc.Process]:
    """Run this file with *arguments*; its end is the end of the block."""
    command = [sys.executable, __file__, *arguments]
    async with await anyio.open_process(command, stderr=None) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()


async def _heard(process: anyio.abc.Process, number: int) -> None:
    """Wait until the program has told *number*."""
    assert process.stdout is not None
    told = b""
    while f"\n{number}\n".encode() not in told:
        told = told[-16:] + await process.stdout.receive()


async def _work(path: str, first: int, end: int) -> None:
    async with Mnemo(path, config=AT_ONCE, embedder="static") as memory:
        repo = await memory.open_repo(REPO)
        for number in range(first, end):
            await remember(repo, range(number, number + 1))
            print(f"\n{number}", flush=True)
        await repo.settle()
        print(f"\n{end}", flush=True)


if __name__ == "__main__":
    anyio.run(_work, sys.argv[1], *map(int, sys.argv[2:]))

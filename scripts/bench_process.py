"""What a process pays: importing the package, and sessions that do nothing."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio
from bench_kit import Figure, Sizes, heartbeat
from bench_writing import warm_up

from mnemo import Mnemo
from mnemo.repository import Repository
from mnemo.session.session import Session

IMPORT_S, IDLE_SESSION_KB = 0.3, 25.0
IMPORT = "from mnemo import Mnemo"
OPENED_AT_ONCE = 64


async def import_time(sizes: Sizes, folder: Path) -> list[Figure]:
    """``from mnemo import Mnemo`` in fresh processes, less a process that imports nothing."""
    await _run(IMPORT)
    bare = [await _run("pass") for _ in range(sizes.imports)]
    whole = [await _run(IMPORT) for _ in range(sizes.imports)]
    wall, cpu = (median(t[i] for t in whole) - median(t[i] for t in bare) for i in (0, 1))
    return [
        Figure(f"{IMPORT}: wall", wall, "s", most=IMPORT_S),
        Figure(f"{IMPORT}: processor, all cores", cpu, "s"),
    ]


async def _run(code: str) -> tuple[float, float]:
    before, began = _children_cpu_s(), perf_counter()
    await anyio.run_process([sys.executable, "-c", code])
    return perf_counter() - began, _children_cpu_s() - before


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def idle_sessions(sizes: Sizes, folder: Path) -> list[Figure]:
    """Resident memory of sessions that are open and do nothing."""
    await warm_up(folder)
    async with Mnemo(folder / "idle.db", embedder="static") as memory:
        repo = await memory.open_repo("bench")
        warm = await _open(repo, OPENED_AT_ONCE)
        await anyio.sleep(0.1)
        before, began = _resident_kb(), perf_counter()
        async with heartbeat() as opening:
            sessions = await _open(repo, sizes.open_sessions)
        opened_s = perf_counter() - began
        each_kb = (_resident_kb() - before) / sizes.open_sessions
        began = perf_counter()
        async with heartbeat() as closing:
            await _close(sessions)
        closed_s = perf_counter() - began
        await _close(warm)
    name = f"{sizes.open_sessions:,} idle sessions"
    return [
        Figure(f"{name}: memory of each", each_kb, "KB", most=IDLE_SESSION_KB),
        Figure(f"{name}: opening all", opened_s, "s"),
        *opening.figures(f"{name}, opening"),
        Figure(f"{name}: closing all", closed_s, "s"),
        *closing.figures(f"{name}, closing"),
    ]


async def _open(repo: Repository, count: int) -> list[Session]:
    sessions: list[Session] = []

    async def some(share: int) -> None:
        sessions.extend([await repo.start_session("Stay ready") for _ in range(share)])

    async with anyio.create_task_group() as group:
        for worker in range(OPENED_AT_ONCE):
            group.start_soon(some, len(range(worker, count, OPENED_AT_ONCE)))
    return sessions


async def _close(sessions: Sequence[Session]) -> None:
    async def some(mine: Sequence[Session]) -> None:
        for session in mine:
            await session.aclose()

    async with anyio.create_task_group() as group:
        for worker in range(OPENED_AT_ONCE):
            group.start_soon(some, sessions[worker::OPENED_AT_ONCE])


def _resident_kb() -> float:
    gc.collect()
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1_024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1_024 if sys.platform == "darwin" else peak

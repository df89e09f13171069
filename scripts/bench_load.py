"""
The write side for longer than its queues hold: appends, and all that follows from them.

A burst is over before annotation, embedding and indexing begin; under a sustained load they
share the interpreter with the appends. Processor time is booked by what a worker thread is
asked to do, so it says the same on a busy machine; rates and lag do not.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import anyio.to_thread
from bench_dialogues import read_dialogues
from bench_kit import Figure, Heartbeat, Sizes, heartbeat
from bench_writing import warm_up

from mnemo import Mnemo
from mnemo.repository import Repository
from mnemo.runtime import settle_collector
from mnemo.session.session import Session

SESSIONS = 64
LAG_P99_MS = 10.0
LOOK_S = 0.25
MOST_US = {
    "short steps": {"writer": 90, "annotated": 70, "embedded": 30, "indexed": 65, "all": 350},
    "turns": {"writer": 130, "annotated": 200, "embedded": 80, "indexed": 100, "all": 650},
}
"""Processor microseconds per step, with vectors."""
ROOMS = {
    "mnemo.extraction": "annotated",
    "mnemo.models": "embedded",
    "mnemo.index": "indexed",
    "mnemo.log.feed": "indexed",
}
"""Module → the phase that its work in worker threads belongs to."""
Said = dict[str, Any]


# ── Texts ────────────────────────────────────────────────────────────────────────────


def short_steps() -> list[Said]:
    """Plain sentences of about ten words, and an agent's short answers; the same each time."""
    who = ("Ana", "Bo", "Chen", "Dara", "Eve", "Finn", "Gita", "Hugo")
    did = ("painted", "moved", "sold", "counted", "repaired", "ordered", "cleaned", "opened")
    what = ("lanterns", "ladders", "boats", "tiles", "crates", "kettles", "clocks", "ropes")
    where = ("cellar", "harbour", "attic", "garden", "workshop", "kitchen", "tower", "library")
    pick = random.Random(11)
    sentences = pick.sample(list(product(who, did, what, where)), 4_000)
    return [
        {
            "observation": f"{a} {b} the {c} in the {d} on day {pick.randint(1, 31)}.",
            "action": f"Noted the {c} in the {d}.",
        }
        for a, b, c, d in sentences
    ]


def turns_of(path: Path) -> list[Said]:
    """The turns of all dialogues in the file, in order."""
    return [
        {"observation": turn.text, "action": "", "at": turn.at, "actor": turn.speaker}
        for dialogue in read_dialogues(path)
        for turn in dialogue.turns
        if turn.text.strip()
    ]


# ── Processor time ───────────────────────────────────────────────────────────────────


@contextmanager
def booked() -> Iterator[Counter[str]]:
    """Processor seconds of work in worker threads by phase, while the block runs."""
    seconds: Counter[str] = Counter()
    plain = anyio.to_thread.run_sync

    async def run_sync(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return await plain(_timed(work, _phase_of(work, *args), seconds), *args, **options)

    anyio.to_thread.run_sync = run_sync  # type: ignore[assignment]
    try:
        yield seconds
    finally:
        anyio.to_thread.run_sync = plain


def _timed(work: Callable[..., Any], phase: str, seconds: Counter[str]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        began = time.thread_time()
        try:
            return work(*args)
        finally:
            seconds[phase] += time.thread_time() - began

    return run


def _phase_of(*given: Any) -> str:
    """The phase of the innermost function of *given*: a door's arguments say whose work it is."""
    modules = [module for one in given for module in _modules(one)]
    rooms = (ROOMS[r] for m in reversed(modules) for r in ROOMS if m == r or m.startswith(f"{r}."))
    return next(rooms, "other threads")


def _modules(given: Any) -> Iterator[str]:
    if isinstance(given, partial):
        for part in (given.func, *given.args):
            yield from _modules(part)
    elif callable(given) and isinstance(module := getattr(given, "__module__", None), str):
        yield module


def _writer_s() -> float:
    """Processor seconds of the store's writer so far."""
    (writer,) = (one for one in threading.enumerate() if one.name == "mnemo-writer")
    assert writer.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(writer.ident))


# ── The load ─────────────────────────────────────────────────────────────────────────


async def sustained(sizes: Sizes, folder: Path) -> list[Figure]:
    """Short steps from many sessions, until all are annotated, embedded and indexed."""
    return await _loaded("short steps", short_steps(), sizes.sustained, folder)


async def sustained_turns(path: Path, sizes: Sizes, folder: Path) -> list[Figure]:
    """The turns of dialogues, each once."""
    turns = turns_of(path)
    return await _loaded("turns", turns, min(sizes.sustained, len(turns)), folder)


async def _loaded(name: str, said: Sequence[Said], count: int, folder: Path) -> list[Figure]:
    """Once for processor time and rates, and once more for lag: a heartbeat costs both."""
    await warm_up(folder)
    each = max(1, count // SESSIONS)
    figures, _ = await _measured(name, said, each, folder / "load.db", nullcontext(Heartbeat()))
    _, beats = await _measured(name, said, each, folder / "lag.db", heartbeat())
    lag, *rest = beats.figures(f"{SESSIONS} sessions, {name}")
    return [*figures, Figure(lag.name, lag.value, lag.unit, most=LAG_P99_MS), *rest]


async def _measured(
    name: str,
    said: Sequence[Said],
    each: int,
    path: Path,
    watched: AbstractAsyncContextManager[Heartbeat],
) -> tuple[list[Figure], Heartbeat]:
    async with Mnemo(path, embedder="static") as memory:
        repo = await memory.open_repo("bench")
        sessions = [await repo.start_session("Take everything down") for _ in range(SESSIONS)]
        settle_collector()
        used_s = {"all": -time.process_time(), "writer": -_writer_s()}
        used_s["event loop"] = -time.thread_time()
        async with watched as beats:
            with booked() as phases:
                began = perf_counter()
                await _append_all(sessions, said, each)
                durable_s = perf_counter() - began
                await _drained(repo, sessions, vectors=_sides(said, each))
                all_s = perf_counter() - began
        used_s["all"] += time.process_time()
        used_s["writer"] += _writer_s()
        used_s["event loop"] += time.thread_time()
    figures = [
        _rate(name, "durable", each, durable_s),
        _rate(name, "annotated, embedded, indexed", each, all_s),
        *_costs(name, used_s | phases, each * SESSIONS),
    ]
    return figures, beats


def _rate(name: str, what: str, each: int, seconds: float) -> Figure:
    count = each * SESSIONS
    return Figure(f"{count:,} {name} of {SESSIONS} sessions: {what}", count / seconds, "/s")


def _costs(name: str, used_s: dict[str, float], count: int) -> list[Figure]:
    most = MOST_US[name]
    order = ("event loop", "writer", "annotated", "embedded", "indexed", "other threads", "all")
    return [
        Figure(f"{name}: processor per step, {what}", 1e6 * used_s.get(what, 0) / count, "µs",
               most=most.get(what))
        for what in order
    ]  # fmt: skip


async def _append_all(sessions: Sequence[Session], said: Sequence[Said], each: int) -> None:
    async def fill(number: int, session: Session) -> None:
        for step in range(each):
            await session.append(**said[(number * each + step) % len(said)])

    async with anyio.create_task_group() as group:
        for number, session in enumerate(sessions):
            group.start_soon(fill, number, session)


def _sides(said: Sequence[Said], each: int) -> int:
    """How many vectors the appended steps get: one for each side that says something."""
    taken = (said[number % len(said)] for number in range(each * SESSIONS))
    return sum(bool(one["observation"]) + bool(one["action"]) for one in taken)


async def _drained(repo: Repository, sessions: Sequence[Session], *, vectors: int) -> None:
    while True:
        # Counting vectors reads a table, which costs more than asking sessions.
        backlog = any(session.statistics().append_backlog for session in sessions)
        if not backlog and (await repo.statistics()).vectors >= vectors:
            return
        await anyio.sleep(LOOK_S)

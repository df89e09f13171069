"""
The write side: import, open sessions, appends, a sustained load, episodes.

A burst of appends is over before annotation, embedding and indexing begin; under a sustained load
they share the interpreter with the appends. Processor time is booked by what a worker thread is
asked to do, so it says the same on a busy machine; rates and lag do not.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import anyio
import anyio.to_thread
import bench_kit as kit
from answers_kit import read_talks
from bench_kit import Figure, Figures, Heartbeat, Row, append_all, at_once, heartbeat, warm_up

import mnemo
from mnemo import Config, Mnemo
from mnemo.models.named import named_embedder
from mnemo.protocols import FeedCursor
from mnemo.repository.repository import Repository
from mnemo.runtime import settle_collector
from mnemo.session.session import Session
from mnemo.values.messages import Message

IMPORT, IMPORT_S, IDLE_SESSION_KB = "from mnemo import Mnemo", 0.3, 25.0
LEAST_PER_S = {("normal", 1): 2_500, ("normal", 64): 8_000, ("full", 64): 6_000}
EVENT_LOOP_US = {64: 40.0}
EPISODE_STEPS, ROUNDS = 50, 5
SESSIONS = 64
"""Of a sustained load."""
SUSTAINED_LAG_P99_MS, LOOK_S = 10.0, 0.25
MOST_US = {
    "short steps": {"writer": 90, "annotated": 70, "embedded": 30, "indexed": 65, "all": 350},
    "turns": {"writer": 130, "annotated": 200, "embedded": 80, "indexed": 100, "all": 650},
}
"""Processor microseconds per step, with vectors."""
PHASES = ("event loop", "writer", "annotated", "embedded", "indexed", "other threads", "all")
ROOMS = {
    "mnemo.extraction": "annotated",
    "mnemo.models": "embedded",
    "mnemo.index": "indexed",
    "mnemo.log.feed": "indexed",
}
"""Module → the phase that its work in worker threads belongs to."""
Said = dict[str, Any]


# ── A process: what it pays once, and for sessions that do nothing ───────────────────


async def idle_loop(folder: Path, *, seconds: float) -> Figures:
    """The lag of a loop that does nothing: what the machine itself adds."""
    async with heartbeat() as beats:
        await anyio.sleep(seconds)
    return beats.figures("idle loop", None, None)


async def import_time(folder: Path, *, times: int) -> Figures:
    """The import in fresh processes, less a process that imports nothing."""

    async def run(code: str) -> tuple[float, float]:
        began, used = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        await anyio.run_process([sys.executable, "-c", code])
        took, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        return took, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime

    await run(IMPORT)
    bare, whole = [[await run(code) for _ in range(times)] for code in ("pass", IMPORT)]
    wall, cpu = (median(t[i] for t in whole) - median(t[i] for t in bare) for i in (0, 1))
    return [
        Figure(f"{IMPORT}: wall", wall, "s", most=IMPORT_S),
        Figure(f"{IMPORT}: processor, all cores", cpu, "s"),
    ]


async def idle_sessions(folder: Path, *, count: int, together: int = 64) -> Figures:
    """Resident memory of sessions that are open and do nothing."""
    await warm_up(folder)
    name, opened = f"{count:,} idle sessions", list[Session]()
    async with Mnemo(folder / "idle.db", embedder="static") as memory:
        repo = await memory.open_repo("bench")

        async def opening(share: int) -> None:
            opened.extend([await repo.start_session("Stay ready") for _ in range(share)])

        async def closing(share: Sequence[Session]) -> None:
            for session in share:
                await session.aclose()

        def resident_kb() -> float:
            gc.collect()
            return kit.resident_bytes() / 1_024

        await at_once(opening, [1] * together)
        await anyio.sleep(0.1)
        before = resident_kb()
        async with heartbeat() as beats:
            took = await at_once(opening, [len(range(n, count, together)) for n in range(together)])
        each_kb = (resident_kb() - before) / count
        figures = [
            Figure(f"{name}: memory of each", each_kb, "KB", most=IDLE_SESSION_KB),
            Figure(f"{name}: opening all", took, "s"),
            *beats.figures(f"{name}, opening"),
        ]
        async with heartbeat() as beats:
            took = await at_once(
                closing, [opened[together + n :: together] for n in range(together)]
            )
    return [*figures, Figure(f"{name}: closing all", took, "s"), *beats.figures(f"{name}, closing")]


# ── Appends ──────────────────────────────────────────────────────────────────────────


async def appends(mode: Any, folder: Path, *, in_flight: int, count: int, alone: int) -> Figures:
    """Durable appends with ``synchronous = mode``."""
    await warm_up(folder)
    each = max(1, (alone if in_flight == 1 else count) // in_flight // ROUNDS)
    config = Config(store={"synchronous": mode})
    async with Mnemo(folder / "appends.db", config=config, embedder="static") as memory:
        repo = await memory.open_repo("bench")
        sessions = [await repo.start_session("Take everything down") for _ in range(in_flight)]
        await append_all(sessions, 2)
        took, per_s, used_s = list[float](), list[float](), -thread_time()
        async with heartbeat() as beats:
            for _ in range(ROUNDS):
                began = perf_counter()
                took += await append_all(sessions, each)
                per_s.append(each * in_flight / (perf_counter() - began))
        used_us = 1e6 * (used_s + thread_time()) / len(took)
    name, least = f"append, {mode}, {in_flight} in flight", LEAST_PER_S.get((mode, in_flight))
    most = EVENT_LOOP_US.get(in_flight)
    return [
        Figure(f"{name}: durable, median of {ROUNDS}", median(per_s), "/s", least=least),
        Figure(f"{name}: processor on the event loop, each", used_us, "µs", most=most),
        *kit.spread(name, took, "p50", "p99"),
        *beats.figures(name),
    ]


# ── A sustained load ─────────────────────────────────────────────────────────────────


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


async def sustained_turns(folder: Path, *, file: str, count: int) -> Figures:
    """The turns of the dialogues in *file*, each once."""
    turns = [
        {"observation": turn.text, "action": "", "at": turn.at, "actor": turn.speaker}
        for talk in read_talks(Path(file))
        for turn in talk.turns
        if turn.text.strip()
    ]
    return await sustained(folder, count=min(count, len(turns)), name="turns", said=turns)


async def sustained(
    folder: Path, *, count: int, name: str = "short steps", said: Sequence[Said] = ()
) -> Figures:
    """
    Steps from many sessions, until all are annotated, embedded and indexed.

    Once for processor time and rates, and once more for lag: a heartbeat costs both.
    """
    await warm_up(folder)
    load = partial(_loaded, name, said or short_steps(), max(1, count // SESSIONS))
    figures, _ = await load(folder / "load.db", nullcontext(Heartbeat()))
    _, beats = await load(folder / "lag.db", heartbeat())
    return figures + beats.figures(f"{SESSIONS} sessions, {name}", p99=SUSTAINED_LAG_P99_MS)


async def _loaded(
    name: str,
    said: Sequence[Said],
    each: int,
    path: Path,
    watched: AbstractAsyncContextManager[Heartbeat],
) -> tuple[Figures, Heartbeat]:
    taken = [said[number % len(said)] for number in range(each * SESSIONS)]
    vectors = sum(bool(one["observation"]) + bool(one["action"]) for one in taken)
    async with Mnemo(path, embedder="static") as memory:
        repo = await memory.open_repo("bench")
        sessions = [await repo.start_session("Take everything down") for _ in range(SESSIONS)]

        async def fill(number: int, session: Session) -> None:
            for one in taken[number * each : (number + 1) * each]:
                await session.append(**one)

        settle_collector()
        before = _processor_s()
        async with watched as beats:
            with booked() as phases:
                durable_s = await at_once(fill, range(SESSIONS), sessions)
                began = perf_counter()
                await drained(repo, sessions, vectors)
                all_s = durable_s + perf_counter() - began
        used_s = {what: used - before[what] for what, used in _processor_s().items()} | phases
    title = f"{len(taken):,} {name} of {SESSIONS} sessions"
    return [
        Figure(f"{title}: durable", len(taken) / durable_s, "/s"),
        Figure(f"{title}: annotated, embedded, indexed", len(taken) / all_s, "/s"),
        *(
            Figure(
                f"{name}: processor per step, {what}",
                1e6 * used_s.get(what, 0) / len(taken),
                "µs",
                most=MOST_US[name].get(what),
            )
            for what in PHASES
        ),
    ], beats


async def drained(repo: Repository, sessions: Sequence[Session], vectors: int) -> None:
    """Wait until all is annotated and so many vectors are there."""
    while True:
        # Counting vectors reads a table, which costs more than asking sessions.
        backlog = any(session.statistics().append_backlog for session in sessions)
        if not backlog and (await repo.statistics()).vectors >= vectors:
            return
        await anyio.sleep(LOOK_S)


def _processor_s() -> dict[str, float]:
    """Processor seconds so far: of the process, of this thread, of the store's writer."""
    (writer,) = (one for one in threading.enumerate() if one.name == "mnemo-writer")
    assert writer.ident is not None
    written = time.clock_gettime(time.pthread_getcpuclockid(writer.ident))
    return {"all": time.process_time(), "event loop": thread_time(), "writer": written}


@contextmanager
def booked() -> Iterator[Counter[str]]:
    """Processor seconds of work in worker threads by phase, while the block runs."""
    seconds: Counter[str] = Counter()
    plain = anyio.to_thread.run_sync

    async def run_sync(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        phase = _phase_of(work, *args)

        def run(*args: Any) -> Any:
            began = thread_time()
            try:
                return work(*args)
            finally:
                seconds[phase] += thread_time() - began

        return await plain(run, *args, **options)

    anyio.to_thread.run_sync = run_sync  # type: ignore[assignment]
    try:
        yield seconds
    finally:
        anyio.to_thread.run_sync = plain


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


# ── Episodes ─────────────────────────────────────────────────────────────────────────


async def episodes(folder: Path, *, alone: int, sessions: int, steps: int) -> Figures:
    """From close to committed: one episode after the other, then many at once."""
    await warm_up(folder)
    name, took = f"episode of {EPISODE_STEPS} steps", list[float]()
    async with Mnemo(folder / "episodes.db", embedder="static") as memory:
        repo = await memory.open_repo("bench")
        async with heartbeat() as beats:
            for _ in range(alone + 1):
                session = await repo.start_session("Help plan a journey")
                await append_all([session], EPISODE_STEPS)
                took += await kit.timed([session.close_and_commit])
                await session.aclose()
    figures = [Figure(f"{name}: close to committed", median(took[1:]), "ms"), *beats.figures(name)]
    async with Mnemo(folder / "drain.db", embedder="static") as memory:
        repo = await memory.open_repo("bench")
        opened = [await repo.start_session("Help plan a journey") for _ in range(sessions)]
        work: dict[str, Callable[[], Awaitable[object]]] = {
            "appending": lambda: append_all(opened, steps),
            "annotated and embedded": lambda: drained(repo, opened, 2 * steps * sessions),
            "extracted and committed": lambda: at_once(Session.close_and_commit, opened),
        }
        for what, act in work.items():
            name = f"{sessions} × {steps} steps, {what}"
            async with heartbeat() as beats:
                (ms,) = await kit.timed([act])
            figures += [Figure(f"{name}: all", ms / 1_000, "s"), *beats.figures(name)]
    return figures


# ── Embedding ────────────────────────────────────────────────────────────────────────


async def embedding(folder: Path, *, name: str, count: int, least: float | None) -> Figures:
    """
    A backlog of texts, without the index and with it in memory, to the bare embedder.

    That is given the same texts sorted by length, in batches of 256. The ratios are of processor
    time: they hold on a busy machine, too.
    """
    pages = sorted((Path(mnemo.__file__).parent / "guide").glob("*.md"))
    words = [word for page in pages for word in page.read_text("utf-8").split() if word.isalpha()]
    embedder, chance = named_embedder(name), random.Random(3)
    lengths = [min(120, max(2, int(chance.lognormvariate(2.6, 0.7)))) for _ in range(count)]
    texts = [" ".join(chance.choices(words, k=length)) for length in lengths]
    await embedder.embed(texts[:64])

    async def bare() -> None:
        ordered = sorted(texts, key=len)
        for first in range(0, count, 256):
            await embedder.embed(ordered[first : first + 256])

    took_s = {"bare": await _spent_s(bare)}
    config = Config(jobs={"background": False})
    for place in ("by a job", "in memory"):
        path = folder / f"{place}.db"
        async with Mnemo(path, config=config, embedder=embedder) as memory:
            repo = await memory.open_repo("bench")
            said = [Message(role="user", content=text) for text in texts]
            for first in range(0, count, 500):
                await repo.conversation("t").append(said[first : first + 500])
            index = repo._parts.index
            if place == "in memory":
                await index.corpus()
            work = partial(index.work_off, FeedCursor(), goes_on=lambda: True)
            took_s[place] = await _spent_s(work)
            assert (await repo.statistics()).vectors == count
    called = f"embedding, {name}"
    rates = [Figure(f"{called}, {place}", count / s, "/s") for place, s in took_s.items()]
    ratios = {place: took_s["bare"] / took_s[place] for place in took_s if place != "bare"}
    return [
        *rates,
        *(Figure(f"{called}, {place}, to bare", r, "", least) for place, r in ratios.items()),
    ]


async def _spent_s(work: Callable[[], Awaitable[object]]) -> float:
    began = time.process_time()
    await work()
    return time.process_time() - began


_APPENDS = {"in_flight": ([1, 8, 64, 256], [1, 64]), "count": (16_000, 128), "alone": (4_000, 20)}
ROWS = {
    "idle-loop": Row(idle_loop, seconds=(2.0, 0.02)),
    "import": Row(import_time, times=(5, 1)),
    "sessions": Row(idle_sessions, count=(10_000, 50)),
    "append-normal": Row(partial(appends, "normal"), **_APPENDS),
    "append-full": Row(partial(appends, "full"), **_APPENDS),
    "sustained": Row(sustained, count=(32_000, 256)),
    "turns": Row(sustained_turns, file=None, count=(32_000, 256)),
    "embed-minilm": Row(embedding, name="minilm", count=(4_000, 100), least=0.9),
    "embed-static": Row(embedding, name="static", count=(16_000, 300), least=None),
    "episodes": Row(episodes, alone=(7, 1), sessions=(64, 4), steps=(300, 5)),
}

"""What every bench is made of: rows, figures, the loop's heartbeat, texts, processes, sessions."""

from __future__ import annotations

import gc
import inspect
import json
import os
import platform
import random
import resource
import signal
import sqlite3
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from mnemo import Config, Mnemo, Session
from mnemo.errors import ModelUnavailable
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.runtime.text import STOP_WORDS
from mnemo.testing import ScriptedChatModel

BEAT_S = 0.005
LAG_P99_MS, LAG_MAX_MS = 5.0, 25.0
PACKAGES = ("mnemo-sessions", "anyio", "numpy", "pydantic", "tokenizers", "transitions")


# ── Rows and figures ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Figure:
    """
    One measured number.

    Attributes:
        least, most: What it should reach, or stay under; ``None`` where nothing is set.
    """

    name: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; ``None`` without one."""
        if self.least is not None:
            return self.value >= self.least
        return None if self.most is None else self.value <= self.most

    def as_json(self) -> dict[str, Any]:
        """All of it, and whether the target is met."""
        return asdict(self) | {"met": self.met}

    def __str__(self) -> str:
        value = f"{self.value:,.{0 if self.value >= 1_000 else 2}f}"
        target = f"≥ {self.least:,g}" if self.least is not None else ""
        target = target or (f"≤ {self.most:,g}" if self.most is not None else "")
        missed = "  MISSED" if self.met is False else ""
        return f"  {self.name:<70} {value:>10} {self.unit:<5}{target}{missed}".rstrip()


Figures = list[Figure]


def keep(
    file: Path,
    row: str,
    settings: Mapping[str, Any],
    place: str,
    figures: Sequence[Mapping[str, Any]],
) -> None:
    """
    Write what was measured today to *file*, a line of JSON, instead of one of the same row and
    settings; ``scripts/make_guide`` makes the guide's tables of it. *place* tells the machine.
    """
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    told = {"row": row, "settings": dict(settings), "day": f"{date.today()}"}
    run = told | {"machine": place, "figures": list(figures)}
    runs = {f"{one['row']} {one['settings']}": one for one in (*map(json.loads, lines), run)}
    file.write_text("".join(f"{json.dumps(runs[asked])}\n" for asked in sorted(runs)), "utf-8")


class Row:
    """
    One thing that is measured.

    Args:
        act: Makes what it needs in a folder of its own, measures, and gives figures.
        settings: Of *act*, by name; two that stand in a tuple are for the full size, at which
            targets hold, and for a quick one. Of a list each is measured, in turn.
    """

    def __init__(self, act: Callable[..., Awaitable[Figures]], **settings: Any) -> None:
        self.act, self._settings = act, settings

    def sized(self, quick: bool) -> dict[str, Any]:
        """The settings of a size."""
        pairs = self._settings.items()
        return {k: value[quick] if isinstance(value, tuple) else value for k, value in pairs}


def percentile(values: Sequence[float], share: float) -> float:
    """The value that *share* of *values* do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(name: str, took_ms: Sequence[float], *what: str, **most: float | None) -> Figures:
    """The percentiles (``p95``), or the ``max``, that *what* names."""
    values = {
        w: max(took_ms) if w == "max" else percentile(took_ms, int(w[1:]) / 100) for w in what
    }
    return [Figure(f"{name}: {w}", v, "ms", most=most.get(w)) for w, v in values.items()]


def beside(
    name: str,
    measured: Mapping[str, Sequence[float]],
    unit: str,
    ratio: str,
    **target: float | None,
) -> Figures:
    """The median of each of two, and the first as a multiple of the second."""
    figures = [Figure(f"{name}: {who}", median(some), unit) for who, some in measured.items()]
    first, second = (figure.value for figure in figures)
    return [*figures, Figure(f"{name}: {ratio}", first / second, "x", **target)]


def wrongs(name: str, found: Mapping[str, float]) -> Figures:
    """What must not be, each with its number."""
    return [Figure(f"{name}: {what}", number, "", most=0) for what, number in found.items()]


@contextmanager
def timing(took_ms: list[float]) -> Iterator[None]:
    """Append how long the block took."""
    began = perf_counter()
    yield
    took_ms.append(1_000 * (perf_counter() - began))


async def timed(calls: Iterable[Callable[[], Awaitable[object]]]) -> list[float]:
    """Milliseconds of each call, one after the other."""
    took: list[float] = []
    for call in calls:
        with timing(took):
            await call()
    return took


async def at_once(call: Callable[..., Awaitable[object]], *arguments: Iterable[Any]) -> float:
    """Call with each of *arguments*, as ``map`` would, all at once; the seconds that it took."""
    began = perf_counter()
    async with anyio.create_task_group() as group:
        for each in zip(*arguments, strict=False):
            group.start_soon(call, *each)
    return perf_counter() - began


# ── The loop's lag ───────────────────────────────────────────────────────────────────


@dataclass
class Heartbeat:
    """
    How much later than asked for the event loop woke a sleeper.

    Attributes:
        late_ms: One number per beat, in milliseconds.
        collecting_ms: The longest pause for garbage collection, which is part of the lag.
    """

    late_ms: list[float] = field(default_factory=list)
    collecting_ms: float = 0.0
    _began: float = 0.0

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Take the time of a garbage collection; an entry of ``gc.callbacks``."""
        if phase == "start":
            self._began = perf_counter()
        else:
            self.collecting_ms = max(self.collecting_ms, 1_000 * (perf_counter() - self._began))

    def figures(
        self, name: str, p99: float | None = LAG_P99_MS, most: float | None = LAG_MAX_MS
    ) -> Figures:
        """The 99th percentile, the worst, and what of that may be garbage collection."""
        late = self.late_ms or [0.0]
        return [
            Figure(f"{name}: loop lag p99", percentile(late, 0.99), "ms", most=p99),
            Figure(f"{name}: loop lag max", max(late), "ms", most=most),
            Figure(f"{name}: longest garbage collection", self.collecting_ms, "ms"),
        ]


@asynccontextmanager
async def heartbeat() -> AsyncIterator[Heartbeat]:
    """Beat every 5 ms while the block runs."""
    beats = Heartbeat()

    async def beat() -> None:
        while True:
            asleep = perf_counter()
            await anyio.sleep(BEAT_S)
            beats.late_ms.append(1_000 * (perf_counter() - asleep - BEAT_S))

    gc.callbacks.append(beats.collected)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(beat)
            yield beats
            group.cancel_scope.cancel()
    finally:
        gc.callbacks.remove(beats.collected)


# ── Texts ────────────────────────────────────────────────────────────────────────────


class Words:
    """
    Sentences with the statistics of English: Zipf's law over 30,000 words.

    The most frequent ones are English stop words, the others are made of syllables.
    The same seed gives the same sentences.
    """

    VOCABULARY = 30_000

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)
        common = sorted(STOP_WORDS)
        self._random.shuffle(common)
        rare = dict.fromkeys(self._word() for _ in range(2 * self.VOCABULARY))
        self._words = [*common, *rare][: self.VOCABULARY]
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self._words) + 1)))

    def _word(self) -> str:
        syllables = self._random.randint(2, 4)
        pick = self._random.choice
        return "".join(pick("bdfgklmnprstvz") + pick("aeiou") for _ in range(syllables))

    def sentence(self, least: int = 8, most: int = 25) -> str:
        """So many words, and a full stop."""
        count = self._random.randint(least, most)
        chosen = self._random.choices(self._words, cum_weights=self._weights, k=count)
        return " ".join(chosen).capitalize() + "."

    def commonest(self, count: int) -> list[str]:
        """The words that most sentences hold."""
        return self._words[:count]

    def telling(self, about: str) -> list[str]:
        """The words of the sentence *about* that are no stop words."""
        return [w for w in about.lower().rstrip(".").split() if w not in STOP_WORDS]

    def question(self, about: str) -> str:
        """A question with up to four words of the sentence *about* that are no stop words."""
        telling = self.telling(about)
        chosen = self._random.sample(telling, min(4, len(telling)))
        return f"What did the user say about {' '.join(chosen) or 'it'}?"


def batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """*items* in runs of *size*."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


# ── The machine ──────────────────────────────────────────────────────────────────────


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "synchronous": Config().store.synchronous,
        "packages": {name: version(name) for name in PACKAGES},
    }


def resident_bytes(process: int | str = "self") -> int:
    """Memory that a process has in use now; 0 where the system does not say, or it has ended."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text("ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most that this process had in use."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


def headline(facts: Mapping[str, Any]) -> str:
    """The machine in one line."""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']:.1f}, "
        f"Python {facts['python']}, SQLite {facts['sqlite']} (synchronous {facts['synchronous']})"
    )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# ── Processes ────────────────────────────────────────────────────────────────────────


class Child:
    """A function of a bench that runs in a process of its own; *name* is for those who look."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdout is not None
        self.process = process
        self._told = BufferedByteReceiveStream(process.stdout)

    @classmethod
    async def begin(cls, stack: AsyncExitStack, function: Callable[..., Any], *given: Any) -> Child:
        """Call *function* with what JSON can say; killed when *stack* ends, unless it has ended."""
        command = [sys.executable, inspect.getfile(function), function.__name__, json.dumps(given)]
        child = cls(await anyio.open_process(command, stderr=None))
        stack.push_async_callback(child.end)
        return child

    async def line(self) -> str:
        """The next line that it prints."""
        return (await self._told.receive_until(b"\n", 2**24)).decode()

    async def lines(self) -> AsyncIterator[str]:
        """Every further line, until it ends or is killed."""
        try:
            while True:
                yield await self.line()
        except (anyio.IncompleteRead, anyio.ClosedResourceError, anyio.EndOfStream):
            return

    async def drain(self) -> None:
        """Read what it tells, so that it never waits."""
        async for _ in self.lines():
            pass

    async def say(self, line: str) -> None:
        """Give it a line."""
        assert self.process.stdin is not None
        await self.process.stdin.send(f"{line}\n".encode())

    async def kill(self) -> None:
        """SIGKILL, which a stopped process gets as well."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def end(self) -> None:
        """Kill it, and let go of its pipes."""
        with anyio.CancelScope(shield=True):
            await self.kill()
            await self.process.aclose()

    async def pause(self, seconds: float) -> None:
        """SIGSTOP for so long."""
        self.process.send_signal(signal.SIGSTOP)
        await anyio.sleep(seconds)
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)


def be_child(functions: Mapping[str, Any]) -> None:
    """Call the function that the command line names; the last line of a program with children."""
    anyio.run(functions[sys.argv[1]], *json.loads(sys.argv[2]))


async def apart(function: Callable[..., Any], *given: Any) -> Figures:
    """The figures that *function* prints in a process of its own."""
    async with AsyncExitStack() as stack:
        child = await Child.begin(stack, function, *given)
        figures = json.loads(await child.line())
        await child.process.wait()
    return [Figure(**figure) for figure in figures]


def tell(*told: object) -> None:
    """Print one line of JSON for the parent: one write is never cut by a kill."""
    os.write(1, (json.dumps(told) + "\n").encode())


# ── Sessions ─────────────────────────────────────────────────────────────────────────

WORDS = Words()
TEXTS = [(WORDS.sentence(8, 16), WORDS.sentence(4, 10)) for _ in range(2_000)]


async def append_all(sessions: Sequence[Session], each: int) -> list[float]:
    """Append to all at once, *each* steps one after another; how long every one took, in ms."""
    took: list[float] = []

    async def fill(number: int, session: Session) -> None:
        for step in range(each):
            with timing(took):
                await session.append(*TEXTS[(number * each + step) % len(TEXTS)])

    await at_once(fill, range(len(sessions)), sessions)
    return took


async def warm_up(folder: Path) -> None:
    """Have everything loaded that is loaded at its first use."""
    async with Mnemo(folder / "warm.db", embedder="static") as memory:
        repo = await memory.open_repo("warm")
        session = await repo.start_session("Warm up")
        await append_all([session], 3)
        await session.close_and_commit()
        await repo.recall("What is there?")


class SlowModel(ScriptedChatModel):
    """A model that takes 100 ms, and may fail in a share of its calls, for a while or for good."""

    faults = 0.0

    @classmethod
    def failing(cls, share: float) -> SlowModel:
        """One that answers everything else."""
        model = cls.answering()
        model.faults = share
        return model

    async def complete(self, request: ChatRequest) -> ChatReply:
        await anyio.sleep(0.1)
        if random.random() < self.faults:
            raise ModelUnavailable("the model is down", retryable=random.random() < 0.5)
        return await super().complete(request)


@contextmanager
def store_on(engine: str, folder: Path) -> Iterator[str]:
    """A place for a store: a file, a schema on a server started for it, or where *engine* says."""
    if engine == "postgres":
        from postgres_server import new_schema, running_server

        with running_server() as server, new_schema(server.url) as url:
            yield url
    else:
        yield str(folder / "store.db") if engine == "sqlite" else engine


# ── What is kept of an index ─────────────────────────────────────────────────────────

_KEPT = """
SELECT coalesce(sum(CASE part WHEN 0 THEN documents END), 0), coalesce(sum(length(bytes)), 0)
FROM segments
"""


def rows_of(store: str, statement: str) -> list[Any]:
    """The rows of a statement that both engines read; *store* is a file, or a schema's URL."""
    if not store.startswith("postgresql:"):
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as file:
            return file.execute(statement).fetchall()
    from postgres_server import execute

    server, _, schema = store.partition("&schema=")
    return execute(server, f"SET search_path TO {schema}; {statement}")


def kept(store: str) -> tuple[int, int]:
    """How many documents the segments of a store hold, and the bytes of their rows and files."""
    documents, size = map(int, rows_of(store, _KEPT)[0])
    return documents, size + sum(file.stat().st_size for file in index_files(store))


def index_files(store: str) -> list[Path]:
    """The files of the index of a store in a file."""
    return [file for file in Path(f"{store}.index").rglob("*") if file.is_file()]

"""What every phase of the bench is made of: figures, the loop's heartbeat, texts, the machine."""

from __future__ import annotations

import gc
import os
import platform
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio

from mnemo.runtime.text import STOP_WORDS

BEAT_S = 0.005
LAG_P99_MS, LAG_MAX_MS = 5.0, 25.0
PACKAGES = ("mnemo-sessions", "anyio", "numpy", "pydantic", "tokenizers", "transitions")


@dataclass(frozen=True)
class Sizes:
    """How much each phase does; the targets hold for ``FULL``."""

    appends_alone: int
    appends: int
    in_flight: tuple[int, ...]
    episodes: int
    sessions: int
    steps_each: int
    open_sessions: int
    imports: int
    nodes: tuple[int, ...]
    queries: int
    sustained: int
    threads: int


FULL = Sizes(
    *(4_000, 16_000, (1, 8, 64, 256), 7, 64, 300, 10_000, 5, (1_000, 10_000, 100_000)),
    *(200, 32_000, 10_000),
)
QUICK = Sizes(1_000, 6_000, (1, 8, 64, 256), 3, 64, 30, 2_000, 3, (1_000, 10_000), 60, 8_000, 400)
TINY = Sizes(20, 128, (1, 64), 1, 4, 5, 50, 1, (200,), 5, 256, 8)
MILLION = replace(FULL, nodes=(1_000_000,))
SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY, "million": MILLION}


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


def percentile(values: Sequence[float], share: float) -> float:
    """The value that *share* of *values* do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


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

    def figures(self, name: str) -> list[Figure]:
        """The 99th percentile, the worst, and what of that may be garbage collection."""
        late = self.late_ms or [0.0]
        return [
            Figure(f"{name}: loop lag p99", percentile(late, 0.99), "ms", most=LAG_P99_MS),
            Figure(f"{name}: loop lag max", max(late), "ms", most=LAG_MAX_MS),
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

    def question(self, about: str) -> str:
        """A question with up to four words of the sentence *about* that are no stop words."""
        telling = [w for w in about.lower().rstrip(".").split() if w not in STOP_WORDS]
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
        "packages": {name: version(name) for name in PACKAGES},
    }


def resident_bytes() -> int:
    """Memory that this process has in use now; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return 0
    return int(status.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

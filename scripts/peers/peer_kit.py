"""
What the driver of every peer shares: the phases of a run, and the embedder.

It needs Python, NumPy and wordllama alone, because it runs in the environment of the peer.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

BEAT_S = 0.005
IN_FLIGHT = 64
DIMENSIONS = 256
TOP = 10
WEIGHTS, TOKENIZER = (
    "weights/l2_supercat_256.safetensors",
    "tokenizers/l2_supercat_tokenizer_config.json",
)


class Peer:
    """One memory that is open; a driver says how it adds, counts and searches."""

    durability = "unknown"
    """What an acknowledged add survives, e.g. ``synchronous = FULL``."""

    async def add(self, id: str, text: str) -> None:
        """Store *text*; returns when the memory says that it is stored."""
        raise NotImplementedError

    async def count(self) -> int:
        """How many texts are stored."""
        raise NotImplementedError

    async def search(self, query: str) -> list[str]:
        """The ids of the first ten that are found, best first."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Return when everything added can be found; most can at once."""

    async def add_turns(self, turns: Sequence[dict[str, str]]) -> None:
        """Store the turns of a dialogue, each as one text with its time and speaker."""
        for turn in turns:
            await self.add(turn["id"], turn["document"])
        await self.settle()


Open = Callable[[Path], AbstractAsyncContextManager[Peer]]
"""Opens a memory with nothing in it, in a folder of its own."""


@cache
def _model() -> tuple[Any, Any]:
    # wordllama's own loader asks the network for a file that its package does not have.
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    spec = find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("install wordllama: it is the embedder of every peer")
    folder = Path(spec.submodule_search_locations[0])
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return load_file(str(folder / WEIGHTS))["embedding.weight"].astype("float32"), tokenizer


def embed(texts: Sequence[str]) -> list[list[float]]:
    """The unit vectors of *texts*, as mnemo's default embedder makes them."""
    table, tokenizer = _model()
    rows = []
    for text in texts:
        row = table[tokenizer.encode(text, add_special_tokens=False).ids].sum(axis=0)
        rows.append((row / (float((row @ row) ** 0.5) or 1.0)).tolist())
    return rows


# ── Phases ───────────────────────────────────────────────────────────────────────────


async def _adds(
    peer: Peer, texts: Sequence[str], callers: int, told: dict[str, Any], late: list[float]
) -> int:
    """
    Add *texts* from so many callers.

    Returns:
        How many the peer acknowledged; the first error is told.
    """
    waiting = iter(enumerate(texts))
    errors: list[Exception] = []

    async def caller() -> None:
        for number, text in waiting:
            try:
                await peer.add(f"{callers}-{number}", text)
            except Exception as error:
                errors.append(error)

    beat = asyncio.create_task(_beat(late))
    await asyncio.gather(*(caller() for _ in range(callers)))
    beat.cancel()
    if errors:
        told.setdefault("first error", " ".join(repr(errors[0]).split()))
    return len(texts) - len(errors)


async def _beat(late: list[float]) -> None:
    while True:
        asleep = perf_counter()
        await asyncio.sleep(BEAT_S)
        late.append(1_000 * (perf_counter() - asleep - BEAT_S))


async def _timed_adds(peer: Peer, texts: Sequence[str], callers: int, told: dict[str, Any]) -> None:
    late: list[float] = []
    await peer.add("first", "The first add opens files and loads the embedder.")
    await peer.settle()
    began = perf_counter()
    added = await _adds(peer, texts, callers, told, late)
    told[f"adds/s, {callers}"] = added / (perf_counter() - began)
    await peer.settle()
    if callers > 1:
        told["findable/s"] = added / (perf_counter() - began)
        told["lag p99 ms"] = percentile(late, 0.99)


async def _lost(peer: Peer, texts: Sequence[str], told: dict[str, Any]) -> int:
    """How many of 64 adds at once are not stored afterwards, those with an error included."""
    await peer.add("first", "The first add opens files and loads the embedder.")
    before = await peer.count()
    await _adds(peer, texts[:IN_FLIGHT], IN_FLIGHT, told, [])
    await peer.settle()
    return IN_FLIGHT - (await peer.count() - before)


async def _searches(peer: Peer, size: int, work: dict[str, Any], told: dict[str, Any]) -> None:
    for number, text in enumerate(work["texts"][:size]):
        await peer.add(f"{number}", text)
    await peer.settle()
    asked = work["questions"][str(size)]
    for query in asked[:3]:
        await peer.search(query)
    times = []
    for query in asked:
        began = perf_counter()
        await peer.search(query)
        times.append(1_000 * (perf_counter() - began))
    told[f"search p50 ms, {size}"] = percentile(times, 0.5)
    told[f"search p95 ms, {size}"] = percentile(times, 0.95)
    told["resident MB"] = _resident_mb()


async def _rankings(peer: Peer, dialogue: dict[str, Any]) -> list[list[str]]:
    await peer.add_turns(dialogue["turns"])
    return [await peer.search(question) for question in dialogue["questions"]]


async def _run(open_peer: Open, work: dict[str, Any], searches: bool) -> dict[str, Any]:
    told: dict[str, Any] = {}

    async def with_new(phase: Callable[[Peer], Awaitable[Any]]) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            async with open_peer(Path(folder)) as peer:
                told["durability"] = peer.durability
                return await phase(peer)

    alone, together = work["adds"]
    for callers, count in ((1, alone), (IN_FLIGHT, together)):
        texts = work["texts"][:count]
        await with_new(lambda peer, t=texts, n=callers: _timed_adds(peer, t, n, told))
    told["lost of 64"] = await with_new(lambda peer: _lost(peer, work["texts"], told))
    told["resident MB"] = _resident_mb()
    if searches:
        for size in work["sizes"]:
            await with_new(lambda peer, size=size: _searches(peer, size, work, told))
        told["rankings"] = [
            await with_new(lambda peer, d=dialogue: _rankings(peer, d))
            for dialogue in work["dialogues"]
        ]
    return told


def _import_s(module: str, times: int) -> float:
    """Median seconds of importing *module* in a fresh process, less those of an empty one."""

    def run(code: str) -> float:
        began = perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return perf_counter() - began

    run(f"import {module}")
    bare = median(run("pass") for _ in range(times))
    return median(run(f"import {module}") for _ in range(times)) - bare


def percentile(values: Sequence[float], share: float) -> float:
    """The value that *share* of *values* do not exceed (nearest rank); 0 of none."""
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _resident_mb() -> float:
    status = Path("/proc/self/statm")
    if not status.exists():
        return 0.0
    return int(status.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def drive(open_peer: Open, *, module: str, packages: Sequence[str], searches: bool = True) -> None:
    """
    Run every phase on the work of the file that the command line names, and print JSON.

    Args:
        module: What a program imports to use the peer.
        packages: Whose versions are told.
        searches: Whether the peer can search at all.
    """
    work = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    told = asyncio.run(_run(open_peer, work, searches))
    told["import s"] = _import_s(module, work["imports"])
    told["version"] = ", ".join(f"{name} {version(name)}" for name in packages)
    print(json.dumps(told))

"""
One memory, driven through every phase: ``peer_phases.py NAME WORK`` prints a ``bench_peers`` row.

It needs Python, NumPy, wordllama and the peer alone, because it runs in the peer's environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from peers import PEERS, Kind, Peer, is_given

BEAT_S, IN_FLIGHT = 0.005, 64
Told = dict[str, Any]


async def _adds(peer: Peer, texts: Sequence[str], callers: int, told: Told) -> tuple[int, float]:
    """
    Add *texts* from so many callers; the first error is told.

    Returns:
        How many the peer acknowledged, and the event loop's lag p99 in ms.
    """
    waiting, errors, late = iter(enumerate(texts)), list[Exception](), list[float]()

    async def caller() -> None:
        for number, text in waiting:
            try:
                await peer.add(f"{callers}-{number}", text)
            except Exception as error:
                errors.append(error)

    async def beat() -> None:
        while True:
            asleep = perf_counter()
            await asyncio.sleep(BEAT_S)
            late.append(1_000 * (perf_counter() - asleep - BEAT_S))

    beating = asyncio.create_task(beat())
    await asyncio.gather(*(caller() for _ in range(callers)))
    beating.cancel()
    if errors:
        told.setdefault("first error", " ".join(repr(errors[0]).split()))
    return len(texts) - len(errors), percentile(late, 0.99)


async def _timed_adds(peer: Peer, texts: Sequence[str], callers: int, told: Told) -> None:
    await peer.settle()
    began = perf_counter()
    added, lag = await _adds(peer, texts, callers, told)
    told[f"adds/s, {callers}"] = added / (perf_counter() - began)
    await peer.settle()
    if callers > 1:
        told["findable/s"] = added / (perf_counter() - began)
        told["lag p99 ms"] = lag


async def _lost(peer: Peer, texts: Sequence[str], told: Told) -> None:
    """How many of 64 adds at once are not stored afterwards, those with an error included."""
    before = len(await peer.texts())
    await _adds(peer, texts[:IN_FLIGHT], IN_FLIGHT, told)
    await peer.settle()
    told["lost of 64"] = IN_FLIGHT - (len(await peer.texts()) - before)


async def _searches(peer: Peer, size: int, work: Told, told: Told) -> None:
    for number, text in enumerate(work["texts"][:size]):
        await peer.add(f"{number}", text)
    await peer.settle()
    asked, times = work["questions"][str(size)], list[float]()
    for query in [*asked[:3], *asked]:
        began = perf_counter()
        await peer.search(query)
        times.append(1_000 * (perf_counter() - began))
    told[f"search p50 ms, {size}"] = percentile(times[len(asked[:3]) :], 0.5)
    told[f"search p95 ms, {size}"] = percentile(times[len(asked[:3]) :], 0.95)


async def _ranked(peer: Peer, dialogue: dict[str, Any], told: Told) -> None:
    for turn in dialogue["turns"] if peer.add_turns is None else ():
        await peer.add(turn["id"], turn["document"])
    if peer.add_turns is not None:
        await peer.add_turns(dialogue["turns"])
    await peer.settle()
    ranked = [await peer.search(question) for question in dialogue["questions"]]
    told["rankings"].append(ranked)


async def driven(kind: Kind, work: dict[str, Any]) -> Told:
    """Every phase, each on a new memory."""
    told: Told = {}

    async def with_new(phase: Callable[..., Awaitable[None]], *given: Any, first: int = 0) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            async with kind.opened(Path(folder), True) as peer:
                told["durability"] = peer.durability
                if first:
                    await peer.add("first", "The first add opens files and loads the embedder.")
                await phase(peer, *given, told)
                return is_given(peer.search)

    for callers, count in zip((1, IN_FLIGHT), work["adds"], strict=True):
        await with_new(_timed_adds, work["texts"][:count], callers, first=1)
    searches = await with_new(_lost, work["texts"], first=1)
    told["resident MB"] = _resident_mb()
    if searches:
        for size in work["sizes"]:
            await with_new(_searches, size, work)
        told["resident MB"] = _resident_mb()
        told["rankings"] = []
        for dialogue in work["dialogues"]:
            await with_new(_ranked, dialogue)
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


def main(name: str, work: str) -> None:
    """Print the row."""
    kind, wanted = PEERS[name], json.loads(Path(work).read_text("utf-8"))
    told = asyncio.run(driven(kind, wanted))
    told["import s"] = _import_s(kind.module, wanted["imports"])
    told["version"] = ", ".join(f"{name} {version(name)}" for name in kind.packages)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])

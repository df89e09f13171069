"""
Measure maintenance: how long it takes, what it needs, what who writes beside it feels.

A store is filled below the sessions: facts over half as many raw steps, of which nine in
ten are drawn from the words of their step and one in ten says again, in other words,
what an earlier one says; half of them are 60 days old and were never asked for. Each
operation then runs twice on a copy of its own, in a process of its own: alone, and
beside a session that appends without pause.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import anyio
from bench import headline, line
from bench_kit import Figure, Words, batches, heartbeat, machine, percentile
from bench_reading import AT_ONCE, REPO, Filler

from mnemo import Edge, EdgeKind, MaintenanceReport, Mnemo, Node, Semantic, Session, Tag
from mnemo.config import StoreConfig
from mnemo.models.wordllama import WordLlamaEmbedder
from mnemo.protocols import Embedder
from mnemo.repository import Repository
from mnemo.runtime import settle_collector
from mnemo.runtime.clock import SystemClock, new_id
from mnemo.stores import SqliteStore
from mnemo.values.journal import Owner
from mnemo.values.steps import Step, episodic_node

FACTS_PER_TAG = 20
AGAIN = 0.1
"""Share of facts that say an earlier one again."""
OLD = 0.5
"""Share of facts that are old enough to decay."""

Operation = Callable[[Repository], Awaitable[MaintenanceReport]]
OPERATIONS: dict[str, Operation] = {
    "validate": lambda repo: repo.validate(),
    "consolidate": lambda repo: repo.consolidate(),
    "decay": lambda repo: repo.decay(),
}


# ── Filling ──────────────────────────────────────────────────────────────────────────


async def fill(path: Path, facts: int) -> None:
    """Make the store that the operations run on copies of."""
    store = SqliteStore(path, config=StoreConfig(), clock=SystemClock(), lease_s=60)
    owner = await store.open()
    try:
        filler = FactFiller(store, owner, WordLlamaEmbedder())
        words = Words()
        for some in batches([words.sentence() for _ in range(facts // 2)], AT_ONCE):
            await filler.add(some, filler.facts_of(some))
        await store.release(owner)
    finally:
        await store.aclose()


class FactFiller(Filler):
    """Writes steps with their vectors, and two facts that rest on each."""

    def __init__(self, store: SqliteStore, owner: Owner, embedder: Embedder) -> None:
        super().__init__(store, owner, embedder)
        self._random = random.Random(11)
        self._said: list[str] = []
        self._now = datetime.now(UTC)

    def facts_of(self, texts: Sequence[str]) -> list[str]:
        """Two facts for each step, the first ones of all before the second ones."""
        return [self._fact(text) for text in (*texts, *texts)]

    def _fact(self, text: str) -> str:
        if self._said and self._random.random() < AGAIN:
            return f"{self._random.choice(self._said).rstrip('.')}, really."
        words = text.rstrip(".").split()
        fact = " ".join(self._random.sample(words, min(len(words), 7))).capitalize() + "."
        self._said.append(fact)
        return fact

    async def store_facts(self, steps: Sequence[Step], texts: Sequence[str]) -> None:
        """Store the facts, each with its step, twenty to a tag."""
        vectors = await self.embedder.embed(texts)
        facts = [
            Semantic(text, vector=vector, created_at=self._created())
            for text, vector in zip(texts, vectors, strict=True)
        ]
        nodes: list[Node] = [*map(episodic_node, steps), *facts]
        behind = (*steps, *steps)
        edges = [
            Edge(fact.id, step.node_id, EdgeKind.PROVENANCE)
            for fact, step in zip(facts, behind, strict=True)
        ]
        for some in batches(facts, FACTS_PER_TAG):
            tag = Tag(new_id("topic"), created_at=self._now)
            nodes.append(tag)
            edges += [Edge(tag.id, fact.id, EdgeKind.MEMBERSHIP) for fact in some]
        await self.apply(nodes, edges)

    def _created(self) -> datetime:
        days = 60 if self._random.random() < OLD else 2
        return self._now - timedelta(days=days, minutes=self._random.random())


# ── Measuring ────────────────────────────────────────────────────────────────────────


async def measure(name: str, path: Path, *, beside: bool, before_s: float) -> list[Figure]:
    """Run one operation on the store at *path*."""
    async with Mnemo(path, embedder="static") as memory:
        repo = await memory.open_repo(REPO)
        await repo.recall("What is there?", types=["semantic"])
        session = await repo.start_session("Append without pause")
        await session.append("The first.", "")
        settle_collector()
        before_mb = _resident_mb()
        figures: list[Figure] = []
        if beside:
            figures += await _appending(session, f"{name}: appends before", _for(before_s))
        else:
            async with heartbeat() as quiet:
                await anyio.sleep(before_s)
            figures += quiet.figures(f"{name}: quiet before")
        report: list[MaintenanceReport] = []

        async def operate() -> None:
            report.append(await OPERATIONS[name](repo))

        began, used = perf_counter(), process_time()
        if beside:
            figures += await _appending(session, f"{name}: appends beside", operate)
        else:
            async with heartbeat() as beats:
                await operate()
            figures += beats.figures(name)
        took_s, used_s = perf_counter() - began, process_time() - used
    done = report[0]
    counted = {"deleted": done.deleted, "merged": len(done.merged), "penalized": done.penalized}
    return [
        Figure(f"{name}: {done.checked:,} checked, in all", took_s, "s"),
        Figure(f"{name}: processor time of the process", used_s, "s"),
        *(Figure(f"{name}: {what}", count, "") for what, count in counted.items()),
        *figures,
        Figure(f"{name}: resident before", before_mb, "MB"),
        Figure(f"{name}: peak while it ran", max(_peak_mb() - before_mb, 0.0), "MB+"),
    ]


def _for(seconds: float) -> Callable[[], Awaitable[None]]:
    return lambda: anyio.sleep(seconds)


async def _appending(
    session: Session, name: str, work: Callable[[], Awaitable[None]]
) -> list[Figure]:
    """Append, one after another, until *work* is done."""
    took: list[float] = []

    async def append() -> None:
        while True:
            began = perf_counter()
            await session.append("The kettle was warm again, said Ana.", "")
            took.append(1_000 * (perf_counter() - began))

    async with heartbeat() as beats, anyio.create_task_group() as group:
        group.start_soon(append)
        await work()
        group.cancel_scope.cancel()
    return [
        Figure(f"{name}: p50", percentile(took, 0.5), "ms"),
        Figure(f"{name}: p99", percentile(took, 0.99), "ms"),
        Figure(f"{name}: max", max(took), "ms"),
        *beats.figures(name),
    ]


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024 / 1e6


# ── The command ──────────────────────────────────────────────────────────────────────


def measure_apart(name: str, path: Path, *, beside: bool, before_s: float) -> list[dict[str, Any]]:
    """Run one operation on a copy of the store, in a process of its own."""
    copy = path.with_suffix(".copy.db")
    shutil.copy(path, copy)
    command = [sys.executable, __file__, "--inside", name, "--store", str(copy)]
    command += ["--before", str(before_s)]
    if beside:
        command.append("--beside")
    try:
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        for left in copy.parent.glob(f"{copy.name}*"):
            left.unlink()
    figures: list[dict[str, Any]] = json.loads(out)
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for."""
    arguments = _parse(argv)
    if arguments.inside:
        figures = anyio.run(
            lambda: measure(
                arguments.inside,
                arguments.store,
                beside=arguments.beside,
                before_s=arguments.before,
            )
        )
        print(json.dumps([figure.as_json() for figure in figures]))
        return 0
    facts, measured = machine(), {}
    if not arguments.json:
        print(headline(facts))
    for count in arguments.facts or [10_000, 100_000]:
        with tempfile.TemporaryDirectory(prefix="mnemo-bench-", dir=arguments.dir) as folder:
            path = Path(folder) / "facts.db"
            anyio.run(fill, path, count)
            for name in arguments.only or OPERATIONS:
                for beside in (False, True):
                    title = f"{count:,} facts, {name}{' beside appends' if beside else ''}"
                    measured[title] = measure_apart(
                        name, path, beside=beside, before_s=arguments.before
                    )
                    if not arguments.json:
                        print(f"\n{title}", *map(line, measured[title]), sep="\n", flush=True)
    if arguments.json:
        print(json.dumps({"machine": facts, "phases": measured}, indent=2))
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench_maintenance", description=__doc__)
    parser.add_argument("--facts", type=int, action="append", help="default: 10000 and 100000")
    parser.add_argument("--only", choices=OPERATIONS, action="append", help="this operation")
    parser.add_argument(
        "--before",
        type=float,
        default=3.0,
        help="seconds of appends, and of a quiet loop, that the others are compared with",
    )
    parser.add_argument("--json", action="store_true", help="machine and figures")
    parser.add_argument("--dir", type=Path, help="where the stores are made (default: temporary)")
    parser.add_argument("--inside", choices=OPERATIONS, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--beside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

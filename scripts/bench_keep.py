"""
What commits and maintenance do with facts: which are closed, what goes, what it costs.

``closings`` counts, of labelled pairs ``{"older", "newer", "changed": bool}`` in a file, those of
which a commit closes the older statement, without a chat model; the newer is said a week later.
``maintenance`` runs over facts over half as many raw steps: nine in ten are drawn from the words of
their step, one in ten says again, in other words, what an earlier one says; half of them are 60
days old and were never asked for. Each operation runs twice on a copy of its own, in a process of
its own: alone, and beside a session that appends without pause.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import anyio
import bench_kit as kit
from bench_kit import Figure, Figures, Row, Words, apart, be_child, heartbeat, peak_bytes, spread
from bench_read import REPO, file_store, fill

from mnemo import MaintenanceReport, Mnemo, Repository, Session
from mnemo.models.wordllama import WordLlamaEmbedder
from mnemo.runtime import settle_collector
from mnemo.testing import HashingEmbedder

SAID = datetime(2024, 5, 6, 9, tzinfo=UTC)
FACTS_PER_TAG, AGAIN, OLD = 20, 0.1, 0.5
"""Shares of facts that say an earlier one again, and that are old enough to decay."""
OPERATIONS: dict[str, Callable[[Repository], Awaitable[MaintenanceReport]]] = {
    "validate": lambda repo: repo.validate(),
    "consolidate": lambda repo: repo.consolidate(),
    "decay": lambda repo: repo.decay(),
}


async def closings(folder: Path, *, file: str) -> Figures:
    """How many closings of labelled pairs are right, and how many of the changes are found."""
    pairs, right = json.loads(await anyio.Path(file).read_text("utf-8")), list[bool]()
    async with Mnemo("memory:", embedder=HashingEmbedder()) as service:
        for number, pair in enumerate(pairs):
            repo = await service.open_repo(f"pair-{number}")
            await repo.remember(pair["older"], at=SAID, wait=True)
            await repo.remember(pair["newer"], at=SAID + timedelta(days=7), wait=True)
            facts = await repo.memories(types=("semantic",), superseded=True, limit=100)
            if any(fact.valid_to is not None for fact in facts):
                right.append(bool(pair["changed"]))
            await service.close_repo(f"pair-{number}")
    changed = sum(bool(pair["changed"]) for pair in pairs)
    counts = {"pairs": len(pairs), "changed": changed, "closed": len(right), "right": sum(right)}
    shares = {"precision": len(right), "recall": changed}
    return [
        *(Figure(name, count, "") for name, count in counts.items()),
        *(Figure(name, sum(right) / of, "") for name, of in shares.items() if of),
    ]


async def maintenance(folder: Path, *, facts: int, only: str, before_s: float) -> Figures:
    """Every operation, alone and beside appends; *only* is one of them."""
    path, figures = folder / "facts.db", list[Figure]()
    await _fill(path, facts)
    for operation in [only] if only else OPERATIONS:
        for beside in (False, True):
            copy = shutil.copy(path, folder / f"{operation}-{beside}.db")
            name = f"{facts:,} facts, {operation}{' beside appends' if beside else ''}"
            figures += await apart(operate, name, operation, str(copy), beside, before_s)
    return figures


async def _fill(path: Path, count: int) -> None:
    chance, said, now = random.Random(11), list[str](), datetime.now(UTC)

    def fact(text: str) -> str:
        if said and chance.random() < AGAIN:
            return f"{chance.choice(said).rstrip('.')}, really."
        words = text.rstrip(".").split()
        said.append(" ".join(chance.sample(words, min(len(words), 7))).capitalize() + ".")
        return said[-1]

    def created(step: object) -> Mapping[str, Any]:
        days = 60 if chance.random() < OLD else 2
        return {"created_at": now - timedelta(days=days, minutes=chance.random())}

    words = Words()
    await fill(
        file_store(path),
        [words.sentence() for _ in range(count // 2)],
        WordLlamaEmbedder(),
        facts_of=lambda texts: [fact(text) for text in (*texts, *texts)],
        tags=max(1, count // FACTS_PER_TAG),
        fact_fields=created,
    )


async def operate(name: str, operation: str, path: str, beside: bool, before_s: float) -> None:
    """Run one operation on the store at *path*, and print its figures."""
    report: list[MaintenanceReport] = []
    async with Mnemo(path, embedder="static") as memory:
        repo = await memory.open_repo(REPO)
        await repo.recall("What is there?", types=["semantic"])
        session = await repo.start_session("Append without pause")
        await session.append("The first.", "")
        settle_collector()
        before = kit.resident_bytes()
        watched = partial(_appending, session) if beside else _watching
        what = (f"{name}: appends before", f"{name}: appends beside")
        quiet, during = what if beside else (f"{name}: quiet before", name)
        figures = await watched(quiet, lambda: anyio.sleep(before_s))

        async def act() -> None:
            report.append(await OPERATIONS[operation](repo))

        began, used = perf_counter(), process_time()
        figures += await watched(during, act)
        took_s, used_s = perf_counter() - began, process_time() - used
    (done,) = report
    counted = {"deleted": done.deleted, "merged": len(done.merged), "penalized": done.penalized}
    figures = [
        Figure(f"{name}: {done.checked:,} checked, in all", took_s, "s"),
        Figure(f"{name}: processor time of the process", used_s, "s"),
        *(Figure(f"{name}: {what}", number, "") for what, number in counted.items()),
        *figures,
        Figure(f"{name}: resident before", before / 1e6, "MB"),
        Figure(f"{name}: peak while it ran", max((peak_bytes() - before) / 1e6, 0.0), "MB+"),
    ]
    print(json.dumps([vars(figure) for figure in figures]))


async def _watching(name: str, work: Callable[[], Awaitable[None]]) -> Figures:
    async with heartbeat() as beats:
        await work()
    return beats.figures(name)


async def _appending(session: Session, name: str, work: Callable[[], Awaitable[None]]) -> Figures:
    """Append, one after another, until *work* is done."""
    took: list[float] = []

    async def append() -> None:
        while True:
            with kit.timing(took):
                await session.append("The kettle was warm again, said Ana.", "")

    async with heartbeat() as beats, anyio.create_task_group() as group:
        group.start_soon(append)
        await work()
        group.cancel_scope.cancel()
    return [*spread(name, took, "p50", "p99", "max"), *beats.figures(name)]


ROWS = {
    "closings": Row(closings, file=None),
    "maintenance": Row(maintenance, facts=([10_000, 100_000], 60), only="", before_s=(3.0, 0.1)),
}


if __name__ == "__main__":
    be_child(globals())

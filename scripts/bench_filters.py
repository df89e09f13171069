"""
Recall and listings with filters beside those without: what a filter adds to the time.

Every question is asked without a filter and with each, in turn. Compared is the processor time
of the process, which other work on the machine changes least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time
from typing import Any

from bench_kit import Figure, Sizes, Words, batches, percentile
from bench_reading import AT_ONCE, REPO, Filler
from bench_writing import warm_up

from mnemo import Mnemo
from mnemo.config import StoreConfig
from mnemo.models.wordllama import WordLlamaEmbedder
from mnemo.repository import Repository
from mnemo.runtime.clock import SystemClock
from mnemo.stores import SqliteStore
from mnemo.values.steps import StepDraft

MOST_RATIO = 1.2
"""The 95th percentile with a filter over that without one."""
KEPT = 10
PAGE = 100
PROJECTS, THREADS = 10, 50
BEGIN, APART = datetime(2025, 1, 1, 9, tzinfo=UTC), timedelta(minutes=3)


class TaggedFiller(Filler):
    """Writes steps that filters can tell apart: by metadata, speaker and thread."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._count = 0

    def _draft(self, text: str) -> StepDraft:
        number, draft = self._count, super()._draft(text)
        self._count += 1
        metadata = {"project": f"p{number % PROJECTS}", "number": number}
        return replace(
            draft,
            actor="Ana" if number % 2 else "User",
            metadata=metadata,
            thread_id=f"thread {number % THREADS}",
            message_id=f"message {number}",
        )


def filters(steps: int) -> Mapping[str, Mapping[str, Any]]:
    """Name → filter of a store of *steps* steps; what it keeps is in the name."""
    middle = BEGIN + (steps // 2) * APART
    return {
        "where, a tenth": {"where": {"project": "p3"}},
        "since, half": {"since": middle},
        "until, half": {"until": middle},
        "actor, half": {"actor": "Ana"},
        "types, half": {"types": ("semantic",)},
        "thread_id, a fiftieth": {"thread_id": "thread 7"},
        f"where, {KEPT} steps": {"where": {"number": {"lt": KEPT}}},
    }


async def recall_filtered(sizes: Sizes, folder: Path) -> list[Figure]:
    """Processor time of recall with each filter over that without one."""
    count, words, path = sizes.nodes[-1], Words(), folder / "filters.db"
    texts = [words.sentence() for _ in range(count // 2)]
    await _fill(path, texts, words)
    await warm_up(folder)
    questions = [words.question(text) for text in texts[:: max(1, len(texts) // sizes.queries)]]
    asked = {"": {}, **filters(len(texts))}
    took: dict[str, list[float]] = {name: [] for name in asked}
    async with Mnemo(path, embedder="static") as memory:
        repo = await memory.open_repo(REPO)
        await repo.recall(questions[0])
        for question in questions[: sizes.queries]:
            for name, conditions in asked.items():
                took[name].append(await _timed(repo, question, conditions))
        listed = {name: await _listed(repo, conditions) for name, conditions in asked.items()}
    plain = percentile(took[""], 0.95)
    found = f"recall, {count:,} nodes"
    return [
        Figure(f"{found}: p95 of processor time without a filter", plain, "ms"),
        *(
            Figure(
                f"{found}, {name}: p95 over that",
                percentile(some, 0.95) / plain,
                "×",
                most=MOST_RATIO,
            )
            for name, some in took.items()
            if name
        ),
        *(
            Figure(f"a page of {PAGE} of {count // 2:,} facts, {name or 'no filter'}", spent, "ms")
            for name, spent in listed.items()
        ),
    ]


async def _timed(repo: Repository, question: str, conditions: Mapping[str, Any]) -> float:
    began = process_time()
    await repo.recall(question, **conditions)
    return 1_000 * (process_time() - began)


async def _listed(repo: Repository, conditions: Mapping[str, Any]) -> float:
    """Processor time of the first page of facts, in ms."""
    began = process_time()
    await repo.memories(limit=PAGE, **{"types": ("semantic",), **conditions})
    return 1_000 * (process_time() - began)


async def _fill(path: Path, texts: Sequence[str], words: Words) -> None:
    store = SqliteStore(path, config=StoreConfig(), clock=SystemClock(), lease_s=60)
    owner = await store.open()
    try:
        filler = TaggedFiller(store, owner, WordLlamaEmbedder())
        for some in batches(texts, AT_ONCE):
            await filler.add(some, [words.sentence(6, 14) for _ in some])
        await store.release(owner)
    finally:
        await store.aclose()

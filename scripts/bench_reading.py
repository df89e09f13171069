"""
The read side under load: recall over stores of several sizes.

Half of a store's nodes are raw steps, half are facts, each drawn from one step and
carrying one of 500 tags. Texts follow Zipf's law; every vector is the default
embedder's. The store is filled below the sessions, in bulk.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio
from bench_kit import Figure, Sizes, Words, batches, heartbeat, percentile, resident_bytes
from bench_writing import warm_up

from mnemo import Edge, EdgeKind, Mnemo, Node, Semantic, SessionRecord, SessionState, Tag
from mnemo.config import StoreConfig
from mnemo.models.wordllama import WordLlamaEmbedder
from mnemo.protocols import Embedder, GraphWrite
from mnemo.repository import Repository
from mnemo.runtime.clock import SystemClock, new_id
from mnemo.stores import SqliteStore
from mnemo.values.journal import Owner
from mnemo.values.steps import Step, StepDraft, episodic_node, evidence_text

RECALL_P95_MS = {10_000: 10.0, 100_000: 30.0, 1_000_000: 150.0}
FIRST_S = {100_000: 2.0, 1_000_000: 30.0}
COMMITTED_STEPS = 12
REPO = "bench"
TAGS = 500
STEPS_PER_SESSION = 200
AT_ONCE = 5_000


async def recall_at(count: int, sizes: Sizes, folder: Path) -> list[Figure]:
    """Recall over *count* nodes, one question after another, embedding included."""
    words = Words()
    texts = [words.sentence() for _ in range(count // 2)]
    path = folder / f"recall-{count}.db"
    store = SqliteStore(path, config=StoreConfig(), clock=SystemClock(), lease_s=60)
    facts = [words.sentence(6, 14) for _ in texts]
    await fill(store, texts, facts, WordLlamaEmbedder())
    del facts
    questions = [words.question(text) for text in texts[:: max(1, len(texts) // sizes.queries)]]
    await warm_up(folder)
    del texts
    # What filling left on the heap is no part of a service: collections would walk it.
    gc.collect()
    gc.freeze()
    before = resident_bytes()
    async with Mnemo(path, embedder="static") as memory:
        repo = await memory.open_repo(REPO)
        async with heartbeat() as reading:
            began = perf_counter()
            await repo.recall(questions[0])
            first_s = perf_counter() - began
        async with heartbeat() as beats:
            took = await _ask(repo, questions[: sizes.queries])
        resident = resident_bytes() - before
        committed = await _commit(repo, words, sizes.episodes)
    name = f"recall, {count:,} nodes"
    return [
        Figure(f"{name}: p50", percentile(took, 0.5), "ms"),
        Figure(f"{name}: p95", percentile(took, 0.95), "ms", most=RECALL_P95_MS.get(count)),
        Figure(f"{name}: max", max(took), "ms"),
        *beats.figures(name),
        Figure(f"{name}: the first, reading the index", first_s, "s", most=FIRST_S.get(count)),
        *reading.figures(f"{name}, reading the index"),
        Figure(f"{name}: resident, per node", max(resident, 0) / count, "B"),
        Figure(f"commit of {COMMITTED_STEPS} steps, {count:,} nodes: p50", median(committed), "ms"),
        Figure(f"commit of {COMMITTED_STEPS} steps, {count:,} nodes: max", max(committed), "ms"),
    ]


async def _commit(repo: Repository, words: Words, times: int) -> list[float]:
    """Milliseconds of committing an extracted episode, with what is looked up for that."""
    took = []
    for _ in range(times + 1):
        session = await repo.start_session(words.sentence(4, 8))
        for _ in range(COMMITTED_STEPS):
            await session.append(words.sentence(), words.sentence())
        await session.close()
        await session.wait_for(SessionState.READY)
        began = perf_counter()
        await session.commit()
        took.append(1_000 * (perf_counter() - began))
        await session.aclose()
    return took[1:]


async def _ask(repo: Repository, questions: Sequence[str]) -> list[float]:
    took = []
    for question in questions:
        began = perf_counter()
        found = await repo.recall(question)
        took.append(1_000 * (perf_counter() - began))
        assert found.candidates, question
    return took


# ── Filling ──────────────────────────────────────────────────────────────────────────


async def fill(store: Any, texts: Sequence[str], facts: Sequence[str], embedder: Embedder) -> None:
    """Store a step for each of *texts* and a fact for each of *facts*, and close *store*."""
    owner = await store.open()
    try:
        filler = Filler(store, owner, embedder)
        pairs = zip(batches(texts, AT_ONCE), batches(facts, AT_ONCE), strict=True)
        for some_texts, some_facts in pairs:
            await filler.add(some_texts, some_facts)
        await store.release(owner)
    finally:
        await store.aclose()


class Filler:
    """Writes steps, their vectors and the facts drawn from them."""

    def __init__(self, store: Any, owner: Owner, embedder: Embedder) -> None:
        self._store = store
        self._owner = owner
        self.embedder = embedder
        self._tags = [Tag(f"Topic {number}") for number in range(TAGS)]
        self._at = datetime(2025, 1, 1, 9, tzinfo=UTC)
        self._facts = 0

    async def add(self, texts: Sequence[str], facts: Sequence[str]) -> None:
        """Store one step for each of *texts*, and one fact for each of *facts*."""
        steps: list[Step] = []
        for some in batches(texts, STEPS_PER_SESSION):
            steps += await self._append(some)
        said = [evidence_text(step, "observation", agent_name="Agent") or "" for step in steps]
        rows = await self.embedder.embed(said)
        keys = [f"{step.node_id}/observation" for step in steps]
        feed = self._store.feed(REPO)
        await feed.save_vectors(self.embedder.space, dict(zip(keys, rows, strict=True)))
        await self.store_facts(steps, facts)

    async def _append(self, texts: Sequence[str]) -> list[Step]:
        record = SessionRecord(
            id=new_id("session"),
            repo_id=REPO,
            goal="Take everything down",
            state=SessionState.COLLECTING,
            steps=0,
            updated_at=self._at,
            episode_id=new_id("episode"),
        )
        sessions, done = self._store.sessions(REPO), anyio.Event()
        await sessions.create(record, goal_at=self._at, owner=self._owner)
        results: list[Any] = []

        def arrived(result: Any) -> None:
            results.append(result)
            if len(results) == len(texts):
                done.set()

        for text in texts:
            sessions.append(
                record.id, str(record.episode_id), self._draft(text), self._owner, arrived
            )
        await done.wait()
        return results

    def _draft(self, text: str) -> StepDraft:
        self._at += timedelta(minutes=3)
        return StepDraft(
            observation=text, action="", at=self._at, actor="User", node_id=new_id("episodic")
        )

    async def store_facts(self, steps: Sequence[Step], texts: Sequence[str]) -> None:
        """Store one fact for each of *texts*, drawn from the step at its place."""
        vectors = await self.embedder.embed([*texts, *(tag.label for tag in self._tags)])
        facts = [
            Semantic(text, valid_from=step.at, vector=vector)
            for text, step, vector in zip(texts, steps, vectors, strict=False)
        ]
        edges = []
        for fact, step in zip(facts, steps, strict=True):
            self._facts += 1
            tag = self._tags[self._facts % TAGS]
            edges.append(Edge(fact.id, step.node_id, EdgeKind.PROVENANCE))
            edges.append(Edge(tag.id, fact.id, EdgeKind.MEMBERSHIP))
        nodes: list[Node] = [*map(episodic_node, steps), *facts]
        if not await self._store.graph(REPO).revision():
            nodes += self._tags
        await self.apply(nodes, edges)

    async def apply(self, nodes: Sequence[Node], edges: Sequence[Edge]) -> None:
        """Write *nodes* and *edges* in one transaction."""
        graph = self._store.graph(REPO)
        write = GraphWrite(
            changeset_id=new_id("changeset"),
            expected_revision=await graph.revision(),
            nodes=tuple(nodes),
            edges=tuple(edges),
            space=self.embedder.space,
        )
        await graph.apply(write, self._owner)

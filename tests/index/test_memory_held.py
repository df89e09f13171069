"""What all indexes hold in memory is bounded: what was used longest ago goes, and comes again."""

import gc
import tracemalloc
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from world import a_step

from mnemo.index.follower import RepositoryIndex
from mnemo.protocols import EmbeddingSpace, FeedChanges, FeedCursor
from mnemo.runtime.budget import MemoryBudget
from mnemo.testing import HashingEmbedder
from mnemo.values.graph import Semantic, Vector

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


class Source:
    """A feed of *said* messages and *facts*, made anew whenever they are read, as by a store."""

    def __init__(
        self,
        said: int,
        facts: int = 0,
        *,
        embedded: bool = True,
        tagged: bool = False,
        words: int = 25,
    ) -> None:
        self.said, self.facts, self.embedded, self.tagged = said, facts, embedded, tagged
        self.words = words
        self.vectors = dict[str, Vector]()

    async def changes(self, after: FeedCursor, *, limit: int = 5_000) -> FeedChanges:
        """At most *limit* of each."""
        await anyio.lowlevel.checkpoint()
        random = np.random.default_rng(after.step)
        numbers = range(after.step, min(self.said, after.step + limit))
        facts = range(after.revision, min(self.facts, after.revision + limit))
        steps = [
            a_step(
                n,
                _words(random, self.words),
                at=NOON + timedelta(minutes=n),
                node_id=f"episodic-0123456789abcdef-{n}",
                session_id=f"s{n // 50}",
                episode_id=f"e{n // 50}",
                ordinal=n + 1,
                metadata={"topic": f"t{n}"} if self.tagged else None,
            )
            for n in numbers
        ]
        nodes = [
            Semantic(
                _words(random, self.words), id=f"semantic-0123456789abcdef-{n}", valid_from=NOON
            )
            for n in facts
        ]
        keys = [*(f"{step.node_id}/observation" for step in steps), *(node.id for node in nodes)]
        rows = random.random((len(keys), 384), np.float32)
        made = dict(zip(keys, rows, strict=True))
        vectors = made if self.embedded else {key: self.vectors[key] for key in self.vectors}
        end = after.vector + len(made) if self.embedded else len(self.vectors)
        return FeedChanges(
            cursor=FeedCursor(numbers.stop, facts.stop, 0, end),
            revision=self.facts,
            steps=tuple(steps),
            nodes=tuple(nodes),
            details={
                node.id: {"tags": ("bees",), "steps": (f"episodic-0123456789abcdef-{n}",)}
                for n, node in zip(facts, nodes, strict=True)
            },
            vectors=vectors,
            more=numbers.stop < self.said or facts.stop < self.facts,
        )

    async def without_vectors(self, keys: Collection[str]) -> set[str]:
        """Those that have none."""
        return {*keys} - self.vectors.keys()

    async def save_vectors(
        self, space: EmbeddingSpace, vectors: Mapping[str, Vector], *, as_of: int
    ) -> None:
        """Keep them."""
        self.vectors.update(vectors)


def _words(random: np.random.Generator, number: int) -> str:
    return " ".join(f"w{rank % 50_000}x" for rank in random.zipf(1.3, number).tolist())


def index_of(feed: Any, budget: MemoryBudget | None = None) -> RepositoryIndex:
    return RepositoryIndex(
        feed=feed,
        embedder=HashingEmbedder(384),
        agent_name="Agent",
        budget=budget or MemoryBudget(),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        Source(1_000),
        Source(1_000, embedded=False),
        Source(1_000, 1_000),
        Source(1_000, tagged=True),
        pytest.param(Source(20_000, 2_000, words=6), marks=pytest.mark.long),
    ],
)
async def test_bytes_are_counted_within_a_quarter(source):
    """Against what the interpreter says it has for them, whatever they are made of."""
    await index_of(Source(1_000)).corpus()  # words and terms that are remembered for all
    index = index_of(source)
    tracemalloc.start()
    try:
        view = await index.corpus()
        assert view.steps.pieces.count
        del view
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        said = index.statistics().bytes
        index.let_go()
        gc.collect()
        held -= tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.75 < said / held < 1.25


async def test_indexes_share_a_budget():
    """The one used longest ago is let go when another is read, and reads again when asked."""
    one = await index_bytes()
    budget = MemoryBudget(2.5 * one)
    indexes = [index_of(Source(50), budget) for _ in range(4)]
    for index in indexes:
        await index.corpus()
    assert [index.is_held for index in indexes] == [False, False, True, True]
    assert budget.bytes == sum(index.statistics().bytes for index in indexes)
    await indexes[2].catch_up()
    await indexes[0].corpus()
    assert [index.is_held for index in indexes] == [True, False, True, False]
    assert (await indexes[3].corpus()).steps.count == 50
    assert budget.bytes <= 2.5 * one


async def index_bytes() -> int:
    """What one of the small indexes holds."""
    index = index_of(Source(50))
    await index.corpus()
    return index.statistics().bytes


async def test_what_is_read_to_embed_it_was_used_by_nobody():
    """Appends alone keep nothing in memory that a recall needs."""
    budget = MemoryBudget(2.5 * await index_bytes())
    recalled, appended, other = (index_of(Source(50), budget) for _ in range(3))
    await recalled.corpus()
    await appended.embed_waiting()
    await other.corpus()
    assert [index.is_held for index in (recalled, appended, other)] == [True, False, True]


async def test_one_that_is_larger_than_the_budget_answers():
    """It stays until another one is read; a closed one stays no longer."""
    budget = MemoryBudget(1)
    large, other = index_of(Source(500), budget), index_of(Source(50), budget)
    assert (await large.corpus()).steps.count == 500
    assert (await large.corpus()).steps.count == 500
    assert large.is_held
    assert (await other.corpus()).steps.count == 50
    assert (large.is_held, other.is_held) == (False, True)
    other.close()
    assert (other.is_held, budget.bytes) == (False, 0)


async def test_a_recall_keeps_what_is_let_go_meanwhile():
    """Its view stays as it was while others take the room, and later ones are the same."""
    budget = MemoryBudget(1)
    index, other = index_of(Source(50), budget), index_of(Source(50), budget)
    view = await index.corpus()
    await other.corpus()
    assert not index.is_held
    assert view.steps.pieces.count == 1
    again = await index.corpus()
    assert again.steps.ids == view.steps.ids
    assert np.array_equal(again.steps.vectors, view.steps.vectors)
    assert np.array_equal(again.steps.centre, view.steps.centre)


async def test_what_waits_for_vectors_gets_them_however_small_the_budget():
    """Many owe at once, let go of each other again and again, and all are paid in the end."""
    budget = MemoryBudget(1)
    sources = [Source(30, embedded=False) for _ in range(6)]
    indexes = [index_of(source, budget) for source in sources]
    async with anyio.create_task_group() as group:
        for index in indexes:
            group.start_soon(index.corpus)
    assert sum(index.is_held for index in indexes) < 6
    assert all(index.statistics().waiting == 30 for index in indexes)
    async with anyio.create_task_group() as group:
        for index in indexes:
            group.start_soon(index.run)
    assert [len(source.vectors) for source in sources] == [30] * 6
    assert not any(index.statistics().waiting for index in indexes)
    await indexes[0].catch_up()
    assert budget.bytes == sum(index.statistics().bytes for index in indexes)

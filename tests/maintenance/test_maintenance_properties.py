"""Whatever a graph looks like: maintenance keeps what it must, and both stores agree."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from helpers import examples
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from mnemo import Edge, EdgeKind, Episodic, MetadataDelta, Mnemo, Node, Semantic, Tag
from mnemo.english.similarity import same_claim_guard
from mnemo.maintenance import near_pairs as near
from mnemo.protocols import GraphWrite
from mnemo.testing import HashingEmbedder, ManualClock
from mnemo.values.changeset import Upkeep

pytestmark = pytest.mark.slow

EMBEDDER = HashingEmbedder()
NOW = ManualClock().now()
TEXTS = ("Ana likes tea", "Ana likes tea a lot", "Ana likes 2 teas", "Bo likes tea", "Cy runs")
SLOW = settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))


@dataclass
class Drawn:
    """A graph, and what use has made of it."""

    nodes: list[Node] = field(default_factory=list)
    edges: set[Edge] = field(default_factory=set)
    rewards: dict[str, MetadataDelta] = field(default_factory=dict)
    accesses: dict[str, int] = field(default_factory=dict)
    penalties: dict[str, float] = field(default_factory=dict)

    @property
    def facts(self) -> list[Semantic]:
        return [node for node in self.nodes if isinstance(node, Semantic)]


def vector(angle: float, corner: int) -> Any:
    """A unit vector at an angle to one of a few corners."""
    row = np.zeros(EMBEDDER.space.dimensions, np.float32)
    row[0], row[1 + corner] = np.cos(angle), np.sin(angle)
    return row


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    """Up to a dozen facts near each other, with tags, steps, siblings and use."""
    drawn = Drawn()
    few = st.integers(0, 3)
    for number in range(draw(st.integers(0, 12))):
        angle = draw(st.sampled_from([0.0, 0.2, 0.4, 0.5, 0.9]))
        closed = draw(st.integers(0, 5)) == 0
        drawn.nodes.append(
            Semantic(
                draw(st.sampled_from(TEXTS)),
                draw(st.sampled_from([0.5, 0.9])),
                id=f"f{number:02}",
                vector=None if draw(st.integers(0, 9)) == 0 else vector(angle, draw(few)),
                created_at=NOW - timedelta(days=draw(st.sampled_from([0, 30, 60]))),
                valid_from=draw(st.sampled_from([None, NOW - timedelta(days=90)])),
                valid_to=NOW if closed else None,
                superseded_by=f"f{draw(few):02}" if closed else None,
            )
        )
    drawn.nodes += [Tag(f"tag {n}", id=f"t{n}", created_at=NOW) for n in range(4)]
    drawn.nodes += [
        Episodic(
            draw(st.sampled_from(TEXTS)),
            id=f"s{n}",
            session_id="s",
            episode_id=draw(st.sampled_from(["e1", "e2", None])),
            created_at=NOW - timedelta(days=400),
        )
        for n in range(3)
    ]
    for fact in drawn.facts:
        for tag in draw(st.sets(few)):
            drawn.edges.add(Edge(f"t{tag}", fact.id, EdgeKind.MEMBERSHIP))
        for step in draw(st.sets(st.integers(0, 2))):
            drawn.edges.add(Edge(fact.id, f"s{step}", EdgeKind.PROVENANCE))
        sibling = draw(st.sampled_from(drawn.facts)).id
        if sibling != fact.id:
            drawn.edges.add(Edge(fact.id, sibling, EdgeKind.SIBLING))
        drawn.rewards[fact.id] = MetadataDelta(
            cumulative_reward=draw(st.sampled_from([0.0, 0.5, 1.0])),
            reward_count=draw(st.integers(0, 2)),
            support_count=draw(few),
        )
        drawn.accesses[fact.id] = draw(st.sampled_from([0, 0, 1, 50]))
        drawn.penalties[fact.id] = draw(st.sampled_from([0.0, 0.0, 0.1, 0.3]))
    return drawn


@dataclass(frozen=True)
class State:
    """All that a repository holds."""

    revision: int
    nodes: dict[str, Node]
    edges: frozenset[Edge]
    metadata: dict[str, Any]

    def of(self, type: str) -> dict[str, Node]:
        return {id: node for id, node in self.nodes.items() if node.type == type}

    def total(self, name: str) -> float:
        facts = self.of("semantic")
        return sum(getattr(entry, name) for id, entry in self.metadata.items() if id in facts)


async def state_of(repo: Any) -> State:
    graph = repo._parts.graph
    nodes = {node.id: node for node in await graph.nodes()}
    edges = frozenset(await graph.edges(list(nodes)))
    return State(await graph.revision(), nodes, edges, await graph.metadata(list(nodes)))


async def stored(repo: Any, drawn: Drawn) -> None:
    """Put *drawn* past the commit lane, which would unite facts by itself."""
    graph, owner = repo._parts.graph, repo._parts.owner
    write = GraphWrite(
        changeset_id="drawn",
        expected_revision=0,
        nodes=tuple(drawn.nodes),
        edges=tuple(sorted(drawn.edges, key=str)),
        metadata=drawn.rewards,
        space=EMBEDDER.space,
    )
    await graph.apply(write, owner)
    used = {id: count for id, count in drawn.accesses.items() if count}
    await graph.touch(used, NOW - timedelta(hours=1))
    penalties = Upkeep(penalties=drawn.penalties)
    await graph.apply(GraphWrite(changeset_id="p", expected_revision=1, upkeep=penalties), owner)


def in_both_stores(drawn: Drawn, story: Callable[[Any], Awaitable[Any]]) -> list[Any]:
    """What *story* gives for a repository that holds *drawn*, in memory and on disk."""

    async def told() -> list[Any]:
        answers = []
        with TemporaryDirectory() as folder:
            for store in ("memory:", Path(folder) / "m.db"):
                clock = ManualClock(NOW)
                async with Mnemo(store, embedder=HashingEmbedder(), clock=clock) as memory:
                    repo = await memory.open_repo("r")
                    # Else it would embed what has no vector, at a moment of its own.
                    repo._tasks.cancel()
                    await stored(repo, drawn)
                    answers.append(await story(repo))
                    assert (await memory.check()).problems == ()
        return answers

    return asyncio.run(told())


def alike(report: Any) -> Any:
    """What two stores' reports have in common: all but the time and the order of orphans."""
    return (
        report.operation,
        report.checked,
        report.deleted,
        sorted(report.deleted_ids),
        dict(report.merged),
        (report.penalized, report.orphaned, report.grounded),
        report.revision,
    )


@SLOW
@given(drawn=graphs())
def test_consolidation_keeps_everything_but_the_doubles(drawn):
    """Edges move along, sums are kept, raw steps stay, a second run finds nothing."""

    async def story(repo: Any) -> Any:
        before = await state_of(repo)
        report = await repo.consolidate()
        after = await state_of(repo)
        again = await repo.consolidate()
        return before, alike(report), after, alike(again), await state_of(repo)

    (memory, disk) = in_both_stores(drawn, story)
    assert memory == disk
    before, report, after, again, finally_ = memory
    merged = report[4]
    event(f"{len(merged)} merged")
    assert finally_ == after
    assert (again[2], again[4], again[6]) == (0, {}, after.revision)
    assert not merged.keys() & set(merged.values())
    orphans = set(report[3]) - merged.keys()
    moved = (
        Edge(merged.get(e.source, e.source), merged.get(e.target, e.target), e.kind)
        for e in before.edges
    )
    assert after.edges == {edge for edge in moved if edge.source != edge.target}
    assert after.nodes.keys() == before.nodes.keys() - merged.keys() - orphans
    assert {before.nodes[id].type for id in orphans} <= {"tag"}
    for name in ("access_count", "cumulative_reward", "reward_count"):
        assert after.total(name) == pytest.approx(before.total(name))
    for id, step in before.of("episodic").items():
        assert (after.nodes[id], after.metadata[id]) == (step, before.metadata[id])
    for fact in drawn.facts:
        if fact.id in after.nodes and fact.id not in merged.values():
            assert after.metadata[fact.id] == before.metadata[fact.id]


@SLOW
@given(drawn=graphs())
def test_no_pair_is_left_and_nothing_else_was_merged(drawn):
    """By comparing all with all: every loss was a pair, and no pair is left."""

    async def story(repo: Any) -> Any:
        return dict((await repo.consolidate()).merged)

    merged = in_both_stores(drawn, story)[0]
    holding = {
        fact.id: fact
        for fact in drawn.facts
        if fact.vector is not None and fact.valid_to is None and fact.superseded_by is None
    }

    def is_pair(a: Semantic, b: Semantic) -> bool:
        cosine = float(a.vector.astype(float) @ b.vector.astype(float))
        return cosine > 0.85 + 1e-6 and same_claim_guard(a.proposition, b.proposition)

    left = [fact for id, fact in holding.items() if id not in merged]
    assert not any(is_pair(a, b) for a in left for b in left if a.id < b.id)
    assert merged.keys() <= holding.keys()
    reached = {id: {id} for id in holding}
    for _ in holding:
        for a in holding.values():
            for b in holding.values():
                if a.id != b.id and is_pair(a, b):
                    reached[a.id] |= reached[b.id]
    assert all(survivor in reached[loser] for loser, survivor in merged.items())


@SLOW
@given(drawn=graphs(), threshold=st.sampled_from([0.05, 0.15, 0.3]))
def test_decay_takes_what_is_named_and_nothing_raw(drawn, threshold):
    """Both stores delete the same; what stays keeps its metadata and its other edges."""

    async def story(repo: Any) -> Any:
        before = await state_of(repo)
        report = await repo.decay(threshold=threshold, types=("semantic", "tag"))
        after = await state_of(repo)
        again = await repo.decay(threshold=threshold, types=("semantic", "tag"))
        return before, alike(report), after, again.deleted

    (memory, disk) = in_both_stores(drawn, story)
    assert memory == disk
    before, report, after, again = memory
    gone = set(report[3])
    event(f"{len(gone)} gone")
    assert again == 0
    assert after.nodes == {id: node for id, node in before.nodes.items() if id not in gone}
    assert after.metadata == {id: m for id, m in before.metadata.items() if id not in gone}
    assert after.edges == {e for e in before.edges if not {e.source, e.target} & gone}
    assert before.of("episodic") == after.of("episodic")


@SLOW
@given(drawn=graphs())
def test_validation_sets_penalties_and_nothing_else(drawn):
    """The counts add up, a second run changes nothing, both stores say the same."""

    async def story(repo: Any) -> Any:
        before = await state_of(repo)
        report = await repo.validate()
        after = await state_of(repo)
        again = await repo.validate()
        return before, alike(report), after, alike(again), await state_of(repo)

    (memory, disk) = in_both_stores(drawn, story)
    assert memory == disk
    before, report, after, again, finally_ = memory
    penalized, orphaned, grounded = report[5]
    assert report[1] == penalized + orphaned + grounded == len(drawn.facts)
    assert (again[5], finally_) == (report[5], after)
    assert (after.nodes, after.edges) == (before.nodes, before.edges)
    penalties = Counter(after.metadata[fact.id].penalty for fact in drawn.facts)
    assert penalties == Counter({0.0: grounded, 0.1: penalized, 0.3: orphaned}) - Counter({9: 0})
    assert after.total("cumulative_reward") == before.total("cumulative_reward")


@pytest.mark.parametrize("few", [0, 1_000_000])
@pytest.mark.parametrize("count", [40, 90])
def test_a_crowd_of_one_claim_ends_in_one_fact(monkeypatch, count, few):
    """More near facts than are looked at at once: one run finds them all the same."""
    monkeypatch.setattr(near, "NEIGHBOURS", 3)
    monkeypatch.setattr(near, "_FEW", few)
    random = np.random.default_rng(count)
    drawn = Drawn()
    for number in range(count):
        text = f"Guest{number % 2} likes tea" + " a lot" * (number % 3)
        row = vector(0.0, 0) + 0.01 * random.normal(size=EMBEDDER.space.dimensions)
        row = (row / np.linalg.norm(row)).astype(np.float32)
        drawn.nodes.append(Semantic(text, id=f"f{number:02}", vector=row, created_at=NOW))

    async def story(repo: Any) -> Any:
        first, again = await repo.consolidate(), await repo.consolidate()
        return first.deleted, again.deleted, len(await repo.get_nodes(["semantic"]))

    assert in_both_stores(drawn, story) == [(count - 2, 0, 2)] * 2

"""What holds of a graph whatever was committed, in whatever order."""

from datetime import UTC, datetime, timedelta
from itertools import groupby, permutations
from typing import Any

import anyio
import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from world import store_at

from mnemo.commit.lane import CommitLane
from mnemo.config import CommitConfig
from mnemo.graph.graph import StoredGraph
from mnemo.index.follower import RepositoryIndex
from mnemo.testing import HashingEmbedder, ManualClock
from mnemo.values.changeset import Changeset
from mnemo.values.graph import NODE_TYPES, Edge, EdgeKind, Episodic, Semantic, Tag
from mnemo.values.lookup import label_key

START = datetime(2024, 1, 1, tzinfo=UTC)


async def graph_after(changesets: list[Changeset]) -> tuple[StoredGraph, list[tuple[str, ...]]]:
    """The graph that *changesets* leave, one after another, and their receipts."""
    clock = ManualClock()
    store = store_at(None, clock)
    owner = await store.open()
    graph: Any = store.graph("r")
    embedder = HashingEmbedder(64)
    lane = CommitLane(
        repo_id="r",
        publish=lambda event: None,
        graph=graph,
        index=RepositoryIndex(feed=store.feed("r"), embedder=embedder, agent_name="Agent"),
        embedder=embedder,
        owner=owner,
        clock=clock,
        config=CommitConfig(),
    )
    receipts = [(await lane.commit(changeset)).node_ids for changeset in changesets]
    return graph, receipts


def said(text: str, day: int, *labels: str) -> Changeset:
    at = START + timedelta(days=day)
    step = Episodic("seen", at=at, session_id="s", episode_id=f"e{day}")
    fact = Semantic(text, valid_from=at)
    tags = tuple(Tag(label) for label in labels)
    edges = [Edge(fact.id, step.id, EdgeKind.PROVENANCE)]
    edges += [Edge(tag.id, fact.id, EdgeKind.MEMBERSHIP) for tag in tags]
    return Changeset(nodes=(step, fact, *tags), edges=tuple(edges))


VALUES = st.lists(st.sampled_from(["2000", "3000", "4000"]), min_size=1, max_size=6)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(values=VALUES, order=st.randoms(use_true_random=False))
def test_what_was_said_last_holds_whatever_is_committed_last(values, order):
    """Of one slot exactly one value is open, that of the latest statement."""
    changesets = [said(f"Bo's budget is {value} euros", day) for day, value in enumerate(values)]
    order.shuffle(changesets)

    async def check() -> None:
        graph, _ = await graph_after(changesets)
        facts = [
            node for node in await graph.nodes(types=("semantic",)) if isinstance(node, Semantic)
        ]
        holding = [fact.proposition for fact in facts if fact.valid_to is None]
        assert holding == [f"Bo's budget is {values[-1]} euros"]
        ids = {fact.id for fact in facts}
        for fact in facts:
            assert (fact.valid_to is None) == (fact.superseded_by is None)
            assert fact.superseded_by is None or fact.superseded_by in ids - {fact.id}
            assert fact.valid_from is not None
            assert fact.valid_to is None or fact.valid_to >= fact.valid_from

    anyio.run(check)


Run = tuple[str, tuple[str, ...], datetime, datetime | None, str | None]
"""A fact: words, ids of its steps, since when, until when, words of what ended it."""


def stated(*statements: tuple[str, int, int]) -> Changeset:
    """Facts of equal words united, each with its steps: (words, day, number of the step)."""
    steps = {
        number: Episodic(
            "seen",
            id=f"episodic-{number}",
            at=START + timedelta(days=day),
            session_id="s",
            episode_id=f"e{number}",
        )
        for _, day, number in statements
    }
    facts, edges = [], []
    for words in dict.fromkeys(words for words, _, _ in statements):
        mine = [steps[number] for text, _, number in statements if text == words]
        facts.append(Semantic(words, valid_from=min(step.at for step in mine if step.at)))
        edges += [Edge(facts[-1].id, step.id, EdgeKind.PROVENANCE) for step in mine]
    return Changeset(nodes=(*steps.values(), *facts), edges=tuple(edges))


def runs_of(statements: list[tuple[str, int, int]]) -> list[Run]:
    """What is to be stored: runs of one value in the order of time and step id."""
    ordered = sorted(statements, key=lambda one: (one[1], f"episodic-{one[2]}"))
    runs = [list(run) for _, run in groupby(ordered, key=lambda one: one[0])]
    ends = [(START + timedelta(days=run[0][1]), run[0][0]) for run in runs[1:]]
    return sorted(
        (
            run[0][0],
            tuple(sorted(f"episodic-{number}" for _, _, number in run)),
            START + timedelta(days=run[0][1]),
            *end,
        )
        for run, end in zip(runs, [*ends, (None, None)], strict=True)
    )


async def stored_runs(graph: StoredGraph) -> list[Run]:
    facts = {n.id: n for n in await graph.nodes(types=("semantic",)) if isinstance(n, Semantic)}
    edges = await graph.edges(list(facts), kind=EdgeKind.PROVENANCE)
    found = []
    for fact in facts.values():
        steps = sorted(edge.target for edge in edges if edge.source == fact.id)
        closer = facts[fact.superseded_by].proposition if fact.superseded_by else None
        assert fact.valid_from is not None
        found.append((fact.proposition, tuple(steps), fact.valid_from, fact.valid_to, closer))
    return sorted(found)


STATED = st.lists(
    st.tuples(st.sampled_from(["Rome", "Oslo", "Bern"]), st.integers(0, 5)), min_size=1, max_size=7
)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(stated_values=STATED, order=st.randoms(use_true_random=False), size=st.integers(1, 3))
def test_the_order_of_commits_changes_nothing(stated_values, order, size):
    """Values of one slot, said on several days: whatever the order, the same runs hold."""
    statements = [
        (f"Ada lives in {value}", day, number) for number, (value, day) in enumerate(stated_values)
    ]
    shuffled = list(statements)
    order.shuffle(shuffled)
    batches = [shuffled[i : i + size] for i in range(0, len(shuffled), size)]

    async def check() -> None:
        graph, _ = await graph_after([stated(*batch) for batch in batches])
        assert await stored_runs(graph) == runs_of(statements)
        counts = await graph.metadata([n.id for n in await graph.nodes(types=("semantic",))])
        supported = sum(entry.support_count for entry in counts.values())
        assert size > 1 or supported == len(statements)

    anyio.run(check)


@pytest.mark.parametrize("order", list(permutations(range(4))))
async def test_a_value_that_came_and_went_has_its_times_in_any_order(order):
    """Rome, Oslo, Rome, Rome: two spells in Rome, the second said twice, with one between."""
    statements = [
        (f"Ada lives in {value}", day, day)
        for day, value in enumerate(["Rome", "Oslo", "Rome", "Rome"])
    ]
    graph, _ = await graph_after([stated(statements[number]) for number in order])
    assert await stored_runs(graph) == runs_of(statements)


async def test_the_parts_of_a_new_fact_join_the_runs_they_belong_to():
    """One changeset says Rome before and after Oslo: each statement goes to its own spell."""
    rome, oslo = "Ada lives in Rome", "Ada lives in Oslo"
    statements = [(rome, 0, 0), (rome, 1, 1), (oslo, 2, 2), (rome, 3, 3), (rome, 4, 4)]
    batches = ([statements[0]], [statements[2]], [statements[4]], [statements[1], statements[3]])
    graph, _ = await graph_after([stated(*batch) for batch in batches])
    assert await stored_runs(graph) == runs_of(statements)


async def test_a_fact_that_is_cut_in_two_keeps_its_tags_on_both():
    """A late contradiction between two statements: both spells have the tag."""
    changesets = [said("Bo lives in Rome", 0, "Rome"), said("Bo lives in Rome", 2)]
    graph, _ = await graph_after([*changesets, said("Bo lives in Oslo", 1)])
    facts = await graph.nodes(types=("semantic",))
    rome = {fact.id for fact in facts if fact.text == "Bo lives in Rome"}
    edges = await graph.edges(list(rome), kind=EdgeKind.MEMBERSHIP)
    assert len(rome) == 2
    assert {edge.target for edge in edges} == rome


WORDS = st.sampled_from(["Ana likes tea", "Ana likes tea.", "Bo ran 2 races", "Bo ran 3 races"])
LABELS = st.lists(st.sampled_from(["Tea", " tea", "TEA", "cats", "Cats "]), max_size=3)
STATEMENTS = st.lists(st.tuples(WORDS, st.integers(0, 3), LABELS), min_size=1, max_size=6)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(batches=st.lists(STATEMENTS, min_size=1, max_size=3))
def test_a_graph_has_no_loose_ends_and_nothing_twice(
    batches,
):
    """Edges join what exists, labels and facts are there once, receipts name what is stored."""
    changesets = [_merged([said(text, day, *labels) for text, day, labels in b]) for b in batches]

    async def check() -> None:
        graph, receipts = await graph_after(changesets)
        nodes = {node.id: node for node in await graph.nodes(types=tuple(NODE_TYPES))}
        edges = await graph.edges(list(nodes))
        assert all(e.source in nodes and e.target in nodes and e.source != e.target for e in edges)
        assert len(edges) == len(set(edges))
        keys = [label_key(node.label) for node in nodes.values() if isinstance(node, Tag)]
        facts = [n.proposition.rstrip(".") for n in nodes.values() if isinstance(n, Semantic)]
        assert len(keys) == len(set(keys))
        assert len(facts) == len(set(facts))
        assert {id for receipt in receipts for id in receipt} == set(nodes)
        assert set(await graph.metadata(list(nodes))) == set(nodes)

    anyio.run(check)


def _merged(changesets: list[Changeset]) -> Changeset:
    merged = Changeset()
    for changeset in changesets:
        merged = merged.merge(changeset)
    return merged

"""The value function: metadata nudges, it does not decide."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mnemo.config import Config, ScoringConfig
from mnemo.recall.pipeline import AccessLog
from mnemo.recall.score import nudged_relevance, nudges, parameters_of
from mnemo.values.graph import MetadataDelta, NodeMetadata, Semantic

NOON = datetime(2024, 3, 1, 12, 0, tzinfo=UTC)

SCORING = ScoringConfig()
ROW = SCORING.semantic
FACT = Semantic("Ana keeps bees.", created_at=NOON)


def metadata(**values: Any) -> NodeMetadata:
    return NodeMetadata(**{"created_at": NOON, **values})


def value(relevance: float, known: NodeMetadata | None) -> float:
    return nudged_relevance(SCORING, relevance, FACT, known, ROW, NOON)


def test_a_reward_lifts_and_its_lack_is_neutral():
    """Mean rewards of 0.9, none and 0.1 rank in this order."""
    good = value(0.5, metadata(cumulative_reward=1.8, reward_count=2))
    none = value(0.5, metadata())
    bad = value(0.5, metadata(cumulative_reward=0.1, reward_count=1))
    assert good > none > bad
    assert nudges(FACT, metadata(), ROW, NOON).reward == 1.0


def test_nothing_overtakes_twice_the_relevance():
    """The worst metadata at twice the relevance beats the best metadata."""
    worst = metadata(created_at=NOON - timedelta(days=4_000), cumulative_reward=0.0, reward_count=9)
    best = metadata(
        last_accessed_at=NOON, access_count=10**9, cumulative_reward=9.0, reward_count=9
    )
    assert value(0.8, worst) > value(0.4, best)


def test_the_factors_have_their_ranges():
    """Recency stays above its floor, frequency between its floor and 1."""
    old = metadata(created_at=NOON - timedelta(days=4_000))
    assert nudges(FACT, old, ROW, NOON, 0.05).recency == 0.05
    assert nudges(FACT, metadata(), ROW, NOON, 0.05).recency == 1.0
    none, one, many = (
        nudges(FACT, metadata(access_count=n), ROW, NOON).frequency for n in (0, 1, 10**6)
    )
    assert none == 0.3 < one < many < 1


def test_a_penalty_takes_its_share():
    """A penalty of a quarter leaves three quarters of the value."""
    assert value(0.5, metadata(penalty=0.25)) == pytest.approx(0.75 * value(0.5, metadata()))


def test_single_settings_leave_the_rest_of_their_row():
    """Overriding one number of a type keeps the others of that type."""
    scoring = ScoringConfig(procedural={"top_k": 3}).model_copy()
    changed = SCORING.overlaid(scoring)
    assert parameters_of(changed, "procedural").top_k == 3
    assert parameters_of(changed, "procedural").threshold == SCORING.procedural.threshold


async def test_the_more_used_of_equal_facts_comes_first(make_world):
    """Ten accesses decide between equals, and nothing with the weights at 0."""
    twins = Semantic("Ana keeps bees."), Semantic("Bo keeps bees.")
    for weights, differ in ({}, True), (dict.fromkeys(WEIGHTS, 0.0), False):
        world = await make_world(config=Config(scoring=weights))
        await world.commit(*twins)
        await world.graph.touch({twins[1].id: 10}, NOON)
        found = (await world.recall.recall("who keeps bees?", mode="semantic")).candidates
        assert found[0].relevance == found[1].relevance
        assert (found[0].score > found[1].score) == differ
        assert not differ or found[0].node.id == twins[1].id


WEIGHTS = ("recency_weight", "frequency_weight", "reward_weight")


async def test_another_value_function_decides_alone(make_world):
    """``config.scoring.value_function`` is asked for every candidate."""

    def shortest(relevance: float, node: Any, known: Any, row: Any, now: Any) -> float:
        return 1 / len(node.text)

    world = await make_world(config=Config(scoring={"value_function": shortest}))
    await world.commit(Semantic("Ana keeps bees and hens."), Semantic("Bo sold bees."))
    found = (await world.recall.recall("who keeps bees?")).candidates
    assert [c.node.text for c in found] == ["Bo sold bees.", "Ana keeps bees and hens."]


async def test_steps_that_are_forgotten_meanwhile_end_no_recall(make_world):
    """What is read of them goes while the question is answered, in another thread."""

    def forgetting(relevance: float, node: Any, known: Any, row: Any, now: Any) -> float:
        world.index._corpus.remove(said)
        return relevance

    world = await make_world(config=Config(scoring={"value_function": forgetting}))
    said = [(await world.say(f"{name} keeps bees.")).node_id for name in ("Ana", "Bo")]
    assert len((await world.recall.recall("who keeps bees?")).candidates) == 2


async def test_accesses_are_counted_behind_the_answer(world):
    """What was noted is in the counts after a flush, merged, and nothing else is."""
    seen, other = Semantic("Ana keeps bees."), Semantic("Bo sells boats.")
    await world.commit(seen, other)
    spawned: list[Any] = []
    log = AccessLog(world.graph, world.clock, spawned.append)
    log.note([seen.id])
    log.note([seen.id, "unknown"])
    await log.flush()
    assert len(spawned) == 1
    counts = await world.graph.metadata([seen.id, other.id])
    assert (counts[seen.id].access_count, counts[other.id].access_count) == (2, 0)
    assert counts[seen.id].last_accessed_at == NOON
    await log.flush()
    assert await world.graph.metadata([seen.id, other.id]) == counts


async def test_rewards_known_to_the_store_count(world):
    """The stored mean reward moves a candidate among equals."""
    good, bad = Semantic("Ana keeps bees."), Semantic("Bo keeps bees.")
    deltas = {
        good.id: MetadataDelta(cumulative_reward=0.9, reward_count=1),
        bad.id: MetadataDelta(cumulative_reward=0.1, reward_count=1),
    }
    await world.commit(bad, good, metadata=deltas)
    found = (await world.recall.recall("who keeps bees?", mode="semantic")).candidates
    assert [c.node.id for c in found] == [good.id, bad.id]

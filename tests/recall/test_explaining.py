"""Why a candidate came: signals, hops and the factors of its value."""

from __future__ import annotations

import math

import anyio
import pytest

from mnemo import Changeset, Edge, Mnemo, Semantic, Tag
from mnemo.testing import HashingEmbedder

HARBOUR = "How deep is the harbour of Porto?"


@pytest.fixture
async def repo():
    """Thirty steps, enough for deviations, and two facts under one tag."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo()
        session = await repo.start_session("talk")
        for i in range(30):
            await session.append(f"remark number {i} about the weather", "", actor="Ana")
        await session.append("My boat is moored in Porto.", "", actor="Ana")
        await session.append("It needs paint.", "", actor="Bo")
        (asked,) = await HashingEmbedder().embed([HARBOUR])
        tag = Tag("quay", vector=asked)
        facts = (
            Semantic("The harbour of Porto is deep."),
            Semantic("Ferries leave at noon.", vector=-asked),
        )
        edges = tuple(Edge(tag.id, fact.id, "membership") for fact in facts)
        await repo.apply(Changeset(nodes=(tag, *facts), edges=edges))
        with anyio.fail_after(5):
            while (await repo.statistics()).index.waiting:  # noqa: ASYNC110 - made in background
                await anyio.sleep(0.005)
        yield repo


async def test_what_the_signals_add_makes_the_score(repo):
    """The parts of a step, put together, are what its rank rests on."""
    found = await repo.recall("Where is the boat of Ana moored?", k=40, explain=True)
    steps = [c for c in found.candidates if c.node.type == "episodic" and c.phase == "initial"]
    assert len(steps) > 2
    sums = [sum(step.why.signals.values()) for step in steps]
    scale = sums[0] / steps[0].relevance
    for step, total in zip(steps, sums, strict=True):
        assert math.isclose(step.relevance, max(total, 0) / scale, abs_tol=1e-3)
    assert {"words", "joined", "priors"} <= set(steps[0].why.signals)


async def test_the_factors_of_the_value_are_told(repo):
    """Relevance and the told factors, with their exponents, give the score."""
    found = await repo.recall("Where is the boat of Ana moored?", explain=True)
    best = found.candidates[0]
    why = best.why
    value = best.relevance * why.recency**0.1 * why.frequency**0.1 * why.reward**0.2
    assert math.isclose(best.score, value * (1 - why.penalty) * why.mode_weight, rel_tol=1e-3)


async def test_a_hop_names_what_it_went_over(repo):
    """A fact behind a tag says which tag; what the question found itself says nothing."""
    found = await repo.recall(HARBOUR, k=40, explain=True)
    by_text = {c.node.text: c for c in found.candidates}
    ferry = by_text["Ferries leave at noon."]
    assert (ferry.phase, ferry.why.via) == ("multi_hop", "quay")
    assert by_text["The harbour of Porto is deep."].why.via is None


async def test_nothing_is_explained_unless_asked_for_and_nothing_changes(repo):
    """The same candidates in the same order, with or without."""
    plain = await repo.recall("Where is the boat?", k=40)
    told = await repo.recall("Where is the boat?", k=40, explain=True)
    assert all(c.why is None for c in plain.candidates)
    assert [c.node.id for c in plain.candidates] == [c.node.id for c in told.candidates]
    assert all(c.why is not None for c in told.candidates)


async def test_an_explained_recall_says_what_each_line_of_its_text_costs(repo):
    """The tokens stand in the order of the candidates and are those of the printed lines."""
    plain = await repo.recall("Where is the boat?", k=40)
    assert plain.trace.tokens == ()
    found = await repo.recall("Where is the boat?", k=3, explain=True)
    first, *_ = found.as_text().splitlines()
    assert len(found.trace.tokens) == 3
    assert found.trace.tokens[0] == found.count(first)


async def test_a_store_of_few_steps_explains_as_well():
    """Without deviations the parts are those of the relevance itself."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo()
        session = await repo.start_session("talk")
        await session.append("The boat is moored in Porto.", "", actor="Ana")
        (best,) = (await repo.recall("boat in Porto", explain=True)).candidates
        assert math.isclose(sum(best.why.signals.values()), best.relevance, abs_tol=1e-4)

"""Why a candidate came: signals, hops and the factors of its value."""

import math

import anyio
import pytest
from helpers import repository

from mnemo import Changeset, Config, Edge, Semantic, Tag
from mnemo.recall.score import SCALE
from mnemo.testing import HashingEmbedder

HARBOUR = "How deep is the harbour of Porto?"


@pytest.fixture
async def repo():
    """Thirty steps, and more facts than are looked at first, two of them under one tag."""
    config = Config(recall={"cut": 0}, scoring={"semantic": {"top_k": 1}})
    async with repository(config=config) as repo:
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
        others = (Semantic(f"Bo paints hull {n}.", vector=-asked) for n in range(12))
        await repo.apply(Changeset(nodes=(*others, tag, *facts), edges=edges))
        with anyio.fail_after(120):
            while (await repo.statistics()).index.waiting:  # noqa: ASYNC110 - made in background
                await anyio.sleep(0.005)
        yield repo


async def test_what_the_signals_add_makes_the_score(repo):
    """The parts of a candidate, put together and cut to 0 to 1, are its relevance."""
    found = await repo.recall("Where is the boat of Ana moored?", k=40, explain=True)
    direct = [c for c in found.candidates if c.phase == "initial"]
    assert {c.node.type for c in direct} == {"episodic", "semantic"}
    for candidate in direct:
        total = sum(candidate.why.signals.values())
        assert math.isclose(candidate.relevance, min(max(total / SCALE, 0), 1), abs_tol=1e-5)
    assert {"words", "joined", "speaker", "where: place"} <= set(direct[0].why.signals)


async def test_reasons_are_told_in_groups(repo):
    """Every signal stands in one group, and those that add nothing in none."""
    found = await repo.recall("Where is the boat of Ana moored?", k=40, explain=True)
    grouped = found.candidates[0].why.grouped
    assert list(grouped) == ["words", "meaning", "who", "when and where"]
    assert grouped["who"]["speaker"] > 0
    for why in (c.why for c in found.candidates):
        together = {name: v for group in why.grouped.values() for name, v in group.items()}
        assert together == dict(why.signals)


async def test_the_factors_of_the_value_are_told(repo):
    """Relevance and the told factors, with their exponents, give the score."""
    found = await repo.recall("Where is the boat of Ana moored?", explain=True)
    best = found.candidates[0]
    why = best.why
    value = best.relevance * why.frequency**0.01 * why.reward**0.02
    assert math.isclose(best.score, value * (1 - why.penalty) * why.mode_weight, rel_tol=1e-3)


async def test_a_hop_names_what_it_went_over(repo):
    """A fact behind a tag says which tag; what the question found itself says nothing."""
    found = await repo.recall(HARBOUR, types=("semantic",), explain=True)
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


async def test_a_store_of_one_step_explains_as_well():
    """Nothing is measured against other steps."""
    async with repository() as repo:
        session = await repo.start_session("talk")
        await session.append("The boat is moored in Porto.", "", actor="Ana")
        (best,) = (await repo.recall("boat in Porto", explain=True)).candidates
        assert best.why.signals.keys() == {"cosine", "words"}
        assert math.isclose(sum(best.why.signals.values()), SCALE * best.relevance, abs_tol=1e-4)

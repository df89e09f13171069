"""The graph adds candidates and names their sources."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from mnemo.config import Config
from mnemo.protocols import EmbeddingSpace
from mnemo.recall.result import Candidate, RecallResult, RecallTrace, SourceRef
from mnemo.values.graph import Edge, EdgeKind, Procedural, Semantic, Subgoal, Tag


class ChosenVectors:
    """An embedder that knows its texts: each word it was given has a direction of its own."""

    space = EmbeddingSpace("chosen", 4, dense_weight=1.0)

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """Bees and the hive's keepers point one way, everything else another."""
        near = ("bees", "apiary")
        rows = [[1, 0, 0, 0] if any(w in text for w in near) else [0, 1, 0, 0] for text in texts]
        return np.asarray(rows, np.float32)


async def linked_facts(make_world: Any) -> tuple[Any, Semantic, Semantic]:
    """More facts than hop 0 finds, one of which it finds by its words, and another beyond."""
    config = Config(scoring={"semantic": {"top_k": 1}})
    world = await make_world(embedder=ChosenVectors(), config=config)
    tag = Tag("apiary")
    near, far = Semantic("Ana keeps bees."), Semantic("Ana sells honey on Sundays.")
    edges = [Edge(tag.id, fact.id, EdgeKind.MEMBERSHIP) for fact in (near, far)]
    others = [Semantic(f"Bo paints boat {n}.") for n in range(12)]
    await world.commit(tag, near, *others, far, edges=edges)
    await world.embedded()
    return world, near, far


async def test_a_hop_finds_what_the_question_does_not(make_world):
    """A fact under the same tag, without a common word and of cosine 0, comes by a hop."""
    world, near, far = await linked_facts(make_world)
    result = await world.recall.recall("who has bees?")
    assert [(c.node.id, c.phase, c.hop) for c in result.candidates[:2]] == [
        (near.id, "initial", 0),
        (far.id, "multi_hop", 1),
    ]
    assert result.candidates[1].relevance < result.candidates[0].relevance
    assert result.trace.found["multi_hop 1"] == 1


async def test_without_hops_it_is_absent(make_world):
    """``max_hops=0`` is hop 0 alone, with the same scores and order."""
    world, near, far = await linked_facts(make_world)
    none = await world.recall.recall("who has bees?", max_hops=0)
    two = await world.recall.recall("who has bees?", max_hops=2)
    found = [(c.node.id, c.score) for c in none.candidates]
    assert found[0][0] == near.id
    assert far.id not in dict(found)
    first = [(c.node.id, c.score) for c in two.candidates if c.hop == 0]
    assert first == found[: len(first)]


async def test_a_fact_has_the_score_of_its_step(deaf):
    """Of the best of its steps, so that no wording of it takes the place of another memory."""
    far = await deaf.say("She got them from her uncle.", actor="Ana")
    near = await deaf.say("The beehives are hers now, the old beehives.", actor="Ana")
    fact = Semantic("Ana owns what her uncle had.")
    await deaf.commit(fact, steps=[far, near], edges=[_behind(fact, s) for s in (far, near)])
    both = ("semantic", "episodic")
    result = await deaf.recall.recall("beehives", types=both)
    relevance = {c.node.id: c.relevance for c in result.candidates}
    assert relevance[fact.id] == relevance[near.node_id] > relevance[far.node_id]
    united = await deaf.recall.recall("beehives")
    assert [c.node.id for c in united.candidates] == [near.node_id, far.node_id]


async def test_a_fact_and_the_step_that_it_restates_take_one_place(deaf):
    """The step stands for both; the fact, which finds it in other words, is among its sources."""
    poor = await deaf.say("She got them from her uncle.", actor="Ana")
    fact = Semantic("Ana inherited the beehives.")
    rich = await deaf.say("the beehives stand in the orchard, the beehives hum", actor="Ana")
    bland = Semantic("The beehives are somewhere in that large and quiet orchard of theirs.")
    edges = [_behind(fact, poor), _behind(bland, rich)]
    await deaf.commit(fact, bland, steps=[poor, rich], edges=edges)
    found = (await deaf.recall.recall("beehives hum", mode="episodic")).candidates
    texts = {c.node.id: [source.text for source in c.sources] for c in found}
    assert texts == {
        rich.node_id: [rich.observation, bland.proposition],
        poor.node_id: [poor.observation, fact.proposition],
    }
    only = await deaf.recall.recall("beehives hum", mode="episodic", k=2)
    assert {c.node.id for c in only.candidates} == texts.keys()


async def test_a_fact_in_the_words_of_its_step_is_no_second_source(deaf):
    """Facts that say something else are listed once each; the step stands for its own words."""
    said = "The beehives hum in the orchard."
    step = await deaf.say(said)
    facts = [Semantic(said), Semantic("The hives of that orchard, quiet as it is, make a noise.")]
    edges = [_behind(fact, step) for fact in facts]
    await deaf.commit(*facts, steps=[step], edges=edges)
    result = await deaf.recall.recall("beehives hum orchard", mode="episodic", reason=True)
    (found,) = [c for c in result.candidates if c.node.id == step.node_id]
    assert [source.text for source in found.sources] == [said, facts[1].proposition]
    assert [source.text for source in result.answer.sources] == [said]


async def test_every_candidate_names_its_sources_and_none_twice(make_world):
    """Facts, instructions, subgoals, steps and lone nodes all say where they come from."""
    world = await make_world(config=Config(recall={"cut": 0}))
    steps = [
        await world.say("The bees need sugar in winter", "Wrote it down", actor="Ana"),
        await world.say("I fed the bees sugar", actor="Ana"),
    ]
    fact = Semantic("Ana feeds the bees sugar in winter.")
    how = Procedural("feed sugar to the bees", condition="winter comes")
    goal, lone = Subgoal("care for the bees"), Semantic("Bees dislike rain.")
    edges = [_behind(fact, step) for step in steps] + [_behind(how, steps[1])]
    edges += [Edge(goal.id, step.node_id, EdgeKind.HIERARCHICAL) for step in steps]
    await world.commit(fact, how, goal, lone, steps=steps, edges=edges)
    types = ("semantic", "procedural", "episodic", "subgoal")
    result = await world.recall.recall("bees sugar winter", types=types)
    sources = {c.node.id: [s.step_index for s in c.sources] for c in result.candidates}
    assert sources[fact.id] in ([0, 1], [1, 0])
    assert sources[how.id] == [1]
    assert set(sources[goal.id]) == {0, 1}
    assert sources[steps[0].node_id] == [0]
    assert sources[lone.id] == [None]
    assert len({s.identity for s in result.sources}) == len(result.sources) == 3


@pytest.mark.parametrize("mode", ["semantic", "procedural", "episodic", "mixed", None])
async def test_a_subgoal_is_a_candidate_only_by_its_type(world, mode):
    """No mode gives a place to the label of steps, which are candidates themselves."""
    step = await world.say("The bees need sugar in winter", actor="Ana")
    goal = Subgoal("feed the bees sugar in winter")
    edge = Edge(goal.id, step.node_id, EdgeKind.HIERARCHICAL)
    await world.commit(goal, steps=[step], edges=[edge])

    by_mode = await world.recall.recall("bees sugar winter", mode=mode)
    by_type = await world.recall.recall("bees sugar winter", types=("subgoal",))

    assert [c.node.id for c in by_mode.candidates] == [step.node_id]
    assert [c.node.id for c in by_type.candidates] == [goal.id]


async def test_the_step_that_matches_best_is_named_first(deaf):
    """Of the steps behind a fact, the one nearest to the question leads."""
    weak = await deaf.say("bees, of course")
    strong = await deaf.say("the bees swarm in the orchard")
    fact = Semantic("The bees swarm.")
    await deaf.commit(fact, steps=[weak, strong], edges=[_behind(fact, s) for s in (weak, strong)])
    result = await deaf.recall.recall("bees swarm orchard", types=("semantic",))
    assert [s.step_index for s in result.candidates[0].sources] == [1, 0]


def _merged(*places: int) -> Candidate:
    """A fact with these steps behind it, best first."""
    steps = [SourceRef("s1", "e1", n, None, "Ana", None, f"step {n}") for n in places]
    return Candidate(Semantic(f"A fact of {places}."), 0.5, 0.5, "initial", 0, steps)


def test_a_fact_with_many_sources_delays_no_candidate():
    """The first source of each candidate leads; the others follow behind the last candidate's."""
    found = [_merged(7, 3, 4), _merged(1, 7), _merged(3), _merged(7, 9)]
    trace = RecallTrace("mixed", "embedded", (), 1)
    result = RecallResult("mixed", (), found, None, trace)
    assert [source.step_index for source in result.sources] == [7, 1, 3, 4, 9]


async def test_only_evidence_inside_the_window_is_shown(deaf):
    """A fact with one of its two steps inside is there with that one."""
    early = await deaf.say("bees arrived", at=datetime(2024, 1, 5, tzinfo=UTC))
    late = await deaf.say("bees left", at=datetime(2024, 6, 5, tzinfo=UTC))
    fact = Semantic("There were bees.", valid_from=early.at)
    await deaf.commit(fact, steps=[early, late], edges=[_behind(fact, s) for s in (early, late)])
    window = {"since": datetime(2024, 6, 1), "until": datetime(2024, 6, 30)}
    result = await deaf.recall.recall("bees", types=("semantic", "episodic"), **window)
    assert {c.node.id for c in result.candidates} == {fact.id, late.node_id}
    assert [s.step_index for s in result.sources] == [1]
    nothing = await deaf.recall.recall("bees", since=datetime(2025, 1, 1))
    assert nothing.candidates == []


async def test_a_superseded_fact_is_found_only_for_its_time(world):
    """Absent now, present where ``until`` lies before its end."""
    end = datetime(2024, 2, 1, tzinfo=UTC)
    old = Semantic(
        "Ana's budget is 2000 euros.", valid_from=datetime(2024, 1, 1, tzinfo=UTC), valid_to=end
    )
    step = await world.say("my budget is 2000", at=datetime(2024, 1, 1, tzinfo=UTC), actor="Ana")
    await world.commit(old, steps=[step], edges=[_behind(old, step)])
    now = await world.recall.recall("budget", types=("semantic",))
    then = await world.recall.recall("budget", types=("semantic",), until=datetime(2024, 1, 15))
    assert now.candidates == []
    assert [c.node.id for c in then.candidates] == [old.id]
    assert "until 1 Feb 2024" in then.as_text()
    assert (await world.recall.recall("budget")).sources[0].step_index == 0


async def test_the_best_k_are_returned(make_world):
    """``k`` cuts the list, and never changes the order of what stays."""
    world = await make_world(config=Config(recall={"max_candidates": 4}))
    for day in range(1, 8):
        await world.say(f"bees seen on day {day}", at=datetime(2024, 1, day, tzinfo=UTC))
    four = (await world.recall.recall("bees", k=50)).candidates
    two = (await world.recall.recall("bees", k=2)).candidates
    assert len(four) == 4
    assert [c.node.id for c in two] == [c.node.id for c in four[:2]]


def _behind(node: Any, step: Any) -> Edge:
    return Edge(node.id, step.node_id, EdgeKind.PROVENANCE)


async def test_a_node_without_provenance_names_its_changeset(world):
    """What ``apply`` stored without a step says which changeset brought it, in its own words."""
    await world.commit(Semantic("Bo sells boats."))
    await world.commit(Semantic("Bees dislike rain."))
    candidate, _ = (await world.recall.recall("rain")).candidates
    (source,) = candidate.sources
    assert (source.session_id, source.key, source.text) == (None, "c1", "Bees dislike rain.")
